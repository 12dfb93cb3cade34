"""The Supervisor, which an agent runtime embeds. `runtime/` implements it."""

import warnings

from toolcell.wire.forks import OfOneProcess
from toolcell_sandbox.errors import named

from .errors import UsageError
from .fast.imports import Uncollected

TYPE_CHECKING = False  # type checkers know this name; an import of typing would take milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Any, Self

    from toolcell.rules.circuit_breaker import CircuitBreaker
    from toolcell.rules.concurrency import Concurrency
    from toolcell.rules.limits import UsageLimits
    from toolcell.rules.policy import Policy
    from toolcell.rules.profile import Profile
    from toolcell.rules.toml import Config
    from toolcell.store.approvals import Approvals, Approver
    from toolcell.store.journal import Journal
    from toolcell_tools.capability import SessionKind
    from toolcell_tools.definition import Tool
    from toolcell_tools.provider import ProviderTool
    from toolcell_tools.toolsets import Toolset
    from toolcell_tools.typed import TypedTool

    from .backends.outbound import Resolver
    from .backends.protocols import Channel, HttpClient, MemoryStore, WebClient
    from .pool.calling import Cluster
    from .pool.recovery import SupervisorStatus
    from .runtime.runtime import Runtime
    from .runtime.tasks import CallTask
    from .session import Session
    from .telemetry import Metrics
    from .telemetry.tracing import Telemetry


class Supervisor(OfOneProcess):
    """`start` starts the zygotes, `aclose` ends every process, and `async with` does both. On asyncio and on trio.

    Any task may start it and any other task may close it. It must be used on the event loop that started it, and cannot
    be started again after its end. If one of its own tasks fails, it ends by itself: the failure is logged, running
    calls are Cancelled, and `aclose` raises the failure.

    - `tools` are Tools, TypedTools, ProviderTools or plain functions; `toolsets` offer more tools to each session.
    - `profiles` replaces the preset of a session kind.
    - `hooks` run before and after each call, in order.
    - `policy` decides which calls may run and which need approval (default: `TierPolicy()`). `approver` answers;
      without one, the nearest session at or above the call's that owns a channel does. A call waits for the answer for
      `approval_timeout_s` seconds (default: 300).
    - `journal` takes a record of every call.
    - `allow_missing` names mechanisms of the sandbox that may be missing here; every result then names them.
    - `max_cells` bounds the cells at any time; `standby` is how many call processes wait ready in each, 0 or 1 (the
      default).
    - `config`, from `load_config`, gives the values of omitted arguments.
    - `http` makes the requests of `ctx.http` that the profile's rules allow, with credentials of its own: by default a
      `BrokeredHttp` with those of `config`.
    - `channel`, `memory` and `web` are for sessions that are opened without one: by default those of `config`, then the
      log, a `SQLiteMemory` (in the state directory if there is one) and a `PublicWeb`.
    - `resolve(host, port)` looks names up for `ProxyNetwork`. It may block, and returns addresses (default: the
      system's resolver).
    - `quarantine` is the directory to which files with protected names are moved, at most 256 MiB and for 30 days
      (default: `toolcell/quarantine` in the user's cache directory, on a disk).
    - `state` is the directory that makes the supervisor durable: its journal survives a kill. One supervisor at a time
      writes there, and no session may see it. Without it, nothing is kept after the end.
    - `journal_bytes` bounds the journal's log: its oldest records are removed (default: everything is kept).
    - `concurrency` bounds how many calls of a tool, or of a session kind, run at the same time.
    - `circuit_breaker` says when a tool whose process keeps crashing is refused; `CircuitBreaker(crashes=0)`: never.
    - `model_bytes` (default: 100,000) is the size of the longest output that a model gets in full. A longer output is
      also written to a file, an artifact that `for_model` names.
    - `session_ttl_s` has the seconds after which sessions of a kind expire (default: "branch" 1,800, "worker" 300,
      "main" never; `math.inf` means never).
    - `hook_timeout_s` is the time of an async hook, in seconds (default: 300).
    - `cluster` runs the calls on other machines: `RayCluster()` of `toolcell.cluster`, from the extra `[ray]`.
      Host tools, hooks, the policy, approvals, channels, the memory and the web stay here.
    - `telemetry` traces each call: `OpenTelemetry()` of `toolcell.telemetry.otel`, from the extra `[otel]`.

    The start raises SandboxUnavailableError if a mechanism is missing that `allow_missing` does not name. The message
    has all missing mechanisms, their cures, and the `allow_missing` with which the start would succeed.
    """

    @named
    def __init__(
        self,
        tools: "Iterable[Tool[..., Any] | TypedTool[Any] | ProviderTool | Callable[..., Any]]" = (),
        *,
        toolsets: "Iterable[Toolset]" = (),
        profiles: "Mapping[SessionKind, Profile] | None" = None,
        hooks: "Iterable[object]" = (),
        policy: "Policy | None" = None,
        approver: "Approver | None" = None,
        approval_timeout_s: float | None = None,
        journal: "Journal | None" = None,
        allow_missing: "Iterable[str] | None" = None,
        max_cells: int | None = None,
        standby: int | None = None,
        config: "Config | None" = None,
        http: "HttpClient | None" = None,
        channel: "Channel | None" = None,
        memory: "MemoryStore | None" = None,
        web: "WebClient | None" = None,
        resolve: "Resolver | None" = None,
        quarantine: "str | Path | None" = None,
        state: "str | Path | None" = None,
        model_bytes: int | None = None,
        journal_bytes: int | None = None,
        concurrency: "Concurrency | None" = None,
        circuit_breaker: "CircuitBreaker | None" = None,
        telemetry: "Telemetry | None" = None,
        session_ttl_s: "Mapping[SessionKind, float] | Mapping[str, float] | None" = None,
        hook_timeout_s: float | None = None,
        cluster: "Cluster | None" = None,
    ) -> None:
        with Uncollected():  # imported here, because a program that only defines tools or prints help does not need it
            from .runtime.runtime import Runtime
            from .runtime.settings import settings_of

        self._runtime = Runtime(
            settings_of(
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
            ),
            self,
        )

    def __repr__(self) -> str:
        return repr(self._runtime)

    @property
    def journal(self) -> "Journal":
        """The journal, which gets a record of every call."""
        return self._runtime.journal

    @property
    def approvals(self) -> "Approvals":
        """The requests for approval and their answers. With a state directory, they are there after a restart. Raises
        UsageError if the supervisor has a state directory and is not running."""
        return self._runtime.approvals()

    @property
    def policy(self) -> "Policy":
        """The policy in force, with the denials of a project's settings. `policy.explain(call)` names the rule that
        decides, if the policy can tell."""
        return self._runtime.settings.policy

    @property
    def metrics(self) -> "Metrics":
        """The counts, times and memory of all calls so far."""
        return self._runtime.metrics

    async def start(self) -> None:
        """Start the supervisor, from any task. Do nothing if it was started. If the task is cancelled meanwhile, the
        start is undone.

        Raises SandboxUnavailableError as described above; then the start may be tried again. Raises UsageError after
        the end.
        """
        await self._runtime.start()

    async def aclose(self) -> None:
        """End every call, session and process, from any task. Do nothing if the supervisor has ended or was never
        started.

        A cancelled caller still waits for the end. Raises what failed in a task of the supervisor or at its end.
        """
        await self._runtime.close()

    if not TYPE_CHECKING:  # a type checker knows that there is no such method

        def __enter__(self):
            raise UsageError(
                "This supervisor needs `async with Supervisor(…) as supervisor:`, in an async function. Without an "
                "event loop, use toolcell.blocking.Supervisor."
            )

        __exit__ = __enter__  # `with` looks for both

    async def __aenter__(self) -> "Self":
        if self._runtime.is_entered:
            raise UsageError("The supervisor has been entered already. Make another one.")
        await self.start()
        self._runtime.is_entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None"
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        runtime: Runtime | None = vars(self).get("_runtime")  # None if the constructor failed
        if runtime is not None and runtime.is_left_open:
            warnings.warn(f"{self!r} was not closed: await aclose().", ResourceWarning, stacklevel=1, source=self)
            runtime.abandon()

    @named
    async def open_session(
        self,
        kind: "SessionKind | str",
        *,
        workspace: "str | Path",
        agent_id: str = "agent",
        session_id: str | None = None,
        channel: "Channel | None" = None,
        memory: "MemoryStore | None" = None,
        web: "WebClient | None" = None,
        http: "HttpClient | None" = None,
        config: "Mapping[str, Any] | None" = None,
        profile: "Profile | None" = None,
        usage_limits: "UsageLimits | None" = None,
        user_id: str = "",
        invocation_id: str = "",
        ttl_s: float | None = None,
    ) -> "Session":
        """Open a session on a workspace: a directory, which is made if only its parent exists.

        Omitted are the supervisor's own: `channel` (else messages go to the log), `memory` (kept by line), `web` and
        `http`.
        `profile` replaces the kind's, for this session only. `usage_limits` bounds what its calls and those of the
        sessions below it use together. `user_id` and `invocation_id` name the person and the turn for which the
        session works; tools, policies, hooks and the journal have them. The session expires after `ttl_s` seconds;
        without it, by its kind.
        """
        from .session import Session
        from .sessions.opening import opening_of

        core = self._runtime.open(
            opening_of(
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
        )
        session = Session(core)
        await core.prepare()
        return session

    @named
    async def resume_session(
        self,
        id: str,
        *,
        channel: "Channel | None" = None,
        memory: "MemoryStore | None" = None,
        web: "WebClient | None" = None,
        http: "HttpClient | None" = None,
    ) -> "Session":
        """Resume the session of this id, which this supervisor or an earlier one with its state directory has
        suspended. It has its kind, workspace, agent, user, parent, profile, config, values, usage and reports again.

        A session that an earlier supervisor has suspended needs the objects with which it was opened: pass `channel`,
        `memory`, `web` and `http` again if it had its own. Its parent must have been resumed. Raises UsageError.
        """
        from .session import Session

        core = self._runtime.resume(id, channel=channel, memory=memory, web=web, http=http)
        session = core.public if isinstance(core.public, Session) else Session(core)
        await core.tell("on_resume")
        return session

    def suspended_sessions(self) -> list[str]:
        """The ids of the suspended sessions, also of earlier supervisors with this state directory."""
        return self._runtime.suspended()

    def task(self, id: str) -> "CallTask":
        """The task that `Session.start` has started under this id; with a state directory, also by an earlier
        supervisor. Raises UsageError if there is none."""
        return self._runtime.task(id)

    def status(self) -> "SupervisorStatus":
        """The kernel's mechanisms, as probed at the start, and the present state of the zygotes."""
        return self._runtime.calls.status()

    def nodes(self) -> "list[dict[str, Any]]":
        """The nodes of its cluster, as JSON data. Each has its `id`, `state`, `calls`, `sessions`, `losses`, `labels`
        and `problems`, and what it last told of its cells and memory. Empty without a cluster."""
        return self._runtime.calls.nodes()


def runtime_of(supervisor: Supervisor) -> "Runtime":
    """The runtime of a supervisor, for other modules of this package and its tests."""
    return supervisor._runtime  # pyright: ignore[reportPrivateUsage] - the one way in
