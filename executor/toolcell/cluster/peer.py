"""A node as a driver sees it: its link, its calls, and the exchanges that are under way."""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import anyio

from toolcell.backends.threads import in_thread
from toolcell.pool.reactor import Reactor, Waiter
from toolcell.pool.run import CellSpec, Run

from .link import MOST_FRAMES, UNPACKABLE, WINDOW_S, BatchLink, pack, unpack
from .messages import PROTOCOL, NodeMessage, NodeTold, RecordMade, SendCall, fields_of, message_of
from .node import OK, REFUSED, UNFIT
from .terms import NodeTerms

__all__ = ["DriverIdentity", "Exchanger", "NodeGone", "Peer", "PeerOwner"]

_log = logging.getLogger("toolcell.cluster")
MOST_UNDER_WAY: Final = 2
"""While so many batches are in flight, frames are collected into one batch, up to `MOST_FRAMES` or for `WINDOW_S`."""
OPEN: Final = 2
"""The exchanges that a driver keeps waiting at the node, so that the node can send at any time."""
RETRY_S: Final = 0.1
"""The pause in seconds before a failed request is sent again."""
ASK_S: Final = 60.0
"""How long a request about files is sent again if the transport fails, in seconds."""
UNFIT_S: Final = 5.0
"""The pause in seconds before a driver asks an unfit node again."""


class NodeGone(Exception):
    """The node, or its actor, has ended for good."""


class Exchanger(Protocol):
    """Carries an exchange to a node. `done` is called once, on any thread, with the reply or an exception: NodeGone, or
    another one if a later exchange may succeed."""

    def exchange(self, node_id: str, data: bytes, done: Callable[[bytes | Exception], None]) -> None: ...
    def files(self, node_id: str, data: bytes, payload: bytes, done: Callable[[bytes | Exception], None]) -> None:
        """As `exchange`, for a request about files, with contents. Blocks while a large payload is stored."""
        ...


class DriverIdentity:
    """The driver's name, its secret token, its lease in seconds, and what it asks of nodes."""

    def __init__(self, lease_s: float, terms: NodeTerms | None = None) -> None:
        self.driver = f"driver-{os.urandom(6).hex()}"
        self.token = os.urandom(16)
        self.lease_s = lease_s
        self.terms = (terms or NodeTerms()).to_wire()


class PeerOwner(Protocol):
    """The driver's pool, as its peers see it."""

    def at(self, when: float, action: Callable[[], None]) -> object: ...
    def on_message(self, peer: "Peer", message: NodeMessage) -> None: ...
    def on_up(self, peer: "Peer") -> None: ...
    def on_unfit(self, peer: "Peer") -> None: ...
    def on_lost(self, peer: "Peer", why: str, *, gone: bool) -> None: ...


class Peer:
    """A node. `is_up` holds from its first reply until it is lost. A lost peer reconnects, unless `is_gone`."""

    def __init__(
        self,
        owner: PeerOwner,
        transport: Exchanger,
        reactor: Reactor,
        identity: DriverIdentity,
        id: str,
        labels: Mapping[str, str],
    ) -> None:
        self.id = id
        self.labels = labels
        self.is_up = False
        self.is_gone = False
        self.is_leaving = False
        self.unfit = ""
        """Why the node could not meet this driver's terms at its last answer, "" if it could."""
        self.told: NodeTold | None = None
        self.runs: dict[int, Run] = {}
        self.sessions: set[str] = set()
        self.workspaces: dict[str, set[str]] = {}
        """The sessions that work on each workspace."""
        self.specs: dict[CellSpec, int] = {}
        self._workspace_of: dict[str, str] = {}
        self._specs_of: dict[str, list[CellSpec]] = {}
        self.code: set[str] = set()
        self.losses = 0
        self.lease_s = identity.lease_s
        self.heard_at = time.monotonic()
        self._owner = owner
        self._transport = transport
        self._reactor = reactor
        self._identity = identity
        self._asked: set[Waiter[bytes | Exception]] = set()
        self._reset()

    def __repr__(self) -> str:
        state = "up" if self.is_up else "gone" if self.is_gone else "connecting"
        return f"<Peer {self.id[:8]} {state} · {len(self.runs)} calls · {len(self.sessions)} sessions>"

    @property
    def is_silent(self) -> bool:
        """Whether nothing was heard for a lease. Then nothing is sent, so that the lease is not renewed. This is read
        at each message: a driver that was stopped notices it before its timers do."""
        return self.is_up and time.monotonic() - self.heard_at > self.lease_s

    def _reset(self) -> None:
        self._link = BatchLink()
        self._name = os.urandom(8)
        self._incarnation = b""
        self._sent_at = 0.0
        """The time of the node's clock in the newest reply."""
        self._frames: list[tuple[object, ...]] = []
        self._is_flushing = False
        self._open = 0
        self._again = False
        self._is_retrying = False
        self.heard_at = time.monotonic()
        self.runs.clear()
        self.specs.clear()
        self._specs_of.clear()
        self.code.clear()
        for waiter in self._asked:
            waiter.set(NodeGone("it was lost"))
        self._asked.clear()

    def place(self, session_id: str, workspace: str = "") -> None:
        """Note a session of the node. With `workspace`, other sessions on that workspace come to this node too."""
        self.sessions.add(session_id)
        if workspace:
            self.workspaces.setdefault(workspace, set()).add(session_id)
            self._workspace_of[session_id] = workspace

    def drop(self, session_id: str) -> None:
        """Forget a session and its specs. The time does not depend on the number of other sessions."""
        self.sessions.discard(session_id)
        for spec in self._specs_of.pop(session_id, ()):
            self.specs.pop(spec, None)
        if (workspace := self._workspace_of.pop(session_id, None)) is not None:
            ids = self.workspaces[workspace]
            ids.discard(session_id)
            if not ids:
                del self.workspaces[workspace]

    def drop_all(self) -> None:
        """Forget all sessions."""
        self.sessions.clear()
        self.workspaces.clear()
        self._workspace_of.clear()

    def add_spec(self, spec: CellSpec, number: int) -> None:
        """Note that the node gets a spec under this number."""
        self.specs[spec] = number
        self._specs_of.setdefault(spec.key.session_id, []).append(spec)

    def connect(self) -> None:
        """Ask the node for a seat."""
        self._send([])

    def _watcher(self, name: bytes) -> Callable[[], None]:
        """A function that gives the node up after a long silence, as long as this stream lasts."""

        def watch() -> None:
            if name != self._name or self.is_gone:
                return
            silent_s, lease_s = time.monotonic() - self.heard_at, self._identity.lease_s
            if silent_s > 2 * lease_s:  # nothing was sent for a whole lease, so the node's lease is over
                self._lose(f"it has not answered for {silent_s:.3g} s", gone=False)
            else:
                self._owner.at(time.monotonic() + lease_s / 4, watch)

        return watch

    # -- to the node --------------------------------------------------------------------------------------------------

    def say(self, message: NodeMessage) -> None:
        """Queue a message for the next batch to the node."""
        self._frames.append(fields_of(message))
        if len(self._frames) >= MOST_FRAMES and not self._is_retrying:
            self._flush()
        elif not self._is_flushing:
            self._is_flushing = True
            if self._link.under_way < MOST_UNDER_WAY:
                self._reactor.soon(self._on_window)
            else:
                self._owner.at(time.monotonic() + WINDOW_S, self._on_window)

    def _on_window(self) -> None:
        self._is_flushing = False
        if self._frames and not self._is_retrying:
            self._flush()

    def _flush(self) -> None:
        if self.is_silent:
            return  # the frames stay queued: calls in them can still go to another node
        batches = self._batch()
        if batches is not None:
            self._send(batches)

    def _batch(self) -> list[bytes] | None:
        """The batch of all queued frames, in a list that is empty without frames. If the frames cannot be encoded,
        which is a bug, treat the node as lost, and return None."""
        frames, self._frames = self._frames, []
        try:
            return [self._link.send(frames)] if frames else []
        except UNPACKABLE:
            _log.exception("a message to the node %s cannot be encoded", self.id)
            self._lose("a message to it could not be encoded", gone=False)
            return None

    def _send(self, batches: list[bytes], *, is_leaving: bool = False) -> None:
        if self.is_gone or self.is_leaving or self.is_silent:
            return
        again, self._again = self._again, False
        identity = self._identity
        request = [
            PROTOCOL,
            identity.driver,
            identity.token,
            self._name,
            self._incarnation,
            identity.lease_s,
            is_leaving,
            again,
            self._link.received,
            batches,
            None if self._incarnation else identity.terms,
            self._sent_at,
        ]
        self._open += 1
        name = self._name
        self._transport.exchange(self.id, pack(request), lambda reply: self._on_thread(name, reply))

    async def ask(self, request: Sequence[object], payload: bytes = b"") -> list[Any]:
        """Ask the node about files, outside of the stream of calls. The request is sent again while the transport
        fails. Raises NodeGone if the node is lost before it answers, and OSError if the transport fails for `ASK_S`
        seconds."""
        began = time.monotonic()
        name = self._name
        while True:
            if not self.is_up or name != self._name:
                raise NodeGone("it is not connected")
            reply = await self._ask(request, payload)
            if not isinstance(reply, Exception):
                break
            if isinstance(reply, NodeGone):
                raise reply
            if time.monotonic() - began > ASK_S:
                raise OSError(f"the request could not be sent: {reply}") from reply
            await anyio.sleep(RETRY_S)
        status, answer = unpack(reply)
        if status != OK:
            raise NodeGone("this driver's lease was over, or its supervisor was started again")
        return list(answer)

    async def _ask(self, request: Sequence[object], payload: bytes) -> bytes | Exception:
        identity, waiter = self._identity, self._reactor.waiter()
        data = pack([identity.driver, identity.token, self._name, list(request)])
        self._asked.add(waiter)
        try:
            await in_thread(partial(self._transport.files, self.id, data, payload, partial(self._answered, waiter)))
            reply: bytes | Exception = await waiter
        finally:
            self._asked.discard(waiter)
        return reply

    def _answered(self, waiter: "Waiter[bytes | Exception]", reply: bytes | Exception) -> None:
        """Pass an answer on to the loop, unless the waiter has one already."""

        def deliver() -> None:
            if waiter in self._asked:
                self._asked.discard(waiter)
                waiter.set(reply)

        try:
            self._reactor.from_thread(deliver)
        except RuntimeError:  # the event loop is closed
            pass

    @property
    def unsent(self) -> set[int]:
        """The numbers of the calls that have not left this process."""
        messages = map(message_of, self._frames)
        return {message.number for message in messages if isinstance(message, SendCall)}

    def leave(self) -> None:
        """End the driver's sessions on the node."""
        self._send(self._batch() or [], is_leaving=True)
        self.is_up, self.is_leaving = False, True

    # -- from the node ------------------------------------------------------------------------------------------------

    def _on_thread(self, name: bytes, reply: bytes | Exception) -> None:
        try:
            self._reactor.from_thread(lambda: self._on_reply(name, reply))
        except RuntimeError:  # the event loop is closed
            pass

    def _on_reply(self, name: bytes, reply: bytes | Exception) -> None:
        if name != self._name or self.is_gone:
            return  # the reply is of an earlier stream
        self._open -= 1
        try:
            if self.is_leaving:
                if isinstance(reply, bytes):
                    self._on_last(reply)
            elif isinstance(reply, NodeGone):
                self._lose(str(reply), gone=True)
            elif isinstance(reply, Exception):
                self._retry(reply)
            else:
                self._on_answer(name, reply)
        except Exception:  # a bug, or another version: the rest of the stream cannot be understood, and nothing hangs
            _log.exception("the reply of the node %s cannot be handled", self.id)
            if not self.is_leaving and name == self._name:
                self._lose("its reply could not be handled", gone=False)

    def _on_answer(self, name: bytes, reply: bytes) -> None:
        status, incarnation, ack, batches, sent_at, *_later = unpack(reply)
        if status == UNFIT:
            self.unfit = batches[0].decode()
            self._owner.on_unfit(self)
            if self.is_up:  # it was started again, with another version
                self._lose(self.unfit, gone=False)
                return
            self._owner.at(time.monotonic() + UNFIT_S, self._reconnect)
            return
        self.unfit = ""
        if status != OK:
            refused = "another driver has this driver's name there"
            over = "its supervisor was started again, or this driver's lease was over"
            self._lose(refused if status == REFUSED else over, gone=False)
            return
        was_silent, self.heard_at = self.is_silent, time.monotonic()
        self._incarnation = incarnation
        self._sent_at = max(self._sent_at, sent_at)
        if was_silent:
            self._again = True
            self._resend()
        self._link.acknowledged(ack)
        for frames in self._link.receive(batches):
            for fields in frames:
                self._take(message_of(fields))
                if name != self._name:
                    return
        if self._frames and not self._is_flushing and self._link.under_way < MOST_UNDER_WAY:
            self._flush()
        while self._open < OPEN and not self.is_gone:
            self._send([])

    def _on_last(self, reply: bytes) -> None:
        """Take the last records from a node that this driver leaves."""
        status, _incarnation, _ack, batches, _sent_at = unpack(reply)
        for frames in self._link.receive(batches) if status == OK else ():
            for fields in frames:
                if isinstance(message := message_of(fields), RecordMade):
                    self._owner.on_message(self, message)

    def _take(self, message: NodeMessage) -> None:
        if isinstance(message, NodeTold):
            self.told = message
            if message.problem:
                self.is_gone = True
            elif not self.is_up:
                self.is_up = True
                self._owner.at(time.monotonic() + self._identity.lease_s / 4, self._watcher(self._name))
                self._owner.on_up(self)
        self._owner.on_message(self, message)

    def _retry(self, error: Exception) -> None:
        """Send everything again that the node may not have. The watcher gives up after the lease."""
        self._again = True
        if not self._is_retrying:
            self._is_retrying = True
            _log.info("the node %s cannot be reached: %s", self.id, error)
            name = self._name
            self._owner.at(time.monotonic() + RETRY_S, lambda: self._retried(name))

    def _retried(self, name: bytes) -> None:
        if name == self._name:
            self._is_retrying = False
            self._resend()

    def _resend(self) -> None:
        if not self.is_silent and self._batch() is not None:
            self._again = True
            self._send(self._link.again())

    def give_up(self, why: str) -> None:
        """Treat the node as gone."""
        self._lose(why, gone=True)

    def _lose(self, why: str, *, gone: bool) -> None:
        self.is_up = False
        self.is_gone = gone
        self.losses += 1
        self._owner.on_lost(self, why, gone=gone)
        self._reset()
        if not gone:
            pause_s = min(5.0, RETRY_S * 2 ** min(self.losses, 6))
            self._owner.at(time.monotonic() + pause_s, self._reconnect)

    def _reconnect(self) -> None:
        if not self.is_gone and not self.is_up:
            self.connect()
