"""A plan for many sessions on a cluster: what saturates first, by the costs of this machine and a simulation.

python -m benchmarks.cluster_plan                        # measures, plans 100,000 sessions, simulates
python -m benchmarks.cluster_plan --given                # with the costs of docs/cluster-plan.md
python -m benchmarks.cluster_plan --ray                  # measures a Ray cluster of one node too
"""

import json
import math
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from .cluster_inputs import CostInputs, measured
from .cluster_model import KINDS, ClusterShape, Outcome, simulate

TARGET = 0.7
"""The part of the time for which a resource may be at work: above it, waits grow fast."""
REMEDIES = {
    "driver": "more drivers: each holds leases of its own sessions; batches, where many calls go to one node",
    "loop": "more nodes, or several actors on a machine of many cores: a node's loop is one core",
    "zygotes": "cells outlive calls, a reserve is prewarmed, one zygote a core; then a longer idle time",
    "cores": "more nodes, in proportion: calls are Overloaded before they miss their deadlines",
    "object store": "payloads of up to 100 KB go inline",
    "memory": "parked sessions hold no process; `max_cells` evicts the cell that is idle longest",
}


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A resource at this load: how much of it is used, by arithmetic alone, and how many sessions would saturate
    the resource of one node, or one driver."""

    resource: str
    used: float
    one_holds: float


def demand(shape: ClusterShape, inputs: CostInputs) -> list[PlanRow]:
    """The use of each resource, the one that saturates with the fewest sessions first. Arrivals are even."""
    per_s = shape.sessions / shape.turn_s
    misses = _misses(shape, inputs)
    node_s = per_s / shape.nodes
    working_s = inputs.call_cpu_s + shape.tool_cpu_s
    used = {
        "driver": per_s / shape.drivers * inputs.driver_s,
        "loop": node_s * inputs.loop_s,
        "zygotes": node_s * misses * inputs.cell_s / shape.cores,
        "cores": node_s * (working_s + inputs.loop_s + misses * inputs.cell_s) / shape.cores,
        "object store": node_s * shape.large * shape.large_bytes / inputs.store_bytes_s,
        "memory": _node_bytes(shape, inputs) / (0.8 * shape.memory_bytes),
    }
    of_one = {name: shape.sessions / (shape.drivers if name == "driver" else shape.nodes) for name in used}
    rows = [PlanRow(name, use, of_one[name] / use if use else math.inf) for name, use in used.items()]
    return sorted(rows, key=lambda row: row.one_holds)


def _misses(shape: ClusterShape, inputs: CostInputs) -> float:
    """The part of the calls that find no cell of their session: it was idle for too long, or evicted."""
    idle = math.exp(-shape.idle_s / shape.turn_s)
    room = min(1.0, shape.max_cells(inputs) / (shape.sessions / shape.nodes))
    return max(idle, 1.0 - room)


def _node_bytes(shape: ClusterShape, inputs: CostInputs) -> float:
    sessions = shape.sessions / shape.nodes
    return sessions * inputs.session_bytes + min(sessions, shape.max_cells(inputs)) * inputs.cell_bytes


def planned(shape: ClusterShape, inputs: CostInputs) -> ClusterShape:
    """The same load on the fewest nodes and drivers that no resource uses beyond `TARGET`, memory apart: cells give
    way. Raises ValueError if no number of them is enough."""
    for nodes in range(1, 10_000):
        trial = replace(shape, nodes=nodes)
        rows = {row.resource: row.used for row in demand(trial, inputs)}
        if all(rows[kind] <= TARGET for kind in ("loop", "zygotes", "cores", "object store")):
            drivers = math.ceil(shape.sessions / shape.turn_s * inputs.driver_s / TARGET)
            return replace(trial, drivers=max(1, drivers))
    raise ValueError("10,000 nodes are not enough for this load.")


def report(shape: ClusterShape, inputs: CostInputs, outcome: Outcome, console: Console) -> None:
    """Print the plan, and beside it what the simulation found."""
    console.print(
        f"{shape.sessions:,} sessions, a turn of {shape.turn_s:g} s: {shape.nodes} nodes of {shape.cores} cores, "
        f"{shape.drivers} drivers at batch {inputs.batch}, {shape.max_cells(inputs):,} cells a node at most."
    )
    table = Table("resource", "one holds", "used", "simulated", "remedy", box=SIMPLE_HEAD, pad_edge=False)
    for row in demand(shape, inputs):
        simulated = f"{outcome.use(row.resource):.0%}" if row.resource in KINDS else ""
        holds = "any" if math.isinf(row.one_holds) else f"{row.one_holds:,.0f}"
        table.add_row(row.resource, holds, f"{row.used:.0%}", simulated, REMEDIES[row.resource])
    console.print(table)
    console.print(
        f"{outcome.per_s:,.0f} calls/s simulated; a call takes {outcome.percentile(50) * 1e3:.1f} ms at the median, "
        f"{outcome.percentile(99) * 1e3:.1f} ms at p99; {outcome.cells_most:,} cells on a node at the peak."
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--sessions", default=100_000, show_default=True)
@click.option("--turn-s", default=10.0, show_default=True, help="The mean time of a model's turn.")
@click.option("--cores", default=16, show_default=True, help="Of a node.")
@click.option("--memory-gib", default=64.0, show_default=True, help="Of a node.")
@click.option("--tool-cpu-s", default=0.02, show_default=True, help="The processor time of a tool itself.")
@click.option("--nodes", type=int, help="Instead of the fewest that are enough.")
@click.option("--drivers", type=int, help="Instead of the fewest that are enough.")
@click.option("--batch", default=1, show_default=True, help="Calls in a message between driver and node.")
@click.option("--ray", is_flag=True, help="Measure a Ray cluster of one node too. Needs the extra [ray].")
@click.option("--driver-call-s", type=float, help="The driver's time for a call, one by one.")
@click.option("--driver-batched-s", type=float, help="The driver's time for a call in a batch.")
@click.option("--loop-call-s", type=float, help="The time of a node's actor for a call, one by one.")
@click.option("--loop-batched-s", type=float, help="The time of a node's actor for a call in a batch.")
@click.option("--hop-s", type=float, help="The time between driver and node, one way.")
@click.option("--store-bytes-s", type=float, help="The object store's rate.")
@click.option("--given", is_flag=True, help="Measure nothing.")
@click.option("--seconds", default=40.0, show_default=True, help="Of the cluster's life, to be simulated.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write costs and shape there.")
def main(**options: Any) -> None:
    """Plan a cluster for so many sessions, and simulate it."""
    inputs = CostInputs()
    if not options["given"]:
        with tempfile.TemporaryDirectory() as directory:
            inputs = anyio.run(measured, Path(directory), 3.0, 5_000)
    if options["ray"]:
        from .cluster_ray import measured_on_ray

        with tempfile.TemporaryDirectory() as directory:
            of_ray: dict[str, Any] = anyio.run(measured_on_ray, Path(directory), 5.0)
        inputs = replace(inputs, **of_ray)
    ray = ("batch", "loop_call_s", "loop_batched_s", "driver_call_s", "driver_batched_s", "hop_s", "store_bytes_s")
    inputs = replace(inputs, **{name: options[name] for name in ray if options[name] is not None})
    shape = ClusterShape(
        sessions=options["sessions"],
        turn_s=options["turn_s"],
        cores=options["cores"],
        memory_bytes=options["memory_gib"] * 1024**3,
        tool_cpu_s=options["tool_cpu_s"],
    )
    shape = planned(shape, inputs)
    shape = replace(shape, **{name: options[name] for name in ("nodes", "drivers") if options[name] is not None})
    console = Console(width=150)
    console.print({name: float(f"{value:.3g}") for name, value in asdict(inputs).items()})
    outcome = simulate(shape, inputs, seconds=options["seconds"], warm_s=options["seconds"] / 2)
    outcome.check()
    report(shape, inputs, outcome, console)
    if options["file"] is not None:
        options["file"].write_text(json.dumps({"inputs": asdict(inputs), "shape": asdict(shape)}, indent=2))


if __name__ == "__main__":
    main()
