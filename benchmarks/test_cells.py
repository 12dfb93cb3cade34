"""A new session's first call: a cell with all its namespaces, locked down and self-tested, and the answer from it."""

import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from toolcell import Supervisor, base_tools
from toolcell.supervisor import runtime_of

from .conftest import Publish
from .floors import fork_unshare
from .interleave import Block, Case, interleave
from .peers import BARE, Bubblewrap, NotHere
from .replay import recorded_time
from .report import Figure
from .workload import check_whole

pytestmark = pytest.mark.benchmark(timer=recorded_time)

TRUE, PYTHON = "bwrap /bin/true", "bwrap python3 -I -S -c pass"
APART, BEHIND = "first call, sessions 0.1 s apart", "first call, right behind another's"
ALONE = "first call, no cell made ahead"
_REST_S = 0.1  # more than a supervisor waits before it makes another cell ahead, and that cell's own time


def test_a_new_cell(publish: Publish) -> None:
    publish(new_cell, 20)


async def new_cell(rounds: int, workspace: Path) -> Figure:
    (workspace / "note.txt").write_text("a line\n")
    absent: dict[str, str] = {}
    peers: list[Case] = []
    try:
        bubblewrap = Bubblewrap()
    except NotHere as reason:
        absent = dict.fromkeys((TRUE, PYTHON), str(reason))
    else:
        peers = [
            Case(TRUE, "peer", twice(lambda: bubblewrap.sample("/bin/true"))),
            Case(PYTHON, "peer", twice(lambda: bubblewrap.sample(bubblewrap.python, *BARE, "pass"))),
        ]
    with fork_unshare(2) as floor:
        async with Supervisor(tools=base_tools()) as supervisor, Supervisor(tools=base_tools()) as other:
            check_whole(supervisor)
            check_whole(other)
            runtime_of(other).pool.reserve.enabled = False
            cases = [
                Case(APART, "ours", first_calls(supervisor, workspace, rest=True)),
                Case(BEHIND, "ours", first_calls(supervisor, workspace, rest=False)),
                Case(ALONE, "ours", first_calls(other, workspace, rest=True)),
                Case("fork + unshare + fork", "floor", floor.block),
                *peers,
            ]
            return Figure("cell", "A new cell", await interleave(cases, rounds), absent)


def first_calls(supervisor: Supervisor, workspace: Path, *, rest: bool) -> Block:
    """Open a session, call `read`; then, untimed, close it and wait until its cell is gone. Setup, untimed: with
    `rest`, a pause after which a prewarmed cell is ready; otherwise a session that uses the prewarmed cell up."""

    async def first_call() -> float:
        start = time.perf_counter()
        session = await supervisor.open_session("main", workspace=workspace)
        result = await session.call("read", {"path": "note.txt"})
        taken = time.perf_counter() - start
        assert "a line" in str(result.unwrap()), result
        assert not result.sandbox.allowed_missing
        await session.close()
        while runtime_of(supervisor).pool.cells:
            await anyio.sleep(0.001)
        return taken

    async def block() -> list[float]:
        taken: list[float] = []
        for _ in range(2):
            if rest:
                await anyio.sleep(_REST_S)
            else:
                await first_call()
            taken.append(await first_call())
        return taken

    return block


def twice(sample: Callable[[], float]) -> Block:
    async def block() -> list[float]:
        return [sample(), sample()]

    return block
