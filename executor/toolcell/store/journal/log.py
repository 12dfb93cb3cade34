"""The log of a durable journal: a file to which each record is appended by one write(2), cut into segments if it has a
bound (`segments`)."""

import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolcell.store.cures import cure_of
from toolcell.store.files import open_to_append, sync_directory
from toolcell.store.journal.entries import Head, JournalEntry, SharedFacts, entries, entry_of, new_packer
from toolcell.store.journal.journal import Record
from toolcell.store.journal.segments import LogFile, closed_segments, name_of_closed, opening_record
from toolcell.wire import forks

_log = logging.getLogger("toolcell.journal")
SYNC_S: Final = 1.0
"""The most seconds between a record and the start of the fdatasync(2) after it. A power failure loses no record that is
older than this and the time of one fdatasync(2)."""
BLOCK_BYTES: Final = 65_536
SEGMENTS: Final = 8
"""A log with a bound has about so many segments: each is closed when it has this part of the bound."""
write: Final = os.write


class JournalFull(OSError):
    """A record could not be appended. The message has the cause and the cure."""


class JournalLog:
    """An open log. Any thread may append. A thread of its own makes the appended records durable.

    `also` are calls that the same thread makes after each fdatasync(2), for other files of the state directory. They
    may raise OSError.
    """

    def __init__(self, path: Path, also: Iterable[Callable[[], None]] = (), most_bytes: int = 0) -> None:
        """`most_bytes` bounds the segments together, 0 for no bound and one segment."""
        self.path = path
        self._most_bytes = most_bytes
        self._begin = 0  # the offset of the open segment
        self._removable = 0  # up to this offset, as its first record says
        self._number, self._digest = Head()
        self.size = 0
        """Bytes up to the end of the last entry, of all segments together."""
        self.synced = 0
        """Bytes that are durable."""
        self.broken = ""
        """Why nothing can be appended any more, "" if it can."""
        self.has_gap = False
        """Whether segments were removed that hold entries after the head with which the log was opened."""
        self._also = tuple(also)
        self._fd = -1
        self._lock = threading.Lock()
        self._packer = new_packer()
        self._dirty = threading.Event()
        self._dirty_since = 0.0
        self._closing = threading.Event()
        self._syncing: threading.Thread | None = None
        forks.register(self)

    @property
    def head(self) -> Head:
        """The end of the chain."""
        return Head(self._number, self._digest)

    def open(self, head: Head = Head(), offset: int = 0) -> Iterator[JournalEntry]:  # noqa: B008 - a NamedTuple
        """Open the file, or make it, and give the entries after `head`, which ends at `offset`. Append after the last.

        Bytes after the last complete entry, from a write that a power failure has cut off, are moved to a file beside
        the log. Raises BrokenChain, or OSError.
        """
        self._fd = open_to_append(self.path)
        try:
            with LogFile(self.path) as file:
                if offset < file.begin:
                    head, offset, self.has_gap = file.head, file.begin, True
                self._begin = file.seek(0, 2) - os.fstat(self._fd).st_size
                self._removable = file.removable
                (self._number, self._digest), self.size = head, offset
                for each in entries(file, head, offset):
                    (self._number, self._digest), self.size = each.head, each.end
                    yield each
                self._set_aside(file)
            if self._begin and self.size == self._begin:  # its opening record was never written
                self._open_segment(self._fd)
            os.fsync(self._fd)
            sync_directory(self.path.parent)
            self.synced = self.size
        except BaseException:
            os.close(self._fd)
            self._fd = -1
            raise
        self._syncing = threading.Thread(target=self._sync, name="toolcell-journal", daemon=True)
        self._syncing.start()

    def append(self, record: Record, shared: SharedFacts | None = None) -> int:
        """Append a record, whose data follows the `shared` facts, and return its number. Raises JournalFull, after
        which the file is as it was before."""
        with self._lock:
            if self.broken:
                raise JournalFull(self.broken)
            try:
                digest, entry = entry_of(self._number, self._digest, record, self._packer, shared)
                written = write(self._fd, entry)
                if written != len(entry):
                    raise OSError(errno.ENOSPC, "the disk is full")
            except (ValueError, OSError) as error:
                self._take_back()
                raise self._full(error) from error
            self._number += 1
            self._digest = digest
            self.size += written
            if not self._dirty_since:
                self._dirty_since = time.monotonic()
                self._dirty.set()
            return self._number

    def behind_s(self) -> float:
        """The age of the oldest record that is not durable, in seconds."""
        since = self._dirty_since
        return time.monotonic() - since if since else 0.0

    def close(self) -> None:
        """Make every record durable, and close the file."""
        self._closing.set()
        self._dirty.set()
        if self._syncing is not None:
            self._syncing.join()
            self._syncing = None
        if self._fd >= 0:
            try:
                self._make_durable()
            finally:
                os.close(self._fd)
                self._fd = -1
        self.broken = self.broken or "The journal is closed."

    def let_go(self) -> None:
        """In a fork of the program, close the log: a second writer would break the chain."""
        self._lock = threading.Lock()  # a thread that is not here may have held it
        self._syncing = None
        self.broken = "The journal cannot be written: this process is a fork of the supervisor's program."
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _sync(self) -> None:
        while not self._closing.is_set():
            self._dirty.wait()
            self._closing.wait(max(0.0, self._dirty_since + SYNC_S - time.monotonic()))
            self._dirty.clear()
            try:
                self._make_durable()
                self._require_same_file()
                if self._most_bytes and self.size - self._begin >= self._most_bytes // SEGMENTS:
                    self._rotate()
            except OSError as error:
                self._break(f"cannot be made durable: {error.strerror or error}. Look at the disk")

    def _make_durable(self) -> None:
        with self._lock:
            size, self._dirty_since = self.size, 0.0
        os.fdatasync(self._fd)
        self.synced = size
        for each in self._also:
            each()

    def _require_same_file(self) -> None:
        """Break the log if its file was removed, replaced or cut: then the records that follow would be lost."""
        with self._lock:
            size = self.size
        own = os.fstat(self._fd)
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            self._break("was removed. Put the file back")
            return
        if (found.st_dev, found.st_ino) != (own.st_dev, own.st_ino):
            self._break("was replaced by another file. Put the first one back")
        elif own.st_size < size - self._begin:
            self._break("was cut while it was written. Run `toolcell audit verify`")

    def _break(self, what: str) -> None:
        """Refuse all later records. An error of fdatasync(2) is not tried again: the kernel may have dropped the
        bytes, and a second try would succeed without them."""
        if not self.broken:
            self.broken = f"The journal {str(self.path)!r} {what}, and start the supervisor again."
            _log.error("%s", self.broken)

    def _take_back(self) -> None:
        """Remove what was written of an entry. A file that has nothing of it is not touched: its file system may be
        read-only for a while."""
        size = self.size - self._begin
        try:
            if os.fstat(self._fd).st_size > size:
                os.ftruncate(self._fd, size)
        except OSError as error:
            self._break(f"ends with half a record, which cannot be removed: {error.strerror}. Look at the disk")

    def _rotate(self) -> None:
        """Close the open segment and begin the next one. The writers of records wait for the time of a rename."""
        with self._lock:
            if self.broken:
                return
            closed = name_of_closed(self.path, self._begin)
            fd, before, is_renamed = -1, self._begin, False
            try:
                os.rename(self.path, closed)
                is_renamed = True
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
                fd = os.open(self.path, flags, 0o600)
                self._begin = self.size
                self._open_segment(fd)
            except OSError:  # such as a full disk: go on with the segment that is open
                if fd >= 0:
                    os.close(fd)
                self._begin = before
                if is_renamed:
                    os.rename(closed, self.path)
                _log.warning("the journal %s cannot begin another segment now", self.path, exc_info=True)
                return
            old, self._fd = self._fd, fd
        try:
            os.fdatasync(old)
        finally:
            os.close(old)
        sync_directory(self.path.parent)
        self._make_durable()

    def _open_segment(self, fd: int) -> None:
        """Append the record with which a segment begins. Raises OSError."""
        removable = max(self._removable, self._removable_now())
        record = opening_record(self.head, self.size, removable)
        digest, entry = entry_of(self._number, self._digest, record, self._packer)
        written = write(fd, entry)
        if written != len(entry):
            os.ftruncate(fd, 0)
            raise OSError(errno.ENOSPC, "the disk is full")
        self._number, self._digest, self._removable = self._number + 1, digest, removable
        self.size += written

    def _removable_now(self) -> int:
        """The offset from which on segments are kept while the next one is open, which may take its part of the
        bound."""
        kept = self._most_bytes - self._most_bytes // SEGMENTS
        begins = [each.begin for each in closed_segments(self.path)]
        return next((begin for begin in begins if self.size - begin <= kept), self.size)

    def remove_oldest(self, up_to: int) -> int:
        """Remove closed segments that end before the offset `up_to`, the oldest first, if the open one says that the
        bound leaves no room for them. Returns the offset at which the log begins now. Raises OSError."""
        up_to = min(up_to, self._removable)
        closed = closed_segments(self.path) if self._most_bytes else []
        begin = closed[0].begin if closed else self._begin
        for each in closed:
            if each.end > up_to:
                break
            each.path.unlink()
            begin = each.end
        return begin

    def _set_aside(self, file: LogFile) -> None:
        """Move what follows the last entry to a file beside the log."""
        file.seek(self.size)
        block = file.read(BLOCK_BYTES)
        if not block:
            return
        aside = self.path.with_name(f"{self.path.name}.cut-{self._number}")
        with suppress(FileNotFoundError):
            aside.unlink()  # never a FIFO or a link
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as kept:
            while block:
                kept.write(block)
                block = file.read(BLOCK_BYTES)
            count = kept.tell()
            kept.flush()
            os.fsync(kept.fileno())
        os.ftruncate(self._fd, self.size - self._begin)
        _log.warning("the last %d bytes of %s are no complete entry; they are now in %s", count, self.path, aside)

    def _full(self, error: Exception) -> JournalFull:
        why = getattr(error, "strerror", None) or str(error)
        return JournalFull(self.broken or f"The journal {str(self.path)!r} cannot be written: {why}. {cure_of(error)}")
