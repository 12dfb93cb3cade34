"""`python -I warm.py SOCKET`: run Python programs in forks of a process that has imported what most of them import.

`programs.run` sends each program's command, environment and directory, with the descriptors of its standard streams.
The answers are the pid of the fork, and later its status. A program is run as `python -I` would run it, but for the
import of toolcell. Where it goes on as another Python program (`os.execv`), it does so in the same process. Unless the
message has "finalize", the interpreter leaves its memory to the kernel at the end.

With "fork_zygotes" in the message, zygotes of the program are forked by forking.py, which is our child.

`programs.start` sends a socket too. The answers go to it, and other programs run meanwhile.

This process is no child of the one that runs the tests, some of which end all children, or look for those that are
left. It ends when the socket is closed.
"""

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

PRELOADED = (
    "anyio._backends._asyncio",
    "anyio._backends._trio",
    "toolcell.blocking",
    "toolcell.cli.approvals",
    "toolcell.cli.audit",
    "toolcell.cli.doctor",
    "toolcell.cli.status",
    "toolcell.rules.toml",
    "toolcell.runtime.runtime",
    "toolcell.session",
    "toolcell.supervisor",
    "toolcell_sandbox.run",
    "toolcell_tools.base",
)
HERE = Path(__file__).parent
PR_SET_DUMPABLE, PR_CAPBSET_READ = 4, 23
HIGHEST_FD = 256  # above all that a program of the tests opens before it goes on as another one


class Other(BaseException):
    """The program goes on as this other Python program."""

    def __init__(self, command: list[str]) -> None:
        self.command = command


def zygotes() -> Any:
    """Start forking.py. Returns what takes the place of the module subprocess in `toolcell.pool.zygote`."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = importlib.import_module("toolcell.pool.zygote").ENVIRONMENT
    with theirs:
        fd = theirs.fileno()
        command = [sys.executable, "-I", str(HERE / "forking.py"), str(fd)]
        subprocess.Popen(command, pass_fds=[fd], env=environment, cwd="/", stdin=subprocess.DEVNULL)
    return runpy.run_path(str(HERE / "watched.py"))["WatchedZygotes"](ours)


def main(connection: socket.socket) -> None:
    """Serve until the other end is closed."""
    for name in PRELOADED:
        importlib.import_module(name)
    importlib.import_module("toolcell").base_tools()
    forked_zygotes: Any = None
    gc.collect()
    gc.freeze()
    while True:
        order, streams, _flags, _address = socket.recv_fds(connection, 1 << 20, 4)
        if not order:
            return
        words = json.loads(order)
        asker = socket.socket(fileno=streams.pop()) if len(streams) > 3 else connection
        unused = [connection, asker]
        if words.pop("fork_zygotes"):
            forked_zygotes = forked_zygotes or zygotes()
            words["subprocess_of_zygotes"] = forked_zygotes
        elif forked_zygotes:
            unused.append(forked_zygotes)
        if asker is connection or os.fork() == 0:
            run(words, streams, connection, asker, unused)
        for fd in streams:
            os.close(fd)
        if asker is not connection:
            asker.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def run(
    words: dict[str, Any], streams: list[int], connection: socket.socket, asker: socket.socket, unused: list[Any]
) -> None:
    """Fork the program, and answer its pid and its status. If it runs beside others, this process ends with it.
    `unused` are the sockets that the program does not use: it would warn of them at its end."""
    pid = os.fork()
    if pid == 0:
        for each in unused:
            each.close()
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
            os.close(fd)
        become(**words)
    beside = asker is not connection
    if beside:
        for fd in (*streams, connection.detach()):
            os.close(fd)
    asker.send(str(pid).encode())
    status = os.waitpid(pid, 0)[1]
    with suppress(BrokenPipeError):  # nobody waits for it any more
        asker.send(str(status).encode())
    if beside:
        os._exit(0)


def become(
    command: list[str], env: dict[str, str], cwd: str, finalize: bool, subprocess_of_zygotes: Any = None
) -> NoReturn:
    """Be the program, to its end."""
    if subprocess_of_zygotes is not None:
        setattr(importlib.import_module("toolcell.pool.zygote"), "subprocess", subprocess_of_zygotes)  # noqa: B010
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None  # TMPDIR may be another
    exec_other = os.execv
    setattr(os, "execv", go_on_as)  # noqa: B010 - for type checkers, it is another function
    while True:
        try:
            play(command[2:])
            sys.exit()
        except SystemExit as exit:
            if finalize or not isinstance(exit.code, int | None):
                raise
            end(exit.code or 0)
        except Other as other:
            command = other.command
        if command[:2] != [sys.executable, "-I"] or command[2] in ("-S", "-B"):
            exec_other(command[0], command)
        do_as_execve()


def end(code: int) -> NoReturn:
    """End as the interpreter ends after its program, up to the flush of its streams and the destructors of what the
    program has left. The memory is left to the kernel: to free what was imported before the fork takes 50 ms.
    """
    getattr(threading, "_shutdown")()  # noqa: B009 - waits for the threads that are no daemons
    getattr(atexit, "_run_exitfuncs")()  # noqa: B009
    program = sys.modules["__main__"].__dict__
    if program is not globals():
        program.clear()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    os._exit(code & 0xFF)


def go_on_as(_path: str, command: list[str]) -> NoReturn:
    raise Other(command)


def play(words: list[str]) -> None:
    """Run `-m module`, `-c code` or a file, with the arguments after it, as `__main__`."""
    match words:
        case ["-m", module, *arguments]:
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *arguments]:
            sys.argv = ["-c", *arguments]
            sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(code, "<string>", "exec"), sys.modules["__main__"].__dict__)
        case [path, *_]:
            sys.argv = words
            runpy.run_path(path, run_name="__main__")
        case _:
            raise ValueError(f"no program: {words}")


def do_as_execve() -> None:
    """What execve(2) does to a process besides: descriptors close, /proc is its user's again, and its capabilities are
    those of its bounding set for root, and none for another user."""
    for fd in range(3, HIGHEST_FD):
        try:
            if fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                os.close(fd)
        except OSError:
            continue  # it is not open
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    words = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable: the low words, then the high ones
    libc.capget(header, words)
    for start in (0, 3):
        left = 0
        for bit in range(32 if os.geteuid() == 0 else 0):
            if libc.prctl(PR_CAPBSET_READ, bit + 32 * (start // 3), 0, 0, 0) == 1:
                left |= 1 << bit
        words[start + 1] &= left
        words[start] = words[start + 1]
    libc.capset(header, words)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    with socket.socket(fileno=int(sys.argv[1])) as served:
        main(served)
