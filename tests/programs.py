"""Run the programs of tests as `subprocess` would, in forks of an interpreter that has imported toolcell.

Importing it takes as long as most programs do. For programs that are about the interpreter, its flags or its
environment at the start, there is `subprocess`.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

WARM = Path(__file__).with_name("warm.py")
PYTHON = [sys.executable, "-I"]
_one_at_a_time = threading.Lock()
_server: socket.socket | None = None


@contextmanager
def served() -> Iterator[None]:
    """Keep the interpreter that `run` forks. The fixture `warm` enters this, once in a worker."""
    global _server
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        fd = theirs.fileno()
        subprocess.run([*PYTHON, str(WARM), str(fd)], pass_fds=[fd], stdin=subprocess.DEVNULL, cwd="/", check=True)
    _server = ours
    try:
        yield
    finally:
        _server = None
        ours.close()


def run(
    command: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    fork_zygotes: bool = False,
    finalize: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `[sys.executable, "-I", …]` to its end, without input. The output is text. Raises TimeoutExpired.

    With `fork_zygotes`, its zygotes are forked, too, where their start plays no part: watched.py. With `finalize`, the
    interpreter frees its memory at its end, as others do: for programs about that end.
    """
    assert _server is not None, "the module lacks pytest.mark.usefixtures('warm')"
    order = _order(command, env, cwd, fork_zygotes, finalize)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull) as nothing:
        with _one_at_a_time:
            streams = [nothing.fileno(), out.fileno(), err.fileno()]
            socket.send_fds(_server, [order], streams)
            pid = int(_server.recv(32))
            _server.settimeout(timeout)
            try:
                status = int(_server.recv(32))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                _server.settimeout(None)
                _server.recv(32)
                raise subprocess.TimeoutExpired(command, timeout, _text(out), _text(err)) from None
            finally:
                _server.settimeout(None)
        return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status), _text(out), _text(err))


class Started:
    """A program that `start` has started: what tests use of a Popen with `stdout=PIPE, text=True`."""

    def __init__(self, pid: int, stdout: IO[str], status: socket.socket) -> None:
        self.pid, self.stdout = pid, stdout
        self.returncode: int | None = None
        self._status = status

    def __enter__(self) -> "Started":
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        self.stdout.close()

    def poll(self) -> int | None:
        return self._ended(0.0)

    def wait(self, timeout: float = 120.0) -> int:
        """Wait for its end. Raises TimeoutError."""
        code = self._ended(timeout)
        if code is None:
            raise TimeoutError(f"{self.pid} has not ended after {timeout:g} s")
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = os.waitstatus_to_exitcode(int(self._status.recv(32)))
            self._status.close()
        return self.returncode


def start(command: Sequence[str], *, fork_zygotes: bool = False) -> Started:
    """Start `[sys.executable, "-I", …]` with a pipe for its output, without input. It runs beside other programs."""
    assert _server is not None, "the module lacks pytest.mark.usefixtures('warm')"
    order = _order(command, None, None, fork_zygotes, finalize=True)
    reader, writer = os.pipe()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, os.fdopen(writer, "wb"), open(os.devnull) as nothing, _one_at_a_time:
        socket.send_fds(_server, [order], [nothing.fileno(), writer, 2, theirs.fileno()])
    return Started(int(ours.recv(32)), os.fdopen(reader), ours)


def _order(
    command: Sequence[str],
    env: Mapping[str, str] | None,
    cwd: str | Path | None,
    fork_zygotes: bool,
    finalize: bool,
) -> bytes:
    assert list(command[:2]) == PYTHON, command
    order = {
        "command": list(command),
        "env": dict(os.environ if env is None else env),
        "cwd": str(cwd or os.getcwd()),
        "fork_zygotes": fork_zygotes,
        "finalize": finalize,
    }
    return json.dumps(order).encode()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
