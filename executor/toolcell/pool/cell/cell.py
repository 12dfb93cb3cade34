"""A cell: it passes events to the table of `state`, and carries out the actions.

Every change happens in a callback of the event loop, and the pool is told.
"""

import logging
import math
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import NamedTuple, Protocol, cast

from toolcell.pool.deadlines import Deadline, Deadlines, Patience
from toolcell.pool.reactor import QUICK_S, Reactor, release
from toolcell.pool.run import CellKey, CellSpec, Run, context_of
from toolcell.wire import forks
from toolcell.wire.budget import Budgets
from toolcell.wire.frames import Buffer, Field, Violation, WireLimits
from toolcell.wire.messages import BindSession, Exited, Failed, Hello, Load, Ready
from toolcell.wire.protocol import CONTROL_LIMITS, ControlLink, SupervisorLink, recycle
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.mechanisms.cgroups import Cgroup
from toolcell_sandbox.network import NoNetwork
from toolcell_sandbox.view import Bind
from toolcell_tools.preview import printable

from .calls import WATCH_S, Calls, owned
from .channels import Channels, ProxyListener, read_available
from .meter import Meter
from .state import IDLE, KILLED, UNKNOWN, Action, Event, State, Stateful

_log = logging.getLogger("toolcell.pool")
APART_S = 0.001  # between two looks at the cells that are due
AHEAD_AFTER_S = 0.003  # after a call's start: most calls are over by then; a longer one lasts longer than the fork
RECYCLE_S = 5.0  # a sweep takes 1 to 2 ms; one that takes this long never ends
JUST_NOW_S = 0.0002  # a cell that became idle within this time is not polled again before its next call
TEARDOWN_S = 2.0  # for the teardown of a lifetime="session" tool, such as closing a connection
KILL_AGAIN_S = 1.0  # a killed init is dead within some ms
READ_BYTES = 64 * 1024  # of the control socket at once


class Binding(NamedTuple):
    """What a prewarmed cell still lacks for the session that has claimed it."""

    paths: Sequence[Bind]
    introduction: Sequence[Buffer]  # sent to the cell when the paths are in place


class Snapshot(NamedTuple):
    """A cell's present state. The last three fields are those of its running call."""

    id: int
    key: CellKey
    state: State = State.READY
    idle_since: float = 0.0
    exclusive: str = ""
    started_at: float = 0.0
    deadline_at: float = 0.0


class CellOwner(Protocol):
    """The pool, as its cells see it."""

    budgets: Budgets

    def watch(self) -> None:
        """Call `inspect` of the cells periodically from now on."""
        ...

    def on_idle(self, cell: "Cell") -> None:
        """The cell is free for a call, or prewarmed."""
        ...

    def on_lacking(self, cell: "Cell") -> None:
        """The cell waits for the paths of the session that has claimed it: `cell.binding`."""
        ...

    def on_new_process(self, cell: "Cell", run: Run) -> None:
        """A kept process has its first call."""
        ...

    def on_call_ended(self, run: Run) -> None:
        """A call is over. Others that must not overlap with it may start."""
        ...

    def hear(self, cell: "Cell") -> None:
        """Read what the cell's zygote has sent."""
        ...

    def on_dead(self, cell: "Cell", failure: Failed | None) -> None:
        """The cell is gone. `failure` is the reason why it could not start or go on. It is None if waiting calls can
        have another cell."""
        ...


class Cell(Stateful):
    """One cell. The event loop calls the methods `on_…`, the pool calls the others. `calls` has the running call.

    The constructor raises Unpackable if the tools or options cannot be sent, and OSError if no descriptor is left.
    """

    def __init__(
        self,
        id: int,
        slot: int,
        spec: CellSpec,
        reactor: Reactor,
        deadlines: Deadlines,
        pool: CellOwner,
        *,
        cgroup: Cgroup | None,
        standby: bool,
    ) -> None:
        super().__init__()
        kept, limits = bool(spec.key.kept_tool), spec.profile.limits
        self.id = id
        self.slot = slot
        self.spec = spec
        self.cgroup = cgroup
        self.pid = 0  # the init's pid on the host
        self.in_userns = False  # instead of id-mapped mounts, if the workspace's file system lacks them
        self.idle_since = 0.0
        self.is_quick = False  # whether it is kept, and has answered its last call in less than `QUICK_S`
        self.lowered = False  # whether its cgroup may have less than the CPU weight of one process
        self.binding: Binding | None = None  # from a session's claim until its paths are in place
        self._pidfd = -1
        self._reactor = reactor
        self._deadlines = deadlines
        self._pool = pool
        self._kept = kept
        self._standby = standby or kept
        self._served = 0  # the number of the last call process that had a call
        self._watchdog: Patience | None = None
        self._looks_left = 0  # at a sweep that is under way, before it counts as endless; 0 if there is none
        self._early: list[Ready | Exited] = []  # the init's messages that came before the zygote's
        # The init numbers the call processes: of the present one, and of the last one that was asked for.
        self._process = self._asked = 0
        self._hello: Hello | None = None  # its report after lockdown
        self._failure: Failed | None = None  # why the cell could not start, or go on
        self._is_excused = False
        wire_limits = WireLimits.for_results(limits.result_bytes)
        pool.budgets.expect(wire_limits.frame_bytes)
        self._control_link = ControlLink(CONTROL_LIMITS)
        load = self._control_link.send(load_of(spec, kept=kept, standby=self._standby))  # before anything is open
        self._link = SupervisorLink(wire_limits, kept=kept)
        network = not isinstance(spec.profile.reach, NoNetwork)
        self._meter = Meter(cgroup, spec.key.limits, kept=kept, standby=self._standby, network=network)
        with forks.no_fork:
            self.channels = channels = Channels(reactor, self)
        self.calls = calls = Calls(
            self,
            channels,
            self._link,
            self._meter,
            pool.budgets,
            deadlines,
            reactor,
            pool.on_call_ended,
            kept=kept,
        )
        self._do = self._actions()
        try:
            channels.listen(calls.on_stdout, calls.on_stderr, calls.on_frames, self._on_control)
            channels.to_init.write(load)
        except OSError:
            channels.close()
            raise
        self._arm(limits.start_s, self._on_start_deadline)

    def _actions(self) -> Mapping[Action, Callable[[], object]]:
        calls = self.calls
        return {
            Action.MEET_INIT: self._meet_init,
            Action.BLAME: self._blame,
            Action.EXCUSE: self._excuse,
            Action.ASK_FOR_PATHS: partial(self._pool.on_lacking, self),
            Action.INTRODUCE: self._introduce,
            Action.OFFER: self._offer,
            Action.MEASURE: calls.measure,
            Action.KILL_PROCESS: self._kill_process,
            Action.SWEEP: self._sweep,
            Action.SWEEP_AND_COUNT: partial(self._sweep, count=True),
            Action.JUDGE_LATENESS: calls.judge_lateness,
            Action.JUDGE_DEATH: lambda: calls.judge_death(self._failure),
            Action.CONCLUDE: calls.conclude,
            Action.KEEP: calls.keep,
            Action.RELEASE: calls.release,
            Action.TEAR_DOWN: self._tear_down,
            Action.STOP_WATCHDOG: self._disarm,
            Action.KILL_INIT: self._kill_init,
            Action.BURY: partial(self._reactor.guarded, None, self._bury),
        }

    def __repr__(self) -> str:
        running = f" · {self.run}" if self.run else ""
        return f"<Cell {self.id} {self.state.value} · {'+'.join(sorted(self.spec.key.grants)) or 'no grants'}{running}>"

    # -- its state ----------------------------------------------------------------------------------------------------

    @property
    def failure(self) -> Failed | None:
        """Why the cell could not start or go on; None if waiting calls can have another cell."""
        return None if self._is_excused else self._failure

    @property
    def unfit(self) -> bool:
        """Whether loading the tools failed or took too long. False if the cell ended for any other reason."""
        return self._process == 0 and self.failure is not None and self.failure.step == "import"

    def fail(self, error: Exception) -> None:
        """End the cell, because one of its steps has raised this."""
        self._reactor.fault(self, error)

    def on_fault(self, error: Exception) -> None:
        """End the cell. A lost cell and an error are better than a call that never ends."""
        self.calls.lose(error)
        self.on(Event.FAILED if self.takes(Event.FAILED) else Event.KILLED)
        self.calls.conclude()  # if an action raised the exception before this step
        if self.state in KILLED and self._watchdog is None:
            self._kill_init()  # again: the exception left no timer for it

    # -- being made ---------------------------------------------------------------------------------------------------

    @owned
    def on_spawned(self, pid: int, pidfd: int, listener: int = -1) -> None:
        """The zygote has made the cell's init. `listener` is the socket of the cell's proxy, -1 if there is none."""
        self.pid, self._pidfd = pid, pidfd
        self.on(Event.SPAWNED)
        if listener >= 0:
            self._take_listener(listener)
        early, self._early = self._early, []
        for event in early:
            self.on_process(event)

    @owned
    def _take_listener(self, fd: int) -> None:
        self.calls.listener = ProxyListener(fd, self.channels, self._deadlines, kept=self._kept)

    def on_not_spawned(self, failure: Failed) -> None:
        """The zygote could not make the cell."""
        self._failure = failure
        self.on(Event.NOT_SPAWNED)

    def _meet_init(self) -> None:
        self._meter.new_cell(self.pid)
        self.channels.watch(self._pidfd, self._on_death)

    def _on_start_deadline(self) -> None:
        self._pool.hear(self)
        self.channels.look()
        if not self.starting:
            return  # it has become ready meanwhile
        late = f"The cell was not ready after {self.spec.profile.limits.start_s:g} s"
        if self._hello is not None:
            cure = "Import less at the top of the tool's module, or raise limits.start_s."
            self._failure = Failed("import", f"{late}; it was importing the tools.", "", cure)
        else:
            at = "waiting for its zygote" if self.state in UNKNOWN else "entering the sandbox"
            cure = "The machine is busy: run fewer calls at a time, or raise limits.start_s."
            self._failure = Failed("enter", f"{late}; it was {at}.", "", cure)
        self.kill()

    # -- serving a session --------------------------------------------------------------------------------------------

    def claim(self, spec: CellSpec, lacking: Sequence[Bind]) -> None:
        """Give the prewarmed cell to a session. `lacking` are the session's paths that the cell does not have yet. The
        pool's `on_lacking` is called when the cell can take them, which may be now. Raises Unpackable."""
        self.binding = Binding(lacking, self._control_link.send(introduction_to(spec, lacking)))
        self.spec = spec
        if self.state is State.UNBOUND:  # otherwise it is starting, and its start deadline is armed
            self._arm(spec.profile.limits.start_s, self._on_start_deadline)
        self.on(Event.CLAIMED)

    @owned
    def on_bound(self) -> None:
        """The session's paths are in place."""
        self.channels.look()  # the cell may have died meanwhile; the zygote does not notice
        self.on(Event.BOUND)

    def _introduce(self) -> None:
        assert self.binding is not None
        self.channels.to_init.write(self.binding.introduction)
        self.binding = None

    def snapshot(self) -> Snapshot:
        """The cell's state as the plan reads it."""
        seen = Snapshot(self.id, self.spec.key, self.state, self.idle_since)
        run = self.calls.run
        return seen if run is None else Snapshot(*seen[:4], run.exclusive, run.started_at, run.deadline_at)

    # -- calls --------------------------------------------------------------------------------------------------------

    @property
    def run(self) -> Run | None:
        """The call that is under way."""
        return self.calls.run

    @property
    def last_call_id(self) -> str:
        """The id of the last call that the cell served; "" before the first."""
        return self.calls.last.call_id if self.calls.last is not None else ""

    def check(self, now: float) -> bool:
        """Handle pending events of an idle cell that the loop has not reached. Returns whether it is still free."""
        if now - self.idle_since > JUST_NOW_S:
            self.channels.look()
        return self.state is State.READY

    def assign(self, run: Run, now: float) -> None:
        """Send the call to the waiting process. Raises Unpackable if the arguments cannot be sent."""
        context, call, meter = context_of(run, now), run.sent, self._meter
        meter.evidence.new_call()  # first: it may raise OSError, and nothing is sent yet
        if meter.reads_clock:
            meter.read_clock()
        buffers = self._link.call(call.id, call.tool, context, call.arguments, run.packed)  # may raise Unpackable
        if not self._standby:  # so the process of this call is asked for now; the call waits in the pipe
            self._process += 1
            self.channels.to_init.write((recycle(self._process, False),))
        run.cell = self
        self.calls.send(run, buffers, now)
        self.on(Event.ASSIGNED)  # after the send, to save time: the link has checked that no call is running
        if self._served != self._process:
            self._served = self._process
            if self._kept:
                self._pool.on_new_process(self, run)

    @property
    def ahead_due(self) -> float:
        """When to fork the next call process because the running call may last; math.inf for never."""
        if self._asked > self._process or not self._standby:
            return math.inf
        run = self.calls.run
        if run is None or self.calls.verdict is not None:
            return math.inf
        return run.started_at + AHEAD_AFTER_S

    @owned
    def fork_ahead(self) -> None:
        """Have the init fork the next call process, so that it is ready when the running call ends or crashes. If the
        running process is kept, the new one waits until that ends."""
        self._meter.evidence.forked_ahead()
        self._asked = self._process + 1
        self.channels.to_init.write((recycle(self._asked, False),))

    def weigh(self, calls: int) -> None:
        """Give the cell's processes together the CPU weight of one process, divided by `calls`, a power of two. Without
        a cgroup that has a weight, do nothing."""
        if self.cgroup is not None and self.cgroup.can_weigh:
            self.lowered = True  # also if the kernel refuses, such as with EMFILE: the pool's next look tries again
            with suppress(SandboxError):
                self.cgroup.weigh(calls)
                self.lowered = calls > 1

    def inspect(self, now: float) -> None:
        """Check the running call, and that a sweep ends in time. The pool calls this every `WATCH_S`."""
        if self._looks_left:
            self._looks_left -= 1  # looks are counted, because none is made while the event loop is held
            if not self._looks_left:
                self.channels.look()
                if self.sweeping:
                    self.kill()
        self.calls.inspect(now)

    @property
    def keeps_a_process(self) -> bool:
        """Whether a kept process is there, and waits for its next call."""
        return self._kept and self.state is State.READY and self._meter.process != 0

    @owned
    def inspect_rest(self) -> None:
        """End a kept process that takes too much memory while it has no call: its next call has another one."""
        if excess := self._meter.evidence.exceeded_at_rest():
            self.calls.report(f"the process exceeded its limit on {excess} after its call, and was ended")
            self.on(Event.KILLED)

    def _sweep(self, count: bool = False) -> None:
        """Have the init sweep. Nothing is written for the old call after this."""
        run = self.calls.run
        self.channels.to_call.clear()
        # If a task waits until no process of the call is left, the account is asked for: `Exited` comes before the next
        # fork, `Ready` only after it.
        waited_for = run is not None and run.gone is not None
        self.channels.to_init.write((recycle(self._process, count or waited_for),))
        self._looks_left = math.ceil(RECYCLE_S / WATCH_S)
        self._pool.watch()

    def _offer(self) -> None:
        if self.state not in IDLE:
            return  # an earlier step has ended the cell
        if self._watchdog is not None:
            self._disarm()
        self._looks_left = 0
        self.idle_since = now = time.monotonic()
        self.is_quick = self._kept and self.calls.last is not None and now - self.calls.last.started_at < QUICK_S
        self._pool.on_idle(self)

    # -- what the init says -------------------------------------------------------------------------------------------

    def _on_control(self) -> None:
        """Read the control socket: the init's reports about itself and the call process."""
        channels, socket = self.channels, self.channels.control.fileno()
        channels.to_init.flush()
        data = read_available(socket, READ_BYTES)
        if data is None:
            return
        if not data:
            channels.unwatch(socket)
            return  # the init is ending; its pidfd reports when
        for event in self._control_link.receive(data):
            if isinstance(event, (Ready, Exited)):
                self.on_process(event)
            elif isinstance(event, Hello):
                self._hello = event
            elif isinstance(event, Failed):
                self._failure = event
            elif isinstance(event, Violation):
                self.calls.on_violation(event)

    def on_process(self, event: Ready | Exited) -> None:
        """Handle the init's message that the next call may come, or that the call process has ended."""
        if self.state in UNKNOWN:
            self._early.append(event)  # the cell was faster than the zygote
        elif isinstance(event, Exited):
            self._on_exited(event)
        elif self.takes(Event.SWEPT):
            self._on_ready(event)
        else:
            self.calls.on_violation(Violation("frame out of place", "Ready within a call"))

    def _on_ready(self, ready: Ready) -> None:
        """All earlier processes are gone. A call process waits or, without a standby, can be forked."""
        meter, calls = self._meter, self.calls
        meter.forget_process()
        if self.state is State.JUDGED:
            calls.count_to_the_end()
        self.on(Event.SWEPT)
        self._process = ready.process
        calls.drain()  # data after the end of the last call is a violation
        if self.doomed:
            return
        if meter.left_behind(own=2 if ready.waiting else 1):
            self.kill()  # the processes are in its cgroup, where the pool kills them
            return
        meter.evidence.new_process()
        calls.next_call()
        if self.binding is not None:
            self.on(Event.LACKING)
        else:
            self.on(Event.PREWARMED if self.spec.unbound else Event.READY)
        if ready.waiting and not meter.process and self.state is not State.DEAD:  # a queued call may run
            meter.find_process()

    def _on_exited(self, exited: Exited) -> None:
        """The call process is gone. If it had answered, this is only its account; otherwise it decides the outcome."""
        self._meter.forget_process()
        self.calls.judge_exit(exited)
        if self.state is State.RETIRING:
            self.calls.drain()
            if exited.code != 0:
                tool, said = self.spec.key.kept_tool, printable(self.calls.stderr.take().text, keep="\n\t")
                _log.warning("the tool %s could not tear down (exit code %d):\n%s", tool, exited.code, said)
        self.on(Event.EXITED)

    # -- the end ------------------------------------------------------------------------------------------------------

    def retire(self) -> None:
        """End the cell. An idle kept process sees the end of its pipe, and has 2 s to tear down."""
        if self._kept and self.state is State.READY and self._meter.process:
            self.on(Event.RETIRED)
        elif self.state is not State.RETIRING:
            self.kill()

    def kill(self) -> None:
        """Kill the init; the kernel kills the rest. The cell is dead when its pidfd reports it."""
        self.on(Event.KILLED)

    def orphan(self) -> None:
        """End a cell whose zygote is gone: its init is dead too, or is never made. Waiting calls get another cell."""
        self.on(Event.ORPHANED)

    def _on_death(self) -> None:
        """The init has ended, and with it every process of its pid namespace."""
        try:
            self.calls.drain()
            self._on_control()
        finally:
            self.on(Event.DIED)

    def _blame(self) -> None:
        how = "ended" if self.state is State.DEAD else "was ended"
        self._failure = self._failure or Failed(
            "start", f"The cell {how} while it started. Try again.", "", "Try again."
        )

    def _excuse(self) -> None:
        self._is_excused = True

    def _tear_down(self) -> None:
        self.hurry()
        self.channels.close_calls()
        self._arm(TEARDOWN_S, self._on_teardown_deadline)

    def _on_teardown_deadline(self) -> None:
        self.channels.look()
        self.kill()

    def _kill_process(self) -> None:
        self.hurry()
        self._meter.kill_process()

    def hurry(self) -> None:
        """Give the processes their weight back: the end of a process takes CPU time too."""
        if self.lowered:
            self.weigh(1)

    def _kill_init(self) -> None:
        self._looks_left = 0
        self._arm(KILL_AGAIN_S, self._kill_again)
        self._signal_init()
        self.hurry()

    def _signal_init(self) -> None:
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass  # the init has ended and is reaped; its pidfd is readable and tells the cell
        except OSError as error:
            _log.error("the init of %r could not be killed: %s", self, error)

    def _kill_again(self) -> None:
        """Kill the init again if it lives. If it is dead, its pidfd could not be watched."""
        self._arm(KILL_AGAIN_S, self._kill_again)
        pidfd = select.poll()
        pidfd.register(self._pidfd, select.POLLIN)
        if pidfd.poll(0):
            self._on_death()
        else:
            self._signal_init()

    def _bury(self) -> None:
        with ExitStack() as last:  # both, from the last one up, whatever the others raise
            last.callback(self._pool.on_dead, self, None if self.binding is not None else self.failure)
            last.callback(self.close)

    def close(self) -> None:
        """Close what is open. The pool calls this for a cell that it gives up."""
        with ExitStack() as last:  # each of these
            if self._pidfd >= 0:
                last.callback(release, os.close, self._pidfd)
                self._pidfd = -1
            last.callback(self._meter.close)
            last.callback(self.channels.close)
            last.callback(self.calls.close)
            self._early.clear()
            self._disarm()

    def _arm(self, seconds: float, action: Callable[[], None]) -> None:
        self._disarm()
        self._watchdog = Patience(self._deadlines, seconds, partial(self._reactor.guarded, self, action))

    def _disarm(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None


class ForkingAhead:
    """Forks each cell's next call process ahead, during a call that lasts. One timer serves the cells of a pool.

    `enabled` says whether cells here can separate a waiting process from a working one.
    """

    def __init__(self, deadlines: Deadlines) -> None:
        self.enabled = False
        self._deadlines = deadlines
        self._cells: set[Cell] = set()  # cells with a new call
        self._timer: Deadline | None = None

    def add(self, cell: Cell, started_at: float) -> None:
        """Note that the cell was given a call at `started_at`."""
        if self.enabled and cell.ahead_due < math.inf:
            self._cells.add(cell)
            if self._timer is None:
                self._timer = self._deadlines.at(started_at + AHEAD_AFTER_S, self._fork)

    def discard(self, cell: Cell) -> None:
        """Forget a cell that is gone."""
        self._cells.discard(cell)

    def _fork(self) -> None:
        now = time.monotonic()
        soonest = math.inf
        for cell in list(self._cells):
            due = cell.ahead_due
            if due <= now:
                cell.fork_ahead()
            elif due < math.inf:
                soonest = min(soonest, due)
                continue
            self._cells.discard(cell)
        self._timer = self._deadlines.at(max(soonest, now + APART_S), self._fork) if soonest < math.inf else None


def load_of(spec: CellSpec, *, kept: bool, standby: bool) -> Load:
    """The tools, and how the cell works. A prewarmed cell gets its session later: `introduction_to`."""
    limits, session = spec.profile.limits, introduction_to(spec, ())
    return Load(
        tools=[cast("Field", dict(tool)) for tool in spec.tools],
        environ=dict(spec.profile.environment(os.environ)),
        scratch="/tmp",
        kept=kept,
        standby=standby,
        unbound=spec.unbound,
        cpu_s=limits.cpu_s,
        result_bytes=limits.result_bytes,
        file_bytes=limits.file_bytes,
        cwd=session.cwd,
        writable=session.writable,
        protected=session.protected,
        session=session.session,
    )


def introduction_to(spec: CellSpec, paths: Sequence[Bind]) -> BindSession:
    """The session of a prewarmed cell, and the session's paths in it."""
    writable = spec.profile.writable
    return BindSession(
        binds=[cast("Field", bind.to_wire()) for bind in paths],
        cwd=spec.cwd,
        writable=[*writable],
        protected=[*spec.profile.protected] if writable else [],
        session=dict(spec.session),
    )
