"""The driver's pool with nodes in this process, without Ray."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest
from tests.conftest import small_profiles
from tests.helpers import until

from toolcell import Supervisor, base_tools
from toolcell.cluster.members import Member
from toolcell.cluster.node import Node
from toolcell.cluster.peer import NodeGone
from toolcell.cluster.pool import ClusterPool
from toolcell.pool.calling import CallPool, PoolHost
from toolcell.supervisor import runtime_of
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

    async def ask_for(self, cells: int, calls: int) -> None: ...

    def exchange(self, node_id: str, data: bytes, done: Callable[[bytes | Exception], None]) -> None:
        async def carry() -> None:
            reply = await self.nodes[node_id].exchange(data)
            done(reply if node_id in self.alive else NodeGone("its machine has ended"))

        task = asyncio.get_running_loop().create_task(carry())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

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
