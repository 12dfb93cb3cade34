"""The Supervisor, which an agent runtime embeds. `runtime/` implements it."""

import warnings

from toolcell.rules.options import PlainOptions, parameters_of
from toolcell.wire.forks import OfOneProcess
from toolcell.wire.switches import Uncollected
from toolcell_sandbox.errors import named

from .errors import UsageError
from .runtime.options import ObjectOptions, Options, RootOptions

TYPE_CHECKING = False  # type checkers know this name; an import of typing would take milliseconds
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Self

    from toolcell.pool.interface import SupervisorStatus
    from toolcell.rules.policy import Policy
    from toolcell.store.approvals import Approvals
    from toolcell.store.journal import Journal

    from .backends.protocols import Channel, HttpClient, MemoryStore, WebClient
    from .runtime.runtime import Runtime
    from .runtime.tasks import CallTask
    from .session import Session
    from .telemetry import Metrics


class Supervisor(OfOneProcess):
    """`start` starts the zygotes, `aclose` ends every process, and `async with` does both. On asyncio and on trio.

    Any task may start it and any other task may close it. It must be used on the event loop that started it, and cannot
    be started again after its end. If one of its own tasks fails, it ends by itself: the failure is logged, running
    calls are Cancelled, and `aclose` raises the failure.

    Its parameters are those of `toolcell.runtime.options.Options`: `ObjectOptions` and `PlainOptions`
    say what each is.

    The start raises SandboxUnavailableError if a mechanism is missing that `allow_missing` does not name. The message
    has all missing mechanisms, their cures, and the `allow_missing` with which the start would succeed.
    """

    @parameters_of(Options.__init__)
    def __init__(self, *args: "Any", **given: "Any") -> None:
        with Uncollected():  # imported here, because a program that only defines tools or prints help does not need it
            from .runtime.runtime import Runtime
            from .runtime.settings import settings_of

        self._runtime = Runtime(settings_of(*args, **given), self)

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
        if runtime is not None and runtime.life.is_left_open:
            warnings.warn(f"{self!r} was not closed: await aclose().", ResourceWarning, stacklevel=1, source=self)
            runtime.abandon()

    @parameters_of(RootOptions.__init__)
    async def open_session(self, *args: "Any", **given: "Any") -> "Session":
        """Open a session on a workspace: a directory, which is made if only its parent exists.

        Omitted are the supervisor's own: `channel` (else messages go to the log), `memory` (kept by line), `web` and
        `http`.
        `profile` replaces the kind's, for this session only. `usage_limits` bounds what its calls and those of the
        sessions below it use together. `user_id` and `invocation_id` name the person and the turn for which the
        session works; tools, policies, hooks and the journal have them. The session expires after `ttl_s` seconds;
        without it, by its kind.
        """
        from toolcell.runtime.opening import opening_of

        from .session import Session

        core = self._runtime.open(opening_of(RootOptions(*args, **given)))
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


Supervisor.__init__.__doc__ = f"{ObjectOptions.__doc__}\n    {PlainOptions.__doc__}"  # for help()


def runtime_of(supervisor: Supervisor) -> "Runtime":
    """The runtime of a supervisor, for other modules of this package and its tests."""
    return supervisor._runtime  # pyright: ignore[reportPrivateUsage] - the one way in
