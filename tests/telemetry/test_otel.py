"""OpenTelemetry: real sandboxes, and the SDK with its exporters in memory."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry import trace as otel_trace
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from tests.backends.http.conftest import Api, api, other

from toolcell import (
    ApprovalRequest,
    Approved,
    Capability,
    HostContext,
    Limits,
    Profile,
    Supervisor,
    ToolContext,
    ToolFailure,
    UsageError,
    base_tools,
    blocking,
    host_tool,
    tool,
)
from toolcell.telemetry.call_span import DURATIONS_S, MOST_EVENTS
from toolcell.telemetry.cell_spans import MOST_ATTRIBUTES, MOST_SPANS
from toolcell.telemetry.metrics import UNKNOWN
from toolcell.telemetry.otel import OpenTelemetry
from toolcell.testing import context

__all__ = ["api", "other"]
pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.usefixtures("nothing_ahead")]
Supervise = Callable[..., Supervisor]


class Traces:
    """A tracer and a meter provider, and what was exported."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(**options)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def telemetry(self, **options: Any) -> OpenTelemetry:
        return OpenTelemetry(self.tracers, self.meters, **options)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def points(self, metric: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        if data is None:
            return []
        found = [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for one in scope.metrics
            if one.name == metric
            for point in one.data.data_points
        ]
        assert all(isinstance(point, (HistogramDataPoint, NumberDataPoint)) for point in found)
        return found


@pytest.fixture
def traces() -> Iterator[Traces]:
    made = Traces()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def ids(span: ReadableSpan) -> SpanContext:
    """The ids of a span."""
    found: SpanContext | None = span.get_span_context()
    assert found is not None
    return found


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return (
        span.parent is not None
        and span.parent.span_id == ids(parent).span_id
        and ids(span).trace_id == ids(parent).trace_id
    )


@tool
def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


@tool
def say_context(ctx: ToolContext) -> list[Any]:
    """The trace context, as a tool sees it, and as a program that it starts sees it."""
    return [dict(ctx.trace), os.environ.get("TRACEPARENT"), os.environ.get("TRACESTATE")]


@tool
def no_context() -> list[Any]:
    """The trace context of a tool without a ToolContext."""
    return [os.environ.get("TRACEPARENT"), os.environ.get("TRACESTATE")]


@tool
def steps(ctx: ToolContext) -> str:
    """Work in steps."""
    with ctx.span("outer", rows=3, share=0.5, whole=True, password="hunter2"), ctx.span("inner"):
        time.sleep(0.01)
    try:
        with ctx.span("fails"):
            raise KeyError("no")
    except KeyError:
        pass
    return "done"


@tool
async def steps_at_once(ctx: ToolContext) -> str:
    """Work in steps, two at the same time."""
    import asyncio

    async def branch(name: str) -> None:
        with ctx.span(name):
            await asyncio.sleep(0.01)
            with ctx.span(f"{name} below"):
                await asyncio.sleep(0.01)

    await asyncio.gather(branch("left"), branch("right"))
    return "done"


@tool
def fails(message: str) -> str:
    """Fail."""
    raise ToolFailure(message)


# -- the span of a call ------------------------------------------------------------------------------------------------


async def test_a_call_is_one_span_by_the_conventions_below_the_programs_span(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    async with supervise([double], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, agent_id="a1")
        with traces.tracers.get_tracer("program").start_as_current_span("program"):
            result = await session.call("double", {"number": 4}, call_id="call_7")
    assert result.output == 8
    span = traces.one("execute_tool double")
    assert span.kind is SpanKind.INTERNAL and span.status.status_code is StatusCode.UNSET
    assert is_child(span, traces.one("program"))
    found = attributes(span)
    assert found["gen_ai.operation.name"] == "execute_tool"
    assert found["gen_ai.tool.name"] == "double"
    assert found["gen_ai.tool.type"] == "function"
    assert found["gen_ai.tool.description"] == "Twice the number."
    assert found["gen_ai.tool.call.id"] == "call_7"
    assert found["gen_ai.conversation.id"] == session.id
    assert found["gen_ai.agent.id"] == "a1"
    assert found["toolcell.session.kind"] == "main"
    assert found["toolcell.outcome"] == "finished"
    assert found["toolcell.attempts"] == 1
    assert found["toolcell.queue_s"] == result.usage.queue_s and found["toolcell.cpu_s"] == result.usage.cpu_s
    assert found["toolcell.max_rss_bytes"] == result.usage.max_rss_bytes
    assert not {name for name in found if name.startswith("gen_ai.tool.call.")} - {"gen_ai.tool.call.id"}
    assert "error.type" not in found


async def test_the_steps_of_a_call_are_spans_with_its_times(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    def pause() -> None:
        time.sleep(0.01)

    async with supervise([pause, double], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        results = [await session.call("pause") for _ in range(2)]
    calls, runs = traces.named("execute_tool pause"), traces.named("toolcell.run")
    assert [attributes(call)["toolcell.cell.reused"] for call in calls] == [False, True]
    for call, run, result in zip(calls, runs, results, strict=True):
        assert is_child(run, call)
        assert call.start_time and call.end_time and run.start_time and run.end_time
        assert call.start_time <= run.start_time < run.end_time <= call.end_time
        assert (run.end_time - run.start_time) / 1e9 == pytest.approx(result.usage.wall_s, abs=1e-6)


async def test_a_call_that_waits_for_a_process_has_a_span_and_a_metric_of_its_wait(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    def pause() -> None:
        time.sleep(1.0)

    async with supervise([pause], telemetry=traces.telemetry(), max_cells=1) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("pause")
        before = len(traces.named("toolcell.queue"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "pause")
            tasks.start_soon(session.call, "pause")
    waits = traces.named("toolcell.queue")
    assert len(waits) > before
    longest = max(waits[before:], key=lambda span: (span.end_time or 0) - (span.start_time or 0))
    assert longest.start_time and longest.end_time and longest.end_time - longest.start_time >= 30e6
    assert any(is_child(longest, call) for call in traces.named("execute_tool pause"))
    (point,) = traces.points("toolcell.call.queue.duration")
    assert point.count == len(waits) and dict(point.attributes) == {"toolcell.session.kind": "main"}


async def test_an_error_is_the_spans_status_with_its_kind_and_without_content(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    async with supervise([double, fails], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("double", {"number": "many"})
        await session.call("fails", {"message": "the secret plan"})
    invalid, failed = traces.one("execute_tool double"), traces.one("execute_tool fails")
    assert [attributes(span)["error.type"] for span in (invalid, failed)] == ["validation", "execution"]
    assert {span.status.status_code for span in (invalid, failed)} == {StatusCode.ERROR}
    assert attributes(invalid)["toolcell.outcome"] == "not started"
    assert "secret plan" not in "".join(span.to_json() for span in traces.spans)


async def test_a_name_that_no_tool_has_is_in_no_spans_name_and_no_metric(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    async with supervise([double], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("treble\x1b", {})
    span = traces.one("execute_tool")
    assert attributes(span)["error.type"] == "unknown_tool"
    assert "\x1b" not in str(attributes(span)["gen_ai.tool.name"])
    (point,) = traces.points("gen_ai.execute_tool.duration")
    assert point.attributes["gen_ai.tool.name"] == UNKNOWN


async def test_all_attempts_of_a_repaired_call_are_one_span(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    async def repair(error: object) -> dict[str, Any]:
        return {"number": 3}

    async with supervise([double], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("double", {"number": "three"}, repair=repair)).output == 6
    span = traces.one("execute_tool double")
    assert attributes(span)["toolcell.attempts"] == 2 and span.status.status_code is StatusCode.UNSET


async def test_a_result_that_is_only_repeated_has_no_second_span(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    async with supervise([double], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for _ in range(2):
            assert (await session.call("double", {"number": 3}, idempotency_key="once")).output == 6
    assert len(traces.named("execute_tool double")) == 1


async def test_a_caller_who_goes_leaves_an_ended_span_and_no_call_in_flight(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    def sleep() -> None:
        time.sleep(30)

    async with supervise([sleep], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        with anyio.move_on_after(0.3):
            await session.call("sleep")
    assert attributes(traces.one("execute_tool sleep"))["error.type"] == "cancelled"
    assert [point.value for point in traces.points("toolcell.call.active")] == [0]


async def test_a_wait_for_approval_is_a_span_with_its_answer(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    class Slow:
        async def approve(self, request: ApprovalRequest) -> Approved:
            await anyio.sleep(0.05)
            return Approved()

    asks = tool(lambda: "done", name="asks", description="Ask.", requires_approval=True)
    async with supervise([asks], telemetry=traces.telemetry(), approver=Slow()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("asks")).output == "done"
    asked = traces.one("toolcell.approval")
    assert is_child(asked, traces.one("execute_tool asks"))
    assert attributes(asked)["toolcell.approval.answer"] == "approved"
    assert asked.start_time and asked.end_time and asked.end_time - asked.start_time >= 50e6


async def test_progress_is_an_event_without_its_message_and_not_one_of_any_number(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    def count(ctx: ToolContext) -> int:
        for n in range(100):
            ctx.progress(f"secret {n}", n / 100)
        return 100

    async with supervise([count], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("count")
    span = traces.one("execute_tool count")
    assert [event.name for event in span.events] == ["toolcell.progress"] * MOST_EVENTS
    assert dict(span.events[1].attributes or {}) == {"toolcell.progress.fraction": 0.01}
    assert "secret" not in span.to_json()


async def test_content_is_the_redacted_arguments_the_result_and_messages(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    def login(ctx: ToolContext, user: str, password: str) -> dict[str, str]:
        ctx.progress("half", 0.5)
        return {"user": user, "token": password}

    async with supervise([login, fails], telemetry=traces.telemetry(content=True)) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("login", {"user": "ada", "password": "hunter2"})
        await session.call("fails", {"message": "no such row"})
    span, failed = traces.one("execute_tool login"), traces.one("execute_tool fails")
    assert json.loads(attributes(span)["gen_ai.tool.call.arguments"]) == {"user": "ada", "password": "[redacted]"}
    assert json.loads(attributes(span)["gen_ai.tool.call.result"]) == {"user": "ada", "token": "[redacted]"}
    assert dict(span.events[0].attributes or {})["toolcell.progress.message"] == "half"
    assert failed.status.description == "no such row"
    assert "gen_ai.tool.call.result" not in attributes(failed)
    assert "hunter2" not in "".join(each.to_json() for each in traces.spans)


class Raising(SpanProcessor):
    """A program's own span processor, with a bug."""

    def __init__(self, at: str) -> None:
        self.at = at

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        assert self.at != "start"

    def on_end(self, span: ReadableSpan) -> None:
        assert self.at != "end"


@pytest.mark.parametrize("at", ["start", "end"])
async def test_a_processor_that_raises_takes_no_result_and_no_cell(
    supervise: Supervise, workspace: Path, traces: Traces, at: str, caplog: pytest.LogCaptureFixture
) -> None:
    traces.tracers.add_span_processor(Raising(at))
    async with supervise([steps, double], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("steps")).output == "done"
        assert (await session.call("double", {"number": 2})).output == 4
        assert (await session.call("double", {"number": "two"})).error is not None
    assert "telemetry of" in caplog.text
    assert [point.value for point in traces.points("toolcell.call.active")] == ([0] if at == "end" else [])


async def test_a_task_is_below_the_span_in_which_it_was_started(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    async with supervise([double], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        with traces.tracers.get_tracer("program").start_as_current_span("program"):
            task = session.start("double", {"number": 2})
        assert (await task.result()).output == 4
    assert is_child(traces.one("execute_tool double"), traces.one("program"))


def test_a_call_of_a_blocking_supervisor_is_below_its_threads_span(workspace: Path, traces: Traces) -> None:
    with blocking.Supervisor([double], telemetry=traces.telemetry()) as supervisor:
        session = supervisor.open_session("main", workspace=workspace)
        with traces.tracers.get_tracer("program").start_as_current_span("program"):
            assert session.call("double", {"number": 2}).output == 4
    assert is_child(traces.one("execute_tool double"), traces.one("program"))


# -- metrics -----------------------------------------------------------------------------------------------------------


async def test_durations_errors_and_calls_in_flight_are_metrics(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    async with supervise([double, fails], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for number in range(3):
            await session.call("double", {"number": number})
        await session.call("fails", {"message": "no"})
        assert [point.value for point in traces.points("toolcell.call.active")] == [0]
    durations = {
        (point.attributes["gen_ai.tool.name"], point.attributes.get("error.type")): point
        for point in traces.points("gen_ai.execute_tool.duration")
    }
    assert {key: point.count for key, point in durations.items()} == {("double", None): 3, ("fails", "execution"): 1}
    assert durations["double", None].explicit_bounds == DURATIONS_S
    spans = traces.named("execute_tool double")
    took_s = sum((span.end_time or 0) - (span.start_time or 0) for span in spans) / 1e9
    assert durations["double", None].sum == pytest.approx(took_s, abs=1e-6)
    (errors,) = traces.points("toolcell.call.errors")
    assert (errors.value, errors.attributes["error.type"]) == (1, "execution")


# -- the context in the cell -------------------------------------------------------------------------------------------


async def test_a_tool_and_its_programs_get_the_context_of_their_call(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    state = TraceState([("vendor", "v1")])
    remote = SpanContext(2**100, 2**40, is_remote=True, trace_flags=TraceFlags(1), trace_state=state)
    program = otel_trace.set_span_in_context(otel_trace.NonRecordingSpan(remote))
    shell = next(each for each in base_tools() if each.name == "shell")
    async with supervise([say_context, no_context, shell], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        with otel_trace.use_span(otel_trace.get_current_span(program)):
            trace, *environment = (await session.call("say_context")).output
            bare = (await session.call("no_context")).output
            echoed = (await session.call("shell", {"command": "echo $TRACEPARENT $TRACESTATE"})).stdout.text
    own = ids(traces.one("execute_tool say_context"))
    extracted = otel_trace.get_current_span(TraceContextTextMapPropagator().extract(trace)).get_span_context()
    assert (extracted.trace_id, extracted.span_id) == (own.trace_id, own.span_id)
    assert own.trace_id == 2**100 and extracted.trace_state == state
    assert environment == [trace["traceparent"], trace["tracestate"]] and trace["tracestate"] == "vendor=v1"
    for name, seen in (("no_context", bare[0]), ("shell", echoed.split()[0])):
        assert f"{ids(traces.one(f'execute_tool {name}')).span_id:016x}" in seen


async def test_a_tool_with_a_tracer_of_its_own_makes_spans_below_its_call(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    def instrumented(ctx: ToolContext) -> list[int]:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        around = TraceContextTextMapPropagator().extract(ctx.trace)
        span: Any = TracerProvider().get_tracer("tool").start_span("of the tool", around)
        return [span.get_span_context().trace_id % 2**53, span.parent.span_id % 2**53]

    async with supervise([instrumented], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        seen = (await session.call("instrumented", timeout=60)).unwrap()
    own = ids(traces.one("execute_tool instrumented"))
    assert seen == [own.trace_id % 2**53, own.span_id % 2**53]


async def test_a_kept_process_gets_the_context_of_each_call(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    async with supervise(
        [tool(say_context.fn, name="say_context", lifetime="session")], telemetry=traces.telemetry()
    ) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        seen = [(await session.call("say_context")).output[:2] for _ in range(2)]
    for span, (trace, variable) in zip(traces.named("execute_tool say_context"), seen, strict=True):
        assert f"{ids(span).span_id:016x}" in trace["traceparent"]
        assert variable == trace["traceparent"]


async def test_without_telemetry_and_without_an_sdk_there_is_no_context_and_spans_do_nothing(
    supervise: Supervise, workspace: Path
) -> None:
    for telemetry in (None, OpenTelemetry(otel_trace.NoOpTracerProvider())):
        async with supervise([say_context, steps], telemetry=telemetry) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace)
            assert (await session.call("say_context")).output == [{}, None, None]
            assert (await session.call("steps")).output == "done"


async def test_a_call_that_is_not_sampled_tells_its_cell_so(supervise: Supervise, workspace: Path) -> None:
    traces = Traces(sampler=ALWAYS_OFF)
    async with supervise([say_context, steps], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        flags = int((await session.call("say_context")).output[0]["traceparent"].rpartition("-")[2], 16)
        assert flags & TraceFlags.SAMPLED == 0
        assert (await session.call("steps")).output == "done"
    assert traces.spans == ()
    assert sum(point.count for point in traces.points("gen_ai.execute_tool.duration")) == 2


# -- spans from the cell -----------------------------------------------------------------------------------------------


async def test_the_steps_that_a_tool_names_are_spans_below_the_call(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    async with supervise([steps], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("steps")).output == "done"
    call, outer, inner = (traces.one(name) for name in ("execute_tool steps", "outer", "inner"))
    assert is_child(outer, call) and is_child(inner, outer)
    assert attributes(outer) == {
        "rows": 3,
        "share": 0.5,
        "whole": True,
        "password": "[redacted]",
        "toolcell.span.origin": "cell",
    }
    assert inner.start_time and inner.end_time and inner.end_time - inner.start_time >= 10e6
    failed = traces.one("fails")
    assert is_child(failed, call) and attributes(failed)["error.type"] == "KeyError"
    assert failed.status.status_code is StatusCode.ERROR


async def test_steps_of_an_async_tool_that_overlap_have_the_right_parents(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    async with supervise([steps_at_once], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("steps_at_once")
    for name in ("left", "right"):
        assert is_child(traces.one(name), traces.one("execute_tool steps_at_once"))
        assert is_child(traces.one(f"{name} below"), traces.one(name))


async def test_a_killed_call_shows_the_step_in_which_it_was(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    def hang(ctx: ToolContext) -> None:
        with ctx.span("download"), ctx.span("wait"):
            time.sleep(3600)

    async with supervise([hang], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        result = await session.call("hang", timeout=5.0)
        assert result.error is not None and result.error.kind == "timeout"
    call = traces.one("execute_tool hang")
    for name in ("download", "wait"):
        step = traces.one(name)
        assert attributes(step)["error.type"] == "unfinished" and step.status.status_code is StatusCode.ERROR
        assert step.end_time == call.end_time
    assert is_child(traces.one("wait"), traces.one("download"))


async def test_a_hostile_cell_can_neither_leave_its_calls_span_nor_flood_it(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    def forge(ctx: ToolContext) -> str:
        from toolcell.wire.messages import SpanEnd, SpanStart

        link = ctx._reporter._link  # type: ignore[attr-defined]  # pyright: ignore
        say = link.tell
        attributes: dict[str, Any] = {f"a{n}": "x" * 10_000 for n in range(100)} | {
            "b": [1],
            "toolcell.outcome": "finished",
        }
        say(SpanStart(link.seq, 2**40, 999, "early\x1b[31m" + "n" * 1_000, -(2**62), attributes))
        say(SpanEnd(link.seq, 2**40, 2**62, "E" * 1_000))
        say(SpanStart(link.seq, 2**40, 0, "the same number again", 0, {}))
        say(SpanEnd(link.seq, 12345, 0, ""))
        for number in range(300):
            say(SpanStart(link.seq, number, -1, "flood", 2**62, {"toolcell.span.origin": "supervisor"}))
        return "done"

    async with supervise([forge], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("forge")).output == "done"
    call = traces.one("execute_tool forge")
    below = [span for span in traces.spans if attributes(span).get("toolcell.span.origin") == "cell"]
    assert len(below) == MOST_SPANS and all(is_child(span, call) for span in below)
    assert attributes(call)["toolcell.spans.dropped"] == 302 - MOST_SPANS
    assert call.start_time and call.end_time
    for span in below:
        assert span.start_time and span.end_time
        assert call.start_time <= span.start_time <= span.end_time <= call.end_time
    (early,) = (span for span in below if span.name.startswith("early"))
    assert len(early.name) <= 128 + 8 and "\x1b" not in early.name
    found = attributes(early)
    assert "toolcell.outcome" not in found and "b" not in found and len(found) <= MOST_ATTRIBUTES + 2
    assert sum(len(value) for name, value in found.items() if name.startswith("a")) < 10_000
    assert not [span for span in traces.spans if span.name == "the same number again"]


async def test_late_steps_of_a_kept_process_are_not_those_of_the_next_call(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    def leave_open(ctx: ToolContext, number: int) -> int:
        ctx.span(f"open {number}").__enter__()
        with ctx.span(f"below {number}"):
            return number

    kept = tool(leave_open, lifetime="session")
    async with supervise([kept], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for number in (1, 2):
            assert (await session.call("leave_open", {"number": number})).output == number
    for call, number in zip(traces.named("execute_tool leave_open"), (1, 2), strict=True):
        assert is_child(traces.one(f"open {number}"), call)
        assert is_child(traces.one(f"below {number}"), traces.one(f"open {number}"))


# -- host tools, and requests of the supervisor ------------------------------------------------------------------------


async def test_calls_and_steps_of_a_host_tool_are_below_its_span(
    supervise: Supervise, workspace: Path, traces: Traces
) -> None:
    @host_tool
    async def helper(ctx: HostContext, number: int) -> int:
        """Ask another tool."""
        with ctx.span("plan", rows=1):
            return int((await ctx.session.call("double", {"number": number})).output)

    @host_tool
    def threaded() -> str:
        """Work in a thread."""
        with traces.tracers.get_tracer("program").start_as_current_span("in the thread"):
            return "done"

    async with supervise([double, helper, threaded], telemetry=traces.telemetry()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("helper", {"number": 3})).output == 6
        assert (await session.call("threaded")).output == "done"
    assert is_child(traces.one("plan"), traces.one("execute_tool helper"))
    assert is_child(traces.one("execute_tool double"), traces.one("plan"))
    assert is_child(traces.one("in the thread"), traces.one("execute_tool threaded"))


@tool(needs={Capability.HTTP})
def ask(ctx: ToolContext, urls: list[str]) -> list[Any]:
    """Ask an API, with a trace context of its own."""
    headers = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    found: list[Any] = []
    for url in urls:
        try:
            found.append(ctx.require.http.request("GET", url, headers=headers).status)
        except Exception as error:
            found.append(type(error).__name__)
    return found


@pytest.mark.parametrize("propagate", [True, False])
async def test_requests_of_a_call_are_spans_and_carry_its_context_only_if_that_is_switched_on(
    supervise: Supervise, workspace: Path, traces: Traces, api: Api, other: Api, propagate: bool
) -> None:
    profile = Profile(
        grants=frozenset({Capability.HTTP}), http=(f"GET {api.url('')} private",), limits=Limits(wall_s=60)
    )
    telemetry = traces.telemetry(propagate_http=propagate)
    async with supervise([ask], telemetry=telemetry) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, profile=profile)
        urls = [api.url("/a?key=secret"), other.url("/b")]
        assert (await session.call("ask", {"urls": urls})).output == [200, "RequestDenied"]
    span = traces.one("GET")  # the refused request has none
    assert span.kind is SpanKind.CLIENT and is_child(span, traces.one("execute_tool ask"))
    assert attributes(span) == {
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": api.port,
        "url.full": api.url("/a"),
    }
    (seen,) = api.seen
    sent = {name.lower(): value for name, value in seen.headers.items()}["traceparent"]
    own = ids(span)
    assert sent.startswith(f"00-{own.trace_id:032x}-{own.span_id:016x}-" if propagate else f"00-{'a' * 32}-")
    assert other.seen == []


# -- the extra ---------------------------------------------------------------------------------------------------------


def test_without_the_package_the_import_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import toolcell.telemetry\n"
        "try:\n    import toolcell.telemetry.otel\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert "pip install 'toolcell[otel]'" in done.stdout


def test_a_supervisor_without_telemetry_does_not_import_opentelemetry() -> None:
    program = (
        "import sys; from toolcell.blocking import Supervisor; Supervisor([]); "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def test_something_else_as_telemetry_is_refused() -> None:
    with pytest.raises(UsageError, match="telemetry"):
        Supervisor([double], telemetry=object())  # type: ignore[arg-type]


def test_the_context_of_a_test_records_spans() -> None:
    ctx = context()
    with ctx.span("split", rows=3):
        pass
    assert ctx.recorder.spanned == [("split", {"rows": 3})]
    assert ctx.trace == {}
