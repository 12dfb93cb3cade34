"""The calls of one cell, one after the other: each is sent, read, judged and ended.

The cell's frames and output are read as far as the byte budgets have room. A call that exceeds them is paused: none of
its pipes is read, so the kernel makes it wait (backpressure). A large frame is charged from its first bytes. Frames
that were read before a pause wait in the backlog.

Whatever decides a call's outcome is an event in the cell's table. The table's actions about calls are methods here.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial, wraps
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

from toolcell.pool.deadlines import Deadlines
from toolcell.pool.reactor import Reactor
from toolcell.pool.run import Capture, Outcome, Run, unavailable
from toolcell.wire.budget import MOST_A_BYTE, Account, Ask, Budgets, Charge
from toolcell.wire.frames import Buffer, Field, Violation
from toolcell.wire.messages import (
    Cancel,
    Error,
    Exited,
    Failed,
    Heeds,
    Log,
    Output,
    Progress,
    Reply,
    Request,
    Result,
    SpanEnd,
    SpanStart,
)
from toolcell.wire.pipes import PIPE_BYTES, WIDE_BYTES, narrow, widen
from toolcell.wire.protocol import SupervisorLink, WireEvent

from .channels import Channels, ProxyListener, read_available
from .meter import SHORT_CALL_S, Meter, limit_of_exit
from .state import Event, State, Stateful

_log = logging.getLogger("toolcell.pool")
WATCH_S: Final = 0.05  # how often running calls and sweeps are inspected
NEAR_S = 0.2  # a deadline gets a timer only when it is this near; until then the periodic `inspect` looks at it
UNREAD_S = 1.0  # the end of a reader is reported within some ms
CANCEL_GRACE_S = 0.05  # a tool that must end has this time to read ctx.cancelled; if it does, it gets the whole grace
LEAST_READ_BYTES = 4096
MANY_FRAMES = 256  # in one read; a call that sends so many is read in small pieces from then on
READ_BYTES = 64 * 1024  # a pipe's capacity; malloc does not keep larger buffers, so each would cost page faults
PRINTED_READS = 16  # of a stream at once: a flood must not block the loop
DRAIN_READS = 4096  # more than the packets that any pipe holds; beyond it, a process that was not swept still writes
KEEP_OUTPUT_BYTES = 30_000  # kept of each stream; as much as `shell` gives the model
CATCH_UP_READS = 4  # reads of one pipe's capacity when a call is ended
PROGRESS_CHARS = 1_000  # kept of the last progress that a call has reported
MOMENT_BYTES = 8 * 1024  # room for a few small frames, which a read needs
STALL_S = 5.0  # without a byte of a large frame that has begun, while other calls wait for room
P = ParamSpec("P")


class Failing(Protocol):
    """A part of a cell."""

    def fail(self, error: Exception) -> None:
        """End the cell, because of this exception."""
        ...


F = TypeVar("F", bound=Failing)


def owned(step: Callable[Concatenate[F, P], None]) -> Callable[Concatenate[F, P], None]:
    """Decorate a step of a cell that other components call: its exception ends the cell, and the caller goes on."""

    @wraps(step)
    def take(part: F, /, *args: P.args, **options: P.kwargs) -> None:
        try:
            step(part, *args, **options)
        except Exception as error:
            part.fail(error)

    return take


class Calls:
    """The calls of one cell. `run` is the running call, `verdict` is its outcome once that is decided, and `last` is
    the call that ended last."""

    def __init__(
        self,
        cell: Stateful,
        channels: Channels,
        link: SupervisorLink,
        meter: Meter,
        budgets: Budgets,
        deadlines: Deadlines,
        reactor: Reactor,
        on_call_ended: Callable[[Run], None],
        *,
        kept: bool,
    ) -> None:
        """`on_call_ended` is called at the end of a call with a word in `exclusive`: the next such call may start."""
        self.run: Run | None = None
        self.verdict: Outcome | None = None
        self.last: Run | None = None
        self.listener: ProxyListener | None = None  # for connections to the cell's proxy, if its profile has one
        self.stdout = Capture(KEEP_OUTPUT_BYTES)
        self.stderr = Capture(KEEP_OUTPUT_BYTES)
        self._leaving: Run | None = None  # a concluded call whose processes may still exist
        self._sent = self._received = 0  # bytes, in this call
        self._unread = 0  # looks at which the cell had not ended, and did not read a pipe
        self._read_bytes = READ_BYTES  # per read, in this call
        self._frame: Ask | None = None  # for a large frame that is arriving
        self._still = 0  # looks at it since bytes of it last arrived
        self._paused: Ask | None = None  # for room for more requests
        self._backlog: deque[WireEvent] = deque()  # frames that were read before the pause
        self._dropping = False  # True in `drain` and `catch_up`, which serve no requests and never pause
        self._cell = cell
        self._channels = channels
        self._link = link
        self._decoder = link.decoder
        self._meter = meter
        self._deadlines = deadlines
        self._reactor = reactor
        self._on_call_ended = on_call_ended
        self._frames = budgets.frames.account()
        self._requests = budgets.requests
        self._kept = kept
        self.fail = cell.fail

    # -- under way ----------------------------------------------------------------------------------------------------

    def send(self, run: Run, buffers: list[Buffer], now: float) -> None:
        """Start the call: send it to the cell."""
        if self.listener is not None:
            self.listener.begin(run)
        self._channels.to_call.write(buffers)  # all later steps run while the cell already works
        self.run = run
        run.started_at = now
        self._sent, self._received = sum(map(len, buffers)), 0
        self._unread, self._read_bytes = 0, READ_BYTES
        # A call that was queued has a deadline already. From now on it ends a running call, not a queued one.
        if run.deadline is None or not self._deadlines.redirect(run.deadline, self._on_deadline):
            is_near = run.deadline_at - now < NEAR_S
            run.deadline = self._deadlines.at(run.deadline_at, self._on_deadline) if is_near else None

    def reply(self, run: Run, request: int, ok: bool, value: Field, held: Charge) -> None:
        """Answer a handle request of the running call. A reply to a call that is over is dropped. `held` is charged
        with the reply until it is written."""
        if self.run is run and run.outcome is None and self._cell.state is State.BUSY:
            buffers = self._link.send(Reply(self._link.seq, request, ok, value))
            size = sum(map(len, buffers))
            self._sent += size
            held.change(size)
            try:
                self._channels.to_call.write(buffers, lambda: self._on_replied(run, request, held))
            except OSError as error:
                held.release()
                self.fail(error)
        else:
            held.release()

    def _on_replied(self, run: Run, request: int, held: Charge) -> None:
        """Release the charge of a reply that is written, or whose reader is gone."""
        if self.run is run:
            self._link.written(request)
        held.release()

    def inspect(self, now: float) -> None:
        """Check whether the running call is near its deadline, or its process tree has exceeded a limit."""
        run = self.run
        if run is None or self.verdict is not None:
            return
        if run.deadline is None and run.deadline_at - now < NEAR_S:
            run.deadline = self._deadlines.at(run.deadline_at, self._on_deadline)
        if self._channels.to_call.is_broken or self._channels.to_init.is_broken:
            self._unread += 1
            if self._unread * WATCH_S > UNREAD_S:
                self.fail(BrokenPipeError("a living cell does not read its pipe"))
                return
        if self._stalls():
            what = f"no byte arrived for {STALL_S:g} s while other calls waited for memory"
            self.on_violation(Violation("stalled frame", what))
        elif now - run.started_at >= SHORT_CALL_S and (resource := self._meter.evidence.exceeded()):
            self.on_exceeded(resource)

    @owned
    def tell_end(self, run: Run, reason: str, grace_s: float) -> None:
        """Tell the tool that its call must end, and end it: after the grace if the tool reads `ctx.cancelled`, else a
        moment later. The call's deadline still applies."""
        if self.run is not run or self._cell.state is not State.BUSY:
            return
        now = time.monotonic()
        if run.ends_at == math.inf:
            self._channels.to_call.write(self._link.send(Cancel(self._link.seq, reason)))
        run.ends_at = min(run.ends_at, now + grace_s)
        self._end_at(run, run.ends_at if run.heeds else min(run.ends_at, now + CANCEL_GRACE_S))

    def _on_heeds(self, run: Run) -> None:
        run.heeds = True
        if run.ends_at < math.inf:
            self._end_at(run, run.ends_at)

    def _end_at(self, run: Run, when: float) -> None:
        """End the running call as cancelled at `when`, or at its deadline if that comes first."""
        if run.deadline is not None:
            self._deadlines.cancel(run.deadline)
        if when < run.deadline_at:
            run.deadline = self._deadlines.at(when, partial(self._on_grace_over, run))
        else:
            run.deadline = self._deadlines.at(run.deadline_at, self._on_deadline)

    @owned
    def _on_grace_over(self, run: Run) -> None:
        self.catch_up()
        if self.run is run and not (run.heeds and time.monotonic() < run.ends_at):  # it may have read `ctx.cancelled`
            self.end(Outcome(ending="cancelled"))

    # -- frames -------------------------------------------------------------------------------------------------------

    def on_frames(self) -> bool:
        """Read once, so that a flood of frames shares the loop with other cells. Returns whether there may be more."""
        decoder, run, fd = self._decoder, self.run, self._channels.frames
        begun = decoder.begun
        if begun:
            data = read_available(fd, WIDE_BYTES)
        elif run is None or run.pending is None:
            data = read_available(fd, self._read_bytes)
        else:  # read little if there is little room: a few bytes can be many objects
            room = max(LEAST_READ_BYTES, run.pending.room // 16)
            data = read_available(fd, min(self._read_bytes, room))
        if not data:
            if data is not None:  # no writer is left, so the init is gone too: its pidfd reports that
                self._channels.unwatch(fd)
            return False
        self._received += len(data)
        events = self._link.receive(data)
        if self._frame is not None:
            self._still = 0
            if decoder.sizes or not decoder.begun:
                self._frame.end()
                self._frame = None
        if len(events) == 1 and type(events[0]) is Result and run is not None and self.verdict is None:
            self.on_answer(Outcome("result", events[0].payload))  # as mostly; `_take_in` would do the same
        else:
            self._take_in(events)
        if decoder.begun and self._frame is None and self._paused is None:
            self._begin_large()
        if decoder.begun and not begun and self._cell.state is State.BUSY:
            # The call process may not widen its pipe so far itself. This is for a running call only: after it, the init
            # restores the pipe's size.
            widen(fd, decoder.begun)
        return True

    def _take_in(self, events: Sequence[WireEvent]) -> None:
        """Handle the events that were read, as far as there is room for their requests."""
        if len(events) > MANY_FRAMES:
            self._read_bytes = LEAST_READ_BYTES
        for done, event in enumerate(events, 1):
            self._on_frame(event)
            run = self.run
            if run is not None and run.pending is not None and self._pause_for(run.pending):
                self._backlog.extend(events[done:])
                return

    def _on_frame(self, event: WireEvent) -> None:
        run = self.run
        if type(event) is Result and run is not None and self.verdict is None:
            self.on_answer(Outcome("result", event.payload))
        elif isinstance(event, Violation):
            self.on_violation(event)
        elif run is None:
            pass
        elif self.verdict is not None:
            if isinstance(event, Output):  # printed before the outcome was decided
                self._on_output(run, event)
        elif isinstance(event, Error):
            outcome = Outcome(ending="error", reason=event.reason, message=event.message, payload=event.data)
            self.on_answer(outcome)
        elif isinstance(event, Progress):
            message = event.message
            run.last_progress = event._replace(message=message[:PROGRESS_CHARS]) if message[PROGRESS_CHARS:] else event
            run.on_progress(event)
        elif isinstance(event, Log):
            run.on_log(event)
        elif isinstance(event, Output):
            self._on_output(run, event)
        elif isinstance(event, Request) and not self._dropping:  # otherwise its process is gone
            run.on_request(event)
        elif isinstance(event, Heeds):
            self._on_heeds(run)
        elif isinstance(event, (SpanStart, SpanEnd)):
            run.on_span(event)

    def _on_output(self, run: Run, output: Output) -> None:
        capture = self.stdout if output.stream == 1 else self.stderr
        run.on_output(output, capture)
        capture.relay(output.data, output.skipped)

    # -- what is printed ----------------------------------------------------------------------------------------------

    def on_stdout(self) -> None:
        self._capture(self._channels.stdout, self.stdout)

    def on_stderr(self) -> None:
        self._capture(self._channels.stderr, self.stderr)

    def _capture(self, fd: int, capture: Capture, reads: int = PRINTED_READS) -> None:
        run, stream = self.run, 1 if capture is self.stdout else 2
        for _ in range(reads):
            data = read_available(fd, READ_BYTES)
            if data is None:
                break
            if not data:
                self._channels.unwatch(fd)
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
            self.on_exceeded("output")

    # -- room ---------------------------------------------------------------------------------------------------------

    def _begin_large(self) -> None:
        """Charge a large frame from its first bytes until it is complete. If there is no room, it is not read."""
        run = self.run
        if self._dropping:
            return
        if run is None:
            if self._kept and self._cell.state is State.READY:  # no late request, because handles wait for replies
                self.on_violation(Violation("frame out of place", "a large one after the end of the call"))
            return  # otherwise nobody waits for the frame, and its process ends
        if self._decoder.of_report:
            run.pending = run.pending or self._requests.account()
            self._frame = run.pending.ask(self._decoder.begun * MOST_A_BYTE, self._read_on)
        else:
            self._frame = self._frames.ask(self._decoder.begun, self._read_on)
        self._still = 0
        if self._frame.charge is None:
            self._channels.pause()

    def _pause_for(self, pending: Account) -> bool:
        """Stop reading frames if this account has no room. Returns whether reading is paused."""
        if not self._dropping and self._paused is None and not pending.has_room(MOMENT_BYTES):
            self._paused = pending.ask(MOMENT_BYTES, self._read_on)
            self._channels.pause()
        return self._paused is not None

    @owned
    def _read_on(self) -> None:
        """Read again: there is room, or the data will be dropped."""
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.end()
        if self._backlog and not self._dropping:
            self._reactor.soon(self._on_backlog)  # not now: a task of the call that made room runs
            return
        if self._decoder.begun and self._frame is None:
            self._begin_large()
        has_room = self._dropping or self._frame is None or self._frame.charge is not None
        if has_room and self._channels.is_paused:
            self._still = 0
            self._channels.resume()

    @owned
    def _on_backlog(self) -> None:
        """Handle more of the backlog, for which there is room now."""
        while self._backlog and self._paused is None:
            self._take_in((self._backlog.popleft(),))
        if self._paused is None and self._cell.state is not State.DEAD:
            self._read_on()

    def _stalls(self) -> bool:
        """Whether an incomplete frame holds room that other calls wait for, and no byte of it arrives. Called every
        `WATCH_S`."""
        frame = self._frame
        if frame is None or frame.charge is None or self._channels.is_paused:
            return False
        self._still += 1  # looks are counted, because none is made while the event loop is held
        return self._still * WATCH_S > STALL_S and frame.account.budget.is_short

    # -- what it ends with --------------------------------------------------------------------------------------------

    @owned
    def end(self, outcome: Outcome) -> None:
        """End the running call now, with this outcome unless one is decided. Its processes are swept afterwards."""
        run = self.run
        self.catch_up()
        if run is not None and self.run is run:
            self.verdict = self.verdict or outcome
            self._cell.on(Event.ENDED)

    def on_answer(self, outcome: Outcome) -> None:
        """The call's terminal frame has arrived."""
        run, evidence = self.run, self._meter.evidence
        assert run is not None
        self._meter.measure(run)
        if evidence.oom_killed_behind_an_answer():  # a child was killed, so the answer may be incomplete
            outcome = replace(outcome, ending="limit", resource="memory")
        elif outcome.reason == "again" and (evidence.forks_refused() or evidence.exceeded() == "processes"):
            outcome = replace(outcome, ending="limit", resource="processes")
        self.verdict = outcome
        self._cell.on(Event.KEPT_ANSWER if self._kept else Event.ANSWERED)

    def on_exceeded(self, resource: str) -> None:
        """End the running call for a limit, once its processes are gone and its counts are exact. The init's account is
        waited for: it alone has the peak memory of a process that the kernel is about to kill."""
        run = self.run
        if run is not None and self.verdict is None and self._cell.takes(Event.EXCEEDED):
            if run.deadline is not None:
                self._deadlines.cancel(run.deadline)
            self.verdict = Outcome(ending="limit", resource=resource)
            self._cell.on(Event.EXCEEDED)

    def on_violation(self, violation: Violation) -> None:
        """The cell broke the protocol or its pipe. Its call ends with this violation, and the cell is never reused."""
        if self.run is not None:
            self.run.on_incident(f"protocol violation: {violation}")
            self.verdict = Outcome(ending="violation", message=str(violation))
            self._cell.on(Event.VIOLATED)
        else:
            self.report(f"protocol violation after the call's end: {violation}")
            self._cell.on(Event.KILLED)

    def _on_endless_pipe(self) -> None:
        self.report("somebody still writes to the pipes of a call whose processes are gone")
        self._cell.on(Event.KILLED)

    @owned
    def _on_deadline(self) -> None:
        run = self.run
        self.catch_up()  # a result that is already in the pipe is in time
        if run is not None and self.run is run and self.verdict is None:
            self._cell.on(Event.TIMED_OUT)

    def lose(self, error: Exception) -> None:
        """Make the running call a lost one, whatever was decided before: a step has raised this."""
        self.verdict = Outcome(ending="lost", reason="fault")
        if self.run is not None:
            self._reactor.guarded(None, self.run.on_incident, f"a step of the supervisor failed: {error!r}")

    def judge_lateness(self) -> None:
        """Decide the outcome of a call at its deadline: a timeout, or the limit that it has exceeded."""
        resource = self._meter.evidence.exceeded() or self._meter.evidence.refused()
        self.verdict = Outcome(ending="limit", resource=resource) if resource else Outcome(ending="timeout")

    def judge_exit(self, exited: Exited) -> None:
        """Decide the outcome of a call whose process has ended. Its answer may still be in the pipe."""
        if self.run is not None:
            self.drain()
        if self.run is not None:
            self.verdict = self.verdict or self._outcome_of_exit(self.run, exited)
            self._meter.account_exit(self.run, exited)

    def _outcome_of_exit(self, run: Run, exited: Exited) -> Outcome:
        if self._link.partial and exited.code >= 0:  # a killed process may leave half a frame
            run.on_incident("protocol violation: half a frame")
            return Outcome(ending="violation", message="half a frame: the call process ended within one")
        # The account of an exited process covers its whole life, and the children that it waited for.
        cpu_s = self._meter.evidence.account(math.inf).cpu_s if self._kept else exited.cpu_s
        resource = limit_of_exit(exited.code, cpu_s, run.limits) or self._meter.evidence.refused()
        if resource:
            return Outcome(ending="limit", resource=resource, code=exited.code)
        return Outcome(ending="exited", code=exited.code)

    def judge_death(self, failure: Failed | None) -> None:
        """Decide the outcome of a call whose cell has died. If the OOM killer acted, the call exceeded its memory."""
        if self.run is None or self.verdict is not None:
            return
        if self._meter.evidence.oom_killed():
            self.verdict = Outcome(ending="limit", resource="memory")
        elif failure is not None:  # the cell's last start-up step, or the fork of the call process, failed
            self.verdict = unavailable(failure)
        else:
            self.verdict = Outcome(ending="lost", message="The cell ended during the call.")

    def catch_up(self) -> None:
        """Read what is in the running call's pipes now: its outcome, or the output so far."""
        self._channels.look()
        run = self.run
        for _ in range(CATCH_UP_READS):
            if run is None or self.run is not run or self._frame is not None or self._read_bytes < READ_BYTES:
                return
            self._dropping = True  # there is no time to serve requests
            try:
                while self._backlog:
                    self._take_in((self._backlog.popleft(),))
                more = self.on_frames()
            finally:
                self._dropping = False
            if not more:
                return

    def drain(self) -> None:
        """Empty the pipes of a call whose processes are gone: what is left would be read as the next call's. A short
        read does not mean empty: the call may have put its pipes into packet mode (O_DIRECT, pipe(2)).
        """
        self._dropping = True
        try:
            while self._backlog:
                self._take_in((self._backlog.popleft(),))
            if self._channels.is_paused:
                self._read_on()
            ready = self._channels.ready()
            if self._channels.stdout in ready:
                self._capture(self._channels.stdout, self.stdout, DRAIN_READS)
            if self._channels.stderr in ready:
                self._capture(self._channels.stderr, self.stderr, DRAIN_READS)
            if self._channels.frames in ready:
                self._drain_frames()
        finally:
            self._dropping = False

    def _drain_frames(self) -> None:
        for _ in range(DRAIN_READS):
            if not self.on_frames() or self._channels.closed:
                return
        self._on_endless_pipe()

    # -- the end of a call --------------------------------------------------------------------------------------------

    def measure(self) -> None:
        """Note what the call has used, while its processes exist."""
        if self.run is not None:
            self._meter.measure(self.run)

    def count_to_the_end(self) -> None:
        """After the sweep of a call whose outcome is decided, add its last output and use of resources."""
        if self.run is not None:
            self.drain()
        if self.run is not None:  # otherwise an event in the data has ended it
            self._meter.measure(self.run, find=False)

    def conclude(self) -> None:
        """Give the call, and its waiter, the outcome."""
        run, outcome = self.run, self.verdict
        self.run = self.verdict = None
        if run is None or outcome is None:
            return
        if self.last is None:
            run.is_first_of_cell = True
        self.last = run
        if run.deadline is not None:
            self._deadlines.cancel(run.deadline)
            run.deadline = None
        now, ending = time.monotonic(), True
        if run.gone is not None:
            self._leaving = run
        try:
            if self._kept and (outcome.ending != "result" or now - run.started_at > SHORT_CALL_S):  # else at the sweep
                self._settle()
            run.used["sent_bytes"], run.used["received_bytes"] = self._sent, self._received
            if self.stdout.total or self.stderr.total:
                outcome = replace(outcome, stdout=self.stdout.take(), stderr=self.stderr.take())
            if run.last_progress is not None:
                outcome = replace(outcome, progress=run.last_progress)
            if self.listener is not None:
                self.listener.end()
            ending = run.on_ended()
        except Exception as error:  # of a journal, for example: the caller must still get the result
            self.fail(error)
        run.end(outcome, now, later=ending)
        if run.exclusive:
            self._on_call_ended(run)

    def _settle(self) -> None:
        """Reset the counters, or end the cell: otherwise this call's use would be counted for the next call."""
        try:
            self._meter.evidence.settle()
        except OSError as error:
            _log.warning("the counts of %r cannot be read: %s", self._cell, error)
            self._cell.on(Event.KILLED)

    def release(self) -> None:
        """Report that no process of the concluded call is left."""
        if self._leaving is not None and self._leaving.gone is not None:
            self._leaving.gone.set()
        self._leaving = None

    def keep(self) -> None:
        """Reset for the next call of the process that stays. A frame that it has partly sent stays too."""
        self._link.next_kept_call()
        if self._paused is not None:
            self._read_on()
        if self._received > PIPE_BYTES:
            narrow(self._channels.frames)
        if self._sent > PIPE_BYTES:
            narrow(self._channels.calls)
        if self._leaving is not None:
            self.release()

    def next_call(self) -> None:
        """Reset all state, so that nothing of this call counts for the next one."""
        for capture in (self.stdout, self.stderr):
            if capture.total:
                capture.clear()
        self._link.next_call()
        if self._frame is not None or self._paused is not None:
            self._forget()

    @owned
    def condemn(self, run: Run, what: str) -> None:
        """Record that the answer of the call `run` was malformed. End the cell, if that was its last call."""
        run.on_incident(f"protocol violation: {what}")
        if self.last is run:
            self._cell.on(Event.KILLED)

    @owned
    def report(self, what: str) -> None:
        """Record, with the last call, something that was found after its end."""
        if self.last is not None:
            self.last.on_incident(what)

    def close(self) -> None:
        """Release everything that the calls hold: the cell is gone."""
        self.release()
        with ExitStack() as last:
            if self.listener is not None:
                last.callback(self.listener.close)
                self.listener = None
            self._forget()

    def _forget(self) -> None:
        """Withdraw all requests for room. Data that waits to be written to the cell is dropped too."""
        for ask in (self._paused, self._frame):
            if ask is not None:
                ask.end()
        self._paused = self._frame = None
        self._backlog.clear()
        self._channels.to_call.clear()
