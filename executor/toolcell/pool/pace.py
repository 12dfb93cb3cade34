"""The pace of a queue: how fast its calls are taken."""

from typing import Final

PACED: Final = 20  # so many calls must have been taken before there is an estimate
PACE_SHARE: Final = 0.05  # of the last time in the mean time between two of them


class Pace:
    """The mean time between two calls that are taken from a queue, while others wait: a moving average."""

    __slots__ = ("_number", "_taken_at", "mean_s")

    def __init__(self) -> None:
        self.mean_s = 0.0
        self._number = 0
        self._taken_at = 0.0

    @property
    def is_known(self) -> bool:
        """Whether enough calls were taken for an estimate."""
        return self._number >= PACED

    def take(self, now: float, *, is_last: bool) -> None:
        """Note that a call is taken. After the last one, nothing waits."""
        if self._taken_at:
            self._number += 1
            self.mean_s += (now - self._taken_at - self.mean_s) * max(1 / self._number, PACE_SHARE)
        self._taken_at = 0.0 if is_last else now
