"""The circuit breaker: a tool whose calls keep crashing is not called for a while."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Breaker"]

CRASHES: Final = 5
"""So many crashes of a tool in a row, in one session, open its circuit there."""
WITHIN_S: Final = 60.0
"""The crashes of a row are at most this far apart, from one to the next."""
FIRST_S, LONGEST_S = 1.0, 60.0
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


@dataclass(slots=True)
class Breaker:
    """The circuits of all tools, by fingerprint and session: what one session does to a tool denies it to no other. A
    tool without a crash since its last success has none.

    After `CRASHES` crashes in a row, calls are refused for a second. Then one call may try: if it crashes too, the time
    doubles, up to a minute; any other end closes the circuit.
    """

    now: Callable[[], float] = time.monotonic
    circuits: dict[tuple[str, str], _Circuit] = field(default_factory=dict[tuple[str, str], _Circuit])
    """Empty if no tool has crashed since its last success."""

    def refusal_s(self, tool: str, session_id: str) -> float:
        """The seconds for which calls of the tool are refused in this session; 0 if this call may run."""
        if not self.circuits:
            return 0.0
        now, own = self.now(), self.circuits.get((tool, session_id))
        if own is not None and own.closed_at:
            if now < own.closed_at:
                return own.closed_at - now
            if own.tried_at and now - own.tried_at < LONGEST_S:
                return FIRST_S
            own.tried_at = now
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

    def crashed(self, tool: str, session_id: str, name: str = "") -> bool:
        """Note a crash of the tool, which has this name. Returns whether the circuit has opened by it."""
        if len(self.circuits) >= MAX_KEPT:
            self.circuits.pop(next(iter(self.circuits)))
        now = self.now()
        own = self.circuits.setdefault((tool, session_id), _Circuit(name))
        own.crashes = own.crashes + 1 if now - own.last_at <= WITHIN_S or own.tried_at else 1
        own.last_at = now
        if own.crashes < CRASHES:
            return False
        own.closed_at = now + min(LONGEST_S, FIRST_S * 2**own.openings)
        own.openings += 1
        own.tried_at = 0.0
        return True

    def worked(self, tool: str, session_id: str) -> bool:
        """Note a call that did not crash. Returns whether it has closed the circuit."""
        own = self.circuits.pop((tool, session_id), None)
        return own is not None and own.closed_at > 0

    def gave_up(self, tool: str, session_id: str) -> None:
        """Note a call that ended without an answer to the question, such as one that was cancelled."""
        own = self.circuits.get((tool, session_id))
        if own is not None:
            own.tried_at = 0.0

    def forget(self, session_id: str) -> None:
        """Forget a session that has closed."""
        for key in [key for key in self.circuits if key[1] == session_id]:
            del self.circuits[key]
