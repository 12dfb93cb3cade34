"""What a cell asks of the pool, and what the pool hears of it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from toolcell.pool.budget import Budgets
from toolcell.pool.run import CellKey, Run
from toolcell.wire.frames import Buffer
from toolcell.wire.messages import Failed
from toolcell_sandbox.view import Bind

from .state import State

C_contra = TypeVar("C_contra", contravariant=True)


class Binding(NamedTuple):
    """What a prewarmed cell still lacks of the session that has claimed it."""

    paths: Sequence[Bind]
    introduction: Sequence[Buffer]  # what the cell is told when these are in place


class Snapshot(NamedTuple):
    """A cell as it is now; the last three are of the call that is under way in it."""

    id: int
    key: CellKey
    state: State = State.READY
    idle_since: float = 0.0
    exclusive: str = ""
    started_at: float = 0.0
    deadline_at: float = 0.0


class Keeper(Protocol[C_contra]):
    """The pool, as its cells see it. `Keeper[Never]` is a keeper of any cells: it is told of calls only."""

    budgets: Budgets

    def watch(self) -> None:
        """Have `inspect` called now and then, from now on."""
        ...

    def on_idle(self, cell: C_contra) -> None:
        """It is free for a call, or prewarmed."""
        ...

    def on_lacking(self, cell: C_contra) -> None:
        """It waits for the paths of the session that has claimed it: `cell.binding`."""
        ...

    def on_new_process(self, cell: C_contra, run: Run) -> None:
        """A process that is kept over calls has its first one."""
        ...

    def on_call_ended(self, run: Run) -> None:
        """A call is over with which others must not overlap."""
        ...

    def on_unanswered(self, cell: C_contra) -> None:
        """Its time to start is over, and its zygote has not answered yet."""
        ...

    def on_dead(self, cell: C_contra, failure: Failed | None) -> None:
        """It is gone. `failure` says why it could not start or go on, None where nobody who waits for it needs to
        know: such a call may have another cell."""
        ...
