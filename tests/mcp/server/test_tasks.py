"""Tasks: calls that go on after their request."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.client import advertise
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from toolcell import PermissionTier, Supervisor, ToolContext, tool
from toolcell.mcp import ServerBounds, ToolServer, mcp_metadata
from toolcell.mcp.server.principal import PrincipalServer
from toolcell.mcp.server.tasks import EXTENSION

from .examples import hello_later
from .test_calls import says_ann


@tool(metadata=mcp_metadata(task="optional"), timeout=60.0)
def count(ctx: ToolContext, seconds: float) -> str:
    """Count."""
    import time

    ctx.progress("counting", 0.5)
    time.sleep(seconds)
    return "counted"


@tool(metadata=mcp_metadata(task="optional"), tier=PermissionTier.ELEVATED)
def pay_later(amount: int) -> str:
    """Pay, as a task."""
    return f"paid {amount}"


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
async def supervisor(anyio_backend: Any, nothing_is_left_of_the_module: None) -> AsyncIterator[Supervisor]:
    async with Supervisor([count, pay_later, hello_later]) as running:
        yield running


class Anything(BaseModel, extra="allow"):
    """An answer, as it came."""


class Requests:
    """Requests of a client with tasks, as data."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        request = types.Request[Any, Any](method=method, params=params)
        answer = await self._client.session.send_request(request, Anything)
        return answer.model_dump(by_alias=True)

    async def until_over(self, task: str) -> dict[str, Any]:
        with anyio.fail_after(20):
            while True:
                told = await self("tasks/get", taskId=task)
                if told["status"] not in ("working",):
                    return told
                await anyio.sleep(0.05)


def client_of(principal: PrincipalServer, *, tasks: bool = True) -> Client:
    extensions = [advertise(EXTENSION)] if tasks else []
    return Client(principal.server, mode="2026-07-28", extensions=extensions, elicitation_callback=says_ann)


@asynccontextmanager
async def connected(
    supervisor: Supervisor, workspace: Path, *, tasks: bool = True, **options: Any
) -> AsyncIterator[Requests]:
    async with (
        ToolServer(supervisor, workspace=workspace, **options) as server,
        client_of(await server.principal(), tasks=tasks) as client,
    ):
        yield Requests(client)


async def test_a_task_runs_on_and_has_its_result_later(supervisor: Supervisor, tmp_path: Path) -> None:
    async with connected(supervisor, tmp_path) as request:
        begun = await request("tools/call", name="count", arguments={"seconds": 1.5})
        assert begun["resultType"] == "task" and begun["status"] == "working"
        with anyio.fail_after(5):
            while "statusMessage" not in (told := await request("tasks/get", taskId=begun["taskId"])):
                await anyio.sleep(0.05)
        assert told["statusMessage"] == "counting" and "result" not in told
        over = await request.until_over(begun["taskId"])
        assert over["status"] == "completed"
        assert over["result"]["structuredContent"] == {"result": "counted"}


async def test_a_client_without_tasks_waits_for_the_result(supervisor: Supervisor, tmp_path: Path) -> None:
    async with connected(supervisor, tmp_path, tasks=False) as request:
        result = await request("tools/call", name="count", arguments={"seconds": 0})
        assert result["resultType"] == "complete"
        with pytest.raises(MCPError) as caught:
            await request("tasks/get", taskId="x")
        assert caught.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY


async def test_a_cancelled_task_ends_its_call(supervisor: Supervisor, tmp_path: Path) -> None:
    async with connected(supervisor, tmp_path) as request:
        begun = await request("tools/call", name="count", arguments={"seconds": 50})
        assert (await request("tasks/cancel", taskId=begun["taskId"]))["resultType"] == "complete"
        assert (await request.until_over(begun["taskId"]))["status"] == "cancelled"


async def test_a_task_asks_for_answers_and_for_approval(supervisor: Supervisor, tmp_path: Path) -> None:
    async with connected(supervisor, tmp_path, approve_by_elicitation=True) as request:
        begun = await request("tools/call", name="hello_later", arguments={})
        told = await request.until_over(begun["taskId"])
        assert told["status"] == "input_required" and list(told["inputRequests"]) == ["user"]
        wrong = {"action": "accept", "content": {"name": 7}}
        await request("tasks/update", taskId=begun["taskId"], inputResponses={"user": wrong, "other": {}})
        assert (await request("tasks/get", taskId=begun["taskId"]))["status"] == "input_required"
        right = {"action": "accept", "content": {"name": "Ann"}}
        await request("tasks/update", taskId=begun["taskId"], inputResponses={"user": right})
        assert (await request.until_over(begun["taskId"]))["result"]["content"][0]["text"] == "hello Ann"

        begun = await request("tools/call", name="pay_later", arguments={"amount": 3})
        told = await request.until_over(begun["taskId"])
        assert list(told["inputRequests"]) == ["toolcell_approval"]
        yes = {"action": "accept", "content": {"approve": True}}
        await request("tasks/update", taskId=begun["taskId"], inputResponses={"toolcell_approval": yes})
        assert (await request.until_over(begun["taskId"]))["result"]["content"][0]["text"] == "paid 3"


async def test_tasks_are_bounded_and_belong_to_their_principal(supervisor: Supervisor, tmp_path: Path) -> None:
    bounds = ServerBounds(tasks=2, task_s=1.0)
    async with (
        ToolServer(supervisor, workspace=tmp_path, bounds=bounds) as server,
        client_of(await server.principal("a")) as first,
        client_of(await server.principal("b")) as second,
    ):
        request, other = Requests(first), Requests(second)
        begun = [await request("tools/call", name="count", arguments={"seconds": 0}) for _ in range(2)]
        with pytest.raises(MCPError, match="Too many tasks"):
            await request("tools/call", name="count", arguments={"seconds": 0})
        with pytest.raises(MCPError, match="There is no task"):
            await other("tasks/get", taskId=begun[0]["taskId"])
        await anyio.sleep(1.1)
        with pytest.raises(MCPError, match="There is no task"):
            await request("tasks/get", taskId=begun[0]["taskId"])
        assert (await request("tools/call", name="count", arguments={"seconds": 0}))["resultType"] == "task"
