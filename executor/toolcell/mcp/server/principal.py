"""The MCP server of one principal: its session, its tools, its tasks and its artifacts. Principals share none of it.

It answers tools/list and tools/call. Each request passes a bound on the requests at the same time first.
"""

from dataclasses import dataclass
from typing import Any, Final

import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import ResourcesListChanged, ServerEvent, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolcell.session import Session
from toolcell.store.approvals import Approvals
from toolcell_tools.exports.for_mcp import refused_arguments
from toolcell_tools.toolsets import ToolsetError

from .artifacts import Artifacts
from .bounds import ServerBounds
from .client_approval import ClientChannel
from .client_calls import ClientCalls, is_modern
from .client_tasks import EXTENSION, TaskParams, Tasks, UpdateParams, require_tasks, supports_tasks
from .kept_tasks import TaskKeeper
from .notifications import LEVELS, Listeners
from .offers import CompletionRequests, Offers, PromptRequests, ResourceRequests, page
from .questions import RoundState
from .tool_list import ListedTool, ToolList, failed

__all__ = ["BUSY", "PrincipalServer", "ServerIdentity"]

BUSY: Final = -32000
"""The error of a request that was refused because too many others run."""
_TASK_METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
_UNCOUNTED: Final = frozenset({"subscriptions/listen", "initialize", "ping"})
"""Requests that do no work, or have a bound of their own."""
Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerIdentity:
    """How the server introduces itself to clients."""

    name: str
    version: str
    instructions: str | None


class PrincipalServer:
    """Serves the clients of one principal, over any number of connections. `server` is the SDK's."""

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
        self._bounds = bounds
        self._tools = ToolList(session)
        self._artifacts = Artifacts(session.workspace, bounds)
        self._calls = ClientCalls(
            session, self._tools, self._artifacts, channel, approvals, is_durable=is_durable, bounds=bounds
        )
        self._tasks = Tasks(self._calls, tasks, bounds, keeper)
        self._listeners = Listeners(bounds)
        self.server = self._sdk_server(principal, identity, offers)

    def _sdk_server(self, principal: str, identity: ServerIdentity, offers: Offers) -> Server[dict[str, Any]]:
        now = CacheHint(ttl_ms=0, scope="private")  # lists are the principal's own, and may change with any call
        listeners, tasks = self._listeners, self._tasks
        resources = ResourceRequests(principal, offers.resources, self._artifacts, self._bounds)
        server = _Server(
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
            get_tool_input_schema=self._tools.schema,
            on_list_tools=self._list_tools,
            on_list_resources=resources.list,
            on_list_resource_templates=resources.templates,
            on_read_resource=resources.read,
            on_subscribe_resource=listeners.subscribe,
            on_unsubscribe_resource=listeners.unsubscribe,
            on_subscriptions_listen=listeners.listen,
        )
        handlers: dict[str, tuple[type[Any], Any]] = {
            "tools/call": (types.CallToolRequestParams, self._call_tool),
            "tasks/get": (TaskParams, tasks.get),
            "tasks/update": (UpdateParams, tasks.update),
            "tasks/cancel": (TaskParams, tasks.cancel),
            "logging/setLevel": (types.SetLevelRequestParams, listeners.set_level),
        }
        if offers.prompts is not None:
            prompts = PromptRequests(principal, offers.prompts, self._bounds)
            handlers["prompts/list"] = types.PaginatedRequestParams, prompts.list
            handlers["prompts/get"] = types.GetPromptRequestParams, prompts.get
        if offers.completions is not None:
            completions = CompletionRequests(principal, offers.completions)
            handlers["completion/complete"] = types.CompleteRequestParams, completions.complete
        for method, (params, handler) in handlers.items():
            server.add_request_handler(method, params, handler)
        server.add_notification_handler("notifications/initialized", types.NotificationParams, listeners.initialized)
        server.extensions[EXTENSION] = {}
        # a key for each principal binds the state of a call's rounds to it
        security = RequestStateSecurity.ephemeral(ttl=self._bounds.answer_s)
        server.middleware.append(_RequestGuard(self._bounds.requests))
        server.middleware.append(RequestStateBoundary(security, default_audience=identity.name))
        return server

    async def tell(self, event: ServerEvent) -> None:
        """Tell the clients of a change."""
        await self._listeners.tell(event)

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        """tools/list. Toolsets are asked at the first page."""
        if params is None or params.cursor is None:
            await self.refresh()
        entries, cursor = page(self._tools.entries, params, self._bounds.page)
        return types.ListToolsResult(tools=entries, next_cursor=cursor)

    async def refresh(self) -> None:
        """Ask for the tools, and tell the clients if they are others. If a toolset fails, the last list holds."""
        try:
            has_changed = await self._tools.refresh()
        except ToolsetError as error:
            raise MCPError(types.INTERNAL_ERROR, f"The tools cannot be listed now: {error}") from None
        if has_changed:
            await self._listeners.tell(ToolsListChanged())

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> dict[str, Any] | types.InputRequiredResult:
        """tools/call. Raises MCPError for an unknown tool."""
        tool = await self._listed(params.name)
        refused = refused_arguments(tool.declaration, params.arguments or {})
        if refused:
            return failed(refused)
        before = self._artifacts.count
        if self._is_task(ctx, tool, params):
            answers = RoundState.read(params.request_state).told(params.input_responses)
            return await self._tasks.start(ctx, tool, params, answers)
        result = await self._calls.run(ctx, tool, params, self._level(ctx))
        if self._artifacts.count != before:
            await self._listeners.tell(ResourcesListChanged())
        await self.refresh()
        return result

    async def _listed(self, name: str) -> ListedTool:
        try:
            tool = await self._tools.find(name)
        except ToolsetError as error:
            raise MCPError(types.INTERNAL_ERROR, f"The tools cannot be listed now: {error}") from None
        if tool is None:
            raise MCPError(
                types.INVALID_PARAMS, f"Unknown tool: {name[:128]!r}. tools/list names those that there are."
            )
        return tool

    def _is_task(self, ctx: Context, tool: ListedTool, params: types.CallToolRequestParams) -> bool:
        """Whether this call becomes a task. Raises MCPError for a client that does not support the tasks it needs."""
        if tool.task == "forbidden":
            return False
        if tool.task == "required":
            require_tasks(ctx)
        is_asking = tool.ask_first and params.input_responses is None
        return supports_tasks(ctx) and is_modern(ctx) and not is_asking

    def _level(self, ctx: Context) -> str:
        """The least severe log message that the client wants, "" for none."""
        if not is_modern(ctx):
            return self._listeners.level(ctx)
        wanted: object = (ctx.meta or {}).get(types.LOG_LEVEL_META_KEY)
        return wanted if isinstance(wanted, str) and wanted in LEVELS else ""


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


class _RequestGuard:
    """A middleware of the SDK's server: a bound on the requests at the same time, and the headers of tasks."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.running = 0

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None or ctx.method in _UNCOUNTED:
            return await call_next(ctx)
        if self.running >= self._most:
            message = f"The client has {self._most} requests that are not answered yet. Try again when one is."
            raise MCPError(BUSY, message, {"retryable": True})
        if ctx.method in _TASK_METHODS:
            _check_name(ctx)
        self.running += 1
        try:
            return await call_next(ctx)
        finally:
            self.running -= 1


def _check_name(ctx: Context) -> None:
    """Over HTTP, the header Mcp-Name of a request about a task is the task's id (SEP-2663)."""
    request = ctx.request
    if request is None or ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return
    said = request.headers.get(MCP_NAME_HEADER)
    if said is None or decode_header_value(said) != (ctx.params or {}).get("taskId"):
        raise MCPError(types.HEADER_MISMATCH, f"The header {MCP_NAME_HEADER} is not the request's taskId.")
