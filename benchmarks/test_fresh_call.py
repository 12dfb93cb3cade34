"""A call in a process that is forked for it when it comes, against programs started for each call."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from toolcell import Supervisor

from .conftest import Publish
from .floors import fork_exit_wait
from .interleave import PAUSE_S, Case, calls, interleave
from .peers import Bubblewrap, Echo, NotHere, sandlock_python, subprocess_python
from .replay import recorded_time
from .report import Figure
from .workload import caller, check_whole, echo, pids

pytestmark = pytest.mark.benchmark(timer=recorded_time)

APART = f"{PAUSE_S * 1000:g} ms apart"


def test_a_call_in_a_process_forked_on_demand(publish: Publish) -> None:
    publish(fresh_call, 20)


async def fresh_call(rounds: int, workspace: Path) -> Figure:
    with ExitStack() as stack:
        fork = stack.enter_context(fork_exit_wait(10))
        fork_apart = stack.enter_context(fork_exit_wait(5, PAUSE_S))
        bare = stack.enter_context(fork_exit_wait(10, bare=True))
        bare_apart = stack.enter_context(fork_exit_wait(5, PAUSE_S, bare=True))
        programs: dict[str, Echo] = {"subprocess + Python": subprocess_python}
        absent: dict[str, str] = {}
        try:
            programs["bwrap + Python"] = Bubblewrap().echo
        except NotHere as reason:
            absent["bwrap + Python"] = str(reason)
        try:
            programs["sandlock + Python"] = stack.enter_context(sandlock_python())
        except NotHere as reason:
            absent["sandlock + Python"] = str(reason)
        async with Supervisor(tools=[echo], standby=0) as supervisor:
            check_whole(supervisor)
            session = await supervisor.open_session("main", workspace=workspace)
            assert len(await pids(session, "echo")) == 3
            call = caller(session, "echo")
            cases = [
                Case(f"on demand, {APART}", "ours", calls(call, 5, PAUSE_S)),
                Case("on demand, back to back", "ours", calls(call, 5)),
                Case("fork + exit + wait, as a zygote", "floor", fork.block),
                Case(f"fork + exit + wait, as a zygote, {APART}", "floor", fork_apart.block),
                Case("fork + exit + wait, bare interpreter", "floor", bare.block),
                Case(f"fork + exit + wait, bare interpreter, {APART}", "floor", bare_apart.block),
                *(Case(name, "peer", calls(program, 1)) for name, program in programs.items()),
            ]
            title = "A call in a fresh process, none ready"
            return Figure("fresh", title, await interleave(cases, rounds), absent)
