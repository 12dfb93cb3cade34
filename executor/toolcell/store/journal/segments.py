"""The segments of a log: the open file, to which entries are appended, and closed files. `LogFile` reads them as one.

A log with a bound is cut into segments. When `journal.log` is long enough, it is renamed to `journal.log.<offset>`, and
a new `journal.log` begins. The offset is the number of bytes in all earlier segments, in 20 digits, including segments
that were removed. The chain continues across segments. Each segment but the first begins with a record of the kind
"segment", which has the head of the chain and the offset. It also has the offset up to which segments may be removed
from then on, so that a reader can tell removals by the bound from other removals.
"""

import os
import re
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Self

import msgpack

from toolcell.store.files import open_file
from toolcell.store.journal.entries import PREFIX, BrokenChain, Head
from toolcell.store.journal.journal import Record

KIND: Final = "segment"
_CLOSED: Final = re.compile(r"\.(\d{20})\Z")
_AGAIN_S: Final = 0.01
_TRIES: Final = 5  # the writer may close or remove a segment while a reader opens the segments


class Segment(NamedTuple):
    """A closed segment: its file, and the offsets of its beginning and its end."""

    path: Path
    begin: int
    end: int


def closed_segments(path: Path) -> list[Segment]:
    """The closed segments of the log at `path`, oldest first. Raises OSError."""
    found: list[Segment] = []
    for name in os.listdir(path.parent):
        match = _CLOSED.search(name)
        if match and name == path.name + match[0]:
            begin = int(match[1])
            found.append(Segment(path.parent / name, begin, begin + os.lstat(path.parent / name).st_size))
    return sorted(found, key=lambda each: each.begin)


def name_of_closed(path: Path, begin: int) -> Path:
    """The name that the segment which begins at this offset has after it is closed."""
    return path.with_name(f"{path.name}.{begin:020d}")


def opening_record(head: Head, offset: int, removable: int) -> Record:
    """The first record of a segment: the head of the chain before it, its offset, and the offset up to which segments
    may be removed until the next one begins."""
    data = {"number": head.number, "digest": head.digest.hex(), "offset": offset, "removable": removable}
    return Record(KIND, "", data=data)


class LogFile:
    """The segments of a log as one file to read. `head` is the head of the chain before the oldest segment that is
    left, and `begin` is its offset. Both are 0 if no segment was removed. Segments before the offset `removable` may be
    removed."""

    def __init__(self, path: Path) -> None:
        """Open the segments. Raises BrokenChain if one is missing that the bound has not removed, or OSError."""
        self.head, self.begin, self.removable = Head(), 0, 0
        self._files: list[tuple[int, BinaryIO]] = []  # each with its offset
        self._at = 0
        for tries_left in reversed(range(_TRIES)):
            try:
                self._open(path, is_last_try=not tries_left)
                break
            except (FileNotFoundError, BrokenChain):
                if not tries_left:
                    raise
                time.sleep(_AGAIN_S)

    def _open(self, path: Path, *, is_last_try: bool) -> None:
        with ExitStack() as undo:
            closed = closed_segments(path)
            files = [(each.begin, undo.enter_context(open_file(each.path))) for each in closed]
            try:
                last = undo.enter_context(open_file(path))
            except FileNotFoundError:  # killed after a segment was closed, before the next one began
                if not closed or not is_last_try:
                    raise
            else:
                beginning = _beginning(last)
                files.append((beginning.offset if beginning.is_said or not closed else closed[-1].end, last))
            head, begin = _beginning(files[0][1])[:2]
            said = [found.removable for _, file in files[-2:] if (found := _beginning(file)).is_said]  # the last is new
            removable = said[-1] if said else 0
            if files[0][0] != begin:
                raise BrokenChain("is not where its segment's name says", head.number + 1, begin)
            for each, (after, file) in zip(closed, files[1:], strict=False):
                if each.end != after:
                    number = _beginning(file).head.number
                    raise BrokenChain("is not there: a segment of the log was removed or cut", number, each.end)
            if begin > removable:
                what = "is not there: the oldest segments were removed, and not for the bound"
                raise BrokenChain(what, head.number, removable)
            undo.pop_all()
        self.head, self.begin, self._files, self._at = head, begin, files, begin
        self.removable = removable

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        for _begin, file in self._files:
            file.close()

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position as of a file: from the beginning, or from the end if `whence` is 2."""
        if whence == 2:
            begin, file = self._files[-1]
            offset += begin + os.fstat(file.fileno()).st_size
        self._at = offset
        return offset

    def read(self, size: int) -> bytes:
        """Read `size` bytes, or fewer at the end of the last segment."""
        found = bytearray()
        for number, (begin, file) in enumerate(self._files):
            end = self._files[number + 1][0] if number + 1 < len(self._files) else None
            if self._at < begin or (end is not None and self._at >= end):
                continue
            file.seek(self._at - begin)
            taken = file.read(size - len(found) if end is None else min(size - len(found), end - self._at))
            found += taken
            self._at += len(taken)
            if len(found) == size:
                break
        return bytes(found)


class _Beginning(NamedTuple):
    """The facts in the first entry of a segment (`opening_record`). `is_said`: the entry has them."""

    head: Head = Head()
    offset: int = 0
    removable: int = 0
    is_said: bool = False


def _beginning(file: BinaryIO) -> _Beginning:
    """Read where a segment begins: 0 for the first segment of a log. Does not check the entry against the chain."""
    file.seek(0)
    prefix = file.read(PREFIX.size)
    size = PREFIX.unpack(prefix)[0] if len(prefix) == PREFIX.size else 0
    if not 0 < size <= _MOST_OPENING_BYTES:
        return _Beginning()
    try:
        unpacked: Any = msgpack.unpackb(file.read(size))
        _number, kind, _session, _call, said, _at = unpacked
        if kind != KIND:
            return _Beginning()
        found = _Beginning(
            Head.parse(f"{said['number']}:{said['digest']}"), said["offset"], said["removable"], is_said=True
        )
    except (ValueError, TypeError, LookupError, RecursionError):
        return _Beginning()
    is_valid = all(type(each) is int and 0 <= each <= _MOST for each in (found.offset, found.removable))
    return found if is_valid and found.head.number <= _MOST else _Beginning()


_MOST_OPENING_BYTES: Final = 1024
_MOST: Final = 2**63 - 1
