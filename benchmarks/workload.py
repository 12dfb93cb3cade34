"""The tools that are called: they do nothing, so that what is measured is everything else.

Not in the test modules, for pytest rewrites the asserts of those into code that no cell can import.
"""

import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import cast

from toolcell import Capability, MemoryRecord, Session, Supervisor, Tool, ToolContext, require, tool
from toolcell.supervisor import runtime_of
from toolcell_sandbox.mechanisms.namespaces import FLAGS

WHO = "who"  # asks `echo` and `kept` for their pid instead
HANG = "hang"  # makes them never come back


@tool
def echo(text: str) -> str:
    """Give the text back.

    Args:
        text: What to give back.
    """
    if text == HANG:
        time.sleep(3600)
    return str(os.getpid()) if text == WHO else text


kept: Tool[..., str] = tool(echo.fn, name="kept", lifetime="session")


@tool
def linger(children: int) -> None:
    """Fork children that fork in turn, and never come back.

    Args:
        children: How many.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in range(children):
        if os.fork() == 0:
            os.fork()
            break
    while True:
        time.sleep(60)


@tool(needs={Capability.MEMORY_READ})
def search(ctx: ToolContext, times: int) -> list[float]:
    """Search the memory again and again; give the seconds that each search took.

    Args:
        times: How often.
    """
    memory = require(ctx.memory, Capability.MEMORY_READ)
    taken: list[float] = []
    for number in range(times):
        query = f"{number:032d}"
        start = time.perf_counter()
        found = memory.search(query)
        taken.append(time.perf_counter() - start)
        assert [record.text for record in found] == [2 * query], found
    return taken


class OneRecord:
    """A memory that finds the query, twice over, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def search(self, query: str, *, limit: int, namespace: str) -> list[MemoryRecord]:
        self.asked += 1
        return [MemoryRecord(id="1", text=2 * query)]

    async def store(self, record: MemoryRecord, *, namespace: str) -> str:
        raise NotImplementedError


def caller(session: Session, name: str) -> Callable[[str], Awaitable[str]]:
    """A call of an echo tool in this session."""

    async def call(text: str) -> str:
        result = await session.call(name, {"text": text})
        return cast("str", result.unwrap())

    return call


async def pids(session: Session, name: str) -> set[str]:
    """Which processes run three calls of an echo tool."""
    call = caller(session, name)
    return {await call(WHO) for _ in range(3)}


def check_whole(supervisor: Supervisor) -> None:
    """A sandbox with holes is faster. What is measured has all namespaces, Landlock, seccomp, and nothing left out."""
    summary = runtime_of(supervisor).services.sandbox
    assert not summary.allowed_missing, summary
    assert {*FLAGS, "landlock", "seccomp", "no_new_privs"} <= {*summary.on}, summary
