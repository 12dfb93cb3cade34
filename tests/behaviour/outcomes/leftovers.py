"""`python -I leftovers.py WHO MISSING...`: calls that leave a daemon, in cells without a pid namespace that would end
it.

WHO ends the daemon: "init", which kills the processes that it adopts; or "cgroup", after every zygote and so every init
was killed. Prints a line of JSON: the daemons during the call and after it, the incidents, and what is left of the
supervisor. `test_leftovers.py` runs it.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
import psutil

from toolcell import RecentJournal, Supervisor, Tool, tool
from toolcell.testing.residue import Residue

sys.path.insert(0, str(Path(__file__).parents[3]))  # for `tests`
from tests import misbehaving as m

NAME = f"left{os.getpid()}"[:15]


def daemons() -> list[int]:
    """The pids of running processes named NAME. Dead ones are zombies of the zygote."""
    found: list[int] = []
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                name, state = file.read().partition("(")[2].rpartition(")")[::2]
            if name == NAME and state.split()[0] != "Z":
                found.append(int(entry))
        except OSError:
            continue  # gone meanwhile
    return found


def kill_zygotes() -> None:
    """Kill the zygotes, and wait until they are dead. By then, every init has been sent its signal."""
    zygotes = psutil.Process().children()
    for zygote in zygotes:
        zygote.kill()
    while any(zygote.status() != psutil.STATUS_ZOMBIE for zygote in zygotes):
        time.sleep(0.001)


async def main(who: str, missing: list[str]) -> None:
    before, journal, during = Residue.now(), RecentJournal(), list[int]()
    with tempfile.TemporaryDirectory() as workspace:
        tools: list[Tool[..., Any]] = [tool(m.leave_a_daemon), tool(m.echo)]
        async with Supervisor(tools, journal=journal, allow_missing=frozenset(missing)) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace)

            def on_progress(*_: object) -> None:
                during.extend(daemons())
                if who == "cgroup":
                    kill_zygotes()

            left = await session.call("leave_a_daemon", {"name": NAME}, on_progress=on_progress)
            following = await session.call("echo", {"value": 1})
            with anyio.move_on_after(5):
                while after := daemons():
                    await anyio.sleep(0.01)
    answer = {
        "outputs": [left.output, following.output],
        "errors": [str(result.error) for result in (left, following) if result.error],
        "during": len(during),
        "after": len(after),
        "incidents": [record.data["what"] for record in journal.of(kind="incident")],
        "cgroup": "cgroup" in left.sandbox.on,
        "residue": Residue.now().beyond(before),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2:])
