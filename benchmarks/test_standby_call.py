"""A call in a process of its own that was forked ahead, against pools that use one process again and again."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from toolcell import Supervisor
from toolcell.supervisor import runtime_of

from .conftest import Publish
from .floors import ping_pong
from .interleave import PAUSE_S, PAYLOAD_BYTES, Case, calls, interleave
from .peers import anyio_process, enter_pools
from .replay import recorded_time
from .report import Figure
from .workload import caller, check_whole, echo, pids

pytestmark = pytest.mark.benchmark(timer=recorded_time)

APART = f"{PAUSE_S * 1000:g} ms apart"
SAMPLES = 5


def test_a_call_in_a_fresh_process_that_stands_by(publish: Publish) -> None:
    publish(standby_call, 20)


def all_free(supervisor: Supervisor) -> bool:
    """Whether a process stands by in each cell. It warms up then, which takes less than the pause."""
    return all(cell.free for cell in runtime_of(supervisor).pool.cells.values())


async def standby_call(rounds: int, workspace: Path) -> Figure:
    with ExitStack() as stack:
        free = stack.enter_context(ping_pong(SAMPLES, PAYLOAD_BYTES, "free", PAUSE_S))
        pools, absent = enter_pools(stack)
        async with Supervisor(tools=[echo]) as supervisor:
            check_whole(supervisor)
            session = await supervisor.open_session("main", workspace=workspace)
            assert len(await pids(session, "echo")) == 3
            call = caller(session, "echo")
            cases = [
                Case(f"standby, {APART}", "ours", calls(call, SAMPLES, PAUSE_S, partial(all_free, supervisor))),
                Case("standby, back to back", "ours", calls(call, SAMPLES)),
                Case(f"ping-pong, free, {APART}", "floor", free.block),
                Case(f"anyio.to_process, {APART}", "peer", calls(anyio_process, SAMPLES, PAUSE_S)),
                *(Case(f"{name}, {APART}", "peer", calls(pool, SAMPLES, PAUSE_S)) for name, pool in pools.items()),
                Case("ProcessPoolExecutor, back to back", "peer", calls(pools["ProcessPoolExecutor"], SAMPLES)),
            ]
            title = "A call in a fresh process, standby ready"
            return Figure("standby", title, await interleave(cases, rounds), absent)
