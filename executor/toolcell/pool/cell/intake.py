"""Read the frames and the printed output of a cell's call, as far as the byte budgets have room.

A call that exceeds the budgets is paused: none of its pipes is read, so the kernel makes it wait (backpressure). A
large frame is charged from its first bytes. Frames that were read before a pause wait in the backlog.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from toolcell.pool.capture import Capture
from toolcell.pool.outbox import read_available
from toolcell.pool.reactor import Reactor
from toolcell.pool.run import Outcome, Run
from toolcell.wire.budget import MOST_A_BYTE, Account, Ask, Budgets
from toolcell.wire.frames import Violation
from toolcell.wire.messages import Error, Heeds, Log, Output, Progress, Request, Result, SpanEnd, SpanStart
from toolcell.wire.pipes import WIDE_BYTES, widen
from toolcell.wire.protocol import SupervisorLink, WireEvent

from .channels import Channels
from .interface import WATCH_S, owned
from .state import State

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


class IntakeOwner(Protocol):
    """The calls of a cell, as their intake sees them."""

    run: Run | None
    """The call that is under way."""
    verdict: Outcome | None
    """The outcome of that call if it is decided. From then on, only output that was printed earlier counts."""

    @property
    def state(self) -> State: ...
    def on_answer(self, outcome: Outcome) -> None: ...
    def on_heeds(self, run: Run) -> None: ...
    def on_violation(self, violation: Violation) -> None: ...
    def on_exceeded(self, resource: str) -> None: ...
    def on_endless_pipe(self) -> None:
        """Called when a process still writes although the call's processes are gone."""
        ...

    def fail(self, error: Exception) -> None:
        """End the cell, because one of its steps has raised this."""
        ...


class Intake:
    """Reads the pipes of frames, stdout and stderr. Methods `on_…` are called when one is ready."""

    __slots__ = (
        "_backlog",
        "_calls",
        "_channels",
        "_decoder",
        "_dropping",
        "_frame",
        "_frames",
        "_kept",
        "_link",
        "_reactor",
        "_requests",
        "_still",
        "paused",
        "read_bytes",
        "received",
        "stderr",
        "stdout",
    )

    def __init__(
        self,
        calls: IntakeOwner,
        channels: Channels,
        link: SupervisorLink,
        budgets: Budgets,
        reactor: Reactor,
        *,
        kept: bool,
    ) -> None:
        self._calls = calls
        self._channels = channels
        self._link = link
        self._decoder = link.decoder
        self._kept = kept
        self._reactor = reactor
        self._frames = budgets.frames.account()
        self._requests = budgets.requests
        self._frame: Ask | None = None  # for a large frame that is arriving
        self._still = 0  # looks at it since bytes of it last arrived
        self.paused: Ask | None = None  # for room for more requests
        self._backlog: deque[WireEvent] = deque()  # frames that were read before the pause
        self._dropping = False  # True in `drain` and `catch_up`, which serve no requests and never pause
        self.read_bytes = READ_BYTES  # per read, in this call
        self.received = 0  # bytes, in this call
        self.stdout = Capture(KEEP_OUTPUT_BYTES)
        self.stderr = Capture(KEEP_OUTPUT_BYTES)

    # -- frames -------------------------------------------------------------------------------------------------------

    def on_frames(self) -> bool:
        """Read once, so that a flood of frames shares the loop with other cells. Returns whether there may be more."""
        decoder, run, fd = self._decoder, self._calls.run, self._channels.frames
        begun = decoder.begun
        if begun:
            data = read_available(fd, WIDE_BYTES)
        elif run is None or run.pending is None:
            data = read_available(fd, self.read_bytes)
        else:  # read little if there is little room: a few bytes can be many objects
            room = max(LEAST_READ_BYTES, run.pending.room // 16)
            data = read_available(fd, min(self.read_bytes, room))
        if not data:
            if data is not None:  # no writer is left, so the init is gone too: its pidfd reports that
                self._channels.unwatch(fd)
            return False
        self.received += len(data)
        events = self._link.receive(data)
        if self._frame is not None:
            self._still = 0
            if decoder.sizes or not decoder.begun:
                self._frame.end()
                self._frame = None
        if len(events) == 1 and type(events[0]) is Result and run is not None and self._calls.verdict is None:
            self._calls.on_answer(Outcome("result", events[0].payload))
        else:
            self._take_in(events)
        if decoder.begun and self._frame is None and self.paused is None:
            self._begin_large()
        if decoder.begun and not begun and self._calls.state is State.BUSY:
            # The call process may not widen its pipe so far itself. This is for a running call only: after it, the init
            # restores the pipe's size.
            widen(fd, decoder.begun)
        return True

    def _take_in(self, events: Sequence[WireEvent]) -> None:
        """Handle the events that were read, as far as there is room for their requests."""
        if len(events) > MANY_FRAMES:
            self.read_bytes = LEAST_READ_BYTES
        for done, event in enumerate(events, 1):
            self._on_frame(event)
            run = self._calls.run
            if run is not None and run.pending is not None and self._pause_for(run.pending):
                self._backlog.extend(events[done:])
                return

    def _on_frame(self, event: WireEvent) -> None:
        run = self._calls.run
        if type(event) is Result and run is not None and self._calls.verdict is None:
            self._calls.on_answer(Outcome("result", event.payload))
        elif isinstance(event, Violation):
            self._calls.on_violation(event)
        elif run is None:
            pass
        elif self._calls.verdict is not None:
            if isinstance(event, Output):  # printed before the outcome was decided
                self._on_output(run, event)
        elif isinstance(event, Error):
            outcome = Outcome(ending="error", reason=event.reason, message=event.message, payload=event.data)
            self._calls.on_answer(outcome)
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
            self._calls.on_heeds(run)
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
        run, stream = self._calls.run, 1 if capture is self.stdout else 2
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
                self._calls.on_endless_pipe()
        if run is not None and capture.total - capture.relayed > run.limits.output_bytes:
            self._calls.on_exceeded("output")

    # -- room ---------------------------------------------------------------------------------------------------------

    def _begin_large(self) -> None:
        """Charge a large frame from its first bytes until it is complete. If there is no room, it is not read."""
        run = self._calls.run
        if self._dropping:
            return
        if run is None:
            if self._kept and self._calls.state is State.READY:  # no late request, because handles wait for replies
                self._calls.on_violation(Violation("frame out of place", "a large one after the end of the call"))
            return  # otherwise nobody waits for the frame, and its process ends
        if self._decoder.of_report:
            run.pending = run.pending or self._requests.account()
            self._frame = run.pending.ask(self._decoder.begun * MOST_A_BYTE, self.read_on)
        else:
            self._frame = self._frames.ask(self._decoder.begun, self.read_on)
        self._still = 0
        if self._frame.charge is None:
            self._channels.pause()

    def _pause_for(self, pending: Account) -> bool:
        """Stop reading frames if this account has no room. Returns whether reading is paused."""
        if not self._dropping and self.paused is None and not pending.has_room(MOMENT_BYTES):
            self.paused = pending.ask(MOMENT_BYTES, self.read_on)
            self._channels.pause()
        return self.paused is not None

    def fail(self, error: Exception) -> None:
        self._calls.fail(error)

    @owned
    def read_on(self) -> None:
        """Read again: there is room, or the data will be dropped."""
        paused, self.paused = self.paused, None
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
        while self._backlog and self.paused is None:
            self._take_in((self._backlog.popleft(),))
        if self.paused is None and self._calls.state is not State.DEAD:
            self.read_on()

    def stalls(self) -> bool:
        """Whether an incomplete frame holds room that other calls wait for, and no byte of it arrives. Called every
        `WATCH_S`."""
        frame = self._frame
        if frame is None or frame.charge is None or self._channels.is_paused:
            return False
        self._still += 1  # looks are counted, because none is made while the event loop is held
        return self._still * WATCH_S > STALL_S and frame.account.budget.is_short

    # -- the end of a call --------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Read what is in the running call's pipes now: its outcome, or the output so far."""
        self._channels.look()
        run = self._calls.run
        for _ in range(CATCH_UP_READS):
            if run is None or self._calls.run is not run or self._frame is not None or self.read_bytes < READ_BYTES:
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
                self.read_on()
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
        self._calls.on_endless_pipe()

    def with_printed(self, outcome: Outcome) -> Outcome:
        """The outcome with what the call has printed. The captures are empty then."""
        if not self.stdout.total and not self.stderr.total:
            return outcome
        return replace(outcome, stdout=self.stdout.take(), stderr=self.stderr.take())

    def next_call(self) -> None:
        """Reset all state, so that nothing of this call counts for the next one."""
        for capture in (self.stdout, self.stderr):
            if capture.total:
                capture.clear()
        self._link.next_call()
        if self._frame is not None or self.paused is not None:
            self.forget()

    def forget(self) -> None:
        """Withdraw all requests for room. Data that waits to be written to the cell is dropped too."""
        for ask in (self.paused, self._frame):
            if ask is not None:
                ask.end()
        self.paused = self._frame = None
        self._backlog.clear()
        self._channels.to_call.clear()
