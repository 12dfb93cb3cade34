"""Run the tool calls of LLM agents, each in a sandboxed process of its own.

    from toolcell import Supervisor, SessionKind, base_tools, tool

Importing this package loads nothing; each name loads its module on first use.
"""

from importlib import import_module

TYPE_CHECKING = False  # type checkers know this name; an import of typing would take milliseconds
if TYPE_CHECKING:
    from typing import TypeAlias

    from toolcell.agents import artifacts_text, instructions_of, preload_memory
    from toolcell.rules.call import ToolCall
    from toolcell.rules.channel import ChannelPolicy
    from toolcell.rules.circuit_breaker import CircuitBreaker
    from toolcell.rules.concurrency import Concurrency
    from toolcell.rules.credentials import Credential
    from toolcell.rules.limits import SessionUsage, UsageLimits
    from toolcell.rules.policy import Explanation, Policy, PolicyRule, TierPolicy
    from toolcell.rules.profile import Profile
    from toolcell.rules.toml.config import Config
    from toolcell.rules.toml.load import load_config
    from toolcell.runtime.batch import BatchResult
    from toolcell.sessions.session_result import CallReport, SessionResult, SessionState
    from toolcell.store.approvals import (
        ApprovalEntry,
        ApprovalQueue,
        ApprovalRequest,
        Approvals,
        Approved,
        Approver,
        Denied,
        StandingApproval,
    )
    from toolcell.store.journal.journal import Journal, RecentJournal, Record
    from toolcell.workplaces.workspace_return import FileConflict, FileVersion, LeftOut, WorkspaceReturn
    from toolcell_sandbox.limits import Limits
    from toolcell_sandbox.network import HostNetwork, NoNetwork, ProxyNetwork
    from toolcell_sandbox.report import Mechanism, SandboxReport
    from toolcell_tools.annotations import Annotations
    from toolcell_tools.artifact import Artifact
    from toolcell_tools.base import base_tools
    from toolcell_tools.base.web_article import web_article
    from toolcell_tools.capability import CHANGING, KIND_GRANTS, Capability, PermissionTier, SessionKind
    from toolcell_tools.coding import coding_tools
    from toolcell_tools.confirmation import Confirmation
    from toolcell_tools.content import AudioBlock, Content, ImageBlock, ResourceBlock, TextBlock
    from toolcell_tools.context import HostContext as _HostContext
    from toolcell_tools.context import Reporter, ToolContext, require
    from toolcell_tools.declaration import Declared, ToolDeclaration
    from toolcell_tools.definition import Tool
    from toolcell_tools.dynamic import DynamicHostTool, DynamicTool, dynamic_host_tool, dynamic_tool, is_dynamic
    from toolcell_tools.encode import encode_json, encode_return
    from toolcell_tools.errors import (
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
    from toolcell_tools.failures import (
        MissingCapability,
        ProtectedName,
        RequestDenied,
        ToolDefinitionError,
        ToolFailure,
        Unencodable,
    )
    from toolcell_tools.foreign import check_foreign_schema
    from toolcell_tools.function import tool
    from toolcell_tools.handles import (
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
    from toolcell_tools.host import HostTool, host_tool
    from toolcell_tools.options import (
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
    from toolcell_tools.pending import Pending
    from toolcell_tools.preview import Preview
    from toolcell_tools.provider import ProviderTool, provider_tool
    from toolcell_tools.ready.ask_user import ask_user
    from toolcell_tools.ready.exit_loop import exit_loop
    from toolcell_tools.ready.load_artifacts import load_artifacts
    from toolcell_tools.ready.load_memory import load_memory
    from toolcell_tools.ready.transfer_to import transfer_to
    from toolcell_tools.result import CapturedOutput, Notice, NoticeKind, SandboxSummary, ToolResult, Usage
    from toolcell_tools.rules import legal_names
    from toolcell_tools.session_info import SessionInfo
    from toolcell_tools.shell import Completed, Shell
    from toolcell_tools.signals import Signal, SignalKind
    from toolcell_tools.toolsets import (
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
    from toolcell_tools.typed import TypedTool, TypedToolAdapter, as_tool
    from toolcell_tools.workspace import DeniedWorkspace, Entry, WorkspaceReader, WorkspaceWriter

    from .agents import AgentRun, agent_tool, delegate
    from .backends.channels.callback import CallbackChannel
    from .backends.channels.console import ConsoleChannel
    from .backends.channels.in_memory import ChannelQuestion, InMemoryChannel, ShownMessage
    from .backends.channels.log import LogChannel
    from .backends.channels.webhook import WebhookChannel
    from .backends.embedding import Embedder, LocalEmbedder
    from .backends.errors import BackendError
    from .backends.http.client import BrokeredHttp
    from .backends.lancedb_memory import LanceDBMemory
    from .backends.memory import SQLiteMemory
    from .backends.protocols import (
        Channel,
        FullChannel,
        HttpClient,
        HttpReply,
        HttpRequest,
        MemoryStore,
        SearchProvider,
        WebClient,
    )
    from .backends.search import BraveSearch, SearXNG, StaticSearch, TavilySearch
    from .backends.web import PublicWeb
    from .dispatch.hooks import Deny, Hook
    from .dispatch.repeats import RepeatGuard
    from .errors import ConfigError, ConfigProblem, SandboxUnavailableError, ToolcellError, UsageError
    from .pool.recovery import SupervisorStatus
    from .runtime.tasks import CallTask, TaskStatus
    from .session import Session
    from .sessions.modules import ModuleToolset, module_toolset
    from .supervisor import Supervisor

    __version__: str
    HostContext: TypeAlias = _HostContext[Session]

_HOMES = {
    "toolcell_sandbox.limits": "Limits",
    "toolcell_sandbox.network": "HostNetwork NoNetwork ProxyNetwork",
    "toolcell_sandbox.report": "Mechanism SandboxReport",
    "toolcell_tools.annotations": "Annotations",
    "toolcell_tools.artifact": "Artifact",
    "toolcell_tools.base": "base_tools",
    "toolcell_tools.base.web_article": "web_article",
    "toolcell_tools.capability": "CHANGING Capability KIND_GRANTS PermissionTier SessionKind",
    "toolcell_tools.coding": "coding_tools",
    "toolcell_tools.content": "AudioBlock Content ImageBlock ResourceBlock TextBlock",
    "toolcell_tools.context": "HostContext Reporter ToolContext require",
    "toolcell_tools.declaration": "Declared ToolDeclaration",
    "toolcell_tools.definition": "Tool",
    "toolcell_tools.dynamic": "DynamicHostTool DynamicTool dynamic_host_tool dynamic_tool is_dynamic",
    "toolcell_tools.encode": "encode_json encode_return",
    "toolcell_tools.errors": (
        "CallOutcome Cancelled Crashed CutShort ErrorBase ExecutionError LastProgress LimitExceeded LimitedResource "
        "NodeLost Overloaded PermissionDenied ProtocolViolation SandboxUnavailable Timeout ToolError ToolFailed "
        "UnknownTool ValidationError parse_error"
    ),
    "toolcell_tools.failures": (
        "MissingCapability ProtectedName RequestDenied ToolDefinitionError ToolFailure Unencodable"
    ),
    "toolcell_tools.foreign": "check_foreign_schema",
    "toolcell_tools.function": "tool",
    "toolcell_tools.handles": (
        "ChannelHandle ChannelMessage ChannelStatus FetchedPage HttpHandle HttpResponse MemoryKind MemoryReader "
        "MemoryRecord MemoryWriter SearchHit SentMessage WebHandle"
    ),
    "toolcell_tools.host": "HostTool host_tool",
    "toolcell_tools.options": (
        "Approval DynamicHostOptions DynamicOptions ExceptionsShown FailureMode Kind Lifetime Mutates "
        "Placement ToolOptions Variation"
    ),
    "toolcell_tools.pending": "Pending",
    "toolcell_tools.preview": "Preview",
    "toolcell_tools.provider": "ProviderTool provider_tool",
    "toolcell_tools.rules": "legal_names",
    "toolcell_tools.result": "CapturedOutput Notice NoticeKind SandboxSummary ToolResult Usage",
    "toolcell_tools.session_info": "SessionInfo",
    "toolcell_tools.shell": "Completed Shell",
    "toolcell_tools.toolsets": (
        "AnyTool ApprovalRequired Cached Combined Filtered FunctionToolset Prefixed Prepared Renamed "
        "StaticToolset Toolset ToolsetError WithMetadata Wrapper as_tools toolset"
    ),
    "toolcell_tools.typed": "TypedTool TypedToolAdapter as_tool",
    "toolcell_tools.workspace": "DeniedWorkspace Entry WorkspaceReader WorkspaceWriter",
    "toolcell_tools.confirmation": "Confirmation",
    "toolcell_tools.signals": "Signal SignalKind",
    "toolcell_tools.ready.ask_user": "ask_user",
    "toolcell_tools.ready.exit_loop": "exit_loop",
    "toolcell_tools.ready.load_artifacts": "load_artifacts",
    "toolcell_tools.ready.load_memory": "load_memory",
    "toolcell_tools.ready.transfer_to": "transfer_to",
    "toolcell.store.approvals": (
        "ApprovalEntry ApprovalQueue ApprovalRequest Approvals Approved Approver Denied StandingApproval"
    ),
    "toolcell.backends.channels.callback": "CallbackChannel",
    "toolcell.backends.channels.console": "ConsoleChannel",
    "toolcell.backends.channels.in_memory": "ChannelQuestion InMemoryChannel ShownMessage",
    "toolcell.backends.channels.log": "LogChannel",
    "toolcell.backends.channels.webhook": "WebhookChannel",
    "toolcell.backends.embedding": "Embedder LocalEmbedder",
    "toolcell.backends.errors": "BackendError",
    "toolcell.backends.http.client": "BrokeredHttp",
    "toolcell.backends.lancedb_memory": "LanceDBMemory",
    "toolcell.backends.memory": "SQLiteMemory",
    "toolcell.backends.protocols": (
        "Channel FullChannel HttpClient HttpReply HttpRequest MemoryStore SearchProvider WebClient"
    ),
    "toolcell.backends.search": "BraveSearch SearXNG StaticSearch TavilySearch",
    "toolcell.backends.web": "PublicWeb",
    "toolcell.runtime.batch": "BatchResult",
    "toolcell.rules.call": "ToolCall",
    "toolcell.rules.channel": "ChannelPolicy",
    "toolcell.rules.circuit_breaker": "CircuitBreaker",
    "toolcell.rules.concurrency": "Concurrency",
    "toolcell.rules.toml.config": "Config",
    "toolcell.rules.toml.load": "load_config",
    "toolcell.rules.credentials": "Credential",
    "toolcell.dispatch.hooks": "Deny Hook",
    "toolcell.dispatch.repeats": "RepeatGuard",
    "toolcell.rules.policy": "Explanation Policy PolicyRule TierPolicy",
    "toolcell.errors": "ConfigError ConfigProblem SandboxUnavailableError ToolcellError UsageError",
    "toolcell.store.journal.journal": "Journal RecentJournal Record",
    "toolcell.pool.recovery": "SupervisorStatus",
    "toolcell.rules.profile": "Profile",
    "toolcell.runtime.tasks": "CallTask TaskStatus",
    "toolcell.session": "Session",
    "toolcell.sessions.modules": "ModuleToolset module_toolset",
    "toolcell.supervisor": "Supervisor",
    "toolcell.rules.limits": "SessionUsage UsageLimits",
    "toolcell.agents": "AgentRun agent_tool artifacts_text delegate instructions_of preload_memory",
    "toolcell.sessions.session_result": "CallReport SessionResult SessionState",
    "toolcell.workplaces.workspace_return": "FileConflict FileVersion LeftOut WorkspaceReturn",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "CHANGING",
    "KIND_GRANTS",
    "AgentRun",
    "Annotations",
    "AnyTool",
    "Approval",
    "ApprovalEntry",
    "ApprovalQueue",
    "ApprovalRequest",
    "ApprovalRequired",
    "Approvals",
    "Approved",
    "Approver",
    "Artifact",
    "AudioBlock",
    "BackendError",
    "BatchResult",
    "BraveSearch",
    "BrokeredHttp",
    "Cached",
    "CallOutcome",
    "CallReport",
    "CallTask",
    "CallbackChannel",
    "Cancelled",
    "Capability",
    "CapturedOutput",
    "Channel",
    "ChannelHandle",
    "ChannelMessage",
    "ChannelPolicy",
    "ChannelQuestion",
    "ChannelStatus",
    "CircuitBreaker",
    "Combined",
    "Completed",
    "Concurrency",
    "Config",
    "ConfigError",
    "ConfigProblem",
    "Confirmation",
    "ConsoleChannel",
    "Content",
    "Crashed",
    "Credential",
    "CutShort",
    "Declared",
    "Denied",
    "DeniedWorkspace",
    "Deny",
    "DynamicHostOptions",
    "DynamicHostTool",
    "DynamicOptions",
    "DynamicTool",
    "Embedder",
    "Entry",
    "ErrorBase",
    "ExceptionsShown",
    "ExecutionError",
    "Explanation",
    "FailureMode",
    "FetchedPage",
    "FileConflict",
    "FileVersion",
    "Filtered",
    "FullChannel",
    "FunctionToolset",
    "Hook",
    "HostContext",
    "HostNetwork",
    "HostTool",
    "HttpClient",
    "HttpHandle",
    "HttpReply",
    "HttpRequest",
    "HttpResponse",
    "ImageBlock",
    "InMemoryChannel",
    "Journal",
    "Kind",
    "LanceDBMemory",
    "LastProgress",
    "LeftOut",
    "Lifetime",
    "LimitExceeded",
    "LimitedResource",
    "Limits",
    "LocalEmbedder",
    "LogChannel",
    "Mechanism",
    "MemoryKind",
    "MemoryReader",
    "MemoryRecord",
    "MemoryStore",
    "MemoryWriter",
    "MissingCapability",
    "ModuleToolset",
    "Mutates",
    "NoNetwork",
    "NodeLost",
    "Notice",
    "NoticeKind",
    "Overloaded",
    "Pending",
    "PermissionDenied",
    "PermissionTier",
    "Placement",
    "Policy",
    "PolicyRule",
    "Prefixed",
    "Prepared",
    "Preview",
    "Profile",
    "ProtectedName",
    "ProtocolViolation",
    "ProviderTool",
    "ProxyNetwork",
    "PublicWeb",
    "RecentJournal",
    "Record",
    "Renamed",
    "RepeatGuard",
    "Reporter",
    "RequestDenied",
    "ResourceBlock",
    "SQLiteMemory",
    "SandboxReport",
    "SandboxSummary",
    "SandboxUnavailable",
    "SandboxUnavailableError",
    "SearXNG",
    "SearchHit",
    "SearchProvider",
    "SentMessage",
    "Session",
    "SessionInfo",
    "SessionKind",
    "SessionResult",
    "SessionState",
    "SessionUsage",
    "Shell",
    "ShownMessage",
    "Signal",
    "SignalKind",
    "StandingApproval",
    "StaticSearch",
    "StaticToolset",
    "Supervisor",
    "SupervisorStatus",
    "TaskStatus",
    "TavilySearch",
    "TextBlock",
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
    "ToolOptions",
    "ToolResult",
    "ToolcellError",
    "Toolset",
    "ToolsetError",
    "TypedTool",
    "TypedToolAdapter",
    "Unencodable",
    "UnknownTool",
    "Usage",
    "UsageError",
    "UsageLimits",
    "ValidationError",
    "Variation",
    "WebClient",
    "WebHandle",
    "WebhookChannel",
    "WithMetadata",
    "WorkspaceReader",
    "WorkspaceReturn",
    "WorkspaceWriter",
    "Wrapper",
    "agent_tool",
    "artifacts_text",
    "as_tool",
    "as_tools",
    "ask_user",
    "base_tools",
    "check_foreign_schema",
    "coding_tools",
    "delegate",
    "dynamic_host_tool",
    "dynamic_tool",
    "encode_json",
    "encode_return",
    "exit_loop",
    "host_tool",
    "instructions_of",
    "is_dynamic",
    "legal_names",
    "load_artifacts",
    "load_config",
    "load_memory",
    "module_toolset",
    "parse_error",
    "preload_memory",
    "provider_tool",
    "require",
    "tool",
    "toolset",
    "transfer_to",
    "web_article",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("toolcell")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'toolcell' has no attribute {name!r}")
    import_module("toolcell.errors")  # after this import, the errors of Profile are UsageErrors
    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value
