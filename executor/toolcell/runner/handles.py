"""The broker's handles in a cell: each operation is one request and one reply over the pipe.

There is no secret here and no security check. The broker's table, in the supervisor, decides what any request may do,
even a forged one.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from toolcell.wire.frames import Field
from toolcell_tools.handles import (
    ChannelMessage,
    ChannelStatus,
    FetchedPage,
    HttpResponse,
    MemoryRecord,
    SearchHit,
    SentMessage,
)

from .link import Link

if TYPE_CHECKING:
    from .watching import WatchedPost


class _Brokered:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._ask = link.request
        self._aask = link.arequest


class ChannelOverPipe(_Brokered):
    """`ctx.channel`: the channel to the session's people."""

    @property
    def level(self) -> str:
        return self.status().level

    @property
    def remaining(self) -> int:
        return self.status().remaining

    def status(self) -> ChannelStatus:
        return ChannelStatus.from_dict(self._ask("channel.status", {}))

    async def astatus(self) -> ChannelStatus:
        return ChannelStatus.from_dict(await self._aask("channel.status", {}))

    def send(self, text: str, *, to: str = "") -> SentMessage:
        return SentMessage.from_dict(self._ask(*_message(text, to)))

    async def asend(self, text: str, *, to: str = "") -> SentMessage:
        return SentMessage.from_dict(await self._aask(*_message(text, to)))

    def ask(self, question: str, options: Sequence[str] = ()) -> str:
        return str(self._ask("channel.ask", {"question": question, "options": list(options)}))

    async def aask(self, question: str, options: Sequence[str] = ()) -> str:
        return str(await self._aask("channel.ask", {"question": question, "options": list(options)}))

    def react(self, message_id: str, emoji: str) -> None:
        self._ask("channel.react", {"message_id": message_id, "emoji": emoji})

    async def areact(self, message_id: str, emoji: str) -> None:
        await self._aask("channel.react", {"message_id": message_id, "emoji": emoji})

    def edit(self, message_id: str, text: str) -> None:
        self._ask("channel.edit", {"message_id": message_id, "text": text})

    async def aedit(self, message_id: str, text: str) -> None:
        await self._aask("channel.edit", {"message_id": message_id, "text": text})

    def pin(self, message_id: str) -> None:
        self._ask("channel.pin", {"message_id": message_id})

    async def apin(self, message_id: str) -> None:
        await self._aask("channel.pin", {"message_id": message_id})

    def upload(self, name: str, data: bytes, media_type: str = "application/octet-stream") -> SentMessage:
        file: dict[str, Field] = {"name": name, "data": data, "media_type": media_type}
        return SentMessage.from_dict(self._ask("channel.upload", file))

    async def aupload(self, name: str, data: bytes, media_type: str = "application/octet-stream") -> SentMessage:
        file: dict[str, Field] = {"name": name, "data": data, "media_type": media_type}
        return SentMessage.from_dict(await self._aask("channel.upload", file))

    def read(self, limit: int = 20) -> list[ChannelMessage]:
        return list(map(ChannelMessage.from_dict, self._ask("channel.read", {"limit": limit})))

    async def aread(self, limit: int = 20) -> list[ChannelMessage]:
        return list(map(ChannelMessage.from_dict, await self._aask("channel.read", {"limit": limit})))


def _message(text: str, to: str) -> tuple[str, dict[str, Field]]:
    return ("channel.send_to", {"text": text, "to": to}) if to else ("channel.send", {"text": text})


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

    def watch(self, number: int, url: str, headers: Mapping[str, str], body: bytes) -> "WatchedPost":
        """POST to `url`, and do not wait for the answer. `number` is for this request in this call alone."""
        from .watching import WatchedPost  # only cells of MCP servers behind a URL need it

        return WatchedPost(self._link, number, _request("POST", url, headers, body))


def _request(method: str, url: str, headers: Mapping[str, str] | None, body: bytes) -> dict[str, Field]:
    return {"method": method, "url": url, "headers": dict(headers or {}), "body": body}
