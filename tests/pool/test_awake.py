"""An event loop is kept awake for a moment, serves all else meanwhile, and sleeps where a core is contended."""

import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from toolcell.pool import reactor
from toolcell.pool.reactor import Awake

pytestmark = pytest.mark.trick
LONG_S = 0.05


@pytest.fixture(autouse=True)
def cores() -> Iterator[set[int]]:
    """The cores that this thread may use, at least two, and afterwards again."""
    mine = os.sched_getaffinity(0)
    assert len(mine) > 1, "this trick is for machines with several cores"
    yield mine
    os.sched_setaffinity(0, mine)


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reactor, "MOST_SWITCHES", float("inf"))


async def slept_s(kept_awake: Awake | None) -> float:
    """The longest time that the loop wants to sleep within `LONG_S`, in which it is to be kept awake."""
    loop = asyncio.get_running_loop()
    selector: Any = cast("Any", loop)._selector
    wanted: list[float] = []
    select = selector.select

    def noted(timeout: float | None = None) -> object:
        wanted.append(timeout or 0.0)
        return select(timeout)

    selector.select = noted
    if kept_awake is not None:
        kept_awake.stay(time.monotonic() + 3600.0)
    await asyncio.sleep(LONG_S)
    selector.select = select
    if kept_awake is not None:
        kept_awake.until = 0.0
    return max(wanted)


async def until_it_sleeps(kept_awake: Awake | None = None) -> None:
    """A loop that another program holds up for `LONG_S` finds that it need not sleep: try again."""
    while await slept_s(kept_awake) == 0.0:
        pass


@pytest.mark.usefixtures("calm")
def test_a_loop_that_stays_awake_does_not_sleep_and_serves_timers() -> None:
    async def main() -> None:
        assert await slept_s(Awake(asyncio.get_running_loop())) == 0.0
        await until_it_sleeps()

    asyncio.run(main())


@pytest.mark.usefixtures("calm")
def test_a_loop_sleeps_again_when_the_answer_is_there_or_its_moment_is_over() -> None:
    async def main() -> None:
        kept_awake = Awake(asyncio.get_running_loop())
        kept_awake.stay(time.monotonic() + 3600.0)
        kept_awake.until = 0.0
        await until_it_sleeps()
        kept_awake.stay(time.monotonic() + 0.001)
        await asyncio.sleep(0.01)
        await until_it_sleeps()

    asyncio.run(main())


def test_a_loop_that_loses_its_core_to_another_program_sleeps(cores: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reactor, "MOST_SWITCHES", 0.0)

    async def main() -> None:
        kept_awake = Awake(asyncio.get_running_loop())
        kept_awake.stay(time.monotonic())  # the first look
        os.sched_setaffinity(0, {min(cores)})
        with subprocess.Popen([sys.executable, "-I", "-c", "while True: pass"]) as other:  # on the same core
            try:
                lost = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
                while resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw == lost:
                    pass
                await until_it_sleeps(kept_awake)
            finally:
                other.kill()

    asyncio.run(main())


@pytest.mark.usefixtures("calm")
def test_with_one_core_a_loop_sleeps(cores: set[int]) -> None:
    async def main() -> None:
        os.sched_setaffinity(0, {min(cores)})
        await until_it_sleeps(Awake(asyncio.get_running_loop()))

    asyncio.run(main())
