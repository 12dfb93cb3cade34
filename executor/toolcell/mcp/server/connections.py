"""The connections of an HTTP server: bounded, so that nobody without a token keeps the principals out.

A connection is a stranger until it has sent a request with a token. If there are too many strangers, the oldest one of
the address that has the most is closed. So half-open requests are closed, and a client that sends its request at once
is served. A principal has bounds of its own: its requests (`ServerBounds.streams`) and its idle connections.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from ipaddress import ip_network
from typing import Any, Final, cast

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

__all__ = ["ACCEPTED", "HAS_TOKEN", "BoundedConnection"]

HAS_TOKEN: Final = "toolcell.has_token"
"""The key, in the state of a request's scope, of the function to call with the request's principal."""
HEAD_S: Final = 10.0
"""Seconds in which the head of the next request must come."""
ACCEPTED: Final = 128
"""The connections that are accepted in one turn of the event loop."""
MAX_STRANGERS: Final = 2 * ACCEPTED
"""The most connections that have sent no token. It is more than are accepted in one turn, so each is read."""
MAX_IDLE: Final = 64
"""The most connections of one principal without a request."""
_HOST_BITS: Final = 64  # one client may have all addresses of such a network (RFC 4291)


class BoundedConnection(H11Protocol):
    """A connection that is closed if the next request does not come, or if its place is needed. It is uvicorn's h11
    protocol even where httptools is installed, because h11 bounds the head of a request."""

    principal: str | None = None
    """The principal whose token it has sent; None for a stranger."""
    address = ""
    waits_since = 0.0
    """When it was opened, or its last request ended."""
    _head: asyncio.TimerHandle | None = None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, HAS_TOKEN: self._has_token}, _loop)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = _network(self.client[0]) if self.client else ""
        self._await_head()
        strangers = [each for each in self._all() if each.principal is None]
        if len(strangers) > MAX_STRANGERS:
            counts = Counter(each.address for each in strangers)
            most = max(counts.values())  # several addresses may have as many
            self._close_oldest(each for each in strangers if counts[each.address] == most)

    def on_response_complete(self) -> None:
        self._await_head()  # uvicorn's own timer ends with the first byte
        super().on_response_complete()
        if self.principal is not None and len(self.connections) > MAX_IDLE:
            idle = [each for each in self._all() if each.principal == self.principal and each.is_idle]
            if len(idle) > MAX_IDLE:
                self._close_oldest(idle)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._head is not None:
            self._head.cancel()
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """Whether no request runs."""
        cycle = cast(RequestResponseCycle | None, self.cycle)  # None before the first request
        return cycle is None or cycle.response_complete

    def _all(self) -> Iterable["BoundedConnection"]:
        return (each for each in self.connections if isinstance(each, BoundedConnection))

    def _has_token(self, principal: str) -> None:
        self.principal = principal

    def _close_oldest(self, some: Iterable["BoundedConnection"]) -> None:
        oldest = min(some, key=lambda each: each.waits_since)
        self.connections.discard(oldest)
        oldest.transport.abort()

    def _await_head(self) -> None:
        self.waits_since = time.monotonic()
        if self._head is not None:
            self._head.cancel()
        self._head = self.loop.call_later(HEAD_S, self._close_without_request)

    def _close_without_request(self) -> None:
        if self.is_idle:
            self.transport.abort()


def _network(address: str) -> str:
    """The address, or the network of one client for IPv6."""
    return str(ip_network((address.partition("%")[0], _HOST_BITS), strict=False)) if ":" in address else address
