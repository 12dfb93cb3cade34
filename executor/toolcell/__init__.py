"""Run the tool calls of LLM agents, each in a sandboxed process of its own.

    from toolcell import Supervisor, SessionKind, base_tools, tool

All public names of `toolcell_tools` are names here, too. Importing this package loads nothing; each name loads its
module on first use. Type checkers and editors read the stub beside this file.
"""

from importlib import import_module

_MODULES = {
    "toolcell.agents": "agent_tool AgentRun artifacts_text delegate instructions_of preload_memory",
    "toolcell.backends.channels.console": "ConsoleChannel LogChannel",
    "toolcell.backends.channels.in_process": "CallbackChannel ChannelQuestion InMemoryChannel ShownMessage",
    "toolcell.backends.channels.webhook": "WebhookChannel",
    "toolcell.backends.embedding": "Embedder LocalEmbedder",
    "toolcell.backends.http.client": "BrokeredHttp",
    "toolcell.backends.lancedb_memory": "LanceDBMemory",
    "toolcell.backends.memory": "SQLiteMemory",
    "toolcell.backends.protocols": (
        "BackendError Channel FullChannel HttpClient HttpReply HttpRequest MemoryStore SearchProvider WebClient"
    ),
    "toolcell.backends.search": "BraveSearch SearXNG StaticSearch TavilySearch",
    "toolcell.backends.web": "PublicWeb",
    "toolcell.dispatch.hooks": "Deny Hook RepeatGuard",
    "toolcell.errors": "ConfigError ConfigProblem SandboxUnavailableError ToolcellError UsageError",
    "toolcell.pool.interface": "SupervisorStatus",
    "toolcell.rules.call": "ToolCall",
    "toolcell.rules.channel": "ChannelPolicy",
    "toolcell.rules.credentials": "Credential",
    "toolcell.rules.limits": "Concurrency SessionUsage UsageLimits",
    "toolcell.rules.policy": "Explanation Policy PolicyRule TierPolicy",
    "toolcell.rules.profile": "Profile",
    "toolcell.rules.toml.config": "Config",
    "toolcell.rules.toml.load": "load_config",
    "toolcell.runtime.batch": "BatchResult",
    "toolcell.runtime.tasks": "CallTask TaskStatus",
    "toolcell.session": "Session",
    "toolcell.sessions.modules": "module_toolset ModuleToolset",
    "toolcell.sessions.session_result": "CallReport SessionResult SessionState",
    "toolcell.store.approvals": (
        "ApprovalEntry ApprovalQueue ApprovalRequest Approvals Approved Approver Denied StandingApproval"
    ),
    "toolcell.store.journal.journal": "Journal RecentJournal Record",
    "toolcell.supervisor": "Supervisor",
    "toolcell.workplaces.workspace_return": "FileConflict FileVersion LeftOut WorkspaceReturn",
    "toolcell_sandbox.limits": "Limits",
    "toolcell_sandbox.network": "HostNetwork NoNetwork ProxyNetwork",
    "toolcell_sandbox.report": "Mechanism SandboxReport",
    "toolcell_tools.base.web_article": "web_article",
    "toolcell_tools.options": "legal_names",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("toolcell")
    tools = import_module("toolcell_tools")
    if name == "__all__":
        return sorted([*_HOMES, *tools.__all__])
    if name not in _HOMES and name not in tools.__all__:
        raise AttributeError(f"module 'toolcell' has no attribute {name!r}")
    import_module("toolcell.errors")  # after this import, the errors of Profile are UsageErrors
    home = import_module(_HOMES[name]) if name in _HOMES else tools
    value = globals()[name] = getattr(home, name)
    return value
