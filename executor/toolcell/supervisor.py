"""Supervisor: what an agent runtime embeds. It owns the tools, the sessions, the secrets and the pool of cells."""

import logging
import math
import os
import sys
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack
from functools import lru_cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

import anyio

from toolcell_sandbox.profile import Profile, is_below
from toolcell_sandbox.refusal import named
from toolcell_tools.capability import SessionKind
from toolcell_tools.definition import Tool
from toolcell_tools.function import as_tool
from toolcell_tools.provider import ProviderTool
from toolcell_tools.result import FOR_MODEL_BYTES, SandboxSummary
from toolcell_tools.session_info import SessionInfo
from toolcell_tools.toolsets import Toolset
from toolcell_tools.toolsets.resolve import close_all
from toolcell_tools.typed import TypedTool

from . import misuse
from .approvals import Approver
from .backends.channel import LogChannel
from .backends.egress import Gateway
from .backends.http import BrokeredHttp
from .backends.memory import SQLiteMemory
from .backends.outbound import Resolver, resolve_with_system
from .backends.protocols import Channel, HttpClient, MemoryStore, WebClient
from .backends.threads import FILES, NoThread
from .config import Config
from .dispatch.audit import MAX_TOLD, audit_data, audit_kept, record_findings, said
from .dispatch.describe import describe
from .dispatch.guards import Rules, checked_hooks, checked_policy
from .dispatch.output import OutputSchema
from .dispatch.overflow import Overflow
from .dispatch.policy import Policy
from .dispatch.validate import Validator
from .errors import UsageError
from .journal import Journal, RecentJournal, Record
from .lifetime import Lifetime
from .pool.cell import Cell
from .pool.pool import Pool
from .pool.reactor import Reactor
from .pool.recovery import SupervisorStatus
from .session import Session, new_session_id
from .sessions import ending as ending_of
from .sessions.modules import Source
from .sessions.policy import resolved, session_grants, within
from .sessions.protection import Protection
from .sessions.shipping import shipped
from .sessions.used import NOTHING, Use
from .telemetry import Metrics
from .workplaces.cleanup import Audited, clean
from .workplaces.record import Record as OwnRecord
from .workplaces.runtime import RuntimeDirectory

_log = logging.getLogger("toolcell")
APPROVAL_TIMEOUT_S = 300.0
MAX_HOST_THREADS = 40  # of synchronous host tools; what the supervisor does in threads itself does not wait for theirs


_PUBLIC = frozenset({"aclose", "journal", "metrics", "open_session", "start", "status"})
"""What completion offers of a supervisor; the rest is for its sessions."""


class Supervisor:
    """`start` starts the zygotes, `aclose` ends every process, and `async with` does both. On asyncio and on trio.

    Any task may start it and any other close it: it lives in a task of its own. It is used on the event loop that
    started it, and is not started again after its end. If a task of its own fails, it ends by itself: the log says so,
    calls under way are Cancelled, and `aclose` raises the failure.

    - `tools` are Tools, TypedTools, ProviderTools or plain functions; `toolsets` are asked for more, by session.
    - `profiles` replaces the preset of a session kind.
    - `hooks` run before and after each call, in order.
    - `policy` decides which calls may run and which need approval (default: `TierPolicy()`). `approver` approves them;
      without one, the nearest session at or above the call's that owns a channel does. A call waits for the answer for
      `approval_timeout_s` seconds (default: 300).
    - `journal` takes a record of every call.
    - `allow_missing` names mechanisms of the sandbox that may be missing here; every result then names them.
    - `max_cells` bounds the cells at any time; `standby` is how many call processes wait ready in each, 0 or 1 (the
      default).
    - `config`, from `load_config`, gives what is left out of these; what is given here replaces it.
    - `http` makes the requests of `ctx.http` that the profile's rules allow, with credentials of its own: by default a
      `BrokeredHttp` with those of `config`.
    - `resolve(host, port)` looks names up for `ProxyNetwork`: blocking, returns addresses.
    - `quarantine` is the directory for protected names that calls have made; by default a new one among the temporary
      files, at the first need.
    - `model_bytes` (default: 100,000) is the longest output that a model is shown whole. A longer one is also written
      to a file, an artifact that `for_model` names.

    Starting raises SandboxUnavailableError where mechanisms are missing that `allow_missing` does not name. Its message
    has all of them, their cures, and the `allow_missing` that would do.
    """

    @named
    def __init__(
        self,
        tools: Iterable[Tool[..., Any] | TypedTool[Any] | ProviderTool | Callable[..., Any]] = (),
        *,
        toolsets: Iterable[Toolset] = (),
        profiles: Mapping[SessionKind, Profile] | None = None,
        hooks: Iterable[object] = (),
        policy: Policy | None = None,
        approver: Approver | None = None,
        approval_timeout_s: float | None = None,
        journal: Journal | None = None,
        allow_missing: Iterable[str] | None = None,
        max_cells: int | None = None,
        standby: int | None = None,
        config: Config | None = None,
        http: HttpClient | None = None,
        resolve: Resolver = resolve_with_system,
        quarantine: str | Path | None = None,
        model_bytes: int | None = None,
    ) -> None:
        self._life = Lifetime(self._start_pool, self._stay)
        given = misuse.profiles_of(profiles)
        if config is not None:
            misuse.check_config(config)
            given = {**config.profiles, **given}
            allow_missing = config.allow_missing if allow_missing is None else allow_missing
            max_cells = config.max_cells if max_cells is None else max_cells
            standby = config.standby if standby is None else standby
            approval_timeout_s = config.approval_timeout_s if approval_timeout_s is None else approval_timeout_s
            model_bytes = config.model_bytes if model_bytes is None else model_bytes
            quarantine = config.quarantine if quarantine is None else quarantine
        approval_timeout_s = APPROVAL_TIMEOUT_S if approval_timeout_s is None else approval_timeout_s
        if misuse.seconds("approval_timeout_s", approval_timeout_s) == math.inf:
            raise UsageError("approval_timeout_s is not finite: inf. Pass a number of seconds.")
        model_bytes = FOR_MODEL_BYTES if model_bytes is None else model_bytes
        misuse.count("model_bytes", model_bytes, f"Leave it out for {FOR_MODEL_BYTES:,}.")
        standby = 1 if standby is None else standby
        if standby not in (0, 1):
            raise UsageError(
                f"standby is not 0 or 1: {standby!r}. A cell runs one call at a time, so one waits at most."
            )
        if max_cells is not None:
            misuse.count("max_cells", max_cells, "Leave it out for a default by the machine.")
        misuse.check_parts(http=http, approver=approver)
        misuse.check_journal(journal)
        misuse.check_callable("resolve", resolve)
        self.registry: dict[str, Tool[..., Any]] = {}
        self.provider_tools: dict[str, ProviderTool] = {}
        for each in misuse.items("tools", tools, "[my_tool]"):
            self._register(each if isinstance(each, ProviderTool) else as_tool(each))
        self.toolsets = misuse.items("toolsets", toolsets, "[my_toolset]")
        for toolset in self.toolsets:
            if not isinstance(toolset, Toolset):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(
                    f"toolsets holds {toolset!r}, which is not a Toolset. Tools themselves go into tools=."
                )
        self.hooks = checked_hooks(hooks)
        self.policy: Policy = checked_policy(policy)
        known = (*self.registry, *self.provider_tools)
        self.rules = Rules(self.policy, known, open_ended=bool(self.toolsets))
        self.approver = approver
        self.approval_timeout_s = approval_timeout_s
        self._profiles = {kind: Profile.for_kind(kind.value) for kind in SessionKind}
        self._profiles.update(given)
        self._resolved = {  # where there are paths, each session resolves them anew, for links may change
            kind: resolved(preset)
            for kind, preset in self._profiles.items()
            if not (preset.readable or preset.writable)
        }
        self.journal: Journal = RecentJournal() if journal is None else journal
        self.metrics = Metrics()
        self._record = OwnRecord()  # of what the next supervisor removes if this one is killed
        self.overflow = Overflow(model_bytes, record=self._record)
        self._allow_missing = misuse.mechanisms(allow_missing or ())
        self._max_cells = max_cells
        self._standby = bool(standby)
        self._sessions: dict[str, Session] = {}
        self._validators: WeakKeyDictionary[Tool[..., Any], Validator] = WeakKeyDictionary()
        self._shipments: WeakKeyDictionary[Tool[..., Any], tuple[Mapping[str, object], Use]] = WeakKeyDictionary()
        self._output_schemas: WeakKeyDictionary[Tool[..., Any], OutputSchema | None] = WeakKeyDictionary()
        self._http: HttpClient = _http_of(config) if http is None else http
        self.gateway = Gateway(self.in_background, resolve=resolve, most=default_max_connections())
        self.protection = Protection(
            None if quarantine is None else os.path.abspath(misuse.path("quarantine", quarantine)), self._record
        )
        self._kept_gone: deque[Cell] = deque()  # with their processes, and not audited yet
        self._pool: Pool | None = None
        self._is_entered = False
        self._pid = 0
        self._memory: SQLiteMemory | None = None
        self.sandbox_summary = SandboxSummary()

    def __dir__(self) -> list[str]:
        return sorted(_PUBLIC.intersection(object.__dir__(self)))

    def __repr__(self) -> str:
        state = repr(self._pool) if self._pool is not None else "not running"
        return f"<Supervisor {len(self.registry)} tools · {len(self._sessions)} sessions · {state}>"

    def _register(self, tool: Tool[..., Any] | ProviderTool) -> None:
        known = self.registry.get(tool.name) or self.provider_tools.get(tool.name)
        if known is not None:
            raise UsageError(
                f"Two tools are named {tool.name!r}: {known.origin} and {tool.origin}. Rename one: tool(fn, name=…)."
            )
        if isinstance(tool, ProviderTool):
            self.provider_tools[tool.name] = tool
        else:
            self.registry[tool.name] = tool

    # -- start and end -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start it, from any task; nothing where it has been. A task that is cancelled meanwhile takes the start back.

        Raises SandboxUnavailableError as said above, after which it may be tried again, and UsageError after the end.
        """
        if self._life.state == "new":
            for tool in self.registry.values():  # loud here rather than at the first call
                self.validator(tool)
                self.output_schema(tool)
                if tool.placement == "cell":
                    self.shipment(tool)
        await self._life.begin()

    async def aclose(self) -> None:
        """End every call, session and process, from any task; nothing where it has ended, or was never started.

        It waits for the end, also where it is cancelled. Raises what failed in a task of the supervisor or at its end.
        """
        if self._life.is_cut_off:
            self._abandon()
        await self._life.end()

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise UsageError("The supervisor has been entered already. Make another one.")
        await self.start()
        self._is_entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def is_left_open(self) -> bool:
        """Whether it was started and not closed, even where it has ended by itself."""
        return self._life.is_left_open

    def __del__(self) -> None:
        if "_life" in vars(self) and self.is_left_open and self._pid == os.getpid():  # else it was forked
            warnings.warn(f"{self!r} was not closed: await aclose().", ResourceWarning, stacklevel=1, source=self)
            self._abandon()

    async def _start_pool(self) -> None:
        await self._begin_record()
        pool = Pool(
            self.reactor,
            allow_missing=self._allow_missing,
            max_cells=self._max_cells or default_max_cells(),
            standby=self._standby,
            on_kept_gone=self._on_kept_gone,
            tools=[self.shipment(tool) for tool in self.registry.values() if tool.placement == "cell"],
            record=self._record,
        )
        try:
            await pool.start()
        except BaseException:
            self._record.end()
            raise
        self._pool, self._pid = pool, os.getpid()
        allowed = sorted(name for name in self._allow_missing if name not in pool.report.on)
        self.sandbox_summary = SandboxSummary(on=tuple(sorted(pool.report.on)), allowed_missing=tuple(allowed))
        self.host_threads = anyio.CapacityLimiter(MAX_HOST_THREADS)

    async def _stay(self, up: Callable[[], None], asked: Callable[[], Awaitable[None]]) -> None:
        """In the supervisor's own task: stay up until that is `asked`, or a task fails, and take everything down."""
        async with AsyncExitStack() as last:  # each step, the last first, also where one before it fails
            last.callback(self._forget_pool)
            last.push_async_callback(self._end)
            for toolset in self.toolsets:
                toolset.attach(self)
            up()
            try:
                await asked()
            except GeneratorExit:  # the event loop was closed: nothing can be waited for any more
                last.pop_all()
                self._abandon()
                raise

    async def _end(self) -> None:
        with anyio.CancelScope(shield=True):
            async with AsyncExitStack() as ending:
                ending.push_async_callback(self._life.end_tasks)
                ending.push_async_callback(close_all, self.toolsets)
                ending.callback(self.rules.report, self.journal)
                ending.callback(self._record.end)
                ending.callback(self.overflow.close)
                if self._memory is not None:
                    ending.callback(self._memory.close)
                ending.push_async_callback(self._audit_rest)
                ending.push_async_callback(self.pool.close)
                await ending_of.close([each for each in self._sessions.values() if each.parent is None])

    async def _audit_rest(self) -> None:
        """Audit what calls have left that nobody has waited for."""
        await self._audit_kept()
        for watch in await self.protection.close():
            record_findings(self.journal, watch)
        for directory in await self.protection.end_looks():
            _log.warning("%s stays unchecked for protected names: the supervisor ended first", directory)

    def _forget_pool(self) -> None:
        self._pool = None

    def _abandon(self) -> None:
        """End every process where the event loop was closed around the supervisor. What only the loop could do, such as
        audits, is left to the next supervisor, as after one that was killed.
        """
        pool, self._pool = self._pool, None
        self._life.give_up()
        for session in list(self._sessions.values()):
            session.closed = True
        if pool is not None:
            pool.abandon()

    async def _begin_record(self) -> None:
        """Clean up after supervisors that were killed, and begin a record for the next one.

        What goes wrong is in the log: it is about the past, or about what may never come.
        """
        try:
            runtime = RuntimeDirectory()
            with ExitStack() as undo:
                undo.callback(runtime.close)
                try:
                    if runtime.records():
                        for audited in await FILES.run(partial(clean, runtime, self.protection.quarantine)):
                            self._record_audited(audited)
                except (OSError, NoThread):
                    _log.exception(
                        "cleanup after killed supervisors failed; their files remain, see the records in %s",
                        runtime.path,
                    )
                self._record.begin(runtime)
                undo.pop_all()
            self._record.quarantine(self.protection.quarantine.temporary)
        except OSError as error:
            _log.warning(
                "No record is kept of this supervisor, so what it leaves if it is killed stays: %s: %s. "
                "Records are in $XDG_RUNTIME_DIR/toolcell, or toolcell-<uid> among the temporary files.",
                error.strerror,
                error.filename,
            )

    def _record_audited(self, audited: Audited) -> None:
        _log.warning(
            "the supervisor %d was killed while calls ran; protected names that they made or changed: %d%s",
            audited.pid,
            len(audited.findings),
            "".join(f"; {said(each)}" for each in audited.findings[:MAX_TOLD])
            + (f"; not all could be checked: {audited.unknown}" if audited.unknown else "")
            + (f"; {audited.stuck}" if audited.stuck else ""),
        )
        data = {"event": "after an untidy end", "supervisor": audited.pid, **audit_data(audited)}
        self.journal.write(Record("quarantined", "", "", data))

    # -- the public way ----------------------------------------------------------------------------------------------

    @named
    async def open_session(
        self,
        kind: SessionKind | str,
        *,
        workspace: str | Path,
        agent_id: str = "agent",
        session_id: str | None = None,
        channel: Channel | None = None,
        memory: MemoryStore | None = None,
        web: WebClient | None = None,
        http: HttpClient | None = None,
        config: Mapping[str, Any] | None = None,
        profile: Profile | None = None,
    ) -> Session:
        """Open a session on a workspace: a directory, which is made if only its parent exists.

        Without `channel`, messages go to the log; without `memory`, they are kept in this supervisor's own store, in
        memory, by agent; without `web`, GET on the public web; without `http`, the supervisor's client makes requests.
        `profile` replaces the kind's, for this session only.
        """
        return self.new_session(
            misuse.session_kind(kind),
            workspace=workspace,
            agent_id=agent_id,
            session_id=session_id,
            channel=channel,
            memory=memory,
            web=web,
            http=http,
            config=config,
            profile=profile,
            parent=None,
        )

    def status(self) -> SupervisorStatus:
        """What the kernel offers here, as probed at the start, and the zygotes as they are now."""
        return self.pool.status()

    # -- for sessions ------------------------------------------------------------------------------------------------

    @property
    def reactor(self) -> Reactor:
        return self._life.reactor

    @property
    def pool(self) -> Pool:
        if self._pool is None:
            raise self._life.why_not()
        return self._pool

    def check_running(self) -> None:
        """Raise UsageError where it does not run, or runs on another event loop than the caller."""
        self._life.check()

    def require_running(self) -> None:
        """Raise UsageError where it does not run, on whichever event loop the caller is."""
        if self._pool is None:
            raise self._life.why_not()

    def new_session(
        self,
        kind: SessionKind,
        *,
        workspace: str | Path,
        agent_id: str,
        session_id: str | None,
        channel: Channel | None,
        memory: MemoryStore | None,
        web: WebClient | None,
        http: HttpClient | None,
        config: Mapping[str, Any] | None,
        profile: Profile | None,
        parent: Session | None,
    ) -> Session:
        self.check_running()
        misuse.check_parts(channel=channel, memory=memory, web=web, http=http)
        misuse.check_texts(session_id=session_id)
        misuse.check_text("agent_id", agent_id)
        misuse.check_profile("profile", profile)
        root = _workspace(workspace)
        if parent is not None:
            around = [str(parent.workspace)]
            if is_below(os.path.abspath(workspace), around) and not is_below(str(root), around):
                raise UsageError(f"The workspace leads out of the parent's by a symbolic link: {str(workspace)!r}.")
        id = session_id or new_session_id(kind)
        if id in self._sessions:
            raise UsageError(f"There is an open session of this id already: {id!r}. Close it or choose another.")
        if profile is not None or kind not in self._resolved:
            profile = resolved(profile or self._profiles[kind])
        else:
            profile = self._resolved[kind]
        _require_texts(str(root), profile)
        _require_apart(self._record.path, (str(root), *profile.writable))
        if parent is not None:
            profile = within(profile, parent.profile)
        session = Session(
            self,
            kind,
            id=id,
            agent_id=agent_id,
            parent=parent,
            workspace=root,
            profile=profile,
            grants=session_grants(kind, profile, None if parent is None else parent.grants),
            channel=channel or (LogChannel() if parent is None else parent.channel),
            owns_channel=channel is not None,
            memory=memory or self._default_memory(),
            web=web,
            http=http or self._http,
            config=misuse.settings_of(config),
        )
        self._sessions[id] = session
        data = {"event": "opened", "kind": str(kind), "parent": parent.id if parent else None}
        self.journal.write(Record("session", id, data=data))
        return session

    async def describe_module(self, session: SessionInfo, source: Source) -> object:
        """What a module says of its tools, from a cell of this session. For `ModuleToolset`."""
        return await describe(self._sessions[session.session_id], source)

    def forget(self, session: Session) -> None:
        self._sessions.pop(session.id, None)

    def validator(self, tool: Tool[..., Any]) -> Validator:
        """The tool's compiled validator, made once."""
        validator = self._validators.get(tool)
        if validator is None:
            validator = self._validators[tool] = Validator(
                tool.name, tool.declaration.parameters_schema, validate=tool.validate
            )
        return validator

    def output_schema(self, tool: Tool[..., Any]) -> OutputSchema | None:
        """The tool's compiled output schema, made once; None where it has none."""
        if tool not in self._output_schemas:
            schema = tool.declaration.output_schema
            self._output_schemas[tool] = None if schema is None else OutputSchema(tool.name, schema)
        return self._output_schemas[tool]

    def shipment(self, tool: Tool[..., Any]) -> Mapping[str, object]:
        """What a cell needs to load the tool, made once, and anew where a global name that it uses was bound anew."""
        return self._shipped(tool)[0]

    def use(self, tool: Tool[..., Any]) -> Use:
        """What goes with the tool to a cell by value."""
        return self._shipped(tool)[1]

    def _shipped(self, tool: Tool[..., Any]) -> tuple[Mapping[str, object], Use]:
        found = self._shipments.get(tool)
        if found is None or not found[1].is_current():
            found = self._shipments[tool] = shipped(tool, NOTHING if found is None else found[1])
        return found

    def can_ship(self, tool: Tool[..., Any]) -> bool:
        """Whether a cell can load the tool; its own calls say what is wrong with it."""
        try:
            self.shipment(tool)
        except UsageError:
            return False
        return True

    def in_background(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Run something of a call beside it, until the supervisor ends."""
        self._life.beside(function, *args)

    def _on_kept_gone(self, cell: Cell) -> None:
        self._kept_gone.append(cell)
        self.in_background(self._audit_kept)

    async def _audit_kept(self) -> None:
        while self._kept_gone:
            cell, living = self._kept_gone.popleft(), self.pool.kept_writable()
            await audit_kept(self.protection, self.journal, cell, living, self.in_background)

    def _default_memory(self) -> SQLiteMemory:
        if self._memory is None:
            self._memory = SQLiteMemory()
        return self._memory


def _http_of(config: Config | None) -> BrokeredHttp:
    try:
        return BrokeredHttp(credentials=None if config is None else config.credentials)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _workspace(path: str | Path) -> Path:
    path = misuse.path("workspace", path)
    try:
        root = os.path.realpath(path)
    except FileNotFoundError:
        raise UsageError(
            f"The workspace is relative to a directory that was deleted: {str(path)!r}. Pass an absolute path."
        ) from None
    if not os.path.isdir(root):
        if not os.path.lexists(root) and os.path.isdir(os.path.dirname(root)):
            try:
                os.mkdir(root)
            except OSError as error:  # also where it is there, and closed to us
                raise UsageError(
                    f"The workspace cannot be made: {str(path)!r}: {error.strerror}. Pass one that this user can reach."
                ) from None
        else:
            raise UsageError(
                f"The workspace is not a directory: {str(path)!r}. Pass one that exists, or a new name in one."
            )
    if root in ("/", "/tmp") or f"{root}/".startswith(("/dev/", "/proc/", "/sys/")):
        raise UsageError(f"The workspace cannot be {root!r}: a cell has its own. Pass a directory elsewhere.")
    return _path(root)


_path = lru_cache(maxsize=1024)(Path)  # a Path takes as long as all that is asked of the kernel about it


def _require_apart(record: str, writable: Iterable[str]) -> None:
    """Raise UsageError for a directory in which a cell could write this supervisor's record."""
    for path in writable if record else ():
        if is_below(record, [path]):
            raise UsageError(
                f"{path!r} cannot be writable in a cell: it contains the supervisor's record {record!r}. "
                "Use another directory, or set XDG_RUNTIME_DIR to one outside of it."
            )


def _require_texts(workspace: str, profile: Profile) -> None:
    """Raise UsageError for what is not UTF-8, which Python shows as surrogates: it cannot be sent to a cell."""
    paths = (*profile.readable, *profile.writable, *profile.system)
    if not "".join((workspace, *paths)).isascii():
        _require_text("The workspace", workspace)
        for path in paths:
            _require_text("A path of the profile", path)
    if profile.env or profile.pass_env or not sys.prefix.isascii():
        for name, value in profile.environment(os.environ).items():
            _require_text(f"The environment variable {name!a} of the profile", name + value)


def _require_text(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = "" if "variable" in what else f": {text!a}"  # a variable's value may be a secret
        raise UsageError(f"{what} is not UTF-8{shown}. Give it a name that is, or leave it out.") from None


_OF_A_CELL = 15  # descriptors
_BYTES_OF_A_CELL = 8 * 1024**2  # of an idle one: what it shares with others of its zygote is not in it
_MOST_CELLS = 1024
# A limit and what is used of it, as a container sees its own, in both versions of cgroups.
_MEMORY_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
_PROCESS_FILES = (
    ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids.current"),
    ("/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids/pids.current"),
)


def default_max_cells() -> int:
    """As many cells as descriptors, processes, processors and memory allow: a cell takes fifteen descriptors here, five
    of them of its cgroup, and three processes while a call lasts. For each core there may be 32, of half of the free
    memory. An idle one takes no time of a core, and is far sooner there than a new one; so where that is more, there
    may be as many as half of the descriptors and a quarter of the free memory hold.
    """
    import resource

    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    by_descriptors = (soft - 128) // _OF_A_CELL if soft != resource.RLIM_INFINITY else 2 * _MOST_CELLS
    by_memory = _free_bytes() // _BYTES_OF_A_CELL
    idle_ones = min(by_descriptors // 2, by_memory // 4, _MOST_CELLS)
    busy_ones = min(by_memory // 2, 32 * (os.cpu_count() or 1))
    return max(4, min(by_descriptors, _free_processes() // 3, max(busy_ones, idle_ones)))


def _free_bytes() -> int:
    """The memory that is available, of the machine and as a container's limit has it."""
    found = [limit - used for limit, used in map(_read_numbers, _MEMORY_FILES) if limit >= 0]
    try:
        with open("/proc/meminfo") as file:
            found.append(1024 * next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:")))
    except FileNotFoundError:
        return 0  # `start` says what is the matter
    return max(0, min(found))


def _free_processes() -> int:
    """How many there may be besides, by a container's limit and by that of the user, which does not bind root."""
    import resource

    found = [limit - used for limit, used in map(_read_numbers, _PROCESS_FILES) if limit >= 0]
    soft, _hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if os.geteuid() and soft != resource.RLIM_INFINITY:
        found.append(soft)
    return min(found, default=3 * _MOST_CELLS)


def _read_numbers(paths: tuple[str, str]) -> tuple[int, int]:
    """A limit and what is used of it; -1 and 0 where there is none."""
    try:
        limit, used = (int(Path(path).read_text()) for path in paths)
    except (OSError, ValueError):
        return -1, 0  # the other version of cgroups, or "max"
    return limit, used


def default_max_connections() -> int:
    """As many proxied connections as descriptors allow beside the cells: each takes two."""
    import resource

    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1024
    return max(16, min(1024, (soft - 128 - _OF_A_CELL * default_max_cells()) // 2))
