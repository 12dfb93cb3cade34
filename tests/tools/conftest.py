"""A context for tools under test: real file system handles on tmp_path, and simple handles in memory."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from toolcell_tools import (
    Confirmation,
    FetchedPage,
    MemoryRecord,
    SearchHit,
    SessionKind,
    Shell,
    Signal,
    ToolContext,
    WorkspaceReader,
    WorkspaceWriter,
)


class Recorder:
    """A Reporter that remembers."""

    def __init__(self) -> None:
        self.progressed: list[tuple[str, float | None]] = []
        self.logged: list[tuple[str, str, dict[str, Any]]] = []
        self.signals: list[Signal] = []
        self.left = math.inf
        self.taken_back = False

    def progress(self, message: str, fraction: float | None) -> None:
        self.progressed.append((message, fraction))

    def log(self, message: str, level: str, fields: Mapping[str, Any]) -> None:
        self.logged.append((message, level, dict(fields)))

    def span(self, name: str, attributes: Mapping[str, Any]) -> AbstractContextManager[None]:
        return nullcontext()

    def signal(self, signal: Signal) -> None:
        self.signals.append(signal)

    def confirm(self, hint: str, payload: object) -> Confirmation:
        return Confirmation(True)

    def remaining(self) -> float:
        return self.left

    def cancelled(self) -> bool:
        return self.taken_back


class ListChannel:
    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, text: str) -> None:
        self.sent.append(text)

    async def asend(self, text: str) -> None:
        self.send(text)


class ListMemory:
    """Reader and writer in one: finds records that contain the query."""

    def __init__(self) -> None:
        self.records: list[MemoryRecord] = []

    def search(self, query: str, limit: int = 5) -> list[MemoryRecord]:
        return [record for record in self.records if query in record.text][:limit]

    async def asearch(self, query: str, limit: int = 5) -> list[MemoryRecord]:
        return self.search(query, limit)

    def store(self, text: str, kind: str = "fact", tags: Sequence[str] = ()) -> str:
        self.records.append(MemoryRecord(f"m{len(self.records) + 1}", text, kind, tuple(tags)))
        return self.records[-1].id

    async def astore(self, text: str, kind: str = "fact", tags: Sequence[str] = ()) -> str:
        return self.store(text, kind, tags)


class DictWeb:
    """A web of a few pages."""

    def __init__(self) -> None:
        self.pages: dict[str, FetchedPage] = {}

    def search(self, query: str, limit: int = 5) -> list[SearchHit]:
        return [SearchHit(url, url, query) for url in self.pages][:limit]

    async def asearch(self, query: str, limit: int = 5) -> list[SearchHit]:
        return self.search(query, limit)

    def fetch(self, url: str, max_bytes: int = 1_000_000) -> FetchedPage:
        page = self.pages[url]
        left_out = max(0, len(page.body) - max_bytes)
        return FetchedPage(page.url, page.status, page.content_type, page.body[:max_bytes], left_out)

    async def afetch(self, url: str, max_bytes: int = 1_000_000) -> FetchedPage:
        return self.fetch(url, max_bytes)


ContextMaker = Callable[..., ToolContext]


@pytest.fixture
def make_context(tmp_path: Path) -> ContextMaker:
    """A context with every handle but http; keyword arguments replace parts of it."""

    def make(**changes: Any) -> ToolContext:
        memory = ListMemory()
        parts: dict[str, Any] = {
            "call_id": "c1",
            "session_id": "s1",
            "agent_id": "agent",
            "session_kind": SessionKind.MAIN,
            "workspace_root": tmp_path,
            "workspace": WorkspaceReader(tmp_path),
            "reporter": Recorder(),
            "deadline": math.inf,
            "writer": WorkspaceWriter(tmp_path),
            "shell": Shell(tmp_path),
            "channel": ListChannel(),
            "memory": memory,
            "memory_writer": memory,
            "web": DictWeb(),
        }
        return ToolContext(**(parts | changes))

    return make


@pytest.fixture
def ctx(make_context: ContextMaker) -> ToolContext:
    return make_context()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()
