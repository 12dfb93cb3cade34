"""The protocols of the handles that the supervisor's broker serves, and the records that pass through them.

Each operation has a twin with an `a` before its name, for async tools. Handles that work on the cell's own file system
are classes: `workspace.py`, `shell.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, Self

__all__ = [
    "ChannelHandle",
    "FetchedPage",
    "HttpHandle",
    "HttpResponse",
    "MemoryReader",
    "MemoryRecord",
    "MemoryWriter",
    "SearchHit",
    "WebHandle",
]


@dataclass(frozen=True, slots=True)
class _AsDict:
    """`to_dict` and `from_dict`, for the pipe. `from_dict` raises TypeError for an unknown or missing key."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class MemoryRecord(_AsDict):
    """One remembered text. A greater `score` is a better match for the search. `created_at` is in Unix seconds."""

    id: str
    text: str
    kind: str = "fact"
    tags: tuple[str, ...] = ()
    created_at: float | None = None
    score: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", tuple(self.tags))  # msgpack and JSON decode to a list


@dataclass(frozen=True, slots=True)
class SearchHit(_AsDict):
    """One result of a web search."""

    title: str
    url: str
    snippet: str = ""


@dataclass(frozen=True, slots=True)
class FetchedPage(_AsDict):
    """The answer to a GET: its final URL, the start of its body, and the number of bytes left out, if known."""

    url: str
    status: int
    content_type: str
    body: bytes
    omitted_bytes: int | None = 0


@dataclass(frozen=True, slots=True)
class HttpResponse(_AsDict):
    """The answer to a brokered HTTP request, after redirects, with the whole body, decoded. Header names are in lower
    case; headers of one name are joined by ", ". Set-Cookie is left out.
    """

    status: int
    headers: dict[str, str]
    body: bytes


class ChannelHandle(Protocol):
    """Sends messages to the people of the session."""

    def send(self, text: str) -> None: ...
    async def asend(self, text: str) -> None: ...


class MemoryReader(Protocol):
    """Searches the agent's memory."""

    def search(self, query: str, limit: int = 5) -> list[MemoryRecord]: ...
    async def asearch(self, query: str, limit: int = 5) -> list[MemoryRecord]: ...


class MemoryWriter(Protocol):
    """Adds to the agent's memory. `store` returns the new record's id."""

    def store(self, text: str, kind: str = "fact", tags: Sequence[str] = ()) -> str: ...
    async def astore(self, text: str, kind: str = "fact", tags: Sequence[str] = ()) -> str: ...


class WebHandle(Protocol):
    """The public web, through the supervisor, by GET only."""

    def search(self, query: str, limit: int = 5) -> list[SearchHit]: ...
    async def asearch(self, query: str, limit: int = 5) -> list[SearchHit]: ...
    def fetch(self, url: str, max_bytes: int = 1_000_000) -> FetchedPage: ...
    async def afetch(self, url: str, max_bytes: int = 1_000_000) -> FetchedPage: ...


class HttpHandle(Protocol):
    """Requests to the hosts that the profile lists; the supervisor adds the credentials.

    Any status is an answer. Raises RequestDenied for a request that no rule allows or that no tool may send, and
    ToolFailure if no complete answer comes.
    """

    def request(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> HttpResponse: ...
    async def arequest(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> HttpResponse: ...
