"""The settings of a supervisor: its arguments, checked, and its config for the arguments that were left out."""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from toolcell.backends.http import BrokeredHttp
from toolcell.backends.outbound import Resolver, resolve_with_system
from toolcell.backends.protocols import Channel, HttpClient, MemoryStore, WebClient
from toolcell.dispatch.guards import checked_hooks, checked_policy
from toolcell.errors import UsageError
from toolcell.pool.calling import Cluster
from toolcell.rules import misuse
from toolcell.rules.circuit_breaker import CircuitBreaker
from toolcell.rules.concurrency import Concurrency
from toolcell.rules.policy import PROJECT, Policy, StricterPolicy, TierPolicy
from toolcell.rules.profile import Profile
from toolcell.rules.toml import Config
from toolcell.store.approvals import Approver
from toolcell.store.directory import StateDirectory
from toolcell.store.journal import Journal, RecentJournal
from toolcell.telemetry.tracing import Telemetry
from toolcell_tools.capability import SessionKind
from toolcell_tools.definition import Tool
from toolcell_tools.provider import ProviderTool
from toolcell_tools.result import FOR_MODEL_BYTES
from toolcell_tools.toolsets import Toolset
from toolcell_tools.typed import TypedTool, as_tool

from .backends import channel_of, memory_of, web_of

if TYPE_CHECKING:
    from .backends import OwnMemory

APPROVAL_TIMEOUT_S = 300.0
HOOK_TIMEOUT_S = 300.0
SESSION_TTL_S: Mapping[SessionKind, float] = {  # ADR-0002
    SessionKind.MAIN: math.inf,
    SessionKind.BRANCH: 1_800.0,
    SessionKind.WORKER: 300.0,
}

LEAST_JOURNAL_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Settings:
    """Every setting of a supervisor: the argument, else the value of its config, else the default."""

    tools: Mapping[str, Tool[..., Any]]
    provider_tools: Mapping[str, ProviderTool]
    toolsets: tuple[Toolset, ...]
    profiles: Mapping[SessionKind, Profile]
    hooks: tuple[object, ...]
    policy: Policy
    is_file_policy: bool
    """Whether the policy is the one of the settings files."""
    rule_files: Mapping[str, str]
    """The settings file of each rule that came from one, by the rule's name in explanations."""
    approver: Approver | None
    approval_timeout_s: float
    journal: Journal
    allow_missing: frozenset[str]
    max_cells: int | None
    standby: bool
    http: HttpClient
    channel: Channel | None
    memory: MemoryStore | None
    new_memory: "Callable[[], OwnMemory]"
    """Returns the memory that the supervisor makes and closes, if it was given none."""
    web: Callable[[], WebClient] | None
    """Returns the web client of all sessions. None: each root session makes one of its own."""
    resolve: Resolver
    quarantine: str | None
    state: StateDirectory | None
    model_bytes: int
    journal_bytes: int
    concurrency: Concurrency
    circuit_breaker: CircuitBreaker
    telemetry: Telemetry | None
    session_ttl_s: Mapping[SessionKind, float]
    hook_timeout_s: float
    given: frozenset[str]
    """Which of "memory" and "web" are arguments."""
    cluster: Cluster | None
    """Runs the calls of cells on its nodes. None: they run on this machine."""


def settings_of(
    tools: Iterable[Tool[..., Any] | TypedTool[Any] | ProviderTool | Callable[..., Any]],
    *,
    toolsets: Iterable[Toolset],
    profiles: Mapping[SessionKind, Profile] | None,
    hooks: Iterable[object],
    policy: Policy | None,
    approver: Approver | None,
    approval_timeout_s: float | None,
    journal: Journal | None,
    allow_missing: Iterable[str] | None,
    max_cells: int | None,
    standby: int | None,
    config: Config | None,
    http: HttpClient | None,
    channel: Channel | None,
    memory: MemoryStore | None,
    web: WebClient | None,
    resolve: Resolver | None,
    quarantine: str | Path | None,
    state: str | Path | None,
    model_bytes: int | None,
    journal_bytes: int | None,
    concurrency: Concurrency | None,
    circuit_breaker: CircuitBreaker | None,
    telemetry: Telemetry | None,
    session_ttl_s: Mapping[SessionKind, float] | Mapping[str, float] | None,
    hook_timeout_s: float | None,
    cluster: Cluster | None,
) -> Settings:
    """Make the settings from the arguments of `Supervisor`. Raises UsageError for a wrong one."""
    given, denials, rule_files = misuse.profiles_of(profiles), tuple[TierPolicy, ...](), dict[str, str]()
    if config is not None:
        misuse.check_config(config)
        given = {**config.profiles, **given}
        allow_missing = config.allow_missing if allow_missing is None else allow_missing
        max_cells = config.max_cells if max_cells is None else max_cells
        standby = config.standby if standby is None else standby
        approval_timeout_s = config.approval_timeout_s if approval_timeout_s is None else approval_timeout_s
        model_bytes = config.model_bytes if model_bytes is None else model_bytes
        journal_bytes = config.journal_bytes if journal_bytes is None else journal_bytes
        quarantine = config.quarantine if quarantine is None else quarantine
        state = config.state if state is None else state
        rule_files |= {name: file for name, file in config.rule_files.items() if policy is None or _is_denial(name)}
        policy = config.policy if policy is None else policy
        denials = config.denials
        concurrency = config.concurrency if concurrency is None else concurrency
        circuit_breaker = config.circuit_breaker if circuit_breaker is None else circuit_breaker
        session_ttl_s = {**config.session_ttl_s, **_lifetimes(session_ttl_s)}
        hook_timeout_s = config.hook_timeout_s if hook_timeout_s is None else hook_timeout_s
    is_file_policy = config is not None and policy is not None and policy is config.policy
    approval_timeout_s = APPROVAL_TIMEOUT_S if approval_timeout_s is None else approval_timeout_s
    model_bytes = FOR_MODEL_BYTES if model_bytes is None else model_bytes
    standby = 1 if standby is None else standby
    _check_numbers(approval_timeout_s, model_bytes, standby, max_cells)
    _check_journal_bytes(journal_bytes)
    misuse.check_parts(http=http, approver=approver, telemetry=telemetry, channel=channel, memory=memory, web=web)
    misuse.check_journal(journal)
    if concurrency is not None and not isinstance(concurrency, Concurrency):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"concurrency is no Concurrency: {concurrency!r}. Write Concurrency(tools={{…: 4}}).")
    if circuit_breaker is not None and not isinstance(circuit_breaker, CircuitBreaker):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"circuit_breaker is no CircuitBreaker: {circuit_breaker!r}. Write CircuitBreaker(crashes=5).")
    kept = None if state is None else StateDirectory(misuse.path("state", state))
    if resolve is not None and cluster is not None:
        raise UsageError(
            "Supervisor(resolve=…) has no effect on a cluster, because the proxies of calls are on the nodes. Pass "
            "RayCluster(resolve='module:function')."
        )
    resolve = resolve_with_system if resolve is None else resolve
    misuse.check_callable("resolve", resolve)
    here, elsewhere = _by_name(tools)
    return Settings(
        tools=here,
        provider_tools=elsewhere,
        toolsets=(*_toolsets(toolsets), *_configured(config)),
        profiles={kind: Profile.for_kind(kind.value) for kind in SessionKind} | given,
        hooks=checked_hooks(hooks),
        policy=StricterPolicy(checked_policy(policy), denials) if denials else checked_policy(policy),
        is_file_policy=is_file_policy,
        rule_files=rule_files,
        approver=approver,
        approval_timeout_s=approval_timeout_s,
        journal=RecentJournal() if journal is None else journal,
        allow_missing=misuse.mechanisms(allow_missing or ()),
        max_cells=max_cells,
        standby=bool(standby),
        http=_http_of(config) if http is None else http,
        channel=channel_of(config) if channel is None else channel,
        memory=memory,
        new_memory=memory_of(config, kept),
        web=web_of(config) if web is None else lambda: web,
        resolve=resolve,
        quarantine=None if quarantine is None else os.path.abspath(misuse.path("quarantine", quarantine)),
        state=kept,
        model_bytes=model_bytes,
        journal_bytes=journal_bytes or 0,
        concurrency=concurrency or Concurrency(),
        circuit_breaker=circuit_breaker or CircuitBreaker(),
        telemetry=telemetry,
        session_ttl_s={**SESSION_TTL_S, **_lifetimes(session_ttl_s)},
        hook_timeout_s=HOOK_TIMEOUT_S if hook_timeout_s is None else misuse.seconds("hook_timeout_s", hook_timeout_s),
        given=frozenset(name for name, part in (("memory", memory), ("web", web)) if part is not None),
        cluster=_checked_cluster(cluster),
    )


def _checked_cluster(cluster: Cluster | None) -> Cluster | None:
    if cluster is not None and not isinstance(cluster, Cluster):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"cluster is no cluster: {cluster!r}. Pass RayCluster(…) of toolcell.cluster.")
    return cluster


def _lifetimes(given: Mapping[SessionKind, float] | Mapping[str, float] | None) -> dict[SessionKind, float]:
    found = misuse.mapping("session_ttl_s", cast("Mapping[str, float] | None", given))
    return {
        misuse.session_kind(kind): misuse.seconds(f"session_ttl_s[{str(kind)!r}]", value, ", or math.inf for no end")
        for kind, value in found.items()
    }


def _is_denial(rule: str) -> bool:
    return rule.startswith(f"{PROJECT}.")


def _check_journal_bytes(journal_bytes: int | None) -> None:
    cure = f"Pass at least {LEAST_JOURNAL_BYTES:,}, or leave it out to keep everything."
    if journal_bytes is not None and misuse.count("journal_bytes", journal_bytes, cure) < LEAST_JOURNAL_BYTES:
        raise UsageError(f"journal_bytes is too small: {journal_bytes:,}. {cure}")


def _check_numbers(approval_timeout_s: float, model_bytes: int, standby: int, max_cells: int | None) -> None:
    if misuse.seconds("approval_timeout_s", approval_timeout_s) == math.inf:
        raise UsageError("approval_timeout_s is not finite: inf. Pass a number of seconds.")
    misuse.count("model_bytes", model_bytes, f"Leave it out for {FOR_MODEL_BYTES:,}.")
    if standby not in (0, 1):
        raise UsageError(f"standby is not 0 or 1: {standby!r}. A cell runs one call at a time, so one waits at most.")
    if max_cells is not None:
        misuse.count("max_cells", max_cells, "Leave it out for a default by the machine.")


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
    from toolcell.mcp.client.configured import toolset_of  # which other programs do not need

    return [toolset_of(server) for server in config.servers.values()]


def _http_of(config: Config | None) -> BrokeredHttp:
    try:
        return BrokeredHttp(credentials=None if config is None else config.credentials)
    except ValueError as error:
        raise UsageError(str(error)) from None
