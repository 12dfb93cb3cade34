"""tools/list and tools/call."""

from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import ResourcesListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError

from toolcell_tools.exports.for_mcp import refused_arguments
from toolcell_tools.toolsets import ToolsetError

from .artifacts import Artifacts
from .bounds import ServerBounds
from .calls import ClientCalls, is_modern
from .catalog import Offered, ToolList
from .listening import Listeners
from .pages import page
from .questions import RoundState
from .reports import LEVELS
from .results import failed
from .tasks import Tasks, require_tasks, supports_tasks

__all__ = ["ToolRequests"]

Context = ServerRequestContext[Any, Any]


class ToolRequests:
    """Answers the requests about tools of one principal's clients."""

    def __init__(
        self,
        catalog: ToolList,
        calls: ClientCalls,
        tasks: Tasks,
        artifacts: Artifacts,
        listeners: Listeners,
        bounds: ServerBounds,
    ) -> None:
        self._catalog = catalog
        self._calls = calls
        self._tasks = tasks
        self._artifacts = artifacts
        self._listeners = listeners
        self._bounds = bounds

    async def list(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        """tools/list. Toolsets are asked at the first page."""
        if params is None or params.cursor is None:
            await self.refresh()
        entries, cursor = page(self._catalog.entries, params, self._bounds.page)
        return types.ListToolsResult(tools=entries, next_cursor=cursor)

    async def refresh(self) -> None:
        """Ask for the tools, and tell the clients if they are others. If a toolset fails, the last list holds."""
        try:
            has_changed = await self._catalog.refresh()
        except ToolsetError as error:
            raise MCPError(types.INTERNAL_ERROR, f"The tools cannot be listed now: {error}") from None
        if has_changed:
            await self._listeners.tell(ToolsListChanged())

    async def call(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> dict[str, Any] | types.InputRequiredResult:
        """tools/call. Raises MCPError for an unknown tool."""
        offered = await self._offered(params.name)
        refused = refused_arguments(offered.declaration, params.arguments or {})
        if refused:
            return failed(refused)
        before = self._artifacts.count
        if self._is_task(ctx, offered, params):
            answers = RoundState.read(params.request_state).told(params.input_responses)
            return await self._tasks.start(ctx, offered, params, answers)
        result = await self._calls.run(ctx, offered, params, self._level(ctx))
        if self._artifacts.count != before:
            await self._listeners.tell(ResourcesListChanged())
        await self.refresh()
        return result

    async def _offered(self, name: str) -> Offered:
        try:
            offered = await self._catalog.find(name)
        except ToolsetError as error:
            raise MCPError(types.INTERNAL_ERROR, f"The tools cannot be listed now: {error}") from None
        if offered is None:
            raise MCPError(
                types.INVALID_PARAMS, f"Unknown tool: {name[:128]!r}. tools/list names those that there are."
            )
        return offered

    def _is_task(self, ctx: Context, offered: Offered, params: types.CallToolRequestParams) -> bool:
        """Whether this call becomes a task. Raises MCPError for a client that does not support the tasks it needs."""
        if offered.task == "forbidden":
            return False
        if offered.task == "required":
            require_tasks(ctx)
        is_asking = offered.ask_first and params.input_responses is None
        return supports_tasks(ctx) and is_modern(ctx) and not is_asking

    def _level(self, ctx: Context) -> str:
        """The least severe log message that the client wants, "" for none."""
        if not is_modern(ctx):
            return self._listeners.level(ctx)
        wanted: object = (ctx.meta or {}).get(types.LOG_LEVEL_META_KEY)
        return wanted if isinstance(wanted, str) and wanted in LEVELS else ""
