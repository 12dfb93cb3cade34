"""The pool: carries out what `plan` decided, keeps the zygotes and the cells, and rings the deadlines."""

import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import cast

from toolcell.errors import SandboxUnavailableError
from toolcell.wire.frames import Field, Unpackable
from toolcell.wire.messages import AHEAD_NEEDS, Failed, MakeCell
from toolcell.workplaces.record import RunRecord
from toolcell_sandbox import binding, view
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.identity import Identity
from toolcell_sandbox.mechanisms.cgroup_tree import CgroupTree
from toolcell_sandbox.mechanisms.cgroups import Cgroup
from toolcell_sandbox.report import SandboxReport

from . import reserve
from .budget import Budgets
from .cell import Cell, Snapshot, State
from .cell.cell import AHEAD_AFTER_S
from .deadlines import Deadline, Deadlines
from .fleet import Fleet
from .plan import LATE_S, Assign, Room, Spawn, cheapest_to_evict, obstacle, outlived, plan
from .reactor import Reactor, Waiter
from .recovery import SupervisorStatus
from .reserve import Reserve, Surroundings
from .run import NO_PROCESS, CellKey, CellSpec, Outcome, Run, unavailable
from .slots import Slots
from .zygote import CURES, EXHAUSTED, require_proc

_log = logging.getLogger("toolcell.pool")
WATCH_S = 0.05  # how often running calls are held against the limits of their whole tree
AHEAD_APART_S = 0.001
PREWARM_AFTER_S = 0.003  # after the last call that waited for a cell has one: most are over by then
PREWARM_SOON_S = 0.0003  # the same where there was none for that call: the next session may come as soon
PRUNE_S = 5.0
_now = time.monotonic
_SHOWN_AS = {
    State.READY: "idle",
    State.BUSY: "busy",
    **dict.fromkeys((State.SPAWNING, State.STARTING, State.UNBOUND, State.BINDING), "starting"),
    **dict.fromkeys((State.JUDGED, State.SWEEPING), "sweeping"),
    **dict.fromkeys((State.RETIRING, State.DOOMED, State.LOSING, State.DYING, State.ORPHANED, State.DEAD), "ending"),
}


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
        """`tools` are what most cells are going to load, as in `CellSpec`: zygotes prepare for them. `record` takes
        note of cgroups and processes.
        """
        self.report = SandboxReport((), "rootless")
        self.cells: dict[int, Cell] = {}
        self.budgets = Budgets()
        self.waiting: dict[Run, None] = {}  # in the order of their arrival
        self._reactor = reactor
        self._room = Room(max_cells, cells_per_session)
        self._standby = standby
        self._idle_s = idle_s
        self._max_waiting = max_waiting
        self._on_kept_gone = on_kept_gone
        self._deadlines = Deadlines(lambda when: reactor.set_alarm(when, self._ring))
        self._idle: dict[CellKey, list[Cell]] = {}
        self._exclusive: set[str] = set()
        self._states: dict[str, dict[str, str]] = {}  # by session, the tools whose processes kept state, and its end
        self._open = False  # from start to close
        self._last_id = 0
        self._userns_sessions: set[str] = set()  # whose workspace cannot be mounted with mapped ids
        record = record or RunRecord()
        self.slots = Slots(self._deadlines, record, self._check_empty)
        self.fleet = Fleet(
            self,
            reactor,
            self._deadlines,
            record,
            size=zygotes,
            allow_missing=allow_missing,
            preload=_preload(tools),
        )
        self._watching: Deadline | None = None
        self._forks_ahead = False  # whether cells here can keep a process that waits apart from one that works
        self._forking_ahead: Deadline | None = None
        self._lasting: set[Cell] = set()  # whose calls are to be looked at then
        self._on_empty: Callable[[], None] | None = None
        self._reserve = Reserve()
        self._prewarms = standby  # whether any is made ahead
        self._prewarming: Deadline | None = None
        self._prewarms_next = False  # when the cell that starts has started, or is gone
        self._prewarms_after = PREWARM_AFTER_S

    def status(self) -> SupervisorStatus:
        """What the kernel offers here, as probed at the start, and how the zygotes are now."""
        return self.fleet.status()

    def __repr__(self) -> str:
        states = Counter(_SHOWN_AS[cell.state] for cell in self.cells.values())
        counts = " · ".join(f"{states[name]} {name}" for name in dict.fromkeys(_SHOWN_AS.values()) if states[name])
        return f"<Pool [cells: {counts or 'none'} · calls: {len(self.waiting)} queued]>"

    # -- start and end ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start one zygote. Raises SandboxUnavailableError where the sandbox is not whole and not allowed to be."""
        require_proc()
        tree = CgroupTree.detect()  # before the first child: it may be this process's cgroup that has to be divided
        with ExitStack() as undo:
            undo.callback(self._reactor.close)
            undo.callback(self.fleet.close)
            try:
                self.report = await self.fleet.start()
                self._forks_ahead = self.report.on >= AHEAD_NEEDS
                self._deadlines.at(time.monotonic() + PRUNE_S, self._prune)  # which takes a descriptor
            except SandboxError as error:
                raise SandboxUnavailableError(str(error), error.mechanism, error.cure) from None
            if tree is not None and "cgroup" in self.report.on:
                self.slots.tree = tree
                tree.sweep_stale()  # of supervisors that were killed
            undo.pop_all()
        self._open = True

    async def close(self) -> None:
        """End every call and every cell, wait until they are gone, and leave nothing behind."""
        self._open = False
        self.fleet.stand_down()
        for run in list(self.waiting):
            self._end_waiting(run, Outcome(ending="cancelled"))
        for cell in list(self.cells.values()):
            cell.calls.end(Outcome(ending="cancelled"))
            cell.retire()
        for cell in list(self._reserve.cells.values()):
            cell.retire()
        try:
            if self.cells or self.slots.vacating or self._reserve.cells:
                empty = self._reactor.waiter()
                self._on_empty = lambda: empty.set(None)
                await empty
        finally:  # also where whoever waits is cancelled
            self.abandon()

    def abandon(self) -> None:
        """End every process, now, without a turn of the event loop: what lives ends with its zygote."""
        self._open = False
        self.fleet.close()
        self._reactor.close()
        self.slots.remove([*self.cells.values(), *self._reserve.cells.values()])

    # -- calls --------------------------------------------------------------------------------------------------------

    def submit(self, run: Run) -> Waiter[Outcome]:
        """Run it now where a cell is free, else let it wait. What is returned gets the outcome, whatever happens."""
        idle = self._idle.get(run.spec.key)
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
        waiter = run.waiter = self._reactor.waiter()  # its cell is at work meanwhile
        if run.outcome is not None:
            waiter.set(run.outcome)
        return waiter

    def _queue(self, run: Run) -> None:
        if not self._open:
            run.end(Outcome(ending="unavailable", message="The supervisor is closing."), _now())
            return
        if not self.fleet and run.deadline_at <= self.fleet.resumes_at:
            run.end(self.fleet.absence(), _now())
            return
        if len(self.waiting) >= self._max_waiting:
            run.end(self._too_many_wait(run), _now())
            return
        self.waiting[run] = None
        run.deadline = self._deadlines.at(run.deadline_at, lambda: self._expire(run))
        self._pump()

    def cancel(self, run: Run) -> None:
        """The caller has gone: a waiting call is forgotten, a running one is ended behind its back."""
        if run in self.waiting:
            self._end_waiting(run, Outcome(ending="cancelled"))
        elif run.cell is not None:
            run.cell.calls.tell_end(run, "the caller has gone", run.limits.grace_s)

    def tell_end(self, session_id: str, reason: str, least_s: float, most_s: float) -> list[Run]:
        """End the session's calls that wait, and tell those that run to end. Returns these: each is over at the end of
        its grace, of `least_s` to `most_s` seconds."""
        self._end_all_waiting(session_id)
        running = [cell.run for cell in self.cells.values() if cell.spec.key.session_id == session_id]
        told = [run for run in running if run is not None and run.cell is not None]
        for run in told:
            assert run.cell is not None
            run.cell.calls.tell_end(run, reason, min(most_s, max(least_s, run.limits.grace_s)))
        return told

    def end_session(self, session_id: str) -> None:
        """End the session's calls and cells."""
        self._end_all_waiting(session_id)
        for cell in [cell for cell in self.cells.values() if cell.spec.key.session_id == session_id]:
            cell.calls.end(Outcome(ending="cancelled"))
            self._retire(cell)
        self._userns_sessions.discard(session_id)
        self._states.pop(session_id, None)

    def _assign(self, run: Run, cell: Cell, now: float) -> None:
        try:
            cell.assign(run, now)
        except Unpackable as error:
            if run.deadline is not None:
                self._deadlines.cancel(run.deadline)
            run.end(Outcome(ending="error", reason="arguments", message=str(error)), _now())
            self._idle.setdefault(cell.spec.key, []).append(cell)
            self._reactor.soon(self._pump)  # the cell is free for another
            return
        except OSError as error:  # nothing has been sent: no descriptor is left, or its cgroup is gone
            _log.warning("%r could not be given a call: %s", cell, error)
            cell.kill()
            if run.deadline is not None:
                self._deadlines.cancel(run.deadline)
            run.end(unavailable(_not_made(error)), _now())
            return
        if run.exclusive:
            self._exclusive.add(run.exclusive)
        if self._watching is None:
            self.watch()
        if self._forks_ahead:
            self._lasting.add(cell)
            if self._forking_ahead is None and cell.ahead_due < math.inf:
                self._forking_ahead = self._deadlines.at(run.started_at + AHEAD_AFTER_S, self._fork_ahead)

    def on_new_process(self, cell: Cell, run: Run) -> None:
        """A process that is kept over calls has its first one: `run` is told of the state that another one had."""
        key = run.spec.key
        of_session = self._states.setdefault(key.session_id, {})
        if key.kept_tool in of_session:
            run.state_lost = of_session[key.kept_tool] or "has ended"
        of_session[key.kept_tool] = ""

    def _assign_waiting(self, run: Run, cell: Cell) -> bool:
        """Give a cell that is free a call that has waited. Not one whose workspace is another directory by now: that
        comes again, by another way, and the cell may be another's. Says whether the cell has it."""
        if run.has_moved():
            self._end_waiting(run, Outcome(ending="moved"))
            self._reactor.soon(self._pump)
            return False
        idle = self._idle.get(cell.spec.key)
        if idle is not None and cell in idle:
            idle.remove(cell)
        del self.waiting[run]
        self._assign(run, cell, _now())
        if not self.waiting:
            self._prewarm_soon()
        return True

    def _end_all_waiting(self, session_id: str) -> None:
        for run in [run for run in self.waiting if run.spec.key.session_id == session_id]:
            self._end_waiting(run, Outcome(ending="cancelled"))

    def _end_waiting(self, run: Run, outcome: Outcome) -> None:
        del self.waiting[run]
        if run.deadline is not None:
            self._deadlines.cancel(run.deadline)
        run.end(outcome, _now())
        if not self.waiting:
            self._prewarm_soon()

    def _expire(self, run: Run) -> None:
        if run in self.waiting:
            waited = _now() - run.queued_at
            if any(cell.spec.key == run.spec.key and cell.starting for cell in self.cells.values()):
                self._end_waiting(run, Outcome(ending="timeout"))  # there was room; its own cell was too slow to start
                return
            if not self.fleet:
                self._end_waiting(run, self.fleet.absence())
                return
            why, again_s = self._obstacle(run)
            message = (
                f"The call waited {waited:.3g} s for a process, its whole time, and was not started: {why}. "
                f"Try again in {again_s:.2g} s, or give the call a longer timeout."
            )
            self._end_waiting(run, Outcome(ending="overloaded", message=message, retry_after_s=again_s))

    def _too_many_wait(self, run: Run) -> Outcome:
        why, again_s = self._obstacle(run)
        again_s = min(LATE_S, again_s * (1 + len(self.waiting) // self._room.cells))
        message = (
            f"{len(self.waiting):,} calls are waiting already, the most that max_waiting allows: {why}. "
            f"Try again in {again_s:.2g} s."
        )
        return Outcome(ending="overloaded", message=message, retry_after_s=again_s)

    def _obstacle(self, run: Run) -> tuple[str, float]:
        why, again_s = obstacle(run, _snapshots(self.cells.values()), self._room, self._exclusive, _now())
        return why, round(again_s, 2)

    def _pump(self) -> None:
        """Carry out what the plan says about the calls that wait."""
        if not self.waiting or not self._open or not self.fleet:
            return
        for action in plan(self.waiting, _snapshots(self.cells.values()), self._room, self._exclusive):
            if not isinstance(action, Assign) and not self.fleet.has_capacity:
                continue  # until one of those cells is there
            if isinstance(action, Assign):
                self._assign_waiting(action.run, self.cells[action.cell])
            elif isinstance(action, Spawn):
                try:
                    self._spawn(action.spec)
                except _CANNOT_SPAWN as error:
                    exhausted = getattr(error, "errno", None) in EXHAUSTED
                    if not (exhausted and self._make_way()):
                        self._on_start_failed(action.spec, _not_made(error))
            else:
                self._evict(self.cells[action.cell])

    # -- cells --------------------------------------------------------------------------------------------------------

    def _spawn(self, spec: CellSpec) -> None:
        for stale in [cell for cell in self.cells.values() if cell.free and spec.key.replaces(cell.spec.key)]:
            self._retire(stale)
        self._prewarms_after = PREWARM_SOON_S
        if not self._finish(spec):
            if len(self.cells) + len(self._reserve.cells) >= self._room.cells:
                self._reserve.end_one()
            cell, request = self._new_cell(spec)
            self.cells[cell.id] = cell
            self._ask_for(cell, request)
        if self._prewarms:
            self._reserve.want(spec)

    def _new_cell(self, spec: CellSpec) -> tuple[Cell, MakeCell]:
        """A cell, and what a zygote is to be told of it."""
        self._last_id += 1
        id = self._last_id
        slot, cgroup = self.slots.take(spec.profile.limits)
        try:
            request = self._request_for(id, spec, slot, cgroup)
            cell = Cell(id, slot, spec, self._reactor, self._deadlines, self, cgroup=cgroup, standby=self._standby)
            cell.in_userns = spec.key.session_id in self._userns_sessions
        except BaseException:
            self.slots.give_back(slot, cgroup)
            raise
        return cell, request

    def _ask_for(self, cell: Cell, request: MakeCell) -> None:
        try:
            self.fleet.make(cell, request)
        except (OSError, Unpackable) as error:
            failure = _not_made(error)
            self._reactor.soon(lambda: cell.on_not_spawned(failure))  # not now: the pump is at work

    def _identity_of(self, session_id: str, slot: int) -> Identity:
        in_userns = session_id in self._userns_sessions
        return Identity.for_slot(slot, "userns-root" if in_userns else self.report.identity)

    def _request_for(self, id: int, spec: CellSpec, slot: int, cgroup: Cgroup | None) -> MakeCell:
        preload = _preload(spec.tools)
        return MakeCell(
            id,
            profile=cast("dict[str, Field]", spec.profile.to_wire(short=True)),
            identity=cast("list[Field]", self._identity_of(spec.key.session_id, slot).to_wire()),
            cgroups=[*cgroup.paths] if cgroup else [],
            preload=None if preload is None else [*preload],
            protected=[cast("Field", each.to_wire()) for each in spec.protected],
            unbound=spec.unbound,
            owners=[],
        )

    def _finish(self, spec: CellSpec) -> bool:
        """Give a prewarmed cell of the reserve to this session, where one fits."""
        taken = None if spec.key.session_id in self._userns_sessions else self._reserve.take(spec)
        if taken is None:
            return False
        cell, lacking = taken
        self.cells[cell.id] = cell
        if cell.idle:
            self._prewarms_after = PREWARM_AFTER_S
        try:
            cell.claim(spec, lacking)
        except Unpackable:
            cell.kill()
            return False  # a cell that is made for the session cannot be told of it either, and the call hears so
        return True

    def on_lacking(self, cell: Cell) -> None:
        """A cell that was made ahead waits for its session's paths."""
        assert cell.binding is not None
        try:
            self.fleet.bind(cell, cell.binding.paths)
        except (OSError, Unpackable) as error:
            failure = _not_made(error)
            self._reactor.soon(lambda: self.on_failed(cell.id, failure))  # not now: the pump may be at work

    def _prewarm_soon(self) -> None:
        self._prewarms_next = False
        if not self._open or not self._prewarms or not self._reserve.is_short:
            return
        if self._prewarming is not None:
            self._deadlines.cancel(self._prewarming)
        self._prewarming = self._deadlines.at(_now() + self._prewarms_after, self._prewarm)

    def _prewarm(self) -> None:
        """Make one cell like those that were asked for, while there is no other to be made: where a call waits, or a
        cell starts, we hear of its end."""
        self._prewarming = None
        if not self._open or not self.fleet or not self._prewarms or self.waiting:
            return
        cells = (*self.cells.values(), *self._reserve.cells.values())
        if any(cell.starting for cell in cells):
            self._prewarms_next = True
            return
        spec = next(self._reserve.wanted(), None)
        if spec is not None and len(cells) + 1 < self._room.cells:
            self._make_prewarmed(spec)
        self._prewarm_soon()

    def _make_prewarmed(self, like: CellSpec) -> None:
        identity = self._identity_of(like.key.session_id, self.slots.last)
        if not reserve.is_possible(like, identity, self.report):
            return
        spec = reserve.unbound(like)
        try:
            surroundings = Surroundings.of(spec.profile, identity)
            planned = view.plan(like.profile, identity, (), surroundings.system)
            cell, request = self._new_cell(spec)
        except _CANNOT_SPAWN:
            return  # whoever needs a cell hears why
        self._reserve.add(cell, replace(surroundings, identity=self._identity_of("", cell.slot)))
        owners = sorted({bind.owner for bind in planned.binds if bind.owner})
        self._ask_for(cell, request._replace(owners=[list(owner) for owner in owners]))

    def on_unanswered(self, cell: Cell) -> None:
        """Its time to start is over."""
        self.fleet.on_unanswered(cell.id)

    def _make_way(self) -> bool:
        """End an idle cell where the host has nothing left for another one; whether any cell is ending, so that there
        will be something.
        """
        cells = (*self.cells.values(), *self._reserve.cells.values())
        if not any(cell.doomed for cell in cells):
            self._reserve.end_one()
            idle = cheapest_to_evict(_snapshots(self.cells.values()))
            if idle is not None and not any(cell.doomed for cell in cells):
                self._evict(self.cells[idle])
        return any(cell.doomed for cell in cells)

    def _evict(self, cell: Cell) -> None:
        """End an idle cell to make room for a call that waits."""
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

    def _cell(self, id: int) -> Cell:
        return self.cells[id] if id in self.cells else self._reserve.cells[id]

    def on_spawned(self, id: int, pid: int, pidfd: int, listener: int) -> None:
        """A zygote has made this cell's init."""
        self._cell(id).on_spawned(pid, pidfd, listener)

    def on_bound(self, id: int) -> None:
        """A session's paths are in place."""
        if id in self.cells:  # else it has died since
            self.cells[id].on_bound()

    def on_failed(self, id: int, failure: Failed) -> None:
        """A zygote could not make this cell, or not put its session's paths in place."""
        if id not in self.cells and id not in self._reserve.cells:
            return  # it has died since
        cell = self._cell(id)
        if cell.binding is None:
            cell.on_not_spawned(failure)
        else:
            # A cell that is made for its session does without what failed, or says what is the matter.
            if failure.step == binding.ENTER:
                self._prewarms = False
                for other in list(self._reserve.cells.values()):
                    other.retire()
            elif failure.mechanism == "idmapped_mounts":
                self._on_start_failed(cell.spec, failure)
            cell.orphan()

    def on_idle(self, cell: Cell) -> None:
        """A cell is free for the next call."""
        if not self._open:
            cell.kill()
            return
        if self._prewarms_next:
            self._prewarm_soon()
        if cell.spec.unbound:
            return  # for none of the calls that wait
        if self.waiting:
            oldest = next(iter(self.waiting))
            same = oldest.spec is cell.spec or oldest.spec.key == cell.spec.key
            if same and oldest.exclusive not in self._exclusive and self._assign_waiting(oldest, cell):
                return  # so would the plan decide, whatever else there is
        self._idle.setdefault(cell.spec.key, []).append(cell)
        if self.waiting:
            self._pump()

    def on_call_ended(self, run: Run) -> None:
        """A run is over; another that must not overlap with it may start."""
        if run.gone is None:
            self.release(run)

    def release(self, run: Run) -> None:
        """Let another run start that must not overlap with this one. Whoever made a watched run says when."""
        word, run.exclusive = run.exclusive, ""
        if word and run.cell is not None:
            self._exclusive.discard(word)
            if self.waiting:
                self._reactor.soon(self._pump)

    def on_dead(self, cell: Cell, failure: Failed | None) -> None:
        """A cell is gone, with all its processes and descriptors."""
        if self._reserve.remove(cell):
            failure = None  # nobody waits for it
        else:
            del self.cells[cell.id]
        self.fleet.forget(cell.id)
        self._lasting.discard(cell)
        self.slots.vacate(cell)
        idle = self._idle.get(cell.spec.key)
        if idle is not None:
            if cell in idle:
                idle.remove(cell)
            if not idle:
                del self._idle[cell.spec.key]
        if failure is not None and not (failure.step in NO_PROCESS and self._make_way()):
            self._on_start_failed(cell.spec, failure)
        if self._prewarms_next:
            self._prewarm_soon()
        if cell.spec.key.kept_tool:
            self._on_kept_gone(cell)
        self._check_empty()
        self._pump()

    def kept_writable(self) -> list[tuple[str, ...]]:
        """The paths to which the processes that are kept over calls may write, of each."""
        return [cell.spec.profile.writable for cell in self.cells.values() if cell.spec.key.kept_tool]

    def _check_empty(self) -> None:
        gone = not (self.cells or self.slots.vacating or self._reserve.cells)
        if not self._open and gone and self._on_empty is not None:
            self._on_empty()

    def _on_start_failed(self, spec: CellSpec, failure: Failed) -> None:
        """A cell could not be made: its calls say so, unless there is another honest way to make it."""
        session_id = spec.key.session_id
        if failure.mechanism == "idmapped_mounts":
            self._userns_sessions.add(session_id)  # the next cell of this session is made in a user namespace
            return
        for run in [run for run in self.waiting if run.spec.key == spec.key]:
            if failure.step == "import":
                outcome = Outcome(ending="error", reason="import", message=failure.message)
            else:
                outcome = unavailable(failure)
            self._end_waiting(run, outcome)

    def on_orphaned(self, id: int) -> None:
        """The zygote of this cell is gone."""
        self._cell(id).orphan()

    def on_capacity(self) -> None:
        """More cells can be asked for."""
        self._reactor.soon(self._pump)  # not now: cells of a zygote that has died may be here still

    def on_pause(self) -> None:
        """There is no zygote: calls that have no time to wait for one are told so."""
        for run in [run for run in self.waiting if run.deadline_at <= self.fleet.resumes_at]:
            self._end_waiting(run, self.fleet.absence())

    # -- time ---------------------------------------------------------------------------------------------------------

    def _ring(self) -> None:
        try:
            for action in self._deadlines.pop_due(_now()):
                try:
                    action()
                except Exception:  # a bug of ours, which is not to cost the others
                    _log.exception("what was due in the pool failed")
        finally:
            self._deadlines.ring_again()

    def watch(self) -> None:
        """Look at the cells that are at work, from now on until there is none."""
        if self._watching is None:
            self._watching = self._deadlines.at(_now() + WATCH_S, self._watch)

    def _watch(self) -> None:
        self._watching = None
        now = _now()
        for cell in [cell for cell in self.cells.values() if cell.at_work]:
            self.watch()
            try:
                cell.inspect(now)
            except Exception:  # such as no descriptor being left: the deadlines of the others are in here too
                _log.exception("%r could not be looked at", cell)

    def _fork_ahead(self) -> None:
        """Have the next call process forked in the cells whose calls last."""
        now = _now()
        soonest = math.inf
        for cell in list(self._lasting):
            due = cell.ahead_due
            if due <= now:
                cell.fork_ahead()
            elif due < soonest:
                soonest = due
                continue
            self._lasting.discard(cell)
        at = max(soonest, now + AHEAD_APART_S)  # those of many cells together
        self._forking_ahead = self._deadlines.at(at, self._fork_ahead) if soonest < math.inf else None

    def _prune(self) -> None:
        now = _now()
        cells = (*self.cells.values(), *self._reserve.cells.values())
        for retire in outlived(_snapshots(cells), now, self._idle_s):
            self._retire(self._cell(retire.cell))
        self._deadlines.at(now + PRUNE_S, self._prune)


def _snapshots(cells: Iterable[Cell]) -> list[Snapshot]:
    return [cell.snapshot() for cell in cells]


_CANNOT_SPAWN = (OSError, SandboxError, Unpackable)
"""No descriptors are left, the cgroups are gone, or the profile has what cannot be sent."""


def _preload(tools: Iterable[Mapping[str, object]]) -> list[str] | None:
    """What a zygote loads before it makes cells with these tools: None, all that it knows, where one does not say."""
    names = [tool.get("preload") for tool in tools]
    if None in names:
        return None
    return sorted({name for each in cast("list[Sequence[str]]", names) for name in each})


def _not_made(error: Exception) -> Failed:
    """What a call is told of an error of `_CANNOT_SPAWN`."""
    if isinstance(error, Unpackable):
        cure = "Take what is not UTF-8, or is large, out of the profile's environment and paths; make tools smaller."
        return Failed("send", f"No cell could be made: {error}. {cure}", "", cure)
    number = (error.errno if isinstance(error, (OSError, SandboxError)) else 0) or 0
    cure = CURES.get(number) or getattr(error, "cure", "") or "Try again; see the supervisor's log."
    what = os.strerror(number) if isinstance(error, OSError) and number else str(error).rstrip(".")
    return Failed("spawn", f"No cell could be made: {what}. {cure}", getattr(error, "mechanism", ""), cure)
