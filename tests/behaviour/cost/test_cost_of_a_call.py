"""The system calls of a warm call, which are the same on every machine, unlike times. Times are in benchmarks/."""

import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import BuiltinFunctionType, FrameType
from typing import Any, cast

import anyio
import pytest

from toolcell import Supervisor, Tool, tool

pytestmark = pytest.mark.trick
MOST = {"fresh": 12, "kept": 10}
"""The system calls of the supervisor for one call, by its tool. Of several calls, the cheapest counts: a timer of the
pool may ring within a call."""
MOST_IN_PROCESS = 3
SYSTEM_CALLS = frozenset(
    {
        *("clock_gettime", "close", "fcntl", "fstat", "fstatvfs", "getrlimit", "getrusage", "lseek", "lstat", "open"),
        *("pidfd_open", "pidfd_send_signal", "pipe2", "poll", "pread", "process_time", "pwrite", "read", "readlink"),
        *("recv", "select", "send", "setrlimit", "stat", "statvfs", "write", "writev"),
    }
)


def fresh(text: str) -> str:
    """Return the text.

    Args:
        text: The text to return.
    """
    return text


def count_here(text: str) -> int:
    """Return how many system calls this process has made since the last call.

    Args:
        text: Not used.
    """
    counts: Counter[str] = sys.__dict__.setdefault("counted_calls", Counter())
    sys.setprofile(None)
    number = counts.total()
    counts.clear()
    sys.setprofile(counted(counts))
    return number


kept: Tool[..., str] = tool(fresh, name="kept", lifetime="session")
counting: Tool[..., int] = tool(count_here, name="counting", lifetime="session")


def counted(counts: Counter[str]) -> Callable[[FrameType, str, Any], None]:
    def count(frame: FrameType, event: str, called: Any) -> None:
        name = cast("BuiltinFunctionType", called).__name__ if event == "c_call" else ""
        if name in SYSTEM_CALLS:
            counts[name] += 1

    return count


async def in_this_process(call: Callable[[], Awaitable[object]]) -> list[Counter[str]]:
    """The system calls of this thread in each of several calls. Pauses keep what one call leaves out of the next."""
    for _ in range(5):
        await call()
    found: list[Counter[str]] = []
    for _ in range(10):
        await anyio.sleep(0.03)
        counts: Counter[str] = Counter()
        sys.setprofile(counted(counts))
        try:
            await call()
        finally:
            sys.setprofile(None)
        found.append(counts)
    return found


@pytest.mark.parametrize("name", MOST)
def test_a_warm_call_takes_no_more_system_calls_in_the_supervisor(tmp_path: Path, name: str) -> None:
    async def main() -> list[Counter[str]]:
        async with Supervisor(tools=[fresh, kept]) as supervisor:
            session = await supervisor.open_session("main", workspace=tmp_path)

            async def call() -> None:
                assert (await session.call(name, {"text": "x"})).unwrap() == "x"

            return await in_this_process(call)

    fewest = min(anyio.run(main), key=Counter.total)
    assert 0 < fewest.total() <= MOST[name], fewest


def test_a_warm_call_takes_no_more_system_calls_in_its_process(tmp_path: Path) -> None:
    async def main() -> list[int]:
        async with Supervisor(tools=[counting]) as supervisor:
            session = await supervisor.open_session("main", workspace=tmp_path)
            return [(await session.call("counting", {"text": "x"})).unwrap() for _ in range(10)]

    assert 0 < min(anyio.run(main)[2:]) <= MOST_IN_PROCESS
