"""`Config`: the settings for a supervisor, from files and arguments. They are values; `load` makes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from toolcell.rules.credentials import Credential
from toolcell.rules.options import PlainOptions
from toolcell.rules.policy import TierPolicy
from toolcell.rules.profile import Profile
from toolcell.rules.redaction import origin_of
from toolcell_tools.capability import Capability, PermissionTier, SessionKind


def _empty() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """One MCP server: `command`, or `url`. The fields are the arguments of `mcp_toolset`. Whatever may hold a
    secret is never shown."""

    name: str
    command: tuple[str, ...] = field(default=(), repr=False)
    url: str = field(default="", repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    profile: Profile | None = field(default=None, repr=False)
    needs: frozenset[Capability] = frozenset()
    tier: PermissionTier = PermissionTier.SYSTEM
    tiers: Mapping[str, PermissionTier] = field(default_factory=dict[str, PermissionTier])
    prefix: str = ""
    requires_approval: bool = False
    timeout: float | None = None
    required: bool = False

    @property
    def shown(self) -> dict[str, object]:
        """The server for people and bug reports: the program without its arguments, the URL without its path,
        and names without values."""
        place = {"url": origin_of(self.url)} if self.url else {"command": self.command[0]}
        names = {"env": sorted(self.env), "headers": sorted(self.headers)}
        return {**place, **{key: found for key, found in names.items() if found}, "tier": self.tier.value}


@dataclass(frozen=True, kw_only=True)
class Config(PlainOptions):
    """Settings for a Supervisor: `Supervisor(config=…)`. `files` are the files that were read, the lowest layer first.
    An option that no file sets has the supervisor's default. `denials` are those of a project's file; they hold with
    every policy. `rule_files` has the file of each rule of both, by the rule's name in explanations.
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
