"""A server that is a child process: lines of JSON on its standard input and output.

One thread does everything, and only while a call runs. Between calls nobody reads, so a server that floods waits.
"""

import math
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial

from .jsonrpc import LIVES, MAX_BYTES, MAX_LINE_BYTES, TAIL_BYTES, Message, Misbehaved, decoded, encoded

READ_BYTES = 64 * 1024
TICK_MS = 50  # between looks at the call's cancellation
ORPHANED_S = 5.0  # of silence, after the server has ended and while another process holds its output
MOST_LOOKS = 100  # before a request, at what has arrived; a server may write for ever
ENDS_WITHIN_S = 1.0  # after its standard input is closed, and again after SIGTERM


class ServerEnded(Exception):
    """The server has ended by itself. `code` is as subprocess has it: minus the signal."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class StdioTransport:
    """Starts `command` in the present directory and environment. Raises OSError if it cannot be started."""

    def __init__(self, command: Sequence[str], cpu_s: float) -> None:
        self._server = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            preexec_fn=partial(_limit_cpu, int(cpu_s * LIVES) + 1),
        )
        assert self._server.stdin and self._server.stdout and self._server.stderr
        self._stdin, self._stdout, self._stderr = (
            each.fileno() for each in (self._server.stdin, self._server.stdout, self._server.stderr)
        )
        for fd in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(fd, False)
        self._open = {self._stdout, self._stderr}
        self._outgoing = bytearray()
        self._incoming = bytearray()
        self._searched = 0  # bytes of `_incoming` that have no line end
        self._received = 0  # bytes during the present request
        self._tail = bytearray()

    def drain(self) -> Iterator[Message | None]:
        """What the server has sent since the last request: nobody asked for it."""
        self._received = 0
        for _ in range(MOST_LOOKS):
            if not self._look(0):
                break
            yield from self._lines()
        yield from self._lines()

    def post(self, message: Message) -> None:
        """Send a message. It is written while `exchange` waits for messages."""
        self._outgoing += encoded(message)

    def exchange(self, message: Message, tick: Callable[[], None]) -> Generator[Message | None]:
        """Send a message, and yield what arrives from then on; None for a line that is no message. `tick` is called
        several times a second, and may raise. Raises Misbehaved and ServerEnded.
        """
        self.post(message)
        ended_at = math.inf
        while True:
            if self._look(TICK_MS):
                ended_at = math.inf
            elif self._server.poll() is not None:
                ended_at = min(ended_at, time.monotonic())
            yield from self._lines()
            if self._stdout not in self._open or time.monotonic() - ended_at > ORPHANED_S:
                raise ServerEnded(self._exit_code())
            tick()

    def agreed(self, version: str) -> None:
        """Do nothing: no line names the version."""

    def flush(self) -> None:
        """Write what waits to be written, as far as the server takes it at once."""
        self._write()

    def tail(self) -> bytes:
        """The last of what the server has written to its standard error since this was last asked."""
        tail = bytes(self._tail)
        self._tail.clear()
        return tail

    def close(self) -> None:
        """End the server, as the specification says: close its input, then SIGTERM, then SIGKILL."""
        self._outgoing.clear()
        if self._server.stdin is not None:
            self._server.stdin.close()
        for ending in (None, signal.SIGTERM):
            if ending is not None:
                self._signal(ending)
            if self._ends_within(ENDS_WITHIN_S):
                break
        self.kill()

    def kill(self) -> None:
        """End the server, and what is in its process group, at once."""
        self._signal(signal.SIGKILL)
        self._server.wait()
        for file in (self._server.stdin, self._server.stdout, self._server.stderr):
            if file is not None:
                file.close()

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._server.pid, number)
        except ProcessLookupError:
            pass

    def _ends_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self._server.poll() is None:
            if time.monotonic() >= until:
                return False
            self._look(TICK_MS)
            self._incoming.clear()
            self._searched = 0
        return True

    # -- the pipes ----------------------------------------------------------------------------------------------------

    def _look(self, wait_ms: int) -> bool:
        """Read and write once, after waiting for at most so long. Returns whether anything was read."""
        poll = select.poll()
        for fd in self._open:
            poll.register(fd, select.POLLIN)
        if self._outgoing:
            poll.register(self._stdin, select.POLLOUT)
        read = False
        for fd, _events in poll.poll(wait_ms):
            if fd == self._stdin:
                self._write()
            else:
                read = self._read(fd) or read
        return read

    def _read(self, fd: int) -> bool:
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._open.discard(fd)
            return False
        if fd == self._stderr:
            self._tail += data
            del self._tail[:-TAIL_BYTES]
            return True
        self._incoming += data
        self._received += len(data)
        if self._received > MAX_BYTES:
            raise Misbehaved(f"The server sent more than {MAX_BYTES:,} bytes during one request. It was ended.")
        return True

    def _write(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: os.write(self._stdin, self._outgoing[:READ_BYTES])]
        except BlockingIOError:
            pass
        except OSError:  # the server has closed its input; its output tells whether it has ended
            self._outgoing.clear()

    def _lines(self) -> Iterator[Message | None]:
        """The messages in the complete lines that have arrived."""
        while (end := self._incoming.find(b"\n", self._searched)) >= 0:
            line = self._incoming[:end]
            del self._incoming[: end + 1]
            self._searched = 0
            if line.strip():
                yield decoded(line)
        self._searched = len(self._incoming)
        if self._searched > MAX_LINE_BYTES:
            raise Misbehaved(f"The server sent a line of more than {MAX_LINE_BYTES:,} bytes. It was ended.")

    def _exit_code(self) -> int:
        """How the server has ended, which has closed its output. One that lives on is ended."""
        try:
            return self._server.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Misbehaved("The server closed its output and lived on. It was ended.") from None


def _limit_cpu(seconds: int) -> None:
    """In the new process, set the CPU time of its whole life: it would inherit what is left of the call's."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds if hard == resource.RLIM_INFINITY else min(seconds, hard), hard))
