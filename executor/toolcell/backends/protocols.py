"""The protocols of a channel, a memory, a web client and an HTTP client, for users who write their own.

The broker calls these in the supervisor's process, on its event loop: do blocking work in a thread. The model sees the
message of a raised `BackendError`; any other exception is reported as an internal failure. Arguments come from a tool:
treat every string as hostile.
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from toolcell_tools.handles import FetchedPage, MemoryRecord, SearchHit

__all__ = [
    "Channel",
    "FetchedPage",
    "HttpClient",
    "HttpReply",
    "HttpRequest",
    "MemoryRecord",
    "MemoryStore",
    "SearchHit",
    "WebClient",
]


@runtime_checkable
class Channel(Protocol):
    """Where an agent's words reach a person."""

    async def send(self, text: str, *, sender: str) -> None:
        """Deliver `text`; return once it is delivered. `sender` names the agent and session that wrote it."""
        ...


@runtime_checkable
class MemoryStore(Protocol):
    """What an agent remembers. No namespace sees the records of another."""

    async def search(self, query: str, *, limit: int, namespace: str) -> list[MemoryRecord]:
        """Return at most `limit` records of `namespace`, best first; higher scores are better. Any text is a query."""
        ...

    async def store(self, record: MemoryRecord, *, namespace: str) -> str:
        """Keep `record` and return its id; an empty `record.id` asks for a new one. Raise `Refused` if too large."""
        ...


@runtime_checkable
class WebClient(Protocol):
    """The public web, read-only: GET requests only, and no address of the machine's own networks. A client without a
    search engine has an attribute `can_search` that is False. Tools that need one then say so in their description.
    """

    async def search(self, query: str, *, limit: int) -> list[SearchHit]:
        """Return at most `limit` hits, best first. Raise `NotConfigured` without a search engine."""
        ...

    async def fetch(self, url: str, *, max_bytes: int) -> FetchedPage:
        """Return the page at `url` after redirects, whatever its status, with at most `max_bytes` of its body."""
        ...


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request that the rules of a profile allow. `headers` are the tool's, with names in lower case; they have been
    checked. Add credentials if `authorize` is true. It is false after a redirect to another origin. Without `private`,
    every address of the host must be public. A body of more than `max_bytes` is an error. A client that keeps answers
    in memory awaits `grow(max_bytes)`, if there is one, before it keeps more than 64 KiB. `grow` returns once the call
    and the supervisor have room.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    private: bool = False
    authorize: bool = True
    max_bytes: int = 8 * 1024 * 1024
    grow: Callable[[int], Coroutine[Any, Any, None]] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """The answer to one request, without credentials. `location` is the target of a redirect (301, 302, 303, 307 or
    308). `address` and `credentials`, the names of the headers that were added, are for the journal.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    location: str | None = None
    address: str = ""
    credentials: tuple[str, ...] = ()


@runtime_checkable
class HttpClient(Protocol):
    """Sends requests that the broker has checked, with credentials of its own."""

    async def send(self, request: HttpRequest) -> HttpReply:
        """Send one request and return its answer. Do not follow redirects: the broker does."""
        ...
