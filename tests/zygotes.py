"""Start the zygotes of tests by fork instead of exec, in the folders in `FOLDERS`.

The exec of a zygote takes 0.1 s of processor time, nearly all of it for imports. That is five times as much as a
session with one call, and makes no difference to the tests in these folders. Zygotes are exec'd, as they are for users,

- in all other folders (attacks, hosts, the state between calls),
- in the programs that tests run without `fork_zygotes`, and
- if a zygote would inherit other limits, namespaces or the like from this process than from the forking process.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

from toolcell.pool import zygote
from toolcell.wire.switches import OFF

from .watched import handed_on

HERE = Path(__file__).parent
FORKING = HERE / "forking.py"
FOLDERS = (
    "adapters",
    "behaviour/api",
    "behaviour/calls",
    "behaviour/channels",
    "behaviour/durable",
    "behaviour/files",
    "behaviour/grants",
    "behaviour/http",
    "behaviour/lifetime",
    "behaviour/mcp",
    "behaviour/memory",
    "behaviour/network",
    "behaviour/outcomes",
    "behaviour/pool",
    "behaviour/protected",
    "behaviour/sessions",
    "behaviour/settings",
    "behaviour/tools",
    "behaviour/web",
    "cli",
    "dispatch",
    "pool",
    "rollouts",
    "telemetry",
    "testing",
)
_ROOTS = [HERE / name for name in FOLDERS]


class ForkedZygote(subprocess.Popen[bytes]):
    """A zygote that `ZygoteServer` forked. It is a child of this process, which can wait for it."""

    def __init__(self, pid: int, command: Sequence[str]) -> None:
        self._forked = pid
        super().__init__(command)

    def _execute_child(self, *_arguments: Any) -> None:
        self.pid = self._forked
        self._child_created = True


class ZygoteServer:
    """A process from which zygotes are forked, between `start` and `stop`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._like: object = None

    @property
    def pid(self) -> int:
        """The pid of the process, or 0."""
        return 0 if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process, unless it is running."""
        if self._process is not None and self._process.poll() is None:
            return
        self.stop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            fd = theirs.fileno()
            command = [sys.executable, "-I", str(FORKING), str(fd)]
            self._process = subprocess.Popen(
                command, pass_fds=[fd], env=zygote.ENVIRONMENT, cwd="/", stdin=subprocess.DEVNULL
            )
        self._socket, self._like = ours, handed_on()

    def stop(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait(120)
        self._socket = self._process = None

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Replace subprocess.Popen for `ZygoteProcess`: fork a zygote, or exec one as described above."""
        if self._socket is None or options["env"] != zygote.ENVIRONMENT or handed_on() != self._like:
            process: subprocess.Popen[bytes] = subprocess.Popen(command, **options)
            return process
        [link] = options["pass_fds"]
        socket.send_fds(self._socket, [b"1"], [link, options["stderr"].fileno()])
        pid = int(self._socket.recv(32) or b"0")
        if pid <= 0:
            raise OSError(-pid, os.strerror(-pid))
        return ForkedZygote(pid, command)


SERVER = ZygoteServer()


@cache
def are_forked(path: Path) -> bool:
    """Whether zygotes of this test module are forked."""
    return not OFF and any(path.is_relative_to(root) for root in _ROOTS)


def alive() -> list[psutil.Process]:
    """The zygotes of this process: its children, but for the process that forks them."""
    return [process for process in children(os.getpid()) if process.pid != SERVER.pid]


def children(pid: int) -> Iterator[psutil.Process]:
    """The children of a process. `psutil.Process.children` reads about all processes of the machine."""
    threads: list[str] = []
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        threads = os.listdir(f"/proc/{pid}/task")
    for thread in threads:
        with suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    for child in found:
        with suppress(psutil.NoSuchProcess):
            yield psutil.Process(child)


def descendants(pid: int) -> Iterator[psutil.Process]:
    """The children of a process, and theirs."""
    for child in children(pid):
        yield child
        yield from descendants(child.pid)


@contextmanager
def started_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fork the zygotes of this test module, if it is below one of the folders. Otherwise, stop the forking process."""
    if not are_forked(path):
        SERVER.stop()
        yield
        return
    SERVER.start()
    monkeypatch.setattr(zygote, "subprocess", _Subprocess)
    yield


class _Subprocess:
    """The names that `ZygoteProcess` uses from the module subprocess."""

    Popen = SERVER.popen
    DEVNULL = subprocess.DEVNULL
    TimeoutExpired = subprocess.TimeoutExpired
