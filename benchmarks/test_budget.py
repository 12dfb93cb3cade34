"""Where each microsecond of a warm call goes, and each millisecond of a cell's start."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import anyio
import pytest

from toolcell import Session, Supervisor

from .conftest import Publish
from .interleave import spread
from .replay import recorded_time
from .report import Figure, Stage, amount
from .stamps import Stamp, first_of, kept_stamps, noting, stamps
from .workload import caller, check_whole, kept

pytestmark = pytest.mark.benchmark(timer=recorded_time)

SUPERVISOR, KERNEL, CELL, ZYGOTE = "supervisor", "kernel", "cell", "zygote"

# What was noted at the end of a stage, the stage, and where it happens. Each begins where the one before has ended.
WARM: Sequence[tuple[str, str, str]] = (
    ("to validate", "session.call: resolve the tool", SUPERVISOR),
    ("validated", "validate the arguments", SUPERVISOR),
    ("submitted", "hooks, grants, policy; describe the call", SUPERVISOR),
    ("to write", "find the cell, encode the call, its deadline", SUPERVISOR),
    ("read", "write, wake the cell, read", KERNEL),
    ("decoded", "decode and check the frame", CELL),
    ("tool", "build the context, bind the arguments", CELL),
    ("tool done", "the tool", CELL),
    ("ran", "encode what it returns as JSON data", CELL),
    ("encoded", "flush the streams, encode the frame", CELL),
    ("woken", "write, wake the event loop", KERNEL),
    ("received", "epoll, read, decode and check the frame", SUPERVISOR),
    ("measured", "account what the call used", SUPERVISOR),
    ("resumed", "the caller's task runs again", SUPERVISOR),
    ("rendered", "the result as a model; output schema, length", SUPERVISOR),
    ("returned", "journal, metrics, return", SUPERVISOR),
)
START: Sequence[tuple[str, str, str]] = (
    ("to make a cell", "session.call: route, plan, cgroup", SUPERVISOR),
    ("to ask", "pipes, what to load, the request", SUPERVISOR),
    ("request", "send, wake the zygote, decode", KERNEL),
    ("forked", "prepare the order, fork", ZYGOTE),
    ("start", "session, cgroup", CELL),
    ("namespaces", "unshare the namespaces", CELL),
    ("fork init", "fork the first process of the pid namespace", CELL),
    ("open trees", "clone the mounts", CELL),
    ("mounts", "own root, scratch, attach", CELL),
    ("proc", "mount /proc", CELL),
    ("switch root", "pivot, drop the old root", CELL),
    ("adoption", "the process between exits, adoption", CELL),
    ("descriptors and rlimits", "descriptors, limits", CELL),
    ("privileges", "capabilities, user, no new privileges", CELL),
    ("landlock", "Landlock rules", CELL),
    ("seccomp", "seccomp filter", CELL),
    ("self-test", "self-test", CELL),
    ("told what to load", "Hello, and what to load", CELL),
    ("loaded", "load the tools", CELL),
    ("collected and frozen", "collect garbage, freeze", CELL),
    ("call process forked", "fork the call process", CELL),
    ("scoped", "its own Landlock layer", CELL),
    ("limited", "its own limits", CELL),
    ("reseeded", "randomness of its own", CELL),
    ("warmed up", "warm up", CELL),
    ("tool", "read and decode the call, build, bind", CELL),
    ("received", "the tool, encode, write, wake the supervisor", KERNEL),
    ("returned", "account, result, journal", SUPERVISOR),
)


def test_a_budget_of_a_warm_call(publish: Publish) -> None:
    publish(warm_call, 40)


def test_a_budget_of_a_cell_start(publish: Publish) -> None:
    publish(cell_start, 20)


async def warm_call(rounds: int, workspace: Path) -> Figure:
    """Ten calls a round. The last one gives what the cell has noted in all of them."""
    with noting() as notes:
        async with Supervisor(tools=[kept_stamps]) as supervisor:
            check_whole(supervisor)
            session = await supervisor.open_session("main", workspace=workspace)
            calls: list[tuple[float, float]] = []
            everything: list[Stamp] = []
            for _ in range(10 * rounds):
                notes.taken.clear()
                start = time.perf_counter()
                await _stamps(session, "kept_stamps", give=False)
                calls.append((start, time.perf_counter()))
                everything += notes.taken
            everything += await _stamps(session, "kept_stamps", give=True)
    everything += [("returned", end) for _start, end in calls]
    everything.sort(key=lambda stamp: stamp[1])
    warm = calls[len(calls) // 10 :]
    plain = await _plain(rounds, workspace)
    stages = _stages(WARM, everything, warm)
    with_notes = amount(spread([end - start for start, end in warm]).median, "s")
    notes_ = [f"As noted {with_notes} at the median; without notes, {amount(plain, 's')} in the same run."]
    return Figure("budget-warm", "Where a call of a kept process spends its time", stages=stages, notes=notes_)


async def cell_start(rounds: int, workspace: Path) -> Figure:
    calls: list[tuple[float, float]] = []
    everything: list[Stamp] = []
    with noting() as notes:
        async with Supervisor(tools=[stamps]) as supervisor:
            check_whole(supervisor)
            for _ in range(2 + rounds):
                notes.taken.clear()
                session = await supervisor.open_session("main", workspace=workspace)
                start = time.perf_counter()
                noted = await _stamps(session, "stamps", give=True)
                calls.append((start, time.perf_counter()))
                everything += notes.taken + noted
                await session.close()
                while supervisor.pool.cells:
                    await anyio.sleep(0.002)
    everything += [("returned", end) for _start, end in calls]
    everything.sort(key=lambda stamp: stamp[1])
    total = amount(spread([end - start for start, end in calls[2:]]).median, "s")
    stages = _stages(START, everything, calls[2:])
    return Figure("budget-cell", "Where a new cell spends its time", stages=stages, notes=[f"{total} at the median."])


async def _stamps(session: Session, name: str, *, give: bool) -> list[Stamp]:
    result = await session.call(name, {"give": give})
    return [(each, when) for each, when in cast("list[tuple[str, float]]", result.unwrap())]


async def _plain(rounds: int, workspace: Path) -> float:
    """The median of the same call without notes."""
    async with Supervisor(tools=[kept]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        call = caller(session, "kept")
        taken: list[float] = []
        for _ in range(10 * rounds):
            start = time.perf_counter()
            assert await call("plain") == "plain"
            taken.append(time.perf_counter() - start)
        return spread(taken).median


def _stages(
    names: Sequence[tuple[str, str, str]], noted: Sequence[Stamp], calls: Sequence[tuple[float, float]]
) -> list[Stage]:
    """The seconds of each stage over all calls, each stage from the end of the one before."""
    taken: list[list[float]] = [[] for _ in names]
    for start, end in calls:
        mine = [stamp for stamp in noted if start <= stamp[1] <= end]
        before = start
        for (name, _stage, _where), seconds in zip(names, taken, strict=True):
            when = first_of(mine, name, before)
            seconds.append(when - before)
            before = when
    return [Stage(stage, where, spread(seconds)) for (_n, stage, where), seconds in zip(names, taken, strict=True)]
