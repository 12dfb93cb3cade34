"""The public names, for type checkers and editors. `__init__.py` loads them."""

from toolcell.agents import AgentRun as AgentRun
from toolcell.agents import agent_tool as agent_tool
from toolcell.agents import artifacts_text as artifacts_text
from toolcell.agents import delegate as delegate
from toolcell.agents import instructions_of as instructions_of
from toolcell.agents import preload_memory as preload_memory
from toolcell.backends.channels.console import ConsoleChannel as ConsoleChannel
from toolcell.backends.channels.console import LogChannel as LogChannel
from toolcell.backends.channels.in_process import CallbackChannel as CallbackChannel
from toolcell.backends.channels.in_process import ChannelQuestion as ChannelQuestion
from toolcell.backends.channels.in_process import InMemoryChannel as InMemoryChannel
from toolcell.backends.channels.in_process import ShownMessage as ShownMessage
from toolcell.backends.channels.webhook import WebhookChannel as WebhookChannel
from toolcell.backends.embedding import Embedder as Embedder
from toolcell.backends.embedding import LocalEmbedder as LocalEmbedder
from toolcell.backends.http.client import BrokeredHttp as BrokeredHttp
from toolcell.backends.lancedb_memory import LanceDBMemory as LanceDBMemory
from toolcell.backends.memory import SQLiteMemory as SQLiteMemory
from toolcell.backends.protocols import BackendError as BackendError
from toolcell.backends.protocols import Channel as Channel
from toolcell.backends.protocols import FullChannel as FullChannel
from toolcell.backends.protocols import HttpClient as HttpClient
from toolcell.backends.protocols import HttpReply as HttpReply
from toolcell.backends.protocols import HttpRequest as HttpRequest
from toolcell.backends.protocols import MemoryStore as MemoryStore
from toolcell.backends.protocols import SearchProvider as SearchProvider
from toolcell.backends.protocols import WebClient as WebClient
from toolcell.backends.search import BraveSearch as BraveSearch
from toolcell.backends.search import SearXNG as SearXNG
from toolcell.backends.search import StaticSearch as StaticSearch
from toolcell.backends.search import TavilySearch as TavilySearch
from toolcell.backends.web import PublicWeb as PublicWeb
from toolcell.dispatch.hooks import Deny as Deny
from toolcell.dispatch.hooks import Hook as Hook
from toolcell.dispatch.hooks import RepeatGuard as RepeatGuard
from toolcell.errors import ConfigError as ConfigError
from toolcell.errors import ConfigProblem as ConfigProblem
from toolcell.errors import SandboxUnavailableError as SandboxUnavailableError
from toolcell.errors import ToolcellError as ToolcellError
from toolcell.errors import UsageError as UsageError
from toolcell.pool.interface import SupervisorStatus as SupervisorStatus
from toolcell.rules.call import ToolCall as ToolCall
from toolcell.rules.channel import ChannelPolicy as ChannelPolicy
from toolcell.rules.credentials import Credential as Credential
from toolcell.rules.limits import Concurrency as Concurrency
from toolcell.rules.limits import SessionUsage as SessionUsage
from toolcell.rules.limits import UsageLimits as UsageLimits
from toolcell.rules.policy import Explanation as Explanation
from toolcell.rules.policy import Policy as Policy
from toolcell.rules.policy import PolicyRule as PolicyRule
from toolcell.rules.policy import TierPolicy as TierPolicy
from toolcell.rules.profile import Profile as Profile
from toolcell.rules.toml.config import Config as Config
from toolcell.rules.toml.load import load_config as load_config
from toolcell.runtime.batch import BatchResult as BatchResult
from toolcell.runtime.tasks import CallTask as CallTask
from toolcell.runtime.tasks import TaskStatus as TaskStatus
from toolcell.session import HostContext as HostContext  # first, because mypy takes the first of equal names
from toolcell.session import Session as Session
from toolcell.sessions.modules import ModuleToolset as ModuleToolset
from toolcell.sessions.modules import module_toolset as module_toolset
from toolcell.sessions.session_result import CallReport as CallReport
from toolcell.sessions.session_result import SessionResult as SessionResult
from toolcell.sessions.session_result import SessionState as SessionState
from toolcell.store.approvals import ApprovalEntry as ApprovalEntry
from toolcell.store.approvals import ApprovalQueue as ApprovalQueue
from toolcell.store.approvals import ApprovalRequest as ApprovalRequest
from toolcell.store.approvals import Approvals as Approvals
from toolcell.store.approvals import Approved as Approved
from toolcell.store.approvals import Approver as Approver
from toolcell.store.approvals import Denied as Denied
from toolcell.store.approvals import StandingApproval as StandingApproval
from toolcell.store.journal.journal import Journal as Journal
from toolcell.store.journal.journal import RecentJournal as RecentJournal
from toolcell.store.journal.journal import Record as Record
from toolcell.supervisor import Supervisor as Supervisor
from toolcell.workplaces.workspace_return import FileConflict as FileConflict
from toolcell.workplaces.workspace_return import FileVersion as FileVersion
from toolcell.workplaces.workspace_return import LeftOut as LeftOut
from toolcell.workplaces.workspace_return import WorkspaceReturn as WorkspaceReturn
from toolcell_sandbox.limits import Limits as Limits
from toolcell_sandbox.network import HostNetwork as HostNetwork
from toolcell_sandbox.network import NoNetwork as NoNetwork
from toolcell_sandbox.network import ProxyNetwork as ProxyNetwork
from toolcell_sandbox.report import Mechanism as Mechanism
from toolcell_sandbox.report import SandboxReport as SandboxReport
from toolcell_tools import *  # noqa: F403 - every public name of that package
from toolcell_tools.base.web_article import web_article as web_article
from toolcell_tools.options import legal_names as legal_names

# Again, because basedpyright takes the last of equal names:
from .session import HostContext as HostContext  # noqa: F811  # pyright: ignore[reportDuplicateImport]

__all__: list[str]
__version__: str
