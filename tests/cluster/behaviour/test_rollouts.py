"""The rollout example on three nodes, one of which is killed in the middle. `tests.cluster.many` is of full size."""

from pathlib import Path

import anyio
import pytest
from tests.cluster.conftest import RayNodes
from tests.cluster.many import RolloutRun, run_with_a_kill

from toolcell.cluster import RayCluster
from toolcell.rollouts import RolloutOutcome

pytestmark = pytest.mark.anyio
SESSIONS, TURNS = 60, 10
MOST_S = 400.0


async def test_a_rollout_goes_on_when_one_of_three_nodes_is_killed(ray_nodes: RayNodes, tmp_path: Path) -> None:
    run = RolloutRun(tmp_path, SESSIONS, TURNS, think_s=0.3)
    third = ray_nodes.add()  # in the main thread, as Ray sets a signal handler
    ended = await anyio.to_thread.run_sync(run_with_a_kill, ray_nodes, third, run, MOST_S)
    assert list(run.wrong(ended)) == []
    assert {each.outcome for each in ended.trajectories} == {RolloutOutcome.FINISHED}
    again = [each for each in ended.trajectories if each.tries > 1]
    assert len(again) > SESSIONS // 10, "the node had no sessions"


@pytest.fixture(autouse=True)
async def without_nodes_of_others(ray_nodes: RayNodes) -> None:
    """Start with new actors, as the tests before may have left some with other settings."""
    await RayCluster().remove()
