"""A Ray cluster of two nodes on this machine, and the fixtures of the behaviour tests on it.

Run `pytest tests/cluster -n 0` where the extra `[test-cluster]` is installed. Each Ray node takes 200 MB and 2 s.
"""

import logging
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import psutil
import pytest
import ray
from tests.cluster.nodes import LEASE_S, RayNodes
from tests.conftest import Supervise, small_profiles

from toolcell import Session, Supervisor
from toolcell.cluster import RayCluster

__all__ = ["LEASE_S", "RayNodes", "on_cluster"]


@pytest.fixture(scope="session")
def ray_nodes(tmp_path_factory: pytest.TempPathFactory, runtime_directory: None) -> Iterator[RayNodes]:
    """The cluster. At its end, no process that it started is left."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    nodes = RayNodes()
    started = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    try:
        ray.init(address=nodes.cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        yield nodes
        anyio.run(RayCluster().remove)
    finally:
        ray.shutdown()
        nodes.close()
    _gone, alive = psutil.wait_procs(started, timeout=120.0)
    assert not alive, f"processes of the cluster are left: {alive}"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def nothing_is_left() -> None:
    """Nothing is checked after each test: Ray's processes and sockets come and go. `ray_nodes` checks at the end."""


@pytest.fixture(scope="module")
def nothing_is_left_of_the_module() -> None:
    """As `nothing_is_left`."""


@pytest.fixture(scope="module")
def options(ray_nodes: RayNodes) -> dict[str, Any]:
    ray_nodes.settle()
    return {"cluster": RayCluster(lease_s=LEASE_S, min_nodes=2)}


@pytest.fixture
def supervise(ray_nodes: RayNodes) -> Iterator[Supervise]:
    """`async with supervise(tools=[…]) as supervisor`: a Supervisor on the cluster. With a quarantine of its own, it
    has node supervisors of its own: drivers that share them share the quarantine."""
    ray_nodes.settle()
    namespaces: list[str] = []

    def make(tools: Any = (), **options: Any) -> Supervisor:
        namespace = "toolcell"
        if "quarantine" in options:
            namespaces.append(namespace := f"quarantine-{os.urandom(4).hex()}")
        cluster = RayCluster(lease_s=LEASE_S, min_nodes=2, namespace=namespace)
        defaults: dict[str, Any] = {"profiles": small_profiles(), "cluster": cluster}
        return Supervisor(tools, **(defaults | options))

    yield make
    for namespace in namespaces:
        anyio.run(RayCluster(namespace=namespace).remove)


@pytest.fixture(scope="module")
async def shared(
    anyio_backend: str, ray_nodes: RayNodes, options: dict[str, Any], request: pytest.FixtureRequest
) -> AsyncIterator[Supervisor]:
    """A supervisor on the cluster for all tests of a module, with the tools of its list TOOLS."""
    async with Supervisor(request.module.TOOLS, **({"profiles": small_profiles()} | options)) as supervisor:
        yield supervisor


@pytest.fixture
async def main(shared: Supervisor, workspace: Path) -> AsyncIterator[Session]:
    """A new Main session of the shared supervisor."""
    session = await shared.open_session("main", workspace=workspace)
    yield session
    await session.close()


FIXTURES = frozenset({"shared", "main", "supervise"})


def on_cluster(module: ModuleType, *, without: dict[str, str]) -> dict[str, Any]:
    """The names of a module of behaviour tests, to run them on the cluster. Tests that make their own supervisor,
    without a fixture, are left out. So are the tests of `without`, which maps names to reasons."""
    names = dict(vars(module))
    tests = {name for name in names if name.startswith("test_")}
    unknown = without.keys() - tests
    assert not unknown, f"there is no such test: {unknown}"
    for name in tests:
        code = names[name].__code__
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if name in without or FIXTURES.isdisjoint(parameters):
            del names[name]
    return {name: value for name, value in names.items() if not name.startswith("__")}
