"""The messages between a driver and a node: each a named tuple, sent as `[kind, *fields]`.

A driver is a supervisor whose calls run on a cluster. Its messages have kinds below 32; those of a node have kinds from
32. Both ends are our own code on machines that trust each other. A cell's data is in a node's message only after the
node's supervisor has checked it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolcell.wire.frames import Field

__all__ = [
    "PROTOCOL",
    "AnswerRequest",
    "CallEnded",
    "CallNoted",
    "CallSaid",
    "CondemnCell",
    "DropCall",
    "EndCalls",
    "ForgetSession",
    "NodeMessage",
    "NodeTold",
    "PaceCall",
    "RecordMade",
    "SendCall",
    "SendCode",
    "SendSpec",
    "fields_of",
    "message_of",
]


PROTOCOL: Final = 2
"""The version of the messages and the exchanges. Raise it with each change that another version cannot read."""


class SendCode(NamedTuple):
    """The tools that cells load, under their digest. Sent once to each node, before the first spec that needs them."""

    digest: str
    tools: list[dict[str, Any]]


class SendSpec(NamedTuple):
    """The spec of cells, under a number. `profile` is `CellProfile.to_wire()`. `roots` are the directories of the
    driver's code in it, which the node replaces with its own. `session` is the part of the context that all calls
    share. `placed` are the handles that the node serves itself, of "memory" and "web". `pages` are the session's rules
    for pages. `copy` is the id of the copy of a sent workspace, "" without one. `sent_root` is the driver's directory
    that was copied."""

    number: int
    session_id: str
    digest: str
    profile: dict[str, Any]
    roots: list[str]
    grants: list[str]
    kept_tool: str
    cwd: str
    session: dict[str, Any]
    workspace: str
    placed: list[str]
    pages: list[str]
    copy: str = ""
    sent_root: str = ""


class SendCall(NamedTuple):
    """Run a call of a spec. `arguments` are encoded. `wall_s` is the remaining time of the call, in seconds. `context`
    has the session's `config`, `values` and `invocation_id`, and the call's `preview`, `confirm` and `trace`. Empty
    ones are absent. Its `changes` are how many changed files to list, and whether with diffs. Without `changes`, the
    node does not track changed files."""

    number: int
    spec: int
    call_id: str
    tool: str
    arguments: bytes
    attempt: int
    wall_s: float
    exclusive: bool
    context: dict[str, Any]


class AnswerRequest(NamedTuple):
    """The broker's answer to a handle request of a call."""

    number: int
    request: int
    ok: bool
    value: Field


class DropCall(NamedTuple):
    """End this call, because its caller does not wait any more."""

    number: int


class EndCalls(NamedTuple):
    """End the session's queued calls, and tell its running calls to end within a grace period. `least_s` and `most_s`
    are its bounds in seconds; `most_s` is None for no bound."""

    session_id: str
    reason: str
    least_s: float
    most_s: float | None


class ForgetSession(NamedTuple):
    """End the session's calls and cells. `parked` is why the session is parked, "" if it ends. The next call
    of each kept tool reports this reason."""

    session_id: str
    parked: str


class CondemnCell(NamedTuple):
    """End the cell of this call, because its result was malformed. `what` says how."""

    number: int
    what: str


class PaceCall(NamedTuple):
    """Apply backpressure to a call. While `held`, the driver has no room for reports of the call, and the node counts
    the reports that it sends. When they fill their budget, the node stops reading from the call's process."""

    number: int
    held: bool


class NodeTold(NamedTuple):
    """The state of the node's supervisor: its sandbox report, its bound of cells, and its load. `problem` is why the
    supervisor could not start, "" if it runs. `problems` are sentences about the supervisor and its machine. This is a
    node's first message, and is sent again with each heartbeat."""

    report: dict[str, Any]
    problem: str
    most_cells: int
    counts: dict[str, int]
    zygotes: int
    waiting: int
    sessions: int
    memory_bytes: int
    problems: list[str]


class CallSaid(NamedTuple):
    """A message of a call's process, encoded by `wire.messages`: progress, log, output, handle request or span."""

    number: int
    fields: list[Field]


class CallNoted(NamedTuple):
    """An event of a call: "acted" (it may have had a lasting effect), or the text of an incident."""

    number: int
    what: str


class RecordMade(NamedTuple):
    """A record for the driver's journal."""

    kind: str
    session_id: str
    call_id: str
    data: dict[str, Any]
    at: float


class CallEnded(NamedTuple):
    """The outcome of a call. `started` is whether a process received the call. `stdout` and `stderr` are the fields of
    a `Captured`. `audit` has the findings about protected names, None without an audit. `changes` is `[listed, found,
    unknown]` for the changed files, None if they were not tracked or none has changed. Each listed file is `[path,
    kind, size, digest, diff]`."""

    number: int
    ending: str
    payload: dict[str, Field]
    facts: dict[str, Field]
    stdout: list[Any]
    stderr: list[Any]
    used: dict[str, Any]
    started: bool
    is_first: bool
    state_lost: str
    cell: int
    in_userns: bool
    audit: dict[str, Any] | None
    changes: list[Any] | None


NodeMessage = (
    SendCode
    | SendSpec
    | SendCall
    | AnswerRequest
    | DropCall
    | EndCalls
    | ForgetSession
    | CondemnCell
    | PaceCall
    | NodeTold
    | CallSaid
    | CallNoted
    | RecordMade
    | CallEnded
)
_KINDS: Final[Mapping[int, type[NodeMessage]]] = {
    1: SendCode,
    2: SendSpec,
    3: SendCall,
    4: AnswerRequest,
    5: DropCall,
    6: EndCalls,
    7: ForgetSession,
    8: CondemnCell,
    16: PaceCall,
    32: NodeTold,
    33: CallSaid,
    34: CallNoted,
    35: RecordMade,
    36: CallEnded,
}
_KIND_OF: Final = {cls: kind for kind, cls in _KINDS.items()}


def fields_of(message: NodeMessage) -> tuple[object, ...]:
    """The frame to send."""
    return (_KIND_OF[type(message)], *message)


def message_of(fields: Sequence[Any]) -> NodeMessage:
    """The message of a frame. Raises KeyError or TypeError for a frame of another version."""
    kind, *rest = fields
    return _KINDS[kind](*rest)
