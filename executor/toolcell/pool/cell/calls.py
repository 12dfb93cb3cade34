"""The calls of one cell, one after the other: how each begins, its outcome, and who is told.

Everything that happens to a call is an event in the cell's table. The table's actions about calls are methods here.
"""

import logging
import math
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Never, Protocol

from toolcell.pool.deadlines import Deadlines
from toolcell.pool.reactor import Reactor
from toolcell.pool.run import Outcome, Run, unavailable
from toolcell.wire.budget import Charge
from toolcell.wire.frames import Buffer, Field, Violation
from toolcell.wire.messages import Cancel, Exited, Failed, Reply
from toolcell.wire.pipes import PIPE_BYTES, narrow
from toolcell.wire.protocol import SupervisorLink

from .channels import Channels
from .evidence import SHORT_CALL_S, limit_of_exit
from .intake import READ_BYTES, STALL_S, Intake
from .interface import WATCH_S, CellOwner, owned
from .listener import ProxyListener
from .meter import Meter
from .state import Event, Machine, State

_log = logging.getLogger("toolcell.pool")
NEAR_S = 0.2  # a deadline gets a timer only when it is this near; until then the periodic `inspect` looks at it
UNREAD_S = 1.0  # the end of a reader is reported within some ms
CANCEL_GRACE_S = 0.05  # a tool that must end has this time to read ctx.cancelled; if it does, it gets the whole grace


class CallsOwner(Protocol):
    """The cell, as its calls see it."""

    def on(self, event: Event) -> None:
        """Change to the next state, and carry out its actions."""
        ...

    def fail(self, error: Exception) -> None:
        """End the cell, because one of its steps has raised this."""
        ...


class Calls:
    """The calls of one cell, one after the other. `run` is the running call, `verdict` is its outcome once that is
    decided, and `last` is the call that ended last."""

    def __init__(
        self,
        cell: CallsOwner,
        machine: Machine,
        channels: Channels,
        link: SupervisorLink,
        meter: Meter,
        deadlines: Deadlines,
        reactor: Reactor,
        pool: CellOwner[Never],
        *,
        kept: bool,
    ) -> None:
        self.run: Run | None = None
        self.verdict: Outcome | None = None
        self.last: Run | None = None
        self.listener: ProxyListener | None = None  # for connections to the cell's proxy, if its profile has one
        self._leaving: Run | None = None  # a concluded call whose processes may still exist
        self._sent = 0  # bytes, in this call
        self._unread = 0  # looks at which the cell had not ended, and did not read a pipe
        self._cell = cell
        self._machine = machine
        self._channels = channels
        self._link = link
        self._meter = meter
        self._deadlines = deadlines
        self._reactor = reactor
        self._pool = pool
        self._kept = kept
        self.intake = Intake(self, channels, link, pool.budgets, reactor, kept=kept)

    @property
    def state(self) -> State:
        """The cell's state."""
        return self._machine.state

    def fail(self, error: Exception) -> None:
        self._cell.fail(error)

    # -- under way ----------------------------------------------------------------------------------------------------

    def send(self, run: Run, buffers: list[Buffer], now: float) -> None:
        """Start the call: send it to the cell."""
        if self.listener is not None:
            self.listener.begin(run)
        self._channels.to_call.write(buffers)  # all later steps run while the cell already works
        self.run = run
        run.started_at = now
        intake, self._sent, self._unread = self.intake, sum(map(len, buffers)), 0
        intake.received, intake.read_bytes = 0, READ_BYTES
        # A call that has waited has a deadline already, which gets another action.
        if run.deadline is None or not self._deadlines.redirect(run.deadline, self._on_deadline):
            is_near = run.deadline_at - now < NEAR_S
            run.deadline = self._deadlines.at(run.deadline_at, self._on_deadline) if is_near else None

    def reply(self, run: Run, request: int, ok: bool, value: Field, held: Charge) -> None:
        """Answer a handle request of the running call. A late reply is no error. `held` is charged with the reply until
        it is written."""
        if self.run is run and run.outcome is None and self._machine.state is State.BUSY:
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
        """Release a reply that is written, or that nobody waits for any more."""
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
        if self.intake.stalls():
            what = f"no byte arrived for {STALL_S:g} s while other calls waited for memory"
            self.on_violation(Violation("stalled frame", what))
        elif now - run.started_at >= SHORT_CALL_S and (resource := self._meter.evidence.exceeded()):
            self.on_exceeded(resource)

    @owned
    def tell_end(self, run: Run, reason: str, grace_s: float) -> None:
        """Tell the tool that its call must end, and end it: after the grace if the tool reads `ctx.cancelled`, else a
        moment later. The call's deadline still applies."""
        if self.run is not run or self._machine.state is not State.BUSY:
            return
        now = time.monotonic()
        if run.ends_at == math.inf:
            self._channels.to_call.write(self._link.send(Cancel(self._link.seq, reason)))
        run.ends_at = min(run.ends_at, now + grace_s)
        self._end_at(run, run.ends_at if run.heeds else min(run.ends_at, now + CANCEL_GRACE_S))

    def on_heeds(self, run: Run) -> None:
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
        self.intake.catch_up()
        if self.run is run and not (run.heeds and time.monotonic() < run.ends_at):  # it may have read `ctx.cancelled`
            self.end(Outcome(ending="cancelled"))

    # -- what it ends with --------------------------------------------------------------------------------------------

    @owned
    def end(self, outcome: Outcome) -> None:
        """End the running call now, with this outcome unless one is decided. Its processes are swept afterwards."""
        run = self.run
        self.intake.catch_up()
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
        if run is not None and self.verdict is None and self._machine.takes(Event.EXCEEDED):
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

    def on_endless_pipe(self) -> None:
        self.report("somebody still writes to the pipes of a call whose processes are gone")
        self._cell.on(Event.KILLED)

    @owned
    def _on_deadline(self) -> None:
        run = self.run
        self.intake.catch_up()  # a result that is already in the pipe is in time
        if run is not None and self.run is run and self.verdict is None:
            self._cell.on(Event.TIMED_OUT)

    def lose(self, error: Exception) -> None:
        """Make the running call a lost one, whatever was decided before: a step has raised this."""
        self.verdict = Outcome(ending="lost", reason="fault")
        if self.run is not None:
            self._reactor.guarded(None, self.run.on_incident, f"a step of the supervisor failed: {error!r}")

    def judge_lateness(self) -> None:
        """Decide the outcome of a call at its deadline: a timeout, or the limit that it has exceeded."""
        resource = self._meter.evidence.exceeded() or self._memory_or_processes()
        self.verdict = Outcome(ending="limit", resource=resource) if resource else Outcome(ending="timeout")

    def judge_exit(self, exited: Exited) -> None:
        """Decide the outcome of a call whose process has ended. Its answer may still be in the pipe."""
        if self.run is not None:
            self.intake.drain()
        if self.run is not None:
            self.verdict = self.verdict or self._outcome_of_exit(self.run, exited)
            self._meter.account_exit(self.run, exited)

    def _outcome_of_exit(self, run: Run, exited: Exited) -> Outcome:
        if self._link.partial and exited.code >= 0:  # a killed process may leave half a frame
            run.on_incident("protocol violation: half a frame")
            return Outcome(ending="violation", message="half a frame: the call process ended within one")
        # The account of an exited process covers its whole life, and the children that it waited for.
        cpu_s = self._meter.evidence.account(math.inf).cpu_s if self._kept else exited.cpu_s
        resource = limit_of_exit(exited.code, cpu_s, run.limits) or self._memory_or_processes()
        if resource:
            return Outcome(ending="limit", resource=resource, code=exited.code)
        return Outcome(ending="exited", code=exited.code)

    def _memory_or_processes(self) -> str:
        if self._meter.evidence.oom_killed():
            return "memory"
        return "processes" if self._meter.evidence.forks_refused() else ""

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

    # -- the end of a call --------------------------------------------------------------------------------------------

    def measure(self) -> None:
        """Note what the call has used, while its processes exist."""
        if self.run is not None:
            self._meter.measure(self.run)

    def count_to_the_end(self) -> None:
        """After the sweep of a call whose outcome is decided, add its last output and use of resources."""
        if self.run is not None:
            self.intake.drain()
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
            intake = self.intake
            run.used["sent_bytes"], run.used["received_bytes"] = self._sent, intake.received
            outcome = intake.with_printed(outcome)
            if run.last_progress is not None:
                outcome = replace(outcome, progress=run.last_progress)
            if self.listener is not None:
                self.listener.end()
            ending = run.on_ended()
        except Exception as error:  # of a journal, for example: the caller must still get the result
            self.fail(error)
        run.end(outcome, now, later=ending)
        if run.exclusive:
            self._pool.on_call_ended(run)

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
        intake = self.intake
        self._link.next_kept_call()
        if intake.paused is not None:
            intake.read_on()
        if intake.received > PIPE_BYTES:
            narrow(self._channels.frames)
        if self._sent > PIPE_BYTES:
            narrow(self._channels.calls)
        if self._leaving is not None:
            self.release()

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
            self.intake.forget()
