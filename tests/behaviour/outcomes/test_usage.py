"""The reported usage of a kept process: each call has its own figures, even if others of its group used more."""

import os
import time
from pathlib import Path

import pytest

from toolcell import Supervisor, tool
from toolcell.supervisor import runtime_of

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.root]
MIB = 1024 * 1024


@tool(lifetime="session")
def take(mib: int, in_child: bool) -> int:
    """Take memory for a moment, in this process or in a child. Return the bytes.

    Args:
        mib: How much.
        in_child: Whether a child takes it.
    """
    if not in_child:
        return len(bytearray(os.urandom(1)) * (mib * MIB))
    pid = os.fork()
    if pid == 0:
        os._exit(int(len(bytearray(os.urandom(1)) * (mib * MIB)) != mib * MIB))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return mib * MIB


@tool(lifetime="session")
def doze() -> None:
    """Run long enough that the process tree is inspected, and use almost nothing."""
    time.sleep(0.05)


@pytest.mark.parametrize("counted", [True, False])
async def test_a_call_that_takes_next_to_nothing_has_a_peak_as_well(counted: bool, tmp_path: Path) -> None:
    async with Supervisor(tools=[doze]) as supervisor:
        if not counted:  # as where no cgroup can be made
            runtime_of(supervisor).pool.slots.tree = None
        session = await supervisor.open_session("main", workspace=tmp_path)
        for _ in range(3):
            result = await session.call("doze", {})
            result.unwrap()
            assert 4 * MIB < result.usage.max_rss_bytes < 64 * MIB


@pytest.mark.parametrize("before", [0, 1])
async def test_what_children_took_hides_nothing_of_what_the_process_takes_later(before: int, tmp_path: Path) -> None:
    async with Supervisor(tools=[take]) as supervisor:
        session = await supervisor.open_session("main", workspace=tmp_path)

        async def most(mib: int, *, in_child: bool) -> float:
            result = await session.call("take", {"mib": mib, "in_child": in_child})
            assert result.unwrap() == mib * MIB
            assert result.usage.memory_bytes > mib * MIB
            return result.usage.max_rss_bytes / MIB

        for _ in range(before):
            assert await most(1, in_child=False) < 40
        assert await most(100, in_child=True) < 40, "its own, not its child's"
        assert 60 < await most(60, in_child=False) < 100
        assert 60 < await most(1, in_child=False) < 100, "a process's peak stays"
