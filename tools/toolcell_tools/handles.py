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
    """`to_dict` and `from_dict`, to cross the pipe; an unknown or missing key is a TypeError."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class MemoryRecord(_AsDict):
    """One thing remembered; `score` is how well it fits the search, greater is better; `created_at` is Unix seconds."""

    id: str
    text: str
    kind: str = "fact"
    tags: tuple[str, ...] = ()
    created_at: float | None = None
    score: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", tuple(self.tags))  # msgpack and JSON bring a list


@dataclass(frozen=True, slots=True)
class SearchHit(_AsDict):
    """One answer of a web search."""

    title: str
    url: str
    snippet: str = ""


@dataclass(frozen=True, slots=True)
class FetchedPage(_AsDict):
    """The answer to a GET: its final address, the start of its body, and how many bytes are left out, if known."""

    url: str
    status: int
    content_type: str
    body: bytes
    omitted_bytes: int | None = 0


@dataclass(frozen=True, slots=True)
class HttpResponse(_AsDict):
    """The answer to a brokered HTTP request, after redirects: the whole body, decoded. Header names are in lower case,
    several of one name joined by ", "; there is no Set-Cookie.
    """

    status: int
    headers: dict[str, str]
    body: bytes


class ChannelHandle(Protocol):
    """The session's way to people."""

    def send(self, text: str) -> None: ...
    async def asend(self, text: str) -> None: ...


class MemoryReader(Protocol):
    """The agent's memory, to search."""

    def search(self, query: str, limit: int = 5) -> list[MemoryRecord]: ...
    async def asearch(self, query: str, limit: int = 5) -> list[MemoryRecord]: ...


class MemoryWriter(Protocol):
    """The agent's memory, to add to; `store` returns the new record's id."""

    def store(self, text: str, kind: str = "fact", tags: Sequence[str] = ()) -> str: ...
    async def astore(self, text: str, kind: str = "fact", tags: Sequence[str] = ()) -> str: ...


class WebHandle(Protocol):
    """The public web, by GET only, through the supervisor."""

    def search(self, query: str, limit: int = 5) -> list[SearchHit]: ...
    async def asearch(self, query: str, limit: int = 5) -> list[SearchHit]: ...
    def fetch(self, url: str, max_bytes: int = 1_000_000) -> FetchedPage: ...
    async def afetch(self, url: str, max_bytes: int = 1_000_000) -> FetchedPage: ...


class HttpHandle(Protocol):
    """Requests to the hosts that the profile lists; the supervisor adds the credentials.

    Any status is an answer. RequestDenied is raised for what no rule allows and for what no tool may say, ToolFailure
    where no answer comes, or not the whole of it.
    """

    def request(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> HttpResponse: ...
    async def arequest(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> HttpResponse: ...
