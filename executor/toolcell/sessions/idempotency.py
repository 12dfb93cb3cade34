"""Calls with an idempotency key: one of them runs, and the others get its result."""

import json
import logging
import math
import sqlite3
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol
from weakref import WeakKeyDictionary

import anyio

from toolcell.errors import UsageError
from toolcell.store.journal.cures import cure_of
from toolcell.store.state.results import KeptCall, ResultStore
from toolcell.wire.budget import MIB, is_beyond, memory_of, oldest_beyond
from toolcell_tools.errors import Cancelled, SandboxUnavailable, Timeout
from toolcell_tools.result import ToolResult

_log = logging.getLogger("toolcell.journal")
MAX_KEPT = 1_000
KEPT_BYTES = 16 * MIB
"""The most results of a session that are kept in memory, and the most bytes that their calls have sent. The oldest is
evicted first."""


class Fate(Protocol):
    """What is known of a call whose caller was cancelled (`dispatch.call_context.CallFate`)."""

    delivered: bool
    effect: bool


@dataclass(slots=True)
class _Known:
    """A digest of the tool and the arguments of a key. `result` is None while the call runs."""

    asked: str
    ended: anyio.Event
    result: ToolResult | None = None


_Live = dict[tuple[str, str], _Known]
_live: WeakKeyDictionary[ResultStore, _Live] = WeakKeyDictionary()
"""The calls of all sessions of a store that run, or whose results could not be kept, by session and key. A session that
is opened again while a call of the closed one still ends must not run it a second time."""


class IdempotentCalls:
    """The calls of one session that have a key.

    A call that failed is forgotten, so the next call with its key runs. An error whose outcome is unknown is kept: to
    run the call again might do its work twice. The same holds for a call whose caller was cancelled. With a store, keys
    hold after a restart.
    """

    def __init__(self, session_id: str = "", store: ResultStore | None = None) -> None:
        self._session_id = session_id
        self._store = store
        self._known: dict[str, _Known] = {}
        self._live: _Live = {} if store is None else _live.setdefault(store, {})

    async def once(
        self,
        key: str,
        asked: tuple[str, str],
        run: Callable[[], Awaitable[ToolResult]],
        call_id: str = "",
        fate: Fate | None = None,
        wait_s: float = math.inf,
    ) -> ToolResult:
        """The result of the call with this key. The call is run if there is no result. `asked` is its tool and
        arguments. `fate` says after a cancellation whether the call may have had an effect. If another caller's call
        with the key runs longer than `wait_s` seconds, the result is a Timeout, and the call goes on. Raises UsageError
        if the key belongs to another call.
        """
        mark, end = (self._session_id, key), anyio.current_time() + wait_s
        digest = digest_of_call(asked)
        while (known := self._known.get(key) or self._live.get(mark)) is not None:
            if known.asked != digest:
                raise _another(key)
            if known.result is not None:
                return known.result
            with anyio.CancelScope(deadline=end):
                await known.ended.wait()
            if not known.ended.is_set():
                return self._still_runs(call_id, wait_s)
        kept = KeptCall("key", self._session_id, key, digest, call_id, None)
        try:
            earlier = None if self._store is None else self._store.begun_or_kept(kept)
        except sqlite3.Error as error:  # a full disk, for example
            return self._unkept(call_id, error)
        if earlier is not None:
            if earlier.asked != kept.asked:
                raise _another(key)
            if earlier.result is not None:
                return earlier.result
        mine = self._known[key] = self._live[mark] = _Known(digest, anyio.Event())
        try:
            result = await run()
            if not result.confirmation and (result.error is None or result.error.outcome == "outcome unknown"):
                mine.result = result
            return result
        except BaseException:
            if fate is not None and fate.delivered and fate.effect:
                mine.result = self._cut_short(call_id)
            raise
        finally:
            if self._keep(kept, mine.result) or mine.result is None:
                del self._live[mark]
            if mine.result is None:
                del self._known[key]
            else:
                self._make_room()
            mine.ended.set()

    def _keep(self, call: KeptCall, result: ToolResult | None) -> bool:
        """Keep the result, or forget the call if there is none. Returns whether that has worked. After a failure, the
        next supervisor finds a call without a result, and asks the journal what became of it."""
        try:
            if self._store is None:
                return True
            if result is None:
                self._store.forget(call)
            else:
                self._store.finish(call, result)
        except (sqlite3.Error, ValueError):  # the latter: text with a lone surrogate, such as the id of the call
            _log.exception("the result of the call %r cannot be kept for its idempotency key", call.call_id)
            return False
        return True

    def _unkept(self, call_id: str, error: sqlite3.Error) -> ToolResult:
        _log.error("the idempotency key of the call %r cannot be kept: %s", call_id, error)
        cure = f"The state directory: {cure_of(error)}"
        message = f"The call was not run, because its idempotency key could not be kept: {error}. {cure}"
        why = SandboxUnavailable(message=message, mechanism="", cure=cure)
        return ToolResult.build(error=why, call_id=call_id, session_id=self._session_id)

    def _still_runs(self, call_id: str, wait_s: float) -> ToolResult:
        message = f"The call with this idempotency key still runs after {wait_s:.3g} s. Ask for its result by the key."
        error = Timeout(message=message, elapsed=wait_s, delivered=True, effect=True)
        return ToolResult.build(error=error, call_id=call_id, session_id=self._session_id)

    def _cut_short(self, call_id: str) -> ToolResult:
        message = "The caller of the call with this idempotency key was cancelled while the call ran."
        error = Cancelled(message=message, delivered=True, effect=True)
        return ToolResult.build(error=error, call_id=call_id, session_id=self._session_id)

    def _make_room(self) -> None:
        finished = {key: size_of_result(known.result) for key, known in self._known.items() if known.result is not None}
        for key in oldest_beyond(finished, MAX_KEPT, KEPT_BYTES):
            del self._known[key]


def size_of_result(result: ToolResult) -> int:
    """About the bytes that a result takes: those that its process has sent, or the memory of what a host tool gave."""
    return result.usage.received_bytes or memory_of(result.output)


def json_of(arguments: object) -> str:
    """The arguments as JSON, to compare calls. Arguments that are no JSON data, or are too many values, are unlike all
    others; their call is refused later."""
    try:
        if is_beyond(arguments):
            return f"too large: {uuid.uuid4().hex}"
        return json.dumps(arguments, sort_keys=True, default=repr)
    except Exception:  # also of an object's `repr`; RecursionError if too deep
        return f"no JSON data: {uuid.uuid4().hex}"


def digest_of_call(asked: tuple[str, str]) -> str:
    """A digest of a call's tool and arguments, in hexadecimal."""
    return sha256("\0".join(asked).encode("utf-8", "surrogatepass")).hexdigest()


def _another(key: str) -> UsageError:
    return UsageError(f"The idempotency key {key!r} is another call's. A key stands for one call.")
