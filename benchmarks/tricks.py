"""What each trick for speed gains: `python -m benchmarks.tricks [ROUNDS] [TRICK...]`.

In each round, two programs run one after the other, in turns: one with every trick, one without this one. Each measures
the time of every kind of call. Printed are the medians of the ratios, without to with, and their quartiles: 1.10 says
that calls take 10 % longer without the trick. A round takes some 8 seconds for each trick.
"""

import json
import os
import statistics
import subprocess
import sys

from toolcell.wire.switches import TRICKS, VARIABLE

PROGRAM = """
import json, statistics, tempfile, time
import anyio
from toolcell import Supervisor, tool


def give(value: object = None) -> object:
    "Return `value`."
    return value


def sleep_for_ever():
    "Sleep without end."
    time.sleep(10_000)


echo, kept = tool(give, name="echo"), tool(give, name="kept", lifetime="session")
BIG = {"value": "x" * 4_000_000}


async def median_of(count, session, name, arguments, pause_s=0.0, before=None):
    times = []
    for _ in range(count):
        await anyio.sleep(pause_s)
        if before:
            await session.call(before, {}, timeout=0.02)
        began = time.perf_counter()
        (await session.call(name, arguments)).unwrap()
        times.append(time.perf_counter() - began)
    return statistics.median(times[count // 10 :])


async def together(count, session):
    began = time.perf_counter()
    async with anyio.create_task_group() as calls:
        for _ in range(count):
            calls.start_soon(session.call, "echo", {"value": 1})
    return time.perf_counter() - began


async def first_calls(supervisor, place, count, pause_s):
    times = []
    for _ in range(count):
        session = await supervisor.open_session("main", workspace=place)
        await anyio.sleep(pause_s)
        began = time.perf_counter()
        (await session.call("echo", {"value": 1})).unwrap()
        times.append(time.perf_counter() - began)
        await session.close()
    return statistics.median(times[1:])


async def main():
    found = {}
    with tempfile.TemporaryDirectory() as place:
        began = time.perf_counter()
        async with Supervisor([echo, kept, sleep_for_ever]) as supervisor:
            session = await supervisor.open_session("main", workspace=place)
            (await session.call("echo", {"value": 1})).unwrap()
            found["start"] = time.perf_counter() - began
            found["kept"] = await median_of(800, session, "kept", {"value": 1})
            found["4 MB"] = await median_of(12, session, "kept", BIG)
            found["standby"] = await median_of(40, session, "echo", {"value": 1}, 0.01)
            found["back to back"] = await median_of(150, session, "echo", {"value": 1})
            found["100 together"] = statistics.median([await together(100, session) for _ in range(5)])
            found["after a timeout"] = await median_of(10, session, "echo", {"value": 1}, 0.0, "sleep_for_ever")
            await session.close()
            found["new cell, apart"] = await first_calls(supervisor, place, 12, 0.06)
            found["new cell, at once"] = await first_calls(supervisor, place, 12, 0.0)
        async with Supervisor([echo], standby=0) as supervisor:
            session = await supervisor.open_session("main", workspace=place)
            found["on demand"] = await median_of(120, session, "echo", {"value": 1})
    print(json.dumps(found))


anyio.run(main)
"""


def measured(off: str) -> dict[str, float]:
    """Seconds of each kind of call, without these tricks."""
    environment = os.environ | {VARIABLE: off}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def ratios(trick: str, rounds: int) -> dict[str, list[float]]:
    """Of each kind of call, the ratio of each round: without the trick to with it."""
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        order = ("", trick) if number % 2 else (trick, "")
        times = {off: measured(off) for off in order}
        for kind, seconds in times[trick].items():
            found.setdefault(kind, []).append(seconds / times[""][kind])
    return found


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    for trick in sys.argv[2:] or TRICKS:
        print(f"{trick}: {TRICKS.get(trick, 'all of them')}")
        for kind, found in ratios(trick, rounds).items():
            low, median, high = statistics.quantiles(found, n=4) if len(found) > 1 else found * 3
            print(f"    {kind:18} {median:5.2f}   {low:.2f}–{high:.2f}", flush=True)


if __name__ == "__main__":
    main()
