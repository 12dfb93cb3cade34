"""Metrics in the text format of Prometheus, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Iterator

from .metrics import Metrics, Quantiles, ToolMetrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SUMMARIES = {
    "wall_s": ("toolcell_call_wall_seconds", "Wall-clock time of calls that ran."),
    "queue_s": ("toolcell_call_queue_seconds", "Waiting time of calls before they ran."),
    "cpu_s": ("toolcell_call_cpu_seconds", "CPU time of calls that ran."),
    "max_rss_bytes": ("toolcell_call_max_rss_bytes", "Peak memory of calls that ran."),
}


def exposition(metrics: Metrics) -> str:
    """The text for an endpoint that Prometheus scrapes. Serve it as `CONTENT_TYPE`."""
    return "".join(f"{line}\n" for line in _lines(list(metrics)))


def _lines(tools: list[ToolMetrics]) -> Iterator[str]:
    yield "# HELP toolcell_calls_total Calls by outcome: ok, or the kind of the error."
    yield "# TYPE toolcell_calls_total counter"
    for tool in tools:
        succeeded = tool.calls - sum(tool.errors.values())
        for outcome, count in {"ok": succeeded, **tool.errors}.items():
            yield f"toolcell_calls_total{{{_labels(tool)},outcome={_quoted(outcome)}}} {count}"
    for field, (name, words) in _SUMMARIES.items():
        yield f"# HELP {name} {words}"
        yield f"# TYPE {name} summary"
        for tool in tools:
            values: Quantiles = getattr(tool, field)
            for q, value in (("0.5", values.p50), ("0.9", values.p90), ("0.99", values.p99)):
                yield f'{name}{{{_labels(tool)},quantile="{q}"}} {value!r}'
            yield f"{name}_sum{{{_labels(tool)}}} {values.mean * values.count!r}"
            yield f"{name}_count{{{_labels(tool)}}} {values.count}"


def _labels(tool: ToolMetrics) -> str:
    return f"tool={_quoted(tool.tool)},version={_quoted(tool.version)}"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
