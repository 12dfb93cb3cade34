"""The vocabulary of toolcell: tools, their context and results, and the nine base tools.

Importing this package loads nothing; each name loads its module on first use. Type checkers and editors read the stub
beside this file.
"""

from importlib import import_module

_MODULES = {
    "artifact": "Artifact",
    "base": "base_tools",
    "capability": "Capability CHANGING KIND_GRANTS PermissionTier SessionKind",
    "coding": "coding_tools",
    "confirmation": "Confirmation",
    "content": "AudioBlock Content ImageBlock ResourceBlock TextBlock",
    "context": "HostContext Reporter require ToolContext",
    "declaration": "Declared ToolDeclaration",
    "definition": "Tool tool",
    "dynamic": "dynamic_host_tool dynamic_tool DynamicHostTool DynamicTool is_dynamic",
    "encode": "encode_json",
    "errors": (
        "CallOutcome Cancelled Crashed CutShort ErrorBase ExecutionError LastProgress LimitedResource LimitExceeded "
        "NodeLost Overloaded parse_error PermissionDenied ProtocolViolation SandboxUnavailable Timeout ToolError "
        "ToolFailed UnknownTool ValidationError"
    ),
    "failures": "MissingCapability ProtectedName RequestDenied ToolDefinitionError ToolFailure Unencodable",
    "handles": (
        "ChannelHandle ChannelMessage ChannelStatus FetchedPage HttpHandle HttpResponse MemoryKind MemoryReader "
        "MemoryRecord MemoryWriter SearchHit SentMessage WebHandle"
    ),
    "loop_tools": "ask_user exit_loop load_artifacts load_memory transfer_to",
    "options": (
        "Annotations Approval DynamicHostOptions DynamicOptions ExceptionsShown FailureMode Kind Lifetime Mutates "
        "Placement ToolOptions Variation"
    ),
    "outside_cells": "host_tool HostTool provider_tool ProviderTool",
    "preview": "Preview",
    "result": "CapturedOutput Notice NoticeKind SandboxSummary ToolResult Usage",
    "returned": "encode_return",
    "schemas.untrusted": "check_foreign_schema",
    "session_info": "SessionInfo",
    "shell": "Completed Shell",
    "signals": "Pending Signal SignalKind",
    "toolsets": (
        "AnyTool ApprovalRequired as_tools Cached Combined Filtered FunctionToolset Prefixed Prepared Renamed "
        "StaticToolset Toolset toolset ToolsetError WithMetadata Wrapper"
    ),
    "typed": "as_tool TypedTool TypedToolAdapter",
    "workspace": "DeniedWorkspace Entry WorkspaceReader WorkspaceWriter",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name == "__all__":
        return sorted(_HOMES)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
