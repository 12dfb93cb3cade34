"""MCP servers in settings: the table `mcpServers`, in the format that MCP clients share, and toolcell's own keys."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from toolcell.rules.profile import Profile
from toolcell.rules.redaction import origin_of
from toolcell_tools.capability import Capability, PermissionTier

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
COMMAND_GRANTS = frozenset({"read", "write", "exec"})
"""What the profile of a command grants where nothing else is said: the session's workspace, and no network."""


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


def server_of(name: str, table: Mapping[str, Any], profile: Profile | None) -> McpServer:
    """The server in a table that has no mistakes. Raises ValueError for a variable that is not set."""
    values = cast("dict[str, Any]", expanded(dict(table)))
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


def expanded(value: object) -> object:
    """The value with `${NAME}` and `${NAME:-default}` replaced in its texts. Raises ValueError, without any value."""
    if isinstance(value, str):
        return _VARIABLE.sub(_variable, value)
    if isinstance(value, dict):
        return {key: expanded(each) for key, each in cast("dict[str, object]", value).items()}
    return [expanded(each) for each in cast("list[object]", value)] if isinstance(value, (list, tuple)) else value


def _variable(found: re.Match[str]) -> str:
    name = found[1]
    default: str | None = found[2]
    value = os.environ.get(name, default)
    if value is None:
        raise ValueError(f"refers to the environment variable {name}, which is not set. Set it.")
    return value
