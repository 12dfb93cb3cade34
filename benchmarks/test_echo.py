"""A text to a kept process and back, small and large, against copying as many bytes over a socket pair."""

import itertools
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from toolcell import Supervisor
from toolcell.dispatch.overflow import MOST_JSON

from .conftest import Publish
from .floors import copy_and_back
from .interleave import Block, Case, interleave
from .peers import executor
from .replay import recorded_time
from .report import Figure
from .workload import caller, check_whole, kept

pytestmark = pytest.mark.benchmark(timer=recorded_time)

SIZES = {"1 KB": 1024, "100 KB": 100 * 1024, "10 MB": 10 * 1024 * 1024}
SAMPLES = {"1 KB": 20, "100 KB": 10, "10 MB": 1}


@pytest.mark.parametrize("size", SIZES)
def test_an_echo(publish: Publish, size: str) -> None:
    publish(partial(echoes, size), 12)


async def echoes(size: str, rounds: int, workspace: Path) -> Figure:
    with copy_and_back(SAMPLES[size], SIZES[size]) as floor, executor() as pool:
        # A long result is also written to a file for the model's sake, and measured for that, which is another figure.
        async with Supervisor(tools=[kept], model_bytes=MOST_JSON * 2 * max(SIZES.values())) as supervisor:
            check_whole(supervisor)
            session = await supervisor.open_session("main", workspace=workspace)
            cases = [
                Case("kept", "ours", echo(caller(session, "kept"), size)),
                Case("socketpair, copied there and back", "floor", floor.block),
                Case("ProcessPoolExecutor", "peer", echo(pool, size)),
            ]
            return Figure(f"echo-{size}", f"Echo of {size}", await interleave(cases, rounds))


def echo(call: Callable[[str], Awaitable[str]], size: str) -> Block:
    serial = itertools.count()

    async def block() -> list[float]:
        taken: list[float] = []
        for _ in range(SAMPLES[size]):
            text = f"{next(serial):016d}" * (SIZES[size] // 16)
            start = time.perf_counter()
            reply = await call(text)
            taken.append(time.perf_counter() - start)
            assert reply == text
        return taken

    return block
