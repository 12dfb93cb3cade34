"""The broker's handles in a cell: each operation is one request and one reply over the pipe.

There is no secret here and no security check. The broker's table, in the supervisor, decides what any request may do,
even a forged one.
"""

from collections.abc import Mapping, Sequence

from toolcell.wire.frames import Field
from toolcell_tools.handles import FetchedPage, HttpResponse, MemoryRecord, SearchHit

from .link import Link


class _Brokered:
    def __init__(self, link: Link) -> None:
        self._ask = link.request
        self._aask = link.arequest


class ChannelOverPipe(_Brokered):
    """`ctx.channel`: send a message to the session's people."""

    def send(self, text: str) -> None:
        self._ask("channel.send", {"text": text})

    async def asend(self, text: str) -> None:
        await self._aask("channel.send", {"text": text})


class MemoryReaderOverPipe(_Brokered):
    """`ctx.memory`: search the agent's memory."""

    def search(self, query: str, limit: int = 5) -> list[MemoryRecord]:
        found = self._ask("memory.search", {"query": query, "limit": limit})
        return list(map(MemoryRecord.from_dict, found))

    async def asearch(self, query: str, limit: int = 5) -> list[MemoryRecord]:
        found = await self._aask("memory.search", {"query": query, "limit": limit})
        return list(map(MemoryRecord.from_dict, found))


class MemoryWriterOverPipe(_Brokered):
    """`ctx.memory_writer`: add to the agent's memory."""

    def store(self, text: str, kind: str = "fact", tags: Sequence[str] = ()) -> str:
        return str(self._ask("memory.store", {"text": text, "kind": kind, "tags": list(tags)}))

    async def astore(self, text: str, kind: str = "fact", tags: Sequence[str] = ()) -> str:
        return str(await self._aask("memory.store", {"text": text, "kind": kind, "tags": list(tags)}))


class Web(_Brokered):
    """`ctx.web`: GET on the public web, fetched by the supervisor."""

    def search(self, query: str, limit: int = 5) -> list[SearchHit]:
        found = self._ask("web.search", {"query": query, "limit": limit})
        return list(map(SearchHit.from_dict, found))

    async def asearch(self, query: str, limit: int = 5) -> list[SearchHit]:
        found = await self._aask("web.search", {"query": query, "limit": limit})
        return list(map(SearchHit.from_dict, found))

    def fetch(self, url: str, max_bytes: int = 1_000_000) -> FetchedPage:
        return FetchedPage.from_dict(self._ask("web.fetch", {"url": url, "max_bytes": max_bytes}))

    async def afetch(self, url: str, max_bytes: int = 1_000_000) -> FetchedPage:
        return FetchedPage.from_dict(await self._aask("web.fetch", {"url": url, "max_bytes": max_bytes}))


class Http(_Brokered):
    """`ctx.http`: requests that the session's rules allow, made by the supervisor."""

    def request(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> HttpResponse:
        return HttpResponse.from_dict(self._ask("http.request", _request(method, url, headers, body)))

    async def arequest(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> HttpResponse:
        return HttpResponse.from_dict(await self._aask("http.request", _request(method, url, headers, body)))


def _request(method: str, url: str, headers: Mapping[str, str] | None, body: bytes) -> dict[str, Field]:
    return {"method": method, "url": url, "headers": dict(headers or {}), "body": body}
