"""A bounded cache of pages, by the rules of RFC 9111 for a shared cache. hishel decides; this module keeps the bytes.

A page is kept if it arrived whole and the server allows it. A stale page with an ETag or Last-Modified is asked for
again with If-None-Match or If-Modified-Since.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from toolcell.errors import ArgumentError

if TYPE_CHECKING:
    from hishel import AnyState, Entry, Response

    from toolcell.backends.exchange import ExchangeReply

__all__ = ["PageCache"]

Send = Callable[[Mapping[str, str]], Awaitable["ExchangeReply"]]
_OVERHEAD: Final = 2 * 1024  # of an entry, beside its body and its headers
_SHARE: Final = 8  # a page of more than this part of the cache is not kept


class PageCache:
    """Pages by URL, of at most `max_bytes` bytes together; the page that was used longest ago goes first. Needs the
    extra `[web]`."""

    def __init__(self, max_bytes: int) -> None:
        if find_spec("hishel") is None:
            raise ArgumentError("A cache of pages needs hishel. Install it: pip install 'toolcell[web]'.")
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[str, tuple[Entry, ExchangeReply, int]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<PageCache {len(self._kept)} pages, {self._bytes:,} of {self._max_bytes:,} bytes>"

    async def answer(self, url: str, headers: Mapping[str, str], max_bytes: int, send: Send) -> "ExchangeReply":
        """The page at `url`, from the cache or from `send`, which gets the headers of the request. The body is cut at
        `max_bytes`."""
        from hishel import (  # 60 ms, for programs that have a cache
            CacheMiss,
            CacheOptions,
            Entry,
            FromCache,
            Headers,
            IdleClient,
            NeedRevalidation,
            Request,
            StoreAndUse,
        )

        request = Request("GET", url, Headers(dict(headers)))
        kept = self._kept.get(url)
        state: AnyState | None = IdleClient(CacheOptions(shared=True)).next(request, [] if kept is None else [kept[0]])
        reply: ExchangeReply | None = None
        while isinstance(state, (CacheMiss, NeedRevalidation)):
            asked = {name.title(): value for name, value in state.request.headers.items()}
            reply = await send({**headers, **asked})
            if reply.location is not None or reply.truncated:
                self._drop(url)
                return reply
            state = self._after(url, state.next(_response_of(reply)))
        if isinstance(state, FromCache) and kept is not None:  # also if it was evicted during a revalidation
            return self._cut(url, kept[1], max_bytes)
        assert reply is not None  # only an answer of the server leads to any other state
        if isinstance(state, StoreAndUse):
            self._keep(url, Entry(uuid4(), request, state.response), reply)
        return reply

    def _after(self, url: str, state: "AnyState") -> "AnyState":
        """The state after all changes of the cache that hishel asks for before the next request or the answer."""
        from hishel import InvalidateEntries, NeedToBeUpdated

        while isinstance(state, (InvalidateEntries, NeedToBeUpdated)):
            if isinstance(state, InvalidateEntries):
                self._drop(url)
            else:
                self._refresh(url, state.updating_entries[-1])
            state = state.next()
        return state

    def _cut(self, url: str, kept: "ExchangeReply", max_bytes: int) -> "ExchangeReply":
        if url in self._kept:
            self._kept.move_to_end(url)
        return kept if len(kept.body) <= max_bytes else replace(kept, body=kept.body[:max_bytes], truncated=True)

    def _keep(self, url: str, entry: "Entry", reply: "ExchangeReply") -> None:
        self._drop(url)
        size = len(reply.body) + sum(len(name) + len(value) for name, value in reply.headers) + len(url) + _OVERHEAD
        if size * _SHARE > self._max_bytes:
            return
        self._kept[url] = entry, replace(reply, total_bytes=len(reply.body)), size
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def _refresh(self, url: str, entry: "Entry") -> None:
        """Replace the headers of a page that the server has confirmed."""
        kept = self._kept.get(url)
        if kept is not None and kept[0].id == entry.id:
            self._kept[url] = entry, kept[1], kept[2]

    def _drop(self, url: str) -> None:
        kept = self._kept.pop(url, None)
        if kept is not None:
            self._bytes -= kept[2]


def _response_of(reply: "ExchangeReply") -> "Response":
    from hishel import Headers, Response

    found: dict[str, list[str]] = {}
    for name, value in reply.headers:
        found.setdefault(name.lower(), []).append(value)
    return Response(reply.status, Headers(dict(found)))
