"""The messages between our processes: each a named tuple, whose annotations are the types that its frame must have.

A frame is `[kind, *fields]`. Kinds below 16 go into a cell, and 16 to 31 come from a call process. Kinds 32 to 63 are
for the control socket between the supervisor and the cell's init, 64 and above for the zygote's socket. No call process
has access to these two sockets.
"""

from collections.abc import Callable, Mapping
from itertools import product
from types import UnionType
from typing import Any, Final, NamedTuple, TypeVar, cast, get_args, get_origin

from .frames import OUTPUT, REQUEST, Field, Violation

VERSION: Final = 7
"""The protocol's version, in every `Hello`. A cell of another version is refused."""

Types = frozenset[type]
M = TypeVar("M", bound=tuple[Any, ...])
SHAPES: Final[dict[int, tuple[type["Message"], tuple[Types, ...]]]] = {}
"""From a frame's kind to its class and the types that each field may have."""
KIND_OF: Final[dict[type["Message"], int]] = {}


def _kind(number: int) -> Callable[[type[M]], type[M]]:
    """Give a message its kind. Its annotations are the types of its fields on the wire."""

    def register(cls: type[M]) -> type[M]:
        message = cast("type[Message]", cls)
        KIND_OF[message] = number
        SHAPES[number] = message, tuple(map(_types_of, cls.__annotations__.values()))
        return cls

    return register


def _types_of(hint: Any) -> Types:
    """The types of decoded values that an annotation allows: an integer is a float, too."""
    if isinstance(hint, UnionType):
        return Types().union(*map(_types_of, get_args(hint)))
    return Types((int, float)) if hint is float else Types((get_origin(hint) or hint,))


@_kind(1)
class Call(NamedTuple):
    """Run a tool. `seq` numbers the calls of one cell; every answer repeats it.

    `context` is the part of the context that changes from call to call; the rest was in `Load`. It has `remaining_s`
    and, if they are not empty, `config`, `values`, `invocation_id`, `attempt` (from the second on), `preview` and
    `trace` (the W3C trace context). A tool that confirms also gets `confirm`, the list
    of confirmations given so far. The arguments come last, because they may be encoded before the message is made.
    """

    seq: int
    call_id: str
    tool: str
    context: dict[str, Field]
    arguments: dict[str, Field]


@_kind(2)
class Cancel(NamedTuple):
    """The call must end: its caller has gone, or its session closes. The tool may read `ctx.cancelled` before it is
    killed."""

    seq: int
    reason: str


@_kind(3)
class Reply(NamedTuple):
    """The broker's answer to a handle request: `value` is the result, or the message of a refusal."""

    seq: int
    request: int
    ok: bool
    value: Field


@_kind(16)
class Result(NamedTuple):
    """The call's result; the first terminal frame (this or `Error`) wins.

    `payload` has the `output`, the `display` unless it is `protocol.display_of` the output, and `artifacts`, `content`,
    `values` and `signals` unless they are empty.
    """

    seq: int
    payload: dict[str, Field]


@_kind(17)
class Error(NamedTuple):
    """The runner reports that the call failed. `reason` is in `REASONS`. The supervisor adds facts and limits."""

    seq: int
    reason: str
    message: str
    data: dict[str, Field]


@_kind(18)
class Progress(NamedTuple):
    seq: int
    message: str
    fraction: float | None


@_kind(19)
class Log(NamedTuple):
    seq: int
    level: str
    message: str
    fields: dict[str, Field]


@_kind(REQUEST)
class Request(NamedTuple):
    """A handle operation for the broker, such as `memory.search`."""

    seq: int
    request: int
    operation: str
    arguments: dict[str, Field]


@_kind(OUTPUT)
class Output(NamedTuple):
    """What a command of the call has printed to `stream` (1 is stdout, 2 is stderr), after `skipped` bytes that were
    not sent."""

    seq: int
    stream: int
    skipped: int
    data: bytes


@_kind(22)
class Heeds(NamedTuple):
    """The tool has read `ctx.cancelled` for the first time in this call, so it gets time to clean up."""

    seq: int


@_kind(23)
class SpanStart(NamedTuple):
    """The tool has begun the step `span`, a number from 1 that counts up in each call. `parent` is the step around it,
    or 0. `at_ns` is the wall clock in nanoseconds since 1970."""

    seq: int
    span: int
    parent: int
    name: str
    at_ns: int
    attributes: dict[str, Field]


@_kind(24)
class SpanEnd(NamedTuple):
    """The step `span` has ended. `error` is the name of the exception that left it, or ""."""

    seq: int
    span: int
    at_ns: int
    error: str


@_kind(32)
class Hello(NamedTuple):
    """The cell's first message on its control socket, after lockdown and self-test, before it loads the tools."""

    version: int


@_kind(33)
class Failed(NamedTuple):
    """The cell could not be made: the failed step, with the sandbox mechanism and the remedy if there are any."""

    step: str
    message: str
    mechanism: str
    cure: str


@_kind(34)
class Ready(NamedTuple):
    """No process of earlier calls is left. If `waiting`, the call process of this number waits for its call. Otherwise
    it was the last one, and the next is forked on request.

    The init numbers its call processes from 1. A kept process has one number for all its calls.
    """

    process: int
    waiting: bool


@_kind(35)
class Exited(NamedTuple):
    """The account of a call process that ended by itself, or whose `Recycle` asked for it: the exit code (or minus the
    signal), and the kernel's counts of CPU seconds and peak memory in bytes."""

    process: int
    code: int
    cpu_s: float
    max_rss_bytes: int


@_kind(48)
class Load(NamedTuple):
    """The cell's tools, its way of working, and its session.

    Each of `tools` has a name, a way to load it ("import" or "pickle") and a source. `scratch` is the private directory
    that is emptied after each call. With `kept`, one process serves all calls of the session. An `unbound` cell gets
    the last four fields again, by `BindSession`. Nothing may make or change a `protected` name below a `writable` path.
    `session` is the part of the context that all calls share.
    """

    tools: list[Field]
    environ: dict[str, Field]
    scratch: str
    kept: bool
    standby: bool
    unbound: bool
    cpu_s: float
    result_bytes: int
    file_bytes: int
    cwd: str
    writable: list[Field]
    protected: list[Field]
    session: dict[str, Field]


@_kind(49)
class Recycle(NamedTuple):
    """With the number of the present call process: its call is over. Kill the call's processes, clean up, and make the
    next standby. With `account`, the init reports by `Exited` what the call process used, when no other process of the
    call is left.

    With the next number: make that call process, now or ahead of time.
    """

    process: int
    account: bool


@_kind(50)
class BindSession(NamedTuple):
    """A prewarmed cell's session, whose paths are in place: `binds` are `Bind.to_wire`. The rest is as in `Load`."""

    binds: list[Field]
    cwd: str
    writable: list[Field]
    protected: list[Field]
    session: dict[str, Field]


@_kind(64)
class Prepare(NamedTuple):
    """The first message to a zygote. `report` is the sandbox report of another zygote, None for the first one, which
    probes. `preload` are the libraries that its cells will need, None for all that it knows. `system` are the paths
    that prespawned cells mount."""

    report: dict[str, Field] | None
    allow_missing: list[Field]
    preload: list[Field] | None
    system: list[Field]


@_kind(65)
class MakeCell(NamedTuple):
    """Fork a cell. Its five descriptors come with this message: control, in, out, stdout, stderr. A sixth is a memory
    file with the `Particulars`, all that belongs to its session. Only the cell reads it, because later cells inherit
    whatever the zygote has read.

    `figures` are a short `CellProfile.to_wire` of `CellProfile.figures`, `identity` is an `Identity.to_wire`. An
    `unbound` cell gets its session's paths by `BindPaths`. `owners` are the owners of its files, and the likely owners
    of those paths, each [uid, gid]. `fits_prespawned` says whether a prespawned cell can become this one.
    """

    id: int
    figures: dict[str, Field]
    identity: list[Field]
    cgroups: list[Field]
    preload: list[Field] | None
    fits_prespawned: bool
    unbound: bool
    owners: list[Field]


@_kind(66)
class BindPaths(NamedTuple):
    """Mount paths of these owners in an unbound cell. A memory file with the `Paths`, outermost first, comes with this
    message. Only the zygote's doorkeeper reads it."""

    id: int
    owners: list[Field]


@_kind(80)
class Started(NamedTuple):
    """The zygote's first message: its sandbox report, and the code that it runs, by name."""

    report: dict[str, Field]
    code: dict[str, Field]


@_kind(81)
class CellsRefused(NamedTuple):
    """The zygote's only message: cells cannot be made here. The fields are those of `Failed`."""

    step: str
    message: str
    mechanism: str
    cure: str


@_kind(82)
class CellMade(NamedTuple):
    """A cell's init has started. Its pidfd comes with this message, and the listening socket of its proxy, if any."""

    id: int
    pid: int


@_kind(83)
class PathsBound(NamedTuple):
    """The paths of a `BindPaths` are in place."""

    id: int


@_kind(84)
class CellFailed(NamedTuple):
    """A cell could not be made, or its session's paths could not be mounted. The other fields are those of `Failed`."""

    id: int
    step: str
    message: str
    mechanism: str
    cure: str


AHEAD_NEEDS: Final = frozenset({"pid_namespace", "proc", "landlock_scope", "seccomp"})
"""The mechanisms that forking ahead requires. Without them, the running call could reach the waiting process."""


VALUES_BYTES: Final = 64 * 1024
"""The most bytes of the encoded values that a `Result` carries back to its session. Both ends enforce it."""

OUTPUT_BYTES: Final = 32 * 1024
"""The most bytes of data in an `Output`: half of a pipe's capacity. Both ends enforce it."""

REASONS: Final = frozenset(
    {
        "exception",  # the tool raised
        "failure",  # the tool raised ToolFailure: message and data are meant for the model
        "import",  # the tool's module or pickle could not be loaded
        "arguments",  # the arguments did not convert to the types of the function
        "confirm",  # the tool asks for a confirmation: the message is its question
        "permission",  # the tool used a handle that was not granted
        "late",  # the tool cannot end before the deadline
        "unencodable",  # the tool's return value cannot be sent
        "memory",  # MemoryError
        "files",  # EMFILE
        "file_size",  # EFBIG
        "scratch",  # ENOSPC or EDQUOT, and no bytes are left
        "scratch_inodes",  # the same, and no inodes are left
        "processes",  # EAGAIN of fork or of a thread's start
        "again",  # EAGAIN of another system call, or of a fork that now works: the supervisor reads the pids counter
        "result",  # the encoded result is larger than the limit
    }
)

Message = (
    Call
    | Cancel
    | Reply
    | Result
    | Error
    | Progress
    | Log
    | Request
    | Output
    | Heeds
    | SpanStart
    | SpanEnd  # on a call process's pipes
    | Hello
    | Failed
    | Ready
    | Exited
    | Load
    | Recycle
    | BindSession  # on the control socket
    | Prepare
    | MakeCell
    | BindPaths
    | Started
    | CellsRefused
    | CellMade
    | PathsBound
    | CellFailed  # on the zygote's socket
)


def to_fields(message: Message) -> tuple[object, ...]:
    """The array to send: the kind, then the message's fields."""
    return (KIND_OF[type(message)], *message)


_KNOWN: Mapping[tuple[object, ...], Callable[..., Message]] = {
    (kind, int, *given): cls for kind, (cls, types) in SHAPES.items() for given in product(*types)
}
"""From a frame's kind to its class and the types of all its fields, the kind's own type first."""


def from_fields(fields: list[Field]) -> Message | Violation:
    """The message of a decoded frame, or a Violation."""
    try:
        make = _KNOWN[(fields[0], *map(type, fields))]
    except (LookupError, TypeError):  # no fields, or a list as kind
        return _malformed(fields)
    return make(*fields[1:])


def _malformed(fields: list[Field]) -> Violation:
    kind = fields[0] if fields else None
    shape = SHAPES.get(kind) if type(kind) is int else None
    if shape is None:
        return Violation("unknown message", f"kind {kind}" if type(kind) is int else f"a {type(kind).__name__} as kind")
    cls, types = shape
    if len(fields) != len(types) + 1:
        return Violation("malformed message", f"{cls.__name__} has {len(types)} fields, not {len(fields) - 1}")
    name, value = next(
        (name, value)
        for name, value, allowed in zip(cls._fields, fields[1:], types, strict=True)
        if type(value) not in allowed
    )
    return Violation("malformed message", f"{cls.__name__}.{name} is of type {type(value).__name__}")
