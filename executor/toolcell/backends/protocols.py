"""The protocols that a user implements to plug in a channel, a memory store, a web client or an HTTP client.

The broker calls the methods in the supervisor's process, on its event loop. A method must not block: do blocking work
in a thread. The message of a `BackendError` is shown to the model. Any other exception is reported as an internal
failure. Arguments come from a tool, and so from a model: treat every string as hostile.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from toolcell_tools.handles import ChannelMessage, FetchedPage, MemoryRecord, SearchHit

__all__ = [
    "BackendError",
    "Channel",
    "ChannelMessage",
    "FetchedPage",
    "FullChannel",
    "HttpClient",
    "HttpReply",
    "HttpRequest",
    "MemoryRecord",
    "MemoryStore",
    "NotConfigured",
    "OutsideRules",
    "Refused",
    "SearchHit",
    "SearchProvider",
    "Unreachable",
    "WebClient",
]


@runtime_checkable
class Channel(Protocol):
    """Delivers an agent's messages to a person.

    A channel may also have any of the methods of `FullChannel`, and `approve`, which makes it an Approver. A channel
    whose messages nobody may see, such as a log, has an attribute `reaches_people` that is False.
    """

    async def send(self, text: str, *, sender: str) -> str | None:
        """Deliver `text`; return when it is handed over. `sender` names the line of agents and the session that wrote
        it. The message's id is returned, if the channel has ids."""
        ...


class FullChannel(Channel, Protocol):
    """A channel with every optional operation. The broker refuses the operations that a channel lacks."""

    async def send_to(self, place: str, text: str, *, sender: str) -> str | None:
        """Deliver `text` to another place than the conversation. Raise `Refused` for an unknown place."""
        ...

    async def ask(self, question: str, *, options: Sequence[str], sender: str) -> str:
        """Show the question and wait for the answer: one of `options`, or any text if there are none. The end of the
        call cancels this."""
        ...

    async def react(self, message_id: str, emoji: str, *, sender: str) -> None: ...
    async def edit(self, message_id: str, text: str, *, sender: str) -> None: ...
    async def pin(self, message_id: str, *, sender: str) -> None: ...

    async def upload(self, name: str, data: bytes, *, media_type: str, sender: str) -> str | None:
        """Show a file. Return the id of its message, if the channel has ids."""
        ...

    async def read(self, *, limit: int) -> list[ChannelMessage]:
        """Return at most `limit` of the last messages of the conversation, the newest last."""
        ...


@runtime_checkable
class MemoryStore(Protocol):
    """Stores the agents' memory records. A search never finds records of another namespace. A namespace is the id of a
    root session's agent, or the line of agents as JSON."""

    async def search(self, query: str, *, limit: int, namespace: str) -> list[MemoryRecord]:
        """Return at most `limit` records of `namespace`, best first; higher scores are better. Any text is a query."""
        ...

    async def store(self, record: MemoryRecord, *, namespace: str) -> str:
        """Keep `record` and return its id; an empty `record.id` asks for a new one. Raise `Refused` if too large."""
        ...


@runtime_checkable
class WebClient(Protocol):
    """GET requests to the public web, never to an address of the machine's own networks.

    A client without a search engine has an attribute `can_search` that is False, which the search tool then tells the
    model. Sessions with rules for pages (`Profile.web`) need one more method, `fetch_within(url, *, max_bytes, check)`:
    as `fetch`, but it calls `check(url)` before it sends each request, redirects included, and lets its exception pass.
    """

    async def search(self, query: str, *, limit: int) -> list[SearchHit]:
        """Return at most `limit` hits, best first. Raise `NotConfigured` where there is no search engine."""
        ...

    async def fetch(self, url: str, *, max_bytes: int) -> FetchedPage:
        """Return the page at `url` after redirects, whatever its status, with at most `max_bytes` of its body."""
        ...


@runtime_checkable
class SearchProvider(Protocol):
    """A search engine for `PublicWeb`. It runs in the supervisor and holds its own key."""

    async def search(self, query: str, *, limit: int) -> list[SearchHit]:
        """Return at most `limit` hits, best first. Raise a BackendError if there is no answer."""
        ...


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request that the rules of a profile allow. `headers` are the tool's, with names in lower case; headers that a
    tool may not set are already refused.

    Credentials are added only if `authorize` is True, which it is not after a redirect to another origin. Without
    `private`, every address of the host must be public. A reply with a body of more than `max_bytes` is an error. A
    client that buffers replies must await `grow(max_bytes)`, if it is not None, before it buffers more than 64 KiB of
    one. `grow` returns when the call and the supervisor have room.

    A client may call `on_events` with whole lines of an answer of type text/event-stream and status 200 while they
    arrive, in order and without credentials. The reply has the whole body in any case.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    private: bool = False
    authorize: bool = True
    max_bytes: int = 8 * 1024 * 1024
    grow: Callable[[int], Coroutine[Any, Any, None]] | None = field(default=None, compare=False, repr=False)
    on_events: Callable[[bytes], None] | None = field(default=None, compare=False, repr=False)


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


class BackendError(Exception):
    """A backend could not carry out an operation. The message has no stack trace, no path and no internal address."""


class Refused(BackendError):
    """The request is not acceptable. The same request would be refused again."""


class OutsideRules(Refused):
    """The rules of the session's profile do not allow the request. Nothing was sent."""


class NotConfigured(BackendError):
    """The operation needs a setting or a component that the backend lacks."""


class Unreachable(BackendError):
    """The other side did not answer in time, or sent an unusable answer. The same request may work later."""
