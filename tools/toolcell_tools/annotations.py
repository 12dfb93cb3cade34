"""Hints about a tool, for policies, schedulers and user interfaces; never a permission."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from .capability import Capability, PermissionTier

if TYPE_CHECKING:
    from pydantic import ConfigDict

__all__ = ["Annotations"]

_MUTATES_WORKSPACE = frozenset({Capability.WRITE, Capability.EXEC})


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotations:
    """What a tool says about itself. The declaration replaces `None` by what the tool's tier and needs imply.

    `sequential` tools of one session never run side by side. `edit` marks changes that a UI can show as a diff.
    """

    # A declaration is a pydantic model and checks these values. A cell never makes one, so it does not load pydantic.
    __pydantic_config__: ClassVar["ConfigDict"] = {"extra": "forbid", "revalidate_instances": "always"}

    title: str | None = None
    read_only: bool | None = None
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    edit: bool = False
    sequential: bool | None = None

    def resolved(self, tier: PermissionTier, needs: frozenset[Capability]) -> "Annotations":
        """Return a copy in which `read_only` and `sequential` are not None."""
        return replace(
            self,
            read_only=tier is PermissionTier.READ_ONLY if self.read_only is None else self.read_only,
            sequential=bool(needs & _MUTATES_WORKSPACE) if self.sequential is None else self.sequential,
        )
