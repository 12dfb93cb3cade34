"""The vocabulary of toolcell: tools, their context and results, and the nine base tools."""

from importlib import import_module

TYPE_CHECKING = False  # checkers know this name; importing typing would cost 5 ms
if TYPE_CHECKING:
    from .artifact import Artifact
    from .base import base_tools
    from .capability import CHANGING, KIND_GRANTS, Capability, PermissionTier, SessionKind
    from .coding import coding_tools
    from .confirmation import Confirmation
    from .content import AudioBlock, Content, ImageBlock, ResourceBlock, TextBlock
    from .context import HostContext, Reporter, ToolContext, require
    from .declaration import Declared, ToolDeclaration
    from .definition import Tool, tool
    from .dynamic import DynamicHostTool, DynamicTool, dynamic_host_tool, dynamic_tool, is_dynamic
    from .encode import encode_json
    from .errors import (
        CallOutcome,
        Cancelled,
        Crashed,
        CutShort,
        ErrorBase,
        ExecutionError,
        LastProgress,
        LimitedResource,
        LimitExceeded,
        NodeLost,
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
    from .handles import (
        ChannelHandle,
        ChannelMessage,
        ChannelStatus,
        FetchedPage,
        HttpHandle,
        HttpResponse,
        MemoryKind,
        MemoryReader,
        MemoryRecord,
        MemoryWriter,
        SearchHit,
        SentMessage,
        WebHandle,
    )
    from .loop_tools import ask_user, exit_loop, load_artifacts, load_memory, transfer_to
    from .options import (
        Annotations,
        Approval,
        DynamicHostOptions,
        DynamicOptions,
        ExceptionsShown,
        FailureMode,
        Kind,
        Lifetime,
        Mutates,
        Placement,
        ToolOptions,
        Variation,
    )
    from .outside_cells import HostTool, ProviderTool, host_tool, provider_tool
    from .preview import Preview
    from .result import CapturedOutput, Notice, NoticeKind, SandboxSummary, ToolResult, Usage
    from .returned import encode_return
    from .schemas.untrusted import check_foreign_schema
    from .session_info import SessionInfo
    from .shell import Completed, Shell
    from .signals import Pending, Signal, SignalKind
    from .toolsets import (
        AnyTool,
        ApprovalRequired,
        Cached,
        Combined,
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
    from .typed import TypedTool, TypedToolAdapter, as_tool
    from .workspace import DeniedWorkspace, Entry, WorkspaceReader, WorkspaceWriter

__all__ = [
    "CHANGING",
    "KIND_GRANTS",
    "Annotations",
    "AnyTool",
    "Approval",
    "ApprovalRequired",
    "Artifact",
    "AudioBlock",
    "Cached",
    "CallOutcome",
    "Cancelled",
    "Capability",
    "CapturedOutput",
    "ChannelHandle",
    "ChannelMessage",
    "ChannelStatus",
    "Combined",
    "Completed",
    "Confirmation",
    "Content",
    "Crashed",
    "CutShort",
    "Declared",
    "DeniedWorkspace",
    "DynamicHostOptions",
    "DynamicHostTool",
    "DynamicOptions",
    "DynamicTool",
    "Entry",
    "ErrorBase",
    "ExceptionsShown",
    "ExecutionError",
    "FailureMode",
    "FetchedPage",
    "Filtered",
    "FunctionToolset",
    "HostContext",
    "HostTool",
    "HttpHandle",
    "HttpResponse",
    "ImageBlock",
    "Kind",
    "LastProgress",
    "Lifetime",
    "LimitExceeded",
    "LimitedResource",
    "MemoryKind",
    "MemoryReader",
    "MemoryRecord",
    "MemoryWriter",
    "MissingCapability",
    "Mutates",
    "NodeLost",
    "Notice",
    "NoticeKind",
    "Overloaded",
    "Pending",
    "PermissionDenied",
    "PermissionTier",
    "Placement",
    "Prefixed",
    "Prepared",
    "Preview",
    "ProtectedName",
    "ProtocolViolation",
    "ProviderTool",
    "Renamed",
    "Reporter",
    "RequestDenied",
    "ResourceBlock",
    "SandboxSummary",
    "SandboxUnavailable",
    "SearchHit",
    "SentMessage",
    "SessionInfo",
    "SessionKind",
    "Shell",
    "Signal",
    "SignalKind",
    "StaticToolset",
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
    "Toolset",
    "ToolsetError",
    "TypedTool",
    "TypedToolAdapter",
    "Unencodable",
    "UnknownTool",
    "Usage",
    "ValidationError",
    "Variation",
    "WebHandle",
    "WithMetadata",
    "WorkspaceReader",
    "WorkspaceWriter",
    "Wrapper",
    "as_tool",
    "as_tools",
    "ask_user",
    "base_tools",
    "check_foreign_schema",
    "coding_tools",
    "dynamic_host_tool",
    "dynamic_tool",
    "encode_json",
    "encode_return",
    "exit_loop",
    "host_tool",
    "is_dynamic",
    "load_artifacts",
    "load_memory",
    "parse_error",
    "provider_tool",
    "require",
    "tool",
    "toolset",
    "transfer_to",
]
_HOMES = {
    "artifact": "Artifact",
    "base": "base_tools",
    "capability": "CHANGING Capability KIND_GRANTS PermissionTier SessionKind",
    "coding": "coding_tools",
    "confirmation": "Confirmation",
    "content": "AudioBlock Content ImageBlock ResourceBlock TextBlock",
    "context": "HostContext Reporter ToolContext require",
    "declaration": "Declared ToolDeclaration",
    "definition": "Tool tool",
    "dynamic": "DynamicHostTool DynamicTool dynamic_host_tool dynamic_tool is_dynamic",
    "encode": "encode_json",
    "errors": (
        "CallOutcome Cancelled Crashed CutShort ErrorBase ExecutionError LastProgress LimitExceeded "
        "LimitedResource NodeLost Overloaded PermissionDenied ProtocolViolation SandboxUnavailable Timeout "
        "ToolError ToolFailed UnknownTool ValidationError parse_error"
    ),
    "failures": "MissingCapability ProtectedName RequestDenied ToolDefinitionError ToolFailure Unencodable",
    "schemas.untrusted": "check_foreign_schema",
    "handles": (
        "ChannelHandle ChannelMessage ChannelStatus FetchedPage HttpHandle HttpResponse MemoryKind "
        "MemoryReader MemoryRecord MemoryWriter SearchHit SentMessage WebHandle"
    ),
    "options": (
        "Annotations Approval DynamicHostOptions DynamicOptions ExceptionsShown FailureMode Kind Lifetime Mutates "
        "Placement ToolOptions Variation"
    ),
    "preview": "Preview",
    "result": "CapturedOutput Notice NoticeKind SandboxSummary ToolResult Usage",
    "returned": "encode_return",
    "session_info": "SessionInfo",
    "shell": "Completed Shell",
    "signals": "Pending Signal SignalKind",
    "loop_tools": "ask_user exit_loop load_artifacts load_memory transfer_to",
    "outside_cells": "HostTool ProviderTool host_tool provider_tool",
    "toolsets": (
        "AnyTool ApprovalRequired Cached Combined Filtered FunctionToolset Prefixed Prepared Renamed "
        "StaticToolset Toolset ToolsetError WithMetadata Wrapper as_tools toolset"
    ),
    "typed": "TypedTool TypedToolAdapter as_tool",
    "workspace": "DeniedWorkspace Entry WorkspaceReader WorkspaceWriter",
}


def __getattr__(name: str) -> object:
    home = next((module for module, names in _HOMES.items() if name in names.split()), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
