"""Toolsets: sources of tools, asked for each session before each request to a model; and wrappers for toolsets."""

from .approval import ApprovalRequired
from .base import AnyTool, Toolset, ToolsetError, Wrapper, as_tools
from .cached import Cached
from .combined import Combined
from .filtered import Filtered
from .function import FunctionToolset, toolset
from .metadata import WithMetadata
from .prefixed import Prefixed
from .prepared import Prepared
from .renamed import Renamed
from .resolve import resolve
from .static import StaticToolset

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
