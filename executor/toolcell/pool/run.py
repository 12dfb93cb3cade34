"""A call on its way through the pool: its cell's key and spec, what it prints, and how it ended."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

import anyio

from toolcell.rules.call import ToolCall
from toolcell.wire.budget import Account, Charge
from toolcell.wire.frames import Field
from toolcell.wire.messages import Failed, Log, Output, Progress, Request, SpanEnd, SpanStart
from toolcell_sandbox.limits import Limits
from toolcell_sandbox.profile import CellProfile
from toolcell_sandbox.view import Bound

from .deadlines import Deadline
from .reactor import Waiter

if TYPE_CHECKING:
    from socket import socket


@dataclass(frozen=True, slots=True)
class CellKey:
    """The identity of a cell: its session, its grants, its limits, and its kept tool, if any.

    `workspace` is the device, inode and birth time of the bound directory, so a directory that was made again differs.
    `code` is a digest of the tools that the cell loads, `protected` a digest of the protected paths in it.
    """

    session_id: str
    grants: frozenset[str]
    limits: Limits
    kept_tool: str = ""
    code: str = ""
    workspace: tuple[int, int, int] = (0, 0, 0)
    protected: str = ""

    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = (self.session_id, self.grants, self.limits, self.kept_tool, self.code, self.workspace, self.protected)
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        """The hash, computed once: each call looks up a key several times."""
        return self._hash

    def replaces(self, other: "CellKey") -> bool:
        """Whether this key replaces the other one, because the protected paths have changed."""
        return self.protected != other.protected and replace(self, protected=other.protected) == other


@dataclass(frozen=True, slots=True, eq=False)
class CellSpec:
    """Everything needed to make a cell for a key. `profile` is already narrowed to the grants. `session` is the part of
    the context that all its calls share. An `unbound` cell gets another spec when a session claims it.
    """

    key: CellKey
    profile: CellProfile
    tools: tuple[Mapping[str, object], ...]
    cwd: str
    protected: tuple[Bound, ...] = ()
    session: Mapping[str, Field] = field(default_factory=dict[str, Field])
    unbound: bool = False


FAILURE_CHARS = 4000  # kept of a cell's report of its failure
Ending = Literal[
    "result",  # `payload` is the tool's result
    "error",  # the runner reported it: `reason`, `message`, `payload`
    "exited",  # the process ended without a result: `code` as subprocess has it, minus the signal
    "lost",  # the cell ended during the call
    "timeout",
    "limit",  # `resource` was exceeded
    "violation",  # the cell broke the protocol
    "unavailable",  # no cell could be made: `message`, `mechanism`, `cure`
    "overloaded",  # it waited too long, or too many calls wait
    "cancelled",
    "node_lost",  # the cluster's node of the call was lost, or there is none: `message`
    "moved",  # while it waited, another directory became its workspace: nothing was sent
]


class Used(TypedDict):
    """What a call has used. `toolcell_tools.result.Usage` documents the fields, and has `attempts` too."""

    wall_s: float
    queue_s: float
    cpu_s: float
    max_rss_bytes: int  # of the call process, or of the largest child that it has waited for
    memory_bytes: int
    processes: int
    sent_bytes: int  # over the call's pipes, replies and reports among them
    received_bytes: int


NOTHING_USED: Used = {
    "wall_s": 0.0,
    "queue_s": 0.0,
    "cpu_s": 0.0,
    "max_rss_bytes": 0,
    "memory_bytes": 0,
    "processes": 0,
    "sent_bytes": 0,
    "received_bytes": 0,
}


@dataclass(frozen=True, slots=True)
class Captured:
    """One stream's capture. `text` is the head and the tail, with the number of omitted bytes between them."""

    text: str = ""
    total_bytes: int = 0
    omitted_bytes: int = 0


EMPTY = Captured()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended, in facts. `dispatch.conclude` makes the `ToolResult` of it."""

    ending: Ending
    payload: Mapping[str, Field] = field(default_factory=dict[str, Field])
    reason: str = ""
    message: str = ""
    code: int = 0
    resource: str = ""
    mechanism: str = ""
    cure: str = ""
    retry_after_s: float | None = None  # if a retry can succeed: in how many seconds
    stdout: Captured = EMPTY
    stderr: Captured = EMPTY
    progress: Progress | None = None  # the last progress that the call has reported
    node: str = ""  # the id of the node of a cluster that had the call; "" on this machine


UNRECORDED = "The call was not run, because it could not be recorded: its supervisor's disk may be full."
UNRECORDED_CURE = "`toolcell status` says what is wrong with the state directory, for example that its disk is full."
SOON_S = 0.1
"""Seconds to wait before retrying after a transient failure."""
NO_PROCESS = frozenset({"fork", "fork the cell", "fork the cell's init"})
"""Steps that fail if no more processes can be made."""
_PASSING = NO_PROCESS | {"start", "spawn", "open trees"}
"""Steps whose failures are transient: a killed process, a replaced path, no free process or descriptor."""


def unavailable(failure: Failed) -> Outcome:
    """The outcome of a call whose cell could not be made."""
    return Outcome(
        ending="unavailable",
        message=failure.message[:FAILURE_CHARS],
        mechanism=failure.mechanism[:FAILURE_CHARS],
        cure=failure.cure[:FAILURE_CHARS],
        retry_after_s=SOON_S if failure.step in _PASSING else None,
    )


class Capture:
    """Takes a stream piece by piece, and keeps at most `keep_bytes` of it."""

    __slots__ = ("_head", "_head_bytes", "_tail", "_tail_bytes", "keep_bytes", "relayed", "total")

    def __init__(self, keep_bytes: int) -> None:
        self.keep_bytes = keep_bytes
        self._tail_bytes = keep_bytes // 3  # the start of an output is worth most, then its end
        self._head_bytes = keep_bytes - self._tail_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        self.relayed = 0  # bytes that commands printed, which the limit on output does not count

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data and self._tail_bytes:
            self._tail += data[-self._tail_bytes :]
            if len(self._tail) > self._tail_bytes:
                del self._tail[: -self._tail_bytes]

    def relay(self, data: bytes, skipped: int) -> None:
        """Take what a command printed, after `skipped` bytes that were not sent."""
        self.relayed += skipped + len(data)
        if skipped:
            self.total += skipped
            self._head_bytes = len(self._head)  # later bytes are not part of the head
            self._tail.clear()
        self.feed(data)

    def kept(self) -> bytes:
        """The bytes that are kept: all of them if `total` is at most `keep_bytes`."""
        return bytes(self._head + self._tail)

    def take(self) -> Captured:
        """The bytes that were captured since the last take."""
        if not self.total:
            return EMPTY
        omitted = self.total - len(self._head) - len(self._tail)
        head = self._head.decode("utf-8", "replace")
        tail = self._tail.decode("utf-8", "replace")
        gap = f"\n[{omitted:,} of {self.total:,} bytes left out]\n" if omitted else ""
        captured = Captured(head + gap + tail, self.total, omitted)
        self.clear()
        return captured

    def clear(self) -> None:
        self._head.clear()
        self._tail.clear()
        self._head_bytes = self.keep_bytes - self._tail_bytes
        self.total = self.relayed = 0


class ServingCalls(Protocol):
    """The calls of a run's cell, as the run's owner uses them."""

    def reply(self, run: "Run", request: int, ok: bool, value: Field, held: Charge) -> None: ...
    def tell_end(self, run: "Run", reason: str, grace_s: float) -> None: ...
    def condemn(self, run: "Run", what: str) -> None: ...


class ServingCell(Protocol):
    """The cell of a run, as the run's owner uses it."""

    pid: int
    """The init's pid on the host."""

    @property
    def in_userns(self) -> bool: ...
    @property
    def calls(self) -> ServingCalls: ...


class Run(ABC):
    """One call in the pool: queued, then on a cell, then ended with exactly one `Outcome`.

    Its methods `on_…` get the call's messages while it runs. They are called on the loop and must not block or raise.
    """

    heeds = False
    """Whether the tool has read `ctx.cancelled`."""
    ends_at = math.inf
    """The end of the call's grace (time.monotonic seconds); math.inf until the call is told to end."""
    confirm: list[Field] | None = None
    """The confirmations that were given for the call; None if its tool does not confirm."""
    trace: dict[str, Field] | None = None
    """The W3C trace context that the cell gets; None if no call is traced."""
    is_first_of_cell = False
    """Whether its cell had served no call before."""
    over: anyio.Event | None = None
    """Set at the call's end, if a closing session waits for it."""
    started_at = 0.0
    cell: ServingCell | None = None
    deadline: Deadline | None = None
    outcome: Outcome | None = None
    waiter: Waiter[Outcome] | None = None
    """Resumes the task that has submitted the run."""
    gone: anyio.Event | None = None
    """Set when no process of the call is left, except kept ones; None if nothing waits for it. The task that waits for
    it audits the workspace and then calls `Pool.release`, which lets the next exclusive run start."""
    pending: Account | None = None
    """Charged with the call's requests. While it is full, no frame of the call is read."""
    state_lost = ""
    """How the previous kept process ended, if its state was lost."""
    files_lost = ""
    """What is lost of the workspace, if the node that had it was lost."""
    last_progress: Progress | None = None
    preview = False
    """Whether the tool only says what the call would do."""

    def __init__(
        self, call: ToolCall, spec: CellSpec, wall_s: float, exclusive: str, packed: bytes | None = None
    ) -> None:
        """`wall_s` is the call's whole time from now, in seconds. Runs with the same non-empty word in `exclusive` do
        not overlap. `packed` are the encoded arguments, if their check has encoded them.
        """
        self.call = self.sent = call  # `sent` is the call as the cell gets it
        self.packed = packed
        self.spec = spec
        self.queued_at = now = time.monotonic()
        self.deadline_at = now + wall_s
        self.exclusive = exclusive
        self.used = NOTHING_USED.copy()

    @property
    def elapsed_s(self) -> float:
        """Seconds from the call's arrival to its end."""
        return self.used["queue_s"] + self.used["wall_s"]

    @property
    def call_id(self) -> str:
        return self.call.id

    @property
    def tool(self) -> str:
        return self.call.tool

    @property
    def limits(self) -> Limits:
        return self.spec.key.limits

    def __repr__(self) -> str:
        state = self.outcome.ending if self.outcome else "running" if self.cell else "queued"
        return f"<Run {self.call_id} of {self.tool} · {state}>"

    def end(self, outcome: Outcome, now: float, *, later: bool = False) -> bool:
        """Set the outcome, unless the run has one: the first wins. Returns whether it was set. The caller gets it at
        once, or with `later` after the tasks that serve the call have ended.
        """
        if self.outcome is not None:
            return False
        started = self.started_at or now
        self.used["wall_s"] = now - started
        self.used["queue_s"] = started - self.queued_at
        self.outcome = outcome
        if self.waiter is not None:
            self.waiter.set(outcome, later=later)
        if self.over is not None:
            self.over.set()
        if self.cell is None and self.gone is not None:
            self.gone.set()
        return True

    def has_moved(self) -> bool:
        """Whether the workspace is now another directory than when the run was made."""
        return False

    @abstractmethod
    def on_progress(self, progress: Progress) -> None: ...

    @abstractmethod
    def on_log(self, log: Log) -> None: ...

    @abstractmethod
    def on_output(self, output: Output, before: Capture) -> None:
        """The call, or one of its commands, has printed `output`. `before` bytes were captured earlier."""

    def on_span(self, span: SpanStart | SpanEnd) -> None:  # noqa: B027
        """The tool has begun or ended a step of its work."""

    def without_secrets(self, data: dict[str, Any]) -> dict[str, Any]:
        """The facts of a record of the call, without secrets."""
        return data

    def on_queued(self) -> None:  # noqa: B027 - most owners need no word of it
        """No process is free, so the call waits."""

    def on_taken(self) -> bool:
        """The call has waited, and is given to a process next. Returns whether it may be."""
        return True

    @abstractmethod
    def on_request(self, request: Request) -> None: ...

    @abstractmethod
    def on_incident(self, what: str) -> None:
        """Something for the audit has happened, such as a frame after the end of the call."""

    @abstractmethod
    def on_connection(self, connection: "socket") -> bool:
        """Take over a connection of the call to its proxy. Returns whether more connections may come."""

    @abstractmethod
    def on_ended(self) -> bool:
        """End all work for the call, which is over. Called before the caller gets the outcome. Returns whether some
        tasks have not ended yet; they must run before the caller's task.
        """


def context_of(run: Run, now: float) -> dict[str, Field]:
    """The context of a call: the facts that the cell does not know yet."""
    context: dict[str, Field] = {"remaining_s": run.deadline_at - now}
    call, session = run.sent, run.sent.session
    if session is not None:
        if session.config:
            context["config"] = dict(session.config)
        if session.values:
            context["values"] = session.values
        if session.invocation_id:
            context["invocation_id"] = session.invocation_id
    if call.attempt > 1:
        context["attempt"] = call.attempt
    if run.preview:
        context["preview"] = True
    if run.confirm is not None:
        context["confirm"] = run.confirm
    if run.trace is not None:
        context["trace"] = run.trace
    return context
