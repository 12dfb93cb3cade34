"""The session tree (ADR-0002): Main at the root, Branches below it, Workers as leaves."""

from typing import Final, Protocol

from toolcell.errors import UsageError
from toolcell_tools.capability import SessionKind

MAX_DEPTH: Final = 4
"""The most levels below the root, which has depth 0."""
MAX_CHILDREN: Final = 8


class SessionNode(Protocol):
    """A session as the rules see it."""

    @property
    def kind(self) -> SessionKind: ...
    @property
    def depth(self) -> int: ...
    @property
    def living_children(self) -> int: ...


def check_child(parent: SessionNode, kind: SessionKind) -> None:
    """Raise UsageError unless `parent` may open a child of this kind."""
    if parent.kind is SessionKind.WORKER:
        raise UsageError("A Worker session is a leaf: it opens no children. Open the session from its parent.")
    if kind is SessionKind.MAIN:
        raise UsageError("A Main session is the root of its tree: open it with supervisor.open_session(…).")
    if parent.depth + 1 > MAX_DEPTH:
        raise UsageError(f"The session tree is {MAX_DEPTH} deep at the most. Open the session nearer to the root.")
    if parent.living_children >= MAX_CHILDREN:
        raise UsageError(f"A session has at most {MAX_CHILDREN} open children. Close one first.")
