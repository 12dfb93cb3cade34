"""Run the tool calls of LLM agents, each in a sandboxed process of its own.

    from toolcell import Supervisor, SessionKind, base_tools, tool

Importing this package loads nothing; each name loads its module on first use.
"""

from importlib import import_module

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from toolcell_sandbox.limits import Limits
    from toolcell_sandbox.network import HostNetwork, NoNetwork, ProxyNetwork
    from toolcell_sandbox.profile import Profile
    from toolcell_sandbox.report import Mechanism, SandboxReport
    from toolcell_tools.annotations import Annotations
    from toolcell_tools.artifact import Artifact
    from toolcell_tools.base import base_tools
    from toolcell_tools.capability import Capability, PermissionTier, SessionKind
    from toolcell_tools.context import HostContext, ToolContext, require
    from toolcell_tools.declaration import ToolDeclaration
    from toolcell_tools.definition import Tool
    from toolcell_tools.dynamic import dynamic_tool, is_dynamic
    from toolcell_tools.errors import (
        Cancelled,
        Crashed,
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
    )
    from toolcell_tools.failures import (
        MissingCapability,
        ProtectedName,
        RequestDenied,
        ToolDefinitionError,
        ToolFailure,
    )
    from toolcell_tools.function import tool
    from toolcell_tools.handles import FetchedPage, HttpResponse, MemoryRecord, SearchHit
    from toolcell_tools.host import host_tool
    from toolcell_tools.pending import Pending
    from toolcell_tools.preview import Preview
    from toolcell_tools.provider import ProviderTool, provider_tool
    from toolcell_tools.result import CapturedOutput, SandboxSummary, ToolResult, Usage
    from toolcell_tools.session_info import SessionInfo
    from toolcell_tools.toolsets import (
        Combined,
        FunctionToolset,
        StaticToolset,
        Toolset,
        ToolsetError,
        toolset,
    )
    from toolcell_tools.typed import TypedTool

    from .approvals import ApprovalQueue, ApprovalRequest, Approved, Approver, Denied
    from .backends.channel import LogChannel
    from .backends.errors import BackendError
    from .backends.http.client import BrokeredHttp
    from .backends.memory import SQLiteMemory
    from .backends.protocols import Channel, HttpClient, HttpReply, HttpRequest, MemoryStore, WebClient
    from .backends.web import PublicWeb
    from .call import ToolCall
    from .config.load import Config, load_config
    from .credentials import Credential
    from .dispatch.hooks import Deny, Hook
    from .dispatch.policy import Policy, TierPolicy
    from .errors import ConfigError, ConfigProblem, SandboxUnavailableError, ToolcellError, UsageError
    from .journal.journal import Journal, RecentJournal, Record
    from .session import Session
    from .sessions.modules import ModuleToolset, module_toolset
    from .supervisor import Supervisor

_HOMES = {
    "toolcell_sandbox.limits": "Limits",
    "toolcell_sandbox.network": "HostNetwork NoNetwork ProxyNetwork",
    "toolcell_sandbox.profile": "Profile",
    "toolcell_sandbox.report": "Mechanism SandboxReport",
    "toolcell_tools.annotations": "Annotations",
    "toolcell_tools.artifact": "Artifact",
    "toolcell_tools.base": "base_tools",
    "toolcell_tools.capability": "Capability PermissionTier SessionKind",
    "toolcell_tools.context": "HostContext ToolContext require",
    "toolcell_tools.declaration": "ToolDeclaration",
    "toolcell_tools.definition": "Tool",
    "toolcell_tools.dynamic": "dynamic_tool is_dynamic",
    "toolcell_tools.errors": (
        "Cancelled Crashed ExecutionError LimitExceeded Overloaded PermissionDenied ProtocolViolation "
        "SandboxUnavailable Timeout ToolError ToolFailed UnknownTool ValidationError"
    ),
    "toolcell_tools.failures": "MissingCapability ProtectedName RequestDenied ToolDefinitionError ToolFailure",
    "toolcell_tools.function": "tool",
    "toolcell_tools.handles": "FetchedPage HttpResponse MemoryRecord SearchHit",
    "toolcell_tools.host": "host_tool",
    "toolcell_tools.pending": "Pending",
    "toolcell_tools.preview": "Preview",
    "toolcell_tools.provider": "ProviderTool provider_tool",
    "toolcell_tools.result": "CapturedOutput SandboxSummary ToolResult Usage",
    "toolcell_tools.session_info": "SessionInfo",
    "toolcell_tools.toolsets": "Combined FunctionToolset StaticToolset Toolset ToolsetError toolset",
    "toolcell.approvals": "ApprovalQueue ApprovalRequest Approved Approver Denied",
    "toolcell_tools.typed": "TypedTool",
    "toolcell.backends.channel": "LogChannel",
    "toolcell.backends.errors": "BackendError",
    "toolcell.backends.http.client": "BrokeredHttp",
    "toolcell.backends.memory": "SQLiteMemory",
    "toolcell.backends.protocols": "Channel HttpClient HttpReply HttpRequest MemoryStore WebClient",
    "toolcell.backends.web": "PublicWeb",
    "toolcell.call": "ToolCall",
    "toolcell.config.load": "Config load_config",
    "toolcell.credentials": "Credential",
    "toolcell.dispatch.hooks": "Deny Hook",
    "toolcell.dispatch.policy": "Policy TierPolicy",
    "toolcell.errors": "ConfigError ConfigProblem SandboxUnavailableError ToolcellError UsageError",
    "toolcell.journal.journal": "Journal RecentJournal Record",
    "toolcell.session": "Session",
    "toolcell.sessions.modules": "ModuleToolset module_toolset",
    "toolcell.supervisor": "Supervisor",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Annotations",
    "ApprovalQueue",
    "ApprovalRequest",
    "Approved",
    "Approver",
    "Artifact",
    "BackendError",
    "BrokeredHttp",
    "Cancelled",
    "Capability",
    "CapturedOutput",
    "Channel",
    "Combined",
    "Config",
    "ConfigError",
    "ConfigProblem",
    "Crashed",
    "Credential",
    "Denied",
    "Deny",
    "ExecutionError",
    "FetchedPage",
    "FunctionToolset",
    "Hook",
    "HostContext",
    "HostNetwork",
    "HttpClient",
    "HttpReply",
    "HttpRequest",
    "HttpResponse",
    "Journal",
    "LimitExceeded",
    "Limits",
    "LogChannel",
    "Mechanism",
    "MemoryRecord",
    "MemoryStore",
    "MissingCapability",
    "ModuleToolset",
    "NoNetwork",
    "Overloaded",
    "Pending",
    "PermissionDenied",
    "PermissionTier",
    "Policy",
    "Preview",
    "Profile",
    "ProtectedName",
    "ProtocolViolation",
    "ProviderTool",
    "ProxyNetwork",
    "PublicWeb",
    "RecentJournal",
    "Record",
    "RequestDenied",
    "SQLiteMemory",
    "SandboxReport",
    "SandboxSummary",
    "SandboxUnavailable",
    "SandboxUnavailableError",
    "SearchHit",
    "Session",
    "SessionInfo",
    "SessionKind",
    "StaticToolset",
    "Supervisor",
    "TierPolicy",
    "Timeout",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDeclaration",
    "ToolDefinitionError",
    "ToolError",
    "ToolFailed",
    "ToolFailure",
    "ToolResult",
    "ToolcellError",
    "Toolset",
    "ToolsetError",
    "TypedTool",
    "UnknownTool",
    "Usage",
    "UsageError",
    "ValidationError",
    "WebClient",
    "base_tools",
    "dynamic_tool",
    "host_tool",
    "is_dynamic",
    "load_config",
    "module_toolset",
    "provider_tool",
    "require",
    "tool",
    "toolset",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'toolcell' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value
