"""The messages between our processes, each a named tuple, and the table of the fields that each frame must have.

A frame is `[kind, *fields]`. Kinds below 16 go into a cell, and 16 to 31 come from a call process. Kinds 32 to 63 are
for the control socket between the supervisor and the cell's init, 64 and above for the zygote's socket. No call process
has access to these two sockets.
"""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Final, NamedTuple

from toolcell_tools.returned import DISPLAY_TEXT_CHARS

from .frames import OUTPUT, REQUEST, Field, Violation

VERSION: Final = 7
"""The protocol's version, in every `Hello`. A cell of another version is refused."""


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


class Cancel(NamedTuple):
    """The call must end: its caller has gone, or its session closes. The tool may read `ctx.cancelled` before it is
    killed."""

    seq: int
    reason: str


class Reply(NamedTuple):
    """The broker's answer to a handle request: `value` is the result, or the message of a refusal."""

    seq: int
    request: int
    ok: bool
    value: Field


class Result(NamedTuple):
    """The call's result; the first terminal frame (this or `Error`) wins.

    `payload` has the `output`, the `display` unless it equals `display_of` the output, and `artifacts`, `content`,
    `values` and `signals` unless they are empty.
    """

    seq: int
    payload: dict[str, Field]


class Error(NamedTuple):
    """The runner reports that the call failed. `reason` is in `REASONS`. The supervisor adds facts and limits."""

    seq: int
    reason: str
    message: str
    data: dict[str, Field]


class Progress(NamedTuple):
    seq: int
    message: str
    fraction: float | None


class Log(NamedTuple):
    seq: int
    level: str
    message: str
    fields: dict[str, Field]


class Request(NamedTuple):
    """A handle operation for the broker, such as `memory.search`."""

    seq: int
    request: int
    operation: str
    arguments: dict[str, Field]


class Output(NamedTuple):
    """What a command of the call has printed to `stream` (1 is stdout, 2 is stderr), after `skipped` bytes that were
    not sent."""

    seq: int
    stream: int
    skipped: int
    data: bytes


class Heeds(NamedTuple):
    """The tool has read `ctx.cancelled` for the first time in this call, so it gets time to clean up."""

    seq: int


class SpanStart(NamedTuple):
    """The tool has begun the step `span`, a number from 1 that counts up in each call. `parent` is the step around it,
    or 0. `at_ns` is the wall clock in nanoseconds since 1970."""

    seq: int
    span: int
    parent: int
    name: str
    at_ns: int
    attributes: dict[str, Field]


class SpanEnd(NamedTuple):
    """The step `span` has ended. `error` is the name of the exception that left it, or ""."""

    seq: int
    span: int
    at_ns: int
    error: str


class Hello(NamedTuple):
    """The cell's first message on its control socket, after lockdown and self-test, before it loads the tools."""

    version: int


class Failed(NamedTuple):
    """The cell could not be made: the failed step, with the sandbox mechanism and the remedy if there are any."""

    step: str
    message: str
    mechanism: str
    cure: str


class Ready(NamedTuple):
    """No process of earlier calls is left. If `waiting`, the call process of this number waits for its call. Otherwise
    it was the last one, and the next is forked on request.

    The init numbers its call processes from 1. A kept process has one number for all its calls.
    """

    process: int
    waiting: bool


class Exited(NamedTuple):
    """The account of a call process that ended by itself, or whose `Recycle` asked for it: the exit code (or minus the
    signal), and the kernel's counts of CPU seconds and peak memory in bytes."""

    process: int
    code: int
    cpu_s: float
    max_rss_bytes: int


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


class BindSession(NamedTuple):
    """A prewarmed cell's session, whose paths are in place: `binds` are `Bind.to_wire`. The rest is as in `Load`."""

    binds: list[Field]
    cwd: str
    writable: list[Field]
    protected: list[Field]
    session: dict[str, Field]


class Recycle(NamedTuple):
    """With the number of the present call process: its call is over. Kill the call's processes, clean up, and make the
    next standby. With `account`, the init reports by `Exited` what the call process used, when no other process of the
    call is left.

    With the next number: make that call process, now or ahead of time.
    """

    process: int
    account: bool


class Prepare(NamedTuple):
    """The first message to a zygote. `report` is the sandbox report of another zygote, None for the first one, which
    probes. `preload` are the libraries that its cells will need, None for all that it knows. `system` are the paths
    that prespawned cells mount."""

    report: dict[str, Field] | None
    allow_missing: list[Field]
    preload: list[Field] | None
    system: list[Field]


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


class BindPaths(NamedTuple):
    """Mount paths of these owners in an unbound cell. A memory file with the `Paths`, outermost first, comes with this
    message. Only the zygote's doorkeeper reads it."""

    id: int
    owners: list[Field]


class Started(NamedTuple):
    """The zygote's first message: its sandbox report, and the code that it runs, by name."""

    report: dict[str, Field]
    code: dict[str, Field]


class CellsRefused(NamedTuple):
    """The zygote's only message: cells cannot be made here. The fields are those of `Failed`."""

    step: str
    message: str
    mechanism: str
    cure: str


class CellMade(NamedTuple):
    """A cell's init has started. Its pidfd comes with this message, and the listening socket of its proxy, if any."""

    id: int
    pid: int


class PathsBound(NamedTuple):
    """The paths of a `BindPaths` are in place."""

    id: int


class CellFailed(NamedTuple):
    """A cell could not be made, or its session's paths could not be mounted. The other fields are those of `Failed`."""

    id: int
    step: str
    message: str
    mechanism: str
    cure: str


AHEAD_NEEDS: Final = frozenset({"pid_namespace", "proc", "landlock_scope", "seccomp"})
"""The mechanisms that forking ahead requires. Without them, the running call could reach the waiting process."""


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


def display_of(output: Field) -> Field:
    """The display of a result that has none: the output itself if it is a text, cut if it is too long for people."""
    if type(output) is str and len(output) > DISPLAY_TEXT_CHARS:
        return output[: DISPLAY_TEXT_CHARS - 1] + "…"
    return output


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

_Types = frozenset[type]
_int: _Types = frozenset({int})
_str: _Types = frozenset({str})
_bytes: _Types = frozenset({bytes})
_map: _Types = frozenset({dict})
_list: _Types = frozenset({list})
_bool: _Types = frozenset({bool})
_number: _Types = frozenset({int, float})
_none: _Types = frozenset({type(None)})
_any: _Types = frozenset({type(None), bool, int, float, str, bytes, list, dict})
_Shape = tuple[type[Message], tuple[_Types, ...]]

SHAPES: Final[Mapping[int, _Shape]] = {
    1: (Call, (_int, _str, _str, _map, _map)),
    2: (Cancel, (_int, _str)),
    3: (Reply, (_int, _int, _bool, _any)),
    16: (Result, (_int, _map)),
    17: (Error, (_int, _str, _str, _map)),
    18: (Progress, (_int, _str, _number | _none)),
    19: (Log, (_int, _str, _str, _map)),
    REQUEST: (Request, (_int, _int, _str, _map)),
    OUTPUT: (Output, (_int, _int, _int, _bytes)),
    22: (Heeds, (_int,)),
    23: (SpanStart, (_int, _int, _int, _str, _int, _map)),
    24: (SpanEnd, (_int, _int, _int, _str)),
    32: (Hello, (_int,)),
    33: (Failed, (_str, _str, _str, _str)),
    34: (Ready, (_int, _bool)),
    35: (Exited, (_int, _int, _number, _int)),
    48: (Load, (_list, _map, _str, _bool, _bool, _bool, _number, _int, _int, _str, _list, _list, _map)),
    49: (Recycle, (_int, _bool)),
    50: (BindSession, (_list, _str, _list, _list, _map)),
    64: (Prepare, (_map | _none, _list, _list | _none, _list)),
    65: (MakeCell, (_int, _map, _list, _list, _list | _none, _bool, _bool, _list)),
    66: (BindPaths, (_int, _list)),
    80: (Started, (_map, _map)),
    81: (CellsRefused, (_str, _str, _str, _str)),
    82: (CellMade, (_int, _int)),
    83: (PathsBound, (_int,)),
    84: (CellFailed, (_int, _str, _str, _str, _str)),
}
KIND_OF: Final[Mapping[type[Message], int]] = {shape[0]: kind for kind, shape in SHAPES.items()}


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
