"""The driver's pool with nodes in this process, without Ray."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.conftest import small_profiles
from tests.helpers import until

from toolcell import Supervisor, base_tools
from toolcell.cluster.demand import Demand
from toolcell.cluster.members import Member
from toolcell.cluster.node import Node
from toolcell.cluster.peer import NodeGone
from toolcell.cluster.pool import ClusterPool
from toolcell.pool.calling import CallPool, PoolHost
from toolcell.runtime.overview import problems_of
from toolcell.supervisor import runtime_of
from toolcell.telemetry.prometheus import exposition
from toolcell_tools import Artifact

pytestmark = pytest.mark.anyio


class LocalNodes:
    """A cluster whose nodes are in this process. Implements `Cluster` and `Members`."""

    def __init__(self, *ids: str) -> None:
        self.nodes = {id: Node() for id in ids}
        self.alive = set(ids)
        self._tasks: set[asyncio.Task[None]] = set()

    def pool(self, host: PoolHost) -> CallPool:
        return ClusterPool(
            host, self, lease_s=3.0, start_s=30.0, min_nodes=2, labels=None, by_workspace=True, reopens=True
        )

    async def connect(self) -> None: ...

    async def list(self) -> Sequence[Member]:
        return [Member(id) for id in self.nodes if id in self.alive]

    async def ask_for(self, demand: Demand) -> None: ...

    def exchange(self, node_id: str, data: bytes, done: Callable[[bytes | Exception], None]) -> None:
        async def carry() -> None:
            reply = await self.nodes[node_id].exchange(data)
            done(reply if node_id in self.alive else NodeGone("its machine has ended"))

        task = asyncio.get_running_loop().create_task(carry())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def files(self, node_id: str, data: bytes, payload: bytes, done: Callable[[bytes | Exception], None]) -> None:
        raise AssertionError("these nodes have the workspaces")

    async def settled(self) -> None: ...

    async def close(self) -> None:
        for node in self.nodes.values():
            await node.aclose()
        for task in list(self._tasks):
            task.cancel()


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


async def test_a_node_that_leaves_the_membership_is_given_up_and_the_supervisor_goes_on(tmp_path: Path) -> None:
    cluster = LocalNodes("a", "b")
    async with Supervisor([double], profiles=small_profiles(), cluster=cluster) as supervisor:
        session = await supervisor.open_session("main", workspace=tmp_path)
        assert (await session.call("double", {"number": 1})).output == 2
        cluster.alive.discard("a")  # no exchange has failed yet: only the membership tells
        with anyio.fail_after(10.0):
            await until(lambda: [node["id"] for node in runtime_of(supervisor).calls.nodes()] == ["b"])
        assert (await session.call("double", {"number": 2})).output == 4


def samples(text: str) -> dict[tuple[str, str], float]:
    """The samples by name and node that the parser of Prometheus finds, summed over other labels."""
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if "quantile" not in sample.labels:
                key = sample.name, sample.labels.get("node", "")
                found[key] = found.get(key, 0.0) + sample.value
    return found


async def test_the_metrics_of_each_node_are_scraped_from_the_driver(tmp_path: Path) -> None:
    async with Supervisor([double], profiles=small_profiles(), cluster=LocalNodes("a", "b")) as supervisor:
        sessions = [await supervisor.open_session("main", workspace=tmp_path / name) for name in ("one", "two")]
        for session, calls in zip(sessions, (3, 2), strict=True):
            for number in range(calls):
                await session.call("double", {"number": number})
        await sessions[0].call("double", {"number": "refused before it is sent"})
        nodes = supervisor.nodes()
        found = samples(exposition(supervisor.metrics, nodes))
        assert found["toolcell_calls_total", ""] == 6
        assert [found["toolcell_node_calls_total", node] for node in "ab"] == [3, 2]
        assert [found["toolcell_node_call_wall_seconds_count", node] for node in "ab"] == [3, 2]
        for node in nodes:
            id = node["id"]
            assert [found[f"toolcell_node_{name}", id] for name in ("up", "sessions", "losses_total")] == [1, 1, 0]
            assert found["toolcell_node_max_cells", id] == node["max_cells"] > 0
            assert found["toolcell_node_memory_bytes", id] > 10_000_000
        assert supervisor.metrics.nodes["a"].of("double").calls == 3


async def test_the_status_says_what_is_wrong_on_which_node(tmp_path: Path) -> None:
    cluster, state = LocalNodes("a", "b"), tmp_path / "state"
    async with Supervisor([double], profiles=small_profiles(), cluster=cluster, state=state) as supervisor:
        sessions = [await supervisor.open_session("main", workspace=tmp_path / name) for name in ("one", "two")]
        for session in sessions:
            await session.call("double", {"number": 1})
        assert problems_of(runtime_of(supervisor).services) == []
        zygote: Any = cluster.nodes["b"]._runtime.pool.fleet.zygotes[0]
        zygote._process.kill()
        cluster.alive.discard("a")
        said = ""
        with anyio.fail_after(20.0):
            while not all(problem in said for problem in ("Node a was lost", "Node b: A zygote")):
                await anyio.sleep(0.2)
                said = await anyio.to_thread.run_sync(_status, state)
        lost = r"^PROBLEM      Node a was lost \d+ s ago with 0 calls and 1 sessions: its machine has (ended|left)"
        assert re.search(lost, said, re.MULTILINE), said
        assert re.search(r"^PROBLEM      Node b: A zygote, the process that makes cells, has ended", said, re.MULTILINE)
        assert re.search(r"^node         b up, 0 calls, 1 sessions, \d+ of \d+ cells", said, re.MULTILINE), said


def _status(state: Path) -> str:
    command = [sys.executable, "-m", "toolcell.cli", "status", "--state", str(state)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


async def test_the_node_reports_the_changed_files_of_its_calls(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    async with Supervisor(base_tools(), profiles=small_profiles(), cluster=LocalNodes("a", "b")) as supervisor:
        session = await supervisor.open_session("main", workspace=tmp_path)
        command = "echo two >> a.txt; touch $(printf 'x\\377'); seq 300 | sed s/^/many/ | xargs touch"
        result = await session.call("shell", {"command": command})
        assert len(result.artifacts) == 200
        changed = result.artifacts[0]
        assert (changed.path, changed.kind, changed.size) == ("a.txt", "modified", 8)
        assert changed.digest == Artifact.from_bytes("a.txt", b"one\ntwo\n", "text/plain").digest
        assert changed.diff == "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,2 @@\n one\n+two"
        assert [notice.message for notice in result.notices] == [
            "The call changed 302 files, and the result lists 200 of them."
        ]
        assert not (await session.call("shell", {"command": "cat a.txt"})).artifacts
