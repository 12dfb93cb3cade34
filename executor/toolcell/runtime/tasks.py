"""Calls that run on after their caller has gone: started, and asked for later by id."""

import logging
import sqlite3
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

import anyio

from toolcell.errors import UsageError
from toolcell.sessions.idempotency import digest_of_call, json_of, size_of_result
from toolcell.store.cures import told
from toolcell.store.directory import DATABASE
from toolcell.store.results import KeptCall, ResultStore
from toolcell.wire.budget import MIB, oldest_beyond
from toolcell_tools.errors import Cancelled
from toolcell_tools.result import ToolResult

__all__ = ["CallTask", "TaskStatus"]

MAX_FINISHED: Final = 1_000
FINISHED_BYTES: Final = 64 * MIB
"""The most finished tasks that are kept in memory, and the most bytes that their calls have sent. The oldest is evicted
first."""
_log = logging.getLogger("toolcell")
TaskStatus = Literal["running", "finished", "failed"]


class CallTask:
    """One call that runs on its own: made by `Session.start`, found again by `Supervisor.task`."""

    def __init__(self, kept: KeptCall) -> None:
        self._kept = kept
        self._result = kept.result
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self.is_kept = False
        """Whether the result is where `Supervisor.task` finds it when this object is forgotten, or nothing keeps it."""

    def __repr__(self) -> str:
        return f"<CallTask {self.id} · {self.status}>"

    @property
    def id(self) -> str:
        return self._kept.id

    @property
    def asked(self) -> str:
        """A digest of its tool and arguments."""
        return self._kept.asked

    @property
    def session_id(self) -> str:
        return self._kept.session_id

    @property
    def call_id(self) -> str:
        """The id of its call in the journal."""
        return self._kept.call_id

    @property
    def status(self) -> TaskStatus:
        """ "failed" if the result is an error, which says why: cancelled and interrupted calls are errors too."""
        if self._result is None:
            return "running"
        return "failed" if self._result.is_error else "finished"

    @property
    def known_result(self) -> ToolResult | None:
        """The result, None while the call runs."""
        return self._result

    @property
    def bytes(self) -> int:
        """About the size of the result."""
        return 0 if self._result is None else size_of_result(self._result)

    async def result(self) -> ToolResult:
        """Wait for the result. A caller that is cancelled does not cancel the task."""
        if self._result is None:
            await self._ended.wait()
        assert self._result is not None
        return self._result

    def cancel(self) -> None:
        """Cancel the call, if it still runs. Its result is then a Cancelled error."""
        if self._result is None:
            self._scope.cancel()

    async def run(self, call: Callable[[], Awaitable[ToolResult]], store: ResultStore | None) -> None:
        """Run the call in the present task, and keep its result. If it cannot be kept, the next supervisor asks the
        journal what became of the call."""
        why = "The task was cancelled."
        if self._scope.cancel_called:
            self._result = self._unstarted("It was cancelled before.")
        try:
            with self._scope:
                if self._result is None:
                    self._result = await call()
        except UsageError as error:  # its session was closed before it began
            self._result = self._unstarted(str(error))
        except Exception as error:  # of the program's journal
            _log.exception("the task %s failed", self.id)
            why = f"The task failed outside of the tool: {type(error).__name__}."
        finally:  # also if the tool has cancelled this task
            self._end(why, store)

    def _end(self, why: str, store: ResultStore | None) -> None:
        if self._result is None:
            self._result = self._failed(Cancelled(message=why, delivered=True, effect=True))  # as far as is known
        try:
            if store is not None:
                store.finish(self._kept, self._result)
            self.is_kept = True
        except (sqlite3.Error, ValueError):  # a full disk, for example, or an id of the call with a lone surrogate
            _log.exception("the result of the task %s cannot be kept", self.id)
        self._ended.set()

    def _unstarted(self, why: str) -> ToolResult:
        return self._failed(Cancelled(message=f"The task was not started. {why}"))

    def _failed(self, error: Cancelled) -> ToolResult:
        return ToolResult.build(error=error, call_id=self.call_id, session_id=self.session_id)


class CallTasks:
    """The tasks of one supervisor."""

    def __init__(self) -> None:
        self._tasks: dict[str, CallTask] = {}

    def begin(
        self,
        session_id: str,
        id: str | None,
        asked: tuple[str, Mapping[str, Any]],
        call_id: str | None,
        store: ResultStore | None,
    ) -> tuple[CallTask, bool]:
        """The task with this id, and whether it is new, so that it must be run. `asked` is its tool and arguments.
        Raises UsageError if the id belongs to another call, or the task cannot be kept."""
        id = uuid.uuid4().hex if id is None else id
        digest = digest_of_call((asked[0], json_of(asked[1])))
        earlier = self.find(id, store)
        if earlier is not None:
            if (earlier.asked, earlier.session_id) != (digest, session_id):
                raise UsageError(f"There is another task with the id {id!r}. Choose another id.")
            return earlier, False
        kept = KeptCall("task", session_id, id, digest, id if call_id is None else call_id)
        if store is not None:
            with told(DATABASE):
                kept = store.begin(kept)
        task = self._tasks[id] = CallTask(kept)
        return task, True

    def find(self, id: str, store: ResultStore | None) -> CallTask | None:
        """The task with this id, of this supervisor or of an earlier one. Raises UsageError if the results cannot be
        read."""
        found = self._tasks.get(id)
        if found is None and store is not None:
            with told(DATABASE):
                kept = store.find("task", "", id)
            if kept is not None and kept.result is not None:
                return CallTask(kept)
        return found

    async def run(self, task: CallTask, call: Callable[[], Awaitable[ToolResult]], store: ResultStore | None) -> None:
        """Run a new task, and make room for its result."""
        try:
            await task.run(call, store)
        finally:
            self._make_room()

    async def join(self) -> None:
        """Wait until no task runs. Their sessions are closed, so their calls end."""
        for task in list(self._tasks.values()):
            await task.result()

    def _make_room(self) -> None:
        finished = {id: task.bytes for id, task in self._tasks.items() if task.is_kept}
        for id in oldest_beyond(finished, MAX_FINISHED, FINISHED_BYTES):
            del self._tasks[id]
