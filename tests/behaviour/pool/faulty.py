"""`python -I faulty.py LOOP WORKSPACE NUMBER SHARES`: fail each system call of the pool once, in each way it can fail.

A first supervisor notes which system calls are made where in the code of the pool, its callbacks above all. Then each
of them fails once with each error of its manual page, during calls of every kind. This program takes one of SHARES
shares of these faults. Prints JSON: the number of `faults`, how many `struck`, what went `wrong`, the longest time of a
round and of a close in seconds, and the descriptors that are `left`.
"""

import builtins
import errno
import fcntl
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import anyio

import toolcell
from toolcell import Capability, Session, Supervisor, ToolContext, tool
from toolcell.pool.fleet import Recovery
from toolcell.supervisor import runtime_of
from toolcell_sandbox.kernel import syscalls

sys.path.insert(0, str(Path(__file__).parents[3]))  # for `tests`
from tests.misbehaving import send_random_bytes

POOL, OURS = f"{os.path.dirname(toolcell.__file__)}/pool/", "/toolcell"
BOUND_S = 60.0  # ends a hang; nothing takes a tenth of it
A_SUPERVISOR = 30  # faults during its life, and one more at its end
EXHAUSTED = ("EMFILE", "ENFILE", "ENOMEM")
ERRORS: dict[str, tuple[str, ...]] = {
    "builtins.open": (*EXHAUSTED, "EINTR"),
    "fcntl.fcntl": ("EINTR", "EMFILE", "EPERM"),
    "os.close": ("EINTR", "EIO"),
    "os.fdopen": ("ENOMEM",),
    "os.ftruncate": ("EINTR",),
    "os.kill": ("EPERM", "ESRCH"),
    "os.lstat": ("ENOMEM", "ENOENT"),
    "os.memfd_create": EXHAUSTED,
    "os.mkdir": ("ENOMEM", "ENOSPC"),
    "os.open": (*EXHAUSTED, "EINTR", "ENOENT"),
    "os.pidfd_open": (*EXHAUSTED, "ESRCH"),
    "os.pipe2": ("EMFILE", "ENFILE"),
    "os.pread": ("EINTR", "EIO", "ESRCH"),
    "os.pwrite": ("EINTR", "EIO"),
    "os.read": ("EINTR", "EIO"),
    "os.readv": ("EINTR", "EIO"),
    "os.rmdir": ("ENOMEM", "EBUSY"),
    "os.set_blocking": ("EBADF",),
    "os.stat": ("ENOMEM", "ENOENT"),
    "os.waitpid": ("EINTR", "ECHILD"),
    "os.write": ("EINTR", "EIO", "ENOSPC", "EPIPE"),
    "os.writev": ("EINTR", "EIO", "EPIPE"),
    "select.epoll": EXHAUSTED,
    "epoll.close": ("EINTR",),
    "epoll.modify": ("ENOMEM",),
    "epoll.poll": ("EINTR",),
    "epoll.register": ("ENOMEM", "ENOSPC"),
    "epoll.unregister": ("ENOMEM",),
    "select.poll": ("ENOMEM",),
    "signal.pidfd_send_signal": ("EPERM", "ESRCH", "EINVAL"),
    "socket.close": ("EINTR", "EIO"),
    "socket.recvmsg": ("ENOMEM", "EINTR", "ECONNRESET"),
    "socket.send_fds": ("ENOBUFS", "ENOMEM", "EINTR", "EPIPE", "ETOOMANYREFS"),
    "socket.socketpair": EXHAUSTED,
    "subprocess.Popen": (*EXHAUSTED, "EAGAIN"),
    "time.clock_gettime": ("EINVAL",),
    "timerfd_settime": ("EINVAL",),
}
Site = tuple[str, str]  # a system call, and where it is made


class Injector:
    """Notes the system calls of the pool with the step of the program, or fails one of them once."""

    def __init__(self) -> None:
        self.sites: dict[Site, str] = {}  # with the first step that made the call
        self.step = ""
        self.target: tuple[Site, int] | None = None
        self._thread = threading.get_ident()
        self._notes = True

    def stop_noting(self) -> None:
        self._notes = False

    def check(self, name: str) -> None:
        """Raise OSError if this call is to fail."""
        if threading.get_ident() != self._thread or not (self._notes or self.target):
            return
        site = name, _where(sys._getframe(2))
        if not site[1]:
            return
        if self._notes:
            of_start = any(part in site[1] for part in ("_exec", "_socketpair", "zygote.py:start"))
            self.sites.setdefault(site, "zygote" if of_start else self.step)
        elif self.target is not None and self.target[0] == site:
            number, self.target = self.target[1], None
            raise OSError(number, os.strerror(number))

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if name.endswith("close"):  # close(2) on Linux: the descriptor is released, whatever it returns
                real(*args, **options)
                return self.check(name)
            self.check(name)
            return real(*args, **options)

        return call

    def install(self) -> None:
        modules = {each.__name__: each for each in (builtins, fcntl, os, select, signal, socket, subprocess, time)}
        for name in ERRORS:
            module, _, function = name.partition(".")
            if name == "select.epoll":
                select.epoll = self._epoll()  # type: ignore[misc]
            elif name in ("socket.close", "socket.recvmsg"):
                real = self.wrap(name, getattr(socket.socket, function))
                setattr(socket.socket, function, lambda *args, real=real, **options: real(*args, **options))
            elif name == "timerfd_settime":
                setattr(syscalls, "_brief", self.wrap(name, syscalls._brief))  # noqa: B010 - it has another type
            elif module in modules:
                setattr(modules[module], function, self.wrap(name, getattr(modules[module], function)))

    def _epoll(self) -> Any:
        real, injector = select.epoll, self

        class Epoll:
            def __init__(self, *args: Any, **options: Any) -> None:
                injector.check("select.epoll")
                self._real = real(*args, **options)
                for name in ("register", "modify", "unregister", "poll", "close"):
                    setattr(self, name, injector.wrap(f"epoll.{name}", getattr(self._real, name)))

            def __getattr__(self, name: str) -> Any:
                return getattr(self._real, name)

        return Epoll


def _where(frame: FrameType | None) -> str:
    """The two innermost lines of ours, "" if the pool has not made the call, but a task of a caller."""
    lines: list[str] = []
    while frame is not None:
        path = frame.f_code.co_filename
        if path.endswith("reactor.py") and frame.f_code.co_name in ("go_on", "_run"):  # a task
            return ""
        if len(lines) < 2 and OURS in path and path != __file__:
            lines.append(f"{path[path.index(OURS) + 1 :]}:{frame.f_code.co_name}:{frame.f_lineno}")
        if path.startswith(POOL) and (len(lines) == 2 or path.endswith("reactor.py")):
            return " < ".join(lines)
        frame = frame.f_back
    return ""


@tool
def echo(value: int) -> int:
    """Return the value."""
    return value


@tool(lifetime="session")
def kept(value: int) -> int:
    """Return the value."""
    return value


@tool
def long(text: str) -> str:
    """Print and return a long text."""
    print(text[:100_000], flush=True)
    return text


@tool
def crash() -> None:
    """End the process."""
    os.kill(os.getpid(), signal.SIGKILL)


@tool
def hang() -> None:
    """Sleep."""
    time.sleep(600)


@tool(needs={Capability.MEMORY_READ})
def ask(ctx: ToolContext) -> int:
    """Search the memory, and report progress."""
    ctx.progress("begun")
    return len(ctx.require.memory.search("anything"))


class Round:
    """A new session of a supervisor, which makes calls and is closed."""

    def __init__(self, supervisor: Supervisor, injector: Injector, workspace: str) -> None:
        self._supervisor, self._injector, self._workspace = supervisor, injector, workspace
        self._pool: Any = runtime_of(supervisor).pool
        self.raised: list[str] = []

    async def run(self, steps: list[str]) -> None:
        """Raises TimeoutError if a call, or the end of the session's cells, does not come."""
        pool = self._pool
        pool.fleet._recovery = Recovery()  # otherwise zygotes that die in each round would make a pause
        while pool.slots.free_cgroups:  # so that a cgroup is made in each round
            pool.slots.free_cgroups.pop().remove()
        with anyio.fail_after(BOUND_S):
            session = await self._supervisor.open_session("main", workspace=self._workspace)
            for step in steps:
                self._injector.step = step
                await getattr(self, step)(session)
            await self.call(session, "echo", {"value": 9})
            self._injector.step = "close"
            await session.close()
            while [*self._of(session), *pool.slots.vacating, *pool.waiting]:
                await anyio.sleep(0.002)

    def _of(self, session: Session) -> list[Any]:
        return [cell for cell in self._pool.cells.values() if cell.spec.key.session_id == session.id]

    async def call(self, session: Session, name: str, arguments: dict[str, Any], timeout: float = 20.0) -> None:
        try:
            await session.call(name, arguments, timeout=timeout)
        except Exception as error:
            self.raised.append(f"{name} raised {error!r}")

    async def echo(self, session: Session) -> None:
        await self.call(session, "echo", {"value": 1})
        await self.call(session, "echo", {"value": 2})

    async def kept(self, session: Session) -> None:
        await self.call(session, "kept", {"value": 1})
        await self.call(session, "kept", {"value": 2})

    async def long(self, session: Session) -> None:
        await self.call(session, "long", {"text": "x" * 400_000})
        await self.call(session, "echo", {"value": 3})

    async def fails(self, session: Session) -> None:
        await self.call(session, "crash", {})
        await self.call(session, "send_random_bytes", {})
        await self.call(session, "hang", {}, 0.15)
        with anyio.move_on_after(0.05):
            await self.call(session, "hang", {})

    async def ask(self, session: Session) -> None:
        await self.call(session, "ask", {})

    async def many(self, session: Session) -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(self.call, session, "echo", {"value": number})
            tasks.start_soon(self.call, session, "hang", {}, 0.2)

    async def killed(self, session: Session) -> None:
        for cell in self._of(session):
            if cell.pid:
                os.kill(cell.pid, signal.SIGKILL)
        await self.call(session, "echo", {"value": 4})

    async def zygote(self, session: Session) -> None:
        for zygote in self._pool.fleet.zygotes:
            os.kill(zygote.pid, signal.SIGKILL)
        await self.call(session, "echo", {"value": 5})


STEPS = ["echo", "kept", "long", "fails", "ask", "many", "killed", "zygote"]
Fault = tuple[Site, str, str]  # with the step that makes the call, and the name of the error


async def main(workspace: str, number: int, shares: int) -> None:
    injector, before = Injector(), len(os.listdir("/proc/self/fd"))
    injector.install()
    tools: list[Any] = [echo, kept, long, crash, hang, ask, send_random_bytes]
    wrong: list[str] = []
    struck, round_s, close_s = 0, 0.0, 0.0
    async with Supervisor(tools, max_cells=8) as supervisor:
        for step in STEPS:
            await Round(supervisor, injector, workspace).run([step])
        injector.step = "end"
    injector.stop_noting()
    every = [(site, step, name) for site, step in injector.sites.items() for name in ERRORS[site[0]]]
    every = every[number::shares]
    lasting, last = [each for each in every if each[1] != "end"], [each for each in every if each[1] == "end"]
    while lasting or last:
        faults, lasting, end = lasting[:A_SUPERVISOR], lasting[A_SUPERVISOR:], last.pop() if last else None
        what = ""
        try:
            async with Supervisor(tools, max_cells=8) as supervisor:
                for site, step, name in faults:
                    what, began = said((site, step, name)), time.monotonic()
                    injector.target = site, getattr(errno, name)
                    a_round = Round(supervisor, injector, workspace)
                    try:
                        await a_round.run(["echo", step] if step in STEPS[1:] else ["echo"])
                    except TimeoutError:
                        give_up(f"{what}: a round does not end, {runtime_of(supervisor).pool!r}")
                    wrong += [f"{what}: {raised}" for raised in a_round.raised]
                    struck, injector.target = struck + (injector.target is None), None
                    round_s = max(round_s, time.monotonic() - began)
                what = f"after {what}"
                if end is not None:
                    what = said(end)
                    await Round(supervisor, injector, workspace).run(["echo", "kept"])
                    injector.target = end[0], getattr(errno, end[2])
                began = time.monotonic()
                hangs = threading.Timer(BOUND_S, give_up, [f"{what}: the supervisor does not close"])
                hangs.start()
        except Exception as error:
            wrong.append(f"{what}: {error!r}")
        hangs.cancel()
        close_s = max(close_s, time.monotonic() - began)
        struck, injector.target = struck + (end is not None and injector.target is None), None
    report = {"faults": len(every), "struck": struck, "wrong": wrong, "round_s": round_s, "close_s": close_s}
    print(json.dumps(report | {"left": len(os.listdir("/proc/self/fd")) - before}))


def give_up(what: str) -> None:
    """End the program, because something hangs."""
    print(json.dumps({"wrong": [what]}), flush=True)
    os._exit(0)


def said(fault: Fault) -> str:
    (call, where), step, name = fault
    return f"{call} fails with {name} in {where}, in the step {step}"


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    anyio.run(main, sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), backend=sys.argv[1])
