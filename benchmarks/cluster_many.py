"""Ten thousand sessions on a cluster at the same time: `python -m benchmarks.cluster_many SESSIONS NODES DIRECTORY`.

The nodes are on this machine. Each session is opened and placed by its first call, and stays open. Nodes have few
cells, so most sessions are parked, as those of a large rollout are. A program of its own, because it measures memory.
Prints JSON: seconds, bytes, and the sessions of each node.
"""

import gc
import json
import logging
import os
import random
import resource
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio

from toolcell import Session, Supervisor

from .many import Forgetful
from .processes import descendants, memory_of
from .workload import caller, echo

CELLS = 100
AT_ONCE = 64
AGAIN = 200
STEPS = 10


def cluster_of(number: int) -> Any:
    """A Ray cluster of so many nodes. Each has an object store of 100 MB."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    utils, node = import_module("ray.cluster_utils"), {"num_cpus": 1, "object_store_memory": 100_000_000}
    made = utils.Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    for _ in range(number - 1):
        made.add_node(**node)
    return made


def actors() -> list[int]:
    """The processes of the node actors: Ray names them after the class."""
    found = [(pid, Path(f"/proc/{pid}/cmdline")) for pid in descendants(os.getpid())]
    return [pid for pid, line in found if b"ray::NodeActor" in line.read_bytes()]


def _bytes() -> tuple[int, int]:
    """The memory of the driver, and of all node actors."""
    gc.collect()
    return memory_of(os.getpid()).uss, sum(memory_of(pid).uss for pid in actors())


async def _first_calls(sessions: list[Session]) -> list[float]:
    """The seconds of the first call of each session, with some under way at the same time."""
    taken: list[float] = []
    turns = anyio.Semaphore(AT_ONCE)

    async def first(session: Session) -> None:
        start = time.perf_counter()
        assert await caller(session, "echo")("first") == "first"
        taken.append(time.perf_counter() - start)
        turns.release()

    async with anyio.create_task_group() as tasks:
        for session in sessions:
            await turns.acquire()
            tasks.start_soon(first, session)
    return taken


async def main(number: int, nodes: int, directory: Path) -> dict[str, Any]:
    from toolcell.cluster import RayCluster

    _soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    cluster, sessions = RayCluster(min_nodes=nodes, max_cells=CELLS), list[Session]()
    opened, first, points = 0.0, 0.0, list[tuple[int, int, int]]()
    async with Supervisor([echo], cluster=cluster, journal=Forgetful()) as supervisor:
        warm = [await supervisor.open_session("main", workspace=_new(directory, -each)) for each in range(1, 401)]
        await _first_calls(warm)  # fills the cells, and what is allocated once
        points.append((0, *_bytes()))
        for step in range(1, STEPS + 1):
            workspaces = [_new(directory, each) for each in range(len(sessions), number * step // STEPS)]
            start = time.perf_counter()
            new = [await supervisor.open_session("main", workspace=each) for each in workspaces]
            placing = time.perf_counter()
            await _first_calls(new)
            opened, first = opened + placing - start, first + time.perf_counter() - placing
            sessions += new
            points.append((len(sessions), *_bytes()))
        again = random.Random(1).sample(sessions, min(AGAIN, number))
        start = time.perf_counter()
        await _first_calls(again)
        later = (time.perf_counter() - start) / len(again)
        of_nodes = sorted(node["sessions"] for node in supervisor.nodes())
        start = time.perf_counter()
    closed = time.perf_counter() - start
    await cluster.remove()
    return {
        "open_s": opened / number,
        "first_call_s": first / number,
        "later_call_s": later,
        "close_s": closed / (number + len(warm)),
        "sessions_of_nodes": of_nodes,
        "warm": len(warm),
        "driver_bytes": (points[-1][1] - points[0][1]) / number,
        "node_bytes": (points[-1][2] - points[0][2]) / number,
        "points": points,
    }


def _new(directory: Path, number: int) -> Path:
    workspace = directory / str(number)
    workspace.mkdir()
    return workspace


if __name__ == "__main__":
    made = cluster_of(int(sys.argv[2]))
    ray: Any = import_module("ray")
    ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        print(json.dumps(anyio.run(main, int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
    finally:
        ray.shutdown()
        made.shutdown()
