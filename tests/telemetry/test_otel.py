"""OpenTelemetry: spans and metrics of calls, the trace in the cell and in commands, and spans that tools report."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from toolcell import HostContext, Supervisor, ToolContext, host_tool, tool
from toolcell.telemetry.otel import ATTRIBUTES, MAX_CHILDREN, OpenTelemetry

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


class Telemetry:
    """Real providers that keep in memory what they get."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])

    def made(self, **options: Any) -> OpenTelemetry:
        return OpenTelemetry(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def metrics(self) -> dict[str, Any]:
        data = json.loads(self.reader.get_metrics_data().to_json())  # type: ignore[union-attr]
        found = data["resource_metrics"][0]["scope_metrics"][0]["metrics"]
        return {each["name"]: each["data"]["data_points"] for each in found}


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    made = Telemetry()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


@tool(needs={"exec", "read"})
def look(ctx: ToolContext, password: str = "") -> dict[str, str]:
    """Tell the trace, in the tool and in a command."""
    assert ctx.shell is not None
    done = ctx.shell.run("echo $TRACEPARENT")
    with ctx.span("parse", rows=3, text="x" * 5_000):
        pass
    return {"tool": ctx.traceparent, "command": done.stdout.strip()}


def fail() -> None:
    """Fail."""
    raise ValueError("no")


def forge(ctx: ToolContext) -> None:
    """Report spans that no span may be."""
    for _number in range(MAX_CHILDREN + 5):
        ctx.log("forged", level="span", start=0.0, end=1e12, attributes={f"a{each}": each for each in range(99)})
    ctx.log("no times", level="span", start="now", end=None)


@host_tool
async def here(ctx: HostContext) -> str:
    """Work in the supervisor's process."""
    with ctx.span("inside"):
        return format(trace.get_current_span().get_span_context().span_id, "016x")


def id_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return format(span.context.span_id, "016x")


async def test_a_call_is_a_span_by_the_conventions_and_the_tool_has_its_trace(
    supervise: Any, workspace: Path, telemetry: Telemetry
) -> None:
    tracer = trace.get_tracer("test", tracer_provider=telemetry.tracers)
    async with supervise([look], telemetry=telemetry.made()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s", agent_id="ann")
        with tracer.start_as_current_span("agent"):
            result = await session.call("look", {"password": "hunter2"}, call_id="c1")
    assert result.error is None, result.error
    spans = telemetry.spans()
    call, parse, agent = spans["execute_tool look"], spans["parse"], spans["agent"]
    assert call.parent is not None and format(call.parent.span_id, "016x") == id_of(agent)
    assert parse.parent is not None and format(parse.parent.span_id, "016x") == id_of(call)
    said = dict(call.attributes or {})
    assert said["gen_ai.operation.name"] == "execute_tool" and said["gen_ai.tool.name"] == "look"
    assert (said["gen_ai.tool.call.id"], said["gen_ai.conversation.id"], said["gen_ai.agent.id"]) == ("c1", "s", "ann")
    assert said["toolcell.session.kind"] == "main" and said["toolcell.cpu_s"] > 0  # type: ignore[operator]
    assert not any("password" in str(value) or "hunter2" in str(value) for value in said.values())
    assert result.output["tool"] == result.output["command"]
    assert result.output["tool"].split("-")[2] == id_of(call)
    assert parse.attributes is not None and parse.attributes["toolcell.tool.rows"] == 3
    assert len(str(parse.attributes["toolcell.tool.text"])) == 1_000
    assert call.start_time <= parse.start_time <= parse.end_time <= call.end_time  # type: ignore[operator]


async def test_errors_and_times_are_metrics_and_content_is_an_option(
    supervise: Any, workspace: Path, telemetry: Telemetry
) -> None:
    tools = [tool(fail), look]
    async with supervise(tools, telemetry=telemetry.made(content=True)) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("fail")
        await session.call("none")
        await session.call("look", {"password": "hunter2"}, idempotency_key="k")
    failed = telemetry.spans()["execute_tool fail"]
    assert not failed.status.is_ok and dict(failed.attributes or {})["error.type"] == "execution"
    said = dict(telemetry.spans()["execute_tool look"].attributes or {})
    assert said["gen_ai.tool.call.arguments"] == '{"password": "[redacted]"}' and said["gen_ai.tool.call.result"]
    points = telemetry.metrics()["gen_ai.execute_tool.duration"]
    errors = {point["attributes"]["gen_ai.tool.name"]: point["attributes"].get("error.type") for point in points}
    assert errors == {"fail": "execution", "none": "unknown_tool", "look": None}
    assert all(point["count"] == 1 for point in points)
    assert all(point["value"] == 0 for point in telemetry.metrics()["toolcell.calls.active"])


async def test_a_cancelled_call_ends_its_span(supervise: Any, workspace: Path, telemetry: Telemetry) -> None:
    @host_tool
    async def wait() -> None:
        """Wait."""
        await anyio.sleep_forever()

    async with supervise([wait], telemetry=telemetry.made()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        with anyio.move_on_after(0.1):
            await session.call("wait")
    assert dict(telemetry.spans()["execute_tool wait"].attributes or {})["error.type"] == "cancelled"


async def test_a_host_tool_runs_inside_the_span(supervise: Any, workspace: Path, telemetry: Telemetry) -> None:
    async with supervise([here], telemetry=telemetry.made()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        inside = (await session.call("here")).output
    spans = telemetry.spans()
    assert inside == id_of(spans["execute_tool here"]) and "inside" in spans


async def test_a_tool_cannot_report_what_no_span_may_be(supervise: Any, workspace: Path, telemetry: Telemetry) -> None:
    async with supervise([tool(forge)], telemetry=telemetry.made()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("forge")
    call = telemetry.spans()["execute_tool forge"]
    forged = [span for span in telemetry.exporter.get_finished_spans() if span.name == "forged"]
    assert len(forged) == MAX_CHILDREN and "no times" not in telemetry.spans()
    assert dict(call.attributes or {})["toolcell.spans.dropped"] == 6
    for span in forged:
        assert call.start_time <= span.start_time + 1_000_000 and span.end_time <= call.end_time  # type: ignore[operator]
        assert span.attributes is not None and len(span.attributes) == ATTRIBUTES
        assert all(name.startswith("toolcell.tool.") for name in span.attributes)


async def test_without_telemetry_a_span_is_a_log_entry(supervise: Any, workspace: Path) -> None:
    async with supervise([look]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        result = await session.call("look")
        assert result.output == {"tool": "", "command": ""}
        (entry,) = supervisor.journal.of(kind="log")
        assert (entry.data["message"], entry.data["level"]) == ("parse", "span")


def test_without_the_extra_the_import_says_what_to_install() -> None:
    program = (
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"
        "import toolcell\n"
        "try:\n"
        "    import toolcell.telemetry.otel\n"
        "except toolcell.UsageError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install 'toolcell[otel]'" in done.stdout


def test_telemetry_that_is_none_is_refused() -> None:
    from toolcell import UsageError

    with pytest.raises(UsageError, match="OpenTelemetry"):
        Supervisor([look], telemetry=object())  # type: ignore[arg-type]
