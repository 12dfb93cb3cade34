"""The vocabulary of toolcell: tools, their context and results, and the nine base tools."""

from importlib import import_module

TYPE_CHECKING = False  # checkers know this name; importing typing would cost 5 ms
if TYPE_CHECKING:
    from .annotations import Annotations
    from .artifact import Artifact
    from .base import base_tools
    from .capability import KIND_GRANTS, Capability, PermissionTier, SessionKind
    from .content import AudioBlock, Content, ImageBlock, ResourceBlock, TextBlock
    from .context import Reporter, ToolContext, require
    from .declaration import ToolDeclaration
    from .definition import Tool
    from .encode import encode_json, encode_return
    from .errors import (
        Cancelled,
        Crashed,
        ErrorBase,
        ExecutionError,
        LimitExceeded,
        Overloaded,
        PermissionDenied,
        ProtocolViolation,
        SandboxUnavailable,
        Timeout,
        ToolError,
        ToolFailed,
        UnknownTool,
        ValidationError,
        parse_error,
    )
    from .failures import MissingCapability, ProtectedName, ToolDefinitionError, ToolFailure, Unencodable
    from .function import ToolOptions, as_tool, tool
    from .handles import (
        ChannelHandle,
        FetchedPage,
        HttpHandle,
        HttpResponse,
        MemoryReader,
        MemoryRecord,
        MemoryWriter,
        SearchHit,
        WebHandle,
    )
    from .result import CapturedOutput, SandboxSummary, ToolResult, Usage
    from .shell import Completed, Shell
    from .workspace import DeniedWorkspace, Entry, WorkspaceReader, WorkspaceWriter

__all__ = [
    "KIND_GRANTS",
    "Annotations",
    "Artifact",
    "AudioBlock",
    "Cancelled",
    "Capability",
    "CapturedOutput",
    "ChannelHandle",
    "Completed",
    "Content",
    "Crashed",
    "DeniedWorkspace",
    "Entry",
    "ErrorBase",
    "ExecutionError",
    "FetchedPage",
    "HttpHandle",
    "HttpResponse",
    "ImageBlock",
    "LimitExceeded",
    "MemoryReader",
    "MemoryRecord",
    "MemoryWriter",
    "MissingCapability",
    "Overloaded",
    "PermissionDenied",
    "PermissionTier",
    "ProtectedName",
    "ProtocolViolation",
    "Reporter",
    "ResourceBlock",
    "SandboxSummary",
    "SandboxUnavailable",
    "SearchHit",
    "SessionKind",
    "Shell",
    "TextBlock",
    "Timeout",
    "Tool",
    "ToolContext",
    "ToolDeclaration",
    "ToolDefinitionError",
    "ToolError",
    "ToolFailed",
    "ToolFailure",
    "ToolOptions",
    "ToolResult",
    "Unencodable",
    "UnknownTool",
    "Usage",
    "ValidationError",
    "WebHandle",
    "WorkspaceReader",
    "WorkspaceWriter",
    "as_tool",
    "base_tools",
    "encode_json",
    "encode_return",
    "parse_error",
    "require",
    "tool",
]
_HOMES = {
    "Annotations": "annotations",
    "Artifact": "artifact",
    "base_tools": "base",
    "KIND_GRANTS": "capability",
    "Capability": "capability",
    "PermissionTier": "capability",
    "SessionKind": "capability",
    "AudioBlock": "content",
    "Content": "content",
    "ImageBlock": "content",
    "ResourceBlock": "content",
    "TextBlock": "content",
    "Reporter": "context",
    "ToolContext": "context",
    "require": "context",
    "ToolDeclaration": "declaration",
    "Tool": "definition",
    "encode_json": "encode",
    "encode_return": "encode",
    "Cancelled": "errors",
    "Crashed": "errors",
    "ErrorBase": "errors",
    "ExecutionError": "errors",
    "LimitExceeded": "errors",
    "Overloaded": "errors",
    "PermissionDenied": "errors",
    "ProtocolViolation": "errors",
    "SandboxUnavailable": "errors",
    "Timeout": "errors",
    "ToolError": "errors",
    "ToolFailed": "errors",
    "UnknownTool": "errors",
    "ValidationError": "errors",
    "parse_error": "errors",
    "MissingCapability": "failures",
    "ProtectedName": "failures",
    "ToolDefinitionError": "failures",
    "ToolFailure": "failures",
    "Unencodable": "failures",
    "ToolOptions": "function",
    "as_tool": "function",
    "tool": "function",
    "ChannelHandle": "handles",
    "FetchedPage": "handles",
    "HttpHandle": "handles",
    "HttpResponse": "handles",
    "MemoryReader": "handles",
    "MemoryRecord": "handles",
    "MemoryWriter": "handles",
    "SearchHit": "handles",
    "WebHandle": "handles",
    "CapturedOutput": "result",
    "SandboxSummary": "result",
    "ToolResult": "result",
    "Usage": "result",
    "Completed": "shell",
    "Shell": "shell",
    "DeniedWorkspace": "workspace",
    "Entry": "workspace",
    "WorkspaceReader": "workspace",
    "WorkspaceWriter": "workspace",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
