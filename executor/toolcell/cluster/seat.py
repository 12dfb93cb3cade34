"""A driver's seat on a node: its lease, its specs, and its calls in the node's pool."""

import logging
import time
from collections.abc import Callable, Sequence, Set
from typing import Any, Protocol, cast

import anyio

from toolcell.backends.egress import Egress
from toolcell.backends.egress.gateway import Write
from toolcell.dispatch.services import Services
from toolcell.errors import UsageError
from toolcell.pool.run import Outcome
from toolcell.sessions import broker
from toolcell.store.journal import Record
from toolcell.wire.budget import Account, Charge
from toolcell.wire.frames import Field, Unpackable
from toolcell_sandbox.network import ProxyNetwork

from .kill_timer import clock_s
from .messages import (
    AnswerRequest,
    CondemnCell,
    DropCall,
    EndCalls,
    ForgetSession,
    NodeMessage,
    PaceCall,
    RecordMade,
    SendCall,
    SendCode,
    SendSpec,
    message_of,
)
from .node_backends import PlacedBackends
from .node_run import NodeRun, not_started, run_inspected
from .node_spec import NodeSpec
from .seat_outbox import SeatOutbox
from .sent.seat_files import NodeFiles, SeatFiles

__all__ = ["Seat"]

_log = logging.getLogger("toolcell.cluster")
QUIET_S = 10.0
"""How long a diff waits for the processes that work in the copy, in seconds."""
SETTLE_S = 2.0
"""How long a driver that leaves waits for the audits after its calls, in seconds."""
LARGE_BYTES = 256 * 1024
"""A larger result counts in the node's budget of results until the driver has it."""
MOST_ENDED = 256
"""The ended calls that are remembered, because the driver may condemn their cells."""


class NodeOffice(Protocol):
    """The node, as its seats see it."""

    @property
    def services(self) -> Services: ...
    @property
    def sent_files(self) -> NodeFiles: ...
    def is_serving(self, session_keys: Set[str]) -> bool:
        """Whether a cell of these sessions is alive, or the audit of an ended kept process is pending."""
        ...

    def told(self) -> NodeMessage:
        """The node's state, for a driver."""
        ...


class Seat:
    """The state of one driver on a node. It ends when the driver leaves or its lease is over."""

    def __init__(
        self,
        office: NodeOffice,
        driver: str,
        token: bytes,
        name: bytes,
        lease_s: float,
        backends: PlacedBackends,
        *,
        is_durable: bool,
    ) -> None:
        """`name` is the name of the driver's stream of batches. `backends` are the node's backends that the driver
        uses. `is_durable`: the driver's journal has a record of each operation."""
        self.driver = driver
        self.token = token
        self.name = name
        self.lease_s = lease_s
        self.heard_at = time.monotonic()
        self.renewed_at = clock_s()
        """When the node sent the newest reply that the driver has received, in seconds of `clock_s`."""
        self.backends = backends
        self.is_durable = is_durable
        self.services = office.services
        self.runs: dict[int, NodeRun] = {}
        self.sessions: set[str] = set()
        self.files = SeatFiles(office.sent_files, driver, self.quiet)
        self._office = office
        self._code: dict[str, tuple[dict[str, Any], ...]] = {}
        self._specs: dict[int, NodeSpec] = {}
        self._specs_of: dict[str, list[int]] = {}
        self._ended: dict[int, NodeRun] = {}
        self.outbox = SeatOutbox(office.services, self.runs.__len__, office.told)
        self.say(office.told())

    def __repr__(self) -> str:
        return f"<Seat of {self.driver} · {len(self.runs)} calls · {self.outbox!r}>"

    def is_over_after(self, leases: float) -> bool:
        """Whether the lease was renewed more than so many leases ago."""
        return clock_s() - self.renewed_at > leases * self.lease_s

    def egress(self, policy: ProxyNetwork, write: Write, account: Account) -> Egress:
        """The proxy of one call, with the driver's resolver."""
        return self.services.gateway.egress(policy, write, account, self.backends.lookups)

    def session_key(self, session_id: str) -> str:
        """The session's id on this node, where other drivers may have sessions of the same id."""
        return f"{self.driver}:{session_id}"

    def account(self, kind: str) -> Account:
        """A new account of the node's budget for "requests" or "replies"."""
        budgets = self.services.pool.budgets
        return (budgets.requests if kind == "requests" else budgets.replies).account()

    # -- to the driver ------------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether the driver has left, or its lease is over."""
        return self.outbox.is_over

    def say(self, message: NodeMessage, charge: Charge | None = None, size: int = 0) -> None:
        """As `SeatOutbox.say`."""
        self.outbox.say(message, charge, size)

    async def exchange(self, ack: int, batches: Sequence[bytes], *, again: bool, park_s: float) -> list[bytes]:
        """Take the driver's batches. Return the node's batches as soon as there are any, or after `park_s` seconds."""
        self.heard_at = time.monotonic()
        for frames in self.outbox.receive(ack, batches, again=again):
            for fields in frames:
                self._take(message_of(fields))
        return await self.outbox.reply(park_s)

    def write(self, record: Record, charge: Charge | None = None) -> None:
        """Send a record of the node to the driver's journal. The charge is released when the driver has it."""
        session_id = record.session_id.removeprefix(f"{self.driver}:")
        message = RecordMade(record.kind, session_id, record.call_id, dict(record.data), record.at)
        self.say(message, charge, 0 if charge is None else charge.bytes)

    # -- from the driver ----------------------------------------------------------------------------------------------

    def _take(self, message: NodeMessage) -> None:
        """Handle a message. If that fails, the other messages of its batch are handled nevertheless."""
        try:
            self._on(message)
        except Exception as error:  # a bug, or a driver of another version
            _log.exception("a message of %s cannot be handled: %s", self.driver, type(message).__name__)
            if isinstance(message, SendCall):
                self.runs.pop(message.number, None)
                why = f"The node could not start the call ({type(error).__name__}). Its log has the details."
                self.say(not_started(message.number, Outcome("unavailable", message=why)))

    def _on(self, message: NodeMessage) -> None:
        match message:
            case SendCall():
                self._start(message)
            case AnswerRequest(number, request, ok, value):
                self._answer(number, request, ok, value)
            case SendSpec():
                self._specs[message.number] = NodeSpec(self, message, self._code[message.digest])
                self._specs_of.setdefault(message.session_id, []).append(message.number)
                self.sessions.add(message.session_id)
            case SendCode(digest, tools):
                self._code[digest] = tuple(tools)
            case DropCall(number):
                if (run := self.runs.get(number)) is not None:
                    self._drop(run)
            case EndCalls(session_id, reason, least_s, most_s):
                most = float("inf") if most_s is None else most_s
                self._drop_entering(session_id)
                self.services.pool.tell_end(self.session_key(session_id), reason, least_s, most)
            case ForgetSession(session_id, parked):
                self._forget(session_id, parked)
            case CondemnCell(number, what):
                if (run := self._ended.get(number)) is not None and run.cell is not None:
                    run.cell.calls.condemn(run, what)
            case PaceCall(number, held):
                if (run := self.runs.get(number)) is not None:
                    run.pace(held=held)
            case _:
                raise UsageError(f"A driver sent {type(message).__name__}, which is a node's message.")

    def _start(self, asked: SendCall) -> None:
        sent = self._specs[asked.spec]
        spec = sent.spec()
        exclusive = spec.key.session_id if asked.exclusive else ""
        run = NodeRun(self, asked, spec, exclusive, sent.operations, sent.paths)
        self.runs[run.number] = run
        tracked = sent.tracked(run)
        if sent.guarded is None and tracked is None:
            self.services.pool.submit(run)
        else:
            self.services.in_background(run_inspected, self, run, sent.guarded, tracked)

    def has_moved(self, run: NodeRun) -> bool:
        return self._specs[run.spec_number].has_moved(run) if run.spec_number in self._specs else False

    def on_ended(self, run: NodeRun, *, later: bool) -> None:
        """Send the outcome of a call to the driver: now, or after its audit or the end of its connections."""
        if run.gone is not None:
            return  # `run_inspected` sends the outcome after the audit
        if later:
            self.services.reactor.soon(lambda: self.tell(run))
        else:
            self.tell(run)

    def tell(self, run: NodeRun) -> None:
        """Send the outcome of a call to the driver."""
        message = run.ended()
        size = min(run.used["received_bytes"], run.limits.result_bytes) if message.payload else 0
        charge = None
        if size > LARGE_BYTES:
            charge = self.services.pool.budgets.frames.account().charge(size)
        self.say(message, charge, size)
        if self.runs.pop(run.number, None) is not None:
            run.empty()
            self._ended[run.number] = run
            if len(self._ended) > MOST_ENDED:
                del self._ended[next(iter(self._ended))]

    def _answer(self, number: int, request: int, ok: bool, value: Field) -> None:
        run = self.runs.get(number)
        if run is None:
            return
        try:
            run.answer(request, ok, value)
        except Unpackable as error:
            refusal = broker.Refusal("execution", f"The answer cannot be sent: {error}. Ask for less.")
            run.answer(request, False, cast("Field", refusal.to_wire()))

    def _drop(self, run: NodeRun) -> None:
        run.dropped = True
        self.services.pool.cancel(run)

    def _drop_entering(self, session_id: str) -> None:
        """Drop the session's calls that have no cell, including those whose workspace is still inspected."""
        key = self.session_key(session_id)
        for run in self.runs.values():
            if run.cell is None and run.spec.key.session_id == key:
                run.dropped = True

    def _forget(self, session_id: str, parked: str) -> None:
        self._drop_entering(session_id)
        key = self.session_key(session_id)
        if parked:
            self.services.pool.park_session(key, parked)
        else:
            self.services.pool.end_session(key)
            self.sessions.discard(session_id)
            for number in self._specs_of.pop(session_id, ()):
                del self._specs[number]

    async def quiet(self, session_ids: Sequence[str]) -> None:
        """End sessions, and wait until their processes have gone and are audited."""
        for session_id in session_ids:
            self._forget(session_id, "")
        keys = set(map(self.session_key, session_ids))
        with anyio.move_on_after(QUIET_S):
            while self._is_busy(keys):
                await anyio.sleep(0.005)

    def _is_busy(self, keys: set[str]) -> bool:
        runs = any(run.spec.key.session_id in keys for run in self.runs.values())
        return runs or self._office.is_serving(keys)

    async def leave(self, is_busy: Callable[[], bool]) -> list[bytes]:
        """End the driver's sessions, and return the last batches, when the audits are over."""
        for session_id in list(self.sessions):
            self._forget(session_id, "")
        with anyio.move_on_after(SETTLE_S):
            while self.runs or is_busy():
                await anyio.sleep(0.005)
        return self.outbox.rest()

    def end(self) -> None:
        """End all sessions of the driver, because it has left or its lease is over."""
        for session_id in list(self.sessions):
            self._forget(session_id, "")
        self.outbox.end()
