"""The protocols of the handles that the supervisor's broker serves, and the records that pass through them.

Each operation has a twin with an `a` before its name, for async tools. Handles that work on the cell's own file system
are classes: `workspace.py`, `shell.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Protocol, Self

__all__ = [
    "ChannelHandle",
    "ChannelMessage",
    "ChannelStatus",
    "FetchedPage",
    "HttpHandle",
    "HttpResponse",
    "MemoryKind",
    "MemoryReader",
    "MemoryRecord",
    "MemoryWriter",
    "SearchHit",
    "SentMessage",
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


class MemoryKind(StrEnum):
    """The kinds of memory records (ADR-0006)."""

    DECISION = "decision"
    FACT = "fact"
    IDENTITY = "identity"
    PREFERENCE = "preference"


@dataclass(frozen=True, slots=True)
class MemoryRecord(_AsDict):
    """One remembered text. `kind` is a MemoryKind, or a word of the tool's own. A greater `score` is a better match for
    the search. `created_at` is in Unix seconds.
    """

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


@dataclass(frozen=True, slots=True)
class SentMessage(_AsDict):
    """A message that a channel took. `id` is "" if the channel has no ids. `reached` is False if it was only logged."""

    id: str = ""
    reached: bool = True


@dataclass(frozen=True, slots=True)
class ChannelMessage(_AsDict):
    """A message that is on the channel. `at` is in Unix seconds."""

    id: str
    text: str
    sender: str = ""
    at: float | None = None


@dataclass(frozen=True, slots=True)
class ChannelStatus(_AsDict):
    """What a call may do on its channel: the policy's level, the operations that it and the channel allow, how many of
    them are possible now, and in how many seconds the next one is.
    """

    level: str
    operations: tuple[str, ...] = ()
    remaining: int = 0
    wait_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "operations", tuple(self.operations))


class ChannelHandle(Protocol):
    """The channel to the people of the session. An operation that the channel's policy does not allow raises
    RequestDenied; one that the channel does not have, or that comes too often, raises ToolFailure.
    """

    @property
    def level(self) -> str:
        """The policy's level: "ask", "reply" or "broadcast"."""
        ...

    @property
    def remaining(self) -> int:
        """How many operations are possible now."""
        ...

    def status(self) -> ChannelStatus: ...
    async def astatus(self) -> ChannelStatus: ...

    def send(self, text: str, *, to: str = "") -> SentMessage:
        """Send a message: into the conversation, or to another place of the channel."""
        ...

    async def asend(self, text: str, *, to: str = "") -> SentMessage: ...

    def ask(self, question: str, options: Sequence[str] = ()) -> str:
        """Ask the people and wait for their answer, until the call's deadline."""
        ...

    async def aask(self, question: str, options: Sequence[str] = ()) -> str: ...
    def react(self, message_id: str, emoji: str) -> None: ...
    async def areact(self, message_id: str, emoji: str) -> None: ...

    def edit(self, message_id: str, text: str) -> None:
        """Replace the text of a message that this session, or one that shares its channel, has sent."""
        ...

    async def aedit(self, message_id: str, text: str) -> None: ...
    def pin(self, message_id: str) -> None: ...
    async def apin(self, message_id: str) -> None: ...
    def upload(self, name: str, data: bytes, media_type: str = "application/octet-stream") -> SentMessage: ...
    async def aupload(self, name: str, data: bytes, media_type: str = "application/octet-stream") -> SentMessage: ...
    def read(self, limit: int = 20) -> list[ChannelMessage]: ...
    async def aread(self, limit: int = 20) -> list[ChannelMessage]: ...


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
