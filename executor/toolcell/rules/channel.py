"""The policy of a channel: what a session's calls may do there, and how often. No code here sends anything."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from toolcell_sandbox.errors import refusing
from toolcell_tools.handles import OPERATIONS

__all__ = ["LEVELS", "ChannelLevel", "ChannelPolicy", "TokenBucket", "allowed_at"]

ChannelLevel = Literal["none", "ask", "reply", "broadcast"]
LEVELS: Final = cast("tuple[ChannelLevel, ...]", get_args(ChannelLevel))
_LEAST: Final = {
    name.removeprefix("channel."): cast("ChannelLevel", row.level) for name, row in OPERATIONS.items() if row.level
}
"""The lowest level that allows each operation."""


def allowed_at(level: ChannelLevel) -> frozenset[str]:
    """The operations that a level allows."""
    rank = LEVELS.index(level)
    return frozenset(name for name, least in _LEAST.items() if LEVELS.index(least) <= rank)


@refusing
@dataclass(frozen=True, kw_only=True)
class ChannelPolicy:
    """What calls may do on their session's channel, and how often.

    `level` is "none" (no channel), "ask" (ask its people, and read), "reply" (also send, react, edit and upload in the
    conversation) or "broadcast" (also send to other places, and pin). A token bucket holds `burst` tokens and gains
    `per_s` a second. Every operation but reading takes a token. Raises ValueError for a wrong value.
    """

    level: ChannelLevel = "broadcast"
    burst: int = 60
    per_s: float = 1.0  # Slack's limit for one conversation

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ValueError(f"ChannelPolicy.level is not a level: {self.level!r}. The levels are {', '.join(LEVELS)}.")
        for name, kinds in (("burst", (int,)), ("per_s", (int, float))):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < math.inf:
                raise ValueError(f"ChannelPolicy.{name} is not a finite number above zero: {value!r}. Pass one.")

    def narrowed(self, other: "ChannelPolicy") -> "ChannelPolicy":
        """The policy that allows what both allow."""
        if other == self:
            return self
        return ChannelPolicy(
            level=LEVELS[min(LEVELS.index(self.level), LEVELS.index(other.level))],
            burst=min(self.burst, other.burst),
            per_s=min(self.per_s, other.per_s),
        )

    def is_narrower_than(self, other: "ChannelPolicy") -> bool:
        """Whether this policy allows nothing that the other does not. True for equal policies."""
        return self.narrowed(other) == self


class TokenBucket:
    """At most `burst` tokens, refilled with `per_s` a second. `now` gives the time in seconds."""

    __slots__ = ("_at", "_burst", "_now", "_per_s", "_tokens")

    def __init__(self, burst: int, per_s: float, now: Callable[[], float]) -> None:
        self._burst, self._per_s, self._now = burst, per_s, now
        self._tokens, self._at = float(burst), now()

    @property
    def remaining(self) -> int:
        """The whole tokens in the bucket."""
        self._refill()
        return int(self._tokens)

    @property
    def wait_s(self) -> float:
        """The seconds until there is a token; 0.0 if there is one."""
        self._refill()
        return max(0.0, (1.0 - self._tokens) / self._per_s)

    def take(self) -> None:
        """Take a token. The caller has checked that `wait_s` is 0."""
        self._refill()
        self._tokens -= 1.0

    def _refill(self) -> None:
        now = self._now()
        self._tokens = min(float(self._burst), self._tokens + (now - self._at) * self._per_s)
        self._at = now
