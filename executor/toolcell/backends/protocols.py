"""What a user implements to plug in a channel, a memory, a web or an HTTP client of their own.

The broker calls these in the supervisor's process, on its event loop: block in a thread, never in the method.
What they raise as `BackendError` reaches the model as its message; anything else is reported as an internal failure.
Arguments come from a tool and so from a model: treat every string as hostile.
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
        """Deliver `text`; return when it is handed over. `sender` names the agent and session that wrote it."""
        ...


@runtime_checkable
class MemoryStore(Protocol):
    """What an agent remembers. Namespaces never see each other's records."""

    async def search(self, query: str, *, limit: int, namespace: str) -> list[MemoryRecord]:
        """Return at most `limit` records of `namespace`, best first; higher scores are better. Any text is a query."""
        ...

    async def store(self, record: MemoryRecord, *, namespace: str) -> str:
        """Keep `record` and return its id; an empty `record.id` asks for a new one. Raise `Refused` if too large."""
        ...


@runtime_checkable
class WebClient(Protocol):
    """The public web, read-only: GET and nothing else, and never an address of the machine's own networks.

    One with an attribute `can_search` that is False has no search engine, as tools that need one then say.
    """

    async def search(self, query: str, *, limit: int) -> list[SearchHit]:
        """Return at most `limit` hits, best first. Raise `NotConfigured` where there is no search engine."""
        ...

    async def fetch(self, url: str, *, max_bytes: int) -> FetchedPage:
        """Return the page at `url` after redirects, whatever its status, with at most `max_bytes` of its body."""
        ...


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request that the rules of a profile allow. `headers` are the tool's, names in lower case, none of them one
    that is not a tool's to set.

    Credentials are added if `authorize`: not where a redirect has led to another origin. Without `private`, every
    address of the host must be public. An answer with a body of more than `max_bytes` is an error. A client that keeps
    answers in memory awaits `grow(max_bytes)`, if there is one, before it keeps more than 64 KiB of one: it returns
    when the call and the supervisor have room for it.
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
    """Sends what the broker has checked, with credentials of its own."""

    async def send(self, request: HttpRequest) -> HttpReply:
        """Send one request and return its answer, a redirect included: whoever asks follows it, or does not."""
        ...
