"""Kills at random moments under load: no result is lost, duplicated or raised, each error is typed, and all calls work
again.
"""

import os
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import psutil
import pytest
from tests import zygotes

from toolcell import (
    Capability,
    Crashed,
    ErrorBase,
    Overloaded,
    SandboxUnavailable,
    Session,
    Supervisor,
    Timeout,
    ToolResult,
    host_tool,
    tool,
)

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
KILLS = 40
LONGEST_S = 120.0  # for so many kills: the pool waits longer after each zygote that dies before it has made a cell
CALL_S = 3.0
LATE_S = 10.0  # what a busy machine may add to a deadline
calls: list[int] = []


@tool(needs={Capability.WRITE})
def once(number: int) -> int:
    """Make a file that no call has made before.

    Args:
        number: The file's name and the value to return.
    """
    os.close(os.open(str(number), os.O_CREAT | os.O_EXCL))
    return number


@tool
def slow(number: int) -> int:
    """Start a child, and sleep.

    Args:
        number: What to return.
    """
    if os.fork() == 0:
        time.sleep(10.0)
    time.sleep(0.05)
    return number


@tool
def large(number: int) -> list[int]:
    """Return more than a pipe holds, so that a kill may hit the frame.

    Args:
        number: The beginning of the text.
    """
    return [number, *range(60_000)]


@tool(lifetime="session")
def kept(number: int) -> list[int]:
    """Count the calls of this process.

    Args:
        number: What to return, before the count.
    """
    calls.append(number)
    return [number, len(calls)]


@host_tool
def here(number: int) -> int:
    """Return the value from a thread.

    Args:
        number: What to return.
    """
    return number


TOOLS = [once, slow, large, kept, here]
NAMES = ["once", "slow", "large", "kept", "here"]


def number_in(result: ToolResult) -> object:
    return result.output[0] if isinstance(result.output, list) else result.output


def assert_typed(error: ErrorBase) -> None:
    """Check that an outside kill is never reported as the tool's own fault."""
    assert isinstance(error, (Crashed, SandboxUnavailable, Overloaded, Timeout)), error
    if isinstance(error, (SandboxUnavailable, Overloaded)):
        assert error.retryable and error.retry_after_s is not None, error


class Monkey:
    """Kills processes of this test at random, from a fixed seed: mostly calls and inits, sometimes zygotes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.killed: Counter[str] = Counter()
        self.is_over = False

    async def run(self) -> None:
        """Kill `KILLS` processes, at least one of each kind."""
        until = time.monotonic() + LONGEST_S
        while (self.killed.total() < KILLS or len(self.killed) < 3) and time.monotonic() < until:
            await anyio.sleep(self.random.uniform(0.002, 0.03))
            for victim, what in self.victims():
                try:
                    victim.send_signal(signal.SIGKILL)
                    self.killed[what] += 1
                except (psutil.Error, OSError):
                    pass  # it has ended by itself, or there is no descriptor to look with
        self.is_over = True

    def victims(self) -> Iterator[tuple[psutil.Process, str]]:
        try:
            alive = zygotes.alive()
            if alive and self.random.random() < 0.06:
                yield self.random.choice(alive), "zygote"
                return
            parents = {zygote.pid for zygote in alive}
            below = [process for zygote in parents for process in zygotes.descendants(zygote)]
            if below:
                victim = self.random.choice(below)
                yield victim, "init" if victim.ppid() in parents else "call"
        except (psutil.Error, OSError):
            return


class Load:
    """Sessions that call one tool after the other."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.number = 0
        self.results: dict[int, ToolResult] = {}
        self.late: list[float] = []
        self.untold: list[ToolResult] = []

    async def run(self, session: Session, is_over: Callable[[], bool]) -> None:
        counted = 0
        while not is_over():
            self.number += 1
            number, name = self.number, self.random.choice(NAMES)
            started = time.monotonic()
            result = await session.call(name, {"number": number}, timeout=CALL_S)
            if time.monotonic() - started > CALL_S + LATE_S:
                self.late.append(time.monotonic() - started)
            assert number not in self.results
            self.results[number] = result
            if name == "kept" and result.error is None:
                now = result.output[1]
                if now <= counted and not result.notices:
                    self.untold.append(result)
                counted = now
            await anyio.sleep(0 if result.error is None else 0.02)


@pytest.fixture(params=[0, 256], ids=["as it is", "ulimit -n 256"])
def descriptors(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set the limit of descriptors to the parameter; 0 keeps the present limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (request.param or soft, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("descriptors")
async def test_kills_at_random_cost_their_calls_a_typed_error_and_nothing_else(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    monkey, load = Monkey(seed=11), Load(seed=12)
    async with supervise(TOOLS) as supervisor:
        sessions = [await supervisor.open_session("main", workspace=workspace) for _ in range(6)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(monkey.run)
            for session in sessions:
                tasks.start_soon(load.run, session, lambda: monkey.is_over)
        assert len(load.results) == load.number, "none is lost"
        for number, result in load.results.items():
            if result.error is None:
                assert number_in(result) == number
            else:
                assert_typed(result.error)
        assert load.late == [] and load.untold == []
        assert sum(result.error is None for result in load.results.values()) > 5, "the load did something"
        assert monkey.killed.total() >= KILLS, monkey.killed
        assert all(monkey.killed[what] for what in ("call", "init", "zygote")), monkey.killed
        for session in sessions:
            for name in NAMES:
                load.number += 1
                after = await session.call(name, {"number": load.number}, timeout=25.0)
                assert after.error is None and number_in(after) == load.number, (name, after.error)


async def test_bursts_that_kill_everything_at_once_are_survived(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    """Like the kernel when memory runs out: kill all zygotes, cells and calls, four times within two seconds."""
    load = Load(seed=13)
    async with supervise(TOOLS) as supervisor:
        sessions = [await supervisor.open_session("main", workspace=workspace) for _ in range(4)]
        until = time.monotonic() + 3.0
        async with anyio.create_task_group() as tasks:
            for session in sessions:
                tasks.start_soon(load.run, session, lambda: time.monotonic() > until)
            for _ in range(4):
                await anyio.sleep(0.5)
                alive = zygotes.alive()
                below = [process for zygote in alive for process in zygotes.descendants(zygote.pid)]
                for process in (*alive, *below):
                    try:
                        process.send_signal(signal.SIGKILL)
                    except psutil.NoSuchProcess:
                        pass
        for result in load.results.values():
            if result.error is not None:
                assert_typed(result.error)
        for session in sessions:
            load.number += 1
            assert (await session.call("once", {"number": load.number}, timeout=25.0)).unwrap() == load.number
