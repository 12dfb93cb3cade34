"""Pending calls are a demand for machines that Ray's autoscaler sees, until they are placed or given up."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.autoscaler.v2 import sdk as untyped
from tests.cluster.conftest import LEASE_S, RayNodes
from tests.conftest import Supervise, small_profiles
from tests.helpers import PATIENCE_S, until

from toolcell import base_tools, blocking
from toolcell.cluster import RayCluster
from toolcell.cluster.machines import MOST_MACHINES, MachineDemand, demand_of

pytestmark = pytest.mark.anyio
sdk: Any = untyped
PICKY = {"disk": "nvme"}


def demanded(nodes: RayNodes) -> list[int]:
    """The sizes of the placement groups that wait for machines, as the autoscaler gets them."""
    found = sdk.get_cluster_status(nodes.cluster.address).resource_demands.placement_group_demand
    return sorted(sum(each.count for each in group.bundles_by_count) for group in found)


def labels(session: Mapping[str, Any]) -> Mapping[str, str]:
    return PICKY if session["agent_id"] == "picky" else {}


@pytest.fixture
def small(ray_nodes: RayNodes) -> Iterator[RayCluster]:
    """A cluster with one cell on each of two nodes."""
    made = RayCluster(namespace="small", lease_s=LEASE_S, max_cells=1, min_nodes=2, labels=labels)
    yield made
    anyio.run(made.remove)


async def test_calls_beyond_the_cells_are_a_demand_until_they_have_ended(
    supervise: Supervise, workspace: Path, ray_nodes: RayNodes, small: RayCluster
) -> None:
    async with supervise(base_tools(), cluster=small) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(session.call, "shell", {"command": "sleep 2"})
            await until(lambda: demanded(ray_nodes) == [5])
        await until(lambda: demanded(ray_nodes) == [])


async def test_a_session_that_waits_for_labels_is_a_demand_until_it_is_given_up(
    supervise: Supervise, workspace: Path, ray_nodes: RayNodes, small: RayCluster
) -> None:
    async with supervise(base_tools(), cluster=small) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, agent_id="picky")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(session.call, "shell", {"command": "true"}, timeout=5.0))
            await until(lambda: demanded(ray_nodes) == [1])
        await until(lambda: demanded(ray_nodes) == [])


def test_a_session_that_waits_for_labels_goes_to_the_machine_that_comes(
    workspace: Path, ray_nodes: RayNodes, small: RayCluster
) -> None:
    ray_nodes.settle()
    third: Any = None
    with blocking.Supervisor(base_tools(), profiles=small_profiles(), cluster=small) as supervisor:
        session = supervisor.open_session("main", workspace=workspace, agent_id="picky")
        with ThreadPoolExecutor(1) as threads:
            call = threads.submit(session.call, "shell", {"command": "echo placed"}, timeout=PATIENCE_S)
            eventually(lambda: demanded(ray_nodes) == [1])
            third = ray_nodes.add(labels=PICKY)
            assert call.result().unwrap()["stdout"] == "placed\n"
        eventually(lambda: demanded(ray_nodes) == [])
        assert [node["sessions"] for node in supervisor.nodes() if node["labels"].items() >= PICKY.items()] == [1]
    ray_nodes.kill(third)


def eventually(condition: Callable[[], bool]) -> None:
    """As `until`, without an event loop."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s"
        time.sleep(0.05)


async def test_a_killed_driver_leaves_no_demand(ray_nodes: RayNodes, workspace: Path, small: RayCluster) -> None:
    code = f"""
import anyio
from toolcell import Supervisor, base_tools
from toolcell.cluster import RayCluster

async def main():
    cluster = RayCluster({ray_nodes.cluster.address!r}, namespace="small", labels=lambda session: {PICKY!r})
    async with Supervisor(base_tools(), cluster=cluster) as supervisor:
        session = await supervisor.open_session("main", workspace={str(workspace)!r})
        await session.call("shell", {{"command": "true"}}, timeout=3600)

anyio.run(main)
"""
    driver = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with anyio.fail_after(PATIENCE_S):
            while demanded(ray_nodes) != [1]:
                assert driver.poll() is None
                await anyio.sleep(0.1)
        driver.send_signal(signal.SIGKILL)
        await until(lambda: demanded(ray_nodes) == [])
    finally:
        driver.kill()
        driver.wait()


def test_calls_that_have_cells_are_no_demand() -> None:
    assert demand_of(2, 20, 20, []) == MachineDemand()


def test_calls_without_any_machine_are_a_demand_for_one() -> None:
    assert demand_of(0, 0, 500, []) == MachineDemand(1)


def test_sessions_that_wait_for_the_same_labels_are_a_demand_for_one_machine() -> None:
    assert demand_of(2, 20, 1, [{"a": "1", "b": "2"}, {"b": "2", "a": "1"}]).labels == {(("a", "1"), ("b", "2"))}


@given(st.integers(1, 50), st.integers(1, 100), st.integers(0, 5_000))
def test_the_demanded_machines_have_a_cell_for_each_call(machines: int, each: int, calls: int) -> None:
    demand = demand_of(machines, machines * each, calls, [])
    assert demand.machines * each >= min(calls, MOST_MACHINES * each) or demand.machines == 0
    assert (demand.machines == 0) == (calls <= machines * each)
    assert demand.machines in (0, MOST_MACHINES) or (demand.machines - 1) * each < calls
