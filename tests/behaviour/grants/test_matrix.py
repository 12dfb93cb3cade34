"""Which session may use which base tool: 27 cases. Each is a real call that does real work, or provably does no
work.
"""

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from toolcell import (
    Capability,
    MemoryRecord,
    PermissionDenied,
    PermissionTier,
    PublicWeb,
    RecentJournal,
    Session,
    SessionKind,
    SQLiteMemory,
    Supervisor,
    ToolResult,
    base_tools,
)
from toolcell.backends.records import namespace_of
from toolcell.testing.backends import ListChannel

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.usefixtures("nothing_ahead")]


class Site(ThreadingHTTPServer):
    """A page and a search engine on loopback. `asked` holds the requested paths."""

    daemon_threads = True

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        parts = urlsplit(self.path)
        if parts.path == "/search":
            word = parse_qs(parts.query)["q"][0]
            hit = {"title": f"About {word}", "url": f"http://{self.server.authority}/page", "content": word}
            body, kind = json.dumps({"results": [hit]}).encode(), "application/json"
        else:
            body, kind = b"<html><title>Owls</title><body><p>Owls fly by night.</p></body></html>", "text/html"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(nothing_is_left_of_the_module: None) -> Iterator[Site]:
    server = Site()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Stage:
    """A session of each kind with separate backends, and the site that all of them may fetch."""

    session: Session
    channel: ListChannel
    memory: SQLiteMemory
    site: Site
    journal: RecentJournal

    @property
    def namespace(self) -> str:
        return namespace_of(self.session.line)

    def text(self, name: str) -> str | None:
        path = self.session.workspace / name
        return path.read_text() if path.exists() else None

    async def remembered(self, query: str) -> list[str]:
        found = await self.memory.search(query, limit=10, namespace=self.namespace)
        return [record.text for record in found]


@pytest.fixture(scope="module")
async def stages(
    anyio_backend: str, site: Site, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[SessionKind, Stage]]:
    journal = RecentJournal()
    web = PublicWeb(
        search_url=f"http://{site.authority}/search?q={{query}}&format=json", allow_private=(site.authority,)
    )
    async with Supervisor(tools=base_tools(), journal=journal) as supervisor:
        made: dict[SessionKind, Stage] = {}
        for kind in SessionKind:
            channel, memory = ListChannel(), SQLiteMemory()
            options: dict[str, Any] = {"channel": channel, "memory": memory, "web": web, "agent_id": f"{kind}_agent"}
            options["workspace"] = tmp_path_factory.mktemp(kind.value)
            if kind is SessionKind.MAIN:
                session = await supervisor.open_session(kind, **options)
            else:
                session = await made[SessionKind.MAIN].session.open_child(kind, **options)
            made[kind] = Stage(session, channel, memory, site, journal)
        yield made
        for stage in made.values():
            stage.memory.close()


@pytest.fixture
async def stage(stages: dict[SessionKind, Stage], kind: SessionKind) -> Stage:
    """The same initial state for each case."""
    stage = stages[kind]
    for path in stage.session.workspace.iterdir():
        path.unlink()
    (stage.session.workspace / "notes.txt").write_text("first line\nsecond line\n")
    stage.channel.sent.clear()
    stage.site.asked.clear()
    for text in await stage.remembered("owls"):
        record = (await stage.memory.search(text, limit=1, namespace=stage.namespace))[0]
        await stage.memory.delete(record.id, namespace=stage.namespace)
    await stage.memory.store(MemoryRecord(id="", text="the owls are not what they seem"), namespace=stage.namespace)
    return stage


@dataclass(frozen=True)
class Tool:
    """A base tool: its arguments, the effect of an allowed call, and the state after a denied call."""

    name: str
    tier: PermissionTier
    needs: frozenset[Capability]
    arguments: Callable[[Stage], dict[str, Any]]
    worked: Callable[[Stage, ToolResult], bool]
    worker_may: bool = False


C = Capability
TOOLS = [
    Tool(
        "read",
        PermissionTier.READ_ONLY,
        frozenset({C.READ}),
        lambda stage: {"path": "notes.txt", "offset": 2},
        lambda stage, result: result.output == "2\tsecond line",
        worker_may=True,
    ),
    Tool(
        "write",
        PermissionTier.WORKSPACE,
        frozenset({C.WRITE}),
        lambda stage: {"path": "made.txt", "content": "made by write"},
        lambda stage, result: stage.text("made.txt") == "made by write" and result.artifacts[0].path == "made.txt",
    ),
    Tool(
        "edit",
        PermissionTier.WORKSPACE,
        frozenset({C.READ, C.WRITE}),
        lambda stage: {"path": "notes.txt", "old_text": "second", "new_text": "2nd"},
        lambda stage, result: stage.text("notes.txt") == "first line\n2nd line\n",
    ),
    Tool(
        "shell",
        PermissionTier.SYSTEM,
        frozenset({C.WRITE, C.EXEC}),
        lambda stage: {"command": "echo $((6 * 7)) > made.txt && cat made.txt notes.txt"},
        lambda stage, result: stage.text("made.txt") == "42\n" and result.output["stdout"].startswith("42\nfirst"),
    ),
    Tool(
        "message",
        PermissionTier.SYSTEM,
        frozenset({C.CHANNEL}),
        lambda stage: {"text": "hello out there"},
        lambda stage, result: (
            stage.channel.sent == [("hello out there", "/".join((*stage.session.line, stage.session.id)))]
        ),
    ),
    Tool(
        "memory_search",
        PermissionTier.READ_ONLY,
        frozenset({C.MEMORY_READ}),
        lambda stage: {"query": "owls"},
        lambda stage, result: result.output["records"][0]["text"] == "the owls are not what they seem",
        worker_may=True,
    ),
    Tool(
        "memory_store",
        PermissionTier.WORKSPACE,
        frozenset({C.MEMORY_WRITE}),
        lambda stage: {"text": "gum is in style", "tags": ["style"]},
        lambda stage, result: bool(result.output["id"]),
    ),
    Tool(
        "web_search",
        PermissionTier.READ_ONLY,
        frozenset({C.WEB}),
        lambda stage: {"query": "owls at night"},
        lambda stage, result: (
            result.output["hits"][0]["title"] == "About owls at night" and stage.site.asked[0].startswith("/search?")
        ),
        worker_may=True,
    ),
    Tool(
        "web_fetch",
        PermissionTier.READ_ONLY,
        frozenset({C.WEB}),
        lambda stage: {"url": f"http://{stage.site.authority}/page"},
        lambda stage, result: (
            (result.output["title"], result.output["text"].strip()) == ("Owls", "Owls fly by night.")
            and stage.site.asked == ["/page"]
        ),
        worker_may=True,
    ),
]
CELLS = [(kind, tool) for kind in SessionKind for tool in TOOLS]
WORKER_HOLDS = frozenset({C.READ, C.MEMORY_READ, C.WEB})


@pytest.mark.parametrize(("kind", "tool"), CELLS, ids=[f"{kind.value}-{tool.name}" for kind, tool in CELLS])
async def test_a_base_tool_does_its_work_where_it_may_and_nothing_where_it_may_not(
    stage: Stage, kind: SessionKind, tool: Tool
) -> None:
    result = await stage.session.call(tool.name, tool.arguments(stage))
    if kind is not SessionKind.WORKER or tool.worker_may:
        assert result.error is None, result.error
        assert tool.worked(stage, result), result
        if tool.name == "memory_store":
            assert await stage.remembered("gum") == ["gum is in style"]
        return
    error = result.error
    assert isinstance(error, PermissionDenied)
    assert set(error.missing) == tool.needs - WORKER_HOLDS
    assert error.tier is tool.tier
    assert not error.retryable
    assert all(capability.value in error.message for capability in error.missing)
    assert result.output is None and result.artifacts == []
    assert {path.name for path in stage.session.workspace.iterdir()} == {"notes.txt"}
    assert stage.text("notes.txt") == "first line\nsecond line\n"
    assert stage.channel.sent == [] and stage.site.asked == []
    assert await stage.remembered("gum") == []
    denied = stage.journal.of(kind="denied", call_id=result.call_id)
    assert [record.data["tool"] for record in denied] == [tool.name]


@pytest.mark.parametrize("kind", SessionKind, ids=str)
async def test_a_session_is_offered_exactly_the_tools_that_it_may_use(stage: Stage, kind: SessionKind) -> None:
    offered = {declaration.name: declaration for declaration in await stage.session.tools()}
    assert set(offered) == {tool.name for tool in TOOLS if kind is not SessionKind.WORKER or tool.worker_may}
    for tool in TOOLS:
        if tool.name in offered:
            assert (offered[tool.name].tier, offered[tool.name].needs) == (tool.tier, tool.needs)


@pytest.mark.parametrize("kind", SessionKind, ids=str)
async def test_a_session_holds_the_capabilities_of_its_kind(stage: Stage, kind: SessionKind) -> None:
    assert stage.session.grants == (WORKER_HOLDS if kind is SessionKind.WORKER else frozenset(Capability))
