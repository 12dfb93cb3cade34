"""The log of a durable journal: one file to which each record is appended by one write(2)."""

import logging
import os
import threading
from pathlib import Path

from .chain import Head, JournalEntry, entries, entry_of, new_packer
from .journal import Record

_log = logging.getLogger("toolcell.journal")
SYNC_S = 1.0
"""The most seconds between a record and the fsync(2) after it. A power failure loses no older record."""


class JournalFull(OSError):
    """A record could not be appended. The message has the cause and the cure."""


class JournalLog:
    """An open log. Any thread may append. A thread of its own makes the appended records durable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head = Head()
        self.size = 0
        """Bytes up to the end of the last entry."""
        self._fd = -1
        self._lock = threading.Lock()
        self._packer = new_packer()
        self._dirty = threading.Event()
        self._closing = threading.Event()
        self._syncing: threading.Thread | None = None

    def open(self, head: Head = Head(), offset: int = 0) -> list[JournalEntry]:  # noqa: B008 - a NamedTuple
        """Open the file, or make it, and return the entries after `head`, which ends at `offset`.

        Bytes after the last complete entry, from a write that a power failure has cut off, are moved to a file beside
        the log. Raises BrokenChain, or OSError.
        """
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with open(self.path, "rb") as file:
                found = list(entries(file, head, offset))
                self.head, self.size = (found[-1].head, found[-1].end) if found else (head, offset)
                file.seek(self.size)
                rest = file.read()
            if rest:
                self._set_aside(rest)
        except BaseException:
            os.close(self._fd)
            self._fd = -1
            raise
        self._syncing = threading.Thread(target=self._sync, name="toolcell-journal", daemon=True)
        self._syncing.start()
        return found

    def append(self, record: Record) -> None:
        """Append a record. Raises JournalFull, after which the file is as it was before."""
        with self._lock:
            try:
                head, entry = entry_of(self.head, record, self._packer)
                written = os.write(self._fd, entry)
            except (ValueError, OSError) as error:
                raise _full(self.path, error) from error
            if written != len(entry):
                os.ftruncate(self._fd, self.size)
                raise _full(self.path, OSError("the disk is full"))
            self.head, self.size = head, self.size + written
        if not self._dirty.is_set():
            self._dirty.set()

    def close(self) -> None:
        """Make every record durable, and close the file."""
        self._closing.set()
        self._dirty.set()
        if self._syncing is not None:
            self._syncing.join()
            self._syncing = None
        if self._fd >= 0:
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _sync(self) -> None:
        while not self._closing.is_set():
            self._dirty.wait()
            self._closing.wait(SYNC_S)
            self._dirty.clear()
            try:
                os.fdatasync(self._fd)
            except OSError as error:
                _log.error("the journal cannot be made durable: %s", error)

    def _set_aside(self, rest: bytes) -> None:
        aside = self.path.with_name(f"{self.path.name}.cut-{self.head.number}")
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(rest)
        os.ftruncate(self._fd, self.size)
        _log.warning("the last %d bytes of %s are no complete entry; they are now in %s", len(rest), self.path, aside)


def _full(path: Path, error: Exception) -> JournalFull:
    why = getattr(error, "strerror", None) or str(error)
    return JournalFull(f"The journal {str(path)!r} cannot be written: {why}. Free space there.")
