"""The driver's pool with nodes in this process, without Ray."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests import misbehaving
from tests.conftest import small_profiles
from tests.helpers import PATIENCE_S, until

from toolcell import Supervisor, base_tools
from toolcell.cluster.machines import MachineDemand, Member
from toolcell.cluster.node import Node
from toolcell.cluster.peer import NodeGone
from toolcell.cluster.pool import ClusterPool
from toolcell.pool.interface import CallPool, PoolHost
from toolcell.runtime.status import problems_of
from toolcell.store.journal import Record
from toolcell.store.journal.durable import interrupted
from toolcell.store.journal.reading import JournalReader
from toolcell.supervisor import runtime_of
from toolcell.telemetry.prometheus import exposition
from toolcell.wire.budget import Budgets
from toolcell_tools import Artifact

pytestmark = pytest.mark.anyio


class LocalNodes:
    """A cluster whose nodes are in this process. Implements `Cluster` and `Members`."""

    def __init__(self, *ids: str, lease_s: float = 3.0) -> None:
        self._lease_s = lease_s
        self.nodes = {id: Node() for id in ids}
        self.alive = set(ids)
        self.cut = set[str]()
        """The nodes to and from which nothing passes."""
        self.refusing = set[str]()
        """The nodes to which each exchange fails."""
        self.unheard = set[str]()
        """The nodes that run, and that the cluster does not hear."""
        self.spoil: Callable[[str, bytes], bytes] = lambda _id, reply: reply
        self.open = anyio.Event()
        self.open.set()
        self.largest = 0
        """The bytes of the largest reply."""
        self._tasks: set[asyncio.Task[None]] = set()

    def pool(self, host: PoolHost) -> CallPool:
        return ClusterPool(
            host, self, lease_s=self._lease_s, start_s=30.0, min_nodes=2, labels=None, by_workspace=True, reopens=True
        )

    async def connect(self) -> None: ...

    async def list(self) -> Sequence[Member]:
        return [Member(id) for id in self.nodes if id in self.alive - self.unheard]

    def has_ended(self, node_id: str) -> bool:
        return node_id not in self.alive

    async def ask_for(self, demand: MachineDemand) -> None: ...

    def exchange(self, node_id: str, data: bytes, done: Callable[[bytes | Exception], None]) -> None:
        async def carry() -> None:
            await self.open.wait()
            if node_id in self.refusing:
                done(ConnectionError("the network has failed"))
                return
            while node_id in self.cut:
                await asyncio.sleep(0.05)
            try:
                reply = await self.nodes[node_id].exchange(data)
                reply = self.spoil(node_id, reply)
            except Exception as error:
                done(NodeGone(f"its supervisor failed: {error}"))
                return
            while node_id in self.cut:
                await asyncio.sleep(0.05)
            self.largest = max(self.largest, len(reply))
            done(reply if node_id in self.alive else NodeGone("its machine has ended"))

        task = asyncio.get_running_loop().create_task(carry())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def files(self, node_id: str, data: bytes, payload: bytes, done: Callable[[bytes | Exception], None]) -> None:
        done(NodeGone("no directory is sent here"))

    async def settled(self) -> None: ...

    async def close(self) -> None:
        for node in self.nodes.values():
            await node.aclose()
        for task in list(self._tasks):
            task.cancel()

    def budgets(self, supervisor: Supervisor) -> Sequence[Budgets]:
        """The byte budgets of the driver and of the nodes."""
        return [runtime_of(supervisor).calls.budgets, *(node.services.pool.budgets for node in self.nodes.values())]

    @property
    def seats(self) -> Sequence[Any]:
        """The seats of all drivers."""
        nodes: list[Any] = list(self.nodes.values())
        return [seat for node in nodes for seat in node._seats.values()]

    @property
    def ended(self) -> int:
        """The calls of drivers that have ended on the nodes."""
        return sum(len(seat._ended) for seat in self.seats)


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


async def test_a_node_that_leaves_the_membership_is_given_up_and_the_supervisor_goes_on(tmp_path: Path) -> None:
    cluster = LocalNodes("a", "b")
    async with Supervisor([double], profiles=small_profiles(), cluster=cluster) as supervisor:
        session = await supervisor.open_session("main", workspace=tmp_path)
        assert (await session.call("double", {"number": 1})).output == 2
        cluster.alive.discard("a")  # no exchange has failed yet: only the membership tells
        with anyio.fail_after(PATIENCE_S):
            await until(lambda: [node["id"] for node in runtime_of(supervisor).calls.nodes()] == ["b"])
        assert (await session.call("double", {"number": 2})).output == 4


async def test_a_node_that_only_the_cluster_does_not_hear_keeps_its_sessions_until_it_is_silent(tmp_path: Path) -> None:
    cluster = LocalNodes("a", "b", lease_s=1.5)
    async with Supervisor(base_tools(), profiles=small_profiles(), cluster=cluster) as supervisor:
        session = await supervisor.open_session("main", workspace=tmp_path)
        assert not (await session.call("shell", {"command": "true"})).is_error
        (home,) = [node["id"] for node in runtime_of(supervisor).calls.nodes() if node["sessions"]]
        cluster.unheard.add(home)
        result = await session.call("shell", {"command": "sleep 4"})
        assert not result.is_error
        assert losses(supervisor) == [0, 0]
        cluster.alive.discard(home)
        with anyio.fail_after(PATIENCE_S):
            await until(lambda: [node["id"] for node in runtime_of(supervisor).calls.nodes()] != ["a", "b"])
        assert not (await session.call("shell", {"command": "true"})).is_error


@pytest.mark.parametrize("fails", [False, True], ids=["nothing is answered", "every exchange fails"])
async def test_calls_made_while_their_node_is_silent_go_to_another_node(tmp_path: Path, fails: bool) -> None:
    cluster = LocalNodes("a", "b", lease_s=1.5)
    async with Supervisor([double], profiles=small_profiles(), cluster=cluster) as supervisor:
        session = await supervisor.open_session("main", workspace=tmp_path / "one")
        assert (await session.call("double", {"number": 1})).output == 2
        calls: Any = runtime_of(supervisor).calls
        silent = calls._homes.of(session.id)
        (cluster.refusing if fails else cluster.cut).add(silent.id)
        await until(lambda: silent.is_silent)
        other = await supervisor.open_session("main", workspace=tmp_path / "two")
        assert (await other.call("double", {"number": 2})).output == 4
        assert (await session.call("double", {"number": 3})).output == 6
        assert silent.losses == 1


async def test_a_node_that_is_upgraded_to_another_protocol_ends_its_calls_and_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = LocalNodes("a", "b", lease_s=30.0)
    async with Supervisor(base_tools(), profiles=small_profiles(), cluster=cluster) as supervisor:
        session = await supervisor.open_session("main", workspace=tmp_path)
        results: list[Any] = []

        async def call() -> None:
            results.append(await session.call("shell", {"command": "sleep 25"}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until(lambda: runtime_of(supervisor).calls.running())
            with monkeypatch.context() as patch, anyio.fail_after(PATIENCE_S):
                patch.setattr("toolcell.cluster.node.PROTOCOL", 99)
                await until(lambda: results)
                assert results[0].error.kind == "node_lost"
                await until(lambda: all(node["state"] == "unfit" for node in supervisor.nodes()))
                assert "uses version 99 of the protocol" in supervisor.nodes()[0]["problems"][0]


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


async def test_the_status_lists_the_problems_of_each_node(tmp_path: Path) -> None:
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
        with anyio.fail_after(PATIENCE_S):
            while not all(problem in said for problem in ("Node a was lost", "Node b: A zygote")):
                await anyio.sleep(0.2)
                said = await anyio.to_thread.run_sync(_status, state)
        lost = r"^PROBLEM      Node a was lost \d+ s ago with 0 calls and 1 session: its machine has (ended|left)"
        assert re.search(lost, said, re.MULTILINE), said
        assert re.search(r"^PROBLEM      Node b: A zygote, the process that makes cells, has ended", said, re.MULTILINE)
        assert re.search(r"^node         b up, 0 calls, 1 session, \d+ of \d+ cells", said, re.MULTILINE), said


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


def kept_records(state: Path) -> list[Record]:
    """The records of a state directory."""
    return [entry.record for entry in JournalReader(state / "journal.log", state / "journal.sqlite").entries()]


async def test_a_call_that_waits_on_its_node_may_have_started_when_its_driver_is_killed(tmp_path: Path) -> None:
    cluster = LocalNodes("a", "b")
    async with Supervisor(base_tools(), cluster=cluster, state=tmp_path / "state") as supervisor:
        session = await supervisor.open_session("main", workspace=tmp_path / "w")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(session.call, "shell", {"command": "sleep 1"}, call_id="first"))
            await until(lambda: runtime_of(supervisor).calls.running())
            tasks.start_soon(partial(session.call, "shell", {"command": "true"}, call_id="second"))
            await until(lambda: len(runtime_of(supervisor).calls.running()) == 2)
            await anyio.sleep(0.3)  # the node goes on for a lease after the death of the driver
            open_ = {record.call_id: outcome for record, outcome in interrupted(kept_records(tmp_path / "state"))}
    assert open_ == {"first": "outcome unknown", "second": "outcome unknown"}


async def test_a_call_that_waits_for_a_node_has_not_started_when_its_driver_is_killed(tmp_path: Path) -> None:
    cluster = LocalNodes("a", "b", lease_s=1.0)
    async with Supervisor(base_tools(), cluster=cluster, state=tmp_path / "state") as supervisor:
        session = await supervisor.open_session("main", workspace=tmp_path / "w")
        calls: Any = runtime_of(supervisor).calls
        cluster.cut.update("ab")
        await until(lambda: not calls._nodes.answering())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(session.call, "shell", {"command": "true"}, call_id="waits"))
            await until(lambda: runtime_of(supervisor).calls.waiting)
            open_ = [outcome for _record, outcome in interrupted(kept_records(tmp_path / "state"))]
            assert open_ == ["not started"]
            cluster.cut.clear()
    kinds = [record.kind for record in kept_records(tmp_path / "state") if record.call_id == "waits"]
    assert kinds == ["intent", "queued", "sent", "call"]


async def test_a_waiting_call_that_cannot_be_encoded_ends_alone(tmp_path: Path) -> None:
    cluster = LocalNodes("a", "b", lease_s=1.0)
    async with Supervisor([double], profiles=small_profiles(), cluster=cluster) as supervisor:
        broken = await supervisor.open_session("main", workspace=tmp_path, config={"number": 2**70})
        calls: Any = runtime_of(supervisor).calls
        cluster.cut.update("ab")
        await until(lambda: not calls._nodes.answering())
        results: list[Any] = []

        async def call() -> None:
            results.append(await broken.call("double", {"number": 1}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until(lambda: runtime_of(supervisor).calls.waiting)
            cluster.cut.clear()
        assert results[0].error.kind == "validation"
        session = await supervisor.open_session("main", workspace=tmp_path)
        assert (await session.call("double", {"number": 2})).output == 4


# -- hostile cells, and what a batch must survive ----------------------------------------------------------------------

MIB = 1024 * 1024


def much(mib: int) -> str:
    """Return a text of so many MiB."""
    return "x" * (mib * MIB)


TOOLS: Sequence[Any] = [
    double,
    much,
    misbehaving.flood_with_progress,
    misbehaving.send_a_result_with_bad_parts,
    *base_tools(),
]


class Records:
    """A journal that keeps all records."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        self.records.append(record)


@pytest.fixture(scope="module")
async def nodes(anyio_backend: str) -> LocalNodes:
    return LocalNodes("a", "b", lease_s=12.0)


@pytest.fixture(scope="module")
async def journal() -> Records:
    return Records()


@pytest.fixture(scope="module")
async def supervisor(nodes: LocalNodes, journal: Records) -> AsyncIterator[Supervisor]:
    async with Supervisor(TOOLS, cluster=nodes, journal=journal) as made:
        yield made


def losses(supervisor: Supervisor) -> list[object]:
    """How often the driver has lost each node."""
    return [node["losses"] for node in runtime_of(supervisor).calls.nodes()]


async def test_a_call_with_a_config_that_cannot_be_encoded_ends_alone(supervisor: Supervisor, tmp_path: Path) -> None:
    session = await supervisor.open_session("main", workspace=tmp_path)
    broken = await supervisor.open_session("main", workspace=tmp_path, config={"number": 2**70})
    with anyio.fail_after(PATIENCE_S):
        result = await broken.call("double", {"number": 1})
        assert result.error is not None
        assert result.error.kind == "validation"
        assert "cannot be encoded" in result.error.message
        assert (await session.call("double", {"number": 2})).output == 4


async def test_a_batch_that_cannot_be_encoded_ends_its_calls_typed(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcell.cluster.call_messages.PLAIN", frozenset({"config"}))  # as if no call had been checked
    broken = await supervisor.open_session("main", workspace=tmp_path, config={"number": {1}})
    with anyio.fail_after(PATIENCE_S):
        result = await broken.call("double", {"number": 1})
        assert result.error is not None
        assert result.error.kind == "node_lost"
        session = await supervisor.open_session("main", workspace=tmp_path)
        assert (await session.call("double", {"number": 2})).output == 4


async def test_a_flood_of_progress_waits_for_a_slow_listener_of_the_driver(
    supervisor: Supervisor, nodes: LocalNodes, tmp_path: Path
) -> None:
    most = 512 * 1024  # 85 reports of 6 KiB
    for budgets in nodes.budgets(supervisor):
        budgets.requests.per_call = most
    session = await supervisor.open_session("main", workspace=tmp_path)
    waits, queued, called = anyio.Event(), 0, 0

    async def listen(_message: str, _fraction: float | None) -> None:
        nonlocal queued, called
        called += 1
        queued += 1
        await waits.wait()
        queued -= 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(session.call, "flood_with_progress", {}, on_progress=listen))
        await until(lambda: queued > 100)
        await anyio.sleep(1.0)
        assert queued < 1_000
        before = called
        waits.set()
        await until(lambda: called > before + 1_000)  # it goes on when the listener has room
        tasks.cancel_scope.cancel()
    for budgets in nodes.budgets(supervisor):
        budgets.requests.per_call = Budgets().requests.per_call
    await until(lambda: not any(budgets.requests.drawn for budgets in nodes.budgets(supervisor)))


async def test_results_that_the_driver_does_not_fetch_fill_a_budget_of_the_node(
    supervisor: Supervisor, nodes: LocalNodes, tmp_path: Path
) -> None:
    calls, mib = 8, 12
    session = await supervisor.open_session("main", workspace=tmp_path)
    await session.call("double", {"number": 1})
    results: list[int] = []

    async def call() -> None:
        results.append(len((await session.call("much", {"mib": mib})).output))

    budgets = [each.frames for each in nodes.budgets(supervisor)[1:]]
    for each in budgets:
        each.limit = 3 * mib * MIB
    ended = nodes.ended
    async with anyio.create_task_group() as tasks:
        for _ in range(calls):
            tasks.start_soon(call)
        await anyio.sleep(0.05)
        nodes.open = anyio.Event()
        nodes.largest = 0
        await anyio.sleep(2.0)
        assert max(each.drawn for each in budgets) <= (3 * mib + 1) * MIB
        assert nodes.ended - ended < calls - 2
        nodes.open.set()
    assert results == [mib * MIB] * calls
    assert nodes.largest < (mib + 4) * MIB
    await until(lambda: not any(each.drawn for each in budgets))


async def test_a_node_does_not_keep_the_results_of_ended_calls(supervisor: Supervisor, tmp_path: Path) -> None:
    session = await supervisor.open_session("main", workspace=tmp_path)
    assert not (await session.call("much", {"mib": 15})).is_error
    before = psutil.Process().memory_info().rss
    for _ in range(12):
        assert not (await session.call("much", {"mib": 15})).is_error
    assert psutil.Process().memory_info().rss - before < 80 * MIB


async def test_the_incident_of_a_malformed_result_is_in_the_drivers_journal(
    supervisor: Supervisor, journal: Records, tmp_path: Path
) -> None:
    session = await supervisor.open_session("main", workspace=tmp_path)
    result = await session.call("send_a_result_with_bad_parts", {})
    assert result.error is not None
    assert result.error.kind == "protocol_violation"
    incidents = [each for each in journal.records if each.kind == "incident" and each.call_id == result.call_id]
    assert len(incidents) == 1
    assert "The result frame is not a result" in incidents[0].data["what"]
    assert not (await session.call("double", {"number": 1})).is_error


async def test_a_session_that_ends_during_an_inspection_does_not_end_the_node(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    calls = runtime_of(supervisor).calls
    before = losses(supervisor)
    for number in range(3_000):
        (tmp_path / str(number)).touch()
    ended = await supervisor.open_session("main", workspace=tmp_path)
    other = await supervisor.open_session("main", workspace=tmp_path)
    await other.call("double", {"number": 1})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ended.call, "shell", {"command": "true"})
        while not any(run.spec.key.session_id == ended.id for run in calls.running()):
            await anyio.lowlevel.checkpoint()
        calls.end_session(ended.id)
        calls.tell_end(other.id, "a test", 0.0, 1.0)
        assert (await other.call("double", {"number": 2})).output == 4
    assert losses(supervisor) == before


async def test_an_inspection_that_fails_ends_its_call_and_not_the_node(
    supervisor: Supervisor, nodes: LocalNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await supervisor.open_session("main", workspace=tmp_path)

    async def fail(_changes: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch, anyio.fail_after(PATIENCE_S):
        patch.setattr("toolcell.cluster.node_run.listed_of", fail)
        result = await session.call("shell", {"command": "touch made"})
    assert result.error is not None
    assert (result.error.kind, result.error.outcome) == ("crashed", "outcome unknown")
    assert not any(node.is_broken for node in nodes.nodes.values())
    assert not (await session.call("shell", {"command": "touch more"})).is_error


async def test_a_reply_that_cannot_be_read_ends_the_calls_typed(tmp_path: Path) -> None:
    cluster = LocalNodes("a", "b")
    async with Supervisor(TOOLS, cluster=cluster) as supervisor:
        session = await supervisor.open_session("main", workspace=tmp_path)
        await session.call("double", {"number": 1})
        results: list[Any] = []

        def spoil_once(id: str, reply: bytes) -> bytes:
            if id != busy:
                return reply
            cluster.spoil = lambda _id, reply: reply
            return b"\xc1"

        async def call() -> None:
            results.append(await session.call("shell", {"command": "sleep 25"}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until(lambda: any(node["calls"] for node in runtime_of(supervisor).calls.nodes()))
            (busy,) = [node["id"] for node in runtime_of(supervisor).calls.nodes() if node["calls"]]
            cluster.spoil = spoil_once
            await until(lambda: results)
        assert results[0].error.kind == "node_lost"
        assert (await session.call("double", {"number": 2})).output == 4
