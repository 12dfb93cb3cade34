"""Fork the zygotes of programs that run in forks of the warmed interpreter. See warm.py and forking.py.

Such a zygote is a child of the warmed interpreter, which waits for it. The program watches it by a pidfd.
"""

import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolcell.pool import zygote

_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
_PRIVILEGES = ("Cap", "Groups", "NoNewPrivs", "Seccomp")


def handed_on() -> object:
    """What a process hands on to those that it starts."""
    own = Path("/proc/thread-self")
    return (
        [resource.getrlimit(limit) for limit in _LIMITS],
        [os.stat(own / "ns" / name).st_ino for name in _NAMESPACES],
        [(own / name).read_text() for name in ("cgroup", "oom_score_adj")],
        [line for line in (own / "status").read_text().splitlines() if line.startswith(_PRIVILEGES)],
        os.sched_getaffinity(0),
        os.getresuid(),
        os.getpriority(os.PRIO_PROCESS, 0),
        sys.executable,
    )


class WatchedZygote(subprocess.Popen[bytes]):
    """A zygote that is another process's child. Its exit code is unknown: -9 stands for it."""

    def __init__(self, pid: int, pidfd: int, command: Sequence[str]) -> None:
        self._forked, self._pidfd = pid, pidfd
        super().__init__(command)

    def _execute_child(self, *_arguments: Any) -> None:
        self.pid = self._forked
        self._child_created = True

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def send_signal(self, sig: int) -> None:
        if self.returncode is None:
            signal.pidfd_send_signal(self._pidfd, sig)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._pidfd], [], [], timeout)[0]:
            os.close(self._pidfd)
            self.returncode = -signal.SIGKILL
        code: int | None = self.returncode
        return code


class WatchedZygotes:
    """What `ZygoteProcess` takes from the module subprocess. `server` leads to forking.py."""

    DEVNULL = subprocess.DEVNULL
    TimeoutExpired = subprocess.TimeoutExpired

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._like = handed_on()

    def close(self) -> None:
        """Close this process's end of the socket."""
        self._server.close()

    def Popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        if options["env"] != zygote.ENVIRONMENT or handed_on() != self._like:
            process: subprocess.Popen[bytes] = subprocess.Popen(command, **options)
            return process
        [link] = options["pass_fds"]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                socket.send_fds(self._server, [b"1"], [link, options["stderr"].fileno(), theirs.fileno()])
            answer, pidfds, _flags, _address = socket.recv_fds(ours, 32, 1)
        pid = int(answer or b"0")
        if pid <= 0:
            raise OSError(-pid, os.strerror(-pid))
        return WatchedZygote(pid, pidfds[0], command)
