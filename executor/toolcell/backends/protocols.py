"""The protocols that a user implements to plug in a channel, a memory store, a web client or an HTTP client.

The broker calls the methods in the supervisor's process, on its event loop. A method must not block: do blocking work
in a thread. The message of a `BackendError` is shown to the model. Any other exception is reported as an internal
failure. Arguments come from a tool, and so from a model: treat every string as hostile.
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
    """Delivers an agent's messages to a person."""

    async def send(self, text: str, *, sender: str) -> None:
        """Deliver `text`; return when it is handed over. `sender` names the agent and session that wrote it."""
        ...


@runtime_checkable
class MemoryStore(Protocol):
    """Stores an agent's memory records. A search never finds records of another namespace."""

    async def search(self, query: str, *, limit: int, namespace: str) -> list[MemoryRecord]:
        """Return at most `limit` records of `namespace`, best first; higher scores are better. Any text is a query."""
        ...

    async def store(self, record: MemoryRecord, *, namespace: str) -> str:
        """Keep `record` and return its id; an empty `record.id` asks for a new one. Raise `Refused` if too large."""
        ...


@runtime_checkable
class WebClient(Protocol):
    """GET requests to the public web, never to an address of the machine's own networks.

    A client without a search engine has an attribute `can_search` that is False. Tools that need one are then refused.
    """

    async def search(self, query: str, *, limit: int) -> list[SearchHit]:
        """Return at most `limit` hits, best first. Raise `NotConfigured` where there is no search engine."""
        ...

    async def fetch(self, url: str, *, max_bytes: int) -> FetchedPage:
        """Return the page at `url` after redirects, whatever its status, with at most `max_bytes` of its body."""
        ...


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request that the rules of a profile allow. `headers` are the tool's, with names in lower case; headers that a
    tool may not set are already refused.

    Credentials are added only if `authorize` is True, which it is not after a redirect to another origin. Without
    `private`, every address of the host must be public. A reply with a body of more than `max_bytes` is an error. A
    client that buffers replies must await `grow(max_bytes)`, if it is not None, before it buffers more than 64 KiB of
    one. `grow` returns when the call and the supervisor have room.
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
    """The answer to one request, without a credential in it. `location` is where a redirect leads (301, 302, 303, 307
    or 308). `address` and `credentials`, the names of the headers that were added, are for the journal.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    location: str | None = None
    address: str = ""
    credentials: tuple[str, ...] = ()


@runtime_checkable
class HttpClient(Protocol):
    """Sends requests that the broker has checked, and adds credentials that only it holds."""

    async def send(self, request: HttpRequest) -> HttpReply:
        """Send one request and return the reply, even if it is a redirect: the caller decides whether to follow it."""
        ...
