"""What every request passes first: a bound on the requests at the same time, and the headers of tasks."""

from typing import Any, Final

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

__all__ = ["BUSY", "Guards"]

BUSY: Final = -32000
"""The error of a request that was refused because too many others run."""
_TASK_METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
_UNCOUNTED: Final = frozenset({"subscriptions/listen", "initialize", "ping"})
"""Requests that do no work, or have a bound of their own."""


class Guards:
    """A middleware of the SDK's server."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.running = 0

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
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


def _check_name(ctx: ServerRequestContext[Any, Any]) -> None:
    """Over HTTP, the header Mcp-Name of a request about a task is the task's id (SEP-2663)."""
    request = ctx.request
    if request is None or ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return
    said = request.headers.get(MCP_NAME_HEADER)
    if said is None or decode_header_value(said) != (ctx.params or {}).get("taskId"):
        raise MCPError(types.HEADER_MISMATCH, f"The header {MCP_NAME_HEADER} is not the request's taskId.")
