"""A durable supervisor under load, to be killed: `python load.py STATE WORKSPACE FIRST`. Prints "call ID" for each call
that has returned, and "key KEY OUTPUT" for each call with an idempotency key. The keys begin with k<FIRST>.

The journal has a bound, and many short segments, so that a kill often hits the change from one segment to the next.
"""

import sys
from functools import partial
from itertools import count

import anyio

from toolcell import Session, Supervisor, ToolContext, tool
from toolcell.store.journal import log


def echo(value: object = None) -> object:
    """Return `value`."""
    return value


JOURNAL_BYTES, SEGMENTS, SYNC_S = 1024 * 1024, 128, 0.01
KEPT = tool(echo, name="kept", lifetime="session")


@tool(needs={"write"})
def append(ctx: ToolContext, key: str) -> str:
    """Append the key to a file, and return it."""
    with open("keys.txt", "a") as file:
        file.write(f"{key}\n")
    return f"did {key}"


async def ask(session: Session, name: str) -> None:
    while True:
        result = await session.call(name, {"value": 1})
        if result.error is None:
            print(f"call {result.call_id}", flush=True)


async def ask_once_each(session: Session, first: int) -> None:
    for number in count(first):
        key = f"k{number}"
        result = await session.call("append", {"key": key}, idempotency_key=key)
        if result.error is None:
            print(f"key {key} {result.output}", flush=True)


async def main(state: str, workspace: str, first: int) -> None:
    supervisor = Supervisor([echo, KEPT, append], state=state, max_cells=4, journal_bytes=JOURNAL_BYTES)
    async with supervisor, anyio.create_task_group() as tasks:
        for name in ("a", "b", "c"):
            session = await supervisor.open_session("worker", workspace=workspace, session_id=name)
            tasks.start_soon(ask, session, "kept")
            tasks.start_soon(ask, session, "echo")
        writer = await supervisor.open_session("main", workspace=workspace, session_id="writer")
        tasks.start_soon(ask_once_each, writer, first)


if __name__ == "__main__":
    log.SEGMENTS, log.SYNC_S = SEGMENTS, SYNC_S  # type: ignore[misc] # pyright: ignore[reportConstantRedefinition]
    anyio.run(partial(main, sys.argv[1], sys.argv[2], int(sys.argv[3])))
