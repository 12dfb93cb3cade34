"""What a user implements to plug in a channel, a memory or a web client of their own.

The broker calls these in the supervisor's process, on its event loop: block in a thread, never in the method.
What they raise as `BackendError` reaches the model as its message; anything else is reported as an internal failure.
Arguments come from a tool and so from a model: treat every string as hostile.
"""

from typing import Protocol, runtime_checkable

from toolcell_tools.handles import FetchedPage, MemoryRecord, SearchHit

__all__ = ["Channel", "FetchedPage", "MemoryRecord", "MemoryStore", "SearchHit", "WebClient"]


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
    """The public web, read-only: GET and nothing else, and never an address of the machine's own networks."""

    async def search(self, query: str, *, limit: int) -> list[SearchHit]:
        """Return at most `limit` hits, best first. Raise `NotConfigured` where there is no search engine."""
        ...

    async def fetch(self, url: str, *, max_bytes: int) -> FetchedPage:
        """Return the page at `url` after redirects, whatever its status, with at most `max_bytes` of its body."""
        ...
