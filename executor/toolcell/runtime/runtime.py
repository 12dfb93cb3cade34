"""The runtime of a supervisor: its start, its end, the services for its calls, and its sessions."""

import logging
import math
import os
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from toolcell.backends.channels.console import LogChannel
from toolcell.backends.egress import Gateway
from toolcell.backends.protocols import Channel, HttpClient, MemoryStore, WebClient
from toolcell.backends.web import PublicWeb
from toolcell.dispatch import ask_approval
from toolcell.dispatch.overflow import Overflow
from toolcell.dispatch.protected_names import audit_kept, record_findings
from toolcell.dispatch.resolve import tools_of_module, tools_of_source
from toolcell.dispatch.services import Caller, Services, Shipments, agent_facts
from toolcell.dispatch.startup_checks import PendingRules, unknown_arguments
from toolcell.dispatch.turnstile import Gate
from toolcell.dispatch.validate import checks_of
from toolcell.errors import UsageError
from toolcell.pool.capacity import default_max_cells, default_max_connections
from toolcell.pool.cell import Cell
from toolcell.pool.interface import CallPool, PoolHost
from toolcell.pool.pool import Pool
from toolcell.pool.reactor import Reactor
from toolcell.rules import misuse
from toolcell.rules.limits import UsageLimits, UsageMeter
from toolcell.rules.pages import SEEN
from toolcell.rules.profile import Profile
from toolcell.rules.redaction import SessionSecrets
from toolcell.runtime.leftovers import begin_record
from toolcell.runtime.opening import Opening, require_apart, require_texts, workspace_of
from toolcell.runtime.status import overview
from toolcell.runtime.suspended import kept_of, opening_of_kept, restore
from toolcell.sessions import tree
from toolcell.sessions.broker import MEMORY_ON_NODES, WEB_ON_NODES
from toolcell.sessions.changes import WorkspaceChanges
from toolcell.sessions.channel_access import ChannelAccess
from toolcell.sessions.foreign_tools import ForeignTool, say_all
from toolcell.sessions.grants import code_roots, resolved, session_grants, within
from toolcell.sessions.modules import ModuleSource
from toolcell.sessions.protection import Protection
from toolcell.sessions.session_result import SessionData, SessionState, SessionTally
from toolcell.sessions.supervisor_lifetime import Lifetime
from toolcell.sessions.toolbox import Toolbox
from toolcell.sessions.web_access import SeenLinks
from toolcell.sessions.written_places import WrittenPlaces
from toolcell.store.approvals import AnyApprover, Approvals, Approver
from toolcell.store.directory import StateDirectory
from toolcell.store.journal import Journal, Record
from toolcell.store.results import ResultStore
from toolcell.store.sessions import KeptSession, SessionStore
from toolcell.store.state import OpenState
from toolcell.telemetry import Metrics
from toolcell.wire import forks
from toolcell.workplaces.record import RunRecord
from toolcell_sandbox.profile import is_below
from toolcell_tools.capability import Capability, SessionKind
from toolcell_tools.preview import counted
from toolcell_tools.result import SandboxSummary, ToolResult
from toolcell_tools.session_info import SessionInfo
from toolcell_tools.toolsets.resolve import close_all

from .core import SessionCore, report_refused
from .settings import Settings
from .status_file import keep_status
from .tasks import CallTask, CallTasks

if TYPE_CHECKING:
    from toolcell.runtime.settings import OwnMemory

_log = logging.getLogger("toolcell")
MEMORY, WEB = "memory", "web"
MAX_HOST_THREADS = 40  # of synchronous host tools; the supervisor's own work in threads has another limit


class Runtime:
    """Everything that a supervisor owns. The program holds a `Supervisor`, which delegates to this."""

    def __init__(self, settings: Settings, public: object) -> None:
        """`public` is the program's `Supervisor`, to which toolsets are attached."""
        self.settings = settings
        self.shipments = Shipments()
        self.metrics = Metrics()
        self.journal: Journal = settings.journal  # from the start on, the durable one if there is a state directory
        self._own_secrets = SessionSecrets()
        self.record = RunRecord()  # of the files that the next supervisor removes if this one is killed
        self.overflow = Overflow(settings.model_bytes, record=self.record)
        elsewhere = settings.cluster is not None
        self.protection = Protection(settings.quarantine, self.record, elsewhere=elsewhere, on_hung=self._fail_session)
        self.changes = WorkspaceChanges(self.overflow.is_own, elsewhere=elsewhere)
        self.gateway = Gateway(self.in_background, resolve=settings.resolve, most=default_max_connections())
        known = (*settings.tools, *settings.provider_tools)
        self._rules = _checked_rules(settings, known)
        self._written = WrittenPlaces()
        self._resolved = {  # profiles with paths are resolved at each session's opening, because links may change
            kind: preset.replace(follow_links=False)
            for kind, preset in settings.profiles.items()
            if not (preset.readable or preset.writable)
        }
        self._public = public
        self.life = Lifetime(self._start_pool, self._stay)
        self._sessions: dict[str, SessionCore] = {}
        self._kept_gone: deque[Cell] = deque()  # their processes have ended; they are not audited yet
        self._pool: CallPool | None = None
        self._services: Services | None = None
        self.is_entered = False
        self._state: OpenState | None = None
        self._memory: OwnMemory | None = None
        self._approvals: Approvals | None = None
        self.tasks = CallTasks()
        forks.register(self)

    def __repr__(self) -> str:
        state = repr(self._pool) if self._pool is not None else "not running"
        has = f"{counted(len(self.settings.tools), 'tool')} · {counted(len(self._sessions), 'session')}"
        return f"<Supervisor {has} · {state}>"

    # -- start and end ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the supervisor, from any task. Do nothing if it was started. Check its tools first."""
        if self.life.state == "new":
            for tool in self.settings.tools.values():  # errors are raised here rather than at the first call
                checks_of(tool)
                if tool.placement == "cell":
                    self.shipments.shipment(tool)
        await self.life.begin()

    async def close(self) -> None:
        """End every call, session and process, from any task. Do nothing if the supervisor has ended or was never
        started. Do nothing in a fork of the program: the processes and files are those of its parent.
        """
        if self.life.is_inherited:
            return
        if self.life.is_cut_off:
            self.abandon()
        await self.life.end()

    def let_go(self) -> None:
        """In a fork of the program, leave everything to the parent. Before the start and after the end, nothing is
        shared."""
        if self.life.state not in ("new", "over"):
            self.life.let_go()
            self._pool = self._approvals = self._state = None
            for session in self._sessions.values():
                session.life.closed = True

    @property
    def calls(self) -> CallPool:
        """The pool of its calls, here or on a cluster."""
        if self._pool is None:
            raise self.life.why_not()
        return self._pool

    @property
    def pool(self) -> Pool:
        """The pool of its cells on this machine. Raises UsageError if its calls run on a cluster."""
        if not isinstance(pool := self.calls, Pool):
            raise UsageError("The cells of this supervisor are on the nodes of its cluster.")
        return pool

    @property
    def services(self) -> Services:
        """The services for its calls. Raises UsageError if the supervisor is not running. The caller may be on any
        event loop.
        """
        if self._services is None or self._pool is None:
            raise self.life.why_not()
        return self._services

    def approvals(self) -> Approvals:
        """The store of approvals. Raises UsageError if the supervisor has a state directory and is not running."""
        if self._approvals is None:
            if self.settings.state_directory is not None or self.life.is_inherited:
                raise self.life.why_not()
            self._approvals = Approvals()
        return self._approvals

    @property
    def _results(self) -> ResultStore | None:
        return None if self._state is None else self._state.results

    @property
    def _kept(self) -> SessionStore | None:
        return None if self._state is None else self._state.sessions

    def task(self, id: str) -> CallTask:
        """The task with this id. Raises UsageError."""
        found = self.tasks.find(id, self._results) if misuse.is_key(id) else None
        if found is None:
            raise UsageError(f"There is no task {id!r}. Ids are from Session.start.")
        return found

    def start_task(
        self,
        session_id: str,
        id: str | None,
        asked: tuple[str, Mapping[str, Any]],
        call_id: str | None,
        call: Callable[[str], Awaitable[ToolResult]],
    ) -> CallTask:
        """Run `call`, which gets the call's id, in a task of its own, unless the task with this id was started
        before."""
        task, is_new = self.tasks.begin(session_id, id, asked, call_id, self._results)
        if is_new:
            self.in_background(self.tasks.run, task, partial(call, task.call_id), self._results)
        return task

    def in_background(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Run a coroutine function for a call in a task of its own. The end of the supervisor cancels it."""
        self.life.beside(function, *args)

    async def _start_pool(self) -> None:
        settings = self.settings
        self._open_state()
        self._own_secrets.add_own()
        await begin_record(self.record, self.protection.quarantine, self.journal)
        pool = self._new_pool() if settings.cluster is None else settings.cluster.pool(self._host_of_pool())
        try:
            for name in sorted(pool.placed):
                if getattr(settings, name) is not None:
                    raise UsageError(
                        f"Supervisor({name}=…) and the cluster's {name}=… are both given. Pass one of them."
                    )
            await pool.start()
        except BaseException:
            self.record.end()
            self._close_state()
            raise
        self._pool = pool
        self._services = self._new_services(pool)

    def _new_pool(self) -> Pool:
        settings = self.settings
        return Pool(
            self.life.reactor,
            allow_missing=settings.allow_missing,
            max_cells=settings.max_cells or default_max_cells(),
            standby=bool(settings.standby),
            on_kept_gone=self._on_kept_gone,
            tools=[self.shipments.shipment(tool) for tool in settings.tools.values() if tool.placement == "cell"],
            record=self.record,
        )

    def _host_of_pool(self) -> PoolHost:
        return PoolHost(
            reactor=self.life.reactor,
            in_background=self.in_background,
            write=self.journal.write,
            allow_missing=self.settings.allow_missing,
            quarantine=self.settings.quarantine,
            is_durable=self._state is not None,
            on_session_lost=self._fail_session,
            tell_saved=partial(setattr, self.overflow, "on_saved"),
        )

    def _fail_session(self, id: str, why: str) -> None:
        """Close a session whose workspace is lost, in the background."""
        session = self._sessions.get(id)
        if session is not None and not session.life.closed:
            self.in_background(self.close_all, [session], 0.0, SessionState.FAILED, why)

    def _open_state(self) -> None:
        """Make the supervisor durable, if it has a state directory. Raises UsageError if that cannot be used."""
        state = self.settings.state_directory
        if state is None:
            return
        self._require_apart(state)
        self._state = OpenState(state, self.settings.journal, self.settings.journal_bytes or 0)
        self.journal, self._approvals = self._state.journal, self._state.approvals

    def _require_apart(self, state: StateDirectory) -> None:
        """Raise UsageError if the state directory is where each cell could see it, or files of cells are moved to."""
        state.require_outside_of_interpreter()
        for path in code_roots():
            state.require_apart(path, "the code that each cell loads")
        for profile in self.settings.profiles.values():
            for path in (*profile.readable, *profile.writable, *profile.system):
                state.require_apart(path, "a profile's path")
        if self.settings.quarantine is not None:
            state.require_apart(str(self.settings.quarantine), "the quarantine")

    def _overview(self) -> dict[str, Any]:
        if self._state is not None:
            self._state.record_ended_approvals()
        return overview(self.services, self._sessions.values())

    def _close_state(self) -> None:
        state, self._state = self._state, None
        if state is not None:
            state.close()
            self.journal = self.settings.journal
        elif self._approvals is not None:
            self._approvals.close()
        self._approvals = None

    def _new_services(self, pool: CallPool) -> Services:
        settings = self.settings
        allowed = sorted(name for name in settings.allow_missing if name not in pool.report.on)
        return Services(
            pool=pool,
            reactor=self.life.reactor,
            journal=self.journal,
            durable=None if self._state is None else self._state.journal,
            state=settings.state_directory,
            metrics=self.metrics,
            shipments=self.shipments,
            hooks=settings.hooks,
            hook_timeout_s=settings.hook_timeout_s,
            policy=settings.policy,
            rule_files=settings.rule_files,
            approver=settings.approver,
            approvals=self.approvals,
            results=self._results,
            approval_timeout_s=settings.approval_timeout_s,
            protection=self.protection,
            changes=self.changes,
            gateway=self.gateway,
            overflow=self.overflow,
            host_threads=anyio.CapacityLimiter(MAX_HOST_THREADS),
            sandbox=SandboxSummary(on=tuple(sorted(pool.report.on)), allowed_missing=tuple(allowed)),
            gate=Gate(settings.concurrency),
            telemetry=settings.telemetry,
            in_background=self.in_background,
        )

    async def _stay(self, up: Callable[[], None], asked: Callable[[], Awaitable[None]]) -> None:
        """In the supervisor's own task, wait until `asked()` returns or a task fails. Then end everything."""
        async with AsyncExitStack() as last:  # every step runs, the last first, even if another fails
            last.callback(setattr, self, "_pool", None)
            last.push_async_callback(self._end)
            for toolset in self.settings.toolsets:
                toolset.attach(self._public)
            up()
            if self.settings.state_directory is not None:
                self.in_background(keep_status, self.settings.state_directory.status, self._overview)
            if not self.settings.toolsets:
                self._rules.report(self.journal)
            try:
                await asked()
            except GeneratorExit:  # the event loop was closed, so nothing can be awaited
                last.pop_all()
                self.abandon()
                raise
            finally:
                if self.life.is_inherited:
                    last.pop_all()

    async def _end(self) -> None:
        with anyio.CancelScope(shield=True):
            async with AsyncExitStack() as last:
                last.push_async_callback(self.life.end_tasks)
                last.push_async_callback(close_all, self.settings.toolsets)
                last.callback(self._close_state)
                last.callback(self._rules.report, self.journal)
                last.callback(self.record.end)
                last.callback(self.overflow.close)
                if self._memory is not None:
                    last.callback(self._memory.close)
                last.push_async_callback(self._audit_rest)
                last.push_async_callback(self.calls.close)
                if self._approvals is not None:
                    self._approvals.is_ending = True
                self._leave_suspended()
                await self.close_all([each for each in self._sessions.values() if each.parent is None])
                await self.tasks.join()
                if self._approvals is not None:  # of sessions that were closed before
                    await ask_approval.catch_up(self._approvals)

    async def _audit_rest(self) -> None:
        """Audit the files of kept processes that ended after their last call."""
        await self._audit_kept()
        self.changes.close()
        for watch in await self.protection.close():
            record_findings(self.journal, watch)
        for directory in await self.protection.end_looks():
            _log.warning("%s stays unchecked for protected names: the supervisor ended first", directory)

    def abandon(self) -> None:
        """End every process after the event loop was closed while the supervisor ran. Work that needs the loop, such as
        audits, is left to the next supervisor, as after a kill.
        """
        pool, self._pool = self._pool, None
        self.life.give_up()
        for session in list(self._sessions.values()):
            session.life.closed = True
        self.changes.close()
        if pool is not None:
            pool.abandon()
        self._close_state()

    def _on_kept_gone(self, cell: Cell) -> None:
        self._kept_gone.append(cell)
        self.in_background(self._audit_kept)

    async def _audit_kept(self) -> None:
        while self._kept_gone:
            cell, living = self._kept_gone.popleft(), self.calls.kept_writable()
            await audit_kept(self.protection, self.journal, cell, living, self.in_background)

    # -- sessions -----------------------------------------------------------------------------------------------------

    def open(
        self, opening: Opening, parent: SessionCore | None = None, *, kept: KeptSession | None = None
    ) -> SessionCore:
        """Open a session. Raises UsageError if its workspace, its profile or its place in the tree is not allowed.
        `kept` is the suspended session that this one continues."""
        self.life.check()
        services = self.services
        if parent is not None:
            tree.check_child(parent, opening.kind)
        root = workspace_of(opening.workspace)
        if parent is not None:
            _check_link(opening.workspace, root, parent.caller.workspace)
        self._require_own_links(opening.workspace, root)
        id = opening.session_id or _new_id(opening.kind)
        if id in self._sessions:
            raise UsageError(f"There is an open session of this id already: {id!r}. Close it or choose another.")
        if kept is None and opening.session_id and self._kept is not None and self._kept.find(id) is not None:
            raise UsageError(
                f"There is a suspended session of this id: {id!r}. Resume it by supervisor.resume_session, or choose "
                "another."
            )
        profile = self._profile(opening, root, parent)
        asked = opening
        if parent is None and opening.channel is None:
            opening = replace(opening, channel=self.settings.channel)
        owners = _owned_channels(opening.channel, parent)
        core = SessionCore(
            services,
            self._new_caller(id, opening, root, profile, parent, owners),
            parent,
            owner=self,
            opening=asked,
            owns_channel=opening.channel is not None,
            ttl_s=self.settings.session_ttl_s[opening.kind] if opening.ttl_s is None else opening.ttl_s,
        )
        if Capability.WRITE in core.caller.grants:
            self._written.add(str(root), *profile.writable)
        self._sessions[id] = core
        above = parent.caller.id if parent else None
        services.pool.session_opened(id, above, str(root), core.caller.profile.protected)
        core.start_clock()
        data = {
            "event": "opened",
            "kind": str(opening.kind),
            **agent_facts(core.caller.line),
            "user": opening.user_id,
            "invocation": opening.invocation_id,
            "workspace": str(root),
            "parent": parent.caller.id if parent else None,
        }
        if kept is not None:
            try:
                restore(core, kept)
                self.forget_kept(core)
            except UsageError:
                core.stop_clock()
                services.pool.end_session(id)
                del self._sessions[id]
                raise
            data["event"] = "resumed"
        services.journal.write(Record("session", id, data=data))
        if opening.session_id and self._state is not None:
            core.prefix = f"{id}-{self._state.journal.head.number}"  # an earlier session of this id has other calls
        return core

    async def close_all(
        self,
        roots: Sequence[SessionCore],
        most_s: float = math.inf,
        outcome: SessionState = SessionState.COMPLETED,
        summary: str = "",
    ) -> None:
        """Close sessions and all below them."""
        await tree.close(roots, most_s, outcome, summary, self._tell_closed)

    async def _tell_closed(self, sessions: Sequence[SessionCore]) -> None:
        for session in sessions:
            if session.caller.farewells:
                await say_all(session.caller.farewells.values(), partial(self._record_farewell, session.caller.id))
            await session.tell("on_session", "closed", session.result)

    def _record_farewell(self, session_id: str, data: Mapping[str, Any]) -> None:
        self.journal.write(Record("http", session_id, data=data))

    def expire(self, session: SessionCore) -> None:
        """Close a session in the background, because its time is over."""
        self.in_background(self.close_all, [session], math.inf, SessionState.EXPIRED)

    def keepable(self, session: SessionCore) -> None:
        """Raise UsageError if the session, or one below it, cannot be written to the state directory."""
        if self._kept is not None:
            kept_of(session)
            for child in session.children:
                self.keepable(child)

    def keep(self, session: SessionCore) -> None:
        """Write a suspended session to the state directory, if there is one. Raises UsageError."""
        if self._state is None:
            return
        try:
            self._state.keep_session(kept_of(session))
        except UsageError as error:
            id = session.caller.id
            raise UsageError(f"The session {id} is suspended, but not kept for a restart: {error}") from error

    def resume(
        self,
        id: str,
        *,
        channel: Channel | None,
        memory: MemoryStore | None,
        web: WebClient | None,
        http: HttpClient | None,
    ) -> SessionCore:
        """The session of this id, which was suspended by this supervisor or an earlier one. Raises UsageError."""
        self.life.check()
        here = self._sessions.get(id)
        if here is not None:
            here.wake()
            return here
        kept = self._kept.find(id) if self._kept is not None and misuse.is_key(id) else None
        if kept is None:
            where = "" if self._kept is not None else " This supervisor has no state directory."
            raise UsageError(f"There is no suspended session {id!r}.{where}")
        parent = self._sessions.get(kept.parent_id) if kept.parent_id else None
        if kept.parent_id and (parent is None or parent.life.closed):
            raise UsageError(f"The session {id!r} is a child of {kept.parent_id!r}. Resume that session first.")
        opening = opening_of_kept(kept, channel, memory, web, http)
        return self.open(opening, kept=kept) if parent is None else parent.open_child(opening, kept=kept)

    def suspended(self) -> list[str]:
        """The ids of the suspended sessions, of this supervisor and of earlier ones."""
        self.life.check()
        here = [id for id, each in self._sessions.items() if each.life.state is SessionState.SUSPENDED]
        return here if self._kept is None else list(dict.fromkeys([*self._kept.ids(), *here]))

    def _leave_suspended(self) -> None:
        """At the end, leave suspended sessions in the state directory. Their children are suspended too."""
        for id, session in list(self._sessions.items()) if self._kept is not None else ():
            if session.life.state is SessionState.SUSPENDED:
                self.services.pool.end_session(id)
                session.leave()
                del self._sessions[id]

    def _require_own_links(self, workspace: str | Path, root: Path) -> None:
        """Raise UsageError for a workspace behind a link that a call may have made."""
        path = os.path.abspath(workspace)
        if path != str(root) and self._written.real("The workspace", path) != str(root):
            raise UsageError(f"The workspace was replaced while the session was opened: {str(workspace)!r}.")

    def _profile(self, opening: Opening, root: Path, parent: SessionCore | None) -> Profile:
        """The session's profile: its own or its kind's, its paths resolved, and no wider than its parent's."""
        if opening.profile is not None or opening.kind not in self._resolved:
            profile = resolved(opening.profile or self.settings.profiles[opening.kind], self._written, str(root))
        else:
            profile = self._resolved[opening.kind]
        require_texts(str(root), profile)
        require_apart(self.record.path, (str(root), *profile.writable))
        if self.settings.state_directory is not None:
            self.settings.state_directory.require_apart(str(root), "the workspace")
            own = () if opening.profile is None else opening.profile.system  # the others were checked at the start
            for path in (*profile.readable, *profile.writable, *own):
                self.settings.state_directory.require_apart(path, "the profile's path")
        return profile if parent is None else within(profile, parent.caller.profile)

    def _new_caller(
        self,
        id: str,
        opening: Opening,
        root: Path,
        profile: Profile,
        parent: SessionCore | None,
        owners: list[Channel],
    ) -> Caller:
        settings, above = self.settings, None if parent is None else parent.caller
        ancestors = () if above is None else above.line
        if ancestors and ancestors[-1] == opening.agent_id:
            ancestors = ancestors[:-1]
        borrowed = None if above is None or opening.channel is not None else above.access
        grants = session_grants(opening.kind, profile, None if above is None else above.grants)
        channel = opening.channel or (LogChannel() if above is None else above.channel)
        data = SessionData(
            SessionInfo(
                session_id=id,
                agent_id=opening.agent_id,
                session_kind=opening.kind,
                parent_id=None if above is None else above.id,
                grants=grants,
                workspace_root=root,
                channel=str(getattr(channel, "name", "")),
                config=opening.config,
                user_id=opening.user_id,
                invocation_id=opening.invocation_id,
                context=opening.context,
                ancestors=ancestors,
            )
        )
        approver, onlookers = _asked(settings.approver, owners)
        return Caller(
            id=id,
            kind=opening.kind,
            agent_id=opening.agent_id,
            workspace=root,
            profile=profile,
            grants=grants,
            channel=channel,
            access=ChannelAccess(channel, profile.channel, borrowed),
            memory=opening.memory or (self._default_memory() if above is None else above.memory),
            web=self._web(opening.web, above, profile),
            http=opening.http or (settings.http if above is None else above.http),
            approver=approver,
            onlookers=onlookers,
            secrets=self._secrets(profile, above, opening, channel),
            tally=SessionTally(id, opening.agent_id, None if above is None else above.tally),
            meter=_meter(opening.usage_limits, above),
            seen=_seen(profile, above),
            life=tree.SessionLife(profile.limits.grace_s),
            data=data,
            toolbox=Toolbox(
                settings.tools,
                settings.provider_tools,
                settings.toolsets,
                data,
                on_refused=partial(report_refused, self.services, id),
                on_offered=partial(self._rules.met, session_id=id, journal=self.journal),
            ),
        )

    @property
    def reactor(self) -> Reactor:
        """The reactor of the supervisor's event loop. Raises UsageError if the supervisor is not running."""
        if self._pool is None:
            raise self.life.why_not()
        return self.life.reactor

    async def describe_module(self, session: SessionInfo, source: ModuleSource) -> object:
        """The module's description of its tools, read in a cell of this session. For `ModuleToolset`."""
        core = self._sessions[session.session_id]
        return await tools_of_module(core.services, core.caller, core.routes, source)

    async def ask_source(self, session: SessionInfo, lister: ForeignTool, wall_s: float) -> object | None:
        """The list of tools that a source gives in its cell of this session; None if it may not start there. For
        toolsets of foreign tools. Raises ToolsetError."""
        core = self.session(session.session_id)
        return await tools_of_source(core.services, core.caller, core.routes, lister, wall_s)

    def require_apart(self, profile: Profile) -> None:
        """Raise UsageError if a source's profile shows what the supervisor keeps for itself."""
        require_apart(self.record.path, profile.writable)
        if self.settings.state_directory is not None:
            for path in (*profile.readable, *profile.writable, *profile.system):
                self.settings.state_directory.require_apart(path, "the profile's path")

    def report_source(self, session: SessionInfo, source: str, what: str) -> None:
        """Record that a source of foreign tools has misbehaved, or has tools that cannot be taken."""
        report_refused(self.services, session.session_id, source, what)

    def session(self, id: str) -> SessionCore:
        """The open session with this id."""
        return self._sessions[id]

    def forget(self, session: SessionCore) -> None:
        self._sessions.pop(session.caller.id, None)
        if self._kept is not None:
            try:
                self._kept.drop(session.caller.id)
            except UsageError:
                _log.exception("the row of the session %s, which is closed, is not removed", session.caller.id)

    def forget_kept(self, session: SessionCore) -> None:
        """Remove a session that is resumed from the state directory."""
        if self._kept is not None:
            self._kept.forget(session.caller.id)

    def _default_memory(self) -> MemoryStore:
        """The memory of sessions that were given none. The one that is made here is closed with the supervisor."""
        if MEMORY in self.calls.placed:
            return MEMORY_ON_NODES
        if self.settings.memory is not None:
            return self.settings.memory
        if self._memory is None:
            self._memory = self.settings.new_memory()
        return self._memory

    def _web(self, own: WebClient | None, above: Caller | None, profile: Profile) -> Callable[[], WebClient]:
        """Returns the web client of a session. Raises UsageError if it is on the nodes, and the session's profile has
        rules that only this process can check."""
        if own is not None:
            return lambda: own
        if WEB not in self.calls.placed:
            return above.web if above is not None else self.settings.new_web or cache(PublicWeb)
        found = (lambda: WEB_ON_NODES) if above is None else above.web
        if found() is WEB_ON_NODES and any(rule.startswith(SEEN) for rule in profile.web):
            raise UsageError(
                "Profile.web has a rule 'seen', and the web client is on the nodes of the cluster. The links that a "
                "session has seen are kept here. Open the session with web=…, or allow hosts by name."
            )
        return found

    def _secrets(self, profile: Profile, above: Caller | None, opening: Opening, channel: Channel) -> SessionSecrets:
        """What the results of a session must not show: its secrets, and those of the sessions above it and of the
        supervisor."""
        settings, secrets = self.settings, SessionSecrets(self._own_secrets if above is None else above.secrets)
        is_here = above is None and WEB not in self.calls.placed
        web = opening.web or (settings.new_web() if is_here and settings.new_web is not None else None)
        http = opening.http or (settings.http if above is None else None)
        secrets.add(profile, (http, web, channel))
        return secrets


def _check_link(workspace: str | Path, root: Path, parent: Path) -> None:
    """Raise UsageError if a symbolic link leads a child's workspace out of its parent's."""
    around = [str(parent)]
    if is_below(os.path.abspath(workspace), around) and not is_below(str(root), around):
        raise UsageError(f"The workspace leads out of the parent's by a symbolic link: {str(workspace)!r}.")


def _meter(limits: UsageLimits | None, above: Caller | None) -> UsageMeter | None:
    meter = None if above is None else above.meter
    return meter if limits is None else UsageMeter(limits, meter)


def _seen(profile: Profile, above: Caller | None) -> SeenLinks | None:
    """The links of a session with a rule for them. It sees those of the sessions above it too."""
    inherited = None if above is None else above.seen
    return SeenLinks(inherited) if any(rule.startswith(SEEN) for rule in profile.web) else inherited


def _asked(approver: AnyApprover | None, owners: list[Channel]) -> tuple[AnyApprover | None, tuple[Channel, ...]]:
    """The approver of a session's calls, and the channels that show the question without an answer. The supervisor's
    approver comes first; the nearest channel then shows the question. Otherwise the nearest channel that can approve is
    the approver, and the channels nearer than it show the question."""
    if approver is not None:
        return approver, tuple(owners[:1])
    nearest = next((each for each in owners if isinstance(each, Approver)), None)
    return nearest, tuple(takewhile(lambda each: not isinstance(each, Approver), owners))


def _owned_channels(own: Channel | None, parent: SessionCore | None) -> list[Channel]:
    """The channels that a session and those above it own, the nearest first."""
    found = [] if own is None else [own]
    while parent is not None:
        if parent.owns_channel:
            found.append(parent.caller.channel)
        parent = parent.parent
    return found


def _new_id(kind: SessionKind) -> str:
    return f"{kind}-{os.urandom(6).hex()}"


def _checked_rules(settings: Settings, known: Iterable[str]) -> PendingRules:
    """The rules that match no tool yet. Raises UsageError for a rule of the program that cannot match. A rule of the
    user's settings, which serve other programs too, is only logged."""
    open_ended = bool(settings.toolsets)
    for what in unknown_arguments(settings.policy, settings.tools, open_ended=open_ended):
        if not settings.is_file_policy:
            raise UsageError(what)
        _log.warning("%s That rule matches nothing.", what)
    return PendingRules(settings.policy, known, open_ended=open_ended or settings.is_file_policy)
