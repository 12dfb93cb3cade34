"""Metrics in the text format of Prometheus, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .metrics import Metrics, Quantiles, ToolMetrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SUMMARIES = {
    "wall_s": ("call_wall_seconds", "Wall-clock time of calls that ran."),
    "queue_s": ("call_queue_seconds", "Waiting time of calls before they ran."),
    "cpu_s": ("call_cpu_seconds", "CPU time of calls that ran."),
    "max_rss_bytes": ("call_max_rss_bytes", "Peak memory of calls that ran."),
}
_GAUGES = {
    "calls": ("running_calls", "Calls of this supervisor that the node has."),
    "sessions": ("sessions", "Sessions of this supervisor that are placed on the node."),
    "waiting": ("waiting_calls", "Calls of all supervisors that wait for a process on the node."),
    "max_cells": ("max_cells", "The most cells that the node may have."),
    "zygotes": ("zygotes", "Live zygotes of the node."),
    "memory_bytes": ("memory_bytes", "Memory of the process that supervises the node."),
    "problems": ("problems", "Problems of the node, as toolcell status lists them."),
}


def exposition(metrics: Metrics, nodes: Iterable[Mapping[str, Any]] = ()) -> str:
    """The text for an endpoint that Prometheus scrapes. Serve it as `CONTENT_TYPE`.

    On a cluster, pass `supervisor.nodes()`. Then the text also has the metrics `toolcell_node_…`, whose label `node` is
    the node's id: the calls that ran there, and the present state of each node.
    """
    lines = [*_lines("toolcell", [("", list(metrics))])]
    if of_nodes := [(f"node={_quoted(node)},", list(one)) for node, one in sorted(metrics.nodes.items())]:
        lines += _lines("toolcell_node", of_nodes)
    if known := list(nodes):
        lines += _state(known)
    return "".join(f"{line}\n" for line in lines)


def _lines(prefix: str, groups: list[tuple[str, list[ToolMetrics]]]) -> Iterator[str]:
    """The families of calls. Each group has its own labels."""
    yield f"# HELP {prefix}_calls_total Calls by outcome: ok, or the kind of the error."
    yield f"# TYPE {prefix}_calls_total counter"
    rows = [(f"{labels}{_labels(tool)}", tool) for labels, tools in groups for tool in tools]
    for labels, tool in rows:
        succeeded = tool.calls - sum(tool.errors.values())
        for outcome, count in {"ok": succeeded, **tool.errors}.items():
            yield f"{prefix}_calls_total{{{labels},outcome={_quoted(outcome)}}} {count}"
    for field, (name, words) in _SUMMARIES.items():
        yield f"# HELP {prefix}_{name} {words}"
        yield f"# TYPE {prefix}_{name} summary"
        for labels, tool in rows:
            values: Quantiles = getattr(tool, field)
            for q, value in (("0.5", values.p50), ("0.9", values.p90), ("0.99", values.p99)):
                yield f'{prefix}_{name}{{{labels},quantile="{q}"}} {value!r}'
            yield f"{prefix}_{name}_sum{{{labels}}} {values.mean * values.count!r}"
            yield f"{prefix}_{name}_count{{{labels}}} {values.count}"


def _state(nodes: list[Mapping[str, Any]]) -> Iterator[str]:
    """The families of the present state of nodes."""
    yield "# HELP toolcell_node_up Whether the node takes calls."
    yield "# TYPE toolcell_node_up gauge"
    for node in nodes:
        yield f"toolcell_node_up{{{_node(node)}}} {int(node['state'] == 'up')}"
    yield "# HELP toolcell_node_losses_total How often this supervisor has lost the node."
    yield "# TYPE toolcell_node_losses_total counter"
    for node in nodes:
        yield f"toolcell_node_losses_total{{{_node(node)}}} {node['losses']}"
    for field, (name, words) in _GAUGES.items():
        yield f"# HELP toolcell_node_{name} {words}"
        yield f"# TYPE toolcell_node_{name} gauge"
        for node in nodes:
            if field in node:
                value = len(node[field]) if field == "problems" else node[field]
                yield f"toolcell_node_{name}{{{_node(node)}}} {value}"
    yield "# HELP toolcell_node_cells Cells of the node by what they do."
    yield "# TYPE toolcell_node_cells gauge"
    for node in nodes:
        for state, count in node.get("cells", {}).items():
            yield f"toolcell_node_cells{{{_node(node)},state={_quoted(state)}}} {count}"


def _node(node: Mapping[str, Any]) -> str:
    return f"node={_quoted(str(node['id']))}"


def _labels(tool: ToolMetrics) -> str:
    return f"tool={_quoted(tool.tool)},version={_quoted(tool.version)}"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
