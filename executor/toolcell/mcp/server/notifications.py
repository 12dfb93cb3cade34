"""What clients are told without a request: progress and log messages of a call, and changes.

The engine's callbacks run on the event loop and must not wait. So they put messages into a bounded queue, which a task
sends. A client that does not read loses messages, and delays nobody but itself. Changes are other tools, prompts or
resources, and other contents of a resource. A client of 2026-07-28 listens for them by a request
(`subscriptions/listen`), which the SDK serves. A client of the handshake protocol hears of changes on its session's own
stream, and names the resources that it wants to hear of.
"""

import math
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

from toolcell.wire.budget import MIB, memory_of
from toolcell_tools.preview import printable

from .bounds import ServerBounds

__all__ = ["LEVELS", "Listeners", "Reports", "reporting"]

LEVELS: Final[tuple[types.LoggingLevel, ...]] = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
FLUSH_S: Final = 2.0
"""How long a result waits for the messages before it."""
MESSAGE_CHARS: Final = 10_000
WAITING_BYTES: Final = 4 * MIB
"""The memory of the messages of a call that wait to be sent. Others are dropped, and counted."""
SEND_S: Final = 2.0
"""How long a client may take to read a notification of a change."""
URI_CHARS: Final = 2048
"""The longest URI that a client can subscribe to, because it is kept."""
URIS_CHARS: Final = 4_000_000
"""The characters of all URIs that the clients of a principal subscribe to."""
DEFAULT_LEVEL: Final = "info"
Context = ServerRequestContext[Any, Any]
Message = types.LoggingMessageNotificationParams | tuple[float, float | None, str]
"""A log message, or progress: its value, its total, its text."""


def _rank(level: str) -> int:
    return next((rank for rank, each in enumerate(LEVELS) if each == level), len(LEVELS))


class Reports:
    """The messages of one call. `progress` and `log` return at once."""

    def __init__(self, ctx: Context, tool: str, level: str, most: int) -> None:
        """`level` is the least severe one that the client wants, "" for none. `most` messages wait at a time."""
        self._ctx = ctx
        self._tool = tool
        self._least = _rank(level)
        self._most = most
        self._waiting: deque[tuple[Message, int]] = deque()
        self._bytes = 0
        self._changed = anyio.Event()
        self._closed = False
        self._last = 0.0
        self._dropped = 0
        self.sent = anyio.Event()

    def progress(self, message: str, fraction: float | None) -> None:
        """Report progress. MCP wants a number that grows, so a smaller fraction counts as a little more."""
        least = math.nextafter(self._last, math.inf)
        if fraction is None:
            value, total = (self._last + 1.0 if self._last >= 1.0 or self._last == 0.0 else least), None
        else:
            value, total = max(fraction, least if self._last else 0.0), 1.0
        self._last = value
        text = printable(message[:MESSAGE_CHARS])
        self._put((value, total, text), memory_of(text))

    def hears(self, level: str) -> bool:
        """Whether the client wants log messages of this level."""
        return _rank(level) >= self._least

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        """Pass on a log message, if the client wants its level."""
        rank = _rank(level)
        if rank == len(LEVELS) or rank < self._least:
            return
        text = printable(message[:MESSAGE_CHARS], keep="\n\t")
        data: Any = {"message": text, "fields": dict(fields)} if fields else text
        self._put(
            types.LoggingMessageNotificationParams(level=LEVELS[rank], logger=self._tool, data=data), memory_of(data)
        )

    def _put(self, message: Message, bytes: int) -> None:
        if self._closed:
            return
        if len(self._waiting) >= self._most or (self._waiting and self._bytes + bytes > WAITING_BYTES):
            self._dropped += 1
            return
        self._waiting.append((message, bytes))
        self._bytes += bytes
        self._changed.set()

    def close(self) -> None:
        """Take no more messages."""
        self._closed = True
        self._changed.set()

    async def pump(self) -> None:
        """Send the messages until `close`, and say how many were dropped."""
        while not self._closed or self._waiting:
            if self._waiting:
                message, bytes = self._waiting.popleft()
                self._bytes -= bytes
                await self._sent(message)
                continue
            self._changed = anyio.Event()
            await self._changed.wait()
        if self._dropped and self.hears("warning"):
            note = f"{self._dropped:,} messages of this call were dropped, because they came too fast."
            await self._sent(types.LoggingMessageNotificationParams(level="warning", logger=self._tool, data=note))
        self.sent.set()

    async def _sent(self, message: Message) -> None:
        if isinstance(message, tuple):
            return await self._ctx.session.report_progress(message[0], message[1], message[2])
        notification = types.LoggingMessageNotification(params=message)
        await self._ctx.session.send_notification(notification, self._ctx.request_id)


@asynccontextmanager
async def reporting(reports: Reports) -> AsyncGenerator[None]:
    """Send reports while the block runs, and wait a little for the last of them. The block must not raise."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reports.pump)
        yield
        reports.close()
        with anyio.move_on_after(FLUSH_S):
            await reports.sent.wait()
        tasks.cancel_scope.cancel()


def connection_of(ctx: Context) -> str:
    """The MCP session of a request: its id over HTTP, "" on a pipe."""
    request = ctx.request
    return "" if request is None else str(request.headers.get("mcp-session-id", ""))


class _McpSession:
    """A client of the handshake protocol: its channel, its log level, and the resources that it subscribes to."""

    def __init__(self) -> None:
        self.session: ServerSession | None = None
        self.level = DEFAULT_LEVEL
        self.uris: set[str] = set()


class Listeners:
    """Who wants to hear of changes. `tell` tells them."""

    def __init__(self, bounds: ServerBounds) -> None:
        self._bounds = bounds
        self._bus = InMemorySubscriptionBus()
        self._connections: OrderedDict[str, _McpSession] = OrderedDict()
        self.listen = ListenHandler(self._bus, max_subscriptions=bounds.listeners, max_buffered_events=bounds.reports)

    def level(self, ctx: Context) -> str:
        """The least severe log message that the client of a handshake protocol wants."""
        known = self._connections.get(connection_of(ctx))
        return DEFAULT_LEVEL if known is None else known.level

    def _connection(self, ctx: Context) -> _McpSession:
        """What is known of the client. The client that was heard of first is forgotten when there are too many."""
        id = connection_of(ctx)
        found = self._connections.setdefault(id, _McpSession())
        self._connections.move_to_end(id)
        while len(self._connections) > 2 * self._bounds.sessions:
            self._connections.popitem(last=False)
        return found

    async def initialized(self, ctx: Context, _params: types.NotificationParams) -> None:
        """Note a client that can be told of changes."""
        self._connection(ctx).session = ctx.session

    async def set_level(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        """logging/setLevel."""
        self._connection(ctx).level = params.level
        return types.EmptyResult()

    async def subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """resources/subscribe. Raises MCPError for a long URI, and for more resources than can be subscribed to."""
        if len(params.uri) > URI_CHARS:
            raise MCPError(types.INVALID_PARAMS, f"A URI has at most {URI_CHARS:,} characters.")
        uris = self._connection(ctx).uris
        if str(params.uri) in uris:
            return types.EmptyResult()
        if sum(len(uri) for each in self._connections.values() for uri in each.uris) + len(params.uri) > URIS_CHARS:
            raise MCPError(types.INVALID_PARAMS, "The URIs that are subscribed to are too long together.")
        if len(uris) >= self._bounds.page:
            raise MCPError(
                types.INVALID_PARAMS, f"The client has subscribed to {len(uris)} resources, the most possible."
            )
        uris.add(str(params.uri))
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        """resources/unsubscribe."""
        self._connection(ctx).uris.discard(str(params.uri))
        return types.EmptyResult()

    async def tell(self, event: ServerEvent) -> None:
        """Tell every client that wants to know."""
        await self._bus.publish(event)
        notification = _notification(event)
        async with anyio.create_task_group() as tasks:
            for each in list(self._connections.values()):
                if each.session is not None and (not isinstance(event, ResourceUpdated) or event.uri in each.uris):
                    tasks.start_soon(_sent, each.session, notification)


async def _sent(session: ServerSession, notification: types.ServerNotification) -> None:
    with anyio.move_on_after(SEND_S):
        await session.send_notification(notification)


def _notification(event: ServerEvent) -> types.ServerNotification:
    match event:
        case ToolsListChanged():
            return types.ToolListChangedNotification()
        case PromptsListChanged():
            return types.PromptListChangedNotification()
        case ResourcesListChanged():
            return types.ResourceListChangedNotification()
        case ResourceUpdated():
            return types.ResourceUpdatedNotification(params=types.ResourceUpdatedNotificationParams(uri=event.uri))
