"""Fresh calls in a second, on one core and on all, against as many forks as the cores can do; and whole sessions."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from toolcell import Supervisor

from .conftest import Publish
from .crowd import Call, only_cores, sessions, throughput
from .floors import fork_rate
from .interleave import Block, Case, Measured, interleave, spread
from .machine import core_list, worked_s
from .peers import Bubblewrap, NotHere, awaited_executor
from .replay import recorded_time
from .report import Curve, Figure, amount
from .workload import caller, check_whole, echo, kept

pytestmark = pytest.mark.benchmark(timer=recorded_time)

CALLERS = (1, 2, 4, 8)


def test_fresh_calls_in_a_second(publish: Publish) -> None:
    publish(sustained, 10)


def test_throughput_over_cores_and_callers(publish: Publish) -> None:
    publish(scaling, 3)


def test_sessions_in_a_second(publish: Publish) -> None:
    publish(short_sessions, 10)


def window(callers: list[Call], seconds: float) -> Block:
    async def block() -> list[float]:
        return [await throughput(callers, seconds)]

    return block


async def sustained(rounds: int, workspace: Path) -> Figure:
    cores = core_list()
    number = 2 * len(cores)
    window_s = 0.04 * rounds
    async with (
        sessions(echo, number, workspace) as ahead,
        sessions(echo, number, workspace, standby=0) as demanded,
    ):
        with fork_rate(cores, window_s) as floor:
            cases = [
                Case("fresh, forked on demand", "ours", window([caller(each, "echo") for each in demanded], window_s)),
                Case("fresh, standby", "ours", window([caller(each, "echo") for each in ahead], window_s)),
                Case("fork + exit + wait, as a zygote, all cores", "floor", floor.block),
            ]
            measured = await interleave(cases, rounds)
    title = f"Fresh calls in a second: {number} sessions, each with one call under way, on {len(cores)} cores"
    notes = ["Zygo publishes 981 /s (2 vCPU, Linux 6.8: another machine, so no ratio)."]
    return Figure("sustained", title, measured, unit="/s", notes=notes)


async def short_sessions(rounds: int, workspace: Path) -> Figure:
    """Sessions that are opened, called once and closed, as fast as the cores allow, and programs in bwrap likewise."""
    number = 2 * len(core_list())
    window_s = 0.1 * rounds
    spent: dict[str, list[float]] = {}

    def counted(name: str, call: Call) -> Block:
        async def block() -> list[float]:
            before = worked_s()
            rate = await throughput([call] * number, window_s)
            spent.setdefault(name, []).append((worked_s() - before) / (rate * window_s))
            return [rate]

        return block

    async with Supervisor(tools=[echo]) as ahead, Supervisor(tools=[echo], standby=0) as demanded:
        check_whole(ahead)

        def whole_session(supervisor: Supervisor) -> Call:
            async def call(text: str) -> str:
                session = await supervisor.open_session("main", workspace=workspace)
                try:
                    return await caller(session, "echo")(text)
                finally:
                    await session.close()

            return call

        calls = {"open, call, close": whole_session(ahead), "open, call, close, standby=0": whole_session(demanded)}
        cases = [Case(name, "ours", counted(name, call)) for name, call in calls.items()]
        absent: dict[str, str] = {}
        try:
            cases.append(Case("bwrap + Python", "peer", counted("bwrap + Python", Bubblewrap().echo_in_thread)))
        except NotHere as reason:
            absent["bwrap + Python"] = str(reason)
        measured = await interleave(cases, rounds)
    title = (
        f"Sessions in a second: {number} callers, each opens one, calls once and closes it, on {len(core_list())} cores"
    )
    notes = [f"{name}: {amount(spread(taken).median, 's')} of processor time each." for name, taken in spent.items()]
    return Figure("short-sessions", title, measured, absent, unit="/s", notes=notes)


async def scaling(rounds: int, workspace: Path) -> Figure:
    """Curves of calls in a second over callers, for each number of cores that everything is kept on."""
    window_s = 0.1 * rounds
    curves: list[Curve] = []
    measured: list[Measured] = []
    for cores in ([core_list()[0]], core_list()):
        where = f"{len(cores)} core{'s' if len(cores) > 1 else ''}"
        with only_cores(cores), ExitStack() as stack:
            found: dict[str, list[tuple[float, float]]] = {}
            for name, tool in (("fresh", echo), ("kept", kept)):
                async with sessions(tool, max(CALLERS), workspace) as opened:
                    calls = [caller(each, tool.name) for each in opened]
                    cases = [
                        Case(f"{name}, {n} callers, {where}", "ours", window(calls[:n], window_s)) for n in CALLERS
                    ]
                    taken = await interleave(cases, rounds)
                found[name] = [(n, spread(each.samples).median) for n, each in zip(CALLERS, taken, strict=True)]
                measured.append(taken[-1])
            pool = stack.enter_context(awaited_executor(len(cores)))
            cases = [Case(f"executor, {n} callers", "peer", window([pool] * n, window_s)) for n in CALLERS]
            taken = await interleave(cases, rounds)
            found["ProcessPoolExecutor"] = [
                (n, spread(each.samples).median) for n, each in zip(CALLERS, taken, strict=True)
            ]
        for name, points in found.items():
            role = "peer" if name == "ProcessPoolExecutor" else "ours"
            curves.append(Curve(f"{name}, {where}", role, "callers", "calls/s", points))
    return Figure("scaling", "Calls in a second, over cores and callers", measured, unit="/s", curves=curves)
