"""A route: where the calls of one tool go in one session.

A workspace is its directory, not its path: while a session lasts, another directory can take the place of the first.
So the routes of a session hold the identity of the directory, and each call compares it with the directory that is
there now.
"""

import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolcell.backends.protocols import HttpClient
from toolcell.pool.run import CellKey, CellSpec
from toolcell.rules.call import ToolCall
from toolcell.rules.policy import tier_rule
from toolcell.sessions import broker
from toolcell.sessions.changes import RemoteRoot, TrackedRoot
from toolcell.sessions.closure import NOTHING
from toolcell.sessions.foreign_tools import ForeignSource, ForeignTool, source_of
from toolcell.sessions.grants import confine, grants_for, summary_for
from toolcell.sessions.modules import DESCRIBER_SHIPMENT, ModuleSource, describer
from toolcell.sessions.protection import Guarded
from toolcell.sessions.shipping import content_of
from toolcell.store.journal.entries import SharedFacts
from toolcell.wire.frames import Field
from toolcell_sandbox.kernel.syscalls import born_ns
from toolcell_sandbox.limits import Limits
from toolcell_tools.capability import Capability
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.definition import Tool
from toolcell_tools.result import SandboxSummary, ToolResult

from .permit import granted, lacking
from .services import Caller, Offer, Services, agent_facts
from .validate import checks_of

_BLANK: Mapping[str, Any] = vars(ToolResult())
_UNCHANGING, _PREVIEW = "unchanging", "preview"  # key prefixes of an offer's routes besides its ordinary one
TICK_NS = 20_000_000  # twice the coarsest tick of the kernel's file clock


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """Where the calls of one tool go: their grants, their cell, their broker's table."""

    tool: Tool[..., Any]
    declaration: ToolDeclaration
    grants: frozenset[Capability]
    limits: Limits
    spec: CellSpec
    table: broker.Table
    exclusive: str
    """Calls with the same word do not overlap. Calls with "" may overlap with any other."""
    guarded: Guarded | None
    """The guard of protected names, if its cells may write."""
    tracked: TrackedRoot | RemoteRoot | None
    """The workspace, if its cells may write there and results list what they change."""
    sandbox: SandboxSummary
    """The sandbox summary in its results."""
    blank: Mapping[str, Any]
    """All fields of a result. Those that differ from call to call are empty."""
    intent: SharedFacts
    """The facts that the intents of all its calls share: what was asked, by whom, and with which grants."""
    is_misplaced: bool
    """Whether another kind of file has taken the place of the workspace."""
    requests: tuple[str, ...]
    """The profile's rules for HTTP requests. They count only with the capability HTTP."""
    http: HttpClient
    """The client that makes these requests."""
    translate: Callable[[ToolCall], ToolCall] | None
    """Makes the call that the cell gets. None: the cell gets the call as it is."""


@dataclass(frozen=True, slots=True)
class DirectoryIdentity:
    """Device, inode and birth time of a directory. The birth time is needed because inode numbers are reused.

    The birth time takes a statx(2), which is far slower than the lstat(2) of every call. It is read again only if the
    change time differs. No program can set the change time, and a later directory has a later one, to a clock tick.
    """

    device: int = 0
    inode: int = 0
    changed_ns: int = 0
    birth_ns: int = 0
    is_taken: bool = False
    """Whether the path is neither a directory nor a link. A link is checked when the cell is made."""

    @property
    def identity(self) -> tuple[int, int, int]:
        return self.device, self.inode, self.birth_ns

    def now(self, path: str) -> "DirectoryIdentity":
        """The present identity. Zeros mean that nothing is there; the cell that is made then reports the error."""
        try:
            info = os.lstat(path)
        except OSError:
            return NOWHERE
        if (info.st_ino, info.st_dev, info.st_ctime_ns) == (self.inode, self.device, self.changed_ns):
            return self
        settled = time.time_ns() - info.st_ctime_ns > TICK_NS
        is_taken = not (stat.S_ISDIR(info.st_mode) or stat.S_ISLNK(info.st_mode))
        return DirectoryIdentity(info.st_dev, info.st_ino, info.st_ctime_ns if settled else 0, born_ns(path), is_taken)


NOWHERE = DirectoryIdentity()


class Routes:
    """The offers and routes of one session. Each is computed once. Routes are computed again if the workspace has
    become another directory."""

    __slots__ = ("_caller", "_offers", "_path", "_place", "_routes", "_services")

    def __init__(self, services: Services, caller: Caller) -> None:
        self._services = services
        self._caller = caller
        self._path = str(caller.workspace)
        self._offers: dict[str, Offer] = {}
        self._routes: dict[Offer | tuple[str, Offer], Route] = {}
        self._place = NOWHERE  # the workspace of the present routes

    def offer(self, tool: Tool[..., Any]) -> Offer:
        """The tool as this session has it. Raises UsageError if no cell can load it or a schema does not compile."""
        offer = self._offers.get(tool.name)
        if offer is None or offer.tool is not tool or (offer.use.bound and not offer.use.is_current()):
            if offer is not None:
                self._forget(offer)
            offer = self._offers[tool.name] = self._new_offer(tool)
        return offer

    def _new_offer(self, tool: Tool[..., Any]) -> Offer:
        use = self._services.shipments.shipped(tool)[1] if tool.placement == "cell" else NOTHING
        return Offer(tool, tool.declaration, checks_of(tool), lacking(self._caller, tool), use)

    def _forget(self, offer: Offer) -> None:
        for key in (offer, (_UNCHANGING, offer), (_PREVIEW, offer)):
            self._routes.pop(key, None)

    def to(self, offer: Offer, *, changes: bool = True) -> Route:
        """The route of calls of the tool. Without `changes`, it leads to a cell that cannot change anything, and its
        calls wait for no other call. Raises UsageError if no cell can load the tool."""
        place = self._place.now(self._path)
        if place is not self._place:
            self._move(place)
        key = offer if changes else (_UNCHANGING, offer)
        route = self._routes.get(key)
        if route is None:
            route = self._routes[key] = self._new_route(offer.tool, changes)
        return route

    def of_preview(self, offer: Offer) -> Route:
        """The route of the tool's preview: to a cell that may only read the workspace."""
        self._move(self._place.now(self._path))
        route = self._routes.get((_PREVIEW, offer))
        if route is None:
            given = grants_for(self._caller.grants, frozenset(), frozenset({Capability.READ})).given
            limits = self._caller.profile.limits
            route = self._routes[_PREVIEW, offer] = self._to_cell(offer.tool, given, limits, [offer.tool])
        return route

    def of_description(self, source: ModuleSource) -> Route:
        """The route on which a module lists its tools: to a cell that may only read the module."""
        self._move(self._place.now(self._path))
        shipment = {**DESCRIBER_SHIPMENT, "directory": source.directory}
        return self._route(describer(), frozenset(), self._caller.profile.limits, (shipment,), source)

    def of_listing(self, lister: ForeignTool) -> Route:
        """The route on which a source lists its tools: to the process that runs them."""
        self._move(self._place.now(self._path))
        return self._new_route(lister, True)

    def has_moved(self, route: Route) -> bool:
        """Whether the workspace is now another directory than when this route was computed."""
        spec = route.spec
        return spec.cwd == self._path and self._place.now(self._path).identity != spec.key.workspace

    def _move(self, place: DirectoryIdentity) -> None:
        if (place.identity, place.is_taken) != (self._place.identity, self._place.is_taken):
            self._routes.clear()
        self._place = place

    def _new_route(self, tool: Tool[..., Any], changes: bool) -> Route:
        given = granted(self._caller, tool, changes=changes)
        limits = limits_for(tool, self._caller.profile.limits)
        if tool.placement != "cell":
            return self._route(tool, given, limits, (), source_of(tool))
        if tool.lifetime == "session":
            source = source_of(tool)
            return self._to_cell(tool, given, limits, [tool], kept=(source and source.process) or tool.name)
        self._services.shipments.shipment(tool)  # may raise UsageError; errors of other tools do not matter
        mates = [mate for mate in self._caller.toolbox.mates(tool) if self._shares(mate, given, limits)]
        if changes:
            return self._to_cell(tool, given, limits, mates)
        return self._to_cell(tool, given, limits, [tool, *mates], shared=True)

    def _shares(self, tool: Tool[..., Any], given: frozenset[Capability], limits: Limits) -> bool:
        """Whether calls of the tool go to cells with these grants and limits."""
        return (
            tool.lifetime == "call"
            and tool.placement == "cell"
            and not lacking(self._caller, tool)
            and granted(self._caller, tool, changes=True) == given
            and limits_for(tool, self._caller.profile.limits) == limits
            and self._services.shipments.can_ship(tool)
        )

    def _to_cell(
        self,
        tool: Tool[..., Any],
        given: frozenset[Capability],
        limits: Limits,
        mates: Sequence[Tool[..., Any]],
        *,
        kept: str = "",
        shared: bool = False,
    ) -> Route:
        shipments = tuple(self._services.shipments.shipment(mate) for mate in mates)
        return self._route(tool, given, limits, shipments, source_of(tool), kept=kept, shared=shared)

    def _route(
        self,
        tool: Tool[..., Any],
        given: frozenset[Capability],
        limits: Limits,
        shipments: tuple[Mapping[str, object], ...],
        source: ForeignSource | None,
        *,
        kept: str = "",
        shared: bool = False,
    ) -> Route:
        """Make a route. No other function does. `shared`: its calls may overlap with any other."""
        caller, services, place = self._caller, self._services, self._place
        key = CellKey(caller.id, frozenset(given), limits, kept, content_of(shipments), place.identity)
        own = caller.profile if source is None else source.profile_in(caller.profile)
        if source is not None and services.state is not None:  # the session's paths were checked at its opening
            for path in {*own.readable, *own.writable} - {*caller.profile.readable, *caller.profile.writable}:
                services.state.require_apart(path, "a directory of a tool's source")
        if source is not None:
            caller.secrets.add(own, (source.client,), source.fixed_headers, source.url)
        profile = confine(own, given, caller.workspace, limits)
        sandbox = summary_for(services.sandbox, profile.reach)
        # Writing tools are sequential by default. On a route that may not write, such a tool may overlap.
        writes = Capability.WRITE in tool.needs | tool.uses
        alone = tool.declaration.annotations.sequential and (not writes or Capability.WRITE in given)
        return Route(
            tool=tool,
            declaration=tool.declaration,
            grants=given,
            limits=limits,
            spec=CellSpec(key, profile, shipments, profile.cwd, session=self._session_part(given, limits)),
            table=broker.table_for(given),
            exclusive=caller.id if alone and not shared else "",
            guarded=services.protection.of(profile),
            tracked=self._tracked(given),
            sandbox=sandbox,
            blank={
                **_BLANK,
                "tool": tool.name,
                "version": tool.version,
                "session_id": caller.id,
                "sandbox": sandbox,
            },
            intent=self._intent(tool, given, sandbox.network),
            is_misplaced=place.is_taken and profile.cwd == self._path,
            requests=own.http,
            http=caller.http if source is None else source.client_in(caller.http, own.http, caller.farewells),
            translate=tool.sent if isinstance(tool, ForeignTool) else None,
        )

    def _intent(self, tool: Tool[..., Any], given: frozenset[Capability], network: str) -> SharedFacts:
        """The facts that the intents of a route's calls share, packed if there is a journal on disk."""
        caller, services = self._caller, self._services
        facts: dict[str, Any] = {
            "tool": tool.name,
            "version": tool.version,
            "tier": str(tool.declaration.tier),
            **agent_facts(caller.line),
            **({"user": caller.data.info.user_id} if caller.data.info.user_id else {}),
            "session_kind": str(caller.kind),
            "grants": sorted(map(str, given)),
            "fingerprint": tool.declaration.fingerprint,
            "placement": tool.placement,
            "workspace": str(caller.workspace),
            "network": network,
            **({"allowed": rule} if (rule := tier_rule(services.policy, tool.declaration)) else {}),
        }
        return SharedFacts(facts, b"") if services.durable is None else SharedFacts.of(facts)

    def _tracked(self, given: frozenset[Capability]) -> TrackedRoot | RemoteRoot | None:
        changes = self._caller.profile.changes
        if Capability.WRITE not in given or changes == "off":
            return None
        root = os.path.realpath(self._path)
        return self._services.changes.of(root, self._place.identity, texts=changes == "diff")

    def _session_part(self, given: frozenset[Capability], limits: Limits) -> Mapping[str, Field]:
        """The part of the context that all calls of a cell share. The cell gets it before its first call."""
        info = self._caller.data.info
        return {
            "session_id": self._caller.id,
            "agent_id": self._caller.agent_id,
            "ancestors": list(info.ancestors),
            "user_id": info.user_id,
            "context": info.context,
            "session_kind": self._caller.kind.value,
            "workspace_root": self._path,
            "grants": [capability.value for capability in given],
            "grace_s": limits.grace_s,
        }


def limits_for(tool: Tool[..., Any], limits: Limits) -> Limits:
    """The session's limits, narrowed by the tool's own."""
    return limits.narrow(limits.replace(**tool.limits)) if tool.limits else limits
