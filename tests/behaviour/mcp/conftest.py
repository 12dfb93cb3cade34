"""Sessions with an MCP server of `server.py`."""

import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from toolcell import Profile, RecentJournal, Session, Supervisor, Toolset, base_tools
from toolcell.mcp import McpToolset, mcp_toolset

SERVER = Path(__file__).with_name("server.py")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The server's program in a directory that no cell can see, unless the toolset shows it."""
    there = tmp_path_factory.mktemp("servers") / "server.py"
    shutil.copy(SERVER, there)
    return str(there)


@pytest.fixture
def toolset(program: str) -> Callable[..., McpToolset]:
    """`toolset("flood")`: the tools of a server with this behaviour."""

    def make(behaviour: str, **options: Any) -> McpToolset:
        return mcp_toolset(name=options.pop("name", behaviour), command=[sys.executable, program, behaviour], **options)

    return make


class Opened:
    """`await opened(toolset, …)`: a Main session of a supervisor with the base tools and these toolsets."""

    def __init__(self, stack: AsyncExitStack, supervise: Any, workspace: Path) -> None:
        self.journal = RecentJournal()
        self._stack = stack
        self._supervise = supervise
        self._workspace = workspace

    async def __call__(self, *toolsets: Toolset, profile: Profile | None = None, **options: Any) -> Session:
        supervisor: Supervisor = self._supervise(base_tools(), toolsets=toolsets, journal=self.journal, **options)
        await self._stack.enter_async_context(supervisor)
        return await supervisor.open_session("main", workspace=self._workspace, profile=profile)

    @property
    def incidents(self) -> list[str]:
        """The incidents of MCP servers in the journal."""
        return [str(each.data["what"]) for each in self.journal.of(kind="incident") if "toolset" in each.data]


@pytest.fixture
async def opened(supervise: Any, workspace: Path) -> AsyncIterator[Opened]:
    async with AsyncExitStack() as stack:
        yield Opened(stack, supervise, workspace)
