"""Where each microsecond of a warm call goes, and each millisecond of a cell's start."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import anyio
import pytest

from toolcell import Session, Supervisor
from toolcell.supervisor import runtime_of

from .conftest import Publish
from .interleave import spread
from .replay import recorded_time
from .report import Figure, Stage, amount
from .stamps import Stamp, first_of, kept_stamps, noting, stamps
from .workload import caller, check_whole, kept

pytestmark = pytest.mark.benchmark(timer=recorded_time)

_AHEAD_S = 0.15  # more than passes before something is made ahead, and what that takes
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
AHEAD: Sequence[tuple[str, str, str]] = (
    ("forked", "plan, fork", ZYGOTE),
    ("start", "session, oom score", CELL),
    ("namespaces", "unshare the namespaces", CELL),
    ("fork init", "tell the zygote", CELL),
    ("proc", "bounding set, new root, /proc", CELL),
    ("root", "pivot; devices and the system's paths", CELL),
    ("adoption", "wait for the zygote, arm the parent death signal", CELL),
)
FINISH: Sequence[tuple[str, str, str]] = (
    ("to finish", "session.call: route; what the cell lacks", SUPERVISOR),
    ("in place", "wake the zygote, mount the workspace, answer", ZYGOTE),
    ("told whose", "tell the init, which tells the call process", KERNEL),
    ("closed", "Landlock rules about files, the session's context", CELL),
    ("tool", "read and decode the call, build, bind", CELL),
    ("received", "the tool, encode, write, wake the supervisor", KERNEL),
    ("returned", "account, result, journal", SUPERVISOR),
)
START: Sequence[tuple[str, str, str]] = (
    ("to make a cell", "session.call: route, plan, cgroup", SUPERVISOR),
    ("to ask", "pipes, what to load, the request", SUPERVISOR),
    ("request", "send, wake the zygote, decode", KERNEL),
    ("planned", "the profile, what to bind, the filter", ZYGOTE),
    ("order", "hand the order to the prespawned cell, wake it", ZYGOTE),
    ("cgroups", "cgroup, its namespace, host name", CELL),
    ("mounts", "scratch, workspace", CELL),
    ("drop the old root", "drop the old root", CELL),
    ("descriptors and rlimits", "descriptors, limits", CELL),
    ("privileges", "capabilities, user, no new privileges", CELL),
    ("landlock", "Landlock rules", CELL),
    ("seccomp", "seccomp filter", CELL),
    ("self-test", "self-test", CELL),
    ("told what to load", "Hello, and what to load", CELL),
    ("loaded", "load the tools", CELL),
    ("collected and frozen", "collect garbage, freeze", CELL),
    ("call process forked", "fork the call process", CELL),
    ("confined", "its own Landlock layer, limits, randomness", CELL),
    ("warmed up", "warm up", CELL),
    ("tool", "read and decode the call, build, bind", CELL),
    ("received", "the tool, encode, write, wake the supervisor", KERNEL),
    ("returned", "account, result, journal", SUPERVISOR),
)


def test_a_budget_of_a_warm_call(publish: Publish) -> None:
    publish(warm_call, 40)


def test_a_budget_of_a_first_call(publish: Publish) -> None:
    publish(cell_finish, 20)


def test_a_budget_of_a_cell_start(publish: Publish) -> None:
    publish(cell_start, 20)


def test_a_budget_of_a_prespawned_cell(publish: Publish) -> None:
    publish(prespawned, 20)


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


async def cell_finish(rounds: int, workspace: Path) -> Figure:
    everything, calls = await _noted_starts(rounds, workspace, ahead=True)
    total = amount(spread([end - start for start, end in calls]).median, "s")
    stages = _stages(FINISH, everything, calls)
    return Figure(
        "budget-session",
        "Where a session's first call spends its time",
        stages=stages,
        notes=[f"{total} at the median."],
    )


async def cell_start(rounds: int, workspace: Path) -> Figure:
    everything, calls = await _noted_starts(rounds, workspace, ahead=False)
    total = amount(spread([end - start for start, end in calls]).median, "s")
    stages = _stages(START, everything, calls)
    return Figure("budget-cell", "Where a new cell spends its time", stages=stages, notes=[f"{total} at the median."])


async def prespawned(rounds: int, workspace: Path) -> Figure:
    everything, _calls = await _noted_starts(rounds, workspace, ahead=False)
    begun = [when for name, when in everything if name == "to begin"]
    ahead = [(start, next(when for name, when in everything if name == "adoption" and when > start)) for start in begun]
    stages = _stages(AHEAD, everything, ahead)
    return Figure("budget-prespawned", "What of a new cell is done ahead, while nobody waits", stages=stages)


async def _noted_starts(rounds: int, workspace: Path, *, ahead: bool) -> tuple[list[Stamp], list[tuple[float, float]]]:
    """What was noted, in order of time, and from when to when each first call of a session took. Before each, the
    zygote has prespawned one; where cells are made `ahead`, there is one of these."""
    calls: list[tuple[float, float]] = []
    everything: set[Stamp] = set()  # what is noted after a cell was prespawned is given by the next one
    with noting() as notes:
        async with Supervisor(tools=[stamps]) as supervisor:
            check_whole(supervisor)
            runtime_of(supervisor).pool.reserve.enabled = ahead
            for _ in range(3 + rounds):
                notes.taken.clear()
                session = await supervisor.open_session("main", workspace=workspace)
                start = time.perf_counter()
                noted = await _stamps(session, "stamps", give=True)
                calls.append((start, time.perf_counter()))
                everything.update(notes.taken, noted)
                await session.close()
                while runtime_of(supervisor).pool.cells:
                    await anyio.sleep(0.002)
                await anyio.sleep(_AHEAD_S)
    everything.update(("returned", end) for _start, end in calls)
    return sorted(everything, key=lambda stamp: stamp[1]), calls[2:-1]


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
