"""Bytes on their way out over a descriptor that does not block: written at once as far as it takes them."""

import os
from collections.abc import Callable, Sequence

from toolcell.wire.frames import Buffer
from toolcell.wire.pipes import widen

IOV_MAX = 64


class Outbox:
    """`want(True)` is called when the descriptor has to be watched for room, `want(False)` when no longer.

    A pipe that is full is widened.
    """

    __slots__ = ("_fd", "_is_pipe", "_waiting", "_want")

    def __init__(self, fd: int, want: Callable[[bool], None], *, pipe: bool = False) -> None:
        self._fd = fd
        self._want = want
        self._is_pipe = pipe
        self._waiting: list[memoryview] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Send the buffers, in order, after what waits already."""
        if self._waiting:
            self._waiting += map(memoryview, buffers)
            return
        self._waiting = self._send(buffers)
        if self._waiting and self._is_pipe:
            widen(self._fd, sum(map(len, self._waiting)))
            self._waiting = self._send(self._waiting)
        if self._waiting:
            self._want(True)

    def flush(self) -> None:
        """Send on, now that there is room."""
        if self._waiting:
            self._waiting = self._send(self._waiting)
            if not self._waiting:
                self._want(False)

    def clear(self) -> None:
        """Forget what waits: its reader is gone."""
        if self._waiting:
            self._waiting = []
            self._want(False)

    def _send(self, buffers: Sequence[Buffer]) -> list[memoryview]:
        rest: list[Buffer] = list(buffers)
        while rest:
            try:
                written = os.writev(self._fd, rest[:IOV_MAX]) if len(rest) > 1 else os.write(self._fd, rest[0])
            except BlockingIOError:
                break
            except (BrokenPipeError, ConnectionResetError):
                return []  # the reader is gone; its pidfd tells the cell, which is where that is dealt with
            while rest and written >= len(rest[0]):
                written -= len(rest[0])
                del rest[0]
            if written:  # it is full now
                rest[0] = memoryview(rest[0])[written:]
                break
        return [memoryview(buffer) for buffer in rest] if rest else []


def read_available(fd: int, size: int) -> bytes | None:
    """Read once without blocking: bytes, b"" at the end, None when there is nothing now."""
    try:
        return os.read(fd, size)
    except BlockingIOError:
        return None
    except ConnectionResetError:
        return b""


def read_into(fd: int, room: memoryview) -> Buffer | None:
    """The same, to where it stays: the part of `room` that was filled."""
    try:
        return room[: os.readv(fd, [room])]
    except BlockingIOError:
        return None
    except ConnectionResetError:
        return b""
