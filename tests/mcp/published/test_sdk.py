"""A server of the official Python SDK, over streamable HTTP on loopback."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mcp.published.__main__ import cache

from toolcell import ExecutionError, Profile, Supervisor
from toolcell.mcp import mcp_toolset

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop is enough, because nothing here waits in a special way."""
    return "asyncio"


@pytest.fixture(params=["json", "events"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a server that answers with JSON, or with server-sent events."""
    command = [str(cache() / "venv/bin/python"), str(Path(__file__).with_name("sdk_server.py")), request.param]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.terminate()


async def test_its_tools_are_listed_and_called(port: int, workspace: Path) -> None:
    url = f"http://127.0.0.1:{port}/mcp"
    profile = Profile.for_kind("main").replace(http=(f"POST {url}",))
    async with Supervisor(toolsets=[mcp_toolset(name="sdk", url=url)]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, profile=profile)
        assert {each.name for each in await session.tools()} == {"add", "steps", "fail"}
        assert (await session.call("add", {"a": 1, "b": 2})).output == {"result": 3}
        assert "done" in (await session.call("steps", {})).for_model()
        assert isinstance((await session.call("fail", {})).error, ExecutionError)
