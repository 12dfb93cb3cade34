"""Decide when a dead zygote is replaced: at once, or after a growing pause. Pure: times in, times out."""

from dataclasses import dataclass
from typing import Final

from toolcell_sandbox.report import SandboxReport

RESTARTS: Final = 5  # setbacks after which the next zygote is started at once
FIRST_PAUSE_S: Final = 0.25  # about as long as a start takes; doubled with each setback
MOST_PAUSE_S: Final = 10.0  # a start takes 0.33 s of a core, so at worst 3 % of one core are lost
HEALTHY_S: Final = 10.0  # after so long without a setback, while zygotes lived, earlier setbacks are forgotten


class Recovery:
    """Track failures of zygotes. A setback is a zygote's death or a failed start. Times are time.monotonic seconds."""

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


@dataclass(frozen=True)
class SupervisorStatus(SandboxReport):
    """The sandbox report of the start, and the present state of the zygotes, the processes that make cells."""

    zygotes: int = 0
    """The number of live zygotes."""
    zygote_deaths: int = 0
    """The number of zygotes that have died since the start."""
    next_attempt_s: float | None = None
    """Seconds until the next zygote is started, if the pool pauses after a series of deaths."""
    problem: str = ""
    """The last problem with a zygote, "" if none is recent."""
    faults: int = 0
    """The number of the supervisor's own steps that have failed. Each has ended its cell or its zygote, or was tried
    again; the log has the errors."""

    def __str__(self) -> str:
        pause = "" if self.next_attempt_s is None else f", next attempt in {self.next_attempt_s:.2g} s"
        lines = [super().__str__(), f"zygotes: {self.zygotes} alive, {self.zygote_deaths} died{pause}"]
        if self.faults:
            lines.append(f"failed steps of the supervisor: {self.faults}")
        return "\n".join([*lines, self.problem] if self.problem else lines)
