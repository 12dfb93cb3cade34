"""A driver's pool: it places sessions on nodes, sends calls to them, and ends each call, even if its node is lost."""

import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import anyio

from toolcell.cluster.machines import MachineDemand, Member, Members, demand_of
from toolcell.cluster.placement import Homes, LabelsOf
from toolcell.dispatch.serving import SessionRun
from toolcell.errors import SandboxUnavailableError
from toolcell.pool.deadlines import Deadline, Deadlines
from toolcell.pool.interface import PoolHost, SupervisorStatus
from toolcell.pool.reactor import Waiter
from toolcell.pool.run import UNRECORDED, UNRECORDED_CURE, CellKey, Outcome, Run
from toolcell.store.journal import Record
from toolcell.wire import forks
from toolcell.wire.budget import Budgets
from toolcell.workplaces.workspace_return import WorkspaceReturn
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.report import SandboxReport
from toolcell_tools.capability import Capability

from .call_messages import call_message, spec_message
from .link import UNPACKABLE
from .messages import (
    CallEnded,
    CallNoted,
    CallSaid,
    DropCall,
    EndCalls,
    ForgetSession,
    NodeMessage,
    RecordMade,
    SendCode,
)
from .nodes import DriverNodes
from .peer import DriverIdentity, Peer
from .remote_cell import RemoteCell, changes_of, outcome_of, watch_of
from .sent.options import SentWorkspaces
from .sent.trees import SentTrees
from .terms import MEMORY, NodeTerms

__all__ = ["ClusterPool"]

_log = logging.getLogger("toolcell.cluster")
MEMBERS_S = 1.0
"""The pause between two listings of the cluster's members, in seconds."""
LEAVE_S = 3.0
"""How long the close of a supervisor waits for its nodes, in seconds."""


class ClusterPool:
    """Runs `Run`s on the nodes of a cluster. `toolcell.pool.interface.CallPool` has the contract."""

    def __init__(
        self,
        host: PoolHost,
        members: Members,
        *,
        lease_s: float,
        start_s: float,
        min_nodes: int,
        labels: LabelsOf | None,
        by_workspace: bool,
        reopens: bool,
        terms: NodeTerms | None = None,
        sent: SentWorkspaces | None = None,
    ) -> None:
        self.report = SandboxReport((), "rootless")
        self.budgets = Budgets()
        self.waiting: dict[Run, None] = {}
        self._host = host
        self._reactor = host.reactor
        self._members = members
        self._terms = terms or NodeTerms()
        self._identity = DriverIdentity(lease_s, self._terms)
        self._allow_missing = host.allow_missing.union(self._terms.allow_missing)
        self._start_s = start_s
        self._min_nodes = min_nodes
        self._reopens = reopens
        self._sent = None if sent is None else SentTrees(sent, host, self._on_sent, self._on_not_sent)
        self._deadlines = Deadlines(host.reactor.alarm(self._ring))
        placed_writes = {Capability.MEMORY_WRITE} if MEMORY in self._terms.placed else set[Capability]()
        self._acting = frozenset({Capability.NET, *placed_writes})
        """The grants with which a call may have a lasting effect through its node."""
        self._nodes = DriverNodes(members, self._new_peer)
        self._homes = Homes(
            labels, by_workspace=by_workspace, anchor_of=None if self._sent is None else self._sent.anchor_of
        )
        self._at: dict[Run, tuple[Peer, int]] = {}
        self._of_session: dict[str, dict[Run, None]] = {}
        self._numbers = 0
        self._is_open = False
        forks.register(self)

    def __repr__(self) -> str:
        return f"<ClusterPool {len(self._nodes.ups())} nodes · {len(self._at)} calls · {len(self.waiting)} waiting>"

    # -- start and end ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster, and wait for its nodes. Raises SandboxUnavailableError if no node can run cells,
        and UsageError if a node cannot meet this driver's terms, such as the settings of its supervisor."""
        self._deadlines.at(time.monotonic() + MEMBERS_S, lambda: None)  # the first alarm opens a descriptor
        try:
            await self._members.connect()
            self._nodes.meet(await self._members.list())
            self.report = await self._nodes.started(self._min_nodes, self._start_s)
            try:
                self.report.require(self._allow_missing)
            except SandboxError as error:
                raise SandboxUnavailableError(str(error), error.mechanism, error.cure) from None
        except BaseException:
            self._nodes.leave()
            self._reactor.close()
            with anyio.CancelScope(shield=True):
                await self._members.close()
            raise
        self._is_open = True
        self._host.in_background(self._follow_members)

    async def close(self) -> None:
        """End every call and every session, and leave the nodes."""
        self._is_open = False
        for run in [*self.waiting, *self._at]:
            self._end(run, Outcome(ending="cancelled"))
        for peer in self._nodes.ups():
            peer.leave()
        with anyio.move_on_after(LEAVE_S):
            await self._members.settled()
        self.abandon()
        with anyio.CancelScope(shield=True):
            await self._members.close()

    def abandon(self) -> None:
        """Forget the nodes, without a turn of the event loop. Their leases end the sessions."""
        self._is_open = False
        self._nodes.abandon()
        self._reactor.close()

    def let_go(self) -> None:
        """In a fork of the program, forget the nodes, so that nothing is sent."""
        self._is_open = False
        self._nodes.abandon()
        for known in (self.waiting, self._at, self._of_session):
            known.clear()

    # -- members ------------------------------------------------------------------------------------------------------

    async def _follow_members(self) -> None:
        """Follow the cluster's membership: use new nodes, give up dead ones, and tell the autoscaler what is needed."""
        while True:
            await anyio.sleep(MEMBERS_S)
            try:
                members = await self._members.list()
                await self._members.ask_for(self._demand())
            except Exception as error:  # the head is unreachable: connected nodes stay
                _log.warning("the members of the cluster cannot be listed: %s", error)
                continue
            self._nodes.meet(members)

    def _demand(self) -> MachineDemand:
        """The machines that the present calls need."""
        ups = self._nodes.ups()
        labels = self._homes.missing_labels((run.spec for run in self.waiting), ups)
        calls = len(self._at) + len(self.waiting) - len(labels)
        return demand_of(len(ups), self.most_cells, calls, labels)

    def _new_peer(self, member: Member) -> Peer:
        return Peer(self, self._members, self._reactor, self._identity, member.id, member.labels)

    def on_up(self, peer: Peer) -> None:
        """Use a node that has connected, unless it lacks a required mechanism of the sandbox."""
        self._nodes.notify()
        if self._is_open:
            assert peer.told is not None
            try:
                SandboxReport.from_wire(peer.told.report).require(self._allow_missing)
            except SandboxError as error:
                peer.unfit = f"{error} {error.cure}"
                peer.leave()
                self.on_unfit(peer)
        self._reactor.soon(self._place_waiting)

    def on_unfit(self, peer: Peer) -> None:
        """Report a node that cannot meet this driver's terms. It is not used."""
        if self._is_open:
            _log.warning("the node %s is not used: %s", peer.id, peer.unfit)
        self._nodes.notify()

    def on_lost(self, peer: Peer, why: str, *, gone: bool) -> None:
        """End the calls on a lost node. Calls that have not left this process are placed again."""
        _log.warning("the node %s is lost: %s", peer.id, why)
        unsent = peer.unsent
        if self._sent is not None:
            self._sent.lost(peer, why)
        runs, sessions = dict(peer.runs), self._homes.lose(peer)
        self._nodes.note_loss(peer, why, len(runs), len(sessions))
        peer.runs.clear()
        if not self._reopens:
            for id in sessions:
                self._host.on_session_lost(id, f"The node {peer.id} was lost: {why}.")
        again: list[Run] = []
        for number, run in runs.items():
            self._at.pop(run, None)
            if number in unsent and self._reopens:
                again.append(run)
                continue
            if number in unsent:
                run.started_at = 0.0
            elif isinstance(run, SessionRun):
                if not self._acting.isdisjoint(run.spec.key.grants):
                    run.note_connection()  # the node may have served one without having reported it
                if run.changes is not None:
                    run.changes.unknown = "the node of the call was lost"
            message = f"The node of the call was lost: {why}."
            self._end(run, Outcome("node_lost", message=message, resource=peer.id, node=peer.id))
        if gone:
            self._nodes.drop(peer)
        self._nodes.notify()
        for run in again:
            run.cell, run.started_at = None, 0.0
            self._wait(run)

    # -- calls --------------------------------------------------------------------------------------------------------

    def submit(self, run: Run) -> Waiter[Outcome]:
        """Send the call to the node of its session. Without a node, the call waits until its deadline."""
        waiter = run.waiter = self._reactor.waiter()
        self._of_session.setdefault(run.spec.key.session_id, {})[run] = None
        if not self._is_open:
            self._end(run, Outcome("unavailable", message="The supervisor is closing."))
        elif not self._send(run):
            self._wait(run)
        return waiter

    def _wait(self, run: Run) -> None:
        """Keep a call in the driver. The journal then has a record that it has not started. A call that waits on its
        node has none: the node goes on for a lease if the driver is killed."""
        self.waiting[run] = None
        run.on_queued()
        run.deadline = self._deadlines.at(run.deadline_at, lambda: self._expire(run))
        self._reactor.soon(self._place_waiting)

    def _expire(self, run: Run) -> None:
        if run in self.waiting:
            message = "No node of the cluster was available in the call's time. It was not started."
            if self._sent is not None and self._sent.is_sending(run.spec.key.session_id):
                message = "The workspace was not sent to its node in the call's time. The call was not started."
            self._end(run, Outcome("node_lost", message=message))

    def _place_waiting(self) -> None:
        for run in list(self.waiting):
            if run.outcome is None and self._send(run):
                self.waiting.pop(run, None)
                if run.deadline is not None:
                    self._deadlines.cancel(run.deadline)
                    run.deadline = None

    def _on_sent(self) -> None:
        self._reactor.soon(self._place_waiting)

    def _on_not_sent(self, session_ids: Sequence[str], why: str) -> None:
        """End the calls that wait for a workspace that cannot be sent."""
        for run in [run for run in self.waiting if run.spec.key.session_id in session_ids]:
            self._end(run, Outcome("node_lost", message=f"{why} The call was not started."))

    def _send(self, run: Run) -> bool:
        """Send the call to its node, or end it. Returns False if it must wait."""
        peer = self._homes.of(run.spec.key.session_id) or self._homes.place(run.spec, self._nodes.answering())
        if peer is None or not peer.is_up:
            return False
        if self._sent is not None:
            if not self._sent.is_open(run.spec.key.session_id, peer):
                return False
            run.files_lost = self._sent.ran(run.spec.key.session_id, writes="write" in run.spec.key.grants)
        now = time.monotonic()
        try:
            spec = self._spec_on(peer, run)
            number = self._numbers = self._numbers + 1
            message = call_message(number, spec, run, now)
        except UNPACKABLE as error:
            self._end(run, Outcome("error", reason="arguments", message=f"the message cannot be encoded: {error}"))
            return True
        if run in self.waiting and not run.on_taken():
            self._end(run, Outcome("unavailable", message=UNRECORDED, cure=UNRECORDED_CURE))
            return True
        run.cell = RemoteCell(peer, number)
        run.started_at = now
        peer.runs[number] = run
        self._at[run] = peer, number
        peer.say(message)
        return True

    def _spec_on(self, peer: Peer, run: Run) -> int:
        """The number of the run's spec on the node. The first call of a spec sends it. Raises `UNPACKABLE`."""
        spec = run.spec
        number = peer.specs.get(spec)
        if number is not None:
            return number
        number = self._numbers = self._numbers + 1
        copy, root = ("", "") if self._sent is None else self._sent.where(spec.key.session_id)
        message = spec_message(number, run, has_placed=bool(self.placed), copy=copy, sent_root=root)
        if message.digest not in peer.code:
            peer.code.add(message.digest)
            peer.say(SendCode(message.digest, [dict(tool) for tool in spec.tools]))
        peer.say(message)
        peer.add_spec(spec, number)
        return number

    def cancel(self, run: Run) -> None:
        """End a call whose caller does not wait any more."""
        if run in self.waiting:
            self._end(run, Outcome(ending="cancelled"))
        elif run in self._at:
            peer, number = self._at[run]
            peer.say(DropCall(number))

    def release(self, run: Run) -> None:
        """Do nothing: the node releases its own run."""

    def _end(self, run: Run, outcome: Outcome) -> None:
        """End a call in the driver."""
        self.waiting.pop(run, None)
        if run.deadline is not None:
            self._deadlines.cancel(run.deadline)
            run.deadline = None
        if (at := self._at.pop(run, None)) is not None:
            at[0].runs.pop(at[1], None)
        mine = self._of_session.get(run.spec.key.session_id)
        if mine is not None:
            mine.pop(run, None)
            if not mine:
                del self._of_session[run.spec.key.session_id]
        if run.outcome is None:
            if outcome.progress is None and run.last_progress is not None:
                outcome = replace(outcome, progress=run.last_progress)
            later = run.on_ended()
            run.end(outcome, time.monotonic(), later=later)
        if run.gone is not None:  # the node has waited for its processes
            run.gone.set()

    # -- messages -----------------------------------------------------------------------------------------------------

    def on_message(self, peer: Peer, message: NodeMessage) -> None:
        """Handle a node's message."""
        if isinstance(message, CallEnded):
            run = peer.runs.get(message.number)
            if run is not None:
                self._on_ended(run, message, peer.id)
        elif isinstance(message, CallSaid):
            run = peer.runs.get(message.number)
            if run is not None and isinstance(run.cell, RemoteCell):
                run.cell.hear(run, message.fields)
        elif isinstance(message, CallNoted):
            self._on_noted(peer, message)
        elif isinstance(message, RecordMade):
            session, call = message.session_id, message.call_id
            of = (run for run in peer.runs.values() if run.call_id == call and run.spec.key.session_id == session)
            data = next((run.without_secrets(message.data) for run in of), message.data)
            self._host.write(Record(message.kind, session, call, {**data, "node": peer.id}, message.at))
        else:
            self._nodes.notify()

    def _on_noted(self, peer: Peer, noted: CallNoted) -> None:
        run = peer.runs.get(noted.number)
        if run is None:
            return
        if noted.what == "acted":
            if isinstance(run, SessionRun):
                run.note_connection()
        else:
            run.on_incident(noted.what)

    def _on_ended(self, run: Run, message: CallEnded, node: str) -> None:
        used: Any = message.used
        run.used.update(used)
        run.started_at = time.monotonic() - used["wall_s"] if message.started else 0.0
        run.is_first_of_cell = message.is_first
        run.state_lost = message.state_lost
        if isinstance(run.cell, RemoteCell):
            run.cell.pid, run.cell.is_in_userns = message.cell, message.in_userns
        if message.audit is not None and isinstance(run, SessionRun):
            run.audited_elsewhere = watch_of(message.audit, run)
        if message.changes is not None and isinstance(run, SessionRun) and run.changes is not None:
            run.changes.hear(changes_of(message.changes))
        self._end(run, outcome_of(message, node))

    # -- sessions -----------------------------------------------------------------------------------------------------

    def tell_end(self, session_id: str, reason: str, least_s: float, most_s: float) -> list[Run]:
        """End the session's waiting calls, and tell its running calls to end. Returns the running calls."""
        runs = list(self._of_session.get(session_id, ()))
        for run in runs:
            if run in self.waiting:
                self._end(run, Outcome(ending="cancelled"))
        running = [run for run in runs if run in self._at]
        if running and (home := self._homes.of(session_id)) is not None:
            home.say(EndCalls(session_id, reason, least_s, None if most_s == math.inf else most_s))
        return running

    def park_session(self, session_id: str, why: str) -> None:
        """End the session's calls and cells. The session keeps its node."""
        self._end_all(session_id)
        if (home := self._homes.of(session_id)) is not None:
            home.say(ForgetSession(session_id, why))

    def end_session(self, session_id: str) -> None:
        """End the session's calls and cells, and leave its node."""
        self._end_all(session_id)
        if self._sent is not None:
            self._sent.ended(session_id)
        home = self._homes.leave(session_id)
        if home is not None:
            home.say(ForgetSession(session_id, ""))

    def session_opened(
        self, session_id: str, parent_id: str | None, workspace: str, protected: tuple[str, ...]
    ) -> None:
        """Note a new session, whose workspace may have to be sent."""
        if self._sent is not None:
            self._sent.opened(session_id, parent_id, workspace, protected)

    def preparing(self, session_id: str) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """A function that reads the workspace of a new session. None if the workspace is not sent."""
        return None if self._sent is None else self._sent.preparing(session_id)

    def returning(self, session_id: str, *, last: bool) -> Callable[[], Coroutine[Any, Any, WorkspaceReturn]] | None:
        """A function that brings the changes of a sent workspace back. None if there are none to bring. With `last`,
        end the session's calls first."""
        if self._sent is None:
            return None
        if last:
            self._end_all(session_id)
        return self._sent.returning(session_id, last=last)

    def _end_all(self, session_id: str) -> None:
        for run in list(self._of_session.get(session_id, ())):
            self._end(run, Outcome(ending="cancelled"))

    # -- time ---------------------------------------------------------------------------------------------------------

    def at(self, when: float, action: Callable[[], None]) -> Deadline:
        """Call `action` on the event loop at `when`, in seconds of time.monotonic()."""
        return self._deadlines.at(when, action)

    def forget_deadline(self, deadline: Deadline) -> None:
        """Cancel an action of `at`."""
        self._deadlines.cancel(deadline)

    def _ring(self) -> None:
        for action in self._deadlines.pop_due(time.monotonic()):
            try:
                action()
            except Exception:  # a bug must not end the later actions
                _log.exception("a timed action of %r failed", self)
        self._deadlines.ring_again()

    # -- overview -----------------------------------------------------------------------------------------------------

    @property
    def most_cells(self) -> int:
        """The most cells that the nodes may have together."""
        return self._nodes.most_cells

    @property
    def placed(self) -> frozenset[str]:
        """The handles that the nodes serve."""
        return self._terms.placed

    def kept_writable(self) -> list[tuple[str, ...]]:
        """Nothing: each node tracks its own kept processes."""
        return []

    def is_serving(self, key: CellKey) -> bool:
        """Whether a cell of this key runs a call now."""
        return any(run.spec.key == key for run in self._at)

    def running(self) -> list[Run]:
        """The calls that were sent to nodes and have not ended."""
        return list(self._at)

    def counts(self) -> dict[str, int]:
        """The number of cells of all nodes by state, as the nodes last reported."""
        return self._nodes.counts()

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes, as JSON data (`overview.data_of`)."""
        nodes = self._nodes.data()
        if self._sent is not None:
            for node in nodes:
                node["sent_bytes"] = self._sent.sender.sent_bytes[node["id"]]
        return nodes

    def losses(self) -> list[str]:
        """The losses of the last minutes, in sentences."""
        return self._nodes.losses()

    def status(self) -> SupervisorStatus:
        """The mechanisms of the first node, and the zygotes of all."""
        problem = "" if self._nodes.ups() else "No node of the cluster is connected."
        report = self.report
        return SupervisorStatus(report.mechanisms, report.identity, zygotes=self._nodes.zygotes, problem=problem)
