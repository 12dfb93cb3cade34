"""Metrics: fed with records, bounded, mergeable, and true of what a real supervisor did."""

import json
import re
import time
import tracemalloc
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests import misbehaving

from toolcell import Capability, RecentJournal, Record, Session, Supervisor, ToolContext, tool
from toolcell.telemetry import Metrics
from toolcell.telemetry.prometheus import exposition

MIB = 1024 * 1024


def record(tool: str = "t", error: str | None = None, version: str = "1.0.0", **usage: float) -> Record:
    """A record as the dispatcher writes it."""
    spent = {"wall_s": 0.5, "queue_s": 0.01, "cpu_s": 0.1, "max_rss_bytes": 30 * MIB} | usage
    data = {"tool": tool, "version": version, "attempt": 1, "error": error, **spent}
    return Record("denied" if error == "permission_denied" else "call", "s", "c", data)


def metrics_of(*records: Record) -> Metrics:
    metrics = Metrics()
    for one in records:
        metrics.write(one)
    return metrics


# -- counting ----------------------------------------------------------------------------------------------------------


def test_calls_and_errors_are_counted_by_tool_and_version() -> None:
    metrics = metrics_of(
        record(), record(), record(error="timeout"), record(error="timeout"), record(version="2.0.0"), record("other")
    )
    first = metrics.of("t", "1.0.0")
    assert (first.calls, first.errors, first.success_rate) == (4, {"timeout": 2}, 0.5)
    assert (metrics.of("t", "2.0.0").calls, metrics.of("t").calls, metrics.of("nobody").calls) == (1, 5, 0)
    assert [(one.tool, one.version) for one in metrics] == [("other", "1.0.0"), ("t", "1.0.0"), ("t", "2.0.0")]


def test_a_refused_call_counts_as_a_call_and_not_as_a_fast_one() -> None:
    refused = record(error="validation", wall_s=0.0, queue_s=0.0, cpu_s=0.0, max_rss_bytes=0)
    found = metrics_of(record(), refused, refused).of("t")
    assert (found.calls, found.errors, found.wall_s.count, found.wall_s.p50) == (3, {"validation": 2}, 1, 0.5)


def test_quantiles_are_of_all_calls_that_ran() -> None:
    calls = [record(wall_s=0.1 * n, error="execution" if n > 50 else None) for n in range(1, 101)]
    wall = metrics_of(*calls).of("t").wall_s
    assert wall.count == 100 and wall.maximum == 10.0 and wall.mean == pytest.approx(5.05)
    assert [wall.p50, wall.p90, wall.p99] == pytest.approx([5.0, 9.0, 9.9], rel=0.025)


def test_other_records_are_passed_over() -> None:
    broker = Record("denied", "s", "c", {"tool": "t", "operation": "channel.send", "by": "broker"})
    assert list(metrics_of(broker, Record("session", "s"), Record("log", "s", data={"tool": "t"}))) == []


def test_a_history_is_taken_up_from_a_journal_that_was_kept() -> None:
    journal = RecentJournal()
    for one in (record(), Record("session", "s"), record(error="crashed")):
        journal.write(one)
    assert metrics_of(*journal).of("t").errors == {"crashed": 1}


def test_merging_gives_what_one_would_have_counted() -> None:
    left, right = [record(wall_s=0.1), record("a")], [record(wall_s=3.0, error="timeout"), record("b"), record()]
    merged = metrics_of(*left)
    theirs = metrics_of(*right)
    before = theirs.snapshot()
    merged.merge(theirs)
    assert merged.snapshot() == metrics_of(*left, *right).snapshot()
    merged.write(record("b"))
    assert theirs.snapshot() == before  # nothing is shared


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_ten_thousand_tools_take_bounded_memory_and_the_surplus_is_counted_together() -> None:
    metrics = Metrics()
    tracemalloc.start()
    try:
        for number in range(10_000):
            metrics.write(record(f"tool_{number}"))
            metrics.write(record(f"tool_{number}", error="execution"))
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 40 * MIB
    found = {one.tool: one.calls for one in metrics}
    assert len(found) == 1_001 and found["(other)"] == 18_000 and found["tool_999"] == 2


def test_names_that_a_model_makes_up_take_one_series() -> None:
    metrics = Metrics(max_series=1)
    for number in range(100):
        metrics.write(record(f"invented_{number}", "unknown_tool", "", wall_s=0.0))
    metrics.write(record("real"))
    metrics.write(record("late"))
    assert [(one.tool, one.calls) for one in metrics] == [("(other)", 2), ("(unknown)", 100)]


# -- limits ------------------------------------------------------------------------------------------------------------


# -- formats -----------------------------------------------------------------------------------------------------------

SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)"
    r"\{(?P<labels>[a-zA-Z_]\w*=\"(?:[^\"\\\n]|\\[\\n\"])*\"(?:,[a-zA-Z_]\w*=\"(?:[^\"\\\n]|\\[\\n\"])*\")*)\}"
    r" (?P<value>[0-9.e+-]+)"
)


def test_the_parser_of_prometheus_reads_every_number_and_name() -> None:
    odd = 'odd "name"\\\n'
    text = exposition(metrics_of(record(), record(error="timeout"), record(odd, version="2")))
    families = {family.name: family for family in text_string_to_metric_families(text)}
    calls = {
        (sample.labels["tool"], sample.labels["outcome"]): sample.value for sample in families["toolcell_calls"].samples
    }
    assert calls == {("t", "ok"): 1.0, ("t", "timeout"): 1.0, (odd, "ok"): 1.0}
    assert {family.type for family in families.values()} == {"counter", "summary"}
    wall = families["toolcell_call_wall_seconds"].samples
    assert {sample.labels.get("quantile") for sample in wall} == {"0.5", "0.9", "0.99", None}
    assert {sample.labels["tool"] for sample in wall} == {"t", odd}
    assert all(family.documentation for family in families.values())


def test_the_exposition_is_what_its_specification_asks_for() -> None:
    text = exposition(metrics_of(record(), record(error="timeout"), record('odd "name"\\\n', version="2")))
    assert text.endswith("\n")
    types: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types
            types[name] = kind
        elif not line.startswith("# HELP "):
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            name = sample["name"]
            assert types.get(name, types.get(re.sub("_(sum|count)$", "", name))) in ("counter", "summary")
            float(sample["value"])
    assert 'toolcell_calls_total{tool="t",version="1.0.0",outcome="ok"} 1' in text
    assert 'toolcell_calls_total{tool="t",version="1.0.0",outcome="timeout"} 1' in text
    assert 'tool="odd \\"name\\"\\\\\\n"' in text
    assert 'toolcell_call_wall_seconds_count{tool="t",version="1.0.0"} 2' in text


def test_a_snapshot_is_json() -> None:
    metrics = metrics_of(record(), record(error="timeout"))
    (one,) = json.loads(json.dumps(metrics.snapshot()))
    assert (one["tool"], one["calls"], one["errors"], one["success_rate"]) == ("t", 2, {"timeout": 1}, 0.5)
    assert one["wall_s"]["p50"] == 0.5


# -- of a real supervisor ----------------------------------------------------------------------------------------------


def work(seconds: float) -> float:
    """Sleep."""
    time.sleep(seconds)
    return seconds


def allocate(mebibytes: int) -> int:
    """Take memory and touch it."""
    return len(bytearray(b"x") * (mebibytes * MIB))


def note(ctx: ToolContext) -> None:
    """Write a file."""
    assert ctx.writer is not None
    ctx.writer.write_text("a", "b")


TOOLS: list[Any] = [
    tool(work, version="2.1.0"),
    allocate,
    tool(note, needs={Capability.WRITE}),
    tool(misbehaving.sleep_for_ever, timeout=3.0),
    misbehaving.raise_an_exception,
]


@pytest.mark.anyio
async def test_a_supervisor_counts_what_its_calls_came_to(supervise: Any, workspace: Any) -> None:
    async with supervise(TOOLS) as supervisor:
        session: Session = await supervisor.open_session("main", workspace=workspace)
        worker = await session.open_child("worker")
        for seconds in (0.05, 0.05, 0.2):
            await session.call("work", {"seconds": seconds})
        await session.call("work", {"seconds": "long"})
        for name in ("sleep_for_ever", "raise_an_exception", "no_such_tool", "no_such_other_tool"):
            await session.call(name)
        await worker.call("note")
        await session.call("allocate", {"mebibytes": 20})
        metrics = supervisor.metrics
    assert isinstance(supervisor, Supervisor) and isinstance(metrics, Metrics)
    found = {one.tool: one for one in metrics}
    assert {name: (one.calls, one.errors) for name, one in found.items()} == {
        "work": (4, {"validation": 1}),
        "sleep_for_ever": (1, {"timeout": 1}),
        "raise_an_exception": (1, {"execution": 1}),
        "(unknown)": (2, {"unknown_tool": 2}),
        "note": (1, {"permission_denied": 1}),
        "allocate": (1, {}),
    }
    work_ = found["work"]
    assert work_.version == "2.1.0" and work_.wall_s.count == 3
    assert 0.045 < work_.wall_s.p50 <= work_.wall_s.maximum and work_.wall_s.maximum > 0.19
    assert found["sleep_for_ever"].wall_s.maximum > 0.1
    assert found["allocate"].max_rss_bytes.maximum > 20 * MIB
