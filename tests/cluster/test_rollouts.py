"""The rollout example on three nodes, one of which is killed in the middle."""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import anyio
import pytest
from tests.cluster.conftest import RayNodes
from tests.helpers import until

from toolcell.cluster import RayCluster
from toolcell.rollouts import RolloutOutcome, Trajectory
from toolcell.rollouts.record import RolloutRecord

pytestmark = pytest.mark.anyio
EXAMPLE = Path(__file__).parents[2] / "examples" / "rollouts.py"
SESSIONS, TURNS = 60, 10
MOST_S = 100.0


def command(address: str, directory: Path) -> list[str]:
    size = f"--sessions={SESSIONS} --turns={TURNS} --think-s=0.3 --ray={address} --nodes=3".split()
    return [
        sys.executable,
        str(EXAMPLE),
        *size,
        f"--workspace={directory / 'runs'}",
        f"--record={directory / 'record'}",
    ]


def trajectories(directory: Path) -> list[Trajectory]:
    record = RolloutRecord(directory / "record")
    try:
        return [record.trajectory(key) for key, kept in record.attempts().items() if kept.has_ended]
    finally:
        record.close()


def turned(directory: Path) -> int:
    """The workspaces in which the first turn has been made."""
    return len(list((directory / "runs").glob("*/*/log.txt")))


async def test_a_rollout_goes_on_when_one_of_three_nodes_is_killed(ray_nodes: RayNodes, tmp_path: Path) -> None:
    third = ray_nodes.add()
    with subprocess.Popen(
        command(ray_nodes.cluster.address, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        try:
            with anyio.fail_after(MOST_S):
                await until(lambda: turned(tmp_path) > SESSIONS // 2 or program.poll() is not None)
                await anyio.to_thread.run_sync(ray_nodes.kill, third)
                killed_at = time.time()
                said, complained = await anyio.to_thread.run_sync(program.communicate, abandon_on_cancel=True)
        finally:
            program.kill()
    assert program.returncode == 0, complained
    ends = trajectories(tmp_path)
    keys = Counter((each.task_id, each.number) for each in ends)
    assert len(keys) == SESSIONS, "a trajectory is lost"
    assert set(keys.values()) == {1}, "a trajectory is doubled"
    assert f"\n{SESSIONS} trajectories: {SESSIONS} finished" in f"\n{said}", said  # Ray prints there too
    assert {each.outcome for each in ends} == {RolloutOutcome.FINISHED}
    assert sum(each.started_at > killed_at for each in ends) > SESSIONS // 10, "the node had no sessions"
    for each in ends:
        notes = [step.data["turn"] for step in each.steps if step.kind == "note"]
        assert notes == list(range(TURNS)), "a turn is lost or doubled"
        assert sum(step.kind == "call" for step in each.steps) == TURNS + 1
        lines = (Path(each.workspace) / "log.txt").read_text().splitlines()
        assert len(lines) == len(set(lines)), "an edit is doubled"


@pytest.fixture(autouse=True)
async def without_nodes_of_others(ray_nodes: RayNodes) -> None:
    """Start with new actors, as the tests before may have left some with other settings."""
    await RayCluster().remove()
