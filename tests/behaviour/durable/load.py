"""A durable supervisor under load, to be killed: `python load.py STATE WORKSPACE`. Prints the id of each call that has
returned.
"""

import sys
from functools import partial

import anyio

from toolcell import Session, Supervisor, tool
from toolcell.testing import misbehaving

KEPT = tool(misbehaving.echo, name="kept", lifetime="session")


async def ask(session: Session, name: str) -> None:
    while True:
        result = await session.call(name, {"value": 1})
        if result.error is None:
            print(result.call_id, flush=True)


async def main(state: str, workspace: str) -> None:
    supervisor = Supervisor([misbehaving.echo, KEPT], state=state, max_cells=3)
    async with supervisor, anyio.create_task_group() as tasks:
        for _ in range(3):
            session = await supervisor.open_session("worker", workspace=workspace)
            tasks.start_soon(ask, session, "kept")
            tasks.start_soon(ask, session, "echo")


anyio.run(partial(main, sys.argv[1], sys.argv[2]))
