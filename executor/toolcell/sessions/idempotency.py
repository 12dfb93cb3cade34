"""Calls with an idempotency key: one of them runs, and the others get its result."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256

import anyio

from toolcell.errors import UsageError
from toolcell.state.results import KeptCall, ResultStore
from toolcell_tools.result import ToolResult

MAX_KEPT = 1_000
"""The most results that are kept in memory; the oldest is evicted first."""


@dataclass(slots=True)
class _Known:
    """The tool and the arguments of a key. `result` is None while the call runs."""

    asked: tuple[str, str]
    ended: anyio.Event
    result: ToolResult | None = None


class IdempotentCalls:
    """The calls of one session that have a key.

    A call that failed is forgotten, so the next call with its key runs. An error whose outcome is unknown is kept: to
    run the call again might do its work twice. A call whose caller was cancelled is forgotten. With a store, keys hold
    after a restart.
    """

    def __init__(self, session_id: str = "", store: ResultStore | None = None) -> None:
        self._session_id = session_id
        self._store = store
        self._known: dict[str, _Known] = {}

    async def once(
        self, key: str, asked: tuple[str, str], run: Callable[[], Awaitable[ToolResult]], call_id: str = ""
    ) -> ToolResult:
        """The result of the call with this key. The call is run if there is no result. `asked` is its tool and
        arguments. Raises UsageError if the key belongs to another call.
        """
        while key in self._known:
            known = self._known[key]
            if known.asked != asked:
                raise _another(key)
            if known.result is not None:
                return known.result
            await known.ended.wait()
        kept = KeptCall("key", self._session_id, key, digest_of_call(asked), call_id, None)
        if self._store is not None:
            earlier = self._store.find("key", self._session_id, key)
            if earlier is not None and earlier.asked != kept.asked:
                raise _another(key)
            if earlier is not None and earlier.result is not None:
                return earlier.result
            self._store.begin(kept)
        mine = self._known[key] = _Known(asked, anyio.Event())
        try:
            result = await run()
            if not result.confirmation and (result.error is None or result.error.outcome == "outcome unknown"):
                mine.result = result
            if self._store is not None:
                self._keep(kept, mine.result)
            return result
        finally:
            if mine.result is None:
                del self._known[key]
            else:
                self._make_room()
            mine.ended.set()

    def _keep(self, call: KeptCall, result: ToolResult | None) -> None:
        assert self._store is not None
        if result is None:
            self._store.forget(call)
        else:
            self._store.finish(call, result)

    def _make_room(self) -> None:
        finished = [key for key, known in self._known.items() if known.result is not None]
        if len(finished) > MAX_KEPT:
            del self._known[finished[0]]


def digest_of_call(asked: tuple[str, str]) -> str:
    """A digest of a call's tool and arguments, in hexadecimal."""
    return sha256("\0".join(asked).encode("utf-8", "surrogatepass")).hexdigest()


def _another(key: str) -> UsageError:
    return UsageError(f"The idempotency key {key!r} is another call's. A key stands for one call.")
