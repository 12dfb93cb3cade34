"""From the moment a call process is killed to the answer of the session's next call."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from toolcell import Session, Supervisor, ToolResult
from toolcell.supervisor import runtime_of

from .conftest import Publish
from .floors import fork_exit_wait
from .interleave import Block, Case, interleave
from .peers import executor_crash
from .processes import of_the_call
from .replay import recorded_time
from .report import Figure
from .workload import HANG, check_whole, echo, kept

pytestmark = pytest.mark.benchmark(timer=recorded_time)

SAMPLES = 3


def test_a_crash_and_the_next_call(publish: Publish) -> None:
    publish(crash, 15)


async def crash(rounds: int, workspace: Path) -> Figure:
    with fork_exit_wait(SAMPLES) as fork:
        async with Supervisor(tools=[echo, kept]) as ahead, Supervisor(tools=[echo], standby=0) as demanded:
            check_whole(ahead)
            first = await ahead.open_session("main", workspace=workspace)
            second = await demanded.open_session("main", workspace=workspace)
            cases = [
                Case("standby", "ours", crashes(first, ahead, "echo", "next")),
                Case("standby, until the error is there", "ours", crashes(first, ahead, "echo", "error")),
                Case("kept process", "ours", crashes(first, ahead, "kept", "next")),
                Case("forked on demand", "ours", crashes(second, demanded, "echo", "next")),
                Case("fork + exit + wait, as a zygote", "floor", fork.block),
                Case("ProcessPoolExecutor, made anew", "peer", peer(executor_crash)),
            ]
            title = "A crash: from the signal to the answer of the next call"
            return Figure("crash", title, await interleave(cases, rounds))


def peer(sample: Callable[[], float]) -> Block:
    async def block() -> list[float]:
        return [sample()]

    return block


def crashes(session: Session, supervisor: Supervisor, name: str, until: str) -> Block:
    async def block() -> list[float]:
        return [await one(session, supervisor, name, until) for _ in range(SAMPLES)]

    return block


async def one(session: Session, supervisor: Supervisor, name: str, until: str) -> float:
    """Let a call hang, kill its process, and call again."""
    assert (await session.call(name, {"text": "before"})).unwrap() == "before"
    await anyio.sleep(0.02)
    times: dict[str, float] = {}

    async def call() -> None:
        result: ToolResult = await session.call(name, {"text": HANG})
        times["error"] = time.perf_counter()
        assert result.error is not None and result.error.kind == "crashed", result
        after = await session.call(name, {"text": "after"})
        times["next"] = time.perf_counter()
        assert after.unwrap() == "after"

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await anyio.sleep(0.01)
        (cell,) = [
            each
            for each in runtime_of(supervisor).pool.cells.values()
            if bool(each.spec.key.kept_tool) == (name == "kept")
        ]
        (pid,) = of_the_call(cell.pid)
        start = time.perf_counter()
        os.kill(pid, signal.SIGSEGV)
    return times[until] - start
