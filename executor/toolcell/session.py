"""Session: one agent conversation. It holds what its calls may do and hands them to the dispatcher."""

import inspect
import json
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, TypedDict, TypeVar, Unpack, cast, overload

import anyio

from toolcell_sandbox.limits import Limits
from toolcell_sandbox.profile import Profile
from toolcell_sandbox.refusal import named
from toolcell_tools.capability import Capability, SessionKind
from toolcell_tools.declaration import Declared, ToolDeclaration
from toolcell_tools.definition import Tool
from toolcell_tools.preview import printable
from toolcell_tools.provider import ProviderTool
from toolcell_tools.result import SandboxSummary, ToolResult
from toolcell_tools.session_info import SessionInfo

from . import misuse
from .approvals import Approver
from .backends.egress import Gateway
from .backends.protocols import Channel, HttpClient, MemoryStore, WebClient
from .backends.web import PublicWeb
from .dispatch.output import OutputSchema
from .dispatch.pipeline import Repair, attempt, dispatch, facts_of
from .dispatch.policy import is_offered
from .dispatch.result import blank
from .dispatch.streams import OnOutput
from .dispatch.validate import Validator
from .errors import UsageError
from .journal import Journal, Record
from .pool.budget import Charge
from .pool.pool import Pool
from .pool.run import CellKey, CellSpec
from .sessions import broker, ending, tree
from .sessions.grants import Grants, grants_for
from .sessions.idempotency import IdempotentCalls
from .sessions.modules import DESCRIBER_SHIPMENT, Source, describer, source_of
from .sessions.place import NOWHERE
from .sessions.policy import confine, summary_for
from .sessions.protection import Guarded, overlap
from .sessions.reach import as_offered, out_of_reach
from .sessions.shipping import content_of, latest
from .sessions.toolbox import Toolbox
from .sessions.used import NOTHING, Use
from .wire.frames import Field

if TYPE_CHECKING:
    from .supervisor import Supervisor

OnProgress = Callable[[str, float | None], Awaitable[None] | None]
R = TypeVar("R")
_log = logging.getLogger("toolcell.tool")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class CallOptions(TypedDict, total=False):
    """What `Session.call` takes by name."""

    call_id: str | None
    timeout: float | None
    repair: Repair | None
    idempotency_key: str | None
    on_progress: OnProgress | None
    on_output: OnOutput | None


@dataclass(slots=True, eq=False)
class Route:
    """Where the calls of one tool go in this session: their grants, their cell, their broker's table."""

    tool: Tool[..., Any]
    declaration: ToolDeclaration
    grants: Grants
    spec: CellSpec
    table: broker.Table
    limits: Limits
    exclusive: str
    guarded: Guarded | None
    """What looks after protected names, where its cells may write."""
    blank: dict[str, Any]
    """The fields of its results before anything is said."""
    facts: dict[str, Any]
    """Those of its records, likewise."""
    use: Use = NOTHING
    """What its tool takes to a cell by value: where that has changed, it goes another way."""
    checks: "Checks | None" = None
    """Made for the first call: a tool that is only offered need not have its schemas compiled."""


@dataclass(frozen=True, slots=True)
class Checks:
    """What the arguments and the result of a tool are held to."""

    arguments: Validator
    output: OutputSchema | None


_PUBLIC = frozenset(
    [
        "agent_id",
        "call",
        "close",
        "closed",
        "config",
        "grants",
        "id",
        "kind",
        "open_child",
        "parent",
        "profile",
        "tools",
        "values",
        "workspace",
    ]
)
"""What completion offers of a session; the rest is for the dispatcher."""


class Session:
    """Made by `Supervisor.open_session` and `Session.open_child`. `call` never raises for what a tool or a model does;
    it raises UsageError on a closed session, and whatever cancellation of the caller's own task is."""

    def __init__(
        self,
        supervisor: "Supervisor",
        kind: SessionKind,
        *,
        id: str,
        agent_id: str,
        parent: "Session | None",
        workspace: Path,
        profile: Profile,
        grants: frozenset[Capability],
        channel: Channel,
        owns_channel: bool,
        memory: MemoryStore,
        web: WebClient | None,
        http: HttpClient,
        config: Mapping[str, Any],
    ) -> None:
        self.id = id
        self.kind = kind
        self.agent_id = agent_id
        self.parent = parent
        self.workspace = workspace
        self._workspace_path = str(workspace)
        self.grants = grants
        self.profile = profile
        self.channel = channel
        self.owns_channel = owns_channel
        self.memory = memory
        if web is not None:
            self.web = web
        self.http = http
        self.config = dict(config)
        self.values: dict[str, Any] = {}
        self._info: SessionInfo | None = None
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.closed = False
        self.ending: anyio.Event | None = None  # set when a session that is closed has ended
        self.works: set[ending.Work] = set()
        self.supervisor = supervisor
        self.pool: Pool = supervisor.pool
        self._is_here = supervisor.reactor.is_here
        self._children: dict[str, Session] = {}
        named = supervisor.registry, supervisor.provider_tools
        self.toolbox = Toolbox(*named, supervisor.toolsets, self)
        self._routes: dict[str, Route] = {}
        self._other_routes: dict[tuple[str, str], Route] = {}  # of previews, and of calls that may not change anything
        self._place = NOWHERE  # the workspace that the routes are to
        self.is_misplaced = False  # whether the workspace is no directory any more
        self._last_call = 0
        self._host_turn: anyio.Lock | None = None
        self._idempotent: IdempotentCalls | None = None

    def __dir__(self) -> list[str]:
        return sorted(_PUBLIC)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._children)} children"
        return f"<Session {self.id} {self.kind.value} of {self.agent_id} · {state}>"

    # -- the public way ----------------------------------------------------------------------------------------------

    @overload
    async def call(
        self,
        name: Tool[..., ToolResult[R]] | Tool[..., Coroutine[Any, Any, ToolResult[R]]],
        args: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult[R]: ...
    @overload
    async def call(
        self,
        name: Tool[..., Coroutine[Any, Any, R]],
        args: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult[R]: ...
    @overload
    async def call(
        self, name: Tool[..., R], args: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> ToolResult[R]: ...
    @overload
    async def call(
        self, name: str | Declared, args: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> ToolResult: ...
    async def call(
        self,
        name: str | Declared,
        args: Mapping[str, Any] | None = None,
        *,
        call_id: str | None = None,
        timeout: float | None = None,
        repair: Repair | None = None,
        idempotency_key: str | None = None,
        on_progress: OnProgress | None = None,
        on_output: OnOutput | None = None,
        **others: Never,
    ) -> ToolResult:
        """Call a tool and wait for its result.

        `name` is that of the tool, or the tool itself, so that a checker finds what is misspelt and knows the type of
        the result; what runs is what this session has under that name.
        `timeout` in seconds is the call's whole time, waiting for a process included; without it the tool's own timeout
        or the profile's `wall_s` holds. `repair` is asked for better arguments after a validation error, twice at the
        most. Calls with one `idempotency_key` run once: the later ones get the first one's result, if it was no error;
        a key that stands for another tool or other arguments is a UsageError.
        `on_progress(message, fraction)` hears the tool's progress. `on_output(stream, text)` hears live what the call
        and its commands print, `stream` is "stdout" or "stderr": one piece at a time, in order, and all of it before
        there is a result. An async one may be slow: what comes too fast for it is left out with a count, and the result
        waits for it for a second. A plain function runs on the event loop and holds up all calls until it returns: the
        log warns of one that takes 0.1 s. What either raises is logged, once for the call.
        """
        if self.closed or not self._is_here():
            self.check_open()
        if others:
            misuse.check_names("Session.call", others, CallOptions)
        if timeout is not None:
            misuse.seconds("timeout", timeout, ", or None for the tool's own")
        if call_id is None:
            self._last_call += 1
            call_id = f"{self.id}-{self._last_call}"
        elif type(call_id) is not str:
            misuse.check_texts(call_id=call_id)
        if on_progress is not None:
            misuse.check_callable("on_progress", on_progress)
        if on_output is not None:
            misuse.check_callable("on_output", on_output)
        if type(name) is not str:
            self._require_same(name)
            name = name_of(name)
        arguments: Mapping[str, Any] = {} if args is None else args
        if repair is None and idempotency_key is None:
            return await attempt(self, call_id, name, arguments, 1, timeout, on_progress, on_output)
        misuse.check_callable("repair", repair)
        misuse.check_texts(idempotency_key=idempotency_key)
        run = partial(dispatch, self, call_id, name, arguments, timeout, repair, on_progress, on_output)
        if idempotency_key is None:
            return await run()
        asked = (name, json.dumps(arguments, sort_keys=True, default=repr))
        if self._idempotent is None:
            self._idempotent = IdempotentCalls()
        return await self._idempotent.once(idempotency_key, asked, run)

    @named
    async def open_child(
        self,
        kind: SessionKind | str,
        *,
        workspace: str | Path | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        channel: Channel | None = None,
        memory: MemoryStore | None = None,
        web: WebClient | None = None,
        http: HttpClient | None = None,
        config: Mapping[str, Any] | None = None,
        profile: Profile | None = None,
    ) -> "Session":
        """Open a session below this one. What is left out is this session's own; a Branch borrows the channel.

        Raises UsageError for a child of a Worker, a Main child, a tree over 4 deep and a ninth child.
        """
        self.check_open()
        kind = misuse.session_kind(kind)
        tree.check_child(self, kind)
        child = self.supervisor.new_session(
            kind,
            workspace=self.workspace if workspace is None else workspace,
            agent_id=self.agent_id if agent_id is None else agent_id,
            session_id=session_id,
            channel=channel,
            memory=memory or self.memory,
            web=web or self.web,
            http=http or self.http,
            config=self.config if config is None else config,
            profile=profile,
            parent=self,
        )
        self._children[child.id] = child
        return child

    async def tools(self) -> list[ToolDeclaration]:
        """The declarations of the tools that this session may use: the supervisor's, then each toolset's, in order.

        Left out is what the policy denies, and what needs a network, hosts or a search engine where there is none.

        Toolsets are asked anew: call this before each request to a model. Raises ToolsetError, which names the one that
        failed, and then the tools of the last time can still be called. A module that only cells import and that claims
        the name of another tool is left out, with an incident in the journal that names both origins.
        """
        self.check_open()
        routes = [self.route(tool) for tool in (await self.toolbox.refresh()).values()]
        declared = [route.tool.declaration for route in routes if not route.grants.missing]
        declared += [tool.declaration for tool in self.supervisor.provider_tools.values()]
        offered = [one for one in declared if is_offered(self.supervisor.policy, one, self.info)]
        return [as_offered(one, self.profile, lambda: self.web) for one in offered]

    @named
    async def close(self, *, grace_s: float | None = None) -> None:
        """End the session, its children and their calls, those of host tools among them, with questions to approvers,
        hooks and repairs, and wait for that. Idempotent.

        A call that waits is Cancelled at once. A tool that looks at `ctx.cancelled` sees True, and has the profile's
        `grace_s` to end tidily, in a child of the session 30 s; what it returns by then is its result. Any other call
        is ended 50 ms later. `grace_s` is the most that is given here to any call: 0 ends all at once.
        """
        if not self.closed and not self._is_here():
            self.supervisor.check_running()
        await ending.close([self], misuse.grace(grace_s))

    @property
    def info(self) -> SessionInfo:
        """What toolsets, hooks and policies are told of this session."""
        info = self._info
        if info is None or info.values is not self.values or info.config is not self.config:
            info = self._info = self._new_info()
        return info

    def _new_info(self) -> SessionInfo:
        return SessionInfo(
            session_id=self.id,
            agent_id=self.agent_id,
            session_kind=self.kind,
            parent_id=None if self.parent is None else self.parent.id,
            grants=self.grants,
            workspace_root=self.workspace,
            channel=str(getattr(self.channel, "name", "")),
            config=self.config,
            values=self.values,
        )

    @cached_property
    def web(self) -> WebClient:
        """GET on the public web, where no other client was given."""
        return PublicWeb()

    # -- for the dispatcher ------------------------------------------------------------------------------------------

    @property
    def host_turn(self) -> anyio.Lock:
        """Held by a sequential host tool while it runs."""
        if self._host_turn is None:
            self._host_turn = anyio.Lock()
        return self._host_turn

    @property
    def living_children(self) -> int:
        return len(self._children)

    @property
    def children(self) -> list["Session"]:
        return list(self._children.values())

    def end_now(self) -> None:
        """The last step of `close`: what is left of its calls is killed."""
        if self.parent is not None:
            self.parent._children.pop(self.id, None)
        self.pool.end_session(self.id)
        self.supervisor.forget(self)
        if self.ending is not None:
            self.ending.set()
        self.journal.write(Record("session", self.id, data={"event": "closed"}))

    @property
    def journal(self) -> Journal:
        return self.supervisor.journal

    @property
    def gateway(self) -> Gateway:
        return self.supervisor.gateway

    @property
    def sandbox(self) -> SandboxSummary:
        return self.supervisor.sandbox_summary

    @property
    def host_threads(self) -> anyio.CapacityLimiter:
        return self.supervisor.host_threads

    @property
    def approval_timeout_s(self) -> float:
        return self.supervisor.approval_timeout_s

    @property
    def approver(self) -> Approver | None:
        """Who approves this session's calls: the supervisor's approver, or the nearest channel that can, of a session
        at or above this one that owns it."""
        if self.supervisor.approver is not None:
            return self.supervisor.approver
        return next((channel for channel in self._owned_channels() if isinstance(channel, Approver)), None)

    @property
    def onlookers(self) -> list[Channel]:
        """The channels that are nearer than the approver's and can only send: they show what is asked of it."""
        if self.supervisor.approver is not None:
            return []
        return list(takewhile(lambda channel: not isinstance(channel, Approver), self._owned_channels()))

    def _owned_channels(self) -> Iterator[Channel]:
        """Its own and those above, the nearest first."""
        session: Session | None = self
        while session is not None:
            if session.owns_channel:
                yield session.channel
            session = session.parent

    def of_provider(self, name: str) -> ProviderTool | None:
        """The tool of this name that its provider runs, if there is one."""
        return self.supervisor.provider_tools.get(name)

    def tool_names(self) -> list[str]:
        """The tools that this session may use, as far as its toolsets have said."""
        known = self.toolbox.known.items()
        return [
            name
            for name, tool in known
            if not self._grants_of(tool).missing and is_offered(self.supervisor.policy, tool.declaration, self.info)
        ]

    def checks(self, route: Route) -> Checks:
        """What calls that go this way are held to."""
        if route.checks is None:
            supervisor, tool = self.supervisor, route.tool
            route.checks = Checks(supervisor.validator(tool), supervisor.output_schema(tool))
        return route.checks

    def route(self, tool: Tool[..., Any], *, mutates: bool = True) -> Route:
        """Where calls of this tool go, worked out once, and again where another directory is the workspace now. Those
        that are not to change anything (`mutates` is False) go to a cell that cannot, and wait for no other call.
        """
        place = self._place.now(self._workspace_path)
        if place is not self._place:
            if place.identity != self._place.identity:
                self._routes.clear()
                self._other_routes.clear()
            self._place = place
            self.is_misplaced = place.is_taken
        if not mutates:
            return self._other_route("unchanging", tool, lambda: self._new_route(tool, mutates))
        route = self._routes.get(tool.name)
        if route is None or route.tool is not tool or (route.use.bound and not route.use.is_current()):
            route = self._routes[tool.name] = self._new_route(tool, mutates)
        return route

    def has_moved(self, route: Route) -> bool:
        """Whether another directory is the workspace now than when this route was worked out."""
        spec = route.spec
        return spec.cwd == self._workspace_path and self._place.now(self._workspace_path).identity != spec.key.workspace

    def _other_route(self, kind: str, tool: Tool[..., Any], new: Callable[[], Route]) -> Route:
        route = self._other_routes.get((kind, tool.name))
        if route is None or route.tool is not tool or not route.use.is_current():
            route = self._other_routes[kind, tool.name] = new()
        return route

    def _grants_of(self, tool: Tool[..., Any], *, mutates: bool = True) -> Grants:
        """The grants of the tool's calls, where a need that would reach nothing is missing too."""
        grants = grants_for(self.grants, tool.needs, tool.uses, mutates=mutates)
        useless = out_of_reach(tool, self.profile)
        return Grants(grants.given - useless, grants.missing | useless) if useless else grants

    def _new_route(self, tool: Tool[..., Any], mutates: bool) -> Route:
        grants = self._grants_of(tool, mutates=mutates)
        limits = limits_for(tool, self.profile.limits)
        if tool.placement != "cell":
            return self._route_to(tool, grants, limits, ())
        if tool.lifetime == "session":
            return self._route_to(tool, grants, limits, [tool], kept=tool.name)
        self.supervisor.shipment(tool)  # its own may be a UsageError; another's does not concern it
        group = (frozenset(grants.given), limits)
        mates = [mate for mate in self.toolbox.mates(tool) if self._shares(mate, group)]
        if mutates:
            return self._route_to(tool, grants, limits, mates)
        return replace(self._route_to(tool, grants, limits, [tool, *mates]), exclusive="")

    def _route_to(
        self, tool: Tool[..., Any], grants: Grants, limits: Limits, mates: Sequence[Tool[..., Any]], kept: str = ""
    ) -> Route:
        shipments = tuple(self.supervisor.shipment(mate) for mate in mates)
        route = self._route_of(tool, grants, limits, shipments, kept, source_of(tool))
        if tool.placement == "cell":
            route.use = self.supervisor.use(tool)
        return route

    def _route_of(
        self,
        tool: Tool[..., Any],
        grants: Grants,
        limits: Limits,
        shipments: tuple[Mapping[str, object], ...],
        kept: str,
        source: Source | None,
    ) -> Route:
        key = CellKey(self.id, frozenset(grants.given), limits, kept, content_of(shipments), self._place.identity)
        profile = confine(self.profile, grants.given, self.workspace, limits)
        if source is not None:
            profile = profile.replace(readable=(*profile.readable, source.directory))
        # Sequential as a writer, by default, counts only where it may write.
        writes = Capability.WRITE in tool.needs | tool.uses
        alone = tool.declaration.annotations.sequential and (not writes or Capability.WRITE in grants.given)
        sandbox = summary_for(self.sandbox, profile.reach)
        return Route(
            tool,
            tool.declaration,
            grants,
            CellSpec(key, profile, shipments, profile.cwd, session=self._told(grants, limits)),
            broker.table_for(grants.given),
            limits,
            exclusive=self.id if alone else "",
            guarded=self.supervisor.protection.of(profile),
            blank=blank(tool, self.id, sandbox),
            facts=facts_of(tool.name, tool.version),
        )

    def _told(self, grants: Grants, limits: Limits) -> Mapping[str, Field]:
        """What a cell hears of this session before its first call."""
        return {
            "session_id": self.id,
            "agent_id": self.agent_id,
            "session_kind": self.kind.value,
            "workspace_root": self._workspace_path,
            "grants": [capability.value for capability in grants.given],
            "grace_s": limits.grace_s,
        }

    def _shares(self, tool: Tool[..., Any], group: tuple[frozenset[Capability], Limits]) -> bool:
        given = self._grants_of(tool)
        return (
            tool.lifetime == "call"
            and tool.placement == "cell"
            and not given.missing
            and (given.given, limits_for(tool, self.profile.limits)) == group
            and self.supervisor.can_ship(tool)
        )

    def preview_route(self, tool: Tool[..., Any]) -> Route:
        """Where the tool's preview runs: in a cell that may read the workspace, and nothing else."""
        grants = grants_for(self.grants, frozenset(), frozenset({Capability.READ}))
        return self._other_route("preview", tool, lambda: self._route_to(tool, grants, self.profile.limits, [tool]))

    def describing_route(self, source: Source) -> Route:
        """Where a module says what tools it has: in a cell that has it in sight, and nothing else."""
        grants = grants_for(self.grants, frozenset(), frozenset())
        shipment = {**DESCRIBER_SHIPMENT, "directory": source.directory}
        return self._route_of(describer(), grants, self.profile.limits, (shipment,), "", source)

    def has_kept_writers(self, route: Route) -> bool:
        """Whether a process that is kept over calls, of any session, may write where the cells of this route may."""
        mine = route.spec.profile.writable
        return any(overlap(mine, writable) for writable in self.pool.kept_writable())

    def tell_progress(
        self,
        on_progress: OnProgress | None,
        call_id: str,
        message: str,
        fraction: float | None,
        charged: Callable[[], Charge] | None = None,
    ) -> None:
        """Let the caller hear how far its call is; what it raises is its own affair. What waits for it is `charged`."""
        if on_progress is None:
            return
        try:
            answer = on_progress(message, fraction)
        except Exception:
            _log.exception("on_progress of call %s raised", call_id)
            return
        if inspect.isawaitable(answer):
            self.in_background(_awaited, call_id, answer, None if charged is None else charged())

    def tell_log(self, call_id: str, tool: str, level: str, message: str, fields: Mapping[str, Any]) -> None:
        """A tool's own word, for the log and the journal."""
        line = printable(message)  # a tool must not write lines that look like another's
        _log.log(_LEVELS.get(level, logging.INFO), "%s: %s", tool, line, extra={"toolcell": fields})
        data = {"tool": tool, "level": level, "message": message, "fields": fields}
        self.journal.write(Record("log", self.id, call_id, data))

    def in_background(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        self.supervisor.in_background(function, *args)

    def on_refused(self, stranger: str, why: str) -> None:
        """A module has claimed the name of a tool that is not its own."""
        _log.warning("%s", printable(why))
        self.journal.write(Record("incident", self.id, data={"toolset": stranger, "what": why}))

    def on_offered(self, names: Iterable[str]) -> None:
        """Toolsets have said which tools there are."""
        self.supervisor.rules.met(names, self.id, self.journal)

    def _require_same(self, tool: object) -> None:
        """Raise UsageError for a tool that was defined again: what this session has under its name is the old one."""
        if isinstance(tool, Tool):
            given = cast("Tool[..., Any]", tool)
            known = self.toolbox.found(given.name)
            if (
                known is not None
                and known.fn is not given.fn
                and known.origin.partition(" ")[0] == given.origin.partition(" ")[0]
                and (known.placement != "cell" or latest(known, self.supervisor.use(known).home) is not given)
            ):
                raise UsageError(
                    f"The tool {given.name!r} was defined again after this supervisor got it, and the old one would "
                    "run. Make another Supervisor with the new one."
                )

    def check_open(self) -> None:
        """Raise UsageError where the session is closed, or its supervisor does not run here."""
        self.supervisor.check_running()
        if self.closed:
            raise UsageError(f"The session {self.id} is closed. Open another one.")


def name_of(tool: str | Declared) -> str:
    """The name that is called: of an enum's member its value, of a tool its declared one."""
    if isinstance(tool, str):
        return str.__str__(tool)
    if isinstance(tool, Declared):  # pyright: ignore[reportUnnecessaryIsInstance] - a function is passed by mistake
        return tool.declaration.name
    raise UsageError(f"{tool!r} is neither a tool nor the name of one. Pass the tool that tool(…) gave, or its name.")


def limits_for(tool: Tool[..., Any], limits: Limits) -> Limits:
    """The session's limits, narrowed by what the tool asked for itself."""
    if not tool.limits:
        return limits
    return limits.narrow(limits.replace(**tool.limits))


async def _awaited(call_id: str, answer: Awaitable[None], charge: Charge | None) -> None:
    try:
        await answer
    except Exception:
        _log.exception("on_progress of call %s raised", call_id)
    finally:
        if charge is not None:
            charge.release()


def new_session_id(kind: SessionKind) -> str:
    return f"{kind}-{os.urandom(6).hex()}"
