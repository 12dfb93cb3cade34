"""The span of a call, with the spans below it, and the metrics of its end."""

import json
import logging
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec

from opentelemetry.context import Context, attach, detach
from opentelemetry.metrics import Counter, Histogram, UpDownCounter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context, use_span

from toolcell.rules.redaction import BoundedCopy
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.interrupts import pass_on
from toolcell_tools.preview import printable, shortened
from toolcell_tools.result import ToolResult

from .cell_spans import CellSpans
from .metrics import UNKNOWN

DURATIONS_S: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""The buckets that the conventions advise for durations (gen_ai.client.operation.duration)."""
STEP_S: Final = 0.001
"""A shorter step has no span of its own, because a span costs more than 10 µs."""
MOST_EVENTS: Final = 32
"""Events of progress in one call."""
NAME_CHARS: Final = 64
RESULT_CHARS: Final = 2_000  # as `rules.redaction.MOST_CHARS`
P = ParamSpec("P")
_log = logging.getLogger("toolcell.telemetry")
_EXECUTE: Final = {"gen_ai.operation.name": "execute_tool"}


def _logged(method: Callable[Concatenate[Any, P], None]) -> Callable[Concatenate[Any, P], None]:
    """Log what the program's span processors and views raise. A call must not fail by its telemetry."""

    @wraps(method)
    def guarded(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except BaseException as error:
            pass_on(error)
            _log.exception("the telemetry of a call failed")

    return guarded


class Instruments(NamedTuple):
    """The metrics of a supervisor's calls."""

    duration: Histogram
    queue: Histogram
    active: UpDownCounter
    errors: Counter


class HttpSpan:
    """The span of one HTTP request. `headers` are sent with it."""

    def __init__(self, span: Span, headers: Mapping[str, str]) -> None:
        self._span = span
        self.headers = headers

    def answered(self, status: int) -> None:
        """Note the status of the answer. From 400 on, it is an error (conventions for HTTP clients)."""
        self._span.set_attribute("http.response.status_code", status)
        if status >= 400:
            _fail(self._span, str(status))


class CallSpan:
    """The span of one call. Implements `CallTrace`."""

    def __init__(
        self,
        tracer: Tracer,
        instruments: Instruments,
        facts: tuple[str, str, str, str, str],
        *,
        content: bool,
        propagate_http: bool,
    ) -> None:
        """`facts` are the tool's name, and the ids of call, session, session kind and agent."""
        tool, call_id, session_id, kind, agent_id = facts
        tool = printable(tool[:NAME_CHARS])
        self._tracer = tracer
        self._instruments = instruments
        self._content = content
        self._propagate_http = propagate_http
        self._tool = tool
        self._kind = {"toolcell.session.kind": kind}
        self._began_ns, self._began = time.time_ns(), time.monotonic()
        self._span = tracer.start_span(
            f"execute_tool {tool}",
            kind=SpanKind.INTERNAL,
            attributes={
                **_EXECUTE,
                "gen_ai.tool.name": tool,
                "gen_ai.tool.call.id": call_id,
                "gen_ai.conversation.id": session_id,
                "gen_ai.agent.id": agent_id,
                **self._kind,
            },
            start_time=self._began_ns,
        )
        self._context = set_span_in_context(self._span)
        self.carrier: Mapping[str, str] = _carrier(self._span)
        self._cell_spans: CellSpans | None = None
        self._events = 0
        self._over = False
        self._reused: bool | None = None
        instruments.active.add(1, self._kind)

    def active(self) -> AbstractContextManager[None]:
        """Make the span the current one of this task."""
        return _Current(self._context)

    # -- during the call ----------------------------------------------------------------------------------------------

    @_logged
    def progressed(self, message: str, fraction: float | None) -> None:
        """Add an event for a report of progress. Its message is content."""
        self._events += 1
        if self._events > MOST_EVENTS or self._over or not self._span.is_recording():
            return
        facts: dict[str, str | float] = {} if fraction is None else {"toolcell.progress.fraction": fraction}
        if self._content:
            facts["toolcell.progress.message"] = shortened(printable(message))
        self._span.add_event("toolcell.progress", facts)

    @_logged
    def approval_asked(self, began: float, ended: float, answer: str) -> None:
        """Add the span of a wait for approval."""
        self._step("toolcell.approval", began, ended, {"toolcell.approval.answer": answer})

    @_logged
    def ran(self, queued: float, queue_s: float, started: float, wall_s: float, *, reused: bool) -> None:
        """Add the spans of the wait for a process and of the time in the process, if they took `STEP_S`."""
        if queue_s >= STEP_S:
            self._instruments.queue.record(queue_s, self._kind, self._context)
            self._step("toolcell.queue", queued, queued + queue_s, {})
        if started > 0:
            self._reused = reused
            if wall_s >= STEP_S:
                self._step("toolcell.run", started, started + wall_s, {})

    def _step(self, name: str, began: float, ended: float, attributes: Mapping[str, str | bool]) -> None:
        if self._span.is_recording():
            step = self._tracer.start_span(name, self._context, attributes=attributes, start_time=self._ns(began))
            step.end(self._ns(ended))

    def _ns(self, at: float) -> int:
        """The wall-clock time, in nanoseconds, of a time of the monotonic clock."""
        return self._began_ns + max(0, int((at - self._began) * 1e9))

    @contextmanager
    def request(self, method: str, scheme: str, host: str, port: int, path: str) -> Generator[HttpSpan]:
        """The span of an HTTP request. The query is left out, because it may hold secrets."""
        span = self._tracer.start_span(
            method,
            self._context,
            SpanKind.CLIENT,
            {
                "http.request.method": method,
                "server.address": host,
                "server.port": port,
                "url.full": f"{scheme}://{host}:{port}{path}",
            },
        )
        with _ended(span):
            yield HttpSpan(span, _carrier(span) if self._propagate_http else {})

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, Any]) -> Generator[None]:
        """The span of a step of a host tool, which is the program's own code."""
        span = self._tracer.start_span(name, attributes=attributes)
        with _ended(span), use_span(span, record_exception=False, set_status_on_exception=False):
            yield

    @_logged
    def span_began(self, number: int, parent: int, name: str, at_ns: int, attributes: Mapping[str, Any]) -> None:
        """Begin a span that the cell reports."""
        if self._over or not self._span.is_recording():
            return
        if self._cell_spans is None:
            self._cell_spans = CellSpans(self._tracer, self._context, self._began_ns)
        self._cell_spans.begin(number, parent, name, at_ns, attributes)

    @_logged
    def span_ended(self, number: int, at_ns: int, error: str) -> None:
        """End a span that the cell reports."""
        if self._cell_spans is not None and not self._over:
            self._cell_spans.end(number, at_ns, error)

    # -- its end ------------------------------------------------------------------------------------------------------

    @_logged
    def ended(self, result: ToolResult, declaration: ToolDeclaration | None, arguments: Mapping[str, Any]) -> None:
        """End the span with the result of the call. `arguments` are those that the caller gave."""
        error, span = result.error, self._span
        if error is not None and error.kind == "unknown_tool":
            span.update_name("execute_tool")  # a model chose the name, so there may be any number of them
            self._tool = UNKNOWN
        if span.is_recording():
            span.set_attributes(_facts(result, declaration, self._reused))
            for notice in result.notices:
                span.add_event("toolcell.notice", {"toolcell.notice.kind": notice.kind})
            if self._content:
                self._add_content(result, arguments)
        if error is None:
            self._end("", "")
        else:
            self._end(error.kind, error.message if self._content else "")

    @_logged
    def left(self, error: BaseException) -> None:
        """End the span of a call whose caller was cancelled, or whose options were wrong."""
        self._end("cancelled" if not isinstance(error, Exception) else type(error).__name__, "")

    def _add_content(self, result: ToolResult, arguments: Mapping[str, Any]) -> None:
        given = BoundedCopy().of(result.arguments or arguments)
        self._span.set_attribute("gen_ai.tool.call.arguments", json.dumps(given, default=repr))
        if result.error is None:
            kept = BoundedCopy(RESULT_CHARS).of({"result": result.output})["result"]
            self._span.set_attribute("gen_ai.tool.call.result", json.dumps(kept, default=repr))

    def _end(self, kind: str, description: str) -> None:
        if self._over:
            return
        self._over = True
        took_s = time.monotonic() - self._began
        end_ns = self._began_ns + int(took_s * 1e9)
        labels = {**_EXECUTE, "gen_ai.tool.name": self._tool}
        if self._cell_spans is not None:
            self._cell_spans.close(end_ns)
            if self._cell_spans.dropped:
                self._span.set_attribute("toolcell.spans.dropped", self._cell_spans.dropped)
        if kind:
            _fail(self._span, kind, description)
            labels["error.type"] = kind
            self._instruments.errors.add(1, labels)
        self._instruments.duration.record(took_s, labels, self._context)
        self._instruments.active.add(-1, self._kind)
        self._span.end(end_ns)  # last, because a processor of the program may raise


def _facts(
    result: ToolResult, declaration: ToolDeclaration | None, reused: bool | None
) -> dict[str, str | int | float | bool]:
    """The attributes that are known at the end of a call. `reused` is None if the call got no cell."""
    usage, error = result.usage, result.error
    facts: dict[str, str | int | float | bool] = {
        "gen_ai.tool.type": "function",
        "toolcell.tool.version": result.version,
        "toolcell.attempts": usage.attempts,
        "toolcell.queue_s": usage.queue_s,
        "toolcell.wall_s": usage.wall_s,
        "toolcell.cpu_s": usage.cpu_s,
        "toolcell.memory_bytes": usage.memory_bytes,
        "toolcell.max_rss_bytes": usage.max_rss_bytes,
        "toolcell.outcome": "finished" if error is None else error.outcome,
    }
    if reused is not None:
        facts["toolcell.cell.reused"] = reused
    if declaration is not None:
        facts["gen_ai.tool.description"] = declaration.description
        facts["toolcell.tool.tier"] = declaration.tier.value
        facts["toolcell.tool.placement"] = declaration.placement
    return facts


class _Current(AbstractContextManager[None]):
    """While entered, `context` is the current one of this task."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._token = attach(self._context)

    def __exit__(self, *_: object) -> None:
        detach(self._token)


@contextmanager
def _ended(span: Span) -> Generator[None]:
    """End the span with the block, and note the kind of an exception that leaves it."""
    try:
        yield
    except BaseException as error:
        _fail(span, type(error).__name__)
        raise
    finally:
        span.end()


def _fail(span: Span, kind: str, description: str = "") -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, description or None))


def _carrier(span: Span) -> dict[str, str]:
    """The W3C trace context (W3C Recommendation "Trace Context"). Empty if no SDK is set up."""
    own = span.get_span_context()
    if not own.is_valid:
        return {}
    carrier = {"traceparent": f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"}
    if own.trace_state:
        carrier["tracestate"] = own.trace_state.to_header()
    return carrier
