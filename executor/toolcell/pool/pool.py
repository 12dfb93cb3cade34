"""The pool: carries out the decisions of `plan`, keeps the zygotes and the cells, and runs what is due."""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Final

from toolcell.errors import SandboxUnavailableError, UsageError
from toolcell.wire import forks
from toolcell.wire.budget import Budgets
from toolcell.wire.frames import TooLarge, Unpackable
from toolcell.wire.messages import AHEAD_NEEDS, Failed
from toolcell.wire.switches import is_on
from toolcell.workplaces.record import RunRecord
from toolcell_sandbox import late_paths
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.mechanisms.cgroup_tree import CgroupTree
from toolcell_sandbox.report import SandboxReport
from toolcell_tools.preview import counted

from .ahead import Reserve
from .cell import WATCH_S, Cell, ForkingAhead, Snapshot, State
from .deadlines import Deadline, Deadlines, Patience
from .fleet import Fleet
from .interface import SupervisorStatus
from .maker import CANNOT_MAKE, Maker, Slots, not_made, preload_of
from .plan import (
    HELD_S,
    LATE_S,
    Assign,
    Pace,
    Room,
    Spawn,
    behind,
    cheapest_to_evict,
    gives_way,
    is_crowded,
    least_wait_s,
    may_queue,
    obstacle,
    outlived,
    plan,
)
from .reactor import IN_A_ROW_S, QUICK_S, Reactor, Waiter
from .run import NO_PROCESS, SOON_S, UNRECORDED, UNRECORDED_CURE, CellKey, CellSpec, Outcome, Run, unavailable
from .zygote import EXHAUSTED, require_proc

_log = logging.getLogger("toolcell.pool")
PRUNE_S = 5.0
REST_WATCH_S = 1.0  # how often kept processes are inspected while they have no call
CLOSE_S = 5.0  # longer than a kept process's teardown and a kill take; a stopped zygote's cells end with it
RIVAL_S: Final = 1.0
"""How many seconds a session counts as a rival after its last call began, or was seen running."""
_now = time.monotonic
_SHOWN_AS = {
    State.READY: "idle",
    State.BUSY: "busy",
    **dict.fromkeys((State.SPAWNING, State.STARTING, State.UNBOUND, State.BINDING), "starting"),
    **dict.fromkeys((State.JUDGED, State.SWEEPING), "sweeping"),
    **dict.fromkeys((State.RETIRING, State.DOOMED, State.LOSING, State.DYING, State.DEAD), "ending"),
}


class Rivals:
    """Which sessions make calls. The running calls of a session together get about the CPU time of one call.

    The kernel shares a busy core among processes, so a session with eight running calls would get eight times the CPU
    time of a session with one. So while several sessions make calls, the cgroups of a session's cells have a smaller
    CPU weight: together that of one process. The kernel does the rest. Without a cgroup, a session has no weight.

    The session `last` made the last call, at `last_at`. `other_at` is the time of the last call of any other session.
    `seen` has the time of each session's last call; for `last` it may be out of date, and `last_at` counts."""

    __slots__ = ("last", "last_at", "other_at", "seen")

    def __init__(self) -> None:
        self.last = ""
        self.last_at = self.other_at = -math.inf
        self.seen: dict[str, float] = {}

    def note(self, session_id: str, now: float) -> None:
        """Note that the session begins a call, or has one under way."""
        now = max(now, self.last_at)  # a call that is made again has the time of the first one
        if session_id != self.last:
            if self.last in self.seen:  # else it was forgotten
                self.seen[self.last] = self.last_at
            self.last, self.other_at = session_id, self.last_at
            self.seen[session_id] = now
        elif session_id not in self.seen:
            self.seen[session_id] = now
        self.last_at = now

    def forget(self, session_id: str) -> None:
        """Forget a session that is closed or parked."""
        self.seen.pop(session_id, None)

    def forget_before(self, when: float) -> bool:
        """Forget the sessions that made their last call before `when`. Returns whether there were any."""
        gone = [session_id for session_id, at in self.seen.items() if at < when and session_id != self.last]
        for session_id in gone:
            del self.seen[session_id]
        return bool(gone)

    def has(self, session_id: str, now: float) -> bool:
        """Whether another session has calls."""
        return now - (self.other_at if session_id == self.last else self.last_at) < RIVAL_S


def next_power_of_2(calls: int) -> int:
    """Round `calls` up to a power of two, so that weights change less often."""
    return 1 << (calls - 1).bit_length()


class Pool:
    """Runs `Run`s in cells. Everything but `start` and `close` is called on the loop and returns at once."""

    def __init__(
        self,
        reactor: Reactor,
        *,
        allow_missing: frozenset[str] = frozenset(),
        max_cells: int,
        cells_per_session: int = 8,
        standby: bool = True,
        zygotes: int = 0,
        idle_s: float = 60.0,
        max_waiting: int = 1000,
        on_kept_gone: Callable[[Cell], None] = lambda _cell: None,
        tools: Iterable[Mapping[str, object]] = (),
        record: RunRecord | None = None,
    ) -> None:
        """`tools` are those that most cells will load, as in `CellSpec`: zygotes prepare for them. `record` lists
        cgroups and processes, for a later clean-up.
        """
        self.report = SandboxReport((), "rootless")
        self.cells: dict[int, Cell] = {}
        self.budgets = Budgets()
        self.waiting: dict[Run, None] = {}  # in the order of arrival
        self._queues: dict[str, dict[Run, None]] = {}  # the same calls, by session
        self._reactor = reactor
        self._room = Room(max_cells, cells_per_session)
        self._idle_s = idle_s
        self._max_waiting = max_waiting
        self._on_kept_gone = on_kept_gone
        self._deadlines = Deadlines(reactor.alarm(self._ring))
        self._idle: dict[CellKey, list[Cell]] = {}
        self._exclusive: set[str] = set()
        # By session and kept tool: why the pool ended the tool's last process, "" if it did not.
        self._states: dict[str, dict[str, str]] = {}
        self._open = False  # from start to close
        record = record or RunRecord()
        self.slots = Slots(self._deadlines, record, self._check_empty)
        self.fleet = Fleet(
            reactor,
            self._deadlines,
            record,
            on_not_bound=self._on_not_bound,
            on_capacity=self._on_capacity,
            on_pause=self._on_pause,
            size=zygotes,
            allow_missing=allow_missing,
            preload=preload_of(tools),
        )
        self.maker = Maker(self, reactor, self._deadlines, self.slots, self.fleet, standby=standby)
        self.reserve = Reserve(
            self.maker,
            self._deadlines,
            self.cells,
            max_cells,
            self._is_calm,
            enabled=standby and is_on("prewarm"),
        )
        self._ahead = ForkingAhead(self._deadlines)
        self._pace = Pace()
        self._rivals = Rivals()
        self._working: dict[int, str] = {}  # the session of each cell that runs a call or is being swept after one
        self._running: dict[str, int] = {}  # the number of those cells, by session
        self._watching: Deadline | None = None
        self._rest_seen_at = 0.0  # when kept processes without a call were last inspected
        self._looking_again: Deadline | None = None
        self._on_empty: Callable[[], None] | None = None
        self._closing: Patience | None = None
        forks.register(self)

    def status(self) -> SupervisorStatus:
        """What the kernel offers here, as probed at the start, and the present state of the zygotes."""
        return self.fleet.status()

    def __repr__(self) -> str:
        counts = " · ".join(f"{number} {name}" for name, number in self.counts().items() if number)
        return f"<Pool [cells: {counts or 'none'} · calls: {len(self.waiting)} queued]>"

    def counts(self) -> dict[str, int]:
        """The number of cells by what they do: idle, busy, starting, sweeping, ending."""
        states = Counter(_SHOWN_AS[cell.state] for cell in self.cells.values())
        return {name: states[name] for name in dict.fromkeys(_SHOWN_AS.values())}

    # -- start and end ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start one zygote. Raises SandboxUnavailableError if a mechanism is missing that is not allowed to be."""
        require_proc()
        # before the first child: this process's own cgroup may have to be divided
        tree = CgroupTree.detect()
        with ExitStack() as undo:
            undo.callback(self._reactor.close)
            undo.callback(self.fleet.close)
            try:
                self.report = await self.fleet.start()
                self._ahead.enabled = self.report.on >= AHEAD_NEEDS and is_on("fork_ahead")
                self._deadlines.at(time.monotonic() + PRUNE_S, self._prune)  # the first alarm takes a descriptor
            except SandboxError as error:
                raise SandboxUnavailableError(str(error), error.mechanism, error.cure) from None
            if tree is not None and "cgroup" in self.report.on:
                self.slots.tree = tree
                tree.sweep_stale()  # cgroups of supervisors that were killed
            undo.pop_all()
        self._open = True

    async def close(self) -> None:
        """End every call and every cell, wait until they are gone, and leave nothing behind."""
        self._open = False
        self.fleet.stand_down()
        try:
            for run in list(self.waiting):
                self._end_waiting(run, Outcome(ending="cancelled"))
            for cell in list(self.cells.values()):
                cell.calls.end(Outcome(ending="cancelled"))
                cell.retire()
            self.reserve.stop()
            if self.all_cells or self.slots.vacating:
                empty = self._reactor.waiter()
                self._on_empty = lambda: empty.set(None)
                self._closing = Patience(self._deadlines, CLOSE_S, self._give_up)
                await empty
        finally:  # also if the task that waits is cancelled
            self.abandon()

    def _give_up(self) -> None:
        """Close without the cells that do not die, such as those of a zygote that is stopped: they end with it."""
        _log.error("no cell has ended for %g s, and these are given up: %s", CLOSE_S, self.all_cells)
        if self._on_empty is not None:
            self._on_empty()

    def abandon(self) -> None:
        """End every process at once, without a turn of the event loop: each process ends with its zygote."""
        self._open = False
        with ExitStack() as last:  # all of these, from the last one up, whatever the others raise
            last.callback(self.slots.remove, self.all_cells)
            last.callback(self._reactor.close)
            if not self._reactor.is_over():  # else a waiter could not be told
                for cell in self.all_cells:
                    last.callback(self._reactor.guarded, None, cell.close)
            last.callback(self.fleet.close)

    def let_go(self) -> None:
        """In a fork of the program, forget every call and cell, so that nothing is sent, killed or removed."""
        self._open = False
        waiting = [run.waiter for run in (*self.waiting, *self.running()) if run.waiter is not None]
        for run in self.running():
            run.cell = None
        if self._reactor.thread == threading.get_ident():  # otherwise their tasks do not run here
            for waiter in waiting:
                waiter.fail(UsageError(forks.FORKED))
        for known in (self.waiting, self._queues, self.cells, self.reserve.cells):
            known.clear()
        for listed in (self.fleet.zygotes, self.slots.free_cgroups, self.slots.vacating):
            listed.clear()

    # -- calls --------------------------------------------------------------------------------------------------------

    def submit(self, run: Run) -> Waiter[Outcome]:
        """Run the call now if a cell is free, else queue it. The returned waiter gets the outcome in every case."""
        try:
            self._place(run)
        except Exception as error:
            self._reactor.fault(self, error)
            if run in self.waiting:
                self._end_waiting(run, unavailable(not_made(error)))
            elif run.cell is None:
                run.end(unavailable(not_made(error)), _now())
        waiter = run.waiter = self._reactor.waiter()
        if run.outcome is not None:
            waiter.set(run.outcome)
        return waiter

    def _place(self, run: Run) -> None:
        """Give the call to the free cell of its key that was used last, or queue it.

        The plan decides the same for it, by rules 1 and 2, whoever else waits: no other session can use such a cell,
        and a call of this session would have it already. The look-up stands here because a kept call takes some 75 µs,
        and the plan takes 12 µs for one cell, 24 µs for eight.
        """
        key = run.spec.key
        idle = self._idle.get(key)
        while idle and run.exclusive not in self._exclusive:
            cell = idle[-1]
            if cell.check(run.queued_at):
                idle.pop()
                self._assign(run, cell, run.queued_at)
                break
            if cell in idle:
                idle.remove(cell)
        else:
            self._queue(run)
        # while the cell works
        self._rivals.note(key.session_id, run.queued_at)

    def on_fault(self, error: Exception) -> None:
        """Look at the queue again a moment later: a call may wait for the step that raised this."""
        self._deadlines.at(_now() + SOON_S, self._look_after_fault)

    def _look_after_fault(self) -> None:
        for run in [run for run in self.waiting if run.deadline_at <= _now()]:
            self._end_waiting(run, Outcome(ending="timeout"))
        self._pump()

    def _queue(self, run: Run) -> None:
        if not self._open:
            run.end(Outcome(ending="unavailable", message="The supervisor is closing."), _now())
            return
        if not self.fleet and run.deadline_at <= self.fleet.resumes_at:
            run.end(self.fleet.absence(), _now())
            return
        own = len(self._queues.get(run.spec.key.session_id, ()))
        if not may_queue(own, len(self.waiting), self._max_waiting):
            run.end(self._too_many_wait(run, own), _now())
            return
        if self._pace.is_known:
            wait_s = least_wait_s(run.spec.key.session_id, self._queues, self._pace.mean_s)
            if wait_s > run.deadline_at - run.queued_at and self._is_too_late(run):
                run.end(self._too_late(run, wait_s), _now())
                return
        self.waiting[run] = None
        self._queues.setdefault(run.spec.key.session_id, {})[run] = None
        run.on_queued()
        run.deadline = self._deadlines.at(run.deadline_at, lambda: self._expire(run))
        self._pump()

    def cancel(self, run: Run) -> None:
        """Drop the call of a caller that has gone: a queued call is forgotten, a running call is ended."""
        if run in self.waiting:
            self._end_waiting(run, Outcome(ending="cancelled"))
        elif run.cell is not None:
            run.cell.calls.tell_end(run, "the caller has gone", run.limits.grace_s)

    def tell_end(self, session_id: str, reason: str, least_s: float, most_s: float) -> list[Run]:
        """End the session's queued calls, and tell its running calls to end. Returns the running calls. The grace of
        each is its own `grace_s`, but at least `least_s` and at most `most_s` seconds."""
        self._end_all_waiting(session_id)
        running = [cell.run for cell in self.cells.values() if cell.spec.key.session_id == session_id]
        told = [run for run in running if run is not None and run.cell is not None]
        for run in told:
            assert run.cell is not None
            run.cell.calls.tell_end(run, reason, min(most_s, max(least_s, run.limits.grace_s)))
        return told

    def at(self, when: float, action: Callable[[], None]) -> Deadline:
        """Call `action` on the event loop at `when`, in seconds of time.monotonic()."""
        return self._deadlines.at(when, action)

    def forget_deadline(self, deadline: Deadline) -> None:
        self._deadlines.cancel(deadline)

    def park_session(self, session_id: str, why: str) -> None:
        """End the session's calls and cells. The next call of each of its kept tools is told `why` its state is
        lost."""
        states = self._states.get(session_id)
        self.end_session(session_id)
        if states:
            self._states[session_id] = dict.fromkeys(states, why)

    def end_session(self, session_id: str) -> None:
        """End the session's calls and cells."""
        self._end_all_waiting(session_id)
        for cell in [cell for cell in self.cells.values() if cell.spec.key.session_id == session_id]:
            cell.calls.end(Outcome(ending="cancelled"))
            self._retire(cell)
        self.maker.unmapped.discard(session_id)
        self._states.pop(session_id, None)
        self._rivals.forget(session_id)
        if self.waiting:
            self._reactor.soon(self._pump)  # the plan no longer leaves a place to this session

    def session_opened(
        self, session_id: str, parent_id: str | None, workspace: str, protected: tuple[str, ...]
    ) -> None:
        """Nothing: the workspace is here."""

    def preparing(self, session_id: str) -> None:
        """Nothing, as for `session_opened`."""

    def returning(self, session_id: str, *, last: bool) -> None:
        """Nothing, as for `session_opened`."""

    def _assign(self, run: Run, cell: Cell, now: float) -> None:
        session_id = run.spec.key.session_id
        running = self._running.get(session_id, 0) + 1
        try:
            if running > 1 or cell.lowered:  # a lone call is spared this
                others = self._working.items() if running > 1 else ()
                dying = sum(of == session_id and self._is_dying(id) for id, of in others)
                # before the call is sent: the call process may preempt the supervisor
                self._share_cores(cell, now, running - dying)
            cell.assign(run, now)
        except Unpackable as error:
            if run.deadline is not None:
                self._deadlines.cancel(run.deadline)
            cure = "; write what is large to a file in parts, and name the file" if isinstance(error, TooLarge) else ""
            run.end(Outcome(ending="error", reason="arguments", message=f"{error}{cure}"), _now())
            self._idle.setdefault(cell.spec.key, []).append(cell)
            self._reactor.soon(self._pump)  # the cell is free for another
            return
        except Exception as error:  # mostly OSError: no descriptor is left, or the cgroup is gone
            if cell.run is run:
                cell.fail(error)
                return
            _log.warning("%r could not be given a call: %s", cell, error)
            cell.kill()
            if run.deadline is not None:
                self._deadlines.cancel(run.deadline)
            run.end(unavailable(not_made(error)), _now())
            return
        # while the cell works
        self._working[cell.id], self._running[session_id] = session_id, running
        if run.exclusive:
            self._exclusive.add(run.exclusive)
        self.watch()
        self._ahead.add(cell, run.started_at)
        if cell.is_quick and now - cell.idle_since < IN_A_ROW_S and len(self._working) == 1:
            self._reactor.stay_awake(now + QUICK_S)

    def on_new_process(self, cell: Cell, run: Run) -> None:
        """Handle the first call of a kept process: tell `run` that the state of the process before is lost."""
        key = run.spec.key
        of_session = self._states.setdefault(key.session_id, {})
        if key.kept_tool in of_session:
            run.state_lost = of_session[key.kept_tool] or "has ended"
        of_session[key.kept_tool] = ""

    def _assign_waiting(self, run: Run, cell: Cell) -> bool:
        """Give a queued call to a free cell. Returns whether the cell has it. A call whose workspace has become another
        directory is not given to the cell: it ends as "moved", and the session submits it again."""
        if run.has_moved():
            self._end_waiting(run, Outcome(ending="moved"))
            self._reactor.soon(self._pump)
            return False
        if not run.on_taken():
            self._end_waiting(run, Outcome(ending="unavailable", message=UNRECORDED, cure=UNRECORDED_CURE))
            self._reactor.soon(self._pump)
            return False
        idle = self._idle.get(cell.spec.key)
        if idle is not None and cell in idle:
            idle.remove(cell)
        self._dequeue(run)
        now = _now()
        self._pace.take(now, is_last=not self.waiting)
        self._assign(run, cell, now)
        self._rivals.note(run.spec.key.session_id, now)  # it has waited long
        if not self.waiting:
            self.reserve.soon()
        return True

    def _end_all_waiting(self, session_id: str) -> None:
        for run in list(self._queues.get(session_id, ())):
            self._end_waiting(run, Outcome(ending="cancelled"))

    def _dequeue(self, run: Run) -> None:
        del self.waiting[run]
        session_id = run.spec.key.session_id
        mine = self._queues[session_id]
        del mine[run]
        if not mine:
            del self._queues[session_id]

    def _end_waiting(self, run: Run, outcome: Outcome) -> None:
        self._dequeue(run)
        if run.deadline is not None:
            self._deadlines.cancel(run.deadline)
        run.end(outcome, _now())
        if not self.waiting:
            self.reserve.soon()

    def _expire(self, run: Run) -> None:
        if run in self.waiting:
            waited = _now() - run.queued_at
            if self.fleet.was_absent(run.queued_at):
                self._end_waiting(run, self.fleet.absence())
                return
            if any(cell.spec.key == run.spec.key and cell.starting for cell in self.cells.values()):
                self._end_waiting(run, Outcome(ending="timeout"))  # there was room, but its cell started too slowly
                return
            why, again_s = self._obstacle(run)
            message = (
                f"The call waited {waited:.3g} s for a process, its whole time, and was not started: {why}. "
                f"Try again in {again_s:.2g} s, or give the call a longer timeout."
            )
            self._end_waiting(run, Outcome(ending="overloaded", message=message, retry_after_s=again_s))

    def _is_too_late(self, run: Run) -> bool:
        """Whether the call would end its time in the queue, without the calls that it can overtake."""
        queues = behind(run, self._queues)
        if least_wait_s(run.spec.key.session_id, queues, self._pace.mean_s) <= run.deadline_at - run.queued_at:
            return False
        alone = plan([run], _snapshots(self.cells.values()), self._room, self._exclusive, _now())
        return not alone  # else there is room now

    def _too_late(self, run: Run, wait_s: float) -> Outcome:
        why, _again_s = self._obstacle(run)
        message = (
            f"The call would wait at least {wait_s:.2g} s for a process, longer than its whole time, so it was not "
            f"queued: {why}. Try again in {wait_s:.2g} s, or give the call a longer timeout."
        )
        return Outcome(ending="overloaded", message=message, retry_after_s=round(wait_s, 2))

    def _too_many_wait(self, run: Run, own: int) -> Outcome:
        why, again_s = self._obstacle(run)
        again_s = min(LATE_S, again_s * (1 + len(self.waiting) // self._room.cells))
        message = (
            f"{counted(len(self.waiting), 'call waits', 'calls wait')} already, {own:,} of them of this session, and "
            f"it has no place left in the queue: {why}. Try again in {again_s:.2g} s."
        )
        return Outcome(ending="overloaded", message=message, retry_after_s=again_s)

    def _obstacle(self, run: Run) -> tuple[str, float]:
        why, again_s = obstacle(run, _snapshots(self.cells.values()), self._room, self._exclusive, _now())
        return why, round(again_s, 2)

    def _pump(self) -> None:
        """Carry out the plan for the queued calls."""
        if self.waiting and self._open and self.fleet:
            self._reactor.guarded(self, self._carry_out)

    def _carry_out(self) -> None:
        now = _now()
        cells, awaited = _snapshots(self.cells.values()), self._rivals.seen
        for action in plan(self.waiting, cells, self._room, self._exclusive, now, awaited):
            if not isinstance(action, Assign) and not self.fleet.has_capacity:
                continue  # the zygotes have enough requests; `on_capacity` calls this again
            if isinstance(action, Assign):
                self._assign_waiting(action.run, self.cells[action.cell])
            elif isinstance(action, Spawn):
                try:
                    self._spawn(action.spec)
                except CANNOT_MAKE as error:
                    exhausted = getattr(error, "errno", None) in EXHAUSTED
                    if not (exhausted and self._make_way()):
                        self._on_start_failed(action.spec, not_made(error))
            else:
                self._evict(self.cells[action.cell])
        if self.waiting and self._looking_again is None and any(self._idle.values()):
            self._looking_again = self._deadlines.at(now + HELD_S, self._look_again)

    def _look_again(self) -> None:
        """Look at the queue when sessions no longer hold the cells that are idle now."""
        self._looking_again = None
        self._pump()

    # -- cells --------------------------------------------------------------------------------------------------------

    def _spawn(self, spec: CellSpec) -> None:
        for stale in [cell for cell in self.cells.values() if cell.free and spec.key.replaces(cell.spec.key)]:
            self._retire(stale)
        self.reserve.on_demand()
        if not self._bind(spec):
            if len(self.all_cells) >= self.most_cells:
                self.reserve.end_one()
            cell = self.maker.make(spec)
            self.cells[cell.id] = cell
        self.reserve.want(spec)

    def _bind(self, spec: CellSpec) -> bool:
        """Give a prewarmed cell of the reserve to this session, if one fits."""
        taken = None if spec.key.session_id in self.maker.unmapped else self.reserve.take(spec)
        if taken is None:
            return False
        cell, lacking = taken
        self.cells[cell.id] = cell
        if cell.idle:
            self.reserve.on_met()
        try:
            cell.claim(spec, lacking)
        except Unpackable:
            cell.kill()
            return False  # the caller makes a new cell instead, which fails with the same error for the call
        return True

    def on_lacking(self, cell: Cell) -> None:
        """Have the zygote put a session's paths in place in a prewarmed cell that waits for them."""
        assert cell.binding is not None
        try:
            self.fleet.bind(cell, cell.binding.paths)
        except (OSError, Unpackable) as error:
            failure = not_made(error)
            self._reactor.soon(lambda: self._on_not_bound(cell, failure))  # not now: the pump may be at work

    def _on_not_bound(self, cell: Cell, failure: Failed) -> None:
        """End a prewarmed cell whose session's paths could not be put in place. The next cell is made for its session
        from the start: it does not need this step, or reports the error."""
        if cell.id not in self.cells:
            return  # it has died since
        if failure.step == late_paths.ENTER:
            self.reserve.stop()
        elif failure.mechanism == "idmapped_mounts":
            self._on_start_failed(cell.spec, failure)
        cell.orphan()

    def _is_calm(self) -> bool:
        """Whether there is a zygote and no call waits."""
        return self._open and bool(self.fleet) and not self.waiting

    @property
    def all_cells(self) -> list[Cell]:
        """All cells, those of the reserve included."""
        return [*self.cells.values(), *self.reserve.cells.values()]

    @property
    def placed(self) -> frozenset[str]:
        """None: the supervisor serves all handles."""
        return frozenset()

    @property
    def most_cells(self) -> int:
        """The most cells that there may be."""
        return self._room.cells

    def hear(self, cell: Cell) -> None:
        """Read what the cell's zygote has sent."""
        self.fleet.hear(cell.id)

    def _make_way(self) -> bool:
        """End an idle cell because the host has no resources for another one. Returns whether any cell is ending, which
        will free some.
        """
        cells = self.all_cells
        if not any(cell.doomed for cell in cells):
            self.reserve.end_one()
            idle = cheapest_to_evict(_snapshots(self.cells.values()))
            if idle is not None and not any(cell.doomed for cell in cells):
                self._evict(self.cells[idle])
        return any(cell.doomed for cell in cells)

    def _evict(self, cell: Cell) -> None:
        """End an idle cell to make room for a queued call."""
        key = cell.spec.key
        if key.kept_tool in self._states.get(key.session_id, {}):
            why = "was ended to make room for other calls, because it had been idle longest"
            self._states[key.session_id][key.kept_tool] = why
            _log.info("%r %s", cell, why)
        self._retire(cell)

    def _retire(self, cell: Cell) -> None:
        idle = self._idle.get(cell.spec.key)
        if idle and cell in idle:
            idle.remove(cell)
        cell.retire()

    def on_idle(self, cell: Cell) -> None:
        """Give the free cell a queued call, if one fits."""
        self._rest(cell)
        if not self._open:
            cell.kill()
            return
        if self.reserve.waits_for_start:
            self.reserve.soon()
        if cell.spec.unbound:
            return  # none of the queued calls is for this cell
        if is_crowded(len(self.cells), self._room, self._rivals.seen):
            cells, sessions = _snapshots(self.cells.values()), self._queues.keys()
            if gives_way(cell.snapshot(), cells, self._room, self._rivals.seen, sessions):
                self._retire(cell)
                self._pump()
                return
        self._idle.setdefault(cell.spec.key, []).append(cell)
        if self.waiting:
            self._pump()

    def _rest(self, cell: Cell) -> None:
        """Note that the cell runs no call."""
        session_id = self._working.pop(cell.id, None)
        if session_id is not None:
            running = self._running[session_id] - 1
            if running:
                self._running[session_id] = running
            else:
                del self._running[session_id]

    def on_call_ended(self, run: Run) -> None:
        """Note that a run is over. Another one that must not overlap with it may start."""
        if run.gone is None:
            self.release(run)

    def release(self, run: Run) -> None:
        """Let the next run with the same word in `exclusive` start. The pool calls this at the end of a run; for a run
        with `gone`, the task that audits the workspace calls it."""
        word, run.exclusive = run.exclusive, ""
        if word and run.cell is not None:
            self._exclusive.discard(word)
            if self.waiting:
                self._reactor.soon(self._pump)

    def on_dead(self, cell: Cell, failure: Failed | None) -> None:
        """Remove a dead cell. All its processes and descriptors are gone."""
        if self.reserve.remove(cell):
            failure = None  # no call waits for it
        else:
            del self.cells[cell.id]
        self.fleet.forget(cell.id)
        self._rest(cell)
        self._ahead.discard(cell)
        self.slots.vacate(cell)
        idle = self._idle.get(cell.spec.key)
        if idle is not None:
            if cell in idle:
                idle.remove(cell)
            if not idle:
                del self._idle[cell.spec.key]
        if failure is not None and not (failure.step in NO_PROCESS and self._make_way()):
            self._on_start_failed(cell.spec, failure)
        if self.reserve.waits_for_start:
            self.reserve.soon()
        if cell.spec.key.kept_tool:
            self._reactor.guarded(self, self._on_kept_gone, cell)
        self._check_empty()
        self._pump()

    def running(self) -> list[Run]:
        """The calls that run now."""
        return [run for cell in self.cells.values() if (run := cell.run) is not None]

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes of its cluster: none, because its cells are here."""
        return []

    def losses(self) -> list[str]:
        """None, because there are no nodes."""
        return []

    def kept_writable(self) -> list[tuple[str, ...]]:
        """For each kept process, the paths to which it may write."""
        return [cell.spec.profile.writable for cell in self.cells.values() if cell.spec.key.kept_tool]

    def is_serving(self, key: CellKey) -> bool:
        """Whether a cell of this key runs a call now."""
        return any(cell.spec.key == key and cell.calls.run is not None for cell in self.cells.values())

    def _check_empty(self) -> None:
        if self._closing is not None:
            self._closing.renew()
        gone = not (self.all_cells or self.slots.vacating)
        if not self._open and gone and self._on_empty is not None:
            self._on_empty()

    def _on_start_failed(self, spec: CellSpec, failure: Failed) -> None:
        """End the calls of a cell that could not be made, unless it can be made in another permitted way."""
        session_id = spec.key.session_id
        if failure.mechanism == "idmapped_mounts":
            self.maker.unmapped.add(session_id)  # the session's next cell gets a user namespace
            return
        for run in [run for run in self.waiting if run.spec.key == spec.key]:
            if failure.step == "import":
                outcome = Outcome(ending="error", reason="import", message=failure.message)
            else:
                outcome = unavailable(failure)
            self._end_waiting(run, outcome)

    def _on_capacity(self) -> None:
        """Look at the queue again, because more cells can be requested."""
        self._reactor.soon(self._pump)  # not now: cells of a dead zygote may still be listed

    def _on_pause(self) -> None:
        """End the queued calls that have no time to wait for the next zygote."""
        for run in [run for run in self.waiting if run.deadline_at <= self.fleet.resumes_at]:
            self._end_waiting(run, self.fleet.absence())

    # -- time ---------------------------------------------------------------------------------------------------------

    def _ring(self) -> None:
        try:
            for action in self._deadlines.pop_due(_now()):
                self._reactor.guarded(self, action)
        finally:
            self._deadlines.ring_again()

    def watch(self) -> None:
        """Inspect the cells that are at work, periodically, until there is none."""
        self._watch_in(WATCH_S)

    def _watch_in(self, seconds: float) -> None:
        when = _now() + seconds
        if self._watching is not None:
            if self._watching.when <= when:
                return
            self._deadlines.cancel(self._watching)
        self._watching = self._deadlines.at(when, self._watch)

    def _watch(self) -> None:
        self._watching = None
        now, at_work = _now(), [cell for cell in self.cells.values() if cell.at_work]
        resting = [cell for cell in self.cells.values() if cell.keeps_a_process]
        if at_work:
            self.watch()  # first: an exception must not end the watch
        elif resting:
            self._watch_in(REST_WATCH_S)
        if resting and now - self._rest_seen_at >= REST_WATCH_S:
            self._rest_seen_at = now
            for cell in resting:
                cell.inspect_rest()
        dying = Counter(session_id for id, session_id in self._working.items() if self._is_dying(id))
        for cell in at_work:
            try:
                cell.inspect(now)
                self._share(cell, now, dying[cell.spec.key.session_id])
            except Exception:  # such as EMFILE; the other cells must still be inspected
                _log.exception("%r could not be looked at", cell)

    def _is_dying(self, id: int) -> bool:
        cell = self.cells.get(id)
        return cell is not None and cell.doomed

    def _share(self, cell: Cell, now: float, dying: int) -> None:
        """Let a running call share the cores with the others of its session, if another session has calls."""
        if cell.run is not None and not cell.doomed:
            session_id = cell.spec.key.session_id
            self._rivals.note(session_id, now)
            self._share_cores(cell, now, self._running.get(session_id, 0) - dying)
        else:
            cell.hurry()  # a sweep that got no core

    def _share_cores(self, cell: Cell, now: float, running: int) -> None:
        """Set the cell's share of the cores. `running` counts the session's live calls: they share the CPU weight of
        one process while another session has calls."""
        session_id = cell.spec.key.session_id
        calls = max(1, running) if self._rivals.has(session_id, now) else 1
        if calls > 1 or cell.lowered:  # a long call gets its weight back when the others are over
            cell.weigh(next_power_of_2(calls))

    def _prune(self) -> None:
        now = _now()
        self._deadlines.at(now + PRUNE_S, self._prune)
        for retire in outlived(_snapshots(self.all_cells), now, self._idle_s):
            self._retire(self.cells.get(retire.cell) or self.reserve.cells[retire.cell])
        if self._rivals.forget_before(now - self._idle_s):
            self._pump()


def _snapshots(cells: Iterable[Cell]) -> list[Snapshot]:
    return [cell.snapshot() for cell in cells]
