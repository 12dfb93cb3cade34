"""The plan for a cluster: its simulation obeys the laws of conservation, and finds what arithmetic foresees."""

from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT)
    from benchmarks.cluster_inputs import CostInputs, measured
    from benchmarks.cluster_model import ClusterShape, Outcome, simulate
    from benchmarks.cluster_plan import TARGET, demand, planned

INPUTS = CostInputs(batch=64)
SMALL = ClusterShape(sessions=2_000, nodes=4, drivers=2, cores=4, memory_bytes=8 * 1024**3, tool_cpu_s=0.01)


def used(shape: ClusterShape, inputs: CostInputs) -> dict[str, float]:
    return {row.resource: row.used for row in demand(shape, inputs)}


def run(shape: ClusterShape, inputs: CostInputs = INPUTS, seconds: float = 30.0) -> Outcome:
    outcome = simulate(shape, inputs, seconds=seconds, warm_s=seconds / 2)
    outcome.check()
    return outcome


@pytest.mark.parametrize(
    ("shape", "inputs"),
    [
        (SMALL, INPUTS),
        (replace(SMALL, drivers=1), replace(INPUTS, batch=1, driver_call_s=0.01)),
        (replace(SMALL, memory_bytes=8 * INPUTS.cell_bytes), INPUTS),
        (replace(SMALL, cores=1, tool_cpu_s=0.2), INPUTS),
        (replace(SMALL, large=0.5, large_bytes=1e8), INPUTS),
        (replace(SMALL, idle_s=0.5), INPUTS),
    ],
    ids=["with room", "a full driver", "few cells", "full cores", "a full object store", "cells that end soon"],
)
def test_no_call_session_or_cell_is_lost_however_full_the_cluster_is(shape: ClusterShape, inputs: CostInputs) -> None:
    outcome = run(shape, inputs)
    assert outcome.ended > 0 and outcome.cells_most <= shape.max_cells(inputs)


def test_a_law_that_is_broken_is_told() -> None:
    outcome = run(SMALL, seconds=5.0)
    with pytest.raises(AssertionError, match="a call is lost"):
        replace(outcome, ended=outcome.ended - 1).check()
    outcome.stations["loop"][0].stays += 1.0
    with pytest.raises(AssertionError, match="Little's law"):
        outcome.check()


def test_the_simulation_finds_what_arithmetic_foresees_where_there_is_room() -> None:
    outcome = run(SMALL, seconds=120.0)
    foreseen = used(SMALL, INPUTS)
    for kind in ("driver", "loop"):
        assert outcome.use(kind) == pytest.approx(foreseen[kind], rel=0.1)
    assert outcome.per_s == pytest.approx(SMALL.sessions / SMALL.turn_s, rel=0.05)
    mean_s = sum(outcome.waits) / len(outcome.waits)
    assert outcome.per_s == pytest.approx(SMALL.sessions / (SMALL.turn_s + mean_s), rel=0.05)  # response time law


def test_a_full_resource_bounds_the_calls_and_the_first_of_the_plan_is_the_one() -> None:
    inputs = replace(INPUTS, batch=1, driver_call_s=0.01)
    shape = replace(SMALL, drivers=1)
    assert demand(shape, inputs)[0].resource == "driver" and used(shape, inputs)["driver"] > 1
    outcome = run(shape, inputs, seconds=60.0)
    assert outcome.use("driver") > 0.99 and outcome.per_s == pytest.approx(100, rel=0.03)
    assert outcome.percentile(50) > 5.0


def test_the_plan_for_many_sessions_keeps_every_resource_below_its_target() -> None:
    shape = planned(replace(SMALL, sessions=100_000, cores=16, memory_bytes=64 * 1024**3), INPUTS)
    assert max(use for name, use in used(shape, INPUTS).items() if name != "memory") <= TARGET
    assert used(replace(shape, nodes=shape.nodes - 1), INPUTS)["cores"] > TARGET
    with pytest.raises(ValueError, match="not enough"):
        planned(replace(SMALL, sessions=10**12), INPUTS)


@pytest.mark.root
@pytest.mark.anyio
@pytest.mark.few_on_trio
async def test_the_costs_of_this_machine_can_be_measured(tmp_path: Path) -> None:
    found = await measured(tmp_path, 0.2, 200)
    assert min(found.loop_batched_s, found.call_cpu_s, found.cell_s, found.open_s) > 0
    assert 0 <= found.session_bytes < 1e5 and 1e6 < found.cell_bytes < 1e8
