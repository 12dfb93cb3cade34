"""The cost of a warm call, as counts, which are the same on every machine, unlike times.

Each count is compared with a recorded baseline. Times are in benchmarks/.
"""

import os
import resource
import sys
import tomllib
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import BuiltinFunctionType, FrameType
from typing import Any, cast

import anyio
import pytest

from toolcell import Supervisor, Tool, tool

pytestmark = pytest.mark.trick
BASELINE = Path(__file__).with_name("baseline.toml")
"""What was counted last. `TOOLCELL_RECORD_COSTS=1 pytest -n 0 tests/behaviour/cost` counts anew."""
TOLERANCE = 1.1
"""Hosts and versions of Python differ by less. Of several calls, the cheapest counts: a timer of the pool that rings
within a call adds some thirty function calls, and the first call in a while sets the alarm for the next process."""
TOLERANCE_FOR_PAGES = 1.25
"""How many pages are mapped by one fault depends on what the page cache holds and on where the libraries lie: counts of
128 to 141 were seen. Without its cheapest trick (code that is handed on), a forked process has 44 more."""
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


def count_here(text: str) -> list[int]:
    """Return how many functions this process has called since the last call, and how many of them were system calls.

    Args:
        text: Not used.
    """
    counts: Counter[str] = sys.__dict__.setdefault("counted_calls", Counter())
    sys.setprofile(None)
    numbers = [counts.total(), system_calls(counts)]
    counts.clear()
    sys.setprofile(counted(counts))
    return numbers


def page_faults(text: str) -> int:
    """Return how many pages this process has requested.

    Args:
        text: Not used.
    """
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


kept: Tool[..., str] = tool(fresh, name="kept", lifetime="session")
counting: Tool[..., list[int]] = tool(count_here, name="counting", lifetime="session")


def counted(counts: Counter[str]) -> Callable[[FrameType, str, Any], None]:
    def count(frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            counts["(Python)"] += 1
        elif event == "c_call":
            counts[cast("BuiltinFunctionType", called).__name__] += 1

    return count


async def in_this_process(call: Callable[[], Awaitable[object]]) -> list[Counter[str]]:
    """The calls of this thread for each of several calls, with pauses, so that nothing is left over from the last."""
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


def system_calls(counts: Counter[str]) -> int:
    return sum(number for name, number in counts.items() if name in SYSTEM_CALLS)


def assert_near_baseline(name: str, counted: int, detail: object = "", *, tolerance: float = TOLERANCE) -> None:
    """Compare a count with `tolerance` times the baseline, or record it."""
    baseline = tomllib.loads(BASELINE.read_text())
    if os.environ.get("TOOLCELL_RECORD_COSTS"):
        baseline[name] = counted
        BASELINE.write_text("".join(f"{key} = {number}\n" for key, number in sorted(baseline.items())))
    assert 0 < counted <= tolerance * baseline[name], (counted, baseline[name], detail)


@pytest.mark.parametrize("name", ["kept", "fresh"])
def test_a_warm_call_takes_no_more_function_and_system_calls_in_the_supervisor(tmp_path: Path, name: str) -> None:
    async def main() -> list[Counter[str]]:
        async with Supervisor(tools=[fresh, kept]) as supervisor:
            session = await supervisor.open_session("main", workspace=tmp_path)

            async def call() -> None:
                assert (await session.call(name, {"text": "x"})).unwrap() == "x"

            return await in_this_process(call)

    found = anyio.run(main)
    cheapest = min(found, key=lambda counts: counts.total())
    assert_near_baseline(f"{name}_supervisor_calls", cheapest.total(), cheapest.most_common(30))
    fewest = min(found, key=system_calls)
    assert_near_baseline(f"{name}_supervisor_system_calls", system_calls(fewest), fewest)


def test_a_warm_call_takes_no_more_function_and_system_calls_in_its_process(tmp_path: Path) -> None:
    async def main() -> list[list[int]]:
        async with Supervisor(tools=[counting]) as supervisor:
            session = await supervisor.open_session("main", workspace=tmp_path)
            results = [await session.call("counting", {"text": "x"}) for _ in range(10)]
            return [cast("list[int]", result.unwrap()) for result in results[2:]]

    functions, system = min(anyio.run(main))
    assert_near_baseline("kept_process_calls", functions)
    assert_near_baseline("kept_process_system_calls", system)


def test_a_process_that_was_forked_for_its_call_has_pages_of_its_own_only_where_it_must(tmp_path: Path) -> None:
    async def main() -> list[int]:
        async with Supervisor(tools=[page_faults], standby=0) as supervisor:
            session = await supervisor.open_session("main", workspace=tmp_path)
            results = [await session.call("page_faults", {"text": "x"}) for _ in range(5)]
            return [cast("int", result.unwrap()) for result in results]

    faults = min(anyio.run(main))  # mostly pages that it wrote to
    assert_near_baseline("on_demand_page_faults", faults, tolerance=TOLERANCE_FOR_PAGES)
