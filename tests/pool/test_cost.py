"""What a warm call costs the supervisor, counted rather than timed: noise does not hide that it has become dearer."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from toolcell import Session, tool

CALLS = 50
READS = 4  # the frames of the answer; processor time of the cgroup, before and after; its peak of memory
WRITES = 2  # the call; the peak of memory, set back
FUNCTIONS = 205  # of Python, entered by the whole pipeline, those of the event loop among them


@tool(lifetime="session")
def echo(x: int) -> int:
    """Give it back."""
    return x


TOOLS = [echo]


@pytest.fixture(scope="module", params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Trio's loop makes calls of its own."""
    yield request.param


def read_and_write_calls() -> tuple[int, int]:
    """System calls of this process that read and that wrote so far, whatever of (proc_pid_io(5))."""
    found = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(found["syscr"]), int(found["syscw"])


async def warm(session: Session) -> None:
    for number in range(CALLS):
        assert (await session.call("echo", {"x": number})).output == number


@pytest.mark.anyio
async def test_system_calls_of_a_kept_call_do_not_grow_unnoticed(main: Session) -> None:
    await warm(main)
    before = read_and_write_calls()
    await warm(main)
    after = read_and_write_calls()
    reads, writes = ((now - then) / CALLS for now, then in zip(after, before, strict=True))
    assert reads < READS + 1 and writes < WRITES + 1, f"{reads:.1f} reads and {writes:.1f} writes for each call"


@pytest.mark.anyio
async def test_functions_entered_by_a_kept_call_do_not_grow_unnoticed(main: Session) -> None:
    entered = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal entered
        entered += event == "call"

    await warm(main)
    sys.setprofile(count)
    try:
        await warm(main)
    finally:
        sys.setprofile(None)
    assert entered / CALLS < FUNCTIONS, f"{entered / CALLS:.1f} functions for each call"
