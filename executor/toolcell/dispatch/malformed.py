"""Bound how often a model may send malformed arguments: ADR-0004's two retries, whoever drives the loop.

The usual loop gives each error to the model, which corrects itself in its next turn. So the malformed calls of each
tool in a session are counted. The third in a row is not retryable, and is reported to the parent session. A malformed
call counts only if it began after the result of the one before was returned, so a batch, whose calls the model wrote at
once, counts once. For the task that made a call, its result is returned at once; for any other task, in a later turn of
the event loop.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

import anyio

from toolcell_tools.errors import ToolError, ValidationError

MAX_ATTEMPTS: Final = 3
_BATCH: "ContextVar[tuple[Malformed, int] | None]" = ContextVar("toolcell_batch", default=None)


@dataclass(slots=True)
class _Streak:
    """Malformed calls of a tool in a row. `task` made the last one. `told` is the turn at which other tasks have its
    result, None before."""

    count: int
    task: int
    told: int | None = None


class Malformed:
    """The malformed calls of a session."""

    __slots__ = ("_streaks", "turn")

    def __init__(self) -> None:
        self.turn = 0
        self._streaks: dict[str, _Streak] = {}

    def __bool__(self) -> bool:
        return bool(self._streaks)

    def begun(self) -> int:
        """The turn in which a call that begins now, or its batch, began."""
        batch = self._batch_turn()
        return self.turn if batch is None else batch

    def _batch_turn(self) -> int | None:
        """The turn in which the current task's batch began; None outside of a batch."""
        batch = _BATCH.get()
        return batch[1] if batch is not None and batch[0] is self else None

    @contextmanager
    def batch(self) -> Generator[None]:
        """A context for calls that the model wrote at once. At its end, their caller has all results."""
        token = _BATCH.set((self, self.begun()))
        try:
            yield
        finally:
            _BATCH.reset(token)
            for streak in self._streaks.values():
                self._tell(streak)

    def judged(
        self, tool: str, error: ToolError | None, began: int | None, in_background: Callable[..., None]
    ) -> ToolError | None:
        """The error of a call that began in the turn `began`: not retryable if it is the third malformed one in a row.
        An outcome that is not malformed ends the row. With `began` None, the call does not count: a repair may still
        correct it."""
        if not isinstance(error, ValidationError) or not error.retryable:  # others put arguments in, not the model
            self._streaks.pop(tool, None)
            return error
        if began is None:
            return error
        streak, task = self._streaks.get(tool), anyio.get_current_task().id
        if streak is None:
            streak = self._streaks[tool] = _Streak(1, task)
        elif (task == streak.task and self._batch_turn() is None) or (streak.told is not None and began >= streak.told):
            streak.count, streak.task, streak.told = streak.count + 1, task, None
        in_background(self._tell_later, streak)
        return error if streak.count < MAX_ATTEMPTS else for_good(tool, error)

    def gave_up(self, tool: str) -> None:
        """A repair has given up."""
        self._streaks[tool] = _Streak(MAX_ATTEMPTS, 0, self.turn)

    async def _tell_later(self, streak: _Streak) -> None:
        self._tell(streak)

    def _tell(self, streak: _Streak) -> None:
        if streak.told is None:
            self.turn += 1
            streak.told = self.turn


def leave_batch() -> None:
    """Take the current task, which runs the program's code, out of the batch that it was called in."""
    _BATCH.set(None)


def for_good(tool: str, error: ValidationError) -> ValidationError:
    """The error of the third malformed call of a tool in a row."""
    advice = f"{MAX_ATTEMPTS} calls of {tool!r} in a row did not fit its schema. Do without it, or ask for help."
    return error.model_copy(update={"retryable": False, "message": f"{error.message}\n{advice}"})
