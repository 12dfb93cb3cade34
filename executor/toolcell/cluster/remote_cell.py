"""The cell of a call on a node, as the call's owner in the driver uses it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from toolcell.pool.cell.calls import KEEP_OUTPUT_BYTES, MOMENT_BYTES
from toolcell.pool.run import EMPTY, Capture, Captured, Ending, Outcome, Run, ServingCalls, ServingCell
from toolcell.sessions.changes import ListedChanges
from toolcell.sessions.protection import Watch
from toolcell.wire.budget import Account, Ask, Charge
from toolcell.wire.frames import REPLY_BYTES, Field, TooLarge, Unpackable
from toolcell.wire.messages import Log, Output, Progress, Request, SpanEnd, SpanStart, from_fields
from toolcell_sandbox.trees.audit import Finding
from toolcell_sandbox.view import Bound
from toolcell_tools.artifact import Artifact

from .link import UNPACKABLE, pack
from .messages import AnswerRequest, CallEnded, CondemnCell, NodeMessage, PaceCall

__all__ = ["RemoteCell", "changes_of", "outcome_of", "watch_of"]


class CellPeer(Protocol):
    """The node of the cell."""

    def say(self, message: NodeMessage) -> None: ...


class RemoteCell(ServingCell, ServingCalls):
    """The cell of one call. `pid` is the process id of its init on the node, 0 until the call has ended."""

    def __init__(self, peer: CellPeer, number: int) -> None:
        self.pid = 0
        self.number = number
        self.is_in_userns = False
        self._peer = peer
        self._captures: dict[int, Capture] = {}
        self._room: Ask | None = None  # the request for room, while the node holds the call

    @property
    def in_userns(self) -> bool:
        return self.is_in_userns

    @property
    def calls(self) -> ServingCalls:
        return self

    def hear(self, run: Run, fields: list[Field]) -> None:
        """Pass a message from the call's process to the run."""
        match message := from_fields(fields):
            case Progress():
                run.last_progress = message
                run.on_progress(message)
            case Log():
                run.on_log(message)
            case Request():
                run.on_request(message)
            case SpanStart() | SpanEnd():
                run.on_span(message)
            case Output():
                self._print(run, message)
            case _:
                run.on_incident(f"the node forwarded a message that no call may send: {message}")
        if run.pending is not None and self._room is None and not run.pending.has_room(MOMENT_BYTES):
            self._hold(run, run.pending)

    def _hold(self, run: Run, pending: Account) -> None:
        """Make the node hold the call until a slow listener or disk has taken the buffered reports."""

        def on_room() -> None:
            room, self._room = self._room, None
            if room is not None:
                room.end()
            if run.outcome is None:
                self._peer.say(PaceCall(self.number, held=False))

        self._room = pending.ask(MOMENT_BYTES, on_room)
        self._peer.say(PaceCall(self.number, held=True))

    def _print(self, run: Run, output: Output) -> None:
        capture = self._captures.setdefault(output.stream, Capture(KEEP_OUTPUT_BYTES))
        run.on_output(output, capture)
        if output.seq:
            capture.relay(output.data, output.skipped)
        else:
            capture.feed(output.data)

    def reply(self, run: Run, request: int, ok: bool, value: Field, held: Charge) -> None:
        """Send the broker's answer to the node. Raises Unpackable."""
        held.release()
        if run.outcome is not None:
            return
        try:
            size = len(pack(value))
        except UNPACKABLE as error:
            raise Unpackable(f"the message cannot be encoded: {error}") from error
        if size > REPLY_BYTES:
            raise TooLarge(f"the message has {size:,} bytes; a frame holds at most {REPLY_BYTES:,}")
        self._peer.say(AnswerRequest(self.number, request, ok, value))

    def tell_end(self, run: Run, reason: str, grace_s: float) -> None:
        """Do nothing: the pool sends `EndCalls` to the node."""

    def condemn(self, run: Run, what: str) -> None:
        run.on_incident(f"protocol violation: {what}")
        self._peer.say(CondemnCell(self.number, what))


def outcome_of(ended: CallEnded, node: str) -> Outcome:
    """The outcome in the message of this node."""
    facts: dict[str, Any] = dict(ended.facts)
    if (progress := facts.pop("progress", None)) is not None:
        facts["progress"] = Progress(*progress)
    stdout, stderr = [Captured(*each) if each else EMPTY for each in (ended.stdout, ended.stderr)]
    return Outcome(cast("Ending", ended.ending), ended.payload, **facts, stdout=stdout, stderr=stderr, node=node)


def changes_of(changes: Sequence[Any]) -> ListedChanges:
    """The changed files in a node's message."""
    listed, found, unknown = changes
    made = [Artifact(path, kind, digest, size, diff=diff) for path, kind, size, digest, diff in listed]
    return ListedChanges(made, found, unknown)


def watch_of(audit: Mapping[str, Any], run: Run) -> Watch:
    """The findings in a node's message."""
    watch = Watch(run=run, session_id=run.spec.key.session_id)
    watch.findings = [
        Finding(
            _path(path), name, what, _path(place), why=why, changed_ns=changed_ns, dropped=tuple(map(_path, dropped))
        )
        for path, name, what, place, why, changed_ns, dropped in audit["findings"]
    ]
    watch.unknown, watch.looked_for = audit["unknown"], audit["looked_for"]
    watch.stuck, watch.sole = audit["stuck"], audit["sole"]
    watch.bound = tuple(map(Bound.from_wire, audit["bound"]))
    return watch


def _path(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
