"""The circuit breaker: a tool whose calls keep crashing is not called for a while."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from toolcell.rules.circuit_breaker import CircuitBreaker

__all__ = ["Breaker"]

MAX_KEPT: Final = 10_000


@dataclass(slots=True)
class _Circuit:
    """The crashes of one tool in one session since its last success."""

    name: str
    crashes: int = 0
    last_at: float = 0.0
    openings: int = 0
    closed_at: float = 0.0
    """When the next call may try; 0 while the circuit is closed."""
    tried_at: float = 0.0
    """When a call began to try; 0 if none does."""
    tried_by: str = ""
    """The id of that call."""

    def is_tried_by(self, call_id: str) -> bool:
        """Whether this call tries now."""
        return self.tried_at > 0 and self.tried_by == call_id


@dataclass(slots=True)
class Breaker:
    """The circuits of all tools, by fingerprint and session: what one session does to a tool denies it to no other. A
    tool without a crash since its last success has none.

    While a circuit is open, only the call that tries can open it for longer, or close it. Calls that began before the
    circuit opened change nothing, however many of them there are.
    """

    now: Callable[[], float] = time.monotonic
    settings: CircuitBreaker = field(default_factory=CircuitBreaker)
    circuits: dict[tuple[str, str], _Circuit] = field(default_factory=dict[tuple[str, str], _Circuit])
    """Empty if no tool has crashed since its last success."""

    def refusal_s(self, tool: str, session_id: str, call_id: str = "") -> float:
        """The seconds for which calls of the tool are refused in this session; 0 if this call may run."""
        if not self.circuits:
            return 0.0
        now, own = self.now(), self.circuits.get((tool, session_id))
        if own is not None and own.closed_at:
            if now < own.closed_at:
                return own.closed_at - now
            if own.tried_at and now - own.tried_at < self.settings.longest_s:
                return self.settings.first_s
            own.tried_at, own.tried_by = now, call_id
            return 0.0
        return 0.0

    def open_circuits(self) -> list[tuple[str, str, float]]:
        """The tools that are refused now: the name, the session, and for how many seconds."""
        now = self.now()
        return [
            (each.name, session_id, each.closed_at - now)
            for (_tool, session_id), each in self.circuits.items()
            if each.closed_at > now
        ]

    def crashed(self, tool: str, session_id: str, call_id: str = "", name: str = "") -> bool:
        """Note a crash of the tool, which has this name. Returns whether the circuit has opened by it."""
        most, key = self.settings, (tool, session_id)
        if not most.crashes:
            return False
        own = self.circuits.get(key)
        if own is None:
            if len(self.circuits) >= MAX_KEPT:
                self.circuits.pop(next(iter(self.circuits)))
            own = self.circuits[key] = _Circuit(name)
        if own.closed_at and not own.is_tried_by(call_id):
            return False
        now = self.now()
        own.crashes = own.crashes + 1 if now - own.last_at <= most.within_s or own.closed_at else 1
        own.last_at = now
        if own.crashes < most.crashes:
            return False
        own.closed_at = now + _pause_s(most, own.openings)
        own.openings += 1
        own.tried_at = 0.0
        return True

    def worked(self, tool: str, session_id: str, call_id: str = "") -> bool:
        """Note a call that did not crash. Returns whether it has closed the circuit."""
        own = self.circuits.get((tool, session_id))
        if own is None or (own.closed_at and not own.is_tried_by(call_id)):
            return False
        del self.circuits[tool, session_id]
        return own.closed_at > 0

    def gave_up(self, tool: str, session_id: str, call_id: str = "") -> None:
        """Note a call that ended without showing whether the tool works, such as a cancelled call."""
        own = self.circuits.get((tool, session_id))
        if own is not None and own.is_tried_by(call_id):
            own.tried_at = 0.0

    def forget(self, session_id: str) -> None:
        """Forget a session that has closed."""
        for key in [key for key in self.circuits if key[1] == session_id]:
            del self.circuits[key]


def _pause_s(settings: CircuitBreaker, openings: int) -> float:
    """The seconds for which a circuit is open, after so many openings in a row before."""
    return min(settings.longest_s, settings.first_s * 2.0 ** min(openings, 60))
