"""A driver's terms for a node. The drivers of a node share its supervisor, and the first driver's settings hold.

`memory`, `web` and `resolve` are import paths, `module:name`. The node imports them, so no object and no credential of
a driver crosses.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

__all__ = ["MEMORY", "WEB", "NodeTerms"]

MEMORY: Final = "memory"
WEB: Final = "web"
_CURE: Final = (
    "The drivers of a namespace share the supervisor of a node. Pass the same value or none, use another namespace, or "
    "end the old supervisors: await RayCluster(…).remove()."
)


@dataclass(frozen=True, slots=True)
class NodeTerms:
    """The settings that a driver asks for, None for any, and the import paths of the node's backends, "" where the
    driver uses its own. `is_durable`: the driver's journal has a record of each operation. A driver that sends
    workspaces sets `store_bytes`, the bound of the contents that the node keeps. It may set their `directory`."""

    allow_missing: tuple[str, ...] = ()
    max_cells: int | None = None
    quarantine: str | None = None
    memory: str = ""
    web: str = ""
    resolve: str = ""
    is_durable: bool = False
    directory: str | None = None
    store_bytes: int | None = None

    def to_wire(self) -> list[Any]:
        return list(astuple(self))

    @classmethod
    def from_wire(cls, data: Sequence[Any]) -> "NodeTerms":
        allow_missing, *rest = data
        return cls(tuple(allow_missing), *rest)

    @property
    def placed(self) -> frozenset[str]:
        """The handles that the node serves itself."""
        return frozenset(name for name, path in ((MEMORY, self.memory), (WEB, self.web)) if path)

    def conflict(self, max_cells: int, quarantine: str | None, directory: str | None, store_bytes: int | None) -> str:
        """Why a supervisor with these settings does not fit. "" if it does."""
        for name, asked, have in (
            ("max_cells", self.max_cells, max_cells),
            ("quarantine", self.quarantine, quarantine),
            *(
                ()
                if store_bytes is None
                else (
                    ("SentWorkspaces.directory", self.directory, directory),
                    ("SentWorkspaces.store_bytes", self.store_bytes, store_bytes),
                )
            ),
        ):
            if asked is not None and asked != have:
                return (
                    f"The supervisor of the node was started by another driver with {name}={have!r}, and this one asks "
                    f"for {name}={asked!r}. {_CURE}"
                )
        return ""
