"""The vocabulary of toolcell: tools, their context and results, and the nine base tools."""

from importlib import import_module

TYPE_CHECKING = False  # checkers know this name; importing typing would cost 5 ms
if TYPE_CHECKING:
    from .annotations import Annotations
    from .artifact import Artifact
    from .base import base_tools
    from .capability import KIND_GRANTS, Capability, PermissionTier, SessionKind
    from .content import AudioBlock, Content, ImageBlock, ResourceBlock, TextBlock
    from .context import HostContext, Reporter, ToolContext, require
    from .declaration import ToolDeclaration
    from .definition import Tool
    from .dynamic import DynamicTool, dynamic_tool, is_dynamic
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
    from .failures import (
        MissingCapability,
        ProtectedName,
        RequestDenied,
        ToolDefinitionError,
        ToolFailure,
        Unencodable,
    )
    from .function import as_tool, tool
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
    from .host import HostTool, host_tool
    from .options import ToolOptions
    from .pending import Pending
    from .preview import Preview
    from .provider import ProviderTool, provider_tool
    from .result import CapturedOutput, SandboxSummary, ToolResult, Usage
    from .shell import Completed, Shell
    from .typed import TypedTool, TypedToolAdapter
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
    "DynamicTool",
    "Entry",
    "ErrorBase",
    "ExecutionError",
    "FetchedPage",
    "HostContext",
    "HostTool",
    "HttpHandle",
    "HttpResponse",
    "ImageBlock",
    "LimitExceeded",
    "MemoryReader",
    "MemoryRecord",
    "MemoryWriter",
    "MissingCapability",
    "Overloaded",
    "Pending",
    "PermissionDenied",
    "PermissionTier",
    "Preview",
    "ProtectedName",
    "ProtocolViolation",
    "ProviderTool",
    "Reporter",
    "RequestDenied",
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
    "TypedTool",
    "TypedToolAdapter",
    "Unencodable",
    "UnknownTool",
    "Usage",
    "ValidationError",
    "WebHandle",
    "WorkspaceReader",
    "WorkspaceWriter",
    "as_tool",
    "base_tools",
    "dynamic_tool",
    "encode_json",
    "encode_return",
    "host_tool",
    "is_dynamic",
    "parse_error",
    "provider_tool",
    "require",
    "tool",
]
_HOMES = {
    "Annotations": "annotations",
    "Artifact": "artifact",
    "base_tools": "base",
    "Capability": "capability",
    "KIND_GRANTS": "capability",
    "PermissionTier": "capability",
    "SessionKind": "capability",
    "AudioBlock": "content",
    "Content": "content",
    "ImageBlock": "content",
    "ResourceBlock": "content",
    "TextBlock": "content",
    "HostContext": "context",
    "Reporter": "context",
    "ToolContext": "context",
    "require": "context",
    "ToolDeclaration": "declaration",
    "Tool": "definition",
    "DynamicTool": "dynamic",
    "dynamic_tool": "dynamic",
    "is_dynamic": "dynamic",
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
    "RequestDenied": "failures",
    "ToolDefinitionError": "failures",
    "ToolFailure": "failures",
    "Unencodable": "failures",
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
    "HostTool": "host",
    "host_tool": "host",
    "ToolOptions": "options",
    "Pending": "pending",
    "Preview": "preview",
    "ProviderTool": "provider",
    "provider_tool": "provider",
    "CapturedOutput": "result",
    "SandboxSummary": "result",
    "ToolResult": "result",
    "Usage": "result",
    "Completed": "shell",
    "Shell": "shell",
    "TypedTool": "typed",
    "TypedToolAdapter": "typed",
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
