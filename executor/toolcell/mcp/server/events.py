"""The last messages to clients of the handshake protocol over HTTP, for clients that lose their connection.

All MCP sessions of a principal share one bound. A session resumes its own streams only.
"""

from collections import OrderedDict
from dataclasses import dataclass
from itertools import count

from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp_types import JSONRPCMessage

__all__ = ["EventLog", "SessionEvents"]

FRAME_BYTES = 512
"""What a message takes besides its JSON text, in bytes."""


@dataclass(frozen=True, slots=True)
class _SentMessage:
    owner: object
    stream: str
    message: JSONRPCMessage | None
    bytes: int


class EventLog:
    """The messages of all MCP sessions of one principal. The oldest are forgotten first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._events: OrderedDict[str, _SentMessage] = OrderedDict()
        self._numbers = count(1)
        self.bytes = 0

    def add(self, owner: object, stream: str, message: JSONRPCMessage | None) -> str:
        """Keep a message of a stream, and return its id."""
        size = 0 if message is None else len(message.model_dump_json(by_alias=True, exclude_unset=True))
        id = str(next(self._numbers))
        self._events[id] = event = _SentMessage(owner, stream, message, size + FRAME_BYTES)
        self.bytes += event.bytes
        while self.bytes > self._most_bytes and self._events:
            self.bytes -= self._events.popitem(last=False)[1].bytes
        return id

    def after(self, owner: object, id: str) -> tuple[str, list[tuple[str, JSONRPCMessage]]] | None:
        """The stream of a message, and the messages after it. None if the message is not the owner's, or forgotten."""
        known = self._events.get(id)
        if known is None or known.owner is not owner:
            return None
        later = [
            (each, event.message)
            for each, event in self._events.items()
            if int(each) > int(id)
            and event.owner is owner
            and event.stream == known.stream
            and event.message is not None
        ]
        return known.stream, later


class SessionEvents(EventStore):
    """The messages of one MCP session."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        return self._log.add(self, stream_id, message)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        found = self._log.after(self, last_event_id)
        if found is None:
            return None
        stream, later = found
        for id, message in later:
            await send_callback(EventMessage(message, id))
        return stream
