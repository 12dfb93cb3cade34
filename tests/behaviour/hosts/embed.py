"""An embedder in an unusual state, as a program: `python embed.py STATE WORKSPACE`. It prints the findings of
`scene`.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from toolcell import SandboxUnavailableError, Supervisor

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.behaviour.hosts.scene import TOOLS, calls, use

Found = dict[str, Any]


def plain(workspace: str) -> Found:
    return anyio.run(calls, workspace, [])


def started(workspace: str) -> Found:
    """The findings, or the error of the start."""
    try:
        return plain(workspace)
    except SandboxUnavailableError as error:
        return {"unavailable": str(error)}


def interpreter(workspace: str) -> Found:
    """As `started`, and a cell's shell must find this interpreter and its packages."""
    return anyio.run(calls_and_python, workspace)


async def calls_and_python(workspace: str) -> Found:
    async with Supervisor(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        found = await use(session)
        code = "import anyio, sys, toolcell.errors; print(sys.prefix, end='')"
        result = await session.call("shell", {"command": shlex.join([sys.executable, "-I", "-c", code])})
        return {**found, "python": result.output, "prefix": sys.prefix}


def closed_streams(workspace: str) -> Found:
    """Descriptors 0, 1 and 2 are closed, so the next opened files get these numbers."""
    out = os.dup(1)
    for fd in (0, 1, 2):
        os.close(fd)
    found = plain(workspace)
    found["streams"] = [describe(fd) for fd in (0, 1, 2)]
    os.dup2(out, 1)
    return found


def describe(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return "closed"


def strange_signals(workspace: str) -> Found:
    """Signals as under nohup and in daemons that do not reap: some ignored, SIGPIPE at its default, and all blocked."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM, signal.SIGXCPU):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    return plain(workspace)


def with_umask(umask: int, workspace: str) -> Found:
    os.umask(umask)
    found = plain(workspace)
    found["mode"] = (Path(workspace) / "b.txt").stat().st_mode & 0o777
    return found


def twice(workspace: str) -> Found:
    """Run two supervisors at the same time, in two threads, and another one afterwards."""
    rows: list[Found] = []
    threads = [threading.Thread(target=lambda: rows.append(plain(workspace))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rows) == 2 and {row["save"] for row in rows} == {"saved 5 characters"}, rows
    return plain(workspace)


def other_children(workspace: str) -> Found:
    """The embedder has other children, which it must reap itself."""
    before = subprocess.Popen(["/bin/sh", "-c", "exit 7"])
    during = subprocess.Popen(["/bin/sh", "-c", "sleep 1; exit 8"])
    found = plain(workspace)
    found["statuses"] = [before.wait(), during.wait()]
    try:
        found["left"] = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        found["left"] = None
    return found


def reaped_by_others(workspace: str) -> Found:
    """The embedder reaps every child, including the zygotes."""
    stop = threading.Event()

    def reap() -> None:
        while not stop.wait(0.01):
            try:
                os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                continue

    thread = threading.Thread(target=reap)
    thread.start()
    try:
        return plain(workspace)
    finally:
        stop.set()
        thread.join()


def forked(workspace: str) -> Found:
    """The embedder forks while its supervisor runs, and is killed. The fork lives on. Return what is left of the
    cells.
    """
    told, tell = os.pipe()
    embedder = os.fork()
    if embedder == 0:
        anyio.run(fork_and_tell, workspace, tell)
    os.close(tell)
    with os.fdopen(told) as pipe:
        found: Found = json.loads(pipe.readline())
    os.kill(embedder, signal.SIGKILL)
    os.waitpid(embedder, 0)
    until = time.monotonic() + 10
    while (left := [pid for pid in found["processes"] if runs(pid)]) and time.monotonic() < until:
        time.sleep(0.02)
    assert runs(found["fork"]), "the fork lives on"
    os.kill(found["fork"], signal.SIGKILL)
    return {**found, "left": left}


async def fork_and_tell(workspace: str, tell: int) -> None:
    async with Supervisor(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await use(session)
        fork = os.fork()  # as multiprocessing does
        if fork == 0:
            os.close(tell)
            time.sleep(60)
            os._exit(0)
        found = await use(session)
        processes = [pid for pid in descendants(os.getpid()) if pid != fork]
        os.write(tell, json.dumps({**found, "fork": fork, "processes": processes}).encode() + b"\n")
        await anyio.sleep(60)


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [each for child in map(int, children) for each in (child, *descendants(child))]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


STATES: dict[str, Callable[[str], Found]] = {
    state.__name__: state
    for state in (
        plain, started, interpreter, closed_streams, strange_signals, twice, other_children,
        reaped_by_others, forked,
    )
}  # fmt: skip
STATES |= {f"umask_{umask:o}": partial(with_umask, umask) for umask in (0o777, 0o077, 0o027, 0o002, 0)}

if __name__ == "__main__":
    print(json.dumps(STATES[sys.argv[1]](sys.argv[2])))
