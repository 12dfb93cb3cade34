"""A queue of inotify(7) events: entries of watched directories that were written, created, moved or removed."""

import ctypes
import errno
import fcntl
import os
import struct
import termios
from typing import NamedTuple

_libc = ctypes.CDLL(None, use_errno=True)
_init, _add, _remove = _libc.inotify_init1, _libc.inotify_add_watch, _libc.inotify_rm_watch
_head = struct.Struct("=iIII")  # struct inotify_event: wd, mask, cookie, len
MODIFY, ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO = 0x2, 0x4, 0x8, 0x40, 0x80
CREATE, DELETE, OVERFLOW, IGNORED, ONLYDIR = 0x100, 0x200, 0x4000, 0x8000, 0x1000000
PLACED = MOVED_FROM | MOVED_TO | CREATE | DELETE
"""The events after which the same name may belong to another file."""
_CHANGES = MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | ONLYDIR
_READ_BYTES = 256 * 1024
_MOST_READS = 64  # a queue of 16,384 events (fs.inotify.max_queued_events) of 272 bytes takes 17; more are read later


class Events(NamedTuple):
    """The names with events, by the number of the directory's watch, each with all its event bits. `lost`: the queue
    has overflowed, so events are missing."""

    names: dict[int, dict[str, int]]
    lost: bool


class Inotify:
    """A queue of events. A user has only 128 of them by default (fs.inotify.max_user_instances). Raises OSError if none
    is left.

    A write through a memory mapping causes an event at the latest when the file's last descriptor and mapping are gone.
    """

    def __init__(self) -> None:
        self.fd = int(_init(os.O_NONBLOCK | os.O_CLOEXEC))
        if self.fd < 0:
            raise _failed("inotify_init1")

    def watch(self, held: int) -> int:
        """Watch a directory that is held open. Returns the watch's number, the same for the same directory."""
        number = int(_add(self.fd, b"/proc/self/fd/%d" % held, _CHANGES))
        if number < 0:
            raise _failed("inotify_add_watch")
        return number

    def forget(self, number: int) -> None:
        """Remove a watch. Does nothing if the watch ended with its directory."""
        _remove(self.fd, number)

    @property
    def has_events(self) -> bool:
        waiting = bytearray(4)
        fcntl.ioctl(self.fd, termios.FIONREAD, waiting)
        return any(waiting)

    def events(self) -> Events:
        """Take the events from the queue. Does not block."""
        names: dict[int, dict[str, int]] = {}
        lost = True
        for _ in range(_MOST_READS):
            try:
                raw = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                lost = False
                break
            if _collect(raw, names):
                names.clear()
                self._drain()
                break
        return Events(names, lost)

    def _drain(self) -> None:
        for _ in range(_MOST_READS):
            try:
                os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                return

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        self.close()


class NoQueue:
    """Takes the place of a queue where the user has none left: each look has to list the whole tree."""

    has_events = True

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self._watched: dict[int, tuple[int, int]] = {}
        self._next = 0

    def watch(self, held: int) -> int:
        info = os.fstat(held)
        key = info.st_dev, info.st_ino
        if key not in self._numbers:
            self._next += 1
            self._numbers[key], self._watched[self._next] = self._next, key
        return self._numbers[key]

    def forget(self, number: int) -> None:
        key = self._watched.pop(number, None)
        if key is not None:
            del self._numbers[key]

    def events(self) -> Events:
        return Events({}, lost=True)

    def close(self) -> None:
        self._numbers.clear()
        self._watched.clear()


def _collect(raw: bytes, names: dict[int, dict[str, int]]) -> bool:
    """Add the events of one read. Returns whether events were lost."""
    at = 0
    while at < len(raw):
        number, mask, _, size = _head.unpack_from(raw, at)
        at += _head.size
        if mask & OVERFLOW:
            return True
        if size and not mask & IGNORED:
            name = os.fsdecode(raw[at : at + size].split(b"\0", 1)[0])
            some = names.setdefault(number, {})
            some[name] = some.get(name, 0) | mask
        at += size
    return False


def _failed(what: str) -> OSError:
    number = ctypes.get_errno()
    told = {
        errno.EMFILE: "no inotify queue is left: raise fs.inotify.max_user_instances",
        errno.ENOSPC: "no inotify watch is left: raise fs.inotify.max_user_watches",
    }
    return OSError(number, told.get(number, f"{what} failed: {os.strerror(number)}"))
