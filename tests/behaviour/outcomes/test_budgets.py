"""Bounds on what hostile calls keep waiting in the supervisor. Its memory is measured in a separate process.

One call may take 64 MiB beyond its result, and many concurrent calls 250 or 300 MiB. An innocent session beside them
gets its results. Without budgets, single calls took 130 to 2,200 MiB, and many
concurrent calls 500 and 610.
"""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import misbehaving as m
from tests import programs

from toolcell import Capability, HttpReply, HttpRequest, Limits, MemoryRecord, Profile, SessionKind, Supervisor, tool
from toolcell.supervisor import runtime_of
from toolcell_tools.context import ToolContext
from toolcell_tools.handles import HttpHandle

PROGRAM = Path(__file__).with_name("budgets.py")
ONE_MIB = 64.0
MIB = 1024 * 1024
RESULT_MIB = {"half": 16.0}
ENDS = {"output": "limit_exceeded"}
ALONE = ("memory", "requests", "text", "objects", "progress", "logs", "output", "commands", "half")
MANY = {"requests": (60, 250.0), "half": (40, 300.0)}
"""Those that take the most of many calls at once: how many, and MiB."""


@cache
def measured(calls: int, *names: str) -> dict[str, dict[str, Any]]:
    """The program's output for `calls` concurrent calls of each tool, by the tool's name."""
    command = [sys.executable, "-I", str(PROGRAM), str(calls), *names]
    done = programs.run(command, fork_zygotes=True)
    assert done.returncode == 0, done.stderr
    return {record["name"]: record for record in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", ALONE)
def test_one_hostile_call_cannot_fill_the_supervisor(name: str) -> None:
    found = measured(1, *ALONE)[name]
    assert found["growth"] <= ONE_MIB + RESULT_MIB.get(name, 0.0)
    assert found["endings"] == {ENDS.get(name, "timeout"): 1}
    assert not found["wrong"]


@pytest.mark.parametrize("name", MANY)
def test_many_hostile_calls_at_once_cannot_fill_the_supervisor(name: str) -> None:
    calls, most = MANY[name]
    found = measured(calls, name)[name]
    assert found["growth"] <= most
    assert_held(found, calls)


def assert_held(found: dict[str, Any], calls: int) -> None:
    """Check that the calls ended at their deadlines, and that the innocent session's calls did as they should."""
    ends = found["endings"]  # on few processors, some may have got no process within their time
    assert ends.get("timeout", 0) and sum(ends.values()) == calls
    assert ends.keys() <= {"timeout", "overloaded"}
    assert not found["wrong"]


# -- whoever means well is held up, and not stuck ---------------------------------------------------------------------


class Slow:
    """An HTTP client whose answers have 7 MiB, and a memory that never answers."""

    def __init__(self) -> None:
        self.asked = 0

    async def send(self, request: HttpRequest) -> HttpReply:
        self.asked += 1
        assert len(request.body) == 4 * MIB
        await anyio.sleep(0.01)
        assert request.grow is not None
        await request.grow(request.max_bytes)
        return HttpReply(200, body=bytes(7 * MIB))

    async def search(self, query: str, *, limit: int, namespace: str) -> list[MemoryRecord]:
        await anyio.sleep_forever()
        return []

    async def store(self, record: MemoryRecord, *, namespace: str) -> str:
        return ""


def _http(ctx: ToolContext) -> HttpHandle:
    assert ctx.http is not None
    return ctx.http


@tool(needs={Capability.HTTP})
async def post_much(ctx: ToolContext) -> int:
    """Send 30 requests of 4 MiB at once, and count the bytes of the answers."""
    import asyncio

    http = _http(ctx)

    async def one() -> int:
        answer = await http.arequest("POST", "https://a.example.org/", body=bytes(4 * 1024 * 1024))
        ctx.progress("one more")
        return len(answer.body)

    return sum(await asyncio.gather(*[one() for _ in range(30)]))


@tool(needs={Capability.HTTP})
async def give_up_and_return_much(ctx: ToolContext) -> str:
    """Send 12 requests of 4 MiB, wait for none of them, and return 10 MiB."""
    import asyncio

    http = _http(ctx)
    asking = [http.arequest("POST", "https://a.example.org/", body=bytes(4 * 1024 * 1024)) for _ in range(12)]
    tasks = [asyncio.ensure_future(each) for each in asking]
    await asyncio.sleep(0)
    await asyncio.sleep(0.3)
    for task in tasks:
        task.cancel()
    return "x" * (10 * 1024 * 1024)


@tool(needs={Capability.HTTP})
def send_too_much(ctx: ToolContext) -> None:
    """Send a request that is too large for a frame."""
    _http(ctx).request("POST", "https://a.example.org/", body=bytes(5 * 1024 * 1024))


@tool
def log_too_much(ctx: ToolContext) -> None:
    """Log more than one message may contain."""
    ctx.log("much", values=list(range(20_000)))


@tool
def return_much(mib: int) -> str:
    """Return a long text.

    Args:
        mib: Its length.
    """
    return "x" * (mib * 1024 * 1024)


PROFILE = Profile.for_kind("main").replace(
    limits=Limits(wall_s=30.0, cpu_s=30.0, memory_bytes=512 * MIB), http=["* https://a.example.org"]
)
TOOLS: list[Any] = [
    post_much,
    give_up_and_return_much,
    send_too_much,
    log_too_much,
    return_much,
    tool(m.sleep_for_ever),
]
pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.usefixtures("warm")]


def supervisor(slow: Slow, **options: Any) -> Supervisor:
    half = tool(m.send_all_but_the_end_of_a_result)
    return Supervisor([*TOOLS, half], profiles={SessionKind.MAIN: PROFILE}, http=slow, **options)


async def test_an_async_tool_with_more_in_flight_than_there_is_room_for_gets_every_answer(workspace: Path) -> None:
    slow = Slow()
    async with supervisor(slow) as running:
        session = await running.open_session("main", workspace=workspace, memory=slow)
        result = await session.call("post_much", {})
        assert result.unwrap() == 30 * 7 * MIB and slow.asked == 30
        assert [budget.drawn for budget in runtime_of(running).pool.budgets.all] == [0, 0, 0]


async def test_a_large_result_comes_in_behind_requests_that_nobody_waits_for_any_more(workspace: Path) -> None:
    slow = Slow()
    async with supervisor(slow) as running:
        session = await running.open_session("main", workspace=workspace, memory=slow)
        assert len((await session.call("give_up_and_return_much", {}, timeout=20.0)).unwrap()) == 10 * MIB
        assert (await session.call("return_much", {"mib": 1})).unwrap() == "x" * MIB


async def test_large_results_of_many_calls_at_once_all_come_in(workspace: Path) -> None:
    async with supervisor(Slow(), max_cells=24) as running:
        lengths: list[int] = []

        async def one(number: int) -> None:
            session = await running.open_session("main", workspace=workspace / str(number))
            lengths.append(len((await session.call("return_much", {"mib": 15}, timeout=120.0)).unwrap()))

        async with anyio.create_task_group() as group:
            for number in range(16):
                group.start_soon(one, number)
        assert lengths == [15 * MIB] * 16
        assert [budget.drawn for budget in runtime_of(running).pool.budgets.all] == [0, 0, 0]


async def test_what_stalls_within_its_result_is_ended_where_others_wait_for_its_room(workspace: Path) -> None:
    async with supervisor(Slow(), max_cells=24) as running:
        kinds: list[str] = []

        async def stall(number: int) -> None:
            session = await running.open_session("main", workspace=workspace / str(number))
            result = await session.call("send_all_but_the_end_of_a_result", {"size": 15 * MIB}, timeout=25.0)
            kinds.append("" if result.error is None else result.error.kind)

        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(stall, number)
            await anyio.sleep(1.5)
            session = await running.open_session("main", workspace=workspace / "innocent")
            assert len((await session.call("return_much", {"mib": 15}, timeout=25.0)).unwrap()) == 15 * MIB
            group.cancel_scope.cancel()
        assert "protocol_violation" in kinds


@pytest.mark.parametrize(
    ("name", "words"), [("send_too_much", "request of http.request is too large"), ("log_too_much", "report is too")]
)
async def test_what_is_too_large_to_be_sent_is_an_error_that_says_what_to_do(
    workspace: Path, name: str, words: str
) -> None:
    async with supervisor(Slow()) as running:
        session = await running.open_session("main", workspace=workspace)
        result = await session.call(name, {})
        assert result.error is not None and result.error.kind == "execution"
        assert words in result.error.message and "less at a time" in result.error.message
