"""A call on its way through the pool, and how it ended."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol, TypedDict

import anyio

from toolcell.call import ToolCall
from toolcell.wire.frames import Field
from toolcell.wire.messages import Failed, Log, Output, Progress, Request
from toolcell_sandbox.limits import Limits
from toolcell_sandbox.profile import CellProfile
from toolcell_sandbox.view import Bound

from .budget import Account, Charge
from .capture import EMPTY, Capture, Captured
from .deadlines import Deadline
from .reactor import Waiter

if TYPE_CHECKING:
    from socket import socket


@dataclass(frozen=True, slots=True)
class CellKey:
    """What a cell belongs to: one session, one grant set, one set of limits, and the tool it keeps alive, if any.

    `workspace` is the device, inode and birth of the directory that it has bound; a directory made anew is another one.
    `code` is a digest of the tools that it loads, `protected` one of the protected paths that it was made with.
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
        """Worked out once: a key is looked up several times in each call."""
        return self._hash

    def replaces(self, other: "CellKey") -> bool:
        """Whether no call will ask for a cell of the other key any more: what is protected there has changed since."""
        return self.protected != other.protected and replace(self, protected=other.protected) == other


@dataclass(frozen=True, slots=True, eq=False)
class CellSpec:
    """All it takes to make a cell for a key. `profile` is narrowed to the grants already, `session` is what is the same
    in the contexts of all its calls. An `unbound` cell gets another spec when it is known whose it is.
    """

    key: CellKey
    profile: CellProfile
    tools: tuple[Mapping[str, object], ...]
    cwd: str
    protected: tuple[Bound, ...] = ()
    session: Mapping[str, Field] = field(default_factory=dict[str, Field])
    unbound: bool = False


FAILURE_CHARS = 4000  # of what a cell says of its failure
Ending = Literal[
    "result",  # `payload` is the tool's result
    "error",  # the runner reported it: `reason`, `message`, `payload`
    "exited",  # the process ended without a result: `code` as subprocess has it, minus the signal
    "lost",  # the cell ended under the call
    "timeout",
    "limit",  # `resource` was exceeded
    "violation",  # the cell broke the protocol
    "unavailable",  # no cell could be made: `message`, `mechanism`, `cure`
    "overloaded",  # it waited too long, or too many wait
    "cancelled",
    "moved",  # it waited, and another directory has become its workspace: nothing was sent
]


class Used(TypedDict):
    """What a call has used: fields of `toolcell_tools.result.Usage`, which says what they mean."""

    wall_s: float
    queue_s: float
    cpu_s: float
    max_rss_bytes: int  # of the call process, or of the largest that it has waited for
    memory_bytes: int
    processes: int
    sent_bytes: int  # over the call's pipes, replies and reports among them
    received_bytes: int
    attempts: int


NOTHING_USED: Used = {
    "wall_s": 0.0,
    "queue_s": 0.0,
    "cpu_s": 0.0,
    "max_rss_bytes": 0,
    "memory_bytes": 0,
    "processes": 0,
    "sent_bytes": 0,
    "received_bytes": 0,
    "attempts": 1,
}


@dataclass(slots=True)
class Outcome:
    """How a call ended, in facts. `dispatch.result` makes the `ToolResult` of it."""

    ending: Ending
    payload: Mapping[str, Field] = field(default_factory=dict[str, Field])
    reason: str = ""
    message: str = ""
    code: int = 0
    resource: str = ""
    mechanism: str = ""
    cure: str = ""
    retry_after_s: float | None = None  # where calling again helps: seconds until that is likely
    stdout: Captured = field(default=EMPTY, init=False)
    stderr: Captured = field(default=EMPTY, init=False)
    progress: Progress | None = None  # the last that the call has reported


SOON_S = 0.1
"""Seconds to wait before retrying after a transient failure."""
NO_PROCESS = frozenset({"fork", "fork the cell", "fork the cell's init"})
"""Steps that fail where no more processes may be made."""
_PASSING = NO_PROCESS | {"start", "spawn", "open trees"}
"""Steps that fail for what passes: a process that was killed, a path that was replaced, no process or descriptor."""


def unavailable(failure: Failed) -> Outcome:
    """The outcome of a call whose cell could not be made."""
    return Outcome(
        ending="unavailable",
        message=failure.message[:FAILURE_CHARS],
        mechanism=failure.mechanism[:FAILURE_CHARS],
        cure=failure.cure[:FAILURE_CHARS],
        retry_after_s=SOON_S if failure.step in _PASSING else None,
    )


class ServingCalls(Protocol):
    """The calls of the cell that a run is on, as the run's owner uses them."""

    def reply(self, run: "Run", request: int, ok: bool, value: Field, held: Charge) -> None: ...
    def tell_end(self, run: "Run", reason: str, grace_s: float) -> None: ...
    def condemn(self, run: "Run", what: str) -> None: ...


class ServingCell(Protocol):
    """The cell that a run is on, as the run's owner uses it."""

    @property
    def in_userns(self) -> bool: ...
    @property
    def calls(self) -> ServingCalls: ...


class Run(ABC):
    """One call in the pool: queued, then on a cell, then ended with exactly one `Outcome`.

    Its `on_…` hear what the call says while it runs. They are called on the loop, must not block and must not raise.
    """

    heeds = False
    """Whether the tool has looked at `ctx.cancelled`."""
    ends_at = math.inf
    """When the call is ended that was told to end."""
    over: anyio.Event | None = None
    """Set at the end, where a session that closes waits for it."""

    def __init__(
        self, call: ToolCall, spec: CellSpec, wall_s: float, exclusive: str, packed: bytes | None = None
    ) -> None:
        """`wall_s` is all the time that it has, from now on. Runs with the same non-empty word in `exclusive` do not
        overlap. `packed` are the call's arguments, encoded, if the check of them encoded them.
        """
        self.call = call
        self.packed = packed
        self.spec = spec
        self.queued_at = now = time.monotonic()
        self.deadline_at = now + wall_s
        self.exclusive = exclusive
        self.used = NOTHING_USED.copy()
        self.started_at = 0.0
        self.cell: ServingCell | None = None
        self.deadline: Deadline | None = None
        self.outcome: Outcome | None = None
        self.waiter: Waiter[Outcome] | None = None  # of whoever submitted it
        # Set when no process of the call is left, kept ones aside; None where nobody waits. Whoever does says when
        # another may start that must not overlap with this one, by `Pool.release`: that comes after the audit.
        self.gone: anyio.Event | None = None
        self.pending: Account | None = None  # of its requests, from the first on; where it is full, none is read
        self.state_lost = ""  # how the process ended whose state this call of a kept one would have had
        self.last_progress: Progress | None = None
        self.preview = False  # whether the tool is to say what the call would do, and no more

    @property
    def elapsed_s(self) -> float:
        """From its arrival to its end."""
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
        """Take the outcome unless there is one: the first wins. Says whether this one did. The caller has it at once,
        or `later`, when what was done for the call has ended too.
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
        """Whether another directory is the workspace now than when the run was made."""
        return False

    @abstractmethod
    def on_progress(self, progress: Progress) -> None: ...

    @abstractmethod
    def on_log(self, log: Log) -> None: ...

    @abstractmethod
    def on_output(self, output: Output, before: Capture) -> None:
        """The call, or a command of it, has printed this after what was captured `before`."""

    @abstractmethod
    def on_request(self, request: Request) -> None: ...

    @abstractmethod
    def on_incident(self, what: str) -> None:
        """Something that an auditor wants to know, such as a frame after the end of the call."""

    @abstractmethod
    def on_connection(self, connection: "socket") -> bool:
        """The call has connected to its proxy: take the connection over. Says whether more may come."""

    @abstractmethod
    def on_ended(self) -> bool:
        """The call is over, and so is all that was done for it. Comes before its caller has the outcome. Says whether
        some of that is still to end, in tasks that are to run before the caller's.
        """
