"""Session: one agent conversation. `runtime/core.py` has what stands behind it."""

import json
from collections.abc import Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Never, TypedDict, TypeVar, Unpack, overload

from toolcell.fast.tuples import made
from toolcell.profile import Profile
from toolcell_sandbox.refusal import named
from toolcell_tools.capability import Capability, SessionKind
from toolcell_tools.declaration import Declared, ToolDeclaration
from toolcell_tools.definition import Tool
from toolcell_tools.result import ToolResult

from . import misuse
from .backends.protocols import Channel, HttpClient, MemoryStore, WebClient
from .dispatch.context import CallContext, Repair
from .dispatch.pipeline import attempt, dispatch
from .dispatch.reports import OnProgress
from .dispatch.streams import OnOutput
from .runtime.core import SessionCore
from .sessions import ending
from .sessions.opening import opening_of

R = TypeVar("R")


class CallOptions(TypedDict, total=False):
    """What `Session.call` takes by name."""

    call_id: str | None
    timeout: float | None
    repair: Repair | None
    idempotency_key: str | None
    on_progress: OnProgress | None
    on_output: OnOutput | None


class Session:
    """Made by `Supervisor.open_session` and `Session.open_child`. `call` never raises for what a tool or a model does;
    it raises UsageError on a closed session, and whatever cancellation of the caller's own task is."""

    def __init__(self, core: SessionCore) -> None:
        self._core = core
        core.public = self

    def __repr__(self) -> str:
        return repr(self._core)

    @property
    def id(self) -> str:
        return self._core.caller.id

    @property
    def kind(self) -> SessionKind:
        return self._core.caller.kind

    @property
    def agent_id(self) -> str:
        return self._core.caller.agent_id

    @property
    def parent(self) -> "Session | None":
        above = self._core.parent
        return None if above is None else above.public

    @property
    def workspace(self) -> Path:
        return self._core.caller.workspace

    @property
    def grants(self) -> frozenset[Capability]:
        """What its calls may be granted."""
        return self._core.caller.grants

    @property
    def profile(self) -> Profile:
        """What the kernel holds its cells to, its paths resolved, and no wider than its parent's."""
        return self._core.caller.profile

    @property
    def closed(self) -> bool:
        return self._core.caller.life.closed

    @property
    def config(self) -> Mapping[str, Any]:
        """What tools have as `ctx.config`. Another one holds from the next call on."""
        return self._core.caller.data.info.config

    @config.setter
    def config(self, config: Mapping[str, Any]) -> None:
        self._core.caller.data.set_config(config)

    @property
    def values(self) -> dict[str, Any]:
        """What tools have as `ctx.values`, and have left there. Others hold from the next call on."""
        return self._core.caller.data.info.values

    @values.setter
    def values(self, values: dict[str, Any]) -> None:
        self._core.caller.data.set_values(values)

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
        core = self._core
        if core.caller.life.closed or not core.is_here():
            core.check_open()
        if others:
            misuse.check_names("Session.call", others, CallOptions)
        if timeout is not None:
            misuse.seconds("timeout", timeout, ", or None for the tool's own")
        if call_id is None:
            call_id = f"{core.caller.id}-{next(core.numbers)}"
        elif type(call_id) is not str:
            misuse.check_texts(call_id=call_id)
        if on_progress is not None:
            misuse.check_callable("on_progress", on_progress)
        if on_output is not None:
            misuse.check_callable("on_output", on_output)
        if type(name) is not str:
            name = core.name_of(name)
        arguments: Mapping[str, Any] = {} if args is None else args
        context = made(
            CallContext,
            (core.services, core.caller, core.routes, call_id, timeout, on_progress, on_output, self),
        )
        if repair is None and idempotency_key is None:
            return await attempt(context, name, arguments)
        misuse.check_callable("repair", repair)
        misuse.check_texts(idempotency_key=idempotency_key)
        run = partial(dispatch, context, name, arguments, repair)
        if idempotency_key is None:
            return await run()
        asked = (name, json.dumps(arguments, sort_keys=True, default=repr))
        return await core.idempotent.once(idempotency_key, asked, run)

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
        core = self._core
        core.check_open()
        caller = core.caller
        opening = opening_of(
            kind,
            workspace=caller.workspace if workspace is None else workspace,
            agent_id=caller.agent_id if agent_id is None else agent_id,
            session_id=session_id,
            channel=channel,
            memory=memory,
            web=web,
            http=http,
            config=caller.data.info.config if config is None else config,
            profile=profile,
        )
        return Session(core.open_child(opening))

    async def tools(self) -> list[ToolDeclaration]:
        """The declarations of the tools that this session may use: the supervisor's, then each toolset's, in order.

        Left out is what the policy denies, and what needs a network, hosts or a search engine where there is none.

        Toolsets are asked anew: call this before each request to a model. Raises ToolsetError, which names the one that
        failed, and then the tools of the last time can still be called. A module that only cells import and that claims
        the name of another tool is left out, with an incident in the journal that names both origins.
        """
        self._core.check_open()
        return await self._core.tools()

    @named
    async def close(self, *, grace_s: float | None = None) -> None:
        """End the session, its children and their calls, those of host tools among them, with questions to approvers,
        hooks and repairs, and wait for that. Idempotent.

        A call that waits is Cancelled at once. A tool that looks at `ctx.cancelled` sees True, and has the profile's
        `grace_s` to end tidily, in a child of the session 30 s; what it returns by then is its result. Any other call
        is ended 50 ms later. `grace_s` is the most that is given here to any call: 0 ends all at once.
        """
        core = self._core
        if not core.life.closed and not core.is_here():
            core.check_running()
        await ending.close([core], misuse.grace(grace_s))


def core_of(session: Session) -> SessionCore:
    """What stands behind a session: for this package's own parts and its tests."""
    return session._core  # pyright: ignore[reportPrivateUsage] - the one way in
