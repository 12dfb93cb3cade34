"""`python -I held.py LOOP WORKSPACE SECONDS PATIENCE`: calls of every kind while the event loop is held.

With SECONDS, the loop sleeps for so long; with 0, the program prints "now", and its starter stops it. PATIENCE shortens
the time in which a cell must start and a zygote must answer; 0 leaves both as they are. Prints JSON: what each call
ended with, and whether the zygotes are the same.
"""

import json
import sys
import time
from typing import Any

import anyio

from toolcell import Profile, Session, SessionKind, Supervisor, tool
from toolcell.pool import fleet
from toolcell.supervisor import runtime_of

NEW = 6
_calls = 0


@tool
def nap(seconds: float) -> float:
    """Sleep."""
    time.sleep(seconds)
    return seconds


@tool(lifetime="session")
def count(seconds: float) -> int:
    """Sleep, and count the calls."""
    global _calls
    _calls += 1
    time.sleep(seconds)
    return _calls


async def main(workspace: str, hold_s: float, patience_s: float) -> None:
    profile = Profile.for_kind("main")
    if patience_s:
        fleet.STUCK_S = patience_s
        profile = profile.replace(limits=profile.limits.replace(start_s=patience_s))
    ended: dict[str, Any] = {}

    async def call(session: Session, name: str, seconds: float, timeout: float, what: str) -> None:
        result = await session.call(name, {"seconds": seconds}, timeout=timeout)
        ended[what] = result.output if result.error is None else result.error.model_dump(mode="json")

    async with Supervisor([nap, count], max_cells=24, profiles={SessionKind.MAIN: profile}) as supervisor:
        pool = runtime_of(supervisor).pool
        sessions = [await supervisor.open_session("main", workspace=workspace) for _ in range(NEW + 4)]
        running, idle, busy, answering, *new = sessions
        await call(running, "nap", 0.0, 60.0, "warm 1")
        await call(answering, "nap", 0.0, 60.0, "warm 2")
        await call(idle, "count", 0.0, 60.0, "kept first")
        await call(busy, "count", 0.0, 60.0, "kept busy first")
        before = [zygote.pid for zygote in pool.fleet.zygotes]
        long_s = hold_s + 3.0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, running, "nap", long_s, 300.0, "running")
            tasks.start_soon(call, busy, "count", long_s, 300.0, "kept busy")
            if hold_s:  # else its process may be stopped too
                tasks.start_soon(call, answering, "nap", 0.5, hold_s / 2, "answered in time")
            await anyio.sleep(0.2)
            for number, session in enumerate(new):
                tasks.start_soon(call, session, "nap", 0.0, 300.0, f"new {number}")
            await anyio.sleep(0)
            while not any(cell.starting for cell in pool.cells.values()):
                await anyio.sleep(0)
            if hold_s:
                time.sleep(hold_s)
            else:
                print("now", flush=True)
        await call(idle, "count", 0.0, 60.0, "kept")
        await call(busy, "count", 0.0, 60.0, "kept busy after")
        same = before == [zygote.pid for zygote in pool.fleet.zygotes][: len(before)]
    print(json.dumps({"ended": ended, "same zygotes": same}), flush=True)


if __name__ == "__main__":
    loop, place, seconds, patience = sys.argv[1:]
    anyio.run(main, place, float(seconds), float(patience), backend=loop)
