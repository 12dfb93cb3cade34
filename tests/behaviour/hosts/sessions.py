"""`sessions.py WORKSPACE…`: the first calls of a session for each workspace, in turn, each after background work has
ended.

It prints, as JSON, the answer of each call, the number of prewarmed cells before it, and the mounts that the zygote
holds after it.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress

import anyio

from toolcell import Supervisor, base_tools
from toolcell.supervisor import runtime_of


def held_by(pid: int) -> Iterator[str]:
    """The targets of the open descriptors of a process. A descriptor that is closed meanwhile has no target."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            yield os.readlink(f"/proc/{pid}/fd/{fd}")


async def main(workspaces: list[str]) -> None:
    answers: list[str] = []
    ahead: list[int] = []
    mounts: list[int] = []
    async with Supervisor(tools=base_tools()) as supervisor:
        pool = runtime_of(supervisor).pool

        async def quiet() -> None:
            while pool.prewarmer.is_pending or not all(cell.idle for cell in pool.prewarmer.reserve.cells.values()):
                await anyio.sleep(0.01)

        for workspace in workspaces:
            await quiet()
            ahead.append(len(pool.prewarmer.reserve.cells))
            session = await supervisor.open_session("main", workspace=workspace)
            result = await session.call("write", {"path": "note.txt", "content": workspace})
            answers.append("" if result.error is None else str(result.error))
            await session.close()
            await quiet()
            (zygote,) = pool.fleet.zygotes
            held = [path for path in held_by(zygote.pid) if path.startswith("/")]
            mounts.append(sum(not path.startswith(("/dev", "/proc")) for path in held))
    print(json.dumps({"answers": answers, "ahead": ahead, "mounts": mounts}))


anyio.run(main, sys.argv[1:])
