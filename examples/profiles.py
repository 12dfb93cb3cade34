"""Profiles by session kind: a Worker that sees one directory more, and is given less time and memory."""

import tempfile
from pathlib import Path

import anyio

from toolcell import LimitExceeded, Profile, SessionKind, Supervisor, Timeout, ToolContext, base_tools, tool

MIB = 1024 * 1024


@tool
def sleep(ctx: ToolContext, seconds: float) -> str:
    """Do nothing for a while."""
    import time

    time.sleep(seconds)
    return f"slept, with {ctx.remaining():.1f} s left"


@tool(limits={"memory_bytes": 32 * MIB})  # narrower than any profile of a session that calls it
def allocate(megabytes: int) -> int:
    """Allocate memory and say how much it was."""
    return len(b"x" * (megabytes * MIB))


@tool
def first_line(path: str) -> str:
    """Read the first line of a file that the profile makes readable, with plain Python."""
    with open(path) as file:
        return file.readline().strip()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace, data = Path(folder, "project"), Path(folder, "data")
        workspace.mkdir()
        data.mkdir()
        (data / "rates.csv").write_text("country,percent\nDE,19\n")

        worker = Profile.for_kind("worker")
        strict = worker.replace(readable=(str(data),), limits=worker.limits.replace(wall_s=1.0))
        tools = [*base_tools(), sleep, allocate, first_line]
        async with Supervisor(tools, profiles={SessionKind.WORKER: strict}) as supervisor:
            session = await supervisor.open_session(SessionKind.WORKER, workspace=workspace)

            print((await session.call("first_line", {"path": f"{data}/rates.csv"})).unwrap())
            hidden = await session.call("first_line", {"path": "/etc/passwd"})
            print(hidden.error)  # ExecutionError: there is no such file in the cell

            late = await session.call("sleep", {"seconds": 10.0})
            assert isinstance(late.error, Timeout)
            print(late.error.message)

            large = await session.call("allocate", {"megabytes": 256})
            assert isinstance(large.error, LimitExceeded)
            print(large.error.message)


anyio.run(main)
