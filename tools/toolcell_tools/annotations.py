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
    """What a tool says about itself. `None` means "as its tier and needs imply", and is filled in when it is declared.

    `sequential` tools of one session never run side by side. `edit` marks changes that a UI can show as a diff.
    """

    # A declaration, which is pydantic's, checks what stands here; a cell never declares, and goes without pydantic.
    __pydantic_config__: ClassVar["ConfigDict"] = {"extra": "forbid", "revalidate_instances": "always"}

    title: str | None = None
    read_only: bool | None = None
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    edit: bool = False
    sequential: bool | None = None

    def resolved(self, tier: PermissionTier, needs: frozenset[Capability]) -> "Annotations":
        """The same with no None left in `read_only` and `sequential`."""
        return replace(
            self,
            read_only=tier is PermissionTier.READ_ONLY if self.read_only is None else self.read_only,
            sequential=bool(needs & _MUTATES_WORKSPACE) if self.sequential is None else self.sequential,
        )
