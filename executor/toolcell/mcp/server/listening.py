"""Changes that clients are told of: other tools, prompts or resources, and other contents of a resource.

A client of 2026-07-28 listens by a request (`subscriptions/listen`), which the SDK serves. A client of the handshake
protocol hears of changes on its session's own stream, and names the resources that it wants to hear of.
"""

from collections import OrderedDict
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

from .bounds import ServerBounds

__all__ = ["Listeners", "connection_of"]

Context = ServerRequestContext[Any, Any]
SEND_S: Final = 2.0
"""How long a client may take to read a notification of a change."""
URI_CHARS: Final = 2048
"""The longest URI that a client can subscribe to, because it is kept."""
URIS_CHARS: Final = 4_000_000
"""The characters of all URIs that the clients of a principal subscribe to."""
DEFAULT_LEVEL: Final = "info"


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
