"""MCP, the Model Context Protocol. Nothing is imported before it is used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client.toolset import McpToolset as McpToolset
    from .client.toolset import mcp_toolset as mcp_toolset

_WHERE = {"McpToolset": ".client.toolset", "mcp_toolset": ".client.toolset"}
__all__ = ["McpToolset", "mcp_toolset"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name], __name__), name)
