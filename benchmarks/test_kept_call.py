"""A call served by a kept process, the whole pipeline on, against what a message to another process costs."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from toolcell import Supervisor

from .conftest import Publish
from .floors import ping_pong
from .interleave import PAYLOAD_BYTES, Case, calls, interleave
from .peers import anyio_process, enter_pools
from .replay import recorded_time
from .report import Figure
from .workload import caller, check_whole, kept, pids

pytestmark = pytest.mark.benchmark(timer=recorded_time)

SAMPLES = 30


def test_a_call_served_by_a_kept_process(publish: Publish) -> None:
    publish(kept_call, 20)


async def kept_call(rounds: int, workspace: Path) -> Figure:
    with ExitStack() as stack:
        floors = {
            placement: stack.enter_context(ping_pong(SAMPLES, PAYLOAD_BYTES, placement))
            for placement in ("free", "two cores", "one core")
        }
        pools, absent = enter_pools(stack)
        async with Supervisor(tools=[kept]) as supervisor:
            check_whole(supervisor)
            session = await supervisor.open_session("main", workspace=workspace)
            assert len(await pids(session, "kept")) == 1
            cases = [
                Case("kept", "ours", calls(caller(session, "kept"), SAMPLES)),
                *(Case(f"ping-pong, {placement}", "floor", floor.block) for placement, floor in floors.items()),
                Case("anyio.to_process", "peer", calls(anyio_process, SAMPLES)),
                *(Case(name, "peer", calls(call, SAMPLES)) for name, call in pools.items()),
            ]
            return Figure("kept", "A call served by a kept process", await interleave(cases, rounds), absent)
