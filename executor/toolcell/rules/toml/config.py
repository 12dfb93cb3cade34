"""`Config`: the settings for a supervisor, from files and arguments."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from toolcell.rules.credentials import Credential
from toolcell.rules.options import PlainOptions
from toolcell.rules.policy import TierPolicy
from toolcell.rules.profile import Profile
from toolcell.rules.toml.servers import McpServer
from toolcell_tools.capability import SessionKind


def _empty() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Config(PlainOptions):
    """Settings for a Supervisor: `Supervisor(config=…)`. `files` are the files that were read, the lowest layer first.
    None means the supervisor's default. `denials` are those of a project's file; they hold with every policy.
    `rule_files` has the file of each rule of both, by the rule's name in explanations.
    `channel`, `memory` and `web` are the tables of these names, from which the supervisor makes its own.
    `credentials` are by host, for `BrokeredHttp`. They name the place of a secret, never the secret.
    """

    profiles: Mapping[SessionKind, Profile] = field(kw_only=False)
    allow_missing: frozenset[str] = frozenset()
    session_ttl_s: Mapping[SessionKind, float] = field(default_factory=_empty)
    policy: TierPolicy | None = None
    denials: tuple[TierPolicy, ...] = ()
    channel: Mapping[str, Any] | None = None
    memory: Mapping[str, Any] | None = None
    web: Mapping[str, Any] | None = None
    rule_files: Mapping[str, str] = field(default_factory=_empty)
    files: tuple[Path, ...] = ()
    servers: Mapping[str, McpServer] = field(default_factory=_empty)
    """MCP servers by name. A supervisor has a toolset for each."""
    credentials: Mapping[str, tuple[Credential, ...]] = field(default_factory=_empty)
