"""Toolsets: sources of tools, asked for each session before each request to a model; and wrappers for toolsets."""

from .base import (
    AnyTool,
    ApprovalRequired,
    Cached,
    Filtered,
    FunctionToolset,
    Prefixed,
    Prepared,
    Renamed,
    StaticToolset,
    Toolset,
    ToolsetError,
    WithMetadata,
    Wrapper,
    as_tools,
    toolset,
)
from .resolve import Combined, resolve

__all__ = [
    "AnyTool",
    "ApprovalRequired",
    "Cached",
    "Combined",
    "Filtered",
    "FunctionToolset",
    "Prefixed",
    "Prepared",
    "Renamed",
    "StaticToolset",
    "Toolset",
    "ToolsetError",
    "WithMetadata",
    "Wrapper",
    "as_tools",
    "resolve",
    "toolset",
]
