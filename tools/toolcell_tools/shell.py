"""The shell handle: run one command to its end or its timeout, with bounded output. `command_line` decides for every
tool which shell runs a command, and how a long one gets there."""

import os
import select
import signal
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from .failures import ToolFailure
from .paths import resolved

if TYPE_CHECKING:
    import subprocess

__all__ = ["Completed", "HeadTail", "Shell", "command_line", "shell_program"]

OUTPUT_BYTES = 30_000  # kept of each stream: half from its beginning, half from its end
COMMAND_BYTES = 1024 * 1024
"""The most bytes of a command."""
_ARGUMENT_BYTES = 131_071  # of one argument: MAX_ARG_STRLEN less its NUL, execve(2)
_BASH = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")
_CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended. `exit_code` is minus the signal's number if a signal killed it, None if it timed out."""

    stdout: str
    stderr: str
    exit_code: int | None
    timed_out: bool
    stdout_omitted_bytes: int
    stderr_omitted_bytes: int
    elapsed_s: float


class HeadTail:
    """Takes bytes; keeps the first half and the last half of `limit` of them."""

    __slots__ = ("_head", "_head_room", "_tail", "_tail_limit", "_tail_size", "total")

    def __init__(self, limit: int) -> None:
        self.total = 0
        self._head = bytearray()
        self._head_room = limit - limit // 2
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._tail_limit = limit // 2

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        if self._head_room:
            taken = data[: self._head_room]
            self._head += taken
            self._head_room -= len(taken)
            data = data[len(taken) :]
        if data:
            self._tail.append(data)
            self._tail_size += len(data)
            while self._tail and self._tail_size - len(self._tail[0]) >= self._tail_limit:
                self._tail_size -= len(self._tail.popleft())

    @property
    def omitted(self) -> int:
        """The number of bytes that `text` leaves out."""
        return max(0, self.total - len(self._head) - self._tail_limit)

    def text(self) -> str:
        """The kept bytes as UTF-8 (invalid ones become U+FFFD), with a line that counts the bytes left out."""
        tail = b"".join(self._tail)
        if not self.omitted:
            return (bytes(self._head) + tail).decode(errors="replace")
        kept = tail[len(tail) - self._tail_limit :]
        note = f"\n[… {self.omitted:,} of {self.total:,} bytes left out …]\n"
        return bytes(self._head).decode(errors="replace") + note + kept.decode(errors="replace")


class OutputRelay(Protocol):
    """Receives what commands print while they run. The cell's runner implements it."""

    def feed(self, stream: int, data: bytes) -> None:
        """Take what a command has printed to `stream`: 1 is stdout, 2 is stderr."""
        ...

    def due_s(self) -> float | None:
        """The seconds until `flush` must be called, or None if there is nothing to flush."""
        ...

    def flush(self, *, last: bool = False) -> None:
        """Pass on the buffered output. `last` is true when the command has ended."""
        ...


class _Relayed(HeadTail):
    """A captured stream that is also passed to an OutputRelay."""

    __slots__ = ("_number", "_relay")

    def __init__(self, limit: int, number: int, relay: OutputRelay) -> None:
        super().__init__(limit)
        self._number = number
        self._relay = relay

    def feed(self, data: bytes) -> None:
        super().feed(data)
        if data:
            self._relay.feed(self._number, data)


class Shell:
    """Runs commands below `root` with bash, or with /bin/sh where there is no bash. The tool needs Capability.EXEC, and
    READ for a workspace to run in."""

    def __init__(
        self, root: str | os.PathLike[str], output_bytes: int = OUTPUT_BYTES, *, relay: OutputRelay | None = None
    ) -> None:
        self.root = Path(os.path.realpath(root))
        self._output_bytes = output_bytes
        self._relay = relay
        self.has_run = False
        """Whether a command was started."""

    def run(self, command: str, cwd: str | os.PathLike[str] | None = None, timeout_s: float | None = None) -> Completed:
        """Run `command` without input, in `cwd` below the workspace, and wait for it.

        The command gets its own process group. The group is killed after `timeout_s` seconds and when the command
        ends, so a background process does not delay the call. Raises ToolFailure if the command cannot start.
        """
        return self._run(command, cwd, timeout_s, None)

    async def arun(
        self, command: str, cwd: str | os.PathLike[str] | None = None, timeout_s: float | None = None
    ) -> Completed:
        """`run` for async tools, in a thread of its own. Cancellation kills the command, then returns."""
        import asyncio  # takes 25 ms, only for tools that need it

        stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            running = asyncio.ensure_future(asyncio.to_thread(self._run, command, cwd, timeout_s, stop))
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                os.eventfd_write(stop, 1)
                await asyncio.wait([running])
                raise
        finally:
            os.close(stop)

    def _run(
        self, command: str, cwd: str | os.PathLike[str] | None, timeout_s: float | None, stop: int | None
    ) -> Completed:
        if timeout_s is not None and not timeout_s > 0:
            raise ToolFailure(f"timeout_s must be more than 0 seconds, not {timeout_s}")
        directory = resolved(self.root, cwd if cwd is not None else ".")
        if not os.path.isdir(self.root):
            raise ToolFailure("this tool has no workspace, so it cannot run commands")
        if not directory.is_dir():
            raise ToolFailure(f"cwd {os.fspath(cwd or '.')!r} is not a directory in the workspace")
        started = time.monotonic()
        self.has_run = True
        captured = self._capture(1), self._capture(2)
        deadline = None if timeout_s is None else started + timeout_s
        with command_line(command) as line:
            process = _started(line, directory)
            try:
                ended = _pump(process, captured, deadline, stop, self._relay)
            finally:
                exit_code = _swept(process)
                if self._relay is not None:
                    self._relay.flush(last=True)
        out, err = captured
        return Completed(
            stdout=out.text(),
            stderr=err.text(),
            exit_code=exit_code if ended else None,
            timed_out=not ended,
            stdout_omitted_bytes=out.omitted,
            stderr_omitted_bytes=err.omitted,
            elapsed_s=time.monotonic() - started,
        )

    def _capture(self, number: int) -> HeadTail:
        relay = self._relay
        return HeadTail(self._output_bytes) if relay is None else _Relayed(self._output_bytes, number, relay)


def shell_program() -> str:
    """The shell that runs commands: bash where there is one, because models write for it, else /bin/sh."""
    return next((path for path in _BASH if os.access(path, os.X_OK)), "/bin/sh")


@contextmanager
def command_line(command: str, most: int = COMMAND_BYTES) -> Generator[list[str], None, None]:
    """The program and the arguments that run `command`, for as long as the context lasts. A command that is too long
    for an argument lies in a file meanwhile. Raises ToolFailure for a command that cannot be run."""
    if "\0" in command:
        raise ToolFailure("the command contains a NUL character; remove it")
    try:
        data = os.fsencode(command)
    except UnicodeEncodeError as failure:
        raise ToolFailure(f"the command could not be started: {failure}") from failure
    if len(data) > most:
        raise ToolFailure(
            f"the command has {len(data):,} bytes, and at most {most:,} can be run; write it to a file in parts, and "
            "run the file"
        )
    if len(data) <= _ARGUMENT_BYTES:
        yield [shell_program(), "-c", command]
        return
    script = _script(data)
    try:
        yield [shell_program(), script]
    finally:
        with suppress(FileNotFoundError):  # the command may have removed it
            os.unlink(script)


def _script(data: bytes) -> str:
    """The path of a new temporary file with this content."""
    import tempfile

    path = ""
    try:
        descriptor, path = tempfile.mkstemp(prefix="command-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as failure:
        if path:
            os.unlink(path)
        raise ToolFailure(
            f"the command has {len(data):,} bytes, and could not be written to a temporary file: {failure.strerror}; "
            "remove what fills /tmp, or shorten the command"
        ) from failure
    return path


def _started(line: list[str], directory: Path) -> "subprocess.Popen[bytes]":
    import subprocess  # takes 0.5 MB, only for tools that need it

    try:
        return subprocess.Popen(
            line,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
    except OSError as failure:
        raise ToolFailure(f"the command could not be started: {failure.strerror}") from failure


def _pump(
    process: "subprocess.Popen[bytes]",
    captured: tuple[HeadTail, HeadTail],
    deadline: float | None,
    stop: int | None,
    relay: OutputRelay | None,
) -> bool:
    """Read output. Returns True when the command has ended, False at the deadline or when `stop` is set."""
    poll = select.poll()
    sinks: dict[int, HeadTail] = {}
    for pipe, sink in zip((process.stdout, process.stderr), captured, strict=True):
        descriptor = _number(pipe)
        os.set_blocking(descriptor, False)
        poll.register(descriptor, select.POLLIN)
        sinks[descriptor] = sink
    if stop is not None:
        poll.register(stop, select.POLLIN)
    exited = os.pidfd_open(process.pid)
    try:
        poll.register(exited, select.POLLIN)
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            due = None if relay is None else relay.due_s()
            wait = min((each for each in (left, due) if each is not None), default=None)
            ready = {descriptor for descriptor, _ in poll.poll(None if wait is None else wait * 1000 + 1)}
            for descriptor in ready & sinks.keys():
                if not _drain_once(descriptor, sinks[descriptor]):
                    poll.unregister(descriptor)
                    del sinks[descriptor]
            if due is not None and relay is not None:
                relay.flush()
            if stop in ready:
                return False
            if exited in ready:
                for descriptor, sink in sinks.items():
                    _drain_ended(descriptor, sink)
                return True
    finally:
        os.close(exited)


def _drain_once(descriptor: int, sink: HeadTail) -> bool:
    """Read one chunk of the available output. Returns False at the end of the stream."""
    try:
        data = os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return True
    sink.feed(data)
    return bool(data)


def _drain_ended(descriptor: int, sink: HeadTail) -> None:
    """Read the rest of an ended command's output, at most one pipe's capacity: a child may write for ever."""
    for _ in range(1 + 1_048_576 // _CHUNK):  # the default of /proc/sys/fs/pipe-max-size, pipe(7)
        before = sink.total
        if not _drain_once(descriptor, sink) or sink.total == before:
            return


def _swept(process: "subprocess.Popen[bytes]") -> int:
    """Kill the command's group, then reap its leader. Until the leader is reaped, its number cannot be reused."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # the whole group is gone
    except PermissionError:
        process.kill()  # a member changed its user id; the leader can still be killed
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    return process.wait()


def _number(pipe: IO[bytes] | None) -> int:
    assert pipe is not None  # both streams are pipes
    return pipe.fileno()
