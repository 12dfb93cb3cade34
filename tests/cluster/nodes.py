"""A Ray cluster of several nodes on this machine, whose nodes can be killed like a machine that loses power."""

import os
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"

import psutil
import ray as untyped
from ray.cluster_utils import Cluster

__all__ = ["LEASE_S", "RayNodes"]

ray: Any = untyped

MOST_BYTES = 100_000_000
"""The object store of a node."""
LEASE_S = 3.0
LISTED_S = 120.0
"""How long Ray may take to note that a killed node is dead; it takes some seconds."""


class RayNodes:
    """A cluster with a head and another node. Tests may kill nodes and add others."""

    def __init__(self) -> None:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), *sys.path[:1]]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own
            self.cluster: Any = Cluster(
                initialize_head=True,
                head_node_args={"num_cpus": 1, "object_store_memory": MOST_BYTES, "include_dashboard": False},
            )
            self.second = self.add()

    def add(self, labels: Mapping[str, str] | None = None) -> Any:
        """Start another node."""
        return self.cluster.add_node(num_cpus=1, object_store_memory=MOST_BYTES, labels=dict(labels or {}))

    def kill(self, node: Any) -> None:
        """Kill all processes of a node at once: Ray's, the actor, the zygotes and the cells."""
        processes = [psutil.Process(info.process.pid) for infos in node.all_processes.values() for info in infos]
        processes += [child for process in processes for child in process.children(recursive=True)]
        for each in processes:
            try:
                each.kill()
            except psutil.NoSuchProcess:
                pass
        self.cluster.remove_node(node, allow_graceful=False)

    def alive(self) -> set[str]:
        """The ids of the nodes that Ray lists as alive. Needs a connection."""
        nodes: list[dict[str, Any]] = ray.nodes()
        return {node["NodeID"] for node in nodes if node["Alive"]}

    def settle(self) -> None:
        """Wait until Ray's list has the nodes of this cluster, and none that an earlier test has killed. Blocks."""
        expected = {node.node_id for node in self.cluster.list_all_nodes()}
        deadline = time.monotonic() + LISTED_S
        while (alive := self.alive()) != expected:
            assert time.monotonic() < deadline, f"after {LISTED_S:g} s, Ray lists {alive}, not {expected}"
            time.sleep(0.1)

    def close(self) -> None:
        self.cluster.shutdown()
