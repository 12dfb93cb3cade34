"""One call in a cell that is there already: to a kept process, to a standby, to a process forked on demand."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from toolcell import Supervisor

from .conftest import Publish
from .floors import fork_exit_wait, ping_pong
from .interleave import PAUSE_S, PAYLOAD_BYTES, Case, calls, interleave
from .peers import anyio_process, process_pool
from .replay import recorded_time
from .report import Figure
from .workload import caller, check_whole, echo, kept, pids

pytestmark = pytest.mark.benchmark(timer=recorded_time)

APART = f"{PAUSE_S * 1000:g} ms apart"


def test_a_warm_call(publish: Publish) -> None:
    publish(warm_call, 20)


def test_a_call_in_a_process_forked_on_demand(publish: Publish) -> None:
    publish(fresh_process, 20)


async def warm_call(rounds: int, workspace: Path) -> Figure:
    with ExitStack() as stack:
        enter = stack.enter_context
        one_core = enter(ping_pong(30, PAYLOAD_BYTES, "one core"))
        two_cores = enter(ping_pong(30, PAYLOAD_BYTES, "two cores"))
        free = enter(ping_pong(30, PAYLOAD_BYTES, "free"))
        free_apart = enter(ping_pong(5, PAYLOAD_BYTES, "free", PAUSE_S))
        pool = enter(process_pool())
        async with Supervisor(tools=[echo, kept]) as supervisor:
            check_whole(supervisor)
            session = await supervisor.open_session("main", workspace=workspace)
            assert len(await pids(session, "kept")) == 1
            assert len(await pids(session, "echo")) == 3
            cases = [
                Case("kept", "ours", calls(caller(session, "kept"), 30)),
                Case(f"standby, {APART}", "ours", calls(caller(session, "echo"), 5, PAUSE_S)),
                Case("standby, back to back", "ours", calls(caller(session, "echo"), 10)),
                Case("ping-pong, one core", "floor", one_core.block),
                Case("ping-pong, two cores", "floor", two_cores.block),
                Case("ping-pong, free", "floor", free.block),
                Case(f"ping-pong, free, {APART}", "floor", free_apart.block),
                Case("anyio.to_process", "peer", calls(anyio_process, 30)),
                Case(f"anyio.to_process, {APART}", "peer", calls(anyio_process, 5, PAUSE_S)),
                Case("ProcessPoolExecutor", "peer", calls(pool, 30)),
            ]
            return Figure("1. A warm call", await interleave(cases, rounds))


async def fresh_process(rounds: int, workspace: Path) -> Figure:
    with fork_exit_wait(10) as fork, fork_exit_wait(5, PAUSE_S) as fork_apart:
        async with Supervisor(tools=[echo], standby=0) as supervisor:
            check_whole(supervisor)
            session = await supervisor.open_session("main", workspace=workspace)
            assert len(await pids(session, "echo")) == 3
            call = caller(session, "echo")
            cases = [
                Case(f"on demand, {APART}", "ours", calls(call, 5, PAUSE_S)),
                Case("on demand, back to back", "ours", calls(call, 5)),
                Case("fork + exit + wait", "floor", fork.block),
                Case(f"fork + exit + wait, {APART}", "floor", fork_apart.block),
            ]
            return Figure("2. A call in a process forked on demand", await interleave(cases, rounds))
