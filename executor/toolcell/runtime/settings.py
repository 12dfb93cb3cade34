"""The settings of a supervisor: its options, checked, with the values of its config for those that were left out.

A channel, a memory and a web client are made of the config's tables. Each is loaded when it is first needed.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolcell.backends.http import BrokeredHttp
from toolcell.backends.outbound import Resolver, resolve_with_system
from toolcell.backends.protocols import Channel, HttpClient, NotConfigured, WebClient
from toolcell.dispatch.startup_checks import checked_hooks, checked_policy
from toolcell.errors import UsageError
from toolcell.pool.interface import Cluster
from toolcell.rules import misuse
from toolcell.rules.credentials import Credential
from toolcell.rules.limits import Concurrency
from toolcell.rules.options import PlainOptions
from toolcell.rules.policy import PROJECT, Policy, StricterPolicy
from toolcell.rules.profile import Profile
from toolcell.rules.toml import Config
from toolcell.store.directory import StateDirectory
from toolcell.store.journal import Journal, RecentJournal
from toolcell_tools.capability import SessionKind
from toolcell_tools.definition import Tool
from toolcell_tools.outside_cells import ProviderTool
from toolcell_tools.toolsets import Toolset
from toolcell_tools.typed import TypedTool, as_tool

from .options import Options

if TYPE_CHECKING:
    from toolcell.backends.lancedb_memory import LanceDBMemory
    from toolcell.backends.memory import SQLiteMemory
    from toolcell.backends.protocols import SearchProvider

    OwnMemory = SQLiteMemory | LanceDBMemory

SESSION_TTL_S: Mapping[SessionKind, float] = {  # ADR-0002
    SessionKind.MAIN: math.inf,
    SessionKind.BRANCH: 1_800.0,
    SessionKind.WORKER: 300.0,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Settings(Options):
    """The options of a supervisor, checked: the argument, else the value of its config, else the default."""

    tools: Mapping[str, Tool[..., Any]] = field()  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride] - by name
    provider_tools: Mapping[str, ProviderTool]
    toolsets: tuple[Toolset, ...] = field()
    profiles: Mapping[SessionKind, Profile] = field()
    hooks: tuple[object, ...] = field()
    policy: Policy = field()
    is_file_policy: bool
    """Whether the policy is the one of the settings files."""
    rule_files: Mapping[str, str]
    """The settings file of each rule that came from one, by the rule's name in explanations."""
    journal: Journal = field()
    allow_missing: frozenset[str] = field()
    http: HttpClient = field()
    new_memory: "Callable[[], OwnMemory]"
    """Returns the memory that the supervisor makes and closes, if it was given none."""
    new_web: Callable[[], WebClient] | None
    """Returns the web client of all sessions. None: each root session makes one of its own."""
    resolve: Resolver = field()
    quarantine: str | None = field()
    state_directory: StateDirectory | None
    session_ttl_s: Mapping[SessionKind, float] = field()


_PLAIN = frozenset(each.name for each in fields(PlainOptions))


def settings_of(*args: Any, **values: Any) -> Settings:
    """Make the settings from the parameters of `Supervisor`. Raises UsageError for a wrong one."""
    # None stands for an omitted plain option. Of the others, those that are lists refuse it.
    given = {name: each for name, each in values.items() if each is not None or name not in _PLAIN}
    config: Config | None = given.get("config")
    if config is not None:
        misuse.check_config(config)
        given["session_ttl_s"] = {
            **config.session_ttl_s,
            **misuse.mapping("session_ttl_s", given.get("session_ttl_s")),
        }
        given = {name: getattr(config, name) for name in _PLAIN} | given
    options = Options(*args, **given)
    checked = {
        each.name: _CHECKS[each.metadata["kind"]](each.name, getattr(options, each.name), each.metadata)
        for each in fields(PlainOptions)
    }
    parts = {name: getattr(options, name) for name in ("http", "approver", "telemetry", "channel", "memory", "web")}
    misuse.check_parts(**parts)
    misuse.check_journal(options.journal)
    cluster = options.cluster
    if cluster is not None and not isinstance(cluster, Cluster):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"cluster is no cluster: {cluster!r}. Pass RayCluster(…) of toolcell.cluster.")
    if options.resolve is not None and cluster is not None:
        raise UsageError(
            "Supervisor(resolve=…) has no effect on a cluster, because the proxies of calls are on the nodes. Pass "
            "RayCluster(resolve='module:function')."
        )
    misuse.check_callable("resolve", options.resolve)
    policy, is_file_policy, rule_files = _policy_of(options)
    here, elsewhere = _by_name(options.tools)
    profiles = {**({} if config is None else config.profiles), **misuse.profiles_of(options.profiles)}
    web = options.web
    directory = None if options.state is None else StateDirectory(misuse.path("state", options.state))
    resolved: dict[str, Any] = {
        "tools": here,
        "provider_tools": elsewhere,
        "toolsets": (*_toolsets(options.toolsets), *_configured(config)),
        "profiles": {kind: Profile.for_kind(kind.value) for kind in SessionKind} | profiles,
        "hooks": checked_hooks(options.hooks),
        "policy": policy,
        "is_file_policy": is_file_policy,
        "rule_files": rule_files,
        "journal": RecentJournal() if options.journal is None else options.journal,
        "http": _http_of(config) if options.http is None else options.http,
        "channel": _channel_of(config) if options.channel is None else options.channel,
        "state_directory": directory,
        "new_memory": _memory_of(config, directory),
        "new_web": _web_of(config) if web is None else lambda: web,
        "resolve": resolve_with_system if options.resolve is None else options.resolve,
    }
    every: dict[str, Any] = {**vars(options), **checked, **resolved}
    return Settings(**every)


def _policy_of(options: Options) -> tuple[Policy, bool, Mapping[str, str]]:
    """The policy, whether it is the one of the settings files, and the file of each rule that came from one."""
    config = options.config
    if config is None:
        return checked_policy(options.policy), False, {}
    files = {
        rule: file
        for rule, file in config.rule_files.items()
        if options.policy is None or rule.startswith(f"{PROJECT}.")
    }
    policy = checked_policy(config.policy if options.policy is None else options.policy)
    is_of_files = config.policy is not None and policy is config.policy
    return (StricterPolicy(policy, config.denials) if config.denials else policy), is_of_files, files


# -- the checks of PlainOptions, by kind -------------------------------------------------------------------------------


def _count(name: str, value: int | None, rule: Mapping[str, Any]) -> int | None:
    if value is not None and misuse.count(name, value, rule["cure"]) < rule["least"]:
        raise UsageError(f"{name} is too small: {value:,}. {rule['cure']}")
    return value


def _standby(name: str, value: int, _rule: object) -> int:
    if value not in (0, 1):
        raise UsageError(f"{name} is not 0 or 1: {value!r}. A cell runs one call at a time, so one waits at most.")
    return value


def _seconds(name: str, value: float, _rule: object) -> float:
    return misuse.seconds(name, value)


def _finite_seconds(name: str, value: float, _rule: object) -> float:
    if misuse.seconds(name, value) == math.inf:
        raise UsageError(f"{name} is not finite: inf. Pass a number of seconds.")
    return value


def _lifetimes(name: str, value: Mapping[str, float] | None, _rule: object) -> Mapping[SessionKind, float]:
    own = {
        misuse.session_kind(kind): misuse.seconds(f"{name}[{str(kind)!r}]", each, ", or math.inf for no end")
        for kind, each in misuse.mapping(name, value).items()
    }
    return {**SESSION_TTL_S, **own}


def _path(name: str, value: str | Path | None, _rule: object) -> str | None:
    return None if value is None else os.path.abspath(misuse.path(name, value))


def _mechanisms(_name: str, value: Iterable[str], _rule: object) -> frozenset[str]:
    return misuse.mechanisms(value)


def _concurrency(name: str, value: object, _rule: object) -> Concurrency:
    if isinstance(value, Concurrency):
        return value
    raise UsageError(f"{name} is no Concurrency: {value!r}. Write Concurrency(tools={{…: 4}}).")


_CHECKS: Mapping[str, Callable[[str, Any, Mapping[str, Any]], object]] = {
    "count": _count,
    "standby": _standby,
    "seconds": _seconds,
    "finite seconds": _finite_seconds,
    "lifetimes": _lifetimes,
    "path": _path,
    "mechanisms": _mechanisms,
    "concurrency": _concurrency,
}
"""Each returns the checked value of an option with this name."""


# -- the other options -------------------------------------------------------------------------------------------------


def _by_name(
    tools: Iterable[Tool[..., Any] | TypedTool[Any] | ProviderTool | Callable[..., Any]],
) -> tuple[dict[str, Tool[..., Any]], dict[str, ProviderTool]]:
    """The tools that toolcell runs, and the tools that their providers run, by name."""
    here: dict[str, Tool[..., Any]] = {}
    elsewhere: dict[str, ProviderTool] = {}
    for each in misuse.items("tools", tools, "[my_tool]"):
        tool = each if isinstance(each, ProviderTool) else as_tool(each)
        known = here.get(tool.name) or elsewhere.get(tool.name)
        if known is not None:
            places = [one.origin for one in (known, tool)]
            if places[0] == places[1]:  # a module may define a name twice
                places = [f"{one.origin.partition(' ')[0]}{getattr(one, 'line', '')}" for one in (known, tool)]
            both = " and ".join(dict.fromkeys(places))
            raise UsageError(f"Two tools are named {tool.name!r}: {both}. Rename one: tool(fn, name=…).")
        if isinstance(tool, ProviderTool):
            elsewhere[tool.name] = tool
        else:
            here[tool.name] = tool
    return here, elsewhere


def _toolsets(toolsets: Iterable[Toolset]) -> tuple[Toolset, ...]:
    found = misuse.items("toolsets", toolsets, "[my_toolset]")
    for each in found:
        if not isinstance(each, Toolset):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"toolsets holds {each!r}, which is not a Toolset. Tools themselves go into tools=.")
    return tuple(found)


def _configured(config: Config | None) -> Iterable[Toolset]:
    """The toolsets of the MCP servers in the settings."""
    if config is None or not config.servers:
        return ()
    from toolcell.mcp.client.toolset import toolset_of  # which other programs do not need

    return [toolset_of(server) for server in config.servers.values()]


def _http_of(config: Config | None) -> BrokeredHttp:
    try:
        return BrokeredHttp(credentials=None if config is None else config.credentials)
    except ValueError as error:
        raise UsageError(str(error)) from None


# -- the parts that the tables of a config make ------------------------------------------------------------------------


def _channel_of(config: Config | None) -> Channel | None:
    """The channel of `[supervisor.channel]`, or None. Raises UsageError for a table from which none can be made."""
    table = None if config is None else config.channel
    match None if table is None else table["kind"]:
        case "console":
            from toolcell.backends.channels.console import ConsoleChannel

            return ConsoleChannel()
        case "webhook":
            assert table is not None
            from toolcell.backends.channels.webhook import WebhookChannel

            if not table.get("url"):
                raise UsageError(
                    "[supervisor.channel] of the kind 'webhook' has no url. Name where messages are posted."
                )
            options = {name: table[name] for name in ("private", "approves", "timeout_s") if name in table}
            return WebhookChannel(table["url"], credential=_key(table), **options)
        case _:
            return None


def _memory_of(config: Config | None, state: StateDirectory | None) -> "Callable[[], OwnMemory]":
    """Returns a new memory by `[supervisor.memory]`: in its path, else in the state directory, else in this process.
    Raises UsageError for a table from which none can be made."""
    table = (None if config is None else config.memory) or {}
    options = {name: table[name] for name in ("max_text_bytes", "max_records") if name in table}
    if table.get("embed"):
        from toolcell.backends.embedding import LocalEmbedder

        options["embedder"] = LocalEmbedder()
    is_lance = table.get("kind") == "lancedb"
    if is_lance and "path" not in table:
        raise UsageError("[supervisor.memory] of the kind 'lancedb' has no path. Name a directory.")

    def new() -> "OwnMemory":
        if is_lance:
            from toolcell.backends.lancedb_memory import LanceDBMemory

            return LanceDBMemory(table["path"], **options)
        from toolcell.backends.memory import SQLiteMemory

        path = table.get("path") or (":memory:" if state is None else state.memory)
        try:
            return SQLiteMemory(path, **options)
        except NotConfigured as error:
            raise UsageError(str(error)) from error

    return new


def _web_of(config: Config | None) -> Callable[[], WebClient] | None:
    """Returns the web client of `[supervisor.web]`, made at its first use; None without such a table. Raises
    UsageError for a table from which none can be made."""
    table = None if config is None else config.web
    if table is None:
        return None
    options = {name: value for name, value in table.items() if name != "search"}
    search = _search_of(table["search"]) if "search" in table else None

    @cache
    def web() -> WebClient:
        from toolcell.backends.web import PublicWeb

        return PublicWeb(search=search, **options)

    web()  # errors are raised here rather than at the first call
    return web


def _search_of(table: Mapping[str, Any]) -> "SearchProvider":
    from toolcell.backends.search import BraveSearch, SearXNG, TavilySearch

    private = table.get("private", False)
    if table["kind"] == "searxng":
        return SearXNG(table["url"], credential=_key(table), private=private)
    is_brave = table["kind"] == "brave"
    key = _key(table, header="X-Subscription-Token") if is_brave else _key(table, prefix="Bearer ")
    if key is None:
        raise UsageError(
            f"[supervisor.web.search] of the kind {table['kind']!r} has no key. Set value_env or value_file."
        )
    return (BraveSearch if is_brave else TavilySearch)(table["url"], key, private=private)


def _key(table: Mapping[str, Any], header: str = "Authorization", prefix: str = "") -> Credential | None:
    """The credential in a table that says where its secret is, or None."""
    env, file = table.get("value_env"), table.get("value_file")
    if env is None and file is None:
        return None
    header, prefix = table.get("header", header), table.get("prefix", prefix)
    return Credential(header=header, prefix=prefix, value_env=env, value_file=file)
