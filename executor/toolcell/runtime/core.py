"""The core of a session: its place in the tree, the values that its calls share, and its end."""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Protocol, cast

import anyio

from toolcell.dispatch import ask_approval, hooks
from toolcell.dispatch.permit import lacking
from toolcell.dispatch.resolve import resolved
from toolcell.dispatch.route import Routes
from toolcell.dispatch.services import Caller, Services
from toolcell.errors import UsageError
from toolcell.pool.deadlines import Deadline
from toolcell.pool.reactor import Reactor
from toolcell.pool.run import Run
from toolcell.rules.limits import SessionUsage
from toolcell.rules.pages import ALL, SEEN
from toolcell.rules.policy import is_offered
from toolcell.runtime.opening import Opening
from toolcell.sessions import tree
from toolcell.sessions.idempotency import IdempotentCalls
from toolcell.sessions.session_result import SessionResult, SessionState
from toolcell.sessions.shipping import latest
from toolcell.sessions.supervisor_lifetime import Lifetime
from toolcell.sessions.toolbox import as_offered, profile_of
from toolcell.sessions.tree import SessionLife
from toolcell.store.journal import Record
from toolcell.store.sessions import KeptSession
from toolcell.workplaces.workspace_return import WorkspaceReturn
from toolcell_tools.capability import SessionKind
from toolcell_tools.declaration import Declared, ToolDeclaration
from toolcell_tools.definition import Tool
from toolcell_tools.preview import counted, printable
from toolcell_tools.result import ToolResult

from .settings import Settings
from .tasks import CallTask

_log = logging.getLogger("toolcell.tool")
SUMMARY_CHARS = 2_000  # of a session's summary, in the journal
UNDO_S = 10.0  # for hooks to hear of the end of a session whose opening was cancelled


class SessionOwner(Protocol):
    """The part of the supervisor's runtime that a session uses. The runtime makes sessions, so it cannot be named."""

    @property
    def settings(self) -> Settings: ...

    @property
    def life(self) -> Lifetime: ...

    @property
    def reactor(self) -> Reactor:
        """The reactor of the runtime's event loop. Raises UsageError if the runtime is not running."""
        ...

    def open(
        self, opening: Opening, parent: "SessionCore | None" = None, *, kept: KeptSession | None = None
    ) -> "SessionCore": ...

    def forget(self, session: "SessionCore") -> None: ...

    async def close_all(
        self, roots: "Sequence[SessionCore]", most_s: float, outcome: SessionState, summary: str
    ) -> None: ...

    def expire(self, session: "SessionCore") -> None:
        """Close a session in the background, because its time is over."""
        ...

    def keepable(self, session: "SessionCore") -> None:
        """Raise UsageError if the session, or one below it, cannot be written to the state directory."""
        ...

    def forget_kept(self, session: "SessionCore") -> None:
        """Remove a session that is resumed from the state directory."""
        ...

    def keep(self, session: "SessionCore") -> None:
        """Write a suspended session to the state directory, if there is one. Raises UsageError."""
        ...

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
        "_expires_at",
        "_expiry",
        "_idempotent",
        "_owner",
        "caller",
        "depth",
        "is_here",
        "left_s",
        "numbers",
        "opening",
        "owns_channel",
        "parent",
        "prefix",
        "public",
        "result",
        "returned",
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
        opening: Opening,
        owns_channel: bool,
        ttl_s: float,
    ) -> None:
        self.services = services
        self.caller = caller
        self.routes = Routes(services, caller)
        self.parent = parent
        self.opening = opening
        self.owns_channel = owns_channel
        self.result: SessionResult | None = None
        """The session's result, once it has ended."""
        self.returned: WorkspaceReturn | None = None
        """The last return of its sent workspace."""
        self.left_s = ttl_s
        """Seconds until it expires, while its time stands still."""
        self._expires_at = math.inf
        self._expiry: Deadline | None = None
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
        state = counted(len(self._children), "child", "children") if not caller.life.closed else caller.life.state.value
        return f"<Session {caller.id} {caller.kind.value} of {'/'.join(caller.line)} · {state}>"

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

    def open_child(self, opening: Opening, *, kept: KeptSession | None = None) -> "SessionCore":
        """Open a child session. Raises UsageError if the tree allows none here."""
        child = self._owner.open(opening, self, kept=kept)
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

    def usage(self) -> SessionUsage:
        """What its calls and those of the sessions below it have used."""
        total = self.caller.tally.usage
        for child in self._children.values():
            own = child.usage()
            total = SessionUsage(
                calls=total.calls + own.calls,
                cpu_s=total.cpu_s + own.cpu_s,
                wall_s=total.wall_s + own.wall_s,
                bytes=total.bytes + own.bytes,
            )
        return total

    def check_open(self) -> None:
        """Raise UsageError if no call may run in the session, or its supervisor does not run on this event loop."""
        self._owner.life.check()
        life = self.caller.life
        if not life.closed:
            return
        id = self.caller.id
        if life.state is SessionState.SUSPENDED:
            raise UsageError(f"The session {id} is suspended. Resume it first: await session.resume().")
        if life.state is SessionState.EXPIRED:
            raise UsageError(f"The session {id} is closed: it has expired. Open another one, with a longer ttl_s.")
        raise UsageError(f"The session {id} is closed. Open another one.")

    def check_running(self) -> None:
        """Raise UsageError if the supervisor is not running, or runs on another event loop than the caller's."""
        self._owner.life.check()

    @property
    def reactor(self) -> Reactor:
        """The reactor of the supervisor's event loop. Raises UsageError if the supervisor is not running."""
        return self._owner.reactor

    def tell_end(self, reason: str, least_s: float, most_s: float) -> Sequence[Run]:
        return self.services.pool.tell_end(self.caller.id, reason, least_s, most_s)

    async def close(self, most_s: float, outcome: SessionState, summary: str) -> SessionResult:
        """Close the session, and return its result. Another task's close is waited for."""
        if self.result is None:
            await self._owner.close_all([self], most_s, outcome, summary)
        if self.result is None:  # the supervisor was abandoned
            raise UsageError(f"The session {self.caller.id} has no result, because its supervisor was cut off.")
        return self.result

    def end_now(self, summary: str) -> None:
        outcome = self.life.state
        self.stop_clock()
        if (redaction := self.caller.secrets.redaction) is not None:
            summary = redaction.text(summary)
        self.result = self.caller.tally.result(outcome, summary, self.returned)
        questions = self.caller.tally.questions
        if questions and not (store := self.services.approvals()).is_ending:
            store.note_closed(questions)
            self.services.in_background(ask_approval.catch_up, store)
        if self.parent is not None:
            self.parent._children.pop(self.caller.id, None)
        self.services.pool.end_session(self.caller.id)
        self._owner.forget(self)
        data = {"event": "closed", "outcome": outcome.value, "summary": summary[:SUMMARY_CHARS]}
        self.services.journal.write(Record("session", self.caller.id, data=data))

    async def suspend(self, most_s: float) -> None:
        """Suspend the session and all below it. Raises UsageError if one of them cannot be kept in the state
        directory."""
        self._owner.life.check()
        if self.life.state.is_final:
            self.check_open()
        self._owner.keepable(self)
        parked = await tree.suspend(self, most_s)
        for session in parked:
            assert isinstance(session, SessionCore)
            await session.tell("on_suspend")

    async def prepare(self) -> None:
        """Read a workspace that will be sent to a node, and tell the hooks of the session. If the workspace cannot be
        read, the session ends, and this raises UsageError. If this is cancelled, the session ends too, because its
        caller never gets it."""
        work = self.services.pool.preparing(self.caller.id)
        try:
            if work is not None:
                await work()
            await self.tell("on_session", "opened", None)
        except BaseException as error:
            with anyio.move_on_after(UNDO_S, shield=True):
                await self.close(0.0, SessionState.FAILED, str(error))
            raise

    def returning(self, *, last: bool) -> Callable[[], Coroutine[Any, Any, WorkspaceReturn]] | None:
        work = self.services.pool.returning(self.caller.id, last=last)
        return None if work is None else partial(self._bring, work)

    async def _bring(self, work: Callable[[], Coroutine[Any, Any, WorkspaceReturn]]) -> WorkspaceReturn:
        self.returned = await work()
        return self.returned

    def park(self) -> None:
        self.stop_clock()
        self.services.pool.park_session(self.caller.id, "ended when the session was suspended")
        self._owner.keep(self)
        self.services.journal.write(Record("session", self.caller.id, data={"event": "suspended"}))

    async def tell(self, name: str, *facts: Any) -> None:
        """Tell the hooks that have the method `name` of this session."""
        services = self.services
        if services.hooks:
            await hooks.tell(services.hooks, services.hook_timeout_s, name, self.caller.data.info, *facts)

    def wake(self) -> None:
        """Let calls run again in a suspended session. Raises UsageError if it is not suspended, or its parent is."""
        self._owner.life.check()
        life = self.life
        if life.state is SessionState.ACTIVE:
            raise UsageError(f"The session {self.caller.id} is not suspended.")
        if life.state.is_final:
            self.check_open()
        if life.parked is None or not life.parked.is_set():
            raise UsageError(f"The suspension of the session {self.caller.id} is not complete. Wait for suspend().")
        if self.parent is not None and self.parent.life.closed:
            raise UsageError(f"The parent of the session {self.caller.id} is suspended. Resume the parent first.")
        self._owner.forget_kept(self)
        life.state, life.closed, life.parked = SessionState.ACTIVE, False, None
        self.start_clock()
        self.services.journal.write(Record("session", self.caller.id, data={"event": "resumed"}))

    def leave(self) -> None:
        """At the end of the supervisor, leave a suspended session to the next one."""
        self.stop_clock()
        if self.parent is not None:
            self.parent._children.pop(self.caller.id, None)

    def start_clock(self) -> None:
        """Let the time run that the session has left."""
        if self.left_s != math.inf:
            self._expires_at = time.monotonic() + self.left_s
            self._expiry = self.services.pool.at(self._expires_at, lambda: self._owner.expire(self))

    def stop_clock(self) -> None:
        """Let the session's time stand still."""
        if self._expiry is not None:
            self.services.pool.forget_deadline(self._expiry)
            self.left_s = max(0.0, self._expires_at - time.monotonic())
            self._expiry = None

    def changed(self) -> None:
        """Keep the new values or config of a suspended session."""
        if self.life.state is SessionState.SUSPENDED:
            self._owner.keep(self)

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
                services.shipments.shipment(tool)
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
            and (
                known.placement != "cell" or latest(known, self.services.shipments.shipped(known)[1].home) is not given
            )
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
