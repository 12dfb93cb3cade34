"""ToolContext: the facts of a call and the handles that it was granted."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from .capability import Capability, SessionKind
from .failures import MissingCapability

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from .confirmation import Confirmation
    from .handles import ChannelHandle, HttpHandle, MemoryReader, MemoryWriter, WebHandle
    from .shell import Shell
    from .signals import Signal, SignalKind
    from .workspace import WorkspaceReader, WorkspaceWriter

__all__ = ["HostContext", "Reporter", "ToolContext", "require"]

H = TypeVar("H")
_NO_TRACE: Mapping[str, str] = {}
if TYPE_CHECKING:
    S = TypeVarWithDefault("S", default=Any)
else:
    S = TypeVar("S")


class Reporter(Protocol):
    """Receives the progress and the log of a call. The cell's runner implements it; a test passes its own."""

    def progress(self, message: str, fraction: float | None) -> None: ...
    def log(self, message: str, level: str, fields: Mapping[str, Any]) -> None: ...
    def span(self, name: str, attributes: Mapping[str, Any]) -> AbstractContextManager[None]: ...
    def remaining(self) -> float: ...
    def cancelled(self) -> bool: ...
    def signal(self, signal: Signal) -> None: ...
    def confirm(self, hint: str, payload: object) -> Confirmation: ...


class _Reporting:
    """What every context offers for its call: progress, log, spans, deadline, cancellation."""

    __slots__ = ("_reporter",)

    _reporter: Reporter

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Report how far the call is. `fraction` is clamped to 0 to 1."""
        if fraction is not None:
            fraction = None if isnan(fraction) else min(max(fraction, 0.0), 1.0)
        self._reporter.progress(message, fraction)

    def log(self, message: str, level: str = "info", **fields: Any) -> None:
        """Write to the session's log, which people read and the model does not. `fields` are JSON data."""
        self._reporter.log(message, level, fields)

    def span(self, name: str, /, **attributes: str | int | float | bool) -> AbstractContextManager[None]:
        """A block of the tool's work, which is traced as a span below the call's: `with ctx.span("parse", rows=3):`.

        Does nothing if the supervisor has no `telemetry`. At most 128 spans of a call are kept.
        """
        return self._reporter.span(name, attributes)

    def signal(self, kind: SignalKind, *, to: str = "", reason: str = "") -> None:
        """Tell the loop that called the tool something beside the result: `result.signals`. The tool declares
        `signals`. A call that fails gives no signals. Raises ValueError for an unknown kind, and UsageError for one
        that is not declared.
        """
        from .signals import Signal

        self._reporter.signal(Signal(kind, to, reason))

    def confirm(self, hint: str, payload: object = None) -> Confirmation:
        """Ask a person or the program for a confirmation, and return the answer. The tool declares `confirms=True`.

        The first time, this ends the call by an exception that is no `Exception`, and `result.confirmation` names the
        request. When it is answered in `supervisor.approvals` and the same call is made again, the tool runs from its
        beginning and gets the answer here. So ask before the tool changes anything: after an effect through a handle,
        this raises UsageError. `hint` is the question, and `payload` is JSON data to show with it. The answer holds for
        this question and for exactly these arguments of the call.
        """
        return self._reporter.confirm(hint, payload)

    def remaining(self) -> float:
        """Seconds until the deadline, never less than 0."""
        return max(0.0, self._reporter.remaining())

    @property
    def cancelled(self) -> bool:
        """Whether the call should end: its deadline is near, its session closes, or its caller has gone.

        A long tool reads this now and then, cleans up and returns. Near the deadline, this is true for the last
        `grace_s` seconds of the limits, at most a fifth of the call's time. When the session closes, a tool that
        reads this gets time to end; any other is ended a moment later.
        """
        return self._reporter.cancelled()


class ToolContext(_Reporting):
    """One call's identity, settings and handles. A handle that was not granted is None, except `workspace`.

    `deadline` is in seconds of the monotonic clock. `config` is the agent's; tools read it only, by convention. What a
    tool puts into `values` is copied back to the session after the call. `workspace` is always there, and raises
    MissingCapability if READ was not granted. So does each handle of `require`.
    `user_id` and `invocation_id` name the person and the turn for which the call is made, or are "". `context` is the
    summary that the session's parent gave to it, or "".
    `trace` is the W3C trace context of the call (`traceparent`, and `tracestate` if there is one), or empty.
    """

    __slots__ = (
        "agent_id",
        "attempt",
        "call_id",
        "channel",
        "config",
        "context",
        "deadline",
        "http",
        "invocation_id",
        "memory",
        "memory_writer",
        "session_id",
        "session_kind",
        "shell",
        "trace",
        "user_id",
        "values",
        "web",
        "workspace",
        "workspace_root",
        "writer",
    )

    def __init__(
        self,
        *,
        call_id: str,
        session_id: str,
        agent_id: str,
        session_kind: SessionKind,
        workspace_root: Path,
        workspace: WorkspaceReader,
        reporter: Reporter,
        deadline: float,
        config: dict[str, Any] | None = None,
        values: dict[str, Any] | None = None,
        attempt: int = 1,
        writer: WorkspaceWriter | None = None,
        shell: Shell | None = None,
        channel: ChannelHandle | None = None,
        memory: MemoryReader | None = None,
        memory_writer: MemoryWriter | None = None,
        web: WebHandle | None = None,
        http: HttpHandle | None = None,
        user_id: str = "",
        invocation_id: str = "",
        context: str = "",
    ) -> None:
        self.call_id = call_id
        self.session_id = session_id
        self.agent_id = agent_id
        self.session_kind = session_kind
        self.workspace_root = workspace_root
        self.config: dict[str, Any] = {} if config is None else config
        self.values: dict[str, Any] = {} if values is None else values
        self.attempt = attempt
        self.deadline = deadline
        self.workspace = workspace
        self.writer = writer
        self.shell = shell
        self.channel = channel
        self.memory = memory
        self.memory_writer = memory_writer
        self.web = web
        self.http = http
        self.user_id = user_id
        self.invocation_id = invocation_id
        self.context = context
        self.trace: Mapping[str, str] = _NO_TRACE
        self._reporter = reporter

    @property
    def require(self) -> Required:
        """The handles that this call cannot do without, never None: `ctx.require.writer.write_text(…)`."""
        return Required(self)

    @property
    def traceparent(self) -> str:
        """The header `traceparent` of the call's trace context, or ""."""
        return self.trace.get("traceparent", "")

    def __repr__(self) -> str:
        return f"<ToolContext {self.call_id!r} of {self.session_kind.value} session {self.session_id!r}>"


class Required:
    """The handles of a context. One that was not granted raises MissingCapability, which becomes PermissionDenied."""

    __slots__ = ("_context",)

    def __init__(self, context: ToolContext) -> None:
        self._context = context

    @property
    def workspace(self) -> WorkspaceReader:
        return self._context.workspace

    @property
    def writer(self) -> WorkspaceWriter:
        return require(self._context.writer, Capability.WRITE)

    @property
    def shell(self) -> Shell:
        return require(self._context.shell, Capability.EXEC)

    @property
    def channel(self) -> ChannelHandle:
        return require(self._context.channel, Capability.CHANNEL)

    @property
    def memory(self) -> MemoryReader:
        return require(self._context.memory, Capability.MEMORY_READ)

    @property
    def memory_writer(self) -> MemoryWriter:
        return require(self._context.memory_writer, Capability.MEMORY_WRITE)

    @property
    def web(self) -> WebHandle:
        return require(self._context.web, Capability.WEB)

    @property
    def http(self) -> HttpHandle:
        return require(self._context.http, Capability.HTTP)


class HostContext(_Reporting, Generic[S]):
    """What a host tool knows about its call. It has no handles: it runs unrestricted in the supervisor's process.

    `session` is the Session that called, for a tool that opens children or calls other tools. `deadline` is in seconds
    of the monotonic clock. What a tool puts into `values` is copied back to the session after the call. `user_id`,
    `invocation_id` and `context` are those of a ToolContext.
    """

    __slots__ = (
        "agent_id",
        "call_id",
        "config",
        "context",
        "deadline",
        "invocation_id",
        "session",
        "session_id",
        "user_id",
        "values",
    )

    def __init__(
        self,
        *,
        call_id: str,
        session_id: str,
        agent_id: str,
        session: S,
        reporter: Reporter,
        deadline: float,
        config: dict[str, Any] | None = None,
        values: dict[str, Any] | None = None,
        user_id: str = "",
        invocation_id: str = "",
        context: str = "",
    ) -> None:
        self.call_id = call_id
        self.session_id = session_id
        self.agent_id = agent_id
        self.session = session
        self.user_id = user_id
        self.invocation_id = invocation_id
        self.context = context
        self.deadline = deadline
        self.config: dict[str, Any] = {} if config is None else config
        self.values: dict[str, Any] = {} if values is None else values
        self._reporter = reporter

    def __repr__(self) -> str:
        return f"<HostContext {self.call_id!r} of session {self.session_id!r}>"


def require(handle: H | None, capability: Capability) -> H:
    """Return `handle`, or raise MissingCapability if it is None. A tool writes `ctx.require.writer` instead."""
    if handle is None:
        raise MissingCapability(capability)
    return handle
