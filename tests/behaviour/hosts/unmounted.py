"""`unmounted.py WORKSPACE DIRECTORY STANDBY`: whether a waiting cell holds a file system that is unmounted.

The waiting cell is prewarmed if there is a standby, and otherwise prespawned. The findings are printed as JSON.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import psutil

from toolcell import Supervisor, base_tools
from toolcell.supervisor import runtime_of


async def called(supervisor: Supervisor, workspace: str) -> int:
    """The pid of the cell that served a new session's first call."""
    session = await supervisor.open_session("main", workspace=workspace)
    (await session.call("write", {"path": "note.txt", "content": "text"})).unwrap()
    return next(
        cell.pid for cell in runtime_of(supervisor).pool.cells.values() if cell.spec.key.session_id == session.id
    )


def pid_namespace(pid: int | str) -> str:
    return os.readlink(f"/proc/{pid}/ns/pid")


async def waiting(supervisor: Supervisor) -> set[int]:
    """The waiting cells, once they have not changed for a while: a zygote's children in pid namespaces of their own."""
    before: set[int] = set()
    while True:
        await anyio.sleep(0.2)
        cells = {cell.pid for cell in runtime_of(supervisor).pool.cells.values()}
        zygotes = [psutil.Process(zygote.pid) for zygote in runtime_of(supervisor).pool.fleet.zygotes]
        children = {child.pid for zygote in zygotes for child in zygote.children()}
        found = {pid for pid in children - cells if pid_namespace(pid) != pid_namespace("self")}
        if found and found == before:
            return found
        before = found


async def main(*given: str) -> None:
    workspace, directory, standby = given
    async with Supervisor(tools=base_tools(), standby=standby == "True") as supervisor:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", directory], check=True)
        await called(supervisor, workspace)
        found = await waiting(supervisor)
        held = [pid for pid in found if directory in Path(f"/proc/{pid}/mountinfo").read_text()]
        subprocess.run(["umount", directory], check=True)
        with anyio.fail_after(120):
            while any(psutil.pid_exists(pid) for pid in found):
                await anyio.sleep(0.01)
        again = await called(supervisor, workspace)
    print(json.dumps({"waiting": len(found), "held": len(held), "another": again not in found}))


anyio.run(main, *sys.argv[1:])
