"""The MCP server of one principal: its session, its tools, its tasks and its artifacts. Principals share none of it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server.caching import CacheHint
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import ServerEvent

from toolcell.session import Session
from toolcell.store.approvals import Approvals

from .approving import ClientChannel
from .artifacts import Artifacts
from .bounds import ServerBounds
from .calls import ClientCalls
from .catalog import ToolList
from .guards import Guards
from .kept_tasks import TaskKeeper
from .listening import Listeners
from .offers import CompletionRequests, PromptRequests, ResourceRequests
from .sources import Completions, Prompts, Resources
from .tasks import EXTENSION, TaskParams, Tasks, UpdateParams
from .tools import ToolRequests

__all__ = ["Offers", "PrincipalServer", "ServerIdentity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerIdentity:
    """How the server introduces itself to clients."""

    name: str
    version: str
    instructions: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """What a program offers besides tools."""

    prompts: Prompts | None = None
    resources: Resources | None = None
    completions: Completions | None = None


class _Server(Server[dict[str, Any]]):
    """The SDK's server, which says by itself that it tells of changes."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        told = notification_options or NotificationOptions(
            prompts_changed=True, resources_changed=True, tools_changed=True
        )
        return super().create_initialization_options(told, experimental_capabilities, extensions)


class PrincipalServer:
    """Serves the clients of one principal, over any number of connections."""

    def __init__(
        self,
        principal: str,
        session: Session,
        channel: ClientChannel,
        approvals: Approvals,
        tasks: TaskGroup,
        *,
        is_durable: bool,
        identity: ServerIdentity,
        offers: Offers,
        bounds: ServerBounds,
        keeper: TaskKeeper,
    ) -> None:
        """`session` has `channel` as its channel. `tasks` runs calls that outlive their request, and `keeper` keeps
        them for another run of the server."""
        self.session = session
        self.listeners = Listeners(bounds)
        self.catalog = ToolList(session)
        artifacts = Artifacts(session.workspace, bounds)
        calls = ClientCalls(session, self.catalog, artifacts, channel, approvals, is_durable=is_durable, bounds=bounds)
        running = Tasks(calls, tasks, bounds, keeper)
        self.tools = ToolRequests(self.catalog, calls, running, artifacts, self.listeners, bounds)
        resources = ResourceRequests(principal, offers.resources, artifacts, bounds)
        self.server = _made(identity, self.tools, resources, self.listeners, self.catalog)
        _add(self.server, "tools/call", types.CallToolRequestParams, self.tools.call)
        _add(self.server, "tasks/get", TaskParams, running.get)
        _add(self.server, "tasks/update", UpdateParams, running.update)
        _add(self.server, "tasks/cancel", TaskParams, running.cancel)
        self.server.extensions[EXTENSION] = {}
        _add_offers(self.server, principal, offers, bounds)
        _add(self.server, "logging/setLevel", types.SetLevelRequestParams, self.listeners.set_level)
        self.server.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self.listeners.initialized
        )
        security = RequestStateSecurity.ephemeral(ttl=bounds.answer_s)  # a key for each principal binds the state to it
        self.server.middleware.append(Guards(bounds.requests))
        self.server.middleware.append(RequestStateBoundary(security, default_audience=identity.name))

    async def tell(self, event: ServerEvent) -> None:
        """Tell the clients of a change."""
        await self.listeners.tell(event)


def _made(
    identity: ServerIdentity, tools: ToolRequests, resources: ResourceRequests, listeners: Listeners, catalog: ToolList
) -> Server[dict[str, Any]]:
    now = CacheHint(ttl_ms=0, scope="private")  # lists are the principal's own, and may change with any call
    return _Server(
        identity.name,
        version=identity.version,
        instructions=identity.instructions,
        cache_hints={
            "tools/list": now,
            "prompts/list": now,
            "resources/list": now,
            "resources/templates/list": now,
            "resources/read": now,
        },
        get_tool_input_schema=catalog.schema,
        on_list_tools=tools.list,
        on_list_resources=resources.list,
        on_list_resource_templates=resources.templates,
        on_read_resource=resources.read,
        on_subscribe_resource=listeners.subscribe,
        on_unsubscribe_resource=listeners.unsubscribe,
        on_subscriptions_listen=listeners.listen,
    )


def _add(
    server: Server[dict[str, Any]], method: str, params: type[Any], handler: Callable[..., Awaitable[Any]]
) -> None:
    server.add_request_handler(method, params, handler)


def _add_offers(server: Server[dict[str, Any]], principal: str, offers: Offers, bounds: ServerBounds) -> None:
    if offers.prompts is not None:
        prompts = PromptRequests(principal, offers.prompts, bounds)
        _add(server, "prompts/list", types.PaginatedRequestParams, prompts.list)
        _add(server, "prompts/get", types.GetPromptRequestParams, prompts.get)
    if offers.completions is not None:
        completions = CompletionRequests(principal, offers.completions)
        _add(server, "completion/complete", types.CompleteRequestParams, completions.complete)
