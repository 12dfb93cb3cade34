"""`python -I forking.py SOCKET`: import the modules of a zygote, then fork zygotes. See zygotes.py.

It also imports what zygotes preload for most tools. They still preload it, which takes less time for imported modules.

Each message on the socket asks for one zygote, and carries two descriptors: the zygote's socket and its stderr. The
zygote is a child of our parent (CLONE_PARENT, clone(2)), as if the parent had started it. The answer is the zygote's
pid, or an errno as a negative number. It goes to the third descriptor, if one came, with a pidfd.
"""

import gc
import sys

gc.disable()  # as toolcell.runner.__main__ does

from toolcell.runner import cheap_forks  # noqa: E402
from toolcell.wire.switches import is_on  # noqa: E402

if is_on("fork_handlers"):
    cheap_forks.keep_back()

import ctypes  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
from contextlib import suppress  # noqa: E402
from fcntl import F_DUPFD_CLOEXEC, fcntl  # noqa: E402
from importlib import import_module  # noqa: E402

from toolcell.runner import zygote  # noqa: E402
from toolcell_sandbox.kernel.syscalls import NUMBERS  # noqa: E402
from toolcell_tools import definition  # noqa: E402

definition.deriving = False  # as serve.preload does
for name in ("cloudpickle", "hashlib", "subprocess"):
    import_module(name)
for name in ["edit", "memory_search", "memory_store", "message", "read", "shell", "web_fetch", "web_search", "write"]:
    import_module(f"toolcell_tools.base.{name}")

CLONE_PARENT = 0x8000
_libc = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock, as os.fork does


def sibling() -> int:
    """Fork as os.fork does, but as a child of our parent. Raises OSError."""
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = int(_libc.syscall(NUMBERS["clone"], CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    error = ctypes.get_errno()
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(error, os.strerror(error))
    return pid


def main(connection: socket.socket) -> None:
    """Serve until the other end is closed."""
    while True:
        order, received, _flags, _address = socket.recv_fds(connection, 1, 3)
        if not order:
            return
        try:
            pid = sibling()
        except OSError as error:
            pid = -(error.errno or 0)
        if pid == 0:
            connection.close()
            os.setsid()
            link, stderr, *others = received
            for fd in others:
                os.close(fd)
            given = fcntl(link, F_DUPFD_CLOEXEC, 6)
            for number in (1, 2):
                os.dup2(stderr, number)
            os.close(link)
            os.close(stderr)
            zygote.main(given)
        answer, pidfds = str(pid).encode(), [os.pidfd_open(pid)] if pid > 0 else []  # a zombie until its parent waits
        if received[2:]:
            with socket.socket(fileno=received.pop()) as asker, suppress(BrokenPipeError):  # it may have been killed
                socket.send_fds(asker, [answer], pidfds)
        else:
            connection.send(answer)
        for fd in (*received, *pidfds):
            os.close(fd)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
