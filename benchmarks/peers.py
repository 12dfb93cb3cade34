"""What one would use instead, each in the best mode that its documentation describes, and checked to do the work."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from multiprocessing import get_context
from typing import Any

import anyio.to_process
import anyio.to_thread

Echo = Callable[[str], Awaitable[str]]

# str gives a str back as it is. The pools pickle it by name, so that the worker imports nothing for it.
_ECHO = str


class NotHere(Exception):
    """The peer cannot be measured on this machine; the message says why."""


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise NotHere(f"{name} is not installed; the extra [bench] has it") from None


@contextmanager
def process_pool(workers: int = 1) -> Iterator[ProcessPoolExecutor]:
    """A `ProcessPoolExecutor` whose workers have started. They come from a fork server, which is safe beside an event
    loop; once they run, a call costs the same."""
    with ProcessPoolExecutor(max_workers=workers, mp_context=get_context("forkserver")) as pool:
        # Long enough that no worker takes the work of another, which then would not be started.
        wait([pool.submit(time.sleep, 0.05) for _ in range(2 * workers)])
        assert pool.submit(os.getpid).result() != os.getpid()
        yield pool


@contextmanager
def awaited_executor(workers: int = 1) -> Iterator[Echo]:
    """`loop.run_in_executor`: what a program with an event loop does, which must not wait in `result()`."""
    with process_pool(workers) as pool:

        async def call(text: str) -> str:
            return await asyncio.get_running_loop().run_in_executor(pool, _ECHO, text)

        yield call


@contextmanager
def executor() -> Iterator[Echo]:
    """`ProcessPoolExecutor.submit(…).result()`: one worker, kept."""
    with process_pool() as pool:

        async def call(text: str) -> str:
            return pool.submit(_ECHO, text).result()

        yield call


@contextmanager
def multiprocessing_pool() -> Iterator[Echo]:
    """`multiprocessing.Pool.apply`: one worker, kept."""
    with get_context("forkserver").Pool(1) as pool:

        async def call(text: str) -> str:
            return str(pool.apply(_ECHO, (text,)))

        yield call


@contextmanager
def pebble_pool() -> Iterator[Echo]:
    """`pebble.ProcessPool.schedule(…).result()`: one worker, kept; it can end one that takes too long."""
    pebble = _module("pebble")
    with pebble.ProcessPool(max_workers=1, context=get_context("forkserver")) as pool:

        async def call(text: str) -> str:
            return str(pool.schedule(_ECHO, args=[text]).result())

        yield call


@contextmanager
def loky_executor() -> Iterator[Echo]:
    """`loky.ProcessPoolExecutor`: one worker, kept; it starts another one where one has crashed."""
    loky = _module("loky")
    with loky.ProcessPoolExecutor(max_workers=1) as pool:

        async def call(text: str) -> str:
            return str(pool.submit(_ECHO, text).result())

        yield call


POOLS: Mapping[str, Callable[[], AbstractContextManager[Echo]]] = {
    "ProcessPoolExecutor": executor,
    "ProcessPoolExecutor, awaited": awaited_executor,
    "mp.Pool": multiprocessing_pool,
    "pebble": pebble_pool,
    "loky": loky_executor,
}


def enter_pools(stack: ExitStack) -> tuple[dict[str, Echo], dict[str, str]]:
    """The pools that are here, entered, and why the others are not."""
    here: dict[str, Echo] = {}
    absent: dict[str, str] = {}
    for name, pool in POOLS.items():
        try:
            here[name] = stack.enter_context(pool())
        except NotHere as reason:
            absent[name] = str(reason)
    return here, absent


async def anyio_process(text: str) -> str:
    """`anyio.to_process.run_sync`: a worker that is kept and used again, while the event loop lives."""
    return await anyio.to_process.run_sync(_ECHO, text)


@contextmanager
def manager_proxy(texts: dict[str, list[str]]) -> Iterator[Callable[[str], list[str] | None]]:
    """The `get` of an `mp.Manager().dict()`: one request to the manager's process and one reply."""
    with get_context("forkserver").Manager() as manager:
        proxy = manager.dict(texts)
        yield proxy.get


PRINT = "import sys; sys.stdout.write(sys.argv[1])"


BARE = ("-I", "-S", "-c")
"""Options of the interpreter that starts fastest: no `site`, so no `.pth` file runs."""


async def subprocess_python(text: str) -> str:
    """`subprocess.run` of a Python that imports nothing and prints the text."""
    command = [_base_python(), *BARE, PRINT, text]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextmanager
def sandlock_python() -> Iterator[Echo]:
    """What `subprocess_python` does, in a sandlock sandbox: Landlock and seccomp, no namespaces."""
    sandlock = _module("sandlock")
    python = _base_python()
    readable = ["/usr", "/lib", "/lib64", "/bin", "/etc", sys.base_prefix]
    sandbox = sandlock.Sandbox(fs_readable=[path for path in readable if os.path.exists(path)])
    try:
        if not sandbox.run([python, *BARE, "pass"]).success:
            raise NotHere("sandlock does not work here")
    except sandlock.SandlockError as error:
        raise NotHere(f"sandlock does not work here: {error}") from error

    async def call(text: str) -> str:
        return bytes(sandbox.run([python, *BARE, PRINT, text]).stdout).decode()

    yield call


def _base_python() -> str:
    """The base interpreter: no virtual environment to look through, nor one that has a copy of it."""
    return os.path.join(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")


class Bubblewrap:
    """`bwrap --unshare-all` around a program, with the smallest view of the file system that the program runs in.

    Making it raises NotHere where bwrap is not installed or does not work.
    """

    def __init__(self) -> None:
        path = shutil.which("bwrap")
        if path is None:
            raise NotHere("bwrap is not installed")
        self.python = _base_python()
        self._command = [path, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        self._command += [*_view(), "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--"]
        self._check()

    def _check(self) -> None:
        read_namespace = "import os; print(os.readlink('/proc/self/ns/pid'))"
        command = [*self._command, self.python, *BARE, read_namespace]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30)
        if ended.returncode:
            raise NotHere(f"bwrap does not work here: {ended.stderr.strip()[-80:]}")
        assert ended.stdout.strip() != os.readlink("/proc/self/ns/pid"), "bwrap made no pid namespace"

    async def echo(self, text: str) -> str:
        """What `subprocess_python` does, inside."""
        return self._run(self.python, *BARE, PRINT, text)

    async def echo_in_thread(self, text: str) -> str:
        """The same, beside others: a thread waits for its end."""
        return await anyio.to_thread.run_sync(self._run, self.python, *BARE, PRINT, text)

    def sample(self, *program: str) -> float:
        """Seconds from the start of bwrap to the end of the program."""
        start = time.perf_counter()
        self._run(*program)
        return time.perf_counter() - start

    def _run(self, *program: str) -> str:
        """What the program prints. posix_spawn: `subprocess` would add a millisecond of its own."""
        command = [*self._command, *program]
        read, write = os.pipe()
        with open(read, encoding="utf-8") as output:
            pid = os.posix_spawn(
                command[0], command, {"PATH": "/usr/bin:/bin"}, file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)]
            )
            os.close(write)
            text = output.read()
        status = os.waitpid(pid, 0)[1]
        assert status == 0, (command, status)
        return text


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


@contextmanager
def pebble_timeout(seconds: float) -> Iterator[Callable[[], float]]:
    """How many seconds after its deadline a `pebble` future is over; pebble ends its one process."""
    pebble = _module("pebble")
    with pebble.ProcessPool(max_workers=1, context=get_context("forkserver")) as pool:
        pool.schedule(str).result()

        def sample() -> float:
            start = time.perf_counter()
            try:
                pool.schedule(time.sleep, args=[60], timeout=seconds).result()
            except TimeoutError:
                return time.perf_counter() - start - seconds
            raise AssertionError("pebble let a call go on after its deadline")

        yield sample


def executor_crash() -> float:
    """Seconds from the signal to a worker until a new `ProcessPoolExecutor` has answered: one cannot go on."""
    context = get_context("forkserver")
    pool = ProcessPoolExecutor(max_workers=1, mp_context=context)
    pid = pool.submit(os.getpid).result()
    future = pool.submit(time.sleep, 60)
    time.sleep(0.01)
    start = time.perf_counter()
    os.kill(pid, signal.SIGSEGV)
    try:
        future.result()
    except BrokenProcessPool:
        pool.shutdown(wait=False)
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        assert pool.submit(_ECHO, "after").result() == "after"
        return time.perf_counter() - start
