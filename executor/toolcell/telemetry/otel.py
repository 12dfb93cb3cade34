"""OpenTelemetry: a span and metrics for each call, by the semantic conventions for generative AI (in development;
`open-telemetry/semantic-conventions-genai`, "execute tool"). It needs the extra `toolcell[otel]`.
"""

import json
import math
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from toolcell.errors import UsageError
from toolcell.journal.redact import arguments_for_journal
from toolcell_tools.preview import printable, shortened
from toolcell_tools.result import ToolResult

try:
    from opentelemetry import context as otel_context
    from opentelemetry import metrics, trace
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise UsageError("OpenTelemetry is not installed. Run: pip install 'toolcell[otel]'") from error

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["CallSpan", "OpenTelemetry"]

MAX_CHILDREN: Final = 100
"""The most spans of one call that its tool may report; more are counted."""
ATTRIBUTES: Final = 32
TEXT_CHARS: Final = 1_000
BUCKETS: Final = (0.001, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Seconds: those of `gen_ai.client.operation.duration`, and 1 ms."""
_W3C = TraceContextTextMapPropagator()


class OpenTelemetry:
    """`Supervisor(telemetry=OpenTelemetry())`. The program brings the SDK and its exporters; without `tracer_provider`
    or `meter_provider`, those that it has set globally are used.

    Each call is a span `execute_tool <tool>`, a child of the span that is current where `call` is called. With
    `content`, the span has the arguments, redacted as in the journal, and the display of the result.
    """

    def __init__(
        self,
        *,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
        content: bool = False,
    ) -> None:
        self._tracer = trace.get_tracer("toolcell", tracer_provider=tracer_provider)
        meter = metrics.get_meter("toolcell", meter_provider=meter_provider)
        self._content = content
        self._duration = meter.create_histogram(
            "gen_ai.execute_tool.duration",
            unit="s",
            description="Duration of a tool call.",
            explicit_bucket_boundaries_advisory=list(BUCKETS),
        )
        self._queue = meter.create_histogram(
            "toolcell.queue.duration",
            unit="s",
            description="Time that a call waited for a process.",
            explicit_bucket_boundaries_advisory=list(BUCKETS),
        )
        self._active = meter.create_up_down_counter(
            "toolcell.calls.active", unit="{call}", description="Calls that run."
        )

    def begin(self, tool: str, call_id: str, session: Mapping[str, str]) -> "CallSpan":
        """Start the span of a call. `session` has its id, kind and agent."""
        name = tool[:64]
        span = self._tracer.start_span(
            f"execute_tool {name}",
            kind=SpanKind.INTERNAL,
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": call_id,
                "gen_ai.conversation.id": session["id"],
                "gen_ai.agent.id": session["agent"],
                "toolcell.session.kind": session["kind"],
            },
        )
        self._active.add(1, {"gen_ai.tool.name": name})
        return CallSpan(self, name, span)

    def ended(self, tool: str, span: Span, result: ToolResult | None, elapsed_s: float) -> None:
        """End the span of a call. `result` is None if its caller was cancelled."""
        self._active.add(-1, {"gen_ai.tool.name": tool})
        facts: dict[str, str] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
        if result is None:
            facts["error.type"] = "cancelled"
            span.set_status(Status(StatusCode.ERROR, "the caller was cancelled"))
        elif result.error is not None:
            facts["error.type"] = result.error.kind
            span.set_status(Status(StatusCode.ERROR, shortened(printable(result.error.message), TEXT_CHARS)))
            span.set_attribute("toolcell.outcome", result.error.outcome)
        if "error.type" in facts:
            span.set_attribute("error.type", facts["error.type"])
        if result is not None:
            usage = result.usage
            span.set_attributes(
                {
                    "toolcell.tool.version": result.version,
                    "toolcell.queue_s": usage.queue_s,
                    "toolcell.wall_s": usage.wall_s,
                    "toolcell.cpu_s": usage.cpu_s,
                    "toolcell.memory_bytes": usage.memory_bytes,
                    "toolcell.attempts": usage.attempts,
                }
            )
            if usage.queue_s:
                self._queue.record(usage.queue_s, {"gen_ai.tool.name": tool})
            if self._content:
                given = arguments_for_journal(result.arguments or {})["arguments"]
                span.set_attribute("gen_ai.tool.call.arguments", json.dumps(given))
                span.set_attribute("gen_ai.tool.call.result", shortened(result.display, TEXT_CHARS))
        self._duration.record(elapsed_s, facts)
        span.end()

    def child(self, parent: Span, name: str, start_s: float, end_s: float, attributes: Mapping[str, Any]) -> None:
        """Export a span that a tool has reported. Times are in Unix seconds."""
        span = self._tracer.start_span(
            name, trace.set_span_in_context(parent), start_time=int(start_s * 1e9), attributes=attributes
        )
        span.end(int(end_s * 1e9))


class CallSpan:
    """The span of one call."""

    def __init__(self, telemetry: OpenTelemetry, tool: str, span: Span) -> None:
        self._telemetry = telemetry
        self._tool = tool
        self._span = span
        self._context = trace.set_span_in_context(span)
        self._began_at = time.time()
        self._children = 0
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, self._context)
        self.traceparent = carrier.get("traceparent", "")
        """The W3C header `traceparent` of this span, for the tool; "" if it is not recorded."""

    @contextmanager
    def entered(self) -> Generator[None]:
        """Make this span the current one."""
        token = otel_context.attach(self._context)
        try:
            yield
        finally:
            otel_context.detach(token)

    async def around(self, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """Run the call inside the span, and end the span."""
        began, result = time.perf_counter(), None
        try:
            with self.entered():
                result = await run()
            return result
        finally:
            if self._children > MAX_CHILDREN:
                self._span.set_attribute("toolcell.spans.dropped", self._children - MAX_CHILDREN)
            self._telemetry.ended(self._tool, self._span, result, time.perf_counter() - began)

    def child(self, name: str, fields: Mapping[str, Any]) -> None:
        """Export a span that the tool has reported. The tool is not trusted: the span lies within the call, and has a
        bounded number of attributes of bounded size. A report without times is dropped."""
        self._children += 1
        start, end = fields.get("start"), fields.get("end")
        if self._children > MAX_CHILDREN or not (_is_time(start) and _is_time(end)):
            return
        now = time.time()
        began = min(max(cast("float", start), self._began_at), now)
        given = fields.get("attributes")
        attributes = _bounded(cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else {}
        told = shortened(printable(name), 200)
        self._telemetry.child(self._span, told, began, min(max(cast("float", end), began), now), attributes)


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _bounded(given: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes with values that OpenTelemetry takes. They are named `toolcell.tool.…`, so that a tool cannot claim
    the supervisor's."""
    kept: dict[str, Any] = {}
    for name, value in list(given.items())[:ATTRIBUTES]:
        plain = value if isinstance(value, (bool, float)) or _is_small(value) else str(value)[:TEXT_CHARS]
        kept[f"toolcell.tool.{printable(str(name))[:100]}"] = plain
    return kept


def _is_small(value: object) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**63
