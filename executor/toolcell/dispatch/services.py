"""The frozen values that the steps of a call get. `Services` is the same for all calls of a supervisor, `Caller`
for all calls of a session, and `Offer` for all calls of a tool in a session. `call_context.CallContext` is for one
call."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import anyio

from toolcell.backends.egress import Gateway
from toolcell.backends.protocols import Channel, HttpClient, MemoryStore, WebClient
from toolcell.errors import UsageError
from toolcell.pool.interface import CallPool
from toolcell.pool.reactor import Reactor
from toolcell.rules.limits import UsageMeter
from toolcell.rules.pages import ALL
from toolcell.rules.policy import Policy
from toolcell.rules.profile import Profile
from toolcell.rules.redaction import SessionSecrets
from toolcell.sessions.changes import WorkspaceChanges
from toolcell.sessions.channel_access import ChannelAccess
from toolcell.sessions.closure import NOTHING, Use
from toolcell.sessions.foreign_tools import Farewell, ForeignSource
from toolcell.sessions.protection import Protection
from toolcell.sessions.session_result import SessionData, SessionTally
from toolcell.sessions.shipping import shipped
from toolcell.sessions.toolbox import Toolbox
from toolcell.sessions.tree import SessionLife
from toolcell.sessions.web_access import RuledWeb, SeenLinks
from toolcell.store.approvals import AnyApprover, Approvals
from toolcell.store.directory import StateDirectory
from toolcell.store.journal import Journal
from toolcell.store.journal.durable import DurableJournal
from toolcell.store.results import ResultStore
from toolcell.telemetry import Metrics
from toolcell.telemetry.tracing import Telemetry
from toolcell_tools.capability import Capability, SessionKind
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.definition import Tool
from toolcell_tools.result import SandboxSummary

from .overflow import Overflow
from .turnstile import Gate
from .validate import Checks, Malformed

_READ_AND_WRITE = frozenset({Capability.READ, Capability.WRITE})


class Shipments:
    """The shipment of each tool: what a cell needs to load it. Computed once, for all sessions."""

    def __init__(self) -> None:
        self._shipments: WeakKeyDictionary[Tool[..., Any], tuple[Mapping[str, object], Use]] = WeakKeyDictionary()

    def shipped(self, tool: Tool[..., Any]) -> tuple[Mapping[str, object], Use]:
        """The tool's shipment and the objects that are sent with it by value. It is made again if a global name that it
        uses is rebound. Raises UsageError if it cannot be sent."""
        found = self._shipments.get(tool)
        if found is None or not found[1].is_current():
            found = self._shipments[tool] = shipped(tool, NOTHING if found is None else found[1])
        return found

    def shipment(self, tool: Tool[..., Any]) -> Mapping[str, object]:
        """The tool's shipment alone."""
        return self.shipped(tool)[0]

    def can_ship(self, tool: Tool[..., Any]) -> bool:
        """Whether a cell can load the tool. If not, calls of the tool get the reason."""
        try:
            self.shipped(tool)
        except UsageError:
            return False
        return True


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A tool as a session has it: with its compiled schemas, and with what its calls lack there. If they lack anything,
    none of them runs."""

    tool: Tool[..., Any]
    declaration: ToolDeclaration
    checks: Checks
    lacks: frozenset[Capability]
    use: Use
    """The objects that are sent to a cell by value with the tool. If they change, the offer is made again."""


@dataclass(frozen=True, slots=True, eq=False)
class Services:
    """What a supervisor provides to the steps of every call. Made once, when its pool has started."""

    pool: CallPool
    reactor: Reactor
    journal: Journal
    durable: DurableJournal | None
    """The same journal, if the supervisor has a state directory: it takes each call's intent."""
    state: StateDirectory | None
    """Its state directory, which no cell may see."""
    metrics: Metrics
    shipments: Shipments
    hook_timeout_s: float
    hooks: tuple[object, ...]
    policy: Policy
    rule_files: Mapping[str, str]
    """The settings file of each rule that came from one, by the name that explanations give to the rule."""
    approver: AnyApprover | None
    approvals: Callable[[], Approvals]
    """Returns the store of approvals. Without a state directory it is made at the first use."""
    results: ResultStore | None
    """Results that outlive the supervisor, if it has a state directory."""
    approval_timeout_s: float
    protection: Protection
    changes: WorkspaceChanges
    gateway: Gateway
    overflow: Overflow
    host_threads: anyio.CapacityLimiter
    sandbox: SandboxSummary
    gate: Gate
    telemetry: Telemetry | None
    """Traces calls; None if calls are not traced."""
    in_background: Callable[..., None]
    """Runs a coroutine function beside the call, with its arguments, until the supervisor ends."""


@dataclass(frozen=True, slots=True, eq=False)
class Caller:
    """The calling session: its identity, its capabilities, and its channels and clients. Made once, at its opening."""

    id: str
    kind: SessionKind
    agent_id: str
    workspace: Path
    profile: Profile
    grants: frozenset[Capability]
    channel: Channel
    access: ChannelAccess
    """The channel under the session's policy, for its calls."""
    memory: MemoryStore
    web: Callable[[], WebClient]
    """Returns the session's web client. It is made at the first use if none was given."""
    http: HttpClient
    approver: AnyApprover | None
    """The approver of its calls: the supervisor's approver, or the nearest channel that can approve, owned by this
    session or by one above it."""
    onlookers: tuple[Channel, ...]
    """The channels below the approver's that can only send. They show the question."""
    life: SessionLife
    data: SessionData
    toolbox: Toolbox
    tally: SessionTally
    secrets: SessionSecrets
    """What its results must not show."""
    meter: UsageMeter | None = None
    """Adds up what its calls use, if it or a session above it has usage limits."""
    seen: SeenLinks | None = None
    """The links that the supervisor has found for it, if its profile has a rule "seen"."""
    farewells: dict[ForeignSource, Farewell] = field(default_factory=dict[ForeignSource, Farewell])
    """What the sources of its tools do at its end."""
    malformed: Malformed = field(default_factory=Malformed)
    """Its calls whose arguments did not fit."""

    @property
    def line(self) -> tuple[str, ...]:
        """The agent ids from the root of its tree to its own."""
        return self.data.info.line

    @property
    def readable_workspace(self) -> Path | None:
        """The workspace, if the session may read and write it: then its long outputs are saved there."""
        return self.workspace if self.grants >= _READ_AND_WRITE else None

    def readable_web(self) -> WebClient:
        """The web client for its calls, which fetches the pages that its profile allows."""
        pages = self.profile.web
        return self.web() if pages == ALL else RuledWeb(self.web(), pages, self.seen)


def agent_facts(line: tuple[str, ...]) -> dict[str, Any]:
    """The agent in a record, and the agents above it if there are any, from the root."""
    return {"agent": line[-1], **({"ancestors": list(line[:-1])} if len(line) > 1 else {})}
