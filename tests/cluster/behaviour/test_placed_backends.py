"""The memory and the web on the nodes, in this process, so that a test sees all bytes that cross."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import probes
from tests.cluster import placed
from tests.cluster.test_pool import LocalNodes
from tests.conftest import small_profiles
from tests.helpers import PATIENCE_S, until
from tests.loopback import said, serving

from toolcell import (
    Capability,
    Profile,
    ProxyNetwork,
    RecentJournal,
    Session,
    Supervisor,
    ToolContext,
    UsageError,
    base_tools,
    preload_memory,
    tool,
)
from toolcell.backends import NotConfigured
from toolcell.cluster import RayCluster
from toolcell.cluster.link import unpack
from toolcell.cluster.messages import CallSaid, RecordMade, message_of
from toolcell.cluster.node import OK
from toolcell.cluster.pool import ClusterPool
from toolcell.cluster.terms import NodeTerms
from toolcell.pool.interface import CallPool, PoolHost
from toolcell.testing.backends import DictWeb, ListMemory

pytestmark = pytest.mark.anyio
C = Capability
HERE = "tests.cluster.placed"
TERMS = NodeTerms(memory=f"{HERE}:memory", web=f"{HERE}:web", resolve=f"{HERE}:resolve")


class PlacedNodes(LocalNodes):
    """As `LocalNodes`, with backends of the nodes. `crossed` has the frames of all nodes."""

    def __init__(self, terms: NodeTerms = TERMS) -> None:
        super().__init__("a")
        self.terms = terms
        self.crossed: list[list[Any]] = []

    def pool(self, host: PoolHost) -> CallPool:
        return ClusterPool(
            host,
            self,
            lease_s=3.0,
            start_s=30.0,
            min_nodes=1,
            labels=None,
            by_workspace=True,
            reopens=True,
            terms=NodeTerms(
                memory=self.terms.memory,
                web=self.terms.web,
                resolve=self.terms.resolve,
                is_durable=host.is_durable,
            ),
        )

    def exchange(self, node_id: str, data: bytes, done: Callable[[bytes | Exception], None]) -> None:
        def heard(reply: bytes | Exception) -> None:
            if isinstance(reply, bytes):
                status, _incarnation, _ack, batches, _sent_at = unpack(reply)
                if status == OK:
                    self.crossed += [frame for batch in batches for frame in unpack(batch)[1]]
            done(reply)

        super().exchange(node_id, data, heard)

    def said(self) -> list[CallSaid]:
        """What the processes of calls have said to the driver."""
        return [message for message in map(message_of, self.crossed) if isinstance(message, CallSaid)]


@tool(uses={C.MEMORY_READ, C.MEMORY_WRITE})
def remember(ctx: ToolContext) -> int:
    """Store a text that is only in this cell, and count what a search for a part of it finds."""
    text = "-".join(("the", "sea"))
    ctx.require.memory_writer.store(text)
    return len(ctx.require.memory.search(text[4:]))


@tool(needs={C.WEB})
def look(ctx: ToolContext, query: str = "x") -> str:
    """Search the web."""
    return str(ctx.require.web.search(query))


@tool(needs={C.WEB})
def look_often(ctx: ToolContext, times: int) -> int:
    """Search the web again and again."""
    for _ in range(times):
        ctx.require.web.search("x" * 1_000)
    return times


@tool(needs={C.WEB})
def fetch(ctx: ToolContext, url: str) -> str:
    """Fetch a page."""
    return ctx.require.web.fetch(url).body.decode()


@tool(needs={C.MEMORY_WRITE})
def store_and_wait(ctx: ToolContext) -> None:
    """Store a text, and wait."""
    import time

    ctx.require.memory_writer.store("kept")
    time.sleep(30.0)


@tool(needs={C.NET})
def through_the_proxy(url: str) -> int:
    """The status of a request."""
    import urllib.request

    with urllib.request.urlopen(url, timeout=60) as answer:
        return int(answer.status)


TOOLS: list[Any] = [
    remember,
    look,
    look_often,
    fetch,
    store_and_wait,
    through_the_proxy,
    tool(probes.ask, uses=frozenset(C)),
    tool(probes.ask, name="ask_with_nothing"),
    *base_tools(),
]


@pytest.fixture(scope="module")
def nodes() -> PlacedNodes:
    return PlacedNodes()


@pytest.fixture(scope="module")
def journal() -> RecentJournal:
    return RecentJournal()


@pytest.fixture(scope="module")
async def supervisor(anyio_backend: str, nodes: PlacedNodes, journal: RecentJournal) -> AsyncIterator[Supervisor]:
    async with Supervisor(TOOLS, profiles=small_profiles(), cluster=nodes, journal=journal) as made:
        yield made


@pytest.fixture
async def session(supervisor: Supervisor, workspace: Path, nodes: PlacedNodes) -> AsyncIterator[Session]:
    nodes.crossed.clear()
    opened = await supervisor.open_session("main", workspace=workspace)
    yield opened
    await opened.close()


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    for memory in placed.MEMORIES:
        memory.records.clear()
    for web in placed.WEBS:
        web.asked.clear()


async def test_a_search_and_a_store_are_served_on_the_node_and_do_not_cross(
    session: Session, nodes: PlacedNodes
) -> None:
    assert (await session.call("remember")).output == 1
    assert [record.text for _agent, record in placed.MEMORIES[0].records] == ["the-sea"]
    assert nodes.said() == []
    assert "sea" not in str(nodes.crossed)


async def test_a_session_with_a_memory_of_its_own_has_it_on_the_driver(
    supervisor: Supervisor, workspace: Path, nodes: PlacedNodes
) -> None:
    memory, web = ListMemory(), DictWeb()
    session = await supervisor.open_session("main", workspace=workspace, memory=memory, web=web)
    child = await session.open_child("branch")
    assert (await child.call("remember")).output == 1
    await session.call("look")
    assert [record.text for _agent, record in memory.records] == ["the-sea"]
    assert web.asked == ["x"]
    assert placed.MEMORIES[0].records == []
    await session.close()


@pytest.mark.parametrize("operation", ["memory.search", "memory.store", "web.search", "web.fetch"])
async def test_a_forged_request_for_what_was_not_granted_is_refused_on_the_node_and_on_record(
    session: Session, nodes: PlacedNodes, journal: RecentJournal, operation: str
) -> None:
    arguments = {"query": "forged", "text": "forged", "kind": "fact", "tags": [], "limit": 1}
    result = await session.call("ask_with_nothing", {"operation": operation, "arguments": arguments})
    answer = result.unwrap()
    assert answer["ok"] is False
    assert answer["value"]["kind"] == "permission_denied"
    assert nodes.said() == []
    await until(lambda: journal.of(kind="denied", call_id=result.call_id))
    (denied,) = journal.of(kind="denied", call_id=result.call_id)
    assert (denied.session_id, denied.data["operation"], denied.data["node"]) == (session.id, operation, "a")


async def test_a_worker_on_a_node_can_search_the_memory_and_not_store(session: Session) -> None:
    worker = await session.open_child("worker")
    stored = {"operation": "memory.store", "arguments": {"text": "forged", "kind": "fact", "tags": []}}
    assert (await worker.call("ask", stored)).unwrap()["value"]["kind"] == "permission_denied"
    searched = {"operation": "memory.search", "arguments": {"query": "x", "limit": 1}}
    assert (await worker.call("ask", searched)).unwrap()["ok"] is True


async def test_an_agent_finds_its_own_memories_only(supervisor: Supervisor, workspace: Path) -> None:
    for agent, found in (("ada", 1), ("bob", 1)):
        session = await supervisor.open_session("main", workspace=workspace, agent_id=agent)
        assert (await session.call("remember")).output == found
        helper = await session.open_child("branch", agent_id="helper")
        assert (await helper.call("remember")).output == found
        await session.close()
    namespaces = [namespace for namespace, _record in placed.MEMORIES[0].records]
    assert namespaces == ["ada", '["ada","helper"]', "bob", '["bob","helper"]']


async def test_a_credential_of_the_node_is_in_no_answer(session: Session, nodes: PlacedNodes) -> None:
    assert "you sent [credential]" in (await session.call("look")).unwrap()
    assert (await session.call("fetch", {"url": "https://b.example.org/"})).output == "page [credential]"
    failed = await session.call("look", {"query": "fail"})
    assert failed.error is not None
    assert failed.error.message == "The engine answered: [credential] is not valid."
    assert placed.KEY not in str(nodes.crossed)


async def test_the_rules_for_pages_hold_on_the_node(supervisor: Supervisor, workspace: Path) -> None:
    profile = Profile.for_kind("main").replace(web=["a.example.org"])
    session = await supervisor.open_session("main", workspace=workspace, profile=profile)
    assert (await session.call("fetch", {"url": "https://a.example.org/"})).output == "page a"
    refused = await session.call("fetch", {"url": "https://b.example.org/"})
    assert refused.error is not None
    assert "https://b.example.org/ is not among the pages" in refused.error.message
    assert not any("b.example.org" in asked for web in placed.WEBS for asked in web.asked)
    await session.close()


async def test_a_rule_for_seen_links_is_refused_unless_the_web_is_the_sessions_own(
    supervisor: Supervisor, workspace: Path
) -> None:
    profile = Profile.for_kind("main").replace(web=["seen"])
    with pytest.raises(UsageError, match="rule 'seen', and the web client is on the nodes"):
        await supervisor.open_session("main", workspace=workspace, profile=profile)
    session = await supervisor.open_session("main", workspace=workspace, profile=profile, web=DictWeb())
    await session.close()


async def test_the_program_is_told_that_the_memory_is_elsewhere(session: Session) -> None:
    with pytest.raises(NotConfigured, match="The memory is on the nodes"):
        await preload_memory(session, "x")


async def test_the_proxy_of_a_node_uses_the_nodes_resolver(supervisor: Supervisor, workspace: Path) -> None:
    with serving(lambda asked: said({})) as service:
        port = service.server_address[1]
        network = ProxyNetwork(allow_private=[f"site.example.org:{port}"])
        profile = Profile.for_kind("main").replace(network=network)
        session = await supervisor.open_session("main", workspace=workspace, profile=profile)
        url = f"http://site.example.org:{port}/"
        assert (await session.call("through_the_proxy", {"url": url})).unwrap() == 200
        await session.close()


async def test_a_durable_journal_has_the_operations_of_the_node(workspace: Path, tmp_path: Path) -> None:
    nodes = PlacedNodes()
    async with Supervisor(TOOLS, profiles=small_profiles(), cluster=nodes, state=tmp_path / "state") as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("remember")).output == 1
    made = [message for message in map(message_of, nodes.crossed) if isinstance(message, RecordMade)]
    operations = [message.data for message in made if message.kind == "operation"]
    assert [(each["operation"], each["effect"]) for each in operations] == [
        ("memory.store", True),
        ("memory.search", False),
    ]


async def test_a_lost_call_that_may_have_stored_ends_with_outcome_unknown(workspace: Path) -> None:
    nodes = PlacedNodes()
    async with Supervisor(TOOLS, profiles=small_profiles(), cluster=nodes) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                result = await session.call("store_and_wait")
                assert result.error is not None
                assert (result.error.kind, result.error.outcome) == ("node_lost", "outcome unknown")
                tasks.cancel_scope.cancel()

            tasks.start_soon(call)
            await until(lambda: any(memory.records for memory in placed.MEMORIES))
            nodes.alive.clear()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("tests.cluster.nowhere:memory", "ModuleNotFoundError"),
        (f"{HERE}:missing", "AttributeError"),
        (f"{HERE}:KEY", "is not a function"),
        (f"{HERE}:web", "memory is not a MemoryStore"),
        (f"{HERE}:refuse", "LookupError: process"),
    ],
)
async def test_a_backend_that_the_node_cannot_make_fails_the_start(path: str, why: str) -> None:
    with pytest.raises(UsageError, match=rf"(?s)A node of the cluster cannot make RayCluster\(memory=.*{why}"):
        await Supervisor(cluster=PlacedNodes(NodeTerms(memory=path))).start()


async def test_a_backend_in_two_places_fails_the_start() -> None:
    with pytest.raises(UsageError, match="both given"):
        await Supervisor(memory=ListMemory(), cluster=PlacedNodes()).start()


def test_a_resolver_of_the_driver_is_refused_on_a_cluster() -> None:
    with pytest.raises(UsageError, match=r"RayCluster\(resolve='module:function'\)"):
        Supervisor(resolve=placed.resolve, cluster=RayCluster())


@pytest.mark.parametrize("path", ["memory", "a:", ":b", "a.b:c d", "a b:c"])
def test_another_text_than_an_import_path_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="Write module:name"):
        RayCluster(memory=path)


async def test_records_that_the_driver_does_not_fetch_make_the_call_wait(workspace: Path, tmp_path: Path) -> None:
    nodes, times = PlacedNodes(), 400
    state = tmp_path / "state"
    async with Supervisor(TOOLS, profiles=small_profiles(), cluster=nodes, state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("look")
        for budgets in nodes.budgets(supervisor):
            budgets.requests.per_call = 512 * 1024
        results: list[Any] = []

        async def call() -> None:
            results.append(await session.call("look_often", {"times": times}, timeout=PATIENCE_S))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.sleep(0.1)
            nodes.open = anyio.Event()
            await anyio.sleep(1.8)
            (seat,) = nodes.seats
            waiting = len(seat.outbox._frames)
            nodes.open.set()
        assert waiting < 120
        assert results[0].output == times
