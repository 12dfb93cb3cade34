"""The handles that the supervisor's broker serves: their protocols, the records that pass, and the table of operations.

Each operation has a twin with an `a` before its name, for async tools. `OPERATIONS` is the only list of them. The
broker makes a call's table of the rows whose capability was granted, and checks the arguments by their types. In a
cell, the methods of the handles are made of the rows and of the protocols, which have the defaults. The journal and
`ctx.confirm` read the effect. Handles that work on the cell's own file system are classes: `workspace.py`, `shell.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, Self

from .capability import Capability

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


@dataclass(frozen=True, slots=True)
class Argument:
    """A type of arguments: the broker's check of that name, with its bound, and what a cell makes of a value. The check
    gets `absent` if a request lacks the argument."""

    check: str
    most: int = 0
    sent: Callable[[Any], Any] | None = None
    absent: Any = None


@dataclass(frozen=True, slots=True)
class Operation:
    """A row of the table. `acts` tells by the arguments whether a request may have an effect that lasts, and `answer`
    makes of the broker's answer what the tool gets."""

    capability: Capability
    arguments: Mapping[str, Argument]
    acts: Callable[[Mapping[str, Any]], bool]
    answer: Callable[[Any], Any]
    level: str = ""
    """The lowest level of a channel's policy that allows it."""
    of_request: bool = False
    """Whether it is about a running `http.request`, whose record covers it."""


def _never(arguments: Mapping[str, Any]) -> bool:
    return False


def _always(arguments: Mapping[str, Any]) -> bool:
    return True


def _unless_safe(arguments: Mapping[str, Any]) -> bool:
    """The safe methods of HTTP have no effect (RFC 9110, section 9.2.1)."""
    return str(arguments.get("method", "")).upper() not in ("GET", "HEAD", "OPTIONS", "TRACE")


def _records(kind: type[_AsDict]) -> Callable[[Any], Any]:
    return lambda answer: list(map(kind.from_dict, answer))


def _as_it_is(answer: Any) -> Any:
    return answer


def _nothing(answer: Any) -> None:
    """The answer of an operation that has none."""


def _dict_of(headers: Mapping[str, str] | None) -> dict[str, str]:
    return dict(headers or {})


MAX_HITS: Final = 100
UPLOAD_BYTES: Final = 4 * 1024 * 1024  # with its name, less than a request may have
MAX_FETCH_BYTES: Final = 8 * 1024 * 1024
_TEXT, _LABEL, _MESSAGE = Argument("text"), Argument("label"), Argument("message id")
_FILE_NAME, _MEDIA_TYPE, _FILE = Argument("file name"), Argument("media type"), Argument("bytes", UPLOAD_BYTES)
_OPTIONS, _TAGS = Argument("texts", 32, list), Argument("texts", 64, list)
_HITS, _BYTES = Argument("count", MAX_HITS), Argument("count", MAX_FETCH_BYTES)
_HEADERS, _BODY = Argument("headers", sent=_dict_of, absent={}), Argument("body", absent=b"")
_WATCHED, _WATCH = Argument("count", 2**31), Argument("count or none", 2**31)  # the number of a watched request
_CHANNEL, _MEMORY, _KEEP = Capability.CHANNEL, Capability.MEMORY_READ, Capability.MEMORY_WRITE
_WEB, _HTTP = Capability.WEB, Capability.HTTP
_SENT = SentMessage.from_dict

OPERATIONS: Mapping[str, Operation] = {
    "channel.send": Operation(_CHANNEL, {"text": _TEXT}, _always, _SENT, "reply"),
    "channel.send_to": Operation(_CHANNEL, {"text": _TEXT, "to": _LABEL}, _always, _SENT, "broadcast"),
    "channel.status": Operation(_CHANNEL, {}, _never, ChannelStatus.from_dict, "ask"),
    "channel.ask": Operation(_CHANNEL, {"question": _TEXT, "options": _OPTIONS}, _always, str, "ask"),
    "channel.react": Operation(_CHANNEL, {"message_id": _MESSAGE, "emoji": _LABEL}, _always, _nothing, "reply"),
    "channel.edit": Operation(_CHANNEL, {"message_id": _MESSAGE, "text": _TEXT}, _always, _nothing, "reply"),
    "channel.pin": Operation(_CHANNEL, {"message_id": _MESSAGE}, _always, _nothing, "broadcast"),
    "channel.upload": Operation(
        _CHANNEL, {"name": _FILE_NAME, "data": _FILE, "media_type": _MEDIA_TYPE}, _always, _SENT, "reply"
    ),
    "channel.read": Operation(_CHANNEL, {"limit": _HITS}, _never, _records(ChannelMessage), "ask"),
    "memory.search": Operation(_MEMORY, {"query": _TEXT, "limit": _HITS}, _never, _records(MemoryRecord)),
    "memory.store": Operation(_KEEP, {"text": _TEXT, "kind": _TEXT, "tags": _TAGS}, _always, str),
    "web.search": Operation(_WEB, {"query": _TEXT, "limit": _HITS}, _never, _records(SearchHit)),
    "web.fetch": Operation(_WEB, {"url": _TEXT, "max_bytes": _BYTES}, _never, FetchedPage.from_dict),
    "http.request": Operation(
        _HTTP,
        {"method": _TEXT, "url": _TEXT, "headers": _HEADERS, "body": _BODY, "watch": _WATCH},
        _unless_safe,
        HttpResponse.from_dict,
    ),
    "http.events": Operation(_HTTP, {"watch": _WATCHED}, _never, _as_it_is, of_request=True),
    "http.leave": Operation(_HTTP, {"watch": _WATCHED}, _never, _nothing, of_request=True),
}
"""All operations of handles, by name."""


def may_act(operation: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the operation may have an effect that lasts."""
    row = OPERATIONS.get(operation)
    return row is None or row.acts(arguments)
