"""The zygotes: which one makes a cell, when another is started, and what happens if one dies or hangs."""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from toolcell.errors import SandboxUnavailableError
from toolcell.wire.messages import Failed, MakeCell
from toolcell.workplaces.record import RunRecord
from toolcell_sandbox.order import Particulars
from toolcell_sandbox.report import SandboxReport
from toolcell_sandbox.view import Bind

from .cell import Cell
from .deadlines import Deadline, Deadlines, Patience
from .interface import SupervisorStatus
from .reactor import Reactor, release
from .run import SOON_S, Outcome
from .zygote import GRACE_S, ZygoteProcess

_log = logging.getLogger("toolcell.pool")
MOST_ASKED = 32  # unanswered requests to one zygote; its socket holds some hundred
BUSY_ZYGOTE = 2  # unanswered requests with which another zygote is started
STUCK_S = 20.0  # a zygote answers within milliseconds; after this silence it was stopped, or hangs
RESTARTS: Final = 5  # setbacks after which the next zygote is started at once
FIRST_PAUSE_S: Final = 0.25  # about as long as a start takes; doubled with each setback
MOST_PAUSE_S: Final = 10.0  # a start takes 0.33 s of a core, so at worst 3 % of one core are lost
HEALTHY_S: Final = 10.0  # after so long without a setback, while zygotes lived, earlier setbacks are forgotten
_now = time.monotonic


class Fleet:
    """The zygotes of one supervisor. False in a boolean context if there is no zygote now."""

    def __init__(
        self,
        reactor: Reactor,
        deadlines: Deadlines,
        record: RunRecord,
        *,
        on_not_bound: Callable[[Cell, Failed], None],
        on_capacity: Callable[[], None],
        on_pause: Callable[[], None],
        size: int = 0,
        allow_missing: frozenset[str] = frozenset(),
        preload: Sequence[str] | None = None,
    ) -> None:
        """`size` is the most zygotes, 0 for a number that fits the machine. `preload` are the libraries that most cells
        will need, None for all that a zygote knows.

        `on_not_bound` is called for a prewarmed cell whose session's paths could not be put in place, `on_capacity`
        when more cells can be requested, and `on_pause` when there is no zygote and the next is started at
        `resumes_at`.
        """
        self.report = SandboxReport((), "rootless")
        self.zygotes: list[ZygoteProcess] = []
        self.size = size or max(1, min(4, os.cpu_count() or 1))
        self.resumes_at = 0.0  # if there is no zygote
        self._on_not_bound = on_not_bound
        self._on_capacity = on_capacity
        self._on_pause = on_pause
        self._reactor = reactor
        self._deadlines = deadlines
        self._record = record
        self._allow_missing = allow_missing
        self._preload = preload
        self._open = False  # whether dead zygotes are replaced
        self._made: dict[int, tuple[Cell, ZygoteProcess]] = {}  # the living cells, each with its zygote
        self._recovery = Recovery()
        self._resuming: Deadline | None = None
        self._lost_at = 0.0  # the last death of a zygote

    def __bool__(self) -> bool:
        return bool(self.zygotes)

    def status(self) -> SupervisorStatus:
        """What the kernel offers here, as probed at the start, and the present state of the zygotes."""
        now = _now()
        pause = None if self._resuming is None else max(0.0, self.resumes_at - now)
        problem, deaths = self._recovery.problem_now(now), self._recovery.deaths
        mechanisms, identity, faults = self.report.mechanisms, self.report.identity, self._reactor.faults
        return SupervisorStatus(mechanisms, identity, len(self.zygotes), deaths, pause, problem, faults)

    async def start(self) -> SandboxReport:
        """Start one zygote, which reports what the kernel offers. Raises SandboxUnavailableError, or SandboxError if a
        mechanism is missing that is not allowed to be."""
        first = self._new(None)
        self.report = SandboxReport.from_wire(dict(await first.started()))
        self.report.require(self._allow_missing)
        self._open = True
        return self.report

    def stand_down(self) -> None:
        """Replace no zygote from now on."""
        self._open = False

    def close(self) -> None:
        """End the zygotes, and with them every cell."""
        self.stand_down()
        zygotes, self.zygotes = self.zygotes, []
        until = _now() + GRACE_S  # for all of them together
        for zygote in zygotes:
            zygote.hang_up()
        for zygote in zygotes:
            zygote.close(max(0.0, until - _now()))

    def _new(self, report: Mapping[str, object] | None) -> ZygoteProcess:
        zygote = ZygoteProcess(self._reactor, self._on_spawned, self._on_bound, self._on_failed, self._on_lost)
        zygote.start(report, self._allow_missing, self._preload)
        self.zygotes.append(zygote)
        self._record.process(zygote.pid)
        return zygote

    # -- cells --------------------------------------------------------------------------------------------------------

    @property
    def has_capacity(self) -> bool:
        """Whether another cell can be requested now."""
        return bool(self.zygotes) and len(self._next().asked) < MOST_ASKED

    def make(self, cell: Cell, message: MakeCell, particulars: Particulars) -> None:
        """Ask for a cell. `particulars` are for the cell only. Raises Unpackable or OSError if this cannot be sent."""
        zygote = self._least_busy()
        self._made[cell.id] = cell, zygote
        owes = bool(zygote.asked)
        zygote.make(message, particulars, cell.channels.theirs)
        cell.channels.close_child_ends()
        if zygote.patience is None:
            zygote.patience = Patience(self._deadlines, STUCK_S, partial(self._on_silence, zygote))
        elif not owes:
            zygote.patience.renew()

    def bind(self, cell: Cell, paths: Sequence[Bind]) -> None:
        """Have these paths put in place in a prewarmed cell. Raises as `make` does."""
        self._made[cell.id][1].bind(cell.id, paths)

    def forget(self, id: int) -> None:
        """Forget a cell that is gone."""
        self._made.pop(id, None)

    def _next(self) -> ZygoteProcess:
        return min(self.zygotes, key=lambda each: (not each.has_started, len(each.asked)))

    def _least_busy(self) -> ZygoteProcess:
        """The least busy zygote, preferably a started one. If it is busy too, another one is started for later calls:
        the start takes 0.33 s of a core, which does not pay for a few cells.
        """
        zygote = self._next()
        busy = len(zygote.asked) >= BUSY_ZYGOTE and len(self.zygotes) < self.size
        if busy and not self._recovery.problem_now(_now()):
            try:
                self._new(self.report.to_wire())
            except SandboxUnavailableError as error:
                _log.warning("no more than %d zygotes: %s", len(self.zygotes), error)
        return zygote

    def _on_spawned(self, id: int, pid: int, pidfd: int, listener: int) -> None:
        self._record.process(pid)
        if id not in self._made:
            _log.error("a zygote has made the cell %d, which is given up: it ends with its control socket", id)
            for fd in (pidfd, listener) if listener >= 0 else (pidfd,):
                release(os.close, fd)
            return
        cell, zygote = self._made[id]
        cell.on_spawned(pid, pidfd, listener)
        if len(zygote.asked) == MOST_ASKED - 1:
            self._on_capacity()

    def _on_bound(self, id: int) -> None:
        if id in self._made:  # otherwise it has died since
            self._made[id][0].on_bound()

    def _on_failed(self, id: int, failure: Failed) -> None:
        """A cell could not be made, or its session's paths could not be put in place."""
        if id not in self._made:
            return  # it has died since
        cell = self._made[id][0]
        if cell.binding is None:
            cell.on_not_spawned(failure)
        else:
            self._on_not_bound(cell, failure)

    # -- zygotes that die or hang -------------------------------------------------------------------------------------

    def hear(self, id: int) -> None:
        """Read what the zygote of this cell has sent."""
        if id in self._made:
            self._made[id][1].look()

    def _on_silence(self, zygote: ZygoteProcess) -> None:
        """End a zygote that has said nothing for `STUCK_S` seconds, and owes an answer."""
        owed, zygote.patience = set(zygote.asked), None
        zygote.look()
        if zygote not in self.zygotes or not zygote.asked:
            return
        if zygote.asked == owed:
            _log.error("%r has said nothing for %g s and is ended", zygote, STUCK_S)
            zygote.kill()
        else:
            zygote.patience = Patience(self._deadlines, STUCK_S, partial(self._on_silence, zygote))

    def was_absent(self, since: float) -> bool:
        """Whether a zygote has died since then, or none has started after the last death."""
        return self._lost_at >= since or not any(zygote.has_started for zygote in self.zygotes)

    def absence(self) -> Outcome:
        """The outcome of a call that finds no zygote, or none that lives for long enough to make its cell."""
        pause_s = round(max(SOON_S, self.resumes_at - _now()), 2)
        what = f"No zygote could make a cell: {self._recovery.deaths} have died, or could not be started."
        cure = "Retry then. If it persists, free memory or raise the limits on processes and open files; see the log."
        message = f"{what} The next attempt is in {pause_s:g} s. {cure}"
        return Outcome(ending="unavailable", message=message, cure=cure, retry_after_s=pause_s)

    def _on_lost(self, zygote: ZygoteProcess) -> None:
        """Handle a zygote's death. Its cells die with it. A new zygote replaces it, unless zygotes keep dying."""
        if zygote not in self.zygotes:
            return
        self.zygotes.remove(zygote)
        self._lost_at = _now()
        if not self._open:
            return
        _log.error("%r has died: %s", zygote, zygote.last_words() or "it said nothing")
        try:
            self.start_at(self._recovery.on_death(_now()))
        finally:
            for cell in [cell for cell, maker in self._made.values() if maker is zygote]:
                cell.orphan()

    def start_at(self, when: float) -> None:
        """Start a zygote at `when`, or now. Until then, calls that have no time to wait are ended."""
        if self._resuming is not None:
            self._deadlines.cancel(self._resuming)
            self._resuming = None
        if when <= _now():
            self._start()
            return
        self.resumes_at = when
        self._resuming = self._deadlines.at(when, self._start)
        if not self.zygotes:
            self._on_pause()

    def _start(self) -> None:
        self._resuming = None
        if not self._open:
            return
        try:
            self._new(self.report.to_wire())
        except SandboxUnavailableError as error:
            _log.error("%s", error)
            self.start_at(max(_now() + SOON_S, self._recovery.on_setback(_now(), str(error))))
            return
        self._on_capacity()


class Recovery:
    """Decides when a dead zygote is replaced: at once, or after a growing pause. Pure: times in, times out.

    A setback is a zygote's death or a failed start. Times are time.monotonic seconds.
    """

    def __init__(self) -> None:
        self.deaths = 0
        self.problem = ""  # the last one, "" after `HEALTHY_S` without one
        self._recent = 0
        self._pause_s = 0.0
        self._well_since = 0.0  # the last setback, or the start after its pause

    def on_death(self, now: float) -> float:
        """Note a zygote's death. Returns when the next zygote may be started."""
        self.deaths += 1
        return self.on_setback(now, "A zygote, the process that makes cells, has ended.")

    def on_setback(self, now: float, problem: str) -> float:
        """Note a setback. Returns when the next zygote may be started."""
        self._forget(now)
        self.problem = problem
        self._recent += 1
        if self._recent > RESTARTS:
            self._pause_s = min(MOST_PAUSE_S, 2 * self._pause_s or FIRST_PAUSE_S)
        self._well_since = now + self._pause_s
        return self._well_since

    def problem_now(self, now: float) -> str:
        """The last problem, "" if it is over."""
        self._forget(now)
        return self.problem

    def _forget(self, now: float) -> None:
        if self._recent and now - self._well_since >= HEALTHY_S:
            self._recent, self._pause_s, self.problem = 0, 0.0, ""
