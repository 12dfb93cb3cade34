"""`load_config`: the layers of settings, from the presets up, as one `Config`.

Each file is checked by itself before it is merged into the layers below. So an error has a file and a line, and a
project's file can be compared with the layers below. pydantic-settings would merge first and check the result.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from toolcell.errors import ConfigError, ConfigProblem
from toolcell.rules.credentials import Credential
from toolcell.rules.limits import Concurrency
from toolcell.rules.options import PlainOptions
from toolcell.rules.policy import PROJECT, PolicyRule, TierPolicy, rule_name
from toolcell.rules.profile import Profile
from toolcell.rules.toml.complaints import (
    Complaint,
    complaints,
    no_denials,
    too_many_globs,
    widenings,
    wider_than_a_worker,
)
from toolcell.rules.toml.config import Config, McpServer
from toolcell.rules.toml.source import NAME, ConfigSource, Key, is_there, read, user_file
from toolcell_sandbox.network import from_wire as network_of
from toolcell_sandbox.trees.protected import expanded, lifted
from toolcell_tools.capability import Capability, PermissionTier, SessionKind

ARGUMENTS = "the arguments of load_config"
NO_DENIAL = TierPolicy(elevated="allow")
"""The policy to which a project's file adds denials."""
COMMAND_GRANTS = frozenset({"read", "write", "exec"})
"""What the profile of a command grants where nothing else is said: the session's workspace, and no network."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
Table = Mapping[str, Any]
"""A table without complaints."""


def load_config(
    directory: str | os.PathLike[str] | None = None,
    *,
    file: str | os.PathLike[str] | None = None,
    profiles: Mapping[str, Mapping[str, Any]] | None = None,
    supervisor: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
) -> Config:
    """Load the presets, overlaid by the user's toolcell.toml, the one in `directory`, `file`, and the tables given
    here.

    The user's file is `$XDG_CONFIG_HOME/toolcell/toolcell.toml`, or below `~/.config`. The file in `directory` belongs
    to a project, and may only narrow and deny, unless `file` names it too. Tables are merged key by key. Lists
    and single values replace those below. Raises ConfigError, with every mistake, its file and its line.
    """
    for name, path in (("directory", directory), ("file", file)):
        if path is not None and not _is_path(path):
            raise ConfigError([ConfigProblem(ARGUMENTS, None, name, f"is not a path: {path!r}. Pass the path of one.")])
    if directory is not None and os.path.isfile(directory):
        what = f"is a file, not a directory: {str(directory)!r}. Pass it as load_config(file=…)."
        raise ConfigError([ConfigProblem(ARGUMENTS, None, "directory", what)])
    try:
        here = os.getcwd()
    except FileNotFoundError:
        what = "cannot be read: the current directory does not exist any more. Change to another one first."
        raise ConfigError([ConfigProblem(ARGUMENTS, None, "", what)]) from None
    given = ConfigSource(ARGUMENTS, _without_none(profiles=profiles, supervisor=supervisor, policy=policy), here)
    files = list(_files(directory, file))
    current = Config({kind: Profile.for_kind(kind.value) for kind in SessionKind}, files=tuple(map(_path, files)))
    problems: list[ConfigProblem] = []
    for source in (*files, given):
        wrong = [source.problem(key, message) for key, message in complaints(source.table)]
        wrong.sort(key=lambda problem: problem.line or 0)
        if not wrong:
            current, wrong = _overlaid(current, source)
        problems += wrong
    if problems:
        raise ConfigError(problems)
    return current


def _files(directory: str | os.PathLike[str] | None, file: str | os.PathLike[str] | None) -> Iterator[ConfigSource]:
    user, explicit = user_file(), None if file is None else Path(file)
    trusted = [] if explicit is None else [explicit]
    if user.is_absolute() and is_there(user):
        trusted.append(user)
        yield read(user)
    if directory is not None:
        project = Path(directory, NAME)
        if is_there(project) and not any(_is_same(project, path) for path in trusted):
            yield read(project, trusted=False)
    if explicit is not None:
        yield read(explicit)


def _is_path(path: object) -> bool:
    """Whether a file can have this path. Accepts any object."""
    try:
        return isinstance(path, (str, os.PathLike)) and b"\0" not in os.fsencode(cast("str | os.PathLike[str]", path))
    except (TypeError, UnicodeEncodeError):
        return False


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False


def _path(source: ConfigSource) -> Path:
    return Path(source.name)


def _table(table: Mapping[str, object], name: str) -> Table:
    return cast("Table", table.get(name, {}))


def _without_none(**tables: object) -> dict[str, object]:
    return {name: table for name, table in tables.items() if table is not None}


def _overlaid(below: Config, source: ConfigSource) -> tuple[Config, list[ConfigProblem]]:
    """The config overlaid by a source, and the mistakes in the source."""
    problems: list[ConfigProblem] = []
    remedy = f"Put it in {user_file()}, or trust this file: load_config(file={source.name!r})."
    only_narrows = f", and a project's file can only narrow its profiles. {remedy}"
    only_denies = f", and a project's file can only deny. {remedy}"

    def note(at: Key, found: Iterable[Complaint], rule: str = "") -> None:
        """Note what is wrong below a key, with the rule that it breaks."""
        problems.extend(source.problem((*at, *key), f"{what}{rule}") for key, what in found)

    profiles = dict(below.profiles)
    for name, table in _table(source.table, "profiles").items():
        kind, at = SessionKind(name), ("profiles", name)
        if kind is SessionKind.WORKER:
            note(at, wider_than_a_worker(table))
        profile, wrong = _profile(profiles[kind], table, source)
        note(at, wrong)
        if not source.trusted:
            note(at, widenings(profiles[kind], profile, table), only_narrows)
        profiles[kind] = profile
    policy, denials, rule_files = below.policy, below.denials, dict(below.rule_files)
    said = _table(source.table, "policy")
    if said and source.trusted:
        policy = _overlaid_policy(policy or TierPolicy(), said)
    elif said:
        note(("policy",), no_denials(said), only_denies)
        note(("policy",), too_many_globs(said), f" {remedy}")
        denials = (*denials, _overlaid_policy(NO_DENIAL, said, NO_DENIAL))
    file = "" if source.name == ARGUMENTS else source.name
    _add_files(rule_files, said, file, "policy" if source.trusted else PROJECT)
    settings, servers = _table(source.table, "supervisor"), _table(source.table, "mcpServers")
    if "state" in settings and "state" in source.table and source.trusted:
        note(("state",), [((), "is set twice, here and in [supervisor]. Remove one of them.")])
    if "state" in source.table:  # the same as in [supervisor]
        settings = {**settings, "state": source.table["state"]}
    if not source.trusted:
        for key in ("supervisor", "state"):
            if source.table.get(key, {}) != {}:  # also an empty state: the project's directory
                note((key,), [((), "is for every project")], only_narrows)
        if servers:
            note(("mcpServers",), [((), "names MCP servers, which run programs")], only_narrows)
    own, wrong = _servers(servers, source) if source.trusted else ({}, [])
    note(("mcpServers",), wrong)
    config = replace(
        below,
        servers=MappingProxyType({name: one for name, one in {**below.servers, **own}.items() if one is not None}),
        profiles=MappingProxyType(profiles),
        policy=policy,
        denials=denials,
        rule_files=MappingProxyType(rule_files),
        **{name: _setting(name, value, source, below) for name, value in settings.items()},
    )
    return config, problems


_KINDS = {each.name: each.metadata["kind"] for each in fields(PlainOptions)}


def _setting(name: str, value: Any, source: ConfigSource, below: Config) -> Any:
    """A setting of the supervisor, from its value in the table. Lifetimes and credentials are merged by key."""
    match _KINDS.get(name, name):
        case "mechanisms":
            return frozenset(value)
        case "concurrency":
            return Concurrency(**value)
        case "lifetimes":
            own = {SessionKind(kind): each for kind, each in value.items()}
            return MappingProxyType({**getattr(below, name), **own})
        case "path":
            return source.path(value)
        case "channel" | "memory" | "web":
            return _with_paths(value, source)
        case "credentials":
            return MappingProxyType({**below.credentials, **_credentials(value, source)})
        case _:
            return value


def _overlaid_policy(below: TierPolicy, table: Table, inner: TierPolicy | None = None) -> TierPolicy:
    """The policy overlaid by a table without complaints. Tables are merged key by key; `rules` replaces the rules
    below. `inner` is what a new policy for a kind, an agent or a channel begins with."""
    inner = TierPolicy() if inner is None else inner
    changed: dict[str, Any] = {}
    for name, value in table.items():
        match name:
            case "rules":
                changed[name] = tuple(PolicyRule(**each) for each in value)
            case "tools":
                changed[name] = {**below.tools, **value}
            case "kinds" | "agents" | "channels":
                known: Mapping[str, TierPolicy] = getattr(below, name)
                new = {key: _overlaid_policy(known.get(key, inner), each, inner) for key, each in value.items()}
                changed[name] = {**known, **new}
            case _:
                changed[name] = value
    return replace(below, **changed)


def _add_files(files: dict[str, str], table: Table, file: str, name: str) -> None:
    """Note the file of each rule in a table without complaints, by its name in explanations. `name` is the policy's
    own."""
    for key, value in table.items():
        match key:
            case "rules":
                for replaced in [each for each in files if each.startswith(f"{name}.rules[")]:
                    del files[replaced]
                files.update((f"{name}.{rule_name(at, rule.get('name', ''))}", file) for at, rule in enumerate(value))
            case "tools":
                files.update((f"{name}.tools.{tool}", file) for tool in value)
            case "kinds" | "agents" | "channels":
                for inside, each in value.items():
                    _add_files(files, each, file, f"{name}.{key}.{inside}")
            case _:
                files[f"{name}.{key}"] = file


def _with_paths(table: Table, source: ConfigSource) -> Table:
    """A table in which the paths of files are absolute."""
    return MappingProxyType(
        {
            key: source.path(value)
            if key in ("path", "value_file")
            else _with_paths(cast("Table", value), source)
            if isinstance(value, Mapping)
            else value
            for key, value in table.items()
        }
    )


def _servers(table: Table, source: ConfigSource) -> tuple[dict[str, McpServer | None], list[Complaint]]:
    """The MCP servers of a source, None for one that it disables, and the mistakes."""
    found: dict[str, McpServer | None] = {}
    problems: list[Complaint] = []
    for name, said in table.items():
        base = Profile() if "url" in said else Profile(grants=COMMAND_GRANTS)
        profile, wrong = _profile(base, _table(said, "profile"), source)
        problems += [((name, "profile", *key), message) for key, message in wrong]
        try:
            found[name] = None if said.get("disabled") else _server_of(name, said, profile)
        except ValueError as error:
            problems.append(((name,), str(error)))
    return found, problems


def _server_of(name: str, table: Mapping[str, Any], profile: Profile | None) -> McpServer:
    """The server in a table that has no mistakes. Raises ValueError for a variable that is not set."""
    values = cast("dict[str, Any]", with_variables(dict(table)))
    command = (values["command"], *values.get("args", ())) if "command" in values else ()
    return McpServer(
        name=name,
        command=command,
        url=values.get("url", ""),
        env=values.get("env", {}),
        headers=values.get("headers", {}),
        profile=profile,
        needs=frozenset(map(Capability, values.get("needs", ()))),
        tier=PermissionTier(values.get("tier", PermissionTier.SYSTEM)),
        tiers={tool: PermissionTier(tier) for tool, tier in values.get("tiers", {}).items()},
        prefix=values.get("prefix", ""),
        requires_approval=values.get("requires_approval", False),
        timeout=values.get("timeout"),
        required=values.get("required", False),
    )


def with_variables(value: object) -> object:
    """The value with `${NAME}` and `${NAME:-default}` replaced in its texts. Raises ValueError, without any value."""
    if isinstance(value, str):
        return _VARIABLE.sub(_variable, value)
    if isinstance(value, dict):
        return {key: with_variables(each) for key, each in cast("dict[str, object]", value).items()}
    return [with_variables(each) for each in cast("list[object]", value)] if isinstance(value, (list, tuple)) else value


def _variable(found: re.Match[str]) -> str:
    name = found[1]
    default: str | None = found[2]
    value = os.environ.get(name, default)
    if value is None:
        raise ValueError(f"refers to the environment variable {name}, which is not set. Set it.")
    return value


def _profile(profile: Profile, table: Table, source: ConfigSource) -> tuple[Profile, list[Complaint]]:
    """The profile overlaid by a table, and the reason for each field that it refuses."""
    problems: list[Complaint] = []
    for name, value in table.items():
        try:
            profile = profile.replace(**{name: _field(profile, name, value, source)})
        except ValueError as error:
            problems.append(((name,), str(error).removeprefix(f"Profile.{name} ")))
    return profile, problems


def _field(profile: Profile, name: str, value: Any, source: ConfigSource) -> object:
    """A field of a profile, from its value in the table."""
    match name:
        case "limits":
            return profile.limits.replace(**value)
        case "grants":
            return frozenset(value)
        case "readable" | "writable":
            return tuple(_existing(source.path(path)) for path in value)
        case "system":  # files that do not exist are left out
            return tuple(source.path(path) for path in value)
        case "env":
            return {**profile.env, **value}
        case "channel":
            return replace(profile.channel, **value)
        case "pass_env" | "http":
            return tuple(value)
        case "protected":
            return _protected(profile.protected, value)
        case "network":
            return network_of(value)
        case _:
            return value


def _credentials(table: Table, source: ConfigSource) -> dict[str, tuple[Credential, ...]]:
    """The credentials of each host. The path of a file with a secret is relative to the settings file."""
    found: dict[str, tuple[Credential, ...]] = {}
    for place, given in table.items():
        listed = cast("list[Table]", given if isinstance(given, (list, tuple)) else [given])
        found[place] = tuple(_credential(each, source) for each in listed)
    return found


def _credential(table: Table, source: ConfigSource) -> Credential:
    values: dict[str, Any] = dict(table)
    if "value_file" in values:
        values["value_file"] = source.path(values["value_file"])
    return Credential(**values)


def _protected(below: tuple[str, ...], names: list[str]) -> tuple[str, ...]:
    """A list of protected names. "..." stands for the names of the layers below, and "!name" removes one."""
    kept = [each for name in names for each in (below if name == "..." else (name,)) if not each.startswith("!")]
    return lifted(expanded(kept), *(name[1:] for name in names if name.startswith("!")))


def _existing(path: str) -> str:
    if not os.path.exists(path):
        raise ValueError(f"names what is not there, or cannot be reached: {path}. Create it, or leave it out.")
    return path
