"""Tasks (SEP-2663): calls that go on after their request. A client asks for their state, and answers their questions.

A tool that is `long_running`, or whose metadata say so, becomes a task if the client supports tasks. A tool's error is
a result, as for any call; the status "failed" is for what failed outside of the tool. With a state directory, tasks
are found after a restart: those that had ended with their result, the others as interrupted.
"""

import logging
import secrets
import sqlite3
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, cast

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic_core import to_json

from toolcell.store.approvals import ApprovalRequest, Approved, Denied
from toolcell.wire.budget import memory_of
from toolcell_tools.errors import Cancelled
from toolcell_tools.preview import printable

from .bounds import ServerBounds
from .client_approval import APPROVAL, answered, question
from .client_calls import ClientCalls
from .input_required import Answers
from .kept_tasks import EarlierTask, TaskKeeper
from .notifications import MESSAGE_CHARS
from .questions import BadQuestion, Declined, Unanswerable, asked, fits, wire
from .tool_list import ListedTool, failed, infrastructure_error

__all__ = ["EXTENSION", "TaskParams", "Tasks", "UpdateParams", "supports_tasks"]

_log = logging.getLogger("toolcell")
EXTENSION: Final = "io.modelcontextprotocol/tasks"
POLL_MS: Final = 500
"""How often a client should ask."""
Context = ServerRequestContext[Any, Any]
Status = Literal["working", "input_required", "completed", "failed", "cancelled"]
_NEEDED: Final[dict[str, Any]] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


class TaskParams(types.RequestParams):
    """The params of tasks/get and tasks/cancel."""

    task_id: str


class UpdateParams(TaskParams):
    """The params of tasks/update."""

    input_responses: dict[str, dict[str, Any]]


def supports_tasks(ctx: Context) -> bool:
    """Whether the client supports tasks."""
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and EXTENSION in (capabilities.extensions or {})


def require_tasks(ctx: Context) -> None:
    """Raise MCPError for a client that does not support tasks."""
    if not supports_tasks(ctx):
        message = f"The client does not support the extension {EXTENSION}, which the request needs."
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, message, _NEEDED)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(slots=True, eq=False)
class _ClientTask:
    """One call, and what its client sees of it."""

    id: str
    expires_at: float
    ttl_ms: int
    created: str = field(default_factory=_now)
    updated: str = field(default_factory=_now)
    status: Status = "working"
    pending: types.InputRequests = field(default_factory=dict[str, Any])
    answers: Answers = field(default_factory=Answers)
    answered: anyio.Event = field(default_factory=anyio.Event)
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    bytes: int = 0
    """Of its arguments as JSON while it runs, then the memory of its result."""
    message: str = ""
    """The last progress of the call."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def is_over(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")

    def become(self, status: Status) -> None:
        self.status, self.updated = status, _now()

    def progress(self, message: str, _fraction: float | None) -> None:
        self.message, self.updated = printable(message[:MESSAGE_CHARS]), _now()

    def envelope(self) -> dict[str, Any]:
        said = {"statusMessage": self.message} if self.message else {}
        return {
            **said,
            "taskId": self.id,
            "status": self.status,
            "createdAt": self.created,
            "lastUpdatedAt": self.updated,
            "ttlMs": self.ttl_ms,
            "pollIntervalMs": POLL_MS,
        }

    async def ask(self, requests: types.InputRequests, within_s: float) -> Answers | None:
        """Wait for the answers to all requests. None if they do not come in time."""
        self.pending, self.answered = dict(requests), anyio.Event()
        self.become("input_required")
        with anyio.move_on_after(within_s):
            await self.answered.wait()
        is_answered = not self.pending
        self.pending = {}
        self.become("working")
        return {name: self.answers[name] for name in requests} if is_answered else None

    async def approve(self, request: ApprovalRequest) -> Approved | Denied:
        """Ask the client of the task for approval, for the channel."""
        said = await self.ask(question(request).requests, max(0.0, request.expires_at - time.time()))
        if said is None:
            return Denied("The client did not answer in time.")
        self.answers.pop(APPROVAL, None)  # the next question of this name is another one
        return answered(request, said[APPROVAL])


def _restored(kept: EarlierTask) -> _ClientTask:
    """A task of an earlier run of the server."""
    task = _ClientTask(kept.id, kept.expires_at, kept.ttl_ms, kept.created, kept.updated)
    task.status, task.result, task.error = cast("Status", kept.status), kept.result, kept.error
    task.bytes = memory_of(kept.result)
    return task


class Tasks:
    """The tasks of one principal. `tasks` runs them until the server ends."""

    def __init__(self, calls: ClientCalls, tasks: TaskGroup, bounds: ServerBounds, keeper: TaskKeeper) -> None:
        self._calls = calls
        self._group = tasks
        self._bounds = bounds
        self._keeper = keeper
        self._known = {task.id: task for task in map(_restored, keeper.earlier)}

    async def start(
        self, ctx: Context, tool: ListedTool, params: types.CallToolRequestParams, answers: Answers
    ) -> dict[str, Any]:
        """Begin a task, and return its envelope. Raises MCPError if too many are kept."""
        self._prune()
        size = len(to_json(params.arguments or {}))
        if len(self._known) >= self._bounds.tasks or not self._has_room(size):
            message = f"Too many tasks are kept: {len(self._known)}. Try again when the first of them has expired."
            raise MCPError(types.INTERNAL_ERROR, message, {"retryable": True})
        task = _ClientTask(
            secrets.token_hex(16), time.monotonic() + self._bounds.task_s, int(self._bounds.task_s * 1000)
        )
        task.answers, task.bytes = dict(answers), size
        self._known[task.id] = task
        try:
            await self._keep(task, "working")
        except sqlite3.Error as error:
            del self._known[task.id]
            message = f"The task cannot be kept, and was not started: {error}."
            raise MCPError(types.INTERNAL_ERROR, message, {"retryable": True}) from None
        capabilities = ctx.session.client_capabilities
        self._group.start_soon(self._run, task, tool, params, capabilities)
        return {**task.envelope(), "resultType": "task"}

    async def get(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """The state of a task, with its result, its error or its open questions."""
        task = self._found(ctx, params.task_id)
        told = task.envelope()
        if task.pending:
            told["inputRequests"] = {name: wire(each) for name, each in task.pending.items()}
        if task.result is not None:
            told["result"] = task.result
        if task.error is not None:
            told["error"] = task.error
        return told

    async def update(self, ctx: Context, params: UpdateParams) -> dict[str, Any]:
        """Take answers to open questions. An answer that does not fit, or to no open question, is ignored."""
        task = self._found(ctx, params.task_id)
        for name, answer in params.input_responses.items():
            request = task.pending.get(name)
            if request is not None and fits(wire(request), answer):
                task.answers[name] = answer
                del task.pending[name]
        if task.status == "input_required" and not task.pending:
            task.become("working")
            task.answered.set()
        return {}

    async def cancel(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """End the call of a task with its processes. Do nothing if it has ended."""
        self._found(ctx, params.task_id).scope.cancel()
        return {}

    def _found(self, ctx: Context, id: str) -> _ClientTask:
        require_tasks(ctx)
        self._prune()
        task = self._known.get(id)
        if task is None:
            raise MCPError(types.INVALID_PARAMS, f"There is no task {id[:80]!r}.")
        return task

    def _has_room(self, bytes: int, instead: int = 0) -> bool:
        """Whether so many bytes can be kept beside what other tasks keep, in place of `instead` bytes."""
        kept = sum(task.bytes for task in self._known.values()) - instead
        return kept + bytes <= self._bounds.kept_bytes or kept == 0

    def _prune(self) -> None:
        now = time.monotonic()
        for id in [id for id, task in self._known.items() if task.is_over and task.expires_at <= now]:
            del self._known[id]

    async def _run(
        self,
        task: _ClientTask,
        tool: ListedTool,
        params: types.CallToolRequestParams,
        capabilities: types.ClientCapabilities | None,
    ) -> None:
        result: dict[str, Any] | None = None
        error: types.ErrorData | None = None
        with anyio.move_on_at(anyio.current_time() + self._bounds.task_s), task.scope:
            result, error = await self._outcome(task, tool, params, capabilities)
        size = memory_of(result)
        if not self._has_room(size, instead=task.bytes):
            most = self._bounds.kept_bytes
            message = f"The call has ended, and its result of {size:,} bytes is not kept: all tasks may keep {most:,}."
            result, size, error = None, 0, types.ErrorData(code=types.INTERNAL_ERROR, message=message)
        status: Status = "completed" if result is not None else "failed" if error is not None else "cancelled"
        task.pending, task.answers = {}, {}
        told = None if error is None else wire(error)
        try:
            await self._keep(task, status, result, told)
        except (sqlite3.Error, ValueError):  # a full disk, for example; the client of this run has the result
            _log.exception("the result of the task %s cannot be kept for another run of the server", task.id)
        task.result, task.error, task.bytes = result, told, size
        task.become(status)

    async def _keep(
        self,
        task: _ClientTask,
        status: Status,
        result: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
    ) -> None:
        """Keep the task, if there is a state directory. Raises sqlite3.Error, and ValueError for a result that is no
        JSON."""
        outcome = {"result": result} if result is not None else {"error": error} if error is not None else None
        await self._keeper.keep(task.id, (task.created, _now()), (task.expires_at, task.ttl_ms), status, outcome)

    async def _outcome(
        self,
        task: _ClientTask,
        tool: ListedTool,
        params: types.CallToolRequestParams,
        capabilities: types.ClientCapabilities | None,
    ) -> tuple[dict[str, Any] | None, types.ErrorData | None]:
        """The result of the call, or the error outside of its tool; neither for a call that was cancelled."""
        for number in range(self._bounds.rounds + 1):
            call_id = self._keeper.call_id(task.id, number)
            result = await self._calls.attempt(tool, params.arguments, task.answers, task, None, task.progress, call_id)
            if isinstance(result.error, Cancelled):
                return None, None
            error = infrastructure_error(result)
            if error is not None:
                return None, error
            try:
                questions = asked(result, self._bounds.answers_bytes)
                if questions is None:
                    return self._calls.written(tool, params.arguments, result), None
                able = questions.for_client(capabilities, task.answers)
            except (BadQuestion, Declined, Unanswerable) as refusal:
                return failed(str(refusal)), None
            if await task.ask(able, self._bounds.answer_s) is None:
                return failed("The client did not answer in time."), None
        return failed(f"The tool asked the client in {self._bounds.rounds} rounds, and needs more."), None
