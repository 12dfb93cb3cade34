"""`load_config`: the layers of settings, from the presets up, as one `Config`.

Each file is checked by itself before it is merged into the layers below. So an error has a file and a line, and a
project's file can be compared with the layers below. pydantic-settings would merge first and check the result.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from toolcell.errors import ConfigError, ConfigProblem
from toolcell.rules.circuit_breaker import CircuitBreaker
from toolcell.rules.concurrency import Concurrency
from toolcell.rules.credentials import Credential
from toolcell.rules.policy import PROJECT, TierPolicy
from toolcell.rules.profile import Profile
from toolcell.rules.toml.complaints import complaints, wider_than_a_worker
from toolcell.rules.toml.config import Config
from toolcell.rules.toml.narrowing import widenings
from toolcell.rules.toml.policies import NO_DENIAL, add_files, no_denials, overlaid_policy, too_many_globs
from toolcell.rules.toml.servers import COMMAND_GRANTS, McpServer, server_of
from toolcell.rules.toml.source import NAME, ConfigSource, is_there, read, user_file
from toolcell_sandbox.network import from_wire as network_of
from toolcell_sandbox.trees.protected import expanded, lifted
from toolcell_tools.capability import SessionKind

ARGUMENTS = "the arguments of load_config"
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


def _without_none(**tables: object) -> dict[str, object]:
    return {name: table for name, table in tables.items() if table is not None}


def _overlaid(below: Config, source: ConfigSource) -> tuple[Config, list[ConfigProblem]]:
    """The config overlaid by a source, and the mistakes in the source."""
    problems: list[ConfigProblem] = []
    profiles = dict(below.profiles)
    for name, table in cast("Table", source.table.get("profiles", {})).items():
        kind, at = SessionKind(name), ("profiles", name)
        if kind is SessionKind.WORKER:
            problems += [source.problem((*at, *key), message) for key, message in wider_than_a_worker(table)]
        profile, wrong = _profile(profiles[kind], table, source)
        problems += [source.problem((*at, key), message) for key, message in wrong]
        if not source.trusted:
            for key, what in widenings(profiles[kind], profile, table):
                problems.append(source.problem((*at, *key), f"{what}, and {_ONLY_NARROWS} {_remedy(source)}"))
        profiles[kind] = profile
    policy, denials, rule_files = below.policy, below.denials, dict(below.rule_files)
    said = cast("Table", source.table.get("policy", {}))
    if said and source.trusted:
        policy = overlaid_policy(policy or TierPolicy(), said)
    elif said:
        for key, what in no_denials(said):
            problems.append(source.problem(("policy", *key), f"{what}, and {_ONLY_DENIES} {_remedy(source)}"))
        problems += [
            source.problem(("policy", *key), f"{what} {_remedy(source)}") for key, what in too_many_globs(said)
        ]
        denials = (*denials, overlaid_policy(NO_DENIAL, said, NO_DENIAL))
    file = "" if source.name == ARGUMENTS else source.name
    add_files(rule_files, said, file, "policy" if source.trusted else PROJECT)
    settings = cast("Table", source.table.get("supervisor", {}))
    if settings and not source.trusted:
        problems.append(source.problem(("supervisor",), f"is for every project, and {_ONLY_NARROWS} {_remedy(source)}"))
    if "state" in source.table:  # the same as in [supervisor]
        if not source.trusted:
            problems.append(source.problem(("state",), f"is for every project, and {_ONLY_NARROWS} {_remedy(source)}"))
        elif "state" in settings:
            problems.append(source.problem(("state",), "is set twice, here and in [supervisor]. Remove one of them."))
        settings = {**settings, "state": source.table["state"]}
    servers, of_servers = _servers(cast("Table", source.table.get("mcpServers", {})), source)
    problems += of_servers
    config = replace(
        below,
        servers=MappingProxyType({name: one for name, one in {**below.servers, **servers}.items() if one is not None}),
        profiles=MappingProxyType(profiles),
        policy=policy,
        denials=denials,
        rule_files=MappingProxyType(rule_files),
        **{name: _setting(name, value, source, below) for name, value in settings.items()},
    )
    return config, problems


def _setting(name: str, value: Any, source: ConfigSource, below: Config) -> Any:
    """A setting of the supervisor, from its value in the table. Credentials are merged by host."""
    match name:
        case "allow_missing":
            return frozenset(value)
        case "concurrency":
            return Concurrency(**value)
        case "circuit_breaker":
            return CircuitBreaker(**value)
        case "session_ttl_s":
            return MappingProxyType(
                {**below.session_ttl_s, **{SessionKind(kind): each for kind, each in value.items()}}
            )
        case "quarantine" | "state":
            return source.path(value)
        case "channel" | "memory" | "web":
            return _with_paths(value, source)
        case "credentials":
            return MappingProxyType({**below.credentials, **_credentials(value, source)})
        case _:
            return value


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


def _servers(table: Table, source: ConfigSource) -> tuple[dict[str, McpServer | None], list[ConfigProblem]]:
    """The MCP servers of a source, None for one that it disables, and the mistakes. A project's file has none."""
    if table and not source.trusted:
        what = f"names MCP servers, which run programs, and {_ONLY_NARROWS} {_remedy(source)}"
        return {}, [source.problem(("mcpServers",), what)]
    found: dict[str, McpServer | None] = {}
    problems: list[ConfigProblem] = []
    for name, said in table.items():
        key, own = ("mcpServers", name), cast("Table", said.get("profile", {}))
        base = Profile() if "url" in said else Profile(grants=COMMAND_GRANTS)
        profile, wrong = _profile(base, own, source)
        problems += [source.problem((*key, "profile", field), message) for field, message in wrong]
        try:
            found[name] = None if said.get("disabled") else server_of(name, said, profile)
        except ValueError as error:
            problems.append(source.problem(key, str(error)))
    return found, problems


_ONLY_DENIES = "a project's file can only deny."
_ONLY_NARROWS = "a project's file can only narrow its profiles."


def _remedy(source: ConfigSource) -> str:
    return f"Put it in {user_file()}, or trust this file: load_config(file={source.name!r})."


def _profile(profile: Profile, table: Table, source: ConfigSource) -> tuple[Profile, list[tuple[str, str]]]:
    """The profile overlaid by a table, and the reason for each field that it refuses."""
    problems: list[tuple[str, str]] = []
    for name, value in table.items():
        try:
            profile = profile.replace(**{name: _field(profile, name, value, source)})
        except ValueError as error:
            problems.append((name, str(error).removeprefix(f"Profile.{name} ")))
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
