"""The same API without `await`, for programs without an event loop. It runs an event loop in a thread."""

import atexit
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Never, Self, TypedDict, TypeVar, Unpack, overload

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from toolcell import request_help
from toolcell.rules import misuse
from toolcell.rules.circuit_breaker import CircuitBreaker
from toolcell.rules.concurrency import Concurrency
from toolcell.rules.limits import SessionUsage, UsageLimits
from toolcell.rules.policy import Explanation, Policy
from toolcell.rules.profile import Profile
from toolcell.rules.toml import Config
from toolcell.runtime.retrying import ATTEMPTS, FIRST_S, LONGEST_S
from toolcell.sessions.session_result import CallReport, SessionResult, SessionState
from toolcell.store.approvals import Approvals, Approver
from toolcell.store.journal import Journal
from toolcell.wire import forks
from toolcell.workplaces.workspace_return import WorkspaceReturn
from toolcell_sandbox.errors import named
from toolcell_tools.artifact import Artifact
from toolcell_tools.capability import Capability, SessionKind
from toolcell_tools.declaration import Declared, ToolDeclaration
from toolcell_tools.definition import Tool
from toolcell_tools.errors import ValidationError
from toolcell_tools.provider import ProviderTool
from toolcell_tools.result import ToolResult
from toolcell_tools.toolsets import Toolset
from toolcell_tools.typed import TypedTool

from . import session as _session
from . import supervisor as _supervisor
from .backends.outbound import Resolver
from .backends.protocols import Channel, HttpClient, MemoryStore, WebClient
from .backends.threads import in_thread
from .dispatch.reports import OnLog, in_callers_context
from .dispatch.streams import StreamName
from .errors import UsageError
from .pool.recovery import SupervisorStatus
from .runtime.tasks import CallTask, TaskStatus
from .telemetry import Metrics
from .telemetry.tracing import Telemetry

__all__ = ["Session", "Supervisor", "preload_memory"]

if TYPE_CHECKING:
    from toolcell.runtime.batch import AnyCall, BatchResult
    from toolcell_tools.exports import Export

    from .pool.calling import Cluster

R = TypeVar("R")
T = TypeVar("T")


class BlockingCallOptions(TypedDict, total=False):
    """The keyword options of `Session.call`."""

    call_id: str | None
    timeout: float | None
    repair: Callable[[ValidationError], dict[str, Any]] | None
    idempotency_key: str | None
    on_progress: Callable[[str, float | None], None] | None
    on_output: Callable[[StreamName, str], None] | None
    on_log: OnLog | None


class Session(forks.OfOneProcess):
    """A blocking session. Made by `Supervisor.open_session` and `Session.open_child`."""

    def __init__(self, inner: _session.Session, portal: BlockingPortal) -> None:
        self._inner = inner
        self._portal = portal

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def kind(self) -> SessionKind:
        return self._inner.kind

    @property
    def workspace(self) -> Path:
        return self._inner.workspace

    @property
    def agent_id(self) -> str:
        return self._inner.agent_id

    @property
    def line(self) -> tuple[str, ...]:
        """As `toolcell.Session.line`."""
        return self._inner.line

    @property
    def user_id(self) -> str:
        return self._inner.user_id

    @property
    def context(self) -> str:
        return self._inner.context

    @property
    def profile(self) -> Profile:
        return self._inner.profile

    @property
    def state(self) -> SessionState:
        return self._inner.state

    @property
    def closed(self) -> bool:
        return self._inner.closed

    @property
    def usage(self) -> SessionUsage:
        return self._inner.usage

    @property
    def reports(self) -> tuple[CallReport, ...]:
        return self._inner.reports

    @property
    def results(self) -> tuple[SessionResult, ...]:
        return self._inner.results

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return self._inner.artifacts

    @property
    def config(self) -> Mapping[str, Any]:
        return self._inner.config

    @config.setter
    def config(self, config: Mapping[str, Any]) -> None:
        self._set("config", config)

    @property
    def values(self) -> dict[str, Any]:
        return self._inner.values

    @values.setter
    def values(self, values: dict[str, Any]) -> None:
        self._set("values", values)

    @property
    def invocation_id(self) -> str:
        return self._inner.invocation_id

    @invocation_id.setter
    def invocation_id(self, invocation_id: str) -> None:
        self._set("invocation_id", invocation_id)

    def _set(self, name: str, value: object) -> None:
        self._running().call(setattr, self._inner, name, value)

    @property
    def grants(self) -> frozenset[Capability]:
        return self._inner.grants

    @property
    def parent(self) -> "Session | None":
        return None if self._inner.parent is None else Session(self._inner.parent, self._portal)

    @overload
    def call(
        self,
        name: Tool[..., ToolResult[R]] | Tool[..., Coroutine[Any, Any, ToolResult[R]]],
        args: Mapping[str, Any] | None = None,
        **options: Unpack[BlockingCallOptions],
    ) -> ToolResult[R]: ...
    @overload
    def call(
        self,
        name: Tool[..., Coroutine[Any, Any, R]],
        args: Mapping[str, Any] | None = None,
        **options: Unpack[BlockingCallOptions],
    ) -> ToolResult[R]: ...
    @overload
    def call(
        self, name: Tool[..., R], args: Mapping[str, Any] | None = None, **options: Unpack[BlockingCallOptions]
    ) -> ToolResult[R]: ...
    @overload
    def call(
        self, name: str | Declared, args: Mapping[str, Any] | None = None, **options: Unpack[BlockingCallOptions]
    ) -> ToolResult: ...
    def call(
        self,
        name: str | Declared,
        args: Mapping[str, Any] | None = None,
        *,
        call_id: str | None = None,
        timeout: float | None = None,
        repair: Callable[[ValidationError], dict[str, Any]] | None = None,
        idempotency_key: str | None = None,
        on_progress: Callable[[str, float | None], None] | None = None,
        on_output: Callable[[StreamName, str], None] | None = None,
        on_log: OnLog | None = None,
        **others: Never,
    ) -> ToolResult:
        """As `toolcell.Session.call`. `repair`, `on_progress` and `on_log` are plain functions, called on the loop's
        thread.
        `on_output` is called in another thread, so it may be slow. An exception in the waiting thread, such as
        KeyboardInterrupt, cancels the call.
        """

        misuse.check_names("Session.call", others, BlockingCallOptions)
        misuse.check_callable("repair", repair)
        misuse.check_callable("on_output", on_output)
        printed = None if on_output is None else in_callers_context(on_output)

        async def mend(error: ValidationError) -> dict[str, Any]:
            assert repair is not None
            return repair(error)

        async def hear(stream: StreamName, text: str) -> None:
            assert printed is not None
            await in_thread(partial(printed, stream, text))

        call = partial(
            self._inner.call,
            name,
            args,
            call_id=call_id,
            timeout=timeout,
            repair=None if repair is None else mend,
            idempotency_key=idempotency_key,
            on_progress=on_progress,
            on_output=None if on_output is None else hear,
            on_log=on_log,
        )
        future = self._running().start_task_soon(call)
        try:
            result: ToolResult = future.result()
        except BaseException:
            future.cancel()
            raise
        return result

    def call_again(self, confirmation: str, *, timeout: float | None = None) -> ToolResult:
        """As `toolcell.Session.call_again`, without callbacks."""
        return self._running().call(partial(self._inner.call_again, confirmation, timeout=timeout))

    def call_many(
        self,
        calls: "Iterable[AnyCall]",
        *,
        export: "Export | None" = None,
        max_concurrent: int | None = None,
        timeout: float | None = None,
    ) -> "BatchResult":
        """As `toolcell.Session.call_many`, without callbacks."""
        run = partial(self._inner.call_many, calls, export=export, max_concurrent=max_concurrent, timeout=timeout)
        return self._running().call(run)

    def retry(
        self,
        name: str | Declared,
        args: Mapping[str, Any] | None = None,
        *,
        attempts: int = ATTEMPTS,
        first_s: float = FIRST_S,
        longest_s: float = LONGEST_S,
        call_id: str | None = None,
        timeout: float | None = None,
    ) -> ToolResult:
        """As `toolcell.Session.retry`, without callbacks."""
        run = partial(
            self._inner.retry,
            name,
            args,
            attempts=attempts,
            first_s=first_s,
            longest_s=longest_s,
            call_id=call_id,
            timeout=timeout,
        )
        return self._running().call(run)

    def start(
        self,
        name: str | Declared,
        args: Mapping[str, Any] | None = None,
        *,
        task_id: str | None = None,
        call_id: str | None = None,
        timeout: float | None = None,
    ) -> "BlockingTask":
        """As `toolcell.Session.start`, without callbacks."""
        started = partial(self._start, name, args, task_id=task_id, call_id=call_id, timeout=timeout)
        return BlockingTask(self._running().call(started), self._running)

    async def _start(self, name: str | Declared, args: Mapping[str, Any] | None, **options: Any) -> CallTask:
        return self._inner.start(name, args, **options)

    @named
    def open_child(
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
        usage_limits: UsageLimits | None = None,
        user_id: str | None = None,
        invocation_id: str | None = None,
        context: str = "",
        ttl_s: float | None = None,
    ) -> "Session":
        """As `toolcell.Session.open_child`."""
        opened = partial(
            self._inner.open_child,
            kind,
            workspace=workspace,
            agent_id=agent_id,
            session_id=session_id,
            channel=channel,
            memory=memory,
            web=web,
            http=http,
            config=config,
            profile=profile,
            usage_limits=usage_limits,
            user_id=user_id,
            invocation_id=invocation_id,
            context=context,
            ttl_s=ttl_s,
        )
        return Session(self._running().call(opened), self._portal)

    def allow_urls(self, urls: Iterable[str]) -> None:
        """As `toolcell.Session.allow_urls`."""
        self._running().call(self._inner.allow_urls, urls)

    def explain(self, name: str | Declared, args: Mapping[str, Any] | None = None) -> Explanation:
        """As `toolcell.Session.explain`."""
        found: Explanation = self._running().call(self._inner.explain, name, args)
        return found

    def tools(self) -> list[ToolDeclaration]:
        """As `toolcell.Session.tools`."""
        return self._running().call(self._inner.tools)

    def bring_back(self) -> WorkspaceReturn:
        """As `toolcell.Session.bring_back`."""
        return self._running().call(self._inner.bring_back)

    @named
    def suspend(self, *, grace_s: float | None = None) -> None:
        """As `toolcell.Session.suspend`."""
        self._running().call(partial(self._inner.suspend, grace_s=grace_s))

    def resume(self) -> None:
        """As `toolcell.Session.resume`."""
        self._running().call(self._inner.resume)

    @named
    def close(
        self,
        *,
        grace_s: float | None = None,
        outcome: Literal["completed", "failed"] | SessionState = SessionState.COMPLETED,
        summary: str = "",
    ) -> SessionResult:
        """As `toolcell.Session.close`."""
        known = _session.core_of(self._inner).result
        if known is not None:
            return known
        return self._running().call(partial(self._inner.close, grace_s=grace_s, outcome=outcome, summary=summary))

    def _run(self, function: Callable[[_session.Session], Awaitable[T]]) -> T:
        """The result of an async function of the session, which runs on the supervisor's event loop."""
        return self._running().call(function, self._inner)

    def _running(self) -> BlockingPortal:
        """The portal to the event loop. Raises UsageError if the supervisor is not running."""
        if _session.core_of(self._inner).reactor.is_here():
            raise UsageError(
                "This would block the event loop of the blocking supervisor, on which it was called. Call it in "
                "another thread: await asyncio.to_thread(…)."
            )
        return self._portal


class BlockingTask:
    """A task of a blocking session: `toolcell.CallTask` without `await`."""

    def __init__(self, inner: CallTask, running: Callable[[], BlockingPortal]) -> None:
        self._inner = inner
        self._running = running

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def status(self) -> TaskStatus:
        return self._inner.status

    def result(self) -> ToolResult:
        """As `toolcell.CallTask.result`."""
        return self._inner.known_result or self._running().call(self._inner.result)

    def cancel(self) -> None:
        """As `toolcell.CallTask.cancel`."""
        if self._inner.known_result is None:
            self._running().call(self._inner.cancel)


class Supervisor(forks.OfOneProcess):
    """A blocking supervisor: a context manager with the constructor of `toolcell.Supervisor`. It is closed when the
    program exits.
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
        channel: Channel | None = None,
        memory: MemoryStore | None = None,
        web: WebClient | None = None,
        resolve: Resolver | None = None,
        quarantine: str | Path | None = None,
        state: str | Path | None = None,
        model_bytes: int | None = None,
        journal_bytes: int | None = None,
        concurrency: Concurrency | None = None,
        circuit_breaker: CircuitBreaker | None = None,
        telemetry: Telemetry | None = None,
        session_ttl_s: Mapping[SessionKind, float] | Mapping[str, float] | None = None,
        hook_timeout_s: float | None = None,
        cluster: "Cluster | None" = None,
    ) -> None:
        self._inner = _supervisor.Supervisor(
            tools,
            toolsets=toolsets,
            profiles=profiles,
            hooks=hooks,
            policy=policy,
            approver=approver,
            approval_timeout_s=approval_timeout_s,
            journal=journal,
            allow_missing=allow_missing,
            max_cells=max_cells,
            standby=standby,
            config=config,
            http=http,
            channel=channel,
            memory=memory,
            web=web,
            resolve=resolve,
            quarantine=quarantine,
            state=state,
            model_bytes=model_bytes,
            journal_bytes=journal_bytes,
            concurrency=concurrency,
            circuit_breaker=circuit_breaker,
            telemetry=telemetry,
            session_ttl_s=session_ttl_s,
            hook_timeout_s=hook_timeout_s,
            cluster=cluster,
        )
        self._turn = threading.Lock()  # held during start and close
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._loop_thread = 0
        forks.register(self)

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"

    @property
    def journal(self) -> Journal:
        return self._inner.journal

    @property
    def approvals(self) -> Approvals:
        return self._inner.approvals

    @property
    def policy(self) -> Policy:
        return self._inner.policy

    @property
    def metrics(self) -> Metrics:
        return self._inner.metrics

    def start(self) -> None:
        """As `toolcell.Supervisor.start`, from any thread. It starts an event loop in a thread, and the supervisor on
        it.
        """
        with self._turn:
            if self._portal is not None:
                return
            with ExitStack() as stack:
                stack.callback(self._hear_why)
                portal = stack.enter_context(start_blocking_portal(name="toolcell"))
                portal.call(self._inner.start)
                stack.callback(self._end, portal)
                self._loop_thread = portal.call(threading.get_ident)
                self._stack = stack.pop_all()
            self._portal = portal
            atexit.register(self.close)

    def close(self) -> None:
        """As `toolcell.Supervisor.aclose`, from any thread except the loop's. It ends the supervisor, then its event
        loop.
        """
        if threading.get_ident() == self._loop_thread:
            raise UsageError(
                "A callback of the supervisor cannot close it, because the close waits for the callback. Close it in "
                "another thread."
            )
        with self._turn:
            self._portal, self._loop_thread = None, 0
            atexit.unregister(self.close)
            self._stack.close()

    aclose = close  # its name in `toolcell.Supervisor`

    def _end(self, portal: BlockingPortal) -> None:
        try:
            portal.call(self._inner.aclose)
        except RuntimeError:  # the loop is ending already, for example after SystemExit in a backend
            if not _supervisor.runtime_of(self._inner).is_left_open:
                raise

    def _hear_why(self) -> None:
        """If the loop ended first, raise the reason for the supervisor's end."""
        if _supervisor.runtime_of(self._inner).is_left_open:
            anyio.run(self._inner.aclose)

    def let_go(self) -> None:
        """In a fork of the program, forget the event loop, whose thread is not there."""
        forks.keep(self._stack)  # to leave it would wait for the loop
        self._turn, self._stack = threading.Lock(), ExitStack()
        self._portal, self._loop_thread = None, 0

    if not TYPE_CHECKING:  # a type checker knows that there is no such method

        def __aenter__(self):
            raise UsageError(
                "This supervisor needs `with Supervisor(…) as supervisor:`. In an async function, use "
                "toolcell.Supervisor."
            )

        __aexit__ = __aenter__  # `async with` looks for both

    def __enter__(self) -> Self:
        if self._portal is not None:
            raise UsageError("The supervisor has been entered already. Make another one.")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @named
    def open_session(
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
        usage_limits: UsageLimits | None = None,
        user_id: str = "",
        invocation_id: str = "",
        ttl_s: float | None = None,
    ) -> Session:
        """As `toolcell.Supervisor.open_session`."""
        portal = self._running()
        opened = partial(
            self._inner.open_session,
            kind,
            workspace=workspace,
            agent_id=agent_id,
            session_id=session_id,
            channel=channel,
            memory=memory,
            web=web,
            http=http,
            config=config,
            profile=profile,
            usage_limits=usage_limits,
            user_id=user_id,
            invocation_id=invocation_id,
            ttl_s=ttl_s,
        )
        return Session(portal.call(opened), portal)

    @named
    def resume_session(
        self,
        id: str,
        *,
        channel: Channel | None = None,
        memory: MemoryStore | None = None,
        web: WebClient | None = None,
        http: HttpClient | None = None,
    ) -> Session:
        """As `toolcell.Supervisor.resume_session`."""
        portal = self._running()
        resumed = partial(self._inner.resume_session, id, channel=channel, memory=memory, web=web, http=http)
        return Session(portal.call(resumed), portal)

    def suspended_sessions(self) -> list[str]:
        """As `toolcell.Supervisor.suspended_sessions`."""
        return self._running().call(self._inner.suspended_sessions)

    def _running(self) -> BlockingPortal:
        if self._portal is None:
            if (runtime := _supervisor.runtime_of(self._inner)).is_inherited:
                raise runtime.why_not()
            raise UsageError(
                "The supervisor is not running. Start it first: with Supervisor(…) as supervisor, or start()."
            )
        return self._portal

    def task(self, id: str) -> BlockingTask:
        """As `toolcell.Supervisor.task`."""
        return BlockingTask(self._running().call(self._inner.task, id), self._running)

    def status(self) -> SupervisorStatus:
        """As `toolcell.Supervisor.status`."""
        return self._inner.status()

    def nodes(self) -> list[dict[str, Any]]:
        """As `toolcell.Supervisor.nodes`."""
        return self._inner.nodes()


def preload_memory(session: Session, query: str, *, limit: int = 5, max_chars: int = request_help.MEMORY_CHARS) -> str:
    """As `toolcell.preload_memory`, for a blocking session."""
    load = partial(request_help.preload_memory, query=query, limit=limit, max_chars=max_chars)
    return session._run(load)  # pyright: ignore[reportPrivateUsage] - of this module
