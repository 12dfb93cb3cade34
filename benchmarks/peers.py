"""What one would use instead, each in the best mode that its documentation describes, and checked to do the work."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

import anyio.to_process

Echo = Callable[[str], Awaitable[str]]

# str gives a str back as it is. Both peers pickle it by name, so that the worker imports nothing for it.
_ECHO = str


@contextmanager
def process_pool() -> Iterator[Echo]:
    """`ProcessPoolExecutor.submit(…).result()`: one worker, kept.

    Workers come from a fork server, which is safe beside an event loop; once they run, a call costs the same.
    """
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("forkserver")) as pool:
        assert pool.submit(os.getpid).result() != os.getpid()

        async def call(text: str) -> str:
            return pool.submit(_ECHO, text).result()

        yield call


async def anyio_process(text: str) -> str:
    """`anyio.to_process.run_sync`: a worker that is kept and used again, while the event loop lives."""
    return await anyio.to_process.run_sync(_ECHO, text)


@contextmanager
def manager_proxy(texts: dict[str, list[str]]) -> Iterator[Callable[[str], list[str] | None]]:
    """The `get` of an `mp.Manager().dict()`: one request to the manager's process and one reply."""
    with get_context("forkserver").Manager() as manager:
        proxy = manager.dict(texts)
        yield proxy.get


class NotHere(Exception):
    """The peer cannot be measured on this machine; the message says why."""


class Bubblewrap:
    """`bwrap --unshare-all` around a program, with the smallest view of the file system that the program runs in.

    Making it raises NotHere where bwrap is not installed or does not work.
    """

    def __init__(self) -> None:
        path = shutil.which("bwrap")
        if path is None:
            raise NotHere("bwrap is not installed")
        self.python = os.path.realpath(sys.executable)  # the base interpreter: no virtual environment to look through
        self._command = [path, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        self._command += [*_view(), "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--"]
        self._check()

    def _check(self) -> None:
        read_namespace = "import os; print(os.readlink('/proc/self/ns/pid'))"
        command = [*self._command, self.python, "-I", "-c", read_namespace]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30)
        if ended.returncode:
            raise NotHere(f"bwrap does not work here: {ended.stderr.strip()[-80:]}")
        assert ended.stdout.strip() != os.readlink("/proc/self/ns/pid"), "bwrap made no pid namespace"

    def sample(self, *program: str) -> float:
        """Seconds from the start of bwrap to its end. posix_spawn: `subprocess` would add a millisecond of its own."""
        command = [*self._command, *program]
        start = time.perf_counter()
        pid = os.posix_spawn(command[0], command, {"PATH": "/usr/bin:/bin"})
        status = os.waitpid(pid, 0)[1]
        taken = time.perf_counter() - start
        assert status == 0, (command, status)
        return taken


def _view() -> Sequence[str]:
    options = ["--ro-bind", "/usr", "/usr"]
    for path in ("/bin", "/lib", "/lib64"):
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            options += ["--ro-bind", path, path]
    if not sys.base_prefix.startswith("/usr"):
        options += ["--ro-bind", sys.base_prefix, sys.base_prefix]
    return options
