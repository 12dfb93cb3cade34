"""One cell, seen from the supervisor: its descriptors, its two protocol machines, and the call it runs.

A cell's life is a row of states; every change happens in a callback of the event loop, and the pool hears of it:

    STARTING ─ Ready ─→ READY ─ assign ─→ BUSY ─ the call ends ─→ RECYCLING ─ Ready ─→ READY …
        └──── any state ─ kill ─→ RECYCLING, doomed ─ its pidfd tells ─→ DEAD

A cell whose process is kept goes from BUSY to READY, and idle to RECYCLING when it is retired; one of the stock goes
from READY to STARTING once more, when it is to serve a session. What never had a pidfd is DEAD at once.

All of a cell's descriptors sit in one epoll of its own, so the event loop watches a single descriptor for each cell,
and a wake-up costs one more system call, however many of them are ready.
"""

import logging
import math
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from enum import Enum
from typing import Protocol, cast

from toolcell.wire.frames import Buffer, Field, Violation, WireLimits
from toolcell.wire.messages import (
    Cancel,
    Error,
    Exited,
    Failed,
    Finish,
    Heeds,
    Hello,
    Load,
    Log,
    Message,
    Output,
    Progress,
    Ready,
    Reply,
    Request,
    Result,
)
from toolcell.wire.pipes import PIPE_BYTES, narrow, widen
from toolcell.wire.protocol import CONTROL_LIMITS, ControlLink, Event, SupervisorLink, recycle
from toolcell_sandbox.mechanisms.cgroups import Cgroup
from toolcell_sandbox.view import Bind

from .budget import MOST_A_BYTE, Account, Ask, Budgets, Charge
from .capture import Capture
from .deadlines import Deadline, Deadlines
from .evidence import SHORT_CALL_S, Evidence, limit_of_exit
from .outbox import Outbox, read_available, read_into
from .reactor import Reactor
from .run import CellSpec, Outcome, Run, unavailable
from .tree import first_child, open_children

_log = logging.getLogger("toolcell.pool")
DESCRIPTORS = 8  # that one epoll holds: seven at the most; for its default of 1,023 memory is asked for each time
LEAST_READ_BYTES = 4096
MANY_FRAMES = 256  # in one read; a call that sends so many is read in small pieces from then on
READ_BYTES = 64 * 1024  # what a pipe holds; more than malloc keeps for later is more than a page fault each time
DRAIN_READS = 4096  # more than any pipe has room for packets; a process that goes on writing is not swept
KEEP_OUTPUT_BYTES = 30_000  # of each stream; as much as `shell` gives the model
CATCH_UP_READS = 4  # of what a pipe holds, which waits there when a call is ended
PROGRESS_CHARS = 1_000  # of the last progress that a call has reported
NEAR_S = 0.2  # a deadline that is further off is for `inspect`, which comes more often than this
AHEAD_AFTER_S = 0.003  # into a call: most are over by then, and those that are not have time for another one's fork
RECYCLE_S = 5.0  # a sweep takes a millisecond or two; one that takes this long never ends
JUST_NOW_S = 0.0002  # ago, an idle cell's descriptors were all looked at
ACCEPT_AGAIN_S = 0.1
STALE_CONNECTIONS = 256  # above the listening socket's backlog
TEARDOWN_S = 2.0  # for what a tool of a session's lifetime does at its end, such as saying goodbye to a server
CANCEL_GRACE_S = 0.05  # how long a tool that is to end, and has not looked at ctx.cancelled yet, may still do so
COUNTED_AHEAD_BYTES = 1024 * 1024  # a group's memory is counted by 64 pages for each processor (MEMCG_CHARGE_BATCH)
MOMENT_BYTES = 8 * 1024  # that must have room before more frames are read; some small ones
STALL_S = 5.0  # without a byte of the large frame that it has begun, while others wait for room
_PIDFD_SIGNAL_PROCESS_GROUP = 4  # linux/pidfd.h
_CPUCLOCK_SCHED = 2  # the clock id of a process is (~pid << 3) | CPUCLOCK_SCHED (linux/posix-timers.h)


class CellState(Enum):
    STARTING = "starting"
    READY = "ready"
    BUSY = "busy"
    RECYCLING = "recycling"
    DEAD = "dead"


class Keeper(Protocol):
    """The pool, as its cells see it."""

    budgets: Budgets

    def watch(self) -> None:
        """Have `inspect` called now and then, from now on."""
        ...

    def on_idle(self, cell: "Cell") -> None: ...
    def on_unfinished(self, cell: "Cell") -> None:
        """It waits for its session's paths, which it lacks."""
        ...

    def on_call_ended(self, run: Run) -> None: ...
    def on_unanswered(self, cell: "Cell") -> None:
        """Its time to start is over, and its zygote has not answered yet."""
        ...

    def on_dead(self, cell: "Cell", failure: Failed | None) -> None: ...


class Cell:
    """One cell. Methods `on_…` are called by the event loop; the others by the pool.

    Making one raises Unpackable where its tools or options cannot be sent, OSError where descriptors run out.
    """

    def __init__(
        self,
        id: int,
        slot: int,
        spec: CellSpec,
        reactor: Reactor,
        deadlines: Deadlines,
        keeper: Keeper,
        *,
        cgroup: Cgroup | None,
        standby: bool,
    ) -> None:
        self.id = id
        self.slot = slot
        self.spec = spec
        self.cgroup = cgroup
        self.state = CellState.STARTING
        self.run: Run | None = None
        self.is_new_process = bool(spec.key.kept_tool)  # whether a kept process has had no call yet
        self.entered: dict[str, object] = {}
        self.in_userns = False  # in place of id-mapped mounts, which its workspace's file system does not have
        self.idle_since = 0.0
        self.pid = 0  # of the init, as the host sees it
        self._pidfd = -1
        self._children_fd = -1  # of the list of its children
        self._reactor = reactor
        self._deadlines = deadlines
        self._keeper = keeper
        self._kept = bool(spec.key.kept_tool)
        self._finish: Sequence[Buffer] = ()  # what an unfinished cell is told when its paths are in place
        self.lacking: Sequence[Bind] = ()
        self._standby = standby or self._kept
        limits = spec.profile.limits
        wire_limits = WireLimits.for_results(limits.result_bytes)
        self._link = SupervisorLink(wire_limits, kept=self._kept)
        self._decoder = self._link.decoder
        keeper.budgets.expect(wire_limits.frame_bytes)
        self._frames = keeper.budgets.frames.account()
        self._frame: Ask | None = None  # for a large frame that has begun to come
        self._moved = 0.0  # when some of it came
        self._paused: Ask | None = None  # for room for more requests
        self._backlog: deque[Event] = deque()  # what was read before that
        self._stopped = False  # no frame is read until there is room for what was asked
        self._draining = False  # what is read is dropped, or small
        self._control_link = ControlLink(CONTROL_LIMITS)
        self._stdout = Capture(KEEP_OUTPUT_BYTES)
        self._stderr = Capture(KEEP_OUTPUT_BYTES)
        self._verdict: Outcome | None = None  # what the call ends with once its processes are gone
        self._last_run: Run | None = None
        self._leaving: Run | None = None  # has ended, and its processes may still be there
        self._process = 0  # the number of the call process that waits or works, counted by the init
        self._watchdog: Deadline | None = None
        self._swept_by = math.inf
        self._failure: Failed | None = None
        self._doomed = False
        self._retiring = False
        self._blameless = False
        self._forked_ahead = False
        self._call_pid = 0
        self._status_fd = -1
        self._cpu_before = 0.0
        self._sent = self._received = 0  # bytes, in the call that runs
        self._read_bytes = READ_BYTES  # at once, likewise
        self._at_rest = self._rss_before = 0  # of a kept process: memory of its group (0: unknown), its peak when read
        self._listener: socket.socket | None = None  # where the cell connects to its proxy, if its profile has one
        self._listening = False
        self._early: list[Ready | Exited] = []  # what the init said before `on_spawned`
        self.evidence = Evidence(cgroup, spec.key.limits, kept=self._kept)
        # A kept process's clock says no more than the counter of its tree: the kernel moves both at one time.
        self._asks_clock = not (self._kept and self.evidence.counts_cpu)
        load = self._control_link.send(self._load())  # first: it may be Unpackable, and nothing is open yet
        self._open_descriptors()
        self._to_call = Outbox(self._calls_fd, self._want_room_for_calls, pipe=True)
        self._to_init = Outbox(self._control.fileno(), self._want_room_for_control)
        self._handlers: dict[int, Callable[[], object]] = {
            self._out_fd: self._on_stdout,
            self._err_fd: self._on_stderr,
            self._frames_fd: self._on_frames,
            self._control.fileno(): self._on_control,
            self._calls_fd: self._to_call.flush,
        }
        self._to_init.write(load)
        self._arm(limits.start_s, self._on_start_deadline)

    def __repr__(self) -> str:
        running = f" · {self.run}" if self.run else ""
        return f"<Cell {self.id} {self.state.value} · {'+'.join(sorted(self.spec.key.grants)) or 'no grants'}{running}>"

    # -- being made ---------------------------------------------------------------------------------------------------

    def _open_descriptors(self) -> None:
        """Five channels. Ours do not block and do not survive an exec; theirs go to the zygote and are closed here."""
        with ExitStack() as undo:  # where descriptors run out half-way
            self._control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            undo.callback(self._control.close)
            undo.callback(control.close)
            pipes: list[tuple[int, int]] = []
            for _ in range(4):
                pipes.append(os.pipe2(os.O_CLOEXEC))
                for fd in pipes[-1]:
                    undo.callback(os.close, fd)
            self._epoll = select.epoll()
            undo.pop_all()
        (calls, self._calls_fd), (self._frames_fd, frames), (self._out_fd, out), (self._err_fd, err) = pipes
        self._theirs = [control.detach(), calls, frames, out, err]
        self._control.setblocking(False)
        for fd in (self._frames_fd, self._out_fd, self._err_fd, self._control.fileno()):
            os.set_blocking(fd, False)
            self._epoll.register(fd, select.EPOLLIN)
        os.set_blocking(self._calls_fd, False)
        self._reactor.watch(self._epoll.fileno(), self._on_ready)

    @property
    def child_fds(self) -> Sequence[int]:
        """What the cell gets, in the order that the zygote expects: control, in, out, stdout, stderr."""
        return self._theirs

    def handed_over(self) -> None:
        """The zygote has its copies: close ours, so that the cell's end is the end of the pipe."""
        for fd in self._theirs:
            os.close(fd)
        self._theirs = []

    def _load(self) -> Load:
        profile = self.spec.profile
        options = {
            "environ": dict(profile.environment(os.environ)),
            "scratch": "/tmp",
            "kept": self._kept,
            "standby": self._standby,
            "unfinished": self.spec.unfinished,
            "cpu_s": profile.limits.cpu_s,
            "result_bytes": profile.limits.result_bytes,
            "file_bytes": profile.limits.file_bytes,
            **_of_session(self.spec),
        }
        tools = [dict(tool) for tool in self.spec.tools]
        return Load(cast("list[Field]", tools), cast("dict[str, Field]", options))

    def on_spawned(self, pid: int, pidfd: int, listener: int = -1) -> None:
        """The zygote made the cell's init. `listener` is the socket of its proxy, -1 where it has none."""
        if listener >= 0:
            self._listener = socket.socket(fileno=listener)
            self._listener.setblocking(False)
        if self.state is CellState.DEAD:
            self._close_listener()
            _kill(pidfd)
            os.close(pidfd)
            return
        self.pid = pid
        self._pidfd = pidfd
        try:
            self._children_fd = open_children(pid)
        except OSError:
            pass  # it has ended already, which its pidfd says; or descriptors have run out
        self.evidence.new_cell(pid)
        self._handlers[pidfd] = self._on_death
        self._epoll.register(pidfd, select.EPOLLIN)
        if self._doomed:
            self.kill()
        early, self._early = self._early, []
        for event in early:
            self._on_process(event)

    def on_not_spawned(self, failure: Failed) -> None:
        self._failure = failure
        self._die()

    def finish(self, spec: CellSpec, lacking: Sequence[Bind]) -> None:
        """It is to serve this session, and lacks these paths of it; the keeper hears `on_unfinished` when it waits for
        them, which may be now. Raises Unpackable."""
        binds: list[Field] = [[os.fsencode(bind.path), bind.writable, bind.directory] for bind in lacking]
        self._finish = self._control_link.send(Finish(binds, _of_session(spec)))
        self.spec = spec
        self.lacking = lacking
        self._blameless = True  # if it dies before it has heard of it
        if self.free:
            self.state = CellState.STARTING
            self._arm(spec.profile.limits.start_s, self._on_start_deadline)
            self._keeper.on_unfinished(self)

    @property
    def finishing(self) -> bool:
        """Whether it is to serve a session, and lacks its paths."""
        return bool(self._finish)

    @property
    def unfit(self) -> bool:
        """Whether its tools could not be loaded, or not in time; not where it was ended, or had no room."""
        return self._process == 0 and self._failure is not None and self._failure.step == "import"

    def on_finished(self) -> None:
        """The paths are in place: tell the init, and have the call that waits."""
        self._on_ready()  # it may have died meanwhile, which makes no difference to the zygote
        if self.state is not CellState.STARTING:
            return
        self._blameless = False
        self._to_init.write(self._finish)
        self._finish = ()
        self._idle()

    # -- running a call -----------------------------------------------------------------------------------------------

    @property
    def free(self) -> bool:
        """Whether a call can be assigned now."""
        return self.state is CellState.READY

    @property
    def last_call_id(self) -> str:
        """Of the call that it served last, "" before the first."""
        return self._last_run.call_id if self._last_run is not None else ""

    @property
    def doomed(self) -> bool:
        """Whether it is ending, though its end has not been seen yet."""
        return self._doomed or self._retiring

    @property
    def leaving(self) -> bool:
        """Whether it is a kept process that tears down: it takes up room until that is done."""
        return self._retiring and not self._doomed and self.state is not CellState.DEAD

    def check(self, now: float) -> bool:
        """Take in what has happened to an idle cell that the loop has not come to; whether it is free still."""
        if now - self.idle_since > JUST_NOW_S:
            self._on_ready()
        return self.state is CellState.READY and not self._doomed

    def assign(self, run: Run, now: float) -> None:
        """Send the call to the waiting process. Raises Unpackable where the arguments cannot be sent."""
        context: dict[str, Field] = {"remaining_s": run.deadline_at - now}
        call, session = run.call, run.call.session
        if session is not None:
            if session.config:
                context["config"] = dict(session.config)
            if session.values:
                context["values"] = session.values
        if call.attempt > 1:
            context["attempt"] = call.attempt
        if run.preview:
            context["preview"] = True
        self.evidence.new_call()  # first: it may be an OSError, and nothing is sent yet
        buffers = self._link.call(call.id, call.tool, context, call.arguments, call.packed)  # may be Unpackable
        if not self._standby:
            self._process += 1
            self._say(self._process)  # nothing waits: fork now; the call is in the pipe before it is read
        if self._kept and self._asks_clock:
            self._cpu_before = self._cpu_clock()
        if self._listener is not None:
            self._listen()
        self._to_call.write(buffers)  # as soon as all is counted from here: what follows is done while the cell works
        self.state = CellState.BUSY
        self.run = run
        run.cell = self
        run.started_at = now
        self._verdict = None
        self._sent = sum(map(len, buffers))
        self._received = 0
        self._read_bytes = READ_BYTES
        if run.deadline is not None and run.deadline.action is not None:  # for which it has waited
            run.deadline.action = self._on_deadline
        elif run.deadline_at - now < NEAR_S:
            run.deadline = self._deadlines.at(run.deadline_at, self._on_deadline)
        else:
            run.deadline = None

    @property
    def ahead_due(self) -> float:
        """When the next call process is to be forked, as the call that runs may last; math.inf where it is not."""
        run = self.run
        if run is None or self.state is not CellState.BUSY or self._forked_ahead or not self._standby:
            return math.inf
        return run.started_at + AHEAD_AFTER_S

    def fork_ahead(self) -> None:
        """Have the init fork the process for the next call, so that it is ready when this one ends, or crashes. Where
        the process is kept, the other one waits for its end."""
        self._forked_ahead = True
        self.evidence.forked_ahead()
        self._say(self._process + 1)

    def reply(self, run: Run, request: int, ok: bool, value: Field, held: Charge) -> None:
        """Answer a handle request of the running call; too late is no error. `held` is charged with the reply until it
        is written."""
        if self.run is run and run.outcome is None and self.state is CellState.BUSY:
            buffers = self._link.send(Reply(self._link.seq, request, ok, value))
            size = sum(map(len, buffers))
            self._sent += size
            held.change(size)
            self._to_call.write(buffers, lambda: self._on_replied(run, request, held))
        else:
            held.release()

    def _on_replied(self, run: Run, request: int, held: Charge) -> None:
        """A reply is written, or nobody waits for it any more."""
        if self.run is run:
            self._link.written(request)
        held.release()

    def tell_end(self, run: Run, reason: str, grace_s: float) -> None:
        """Tell the tool that its call is to end, and end it: after the grace where the tool looks at `ctx.cancelled`, a
        moment later where it does not. The deadline of the call holds all the same."""
        if self.run is not run or self.state is not CellState.BUSY:
            return
        now = time.monotonic()
        if run.ends_at == math.inf:
            self._to_call.write(self._link.send(Cancel(self._link.seq, reason)))
        run.ends_at = min(run.ends_at, now + grace_s)
        self._end_at(run, run.ends_at if run.heeds else min(run.ends_at, now + CANCEL_GRACE_S))

    def _end_at(self, run: Run, when: float) -> None:
        """End the running call as cancelled then, or at its deadline if that comes first."""
        if run.deadline is not None:
            self._deadlines.cancel(run.deadline)
        if when < run.deadline_at:
            run.deadline = self._deadlines.at(when, lambda: self.end(Outcome(ending="cancelled")))
        else:
            run.deadline = self._deadlines.at(run.deadline_at, self._on_deadline)

    def _on_heeds(self, run: Run) -> None:
        run.heeds = True
        if run.ends_at < math.inf:
            self._end_at(run, run.ends_at)

    def condemn(self, run: Run, what: str) -> None:
        """What the call `run` answered turned out to be a lie: put it on record, and never use this cell again."""
        run.on_incident(f"protocol violation: {what}")
        if self._last_run is run:
            self.kill()

    def end(self, outcome: Outcome) -> None:
        """End the running call with this outcome, now; its processes are swept behind it."""
        self._catch_up()
        if self.run is None:
            return
        self._measure()
        self._recycle()  # first: the init is at work while we conclude
        self._conclude(outcome)

    def end_after_sweep(self, verdict: Outcome) -> None:
        """End the running call with this outcome once its processes are gone, so that its counts are exact."""
        if self.run is None or self._verdict is not None or self.state is not CellState.BUSY:
            return
        self._verdict = verdict
        self._measure()
        if self.run.deadline is not None:
            self._deadlines.cancel(self.run.deadline)
        self._recycle(account=True)  # a process that the kernel is about to end has no memory that could be looked at

    def _measure(self) -> None:
        """Fill in what the call used by the kernel's count, as long as its processes are there to be asked."""
        if not self._standby:  # it was forked for this call, and is looked for only now
            self._note_process()
        self._account()

    def _account(self) -> None:
        run = self.run
        if run is None:
            return
        tree = self.evidence.account(run.started_at)
        used = run.used
        used["memory_bytes"], used["processes"] = tree.memory_bytes, tree.tasks
        used["cpu_s"] = max(tree.cpu_s, used["cpu_s"])
        if self._asks_clock:
            used["cpu_s"] = max(used["cpu_s"], self._cpu_clock() - self._cpu_before)
        if self._at_rest and 0 < tree.memory_bytes <= self._at_rest + COUNTED_AHEAD_BYTES:
            used["max_rss_bytes"] = self._rss_before  # no process of the group has taken more than it had
        elif self._status_fd >= 0:
            try:
                status = os.pread(self._status_fd, 4096, 0)
            except ProcessLookupError:
                return
            start = status.find(b"\nVmHWM:")  # the first line has the name that the process gave itself
            if start >= 0:
                used["max_rss_bytes"] = int(status[start + 7 : status.index(b"kB", start)]) * 1024
                self._rss_before = used["max_rss_bytes"]
                if self._kept:
                    self._at_rest = self.evidence.memory_now()

    def _cpu_clock(self) -> float:
        if not self._call_pid:
            return 0.0
        try:
            return time.clock_gettime((~self._call_pid << 3) | _CPUCLOCK_SCHED)
        except OSError:
            return 0.0  # reaped already; Exited has the figure

    def _conclude(self, outcome: Outcome) -> None:
        run = self.run
        if run is None:
            return
        self.run = None
        self._last_run = run
        if run.deadline is not None:
            self._deadlines.cancel(run.deadline)
            run.deadline = None
        now = time.monotonic()
        if self._kept and (outcome.ending != "result" or now - run.started_at > SHORT_CALL_S):  # else at the sweep
            self._settle()
        run.used["sent_bytes"], run.used["received_bytes"] = self._sent, self._received
        outcome.progress = run.last_progress
        if self._stdout.total:
            outcome.stdout = self._stdout.take()
        if self._stderr.total:
            outcome.stderr = self._stderr.take()
        if self._listening:
            self._stop_listening()
        try:
            ending = run.on_ended()
        except Exception:  # a journal that raises must not keep the caller waiting
            _log.exception("the connections of %r could not be ended", run)
            ending = True
        if run.gone is not None:
            self._leaving = run
        run.end(outcome, now, later=ending)
        if run.exclusive:
            self._keeper.on_call_ended(run)

    def _settle(self) -> None:
        """Begin the counts anew, or end the cell: what is not settled would be held against the next call."""
        try:
            self.evidence.settle()
        except OSError as error:
            _log.warning("the counts of %r cannot be read: %s", self, error)
            self.kill()

    def _gone(self) -> None:
        """No process of the call that ended is left."""
        if self._leaving is not None and self._leaving.gone is not None:
            self._leaving.gone.set()
        self._leaving = None

    def _recycle(self, account: bool = False) -> None:
        """Have the init sweep, with an `account` of the call's process if asked, and make the next standby. Nothing
        more is written for the old call after this."""
        if self.state is CellState.DEAD:
            return
        self.state = CellState.RECYCLING
        self._to_call.clear()
        waited_for = self.run is not None and self.run.gone is not None  # which the account says before the next fork
        self._say(self._process, account or waited_for)
        self._swept_by = time.monotonic() + RECYCLE_S
        self._keeper.watch()

    # -- the event loop calls -----------------------------------------------------------------------------------------

    def _on_ready(self) -> None:
        """Something of ours is ready: what was printed first, then frames, then control, then the end of the cell."""
        try:
            events = self._epoll.poll(0, DESCRIPTORS) if not self._epoll.closed else ()
            if len(events) == 1:
                self._handlers[events[0][0]]()
            elif events:
                ready = {fd for fd, _event in events}
                for fd, handler in list(self._handlers.items()):
                    if fd in ready and not self._epoll.closed:
                        handler()
        except Exception:  # a bug of ours: better a lost cell and an error than a call that never ends
            _log.exception("%r failed and is ended", self)
            self.kill()
            self._conclude(Outcome(ending="lost"))

    def _on_frames(self) -> bool:
        """Read once, so that a flood of frames shares the loop with other cells. Says whether there may be more."""
        rest, run = self._link.rest, self.run
        if rest is not None:
            data = read_into(self._frames_fd, rest)
        elif run is None or run.pending is None:
            data = read_available(self._frames_fd, self._read_bytes)
        else:  # a little where there is little room: what is small may be many objects
            room = max(LEAST_READ_BYTES, run.pending.room // 16)
            data = read_available(self._frames_fd, min(self._read_bytes, room))
        if not data:
            if data is not None:  # every writer is gone, and the init is one of them: its pidfd says the rest
                self._unwatch(self._frames_fd)
            return False
        self._received += len(data)
        events = self._link.receive(data)
        if self._frame is not None:
            self._moved = time.monotonic()
            if self._decoder.sizes or not self._decoder.begun:
                self._frame.end()
                self._frame = None
        self._take_in(events)
        if self._decoder.begun and self._frame is None and self._paused is None:
            self._begin_large()
        if not events and rest is None and (rest := self._link.rest) is not None and self.state is CellState.BUSY:
            widen(self._frames_fd, len(rest))  # further than the call process may; not once the init puts sizes back
        return True

    def _take_in(self, events: Sequence[Event]) -> None:
        """Act on what was read, as far as there is room for what it asks for."""
        if len(events) > MANY_FRAMES:
            self._read_bytes = LEAST_READ_BYTES
        for done, event in enumerate(events, 1):
            self._on_frame(event)
            run = self.run
            if run is not None and run.pending is not None and self._pause_for(run.pending):
                self._backlog.extend(events[done:])
                return

    def _begin_large(self) -> None:
        """Have a large frame counted from its first bytes until it is whole; what there is no room for is not read."""
        run = self.run
        if self._draining:
            return
        if run is None:
            if self._kept and self.state is CellState.READY:  # none of a handle's is late: its process waits for that
                self._on_violation(Violation("frame out of place", "a large one after the end of the call"))
            return  # else nobody waits for it, and its process ends
        if self._decoder.of_report:
            run.pending = run.pending or self._keeper.budgets.requests.account()
            self._frame = run.pending.ask(self._decoder.begun * MOST_A_BYTE, self._read_on)
        else:
            self._frame = self._frames.ask(self._decoder.begun, self._read_on)
        self._moved = time.monotonic()
        if self._frame.charge is None:
            self._stop_reading()

    def _pause_for(self, pending: Account) -> bool:
        """Read no frames until this account has room for some. Says whether that is so."""
        if not self._draining and self._paused is None and not pending.has_room(MOMENT_BYTES):
            self._paused = pending.ask(MOMENT_BYTES, self._read_on)
            self._stop_reading()
        return self._paused is not None

    def _stop_reading(self) -> None:
        if not self._stopped and self._frames_fd in self._handlers:
            self._stopped = True
            for fd in self._read_fds():
                self._epoll.unregister(fd)

    def _read_fds(self) -> Iterator[int]:
        """What the call says and prints comes from these, as far as they are open at their other end."""
        return filter(self._handlers.__contains__, (self._frames_fd, self._out_fd, self._err_fd))

    def _read_on(self) -> None:
        """There is room, or what is read is dropped."""
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.end()
        if self._backlog and not self._draining:
            self._reactor.soon(self._on_backlog)  # not now: it is a task of a call that has made room
            return
        if self._decoder.begun and self._frame is None:
            self._begin_large()
        if self._stopped and (self._draining or self._frame is None or self._frame.charge is not None):
            self._stopped = False
            self._moved = time.monotonic()
            for fd in self._read_fds():
                self._epoll.register(fd, select.EPOLLIN)

    def _on_backlog(self) -> None:
        """There is room for more of what was read."""
        try:
            while self._backlog and self._paused is None:
                self._take_in((self._backlog.popleft(),))
            if self._paused is None and self.state is not CellState.DEAD:
                self._read_on()
        except Exception:  # as in `_on_ready`
            _log.exception("%r failed and is ended", self)
            self.kill()
            self._conclude(Outcome(ending="lost"))

    def _forget_waiting(self) -> None:
        """Whatever waits in its pipes, nobody waits for it."""
        self._to_call.clear()
        for ask in (self._paused, self._frame):
            if ask is not None:
                ask.end()
        self._paused = self._frame = None
        self._backlog.clear()

    def _catch_up(self) -> None:
        """Take in what the running call has in its pipes at this moment: its outcome, or what it has printed so far."""
        self._on_ready()
        run = self.run
        for _ in range(CATCH_UP_READS):
            if run is None or self.run is not run or self._frame is not None or self._read_bytes < READ_BYTES:
                return
            self._draining = True  # whatever it asks for, there is no time to serve it
            try:
                while self._backlog:
                    self._take_in((self._backlog.popleft(),))
                more = self._on_frames()
            finally:
                self._draining = False
            if not more:
                return

    def _drain_frames(self) -> None:
        for _ in range(DRAIN_READS):
            if not self._on_frames() or self._epoll.closed:
                return
        self._on_endless_pipe()

    def _on_frame(self, event: Message | Violation) -> None:
        run = self.run
        if isinstance(event, Violation):
            self._on_violation(event)
        elif run is None:
            pass
        elif self._verdict is not None:
            if isinstance(event, Output):  # what it had printed before its end was decided
                self._on_output(run, event)
        elif isinstance(event, Result):
            self._on_terminal(Outcome("result", event.payload))
        elif isinstance(event, Error):
            outcome = Outcome(ending="error", reason=event.reason, message=event.message, payload=event.data)
            self._on_terminal(outcome)
        elif isinstance(event, Progress):
            message = event.message
            run.last_progress = event._replace(message=message[:PROGRESS_CHARS]) if message[PROGRESS_CHARS:] else event
            run.on_progress(event)
        elif isinstance(event, Log):
            run.on_log(event)
        elif isinstance(event, Output):
            self._on_output(run, event)
        elif isinstance(event, Request) and not self._draining:  # else its process is gone
            run.on_request(event)
        elif isinstance(event, Heeds):
            self._on_heeds(run)

    def _on_output(self, run: Run, output: Output) -> None:
        capture = self._stdout if output.stream == 1 else self._stderr
        run.on_output(output, capture)
        capture.relay(output.data, output.skipped)

    def _on_terminal(self, outcome: Outcome) -> None:
        self._measure()
        if self.run is not None and self.evidence.oom_killed_behind_an_answer():
            # A child was: the tool may not have noticed what its answer lacks.
            outcome.ending, outcome.resource = "limit", "memory"
        elif outcome.reason == "again" and self.evidence.forks_refused():
            outcome.ending, outcome.resource = "limit", "processes"
        if self._kept:
            if self._received > PIPE_BYTES:
                narrow(self._frames_fd)
            if self._sent > PIPE_BYTES:
                narrow(self._calls_fd)
            self._conclude(outcome)
            self._link.next_kept_call()
            if self._paused is not None:
                self._read_on()
            if self._leaving is not None:
                self._gone()
            self._idle()
        else:
            self._recycle()
            self._conclude(outcome)

    def _on_violation(self, violation: Violation) -> None:
        """The cell lied or broke its pipe. Its call ends with that, and the cell is never used again."""
        if self.run is not None:
            self.run.on_incident(f"protocol violation: {violation}")
            outcome = Outcome(ending="violation", message=str(violation))
            self._measure()
            self._conclude(outcome)
        elif self._last_run is not None:
            self._last_run.on_incident(f"protocol violation after the call's end: {violation}")
        self.kill()

    def _on_control(self) -> None:
        self._to_init.flush()
        data = read_available(self._control.fileno(), READ_BYTES)
        if data is None:
            return
        if not data:
            self._unwatch(self._control.fileno())
            return  # the init is ending; its pidfd says when it has
        for event in self._control_link.receive(data):
            if isinstance(event, Hello):
                self.entered = dict(event.info)
            elif isinstance(event, (Ready, Exited)):
                if self._pidfd >= 0:
                    self._on_process(event)
                else:  # the cell was quicker than the zygote's word that it is there
                    self._early.append(event)
            elif isinstance(event, Failed):
                self._failure = event
            elif isinstance(event, Violation):
                self._on_violation(event)

    def _on_process(self, event: Ready | Exited) -> None:
        if isinstance(event, Ready):
            if self.state in (CellState.STARTING, CellState.RECYCLING):
                self._on_ready_for_next(event)
            else:
                self._on_violation(Violation("frame out of place", "Ready within a call"))
        else:
            self._on_exited(event)

    def _on_swept(self) -> None:
        """No process of the call that was ended is left."""
        self._forget_process()
        if self._verdict is not None and self.run is not None:
            self._drain()
            self._account()
            self._conclude(self._verdict)
        self._gone()

    def _on_ready_for_next(self, ready: Ready) -> None:
        """Everything before is gone, and a call process waits, or where there is no standby, can be forked."""
        self._on_swept()
        self._process = ready.seq
        self.is_new_process = self._kept
        self._forked_ahead = False
        self._drain()  # what came after the end of the last call is a violation
        if self._doomed:
            return
        if self._left_behind(own=2 if ready.waiting else 1):
            self.kill()  # its cgroup has them, and the pool kills what is in that
            return
        for capture in (self._stdout, self._stderr):
            if capture.total:
                capture.clear()
        self.evidence.new_process()
        self._link.next_call()
        if self._frame is not None or self._paused is not None:
            self._forget_waiting()  # of what has ended, nothing more is taken in
        self._idle()
        if ready.waiting and self.state is not CellState.DEAD:  # a call that has waited works by now
            self._note_process()

    def _left_behind(self, own: int) -> bool:
        """Whether more processes than the cell's `own` are there after a sweep, by the count of its cgroup.

        The sweep ends all of a pid namespace; a cell that was allowed to have none cannot see a daemon of its call.
        """
        return self.cgroup is not None and self.cgroup.tasks() > own and len(self.cgroup.processes()) > own

    def _note_process(self) -> None:
        """Find the call process's pid on the host, and open its status while it surely lives."""
        self._forget_process()
        self._at_rest = 0
        if self._children_fd < 0:
            return
        try:
            self._call_pid = first_child(self._children_fd)
            if self._call_pid:
                self._status_fd = os.open(f"/proc/{self._call_pid}/status", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # it is gone already, which Exited will say; or descriptors have run out, and Exited has it too
            self._call_pid = 0

    def _kill_process(self) -> None:
        """Kill the call process and its group, without the time that the init takes to wake up. The rest is the init's,
        and so is all of it where the process leads no group yet, or Linux is older than 6.9."""
        if self._status_fd < 0:
            return
        try:
            pidfd = os.pidfd_open(self._call_pid)
        except OSError:
            return
        try:
            os.pread(self._status_fd, 1, 0)  # it is not reaped, so that the number was its own
            signal.pidfd_send_signal(pidfd, signal.SIGKILL, None, _PIDFD_SIGNAL_PROCESS_GROUP)
        except OSError:
            pass
        finally:
            os.close(pidfd)

    def _forget_process(self) -> None:
        self._call_pid = 0
        if self._status_fd >= 0:
            os.close(self._status_fd)
            self._status_fd = -1

    def _idle(self) -> None:
        if self._finish:
            self._keeper.on_unfinished(self)
            return
        if self._watchdog is not None:
            self._disarm()
        self._swept_by = math.inf
        self.state = CellState.READY
        self.idle_since = time.monotonic()
        self._keeper.on_idle(self)

    def _on_exited(self, exited: Exited) -> None:
        """The call process is gone. If it answered, this is only the account; if not, this is the outcome."""
        self._forget_process()
        if self._retiring:
            self._drain()
            if exited.code != 0:
                tool, said = self.spec.key.kept_tool, self._stderr.take().text
                _log.warning("the tool %s could not tear down (exit code %d):\n%s", tool, exited.code, said)
            self.kill()
            return
        if self.run is None:
            self._gone()
            if self.state is CellState.READY:  # a standby that died while it waited
                self._recycle()
            return
        self._drain()
        if self.run is None:  # pyright: ignore[reportUnnecessaryComparison] - draining may have ended it
            self._gone()
            return
        swept = self._verdict is not None
        outcome = self._verdict or self._outcome_of_exit(exited)
        self._account()  # what its tree was counted for; the process itself is gone
        used = self.run.used
        if not self._kept or (self._asks_clock and used["cpu_s"] == 0.0):  # a kept one's account is of its whole life
            used["cpu_s"] = max(exited.cpu_s - self._cpu_before, used["cpu_s"])
        used["max_rss_bytes"] = max(exited.max_rss_bytes, used["max_rss_bytes"])
        if not swept:
            self._recycle()
        self._conclude(outcome)
        self._gone()

    def _outcome_of_exit(self, exited: Exited) -> Outcome:
        assert self.run is not None
        if self._link.partial and exited.code >= 0:  # else it was killed while it wrote
            self.run.on_incident("protocol violation: half a frame")
            return Outcome(ending="violation", message="half a frame: the call process ended within one")
        # What an exited process used is of its whole life, and of the children that it waited for.
        cpu_s = self.evidence.account(math.inf).cpu_s if self._kept else exited.cpu_s
        resource = limit_of_exit(exited.code, cpu_s, self.run.limits) or self._memory_or_processes()
        if resource:
            return Outcome(ending="limit", resource=resource, code=exited.code)
        return Outcome(ending="exited", code=exited.code)

    def _outcome_of_death(self) -> Outcome:
        """The init is gone too. If the kernel killed for memory, that is why."""
        if self.evidence.oom_killed():
            return Outcome(ending="limit", resource="memory")
        if self._failure is not None and self._last_run is None:  # the last step of its making, in its first call
            return unavailable(self._failure)
        return Outcome(ending="lost", message="The cell ended under the call.")

    def _memory_or_processes(self) -> str:
        if self.evidence.oom_killed():
            return "memory"
        return "processes" if self.evidence.forks_refused() else ""

    @property
    def at_work(self) -> bool:
        """Whether it runs a call, or sweeps up after one."""
        return self.run is not None or self._swept_by != math.inf

    def inspect(self, now: float) -> None:
        """Look whether the running call is near its deadline, or has exceeded a limit of its whole tree, and whether a
        sweep ends; the pool asks now and then.
        """
        if now > self._swept_by:
            self.kill()
        run = self.run
        if run is None or self._verdict is not None:
            return
        if run.deadline is None and run.deadline_at - now < NEAR_S:
            run.deadline = self._deadlines.at(run.deadline_at, self._on_deadline)
        if self._frame is not None and self._stalls(now):
            self._on_violation(
                Violation("stalled frame", f"no byte arrived for {STALL_S:g} s while other calls waited for memory")
            )
            return
        if now - run.started_at < SHORT_CALL_S:
            return
        resource = self.evidence.exceeded()
        if resource:
            self.end_after_sweep(Outcome(ending="limit", resource=resource))

    def _stalls(self, now: float) -> bool:
        """Whether it keeps room that others wait for, for a frame that does not come."""
        frame = self._frame
        if frame is None or frame.charge is None or self._stopped or now - self._moved < STALL_S:
            return False
        return frame.account.budget.is_short

    def _drain(self) -> None:
        """Read what is in the pipes of a call whose processes are gone, to the last byte, for what is left would be the
        next call's. A short read is no end: the call may have made its pipes hold packets (O_DIRECT, pipe(2)).
        """
        self._draining = True
        try:
            while self._backlog:
                self._take_in((self._backlog.popleft(),))
            if self._stopped:
                self._read_on()
            self._drain_ready()
        finally:
            self._draining = False

    def _drain_ready(self) -> None:
        ready = dict(self._epoll.poll(0, DESCRIPTORS))  # dearer is an exception for each empty pipe
        if self._out_fd in ready:
            self._capture(self._out_fd, self._stdout, DRAIN_READS)
        if self._err_fd in ready:
            self._capture(self._err_fd, self._stderr, DRAIN_READS)
        if self._frames_fd in ready:
            self._drain_frames()

    def _on_endless_pipe(self) -> None:
        self.report("somebody still writes to the pipes of a call whose processes are gone")
        self.kill()

    def _on_stdout(self) -> None:
        self._capture(self._out_fd, self._stdout)

    def _on_stderr(self) -> None:
        self._capture(self._err_fd, self._stderr)

    def _capture(self, fd: int, capture: Capture, reads: int = 16) -> None:
        run, stream = self.run, 1 if capture is self._stdout else 2
        for _ in range(reads):  # a flood must not hold the loop
            data = read_available(fd, READ_BYTES)
            if data is None:
                break
            if not data:
                self._unwatch(fd)
                break
            if run is not None:
                run.on_output(Output(0, stream, 0, data), capture)
            capture.feed(data)
            if run is not None and run.pending is not None and self._pause_for(run.pending):
                break
        else:
            if reads == DRAIN_READS:
                self._on_endless_pipe()
        if run is not None and capture.total - capture.relayed > run.limits.output_bytes:
            self.end_after_sweep(Outcome(ending="limit", resource="output"))

    def _on_deadline(self) -> None:
        run = self.run
        self._catch_up()  # a result that is in the pipe came in time
        if self.run is None or self.run is not run or self._verdict is not None:
            return
        self._measure()
        self._kill_process()  # first: it dies while we look at what the call is guilty of
        self._recycle()
        resource = self.evidence.exceeded() or self._memory_or_processes()
        self._conclude(Outcome(ending="limit", resource=resource) if resource else Outcome(ending="timeout"))

    def _on_start_deadline(self) -> None:
        self._failure = Failed(
            "import" if self.entered else "enter",
            f"The cell was not ready after {self.spec.profile.limits.start_s:g} s; it was "
            + ("importing the tools." if self.entered else "entering the sandbox."),
            "",
            "Import less at the top of the tool's module, or raise limits.start_s.",
        )
        self.kill()
        if self._pidfd < 0:
            self._keeper.on_unanswered(self)

    def _on_death(self) -> None:
        """The init has ended, and with it every process of its namespace."""
        self._drain()
        self._on_control()
        self._die()

    # -- the proxy's socket -------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """A call starts: accept what it connects to, and nothing that was connected before (kept processes aside)."""
        for _ in range(0 if self._kept else STALE_CONNECTIONS):
            connection = self._accept()
            if connection is None:
                break
            connection.close()
        self._watch_listener()

    def _watch_listener(self) -> None:
        if self._listener is not None and not self._listening:
            self._listening = True
            self._handlers[self._listener.fileno()] = self._on_connection
            self._epoll.register(self._listener.fileno(), select.EPOLLIN)

    def _stop_listening(self) -> None:
        if self._listening and self._listener is not None:
            self._listening = False
            self._unwatch(self._listener.fileno())

    def _accept(self) -> socket.socket | None:
        """The next connection, None where none waits."""
        assert self._listener is not None
        try:
            return self._listener.accept()[0]
        except (BlockingIOError, ConnectionAbortedError):
            return None
        except OSError as error:  # EMFILE: this process has no room now; the call tries again in a moment, or fails
            _log.warning("%r cannot accept a connection: %s", self, error)
            run = self.run
            self._stop_listening()
            self._deadlines.at(time.monotonic() + ACCEPT_AGAIN_S, lambda: self._listen_again(run))
            return None

    def _listen_again(self, run: Run | None) -> None:
        if run is not None and self.run is run:
            self._watch_listener()

    def _on_connection(self) -> None:
        for _ in range(16):  # a flood must not hold the loop
            run = self.run
            connection = self._accept() if run is not None and self._listening else None
            if run is None or connection is None:
                return
            if not run.on_connection(connection):
                self._stop_listening()

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._stop_listening()
            self._listener.close()
            self._listener = None

    # -- the end ------------------------------------------------------------------------------------------------------

    def report(self, what: str) -> None:
        """Put on record, with the last call, what was found behind it."""
        if self._last_run is not None:
            self._last_run.on_incident(what)

    def retire(self) -> None:
        """End the cell. A kept process that is idle hears of it by the end of its pipe, and has 2 s to tear down."""
        if not (self._kept and self.state is CellState.READY and self._call_pid) or self._doomed:
            if not self._retiring:
                self.kill()
            return
        self._retiring = True
        self.state = CellState.RECYCLING
        self._to_call.clear()
        del self._handlers[self._calls_fd]
        os.close(self._calls_fd)
        self._arm(TEARDOWN_S, self.kill)

    def kill(self) -> None:
        """Kill the init; the kernel ends the rest. The cell is dead once its pidfd says so."""
        if self.state is CellState.DEAD:
            return
        self._disarm()
        self._swept_by = math.inf
        if self.state is CellState.STARTING and self._failure is None:
            self._failure = Failed("start", "The cell was ended while it started. Try again.", "", "Try again.")
        self.state = CellState.RECYCLING
        self._doomed = True
        if self._pidfd >= 0:
            _kill(self._pidfd)

    def orphan(self) -> None:
        """The zygote is gone, so the cell is too, or will never be. Nobody's fault: its calls may have another."""
        self._blameless = True
        if self._pidfd < 0:
            self._die()
        else:
            self.kill()

    def _die(self) -> None:
        if self.state is CellState.DEAD:
            return
        run = self.run
        if self.state is CellState.STARTING:
            self._failure = self._failure or Failed(
                "start", "The cell ended while it started. Try again.", "", "Try again."
            )
        self.state = CellState.DEAD
        self._disarm()
        if run is not None:
            self._conclude(self._verdict or self._outcome_of_death())
        self._gone()
        self._forget_waiting()
        self._reactor.unwatch(self._epoll.fileno())
        self._epoll.close()
        self._control.close()
        self._forget_process()
        self.handed_over()
        for fd in (self._frames_fd, self._out_fd, self._err_fd):
            os.close(fd)
        if not self._retiring:
            os.close(self._calls_fd)
        self._close_listener()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        if self._children_fd >= 0:
            os.close(self._children_fd)
            self._children_fd = -1
        self._keeper.on_dead(self, None if self._blameless else self._failure)

    # -- small things -------------------------------------------------------------------------------------------------

    def _arm(self, seconds: float, action: Callable[[], None]) -> None:
        self._disarm()
        self._watchdog = self._deadlines.at(time.monotonic() + seconds, action)

    def _disarm(self) -> None:
        if self._watchdog is not None:
            self._deadlines.cancel(self._watchdog)
            self._watchdog = None

    def _say(self, process: int, account: bool = False) -> None:
        self._to_init.write((recycle(process, account),))

    def _want_room_for_calls(self, want: bool) -> None:
        if want:
            self._epoll.register(self._calls_fd, select.EPOLLOUT)
        else:
            self._epoll.unregister(self._calls_fd)

    def _want_room_for_control(self, want: bool) -> None:
        self._epoll.modify(self._control.fileno(), select.EPOLLIN | (select.EPOLLOUT if want else 0))

    def _unwatch(self, fd: int) -> None:
        """Stop looking at a descriptor whose other end is closed."""
        watched = fd in self._handlers and not (self._stopped and fd in self._read_fds())
        if self._handlers.pop(fd, None) is not None and watched:
            self._epoll.unregister(fd)


def _of_session(spec: CellSpec) -> dict[str, Field]:
    """What a cell is told of whose it is."""
    writable = spec.profile.writable
    return {
        "cwd": spec.cwd,
        "writable": list(writable),
        "protected": list(spec.profile.protected) if writable else [],
        "session": dict(spec.session),
    }


def _kill(pidfd: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended and the zygote has reaped it; its pidfd, readable by now, tells the cell
