"""What the steps of a call tell a tracer. `otel.OpenTelemetry` is the one implementation."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.result import ToolResult

__all__ = ["CallTrace", "RequestTrace", "Telemetry"]


class RequestTrace(Protocol):
    """One HTTP request that the supervisor makes for a call."""

    headers: Mapping[str, str]
    """The headers to send with it. They replace the tool's own."""

    def answered(self, status: int) -> None: ...


class CallTrace(Protocol):
    """One call, from its arrival to its result. Times are in seconds of the monotonic clock, unless the name ends in
    `_ns`: those are of the wall clock, in nanoseconds since 1970, as a cell claims them."""

    carrier: Mapping[str, str]
    """The W3C trace context that the tool gets; empty if there is none."""

    def active(self) -> AbstractContextManager[object]:
        """While entered, spans of the program's own code are children of the call."""
        ...

    def progressed(self, message: str, fraction: float | None) -> None: ...
    def approval_asked(self, began: float, ended: float, answer: str) -> None: ...
    def ran(self, queued: float, queue_s: float, started: float, wall_s: float, *, reused: bool) -> None:
        """The call has waited for a process, and has run in one unless `started` is 0."""
        ...

    def request(
        self, method: str, scheme: str, host: str, port: int, path: str
    ) -> AbstractContextManager[RequestTrace]:
        """An HTTP request that the rules allow, while entered."""
        ...

    def span(self, name: str, attributes: Mapping[str, Any]) -> AbstractContextManager[None]:
        """A step of a host tool, while entered."""
        ...

    def span_began(self, number: int, parent: int, name: str, at_ns: int, attributes: Mapping[str, Any]) -> None: ...
    def span_ended(self, number: int, at_ns: int, error: str) -> None: ...
    def ended(self, result: ToolResult, declaration: ToolDeclaration | None, arguments: Mapping[str, Any]) -> None: ...
    def left(self, error: BaseException) -> None:
        """The caller has gone, so the call has no result."""
        ...


@runtime_checkable
class Telemetry(Protocol):
    """Traces the calls of a supervisor."""

    def begin(self, tool: str, call_id: str, session_id: str, session_kind: str, agent_id: str) -> CallTrace:
        """Begin the trace of a call, in the caller's task."""
        ...
