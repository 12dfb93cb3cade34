"""A driver's seat on a node: its link, its specs, and its calls in the node's pool."""

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import anyio

from toolcell.backends.egress import Egress
from toolcell.backends.egress.gateway import Write
from toolcell.backends.threads import NO_THREAD_RETRY_S, NoThread
from toolcell.dispatch.changed_files import listed_of
from toolcell.dispatch.execute import has_kept_writers, unseen
from toolcell.dispatch.protected_names import audit
from toolcell.dispatch.services import Services
from toolcell.dispatch.serving import bound_to
from toolcell.errors import UsageError
from toolcell.journal import Record
from toolcell.pool.budget import Account, Charge
from toolcell.pool.run import CellKey, CellSpec, Outcome
from toolcell.sessions import broker
from toolcell.sessions.changes import RemoteRoot, TrackedRoot
from toolcell.sessions.place import NOWHERE, DirectoryIdentity
from toolcell.sessions.policy import code_roots
from toolcell.sessions.protection import Guarded, Watch
from toolcell.wire.frames import Field, Unpackable
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.network import ProxyNetwork
from toolcell_sandbox.profile import CellProfile

from .kill_timer import clock_s
from .link import MOST_FRAMES, WINDOW_S, BatchLink
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
    fields_of,
    message_of,
)
from .node_backends import PlacedBackends
from .node_operations import placed_operations
from .node_run import NodeRun, not_started
from .sent.copied_paths import AT_HOME, CopiedPaths, moved_to
from .sent.seat_files import NodeFiles, SeatFiles

__all__ = ["Seat"]

_log = logging.getLogger("toolcell.cluster")
MOST_PARKED = 4
"""The most exchanges of a driver that wait for messages. One more ends the wait of the oldest."""
QUIET_S = 10.0
"""How long a diff waits for the processes that work in the copy, in seconds."""
SETTLE_S = 2.0
"""How long a driver that leaves waits for the audits after its calls, in seconds."""
MOST_BYTES = 4 * 1024 * 1024
"""The approximate bound of a reply, unless a single result is larger. The driver handles a reply in one step."""
LARGE_BYTES = 256 * 1024
"""A larger result counts in the node's budget of results until the driver has it."""
MOST_ENDED = 256
"""The ended calls that are remembered, because the driver may condemn their cells."""


class _SeatFrame(NamedTuple):
    """A frame for the driver, its charge, and its approximate size in bytes."""

    fields: tuple[object, ...]
    charge: Charge | None
    size: int


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


class _SentSpec:
    """A driver's spec on this node. The path of its workspace may become another directory."""

    def __init__(self, seat: "Seat", sent: SendSpec, tools: tuple[dict[str, Any], ...]) -> None:
        self._services = seat.services
        sent = SendSpec(*_interned(list(sent)))
        self.paths = AT_HOME
        if sent.copy:
            self.paths = CopiedPaths(seat.files.path_of(sent.copy), sent.sent_root)
            sent = moved_to(sent, self.paths.copy)
        self._workspace = sent.workspace
        roots = set(sent.roots)
        profile = CellProfile.from_wire(sent.profile)
        system = tuple(path for path in profile.system if path not in roots)
        self.profile = profile.replace(system=(*system, *code_roots()))
        self._key = CellKey(
            seat.session_key(sent.session_id), frozenset(sent.grants), profile.limits, sent.kept_tool, sent.digest
        )
        self._sent, self._tools = sent._replace(profile={}, roots=[]), tools
        self._place: DirectoryIdentity = NOWHERE
        self._spec: CellSpec | None = None
        self.guarded: Guarded | None = None
        self.operations = placed_operations(seat.backends, sent.placed, sent.grants, sent.pages, sent.session)

    def tracked(self, run: NodeRun) -> TrackedRoot | RemoteRoot | None:
        """The workspace of the spec; None if the changes of the call are not tracked."""
        if not run.most_changes:
            return None
        root = os.path.realpath(self._workspace)
        return self._services.changes.of(root, self._place.identity, texts=run.texts)

    @property
    def session_id(self) -> str:
        return self._sent.session_id

    def spec(self) -> CellSpec:
        """The spec for the directory that is at the path of the workspace now."""
        place = self._place.now(self._workspace)
        if self._spec is None or place.identity != self._place.identity:
            key = replace(self._key, workspace=place.identity)
            self._spec = CellSpec(key, self.profile, self._tools, self._sent.cwd, session=self._sent.session)
            self.guarded = self._services.protection.of(self.profile)
        self._place = place
        return self._spec

    def has_moved(self, run: NodeRun) -> bool:
        return self._place.now(self._workspace).identity != run.spec.key.workspace


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
        self.is_over = False
        self.backends = backends
        self.is_durable = is_durable
        self.services = office.services
        self.link = BatchLink()
        self.runs: dict[int, NodeRun] = {}
        self.sessions: set[str] = set()
        self.files = SeatFiles(office.sent_files, driver, self.quiet)
        self._office = office
        self._code: dict[str, tuple[dict[str, Any], ...]] = {}
        self._specs: dict[int, _SentSpec] = {}
        self._specs_of: dict[str, list[int]] = {}
        self._ended: dict[int, NodeRun] = {}
        self._frames: list[_SeatFrame] = []
        self._bytes = 0
        self._ready: list[bytes] = []
        self._parked: list[asyncio.Future[None]] = []
        self._is_flushing = False
        self.say(office.told())

    def __repr__(self) -> str:
        return f"<Seat of {self.driver} · {len(self.runs)} calls · {self.link!r}>"

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

    def say(self, message: NodeMessage, charge: Charge | None = None, size: int = 0) -> None:
        """Send a message of about `size` bytes to the driver. The charge is released when the driver has it."""
        if self.is_over:
            if charge is not None:
                charge.release()
            return
        self._frames.append(_SeatFrame(fields_of(message), charge, size))
        self._bytes += size
        if len(self._frames) >= MOST_FRAMES or not self.runs:
            self._soon(0.0)
        else:
            self._soon(WINDOW_S if len(self.runs) > 1 else 0.0)

    def _soon(self, window_s: float) -> None:
        if self._is_flushing:
            return
        self._is_flushing = True
        if window_s:
            self.services.pool.at(time.monotonic() + window_s, self._flush)
        else:
            self.services.reactor.soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        if (self._frames or self._ready) and self._parked:
            parked = self._parked.pop()  # the newest: its driver has waited least
            if not parked.done():
                parked.set_result(None)

    def _take_batches(self, most: int = MOST_BYTES) -> list[bytes]:
        """The batches for the next reply. Frames beyond `most` bytes wait for later replies."""
        batches: list[bytes] = []
        left = most
        while self._ready and (not batches or len(self._ready[0]) <= left):
            batches.append(self._ready.pop(0))
            left -= len(batches[-1])
        if self._frames and not self._ready:
            frames = self._take_frames(left, least=not batches)
            charges = [each.charge for each in frames if each.charge is not None]
            if frames:
                on_received = (lambda: _release(charges)) if charges else None
                batches.append(self.link.send([each.fields for each in frames], on_received))
        if self._frames or self._ready:
            self._soon(0.0)
        return batches

    def _take_frames(self, left: int, *, least: bool) -> list[_SeatFrame]:
        """Take the next frames, of `left` bytes together. `least`: take the first one, however large it is."""
        count = len(self._frames)
        if self._bytes > left:
            count = 1 if least else 0
            left -= sum(each.size for each in self._frames[:count])
            while count < len(self._frames) and self._frames[count].size <= left:
                left -= self._frames[count].size
                count += 1
        taken, self._frames = self._frames[:count], self._frames[count:]
        self._bytes -= sum(each.size for each in taken)
        return taken

    async def exchange(self, ack: int, batches: Sequence[bytes], *, again: bool, park_s: float) -> list[bytes]:
        """Take the driver's batches. Return the node's batches as soon as there are any, or after `park_s` seconds."""
        self.heard_at = time.monotonic()
        self.link.acknowledged(ack)
        if again:
            self._ready = self.link.again()
        for frames in self.link.receive(batches):
            for fields in frames:
                self._take(message_of(fields))
        if not self._frames and not self._ready and not self.is_over:
            await self._park(park_s)
        return self._take_batches()

    async def _park(self, park_s: float) -> None:
        if len(self._parked) >= MOST_PARKED:
            oldest = self._parked.pop(0)
            if not oldest.done():
                oldest.set_result(None)
        parked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parked.append(parked)
        timer = asyncio.get_running_loop().call_later(park_s, self._beat, parked)
        try:
            await parked
        finally:
            timer.cancel()
            if parked in self._parked:
                self._parked.remove(parked)

    def _beat(self, parked: "asyncio.Future[None]") -> None:
        """Answer an exchange that has waited long with the node's state."""
        if not parked.done():
            self._frames.append(_SeatFrame(fields_of(self._office.told()), None, 0))
            parked.set_result(None)

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
                self._specs[message.number] = _SentSpec(self, message, self._code[message.digest])
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
            self.services.in_background(self._inspected, run, sent.guarded, tracked)

    async def _inspected(self, run: NodeRun, guarded: Guarded | None, tracked: TrackedRoot | RemoteRoot | None) -> None:
        """Run a call between inspections of its workspace. An inspection that fails ends only this call."""
        try:
            await self._watched(run, guarded, tracked)
        except Exception as error:
            _log.exception("the inspection of the workspace around call %s has failed", run.call_id)
            self.services.pool.cancel(run)
            why = f"The inspection of the workspace failed ({type(error).__name__}). The node's log has the details."
            run.outcome = Outcome("unavailable" if run.started_at == 0 else "lost", message=why)
            self._tell(run)

    async def _watched(self, run: NodeRun, guarded: Guarded | None, tracked: TrackedRoot | RemoteRoot | None) -> None:
        """Inspect the workspace, run the call, then audit the workspace, as `dispatch.execute.in_cell` does."""
        services, watch = self.services, None
        if tracked is not None:
            run.changes = await tracked.enter(run.most_changes)
            run.changes.run = run
        if guarded is not None:
            try:
                watch = await self._guard(run, guarded)
            except (SandboxError, OSError, NoThread) as error:
                if tracked is not None and run.changes is not None:
                    tracked.forget(run.changes)
                self._finish(run, _unguarded(error))
                return
        run.gone = anyio.Event()
        if run.dropped or self.is_over:
            run.end(Outcome("cancelled"), time.monotonic())
        elif self.has_moved(run):
            run.end(Outcome("moved"), time.monotonic())
        else:
            services.pool.submit(run)
        see = partial(_see, run, tracked)
        if guarded is not None and watch is not None:
            await audit(services, run, guarded, watch, see)
        else:
            await run.gone.wait()
            with anyio.CancelScope(shield=True):
                try:
                    await see()
                finally:
                    services.pool.release(run)
        run.watch = watch
        if run.changes is not None and run.changes.tells:
            run.listed = await listed_of(run.changes)
        self._tell(run)

    async def _guard(self, run: NodeRun, guarded: Guarded) -> Watch:
        """Inspect the protected names before the call."""
        spec = run.spec
        keeps = bool(spec.key.kept_tool)
        kept = keeps or has_kept_writers(self.services, spec.profile.writable)
        watch = await guarded.enter(spec.key.session_id, kept=kept, keeps=keeps)
        run.spec, watch.run = bound_to(watch, spec), run
        return watch

    def _finish(self, run: NodeRun, outcome: Outcome) -> None:
        """End a call that was never submitted."""
        run.gone = None
        run.end(outcome, time.monotonic())

    def has_moved(self, run: NodeRun) -> bool:
        return self._specs[run.spec_number].has_moved(run) if run.spec_number in self._specs else False

    def on_ended(self, run: NodeRun, *, later: bool) -> None:
        """Send the outcome of a call to the driver: now, or after its audit or the end of its connections."""
        if run.gone is not None:
            return  # `_watched` sends the outcome after the audit
        if later:
            self.services.reactor.soon(lambda: self._tell(run))
        else:
            self._tell(run)

    def _tell(self, run: NodeRun) -> None:
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
        return self._take_batches(sys.maxsize)

    def end(self) -> None:
        """End all sessions of the driver, because it has left or its lease is over."""
        for session_id in list(self.sessions):
            self._forget(session_id, "")
        self.is_over = True
        _release([each.charge for each in self._frames if each.charge is not None])
        self.link.acknowledged(2**63)
        for parked in self._parked:
            if not parked.done():
                parked.set_result(None)


def _interned(value: Any) -> Any:
    """The value with its strings interned, because thousands of sessions have almost the same profile."""
    if type(value) is str:
        return sys.intern(value)
    if isinstance(value, list):
        return [_interned(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {_interned(name): _interned(each) for name, each in cast("dict[object, object]", value).items()}
    return value


async def _see(run: NodeRun, tracked: TrackedRoot | RemoteRoot | None) -> None:
    """Inspect the workspace after the call's last process has ended."""
    if tracked is not None and run.changes is not None:
        await tracked.leave(run.changes)


def _unguarded(error: SandboxError | OSError | NoThread) -> Outcome:
    """The outcome of a call before which the workspace could not be inspected."""
    if isinstance(error, NoThread):
        return Outcome("unavailable", message=str(error), retry_after_s=NO_THREAD_RETRY_S)
    why = unseen(error)
    return Outcome(
        "unavailable", message=why.message, mechanism=why.mechanism, cure=why.cure, retry_after_s=why.retry_after_s
    )


def _release(charges: Sequence[Charge]) -> None:
    for charge in charges:
        charge.release()
