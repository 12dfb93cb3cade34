"""The core of a session: its place in the tree, the values that its calls share, and its end."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Protocol, cast

from toolcell.dispatch.offer import lacking
from toolcell.dispatch.resolve import resolved
from toolcell.dispatch.route import Routes
from toolcell.dispatch.services import Caller, Services
from toolcell.errors import UsageError
from toolcell.journal import Record
from toolcell.policy import is_offered
from toolcell.pool.run import Run
from toolcell.sessions.ending import SessionLife
from toolcell.sessions.idempotency import IdempotentCalls
from toolcell.sessions.opening import Opening
from toolcell.sessions.reach import as_offered, profile_of
from toolcell.sessions.shipping import latest
from toolcell.web_rules import ALL, SEEN
from toolcell_tools.capability import SessionKind
from toolcell_tools.declaration import Declared, ToolDeclaration
from toolcell_tools.definition import Tool
from toolcell_tools.preview import printable
from toolcell_tools.result import ToolResult

from .settings import Settings
from .tasks import CallTask

_log = logging.getLogger("toolcell.tool")


class SessionOwner(Protocol):
    """The part of the supervisor's runtime that a session uses."""

    @property
    def settings(self) -> Settings: ...

    def check_running(self) -> None:
        """Raise UsageError if the runtime is not running, or runs on another event loop than the caller's."""
        ...

    def require_running(self) -> None:
        """Raise UsageError if the runtime is not running. The caller may be on any event loop."""
        ...

    def open(self, opening: Opening, parent: "SessionCore | None" = None) -> "SessionCore": ...

    def forget(self, session: "SessionCore") -> None: ...

    def start_task(
        self,
        session_id: str,
        id: str | None,
        asked: tuple[str, Mapping[str, Any]],
        call_id: str | None,
        call: Callable[[str], Awaitable[ToolResult]],
    ) -> CallTask: ...


class SessionCore:
    """The state of one session. The program holds a `Session`, which delegates to this."""

    __slots__ = (
        "_children",
        "_idempotent",
        "_owner",
        "caller",
        "depth",
        "is_here",
        "numbers",
        "owns_channel",
        "parent",
        "prefix",
        "public",
        "routes",
        "services",
    )

    def __init__(
        self,
        services: Services,
        caller: Caller,
        parent: "SessionCore | None",
        *,
        owner: SessionOwner,
        owns_channel: bool,
    ) -> None:
        self.services = services
        self.caller = caller
        self.routes = Routes(services, caller)
        self.parent = parent
        self.owns_channel = owns_channel
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.public: Any = None
        """The `Session` of this core."""
        self.prefix = caller.id
        """With a number, the id of a call to which the program gives none."""
        self.numbers = count(1)
        self.is_here = services.reactor.is_here
        self._owner = owner
        self._children: dict[str, SessionCore] = {}
        self._idempotent: IdempotentCalls | None = None

    def __repr__(self) -> str:
        caller = self.caller
        state = "closed" if caller.life.closed else f"{len(self._children)} children"
        return f"<Session {caller.id} {caller.kind.value} of {caller.agent_id} · {state}>"

    # -- its place in the tree ----------------------------------------------------------------------------------------

    @property
    def kind(self) -> SessionKind:
        return self.caller.kind

    @property
    def life(self) -> SessionLife:
        return self.caller.life

    @property
    def living_children(self) -> int:
        return len(self._children)

    @property
    def children(self) -> "Sequence[SessionCore]":
        return list(self._children.values())

    def open_child(self, opening: Opening) -> "SessionCore":
        """Open a child session. Raises UsageError if the tree allows none here."""
        child = self._owner.open(opening, self)
        self._children[child.caller.id] = child
        return child

    def allow_urls(self, urls: Iterable[str]) -> None:
        """Count these URLs as seen."""
        pages, seen = self.caller.profile.web, self.caller.seen
        if pages == ALL:
            return
        if seen is None or not any(rule.startswith(SEEN) for rule in pages):
            raise UsageError(
                f"The profile of the session {self.caller.id} has no web rule 'seen', without which allow_urls has no "
                "effect. List the hosts in Profile.web, or add 'seen' to it."
            )
        seen.give(urls)

    # -- its end ------------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise UsageError if the session is closed, or its supervisor does not run on this event loop."""
        self._owner.check_running()
        if self.caller.life.closed:
            raise UsageError(f"The session {self.caller.id} is closed. Open another one.")

    def check_running(self) -> None:
        """Raise UsageError if the supervisor is not running, or runs on another event loop than the caller's."""
        self._owner.check_running()

    def require_running(self) -> None:
        """Raise UsageError if the supervisor is not running. The caller may be on any event loop."""
        self._owner.require_running()

    def tell_end(self, reason: str, least_s: float, most_s: float) -> Sequence[Run]:
        return self.services.pool.tell_end(self.caller.id, reason, least_s, most_s)

    def end_now(self) -> None:
        if self.parent is not None:
            self.parent._children.pop(self.caller.id, None)
        self.services.pool.end_session(self.caller.id)
        self._owner.forget(self)
        self.services.journal.write(Record("session", self.caller.id, data={"event": "closed"}))

    def start_task(
        self,
        id: str | None,
        asked: tuple[str, Mapping[str, Any]],
        call_id: str | None,
        call: Callable[[str], Awaitable[ToolResult]],
    ) -> CallTask:
        """Start a task for a call of this session."""
        return self._owner.start_task(self.caller.id, id, asked, call_id, call)

    # -- its tools ----------------------------------------------------------------------------------------------------

    async def tools(self) -> list[ToolDeclaration]:
        """The declarations of the tools that this session may use. The toolsets are asked again."""
        services, caller = self.services, self.caller
        tools = (await caller.toolbox.refresh()).values()
        for tool in tools:
            if tool.placement == "cell":
                services.catalog.shipment(tool)
        known = [(tool.declaration, profile_of(tool, caller.profile)) for tool in tools if not lacking(caller, tool)]
        known += [(tool.declaration, caller.profile) for tool in self._owner.settings.provider_tools.values()]
        offered = [each for each in known if is_offered(services.policy, each[0], caller.data.info)]
        return [as_offered(declared, profile, caller.web, caller.memory) for declared, profile in offered]

    async def is_idempotent(self, name: str) -> bool:
        """Whether a call of this tool may be repeated: it is idempotent, or changes nothing."""
        tool = self.caller.toolbox.found(name) or await resolved(self.services, self.caller, name)
        return isinstance(tool, Tool) and _repeatable(tool)

    def name_of(self, tool: str | Declared) -> str:
        """The name to call: the value of an enum member, or the declared name of a tool. Raises UsageError if the tool
        was redefined after the supervisor got it."""
        if isinstance(tool, str):
            return str.__str__(tool)
        if isinstance(tool, Tool):
            self._require_same(cast("Tool[..., Any]", tool))
        if isinstance(tool, Declared):  # pyright: ignore[reportUnnecessaryIsInstance] - a function is passed by mistake
            return tool.declaration.name
        raise UsageError(
            f"{tool!r} is neither a tool nor the name of one. Pass the tool that tool(…) gave, or its name."
        )

    def _require_same(self, given: Tool[..., Any]) -> None:
        """Raise UsageError if the session has an older definition of this tool, which would run instead of it."""
        known = self.caller.toolbox.found(given.name)
        if (
            known is not None
            and known.fn is not given.fn
            and known.origin.partition(" ")[0] == given.origin.partition(" ")[0]
            and (known.placement != "cell" or latest(known, self.services.catalog.shipped(known)[1].home) is not given)
        ):
            raise UsageError(
                f"The tool {given.name!r} was defined again after this supervisor got it, and the old one would "
                "run. Make another Supervisor with the new one."
            )

    @property
    def idempotent(self) -> IdempotentCalls:
        """The session's calls with an idempotency key."""
        if self._idempotent is None:
            self._idempotent = IdempotentCalls(self.caller.id, self.services.results)
        return self._idempotent


def _repeatable(tool: Tool[..., Any]) -> bool:
    annotations = tool.declaration.annotations
    return bool(annotations.idempotent or annotations.read_only)


def report_refused(services: Services, session_id: str, stranger: str, why: str) -> None:
    """Record that a module has claimed the name of another tool."""
    _log.warning("%s", printable(why))
    services.journal.write(Record("incident", session_id, data={"toolset": stranger, "what": why}))
