"""A channel, a memory, a web client and an HTTP client that record their calls. For tests."""

from collections.abc import Callable, Mapping

from toolcell.backends.protocols import HttpReply, HttpRequest, Unreachable
from toolcell_tools.handles import FetchedPage, MemoryRecord, SearchHit


class ListChannel:
    """A Channel; `sent` holds (text, sender)."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    async def send(self, text: str, *, sender: str) -> None:
        self.sent.append((text, sender))


class ListMemory:
    """A MemoryStore that finds by substring; `records` holds (namespace, record), `searched` (namespace, query)."""

    def __init__(self) -> None:
        self.records: list[tuple[str, MemoryRecord]] = []
        self.searched: list[tuple[str, str]] = []

    async def search(self, query: str, *, limit: int, namespace: str) -> list[MemoryRecord]:
        self.searched.append((namespace, query))
        return [record for owner, record in self.records if owner == namespace and query in record.text][:limit]

    async def store(self, record: MemoryRecord, *, namespace: str) -> str:
        id = record.id or f"m{len(self.records) + 1}"
        kept = MemoryRecord(id, record.text, record.kind, record.tags, record.created_at)
        self.records.append((namespace, kept))
        return id


class DictWeb:
    """A WebClient of a few pages; `asked` holds every URL and query. `on_fetch` is called before a page is returned."""

    def __init__(self, pages: Mapping[str, bytes] | None = None, on_fetch: Callable[[str], None] | None = None) -> None:
        self.pages = dict(pages or {})
        self.asked: list[str] = []
        self._on_fetch = on_fetch

    async def search(self, query: str, *, limit: int) -> list[SearchHit]:
        self.asked.append(query)
        return [SearchHit(url, url) for url, body in self.pages.items() if query.encode() in body][:limit]

    async def fetch(self, url: str, *, max_bytes: int) -> FetchedPage:
        return await self.fetch_within(url, max_bytes=max_bytes, check=str)

    async def fetch_within(self, url: str, *, max_bytes: int, check: Callable[[str], object]) -> FetchedPage:
        check(url)
        self.asked.append(url)
        if self._on_fetch is not None:
            self._on_fetch(url)
        body = self.pages.get(url)
        if body is None:
            raise Unreachable(f"There is no page at {url}.")
        return FetchedPage(url, 200, "text/plain", body[:max_bytes], max(0, len(body) - max_bytes))


class DictHttp:
    """An HttpClient with a few answers, by "METHOD URL". `asked` holds every request that the rules allowed. An answer
    is an HttpReply, or a body for status 200.
    """

    def __init__(self, answers: Mapping[str, bytes | HttpReply] | None = None) -> None:
        self.answers = dict(answers or {})
        self.asked: list[HttpRequest] = []

    async def send(self, request: HttpRequest) -> HttpReply:
        self.asked.append(request)
        answer = self.answers.get(f"{request.method} {request.url}")
        if answer is None:
            raise Unreachable(f"There is no answer to {request.method} {request.url}.")
        return HttpReply(200, body=answer) if isinstance(answer, bytes) else answer
