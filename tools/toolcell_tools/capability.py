"""The rights that a call can be granted, the kinds of sessions, and the tiers of tools."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

__all__ = ["CHANGING", "KIND_GRANTS", "LEAST_TIERS", "NOT_READ_ONLY", "Capability", "PermissionTier", "SessionKind"]


class Capability(StrEnum):
    """One right that a call can be granted. A tool names the rights that it `needs` and that it `uses`."""

    READ = "read"
    WRITE = "write"
    EXEC = "exec"
    CHANNEL = "channel"
    MEMORY_READ = "memory.read"
    MEMORY_WRITE = "memory.write"
    WEB = "web"
    HTTP = "http"
    NET = "net"


CHANGING = frozenset({Capability.WRITE, Capability.CHANNEL, Capability.MEMORY_WRITE, Capability.HTTP, Capability.NET})
"""The capabilities with which a call can make a lasting change. EXEC alone changes nothing."""
NOT_READ_ONLY = frozenset({Capability.WRITE, Capability.EXEC, Capability.CHANNEL, Capability.MEMORY_WRITE})
"""The capabilities that no read-only tool has. Requests of HTTP and NET may be read-only."""


class SessionKind(StrEnum):
    """Where a session stands in the tree (ADR-0002): Main at the root, Branches below it, Workers as leaves."""

    MAIN = "main"
    BRANCH = "branch"
    WORKER = "worker"


class PermissionTier(StrEnum):
    """How much a tool can affect (ADR-0004): it observes, changes the workspace, acts outside, or cannot be undone."""

    READ_ONLY = "read_only"
    WORKSPACE = "workspace"
    SYSTEM = "system"
    ELEVATED = "elevated"


LEAST_TIERS: Mapping[Capability, PermissionTier] = MappingProxyType(
    {
        Capability.READ: PermissionTier.READ_ONLY,
        Capability.MEMORY_READ: PermissionTier.READ_ONLY,
        Capability.WEB: PermissionTier.READ_ONLY,
        Capability.WRITE: PermissionTier.WORKSPACE,
        Capability.MEMORY_WRITE: PermissionTier.WORKSPACE,
        Capability.EXEC: PermissionTier.SYSTEM,
        Capability.CHANNEL: PermissionTier.SYSTEM,
        Capability.HTTP: PermissionTier.SYSTEM,
        Capability.NET: PermissionTier.SYSTEM,
    }
)
"""The least tier of a tool that needs or uses the capability."""

KIND_GRANTS: Mapping[SessionKind, frozenset[Capability]] = MappingProxyType(
    {
        SessionKind.MAIN: frozenset(Capability),
        SessionKind.BRANCH: frozenset(Capability),
        SessionKind.WORKER: frozenset({Capability.READ, Capability.MEMORY_READ, Capability.WEB}),
    }
)
"""The capabilities that a session of each kind can hold at most; profiles and parents only narrow them."""
