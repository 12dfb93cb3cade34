"""Concurrency limits: how many calls of a tool, or of a session kind, may run at the same time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from toolcell.errors import UsageError
from toolcell_tools.capability import SessionKind

__all__ = ["Concurrency"]


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
