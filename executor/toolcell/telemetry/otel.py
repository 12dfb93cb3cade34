"""Spans and metrics of calls by OpenTelemetry's semantic conventions for generative AI: the extra `[otel]`.

The attributes are those of the span `gen_ai.execute_tool` in the conventions 1.41.0, the last version before they moved
to the repository open-telemetry/semantic-conventions-genai, and the metric `gen_ai.execute_tool.duration` is of that
repository (pull request 201). Both have the status "Development".
"""

from importlib.metadata import version

try:
    from opentelemetry import metrics, trace
except ImportError as missing:
    raise ImportError(
        "toolcell.telemetry.otel needs OpenTelemetry, which is not installed. Run: pip install 'toolcell[otel]'",
        name=missing.name,
    ) from missing

from .call_span import DURATIONS_S, CallSpan, Instruments

__all__ = ["OpenTelemetry"]


class OpenTelemetry:
    """Traces each call as a span, and records metrics. For `Supervisor(telemetry=…)`; several may share it.

    Without providers, the global ones are used, which the program sets up. `content` adds arguments and result of each
    call, as the journal redacts them, and the messages of errors and progress. `propagate_http` sends the header
    `traceparent` with the requests of `ctx.http`, to hosts that the profile's rules allow.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        *,
        content: bool = False,
        propagate_http: bool = False,
    ) -> None:
        self.content = content
        self.propagate_http = propagate_http
        own = version("toolcell")
        self._tracer = trace.get_tracer("toolcell", own, tracer_provider)
        meter = metrics.get_meter("toolcell", own, meter_provider)
        self._instruments = Instruments(
            duration=meter.create_histogram(
                "gen_ai.execute_tool.duration",
                "s",
                "Duration of tool executions.",
                explicit_bucket_boundaries_advisory=DURATIONS_S,
            ),
            queue=meter.create_histogram(
                "toolcell.call.queue.duration",
                "s",
                "Waits for a process, of calls that waited at least 1 ms.",
                explicit_bucket_boundaries_advisory=DURATIONS_S,
            ),
            active=meter.create_up_down_counter("toolcell.call.active", "{call}", "Calls in flight."),
            errors=meter.create_counter("toolcell.call.errors", "{call}", "Calls that ended in an error."),
        )

    def __repr__(self) -> str:
        return f"<OpenTelemetry content={self.content} propagate_http={self.propagate_http}>"

    def begin(self, tool: str, call_id: str, session_id: str, session_kind: str, agent_id: str) -> CallSpan:
        """Begin the span of a call. Its parent is the caller's current span."""
        return CallSpan(
            self._tracer,
            self._instruments,
            (tool, call_id, session_id, session_kind, agent_id),
            content=self.content,
            propagate_http=self.propagate_http,
        )
