"""The interface between a cell and the pool."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, Final, NamedTuple, ParamSpec, Protocol, TypeVar

from toolcell.pool.run import CellKey, Run
from toolcell.wire.budget import Budgets
from toolcell.wire.frames import Buffer
from toolcell.wire.messages import Failed
from toolcell_sandbox.view import Bind

from .state import State

C_contra = TypeVar("C_contra", contravariant=True)
P = ParamSpec("P")
WATCH_S: Final = 0.05  # how often running calls and sweeps are inspected


class Failing(Protocol):
    """A part of a cell."""

    def fail(self, error: Exception) -> None:
        """End the cell, because of this exception."""
        ...


F = TypeVar("F", bound=Failing)


def owned(step: Callable[Concatenate[F, P], None]) -> Callable[Concatenate[F, P], None]:
    """Decorate a step of a cell that other components call: its exception ends the cell, and the caller goes on."""

    @wraps(step)
    def take(part: F, /, *args: P.args, **options: P.kwargs) -> None:
        try:
            step(part, *args, **options)
        except Exception as error:
            part.fail(error)

    return take


class Binding(NamedTuple):
    """What a prewarmed cell still lacks for the session that has claimed it."""

    paths: Sequence[Bind]
    introduction: Sequence[Buffer]  # sent to the cell when the paths are in place


class Snapshot(NamedTuple):
    """A cell's present state. The last three fields are those of its running call."""

    id: int
    key: CellKey
    state: State = State.READY
    idle_since: float = 0.0
    exclusive: str = ""
    started_at: float = 0.0
    deadline_at: float = 0.0


class CellOwner(Protocol[C_contra]):
    """The pool, as its cells see it. `CellOwner[Never]` fits any kind of cell: it only uses the methods about calls."""

    budgets: Budgets

    def watch(self) -> None:
        """Call `inspect` of the cells periodically from now on."""
        ...

    def on_idle(self, cell: C_contra) -> None:
        """The cell is free for a call, or prewarmed."""
        ...

    def on_lacking(self, cell: C_contra) -> None:
        """The cell waits for the paths of the session that has claimed it: `cell.binding`."""
        ...

    def on_new_process(self, cell: C_contra, run: Run) -> None:
        """A kept process has its first call."""
        ...

    def on_call_ended(self, run: Run) -> None:
        """A call is over. Others that must not overlap with it may start."""
        ...

    def hear(self, cell: C_contra) -> None:
        """Read what the cell's zygote has sent."""
        ...

    def on_dead(self, cell: C_contra, failure: Failed | None) -> None:
        """The cell is gone. `failure` is the reason why it could not start or go on. It is None if waiting calls can
        have another cell."""
        ...
