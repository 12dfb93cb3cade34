"""Buffered writes to a non-blocking descriptor: bytes are written at once as far as possible, the rest is queued."""

import os
from collections import deque
from collections.abc import Callable, Sequence

from toolcell.wire.frames import Buffer
from toolcell.wire.pipes import widen

IOV_MAX = 64


class Outbox:
    """Calls `want(True)` when the descriptor must be watched for writability, and `want(False)` when no longer.

    The capacity of a full pipe is increased.
    """

    __slots__ = ("_fd", "_is_pipe", "_marks", "_waiting", "_want", "is_broken")

    def __init__(self, fd: int, want: Callable[[bool], None], *, pipe: bool = False) -> None:
        self._fd = fd
        self._want = want
        self._is_pipe = pipe
        self.is_broken = False  # whether the last write found no reader
        self._waiting: list[memoryview] = []
        self._marks: deque[tuple[int, Callable[[], None]]] = deque()  # bytes since the last mark, and the callback

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def write(self, buffers: Sequence[Buffer], on_left: Callable[[], None] | None = None) -> None:
        """Send the buffers, in order, after the queued ones. `on_left` is called when they are written, or have no
        reader any more."""
        if self._waiting:
            self._waiting += map(memoryview, buffers)
        elif rest := self._send(buffers):
            if self._is_pipe:
                widen(self._fd, sum(map(len, rest)))
                rest = self._send(rest)
            if rest:
                self._waiting = rest
                self._want(True)
        if on_left is None:
            return
        if self._waiting:
            self._marks.append((self._size() - sum(size for size, _heard in self._marks), on_left))
        else:
            on_left()

    def flush(self) -> None:
        """Write queued bytes, because the descriptor has room."""
        if self._waiting:
            before = self._size() if self._marks else 0
            self._waiting = self._send(self._waiting)
            if not self._waiting:
                self._want(False)
            self._note(before - self._size() if self._waiting else before)

    def clear(self) -> None:
        """Drop the queued bytes: their reader is gone."""
        if self._waiting:
            self._waiting = []
            marks, self._marks = self._marks, deque[tuple[int, Callable[[], None]]]()
            for _size, on_left in marks:
                on_left()
            self._want(False)

    def _size(self) -> int:
        return sum(map(len, self._waiting))

    def _note(self, written: int) -> None:
        """Call the callbacks of buffers whose last byte is among `written`."""
        left: list[Callable[[], None]] = []
        while self._marks and self._marks[0][0] <= written:
            size, on_left = self._marks.popleft()
            written -= size
            left.append(on_left)
        if self._marks:
            size, on_left = self._marks[0]
            self._marks[0] = size - written, on_left
        for on_left in left:
            on_left()

    def _send(self, buffers: Sequence[Buffer]) -> list[memoryview]:
        """Write as much as there is room for. Returns the rest."""
        rest, self.is_broken = buffers, False
        while rest:
            try:
                written = os.writev(self._fd, rest[:IOV_MAX]) if len(rest) > 1 else os.write(self._fd, rest[0])
            except BlockingIOError:
                break
            except (BrokenPipeError, ConnectionResetError):
                self.is_broken = True
                return []  # the reader is gone; the init, or its pidfd, reports it in a moment
            if len(rest) == 1 and written == len(rest[0]):  # as most often
                return []
            done = 0
            while done < len(rest) and written >= len(rest[done]):
                written -= len(rest[done])
                done += 1
            rest = rest[done:]
            if written:  # the pipe is full now
                rest = [memoryview(rest[0])[written:], *rest[1:]]
                break
        return [memoryview(buffer) for buffer in rest] if rest else []


def read_available(fd: int, size: int) -> bytes | None:
    """Read once without blocking. Returns bytes, b"" at the end of the stream, or None if nothing is there now."""
    try:
        return os.read(fd, size)
    except BlockingIOError:
        return None
    except ConnectionResetError:
        return b""
