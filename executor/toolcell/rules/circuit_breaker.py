"""The settings of the circuit breaker: after how many crashes a tool is refused, and for how long."""

import math
from dataclasses import dataclass, fields
from typing import Any

from toolcell.errors import UsageError

__all__ = ["CircuitBreaker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    """When a tool whose process keeps crashing is refused. The times are in seconds.

    After `crashes` crashes in a row in one session, each at most `within_s` after the last, the session's calls of the
    tool are refused for `first_s`. Then one call may try. If it crashes too, the time doubles, up to `longest_s`. With
    `crashes=0`, no tool is refused.
    """

    crashes: int = 5
    within_s: float = 60.0
    first_s: float = 1.0
    longest_s: float = 60.0

    def __post_init__(self) -> None:
        crashes: Any = self.crashes
        if not isinstance(crashes, int) or isinstance(crashes, bool) or crashes < 0:
            raise UsageError(f"CircuitBreaker.crashes is not a number from 0: {crashes!r}. 0 refuses no tool.")
        for each in fields(self)[1:]:
            value: object = getattr(self, each.name)
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not (is_number and 0 < float(str(value)) < math.inf):
                raise UsageError(f"CircuitBreaker.{each.name} is not a number of seconds above zero: {value!r}.")
