"""Limits of several calls: how much those of a session and of the sessions below it use together, and how many run at
the same time."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Optional, cast

from toolcell.errors import UsageError
from toolcell_tools.capability import SessionKind

__all__ = ["Concurrency", "SessionUsage", "UsageLimits", "UsageMeter"]

LEAST_WALL_S: Final = 0.01
"""With less time than this left, no call begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageLimits:
    """The most that the calls of a session and of the sessions below it may use; None for no limit.

    `calls` counts attempts that were run. `cpu_s` and `wall_s` are in seconds. `bytes` are those over the calls' pipes,
    in both directions. A call that would begin after a limit is reached is denied. A running call is ended by its own
    limits only, so calls that run side by side may exceed the sum; `wall_s` also bounds the time of a call that begins.
    """

    calls: int | None = None
    cpu_s: float | None = None
    wall_s: float | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value: object = getattr(self, each.name)
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not (is_number and 0 < float(str(value)) < math.inf):
                raise UsageError(
                    f"UsageLimits.{each.name} is not a number above zero: {value!r}. Leave it out for none."
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUsage:
    """What the calls of a session and of the sessions below it have used so far, in the units of `UsageLimits`."""

    calls: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    bytes: int = 0


class UsageMeter:
    """Adds up what the calls of one session use. What is added here is added to the meter above, too."""

    __slots__ = ("_above", "_limits", "bytes", "calls", "cpu_s", "wall_s")

    def __init__(self, limits: UsageLimits, above: Optional["UsageMeter"] = None) -> None:
        self._limits = limits
        self._above = above
        self.calls = self.bytes = 0
        self.cpu_s = self.wall_s = 0.0

    @property
    def limits(self) -> UsageLimits:
        return self._limits

    def restore(self, usage: SessionUsage) -> None:
        """Begin with what was used before, in a session that is resumed after a restart."""
        self.calls, self.cpu_s, self.wall_s, self.bytes = usage.calls, usage.cpu_s, usage.wall_s, usage.bytes

    @property
    def usage(self) -> SessionUsage:
        return SessionUsage(calls=self.calls, cpu_s=self.cpu_s, wall_s=self.wall_s, bytes=self.bytes)

    def begin(self) -> str:
        """Count a call that begins. Returns the reached limit in words, "" if the call may run."""
        for meter in self._chain():
            reached = meter._reached()
            if reached:
                return reached
        for meter in self._chain():
            meter.calls += 1
        return ""

    def take_back(self) -> None:
        """Undo `begin` for a call that was not run."""
        for meter in self._chain():
            meter.calls -= 1

    def add(self, *, cpu_s: float, wall_s: float, bytes: int) -> None:
        """Add what a call has used."""
        for meter in self._chain():
            meter.cpu_s += cpu_s
            meter.wall_s += wall_s
            meter.bytes += bytes

    def wall_left_s(self) -> float:
        """The seconds that a call that begins now may take."""
        limits = ((meter._limits.wall_s, meter.wall_s) for meter in self._chain())
        return min((limit - used for limit, used in limits if limit is not None), default=math.inf)

    def _reached(self) -> str:
        for each in fields(UsageLimits):
            limit: float | None = getattr(self._limits, each.name)
            least = LEAST_WALL_S if each.name == "wall_s" else 0.0
            if limit is not None and getattr(self, each.name) >= limit - least:
                return f"{each.name} = {limit:,}"
        return ""

    def _chain(self) -> Iterator["UsageMeter"]:
        meter: UsageMeter | None = self
        while meter is not None:
            yield meter
            meter = meter._above


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """The most calls that run at the same time: by the tool's name, and by the kind of the session.

    A call above a limit waits, within its own time. Calls of other tools overtake it. Sessions take turns.
    """

    tools: Mapping[str, int] = field(default_factory=dict[str, int])
    kinds: Mapping[SessionKind, int] = field(default_factory=dict[SessionKind, int])

    def __post_init__(self) -> None:
        for name, keys in (("tools", None), ("kinds", tuple(SessionKind))):
            given: Any = getattr(self, name)
            if not isinstance(given, Mapping):
                raise UsageError(f"Concurrency.{name} is not a mapping: {given!r}. Write {name}={{…: 4}}.")
            for key, limit in cast("Mapping[object, object]", given).items():
                if keys is not None and key not in keys:
                    raise UsageError(f"Concurrency: there is no session kind {key!r}.")
                if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
                    raise UsageError(f"Concurrency.{name}[{key!r}] is not a number of calls from 1: {limit!r}.")
