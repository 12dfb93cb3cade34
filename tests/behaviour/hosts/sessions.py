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

STABLE_S = 0.3  # a count of mounts that stays the same for so long is final
PATIENCE_S = 10


def held_by(pid: int) -> Iterator[str]:
    """The targets of the open descriptors of a process. A descriptor that is closed meanwhile has no target."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            yield os.readlink(f"/proc/{pid}/fd/{fd}")


def mounts_of(pid: int) -> int:
    return sum(path.startswith("/") and not path.startswith(("/dev", "/proc")) for path in held_by(pid))


async def settled(pid: int) -> int:
    """The number of mounts that a process holds, once it has closed what it is about to close."""
    found, since = mounts_of(pid), anyio.current_time()
    end = since + PATIENCE_S
    while (now := anyio.current_time()) - since < STABLE_S and now < end:
        await anyio.sleep(0.02)
        if (count := mounts_of(pid)) != found:
            found, since = count, anyio.current_time()
    return found


async def main(workspaces: list[str]) -> None:
    answers: list[str] = []
    ahead: list[int] = []
    mounts: list[int] = []
    async with Supervisor(tools=base_tools()) as supervisor:
        pool = runtime_of(supervisor).pool

        async def quiet() -> None:
            while pool.reserve._timer is not None or not all(cell.idle for cell in pool.reserve.cells.values()):
                await anyio.sleep(0.01)

        for workspace in workspaces:
            await quiet()
            ahead.append(len(pool.reserve.cells))
            session = await supervisor.open_session("main", workspace=workspace)
            result = await session.call("write", {"path": "note.txt", "content": workspace})
            answers.append("" if result.error is None else str(result.error))
            await session.close()
            await quiet()
            (zygote,) = pool.fleet.zygotes
            mounts.append(await settled(zygote.pid))
    print(json.dumps({"answers": answers, "ahead": ahead, "mounts": mounts}))


anyio.run(main, sys.argv[1:])
