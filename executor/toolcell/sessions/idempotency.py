"""Calls with an idempotency key: one of them runs, and the others get its result."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from toolcell.errors import UsageError
from toolcell_tools.result import ToolResult

MAX_KEPT = 1_000
"""The most results that are kept; the oldest is evicted first."""


@dataclass(slots=True)
class _Known:
    """The tool and the arguments of a key. `result` is None while the call runs."""

    asked: tuple[str, str]
    ended: anyio.Event
    result: ToolResult | None = None


class IdempotentCalls:
    """The calls of one session that have a key. A failed call is forgotten, so the next call with its key runs."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    async def once(self, key: str, asked: tuple[str, str], run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """The result of the call with this key. The call is run if there is no result. `asked` is its tool and
        arguments. Raises UsageError if the key belongs to another call.
        """
        while key in self._known:
            known = self._known[key]
            if known.asked != asked:
                raise UsageError(f"The idempotency key {key!r} is another call's. A key stands for one call.")
            if known.result is not None:
                return known.result
            await known.ended.wait()
        mine = self._known[key] = _Known(asked, anyio.Event())
        try:
            result = await run()
            if not result.is_error:
                mine.result = result
            return result
        finally:
            if mine.result is None:
                del self._known[key]
            else:
                self._make_room()
            mine.ended.set()

    def _make_room(self) -> None:
        finished = [key for key, known in self._known.items() if known.result is not None]
        if len(finished) > MAX_KEPT:
            del self._known[finished[0]]
