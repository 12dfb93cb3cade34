"""`python -I scarce.py LOOP WORKSPACE WHAT`: calls of every kind while a resource is scarce, and afterwards.

Prints JSON. "scarce" and "after" have, by call: the kind of its error (null for none), whether and when to call again,
and the message. "raised" has the exceptions that calls have raised.
"""

import json
import os
import resource
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from toolcell import Capability, Session, Supervisor, ToolContext, host_tool, tool
from toolcell_sandbox.kernel.syscalls import syscall
from toolcell_sandbox.mechanisms import mounts


@tool
def echo(value: int) -> int:
    """Return the value."""
    return value


@tool(lifetime="session")
def kept(value: int) -> int:
    """Return the value."""
    return value


@tool(needs={Capability.WRITE})
def save(ctx: ToolContext, name: str) -> str:
    """Write a file."""
    assert ctx.writer is not None
    ctx.writer.write_text(name, "x")
    return name


@tool(needs={Capability.MEMORY_READ})
def recall(ctx: ToolContext) -> int:
    """Search the memory."""
    assert ctx.memory is not None
    return len(ctx.memory.search("anything"))


@tool
def long() -> str:
    """Return more than a model gets."""
    return "x" * 500_000


@host_tool
def here(value: int) -> int:
    """Return the value, from a thread of the supervisor's process."""
    return value


CALLS: dict[str, dict[str, Any]] = {
    "echo": {"value": 1},
    "kept": {"value": 1},
    "here": {"value": 1},
    "recall": {},
    "save": {"name": "a.txt"},
    "long": {},
}


@contextmanager
def no_threads() -> Generator[Callable[[bool], None]]:
    """Leave no room for threads: for a user by RLIMIT_NPROC, which does not bind root; for root by a cgroup."""
    if os.geteuid():
        limits = resource.getrlimit(resource.RLIMIT_NPROC)
        yield lambda on: resource.setrlimit(resource.RLIMIT_NPROC, (1, limits[1]) if on else limits)
        return
    rows = [row.split(":", 2) for row in Path("/proc/self/cgroup").read_text().split()]
    version_1 = next((row for row in rows if "pids" in row[1].split(",")), None)
    base = "/sys/fs/cgroup/pids" if version_1 else "/sys/fs/cgroup"
    own = Path(base + (version_1 or rows[-1])[2])
    group = own / f"scarce-{os.getpid()}"
    group.mkdir()
    (group / "cgroup.procs").write_text("0")
    limit = group / "pids.max"
    try:
        yield lambda on: void(limit.write_text((group / "pids.current").read_text() if on else "max"))
    finally:
        (own / "cgroup.procs").write_text("0")
        for left in [*group.glob("*/"), group]:
            left.rmdir()


@contextmanager
def no_descriptors() -> Generator[Callable[[bool], None]]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    def few(on: bool) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_free(), limits[1]) if on else limits)

    yield few


@contextmanager
def no_space() -> Generator[Callable[[bool], None]]:
    """Use a full file system for temporary files."""
    syscall("unshare", 0x00020000, step="unshare mounts")
    mounts.make_private()
    place = f"{sys.argv[2]}-temporary"
    os.mkdir(place)
    syscall("mount", "tmpfs", place, "tmpfs", 0, "size=64k", step="mount a small file system")
    os.environ["TMPDIR"] = place
    filler = Path(place, "filler")

    def full(on: bool) -> None:
        if not on:
            filler.unlink()
            return
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    yield full


def next_free() -> int:
    fd = os.open("/", os.O_RDONLY)
    os.close(fd)
    return fd


def void(_value: object) -> None: ...


async def said(call: Callable[[], Awaitable[Any]], raised: list[str]) -> list[Any]:
    try:
        error = (await call()).error
    except Exception as exception:
        raised.append(repr(exception))
        return ["raised", None, None, ""]
    if error is None:
        return [None, None, None, ""]
    return [error.kind, error.retryable, getattr(error, "retry_after_s", None), error.message]


async def all_calls(sessions: list[Session], raised: list[str]) -> dict[str, list[list[Any]]]:
    """Make each call in each session, all calls of one kind at the same time."""
    found: dict[str, list[list[Any]]] = {}
    for name, arguments in CALLS.items():
        rows: list[list[Any]] = []

        async def one(session: Session, name: str = name, arguments: Any = arguments, rows: Any = rows) -> None:
            rows.append(await said(lambda: session.call(name, arguments, timeout=8.0), raised))

        async with anyio.create_task_group() as tasks:
            for session in sessions:
                tasks.start_soon(one, session)
        found[name] = rows
    return found


async def main(workspace: str, scarce: Callable[[bool], None]) -> None:
    raised: list[str] = []
    fds = len(os.listdir("/proc/self/fd"))
    async with Supervisor([echo, kept, save, recall, long, here], max_cells=8) as supervisor:
        warm = await supervisor.open_session("main", workspace=workspace)
        assert (await warm.call("echo", {"value": 1})).unwrap() == 1
        new = await supervisor.open_session("main", workspace=workspace)
        scarce(True)
        try:
            meanwhile = await all_calls([warm, new], raised)
        finally:
            scarce(False)
        after = await all_calls([warm, new, await supervisor.open_session("branch", workspace=workspace)], raised)
    report = {"scarce": meanwhile, "after": after, "raised": raised, "fds": len(os.listdir("/proc/self/fd")) - fds}
    print(json.dumps(report))


SCARCE = {"threads": no_threads, "descriptors": no_descriptors, "space": no_space}
if __name__ == "__main__":
    loop, place, what = sys.argv[1:]
    with SCARCE[what]() as switch:
        anyio.run(main, place, switch, backend=loop)
