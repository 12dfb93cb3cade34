"""The list of withdrawn and revoked approvals, in a file beside the database. It holds if the database is put back
from a copy.

Each line has how an approval ended, its id and a signature. The line is on the disk before the database has the end.
The next supervisor writes a record into the journal. At its start, a supervisor removes the lines whose records the
journal has.
"""

import errno
import fcntl
import logging
import os
import time
from collections.abc import Container, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from toolcell.store.database import Signer
from toolcell.store.files import open_file, open_to_append, sync_directory, write_file

_log = logging.getLogger("toolcell.approval")
_KIND: Final = "ended.2"
EndedBy = Literal["withdrawn", "revoked"]
LOCK_S: Final = 10.0
MOST_BYTES: Final = 16 * 1024 * 1024
"""The most that is read. A supervisor's start removes lines, so a larger file is damaged."""


class EndedList:
    """The file of one state directory. Any process of its user appends to it."""

    def __init__(self, path: Path, signer: Signer) -> None:
        self._path = path
        self._signer = signer
        self._seen: tuple[int, int] | None = None  # inode and size when it was last read
        self._found: dict[str, EndedBy] = {}

    def add(self, id: str, how: EndedBy) -> None:
        """Append an approval, and make that durable. Raises OSError."""
        line = self._line(id, how)
        with self._locked() as fd:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":  # a power failure has cut the last line off
                line = b"\n" + line
            if os.write(fd, line) != len(line):
                os.ftruncate(fd, size)
                raise OSError(errno.ENOSPC, "the disk is full", str(self._path))
            os.fsync(fd)

    def read(self) -> dict[str, EndedBy]:
        """How each approval ended. Cheap if nothing was added. Raises OSError."""
        try:
            found = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            return self._found
        if (found.st_ino, found.st_size) != self._seen:
            with open_file(self._path) as file:
                lines = file.read(MOST_BYTES + 1)
            if len(lines) > MOST_BYTES:  # an approval in the rest would hold again
                raise OSError(errno.EBADMSG, f"has more than {MOST_BYTES:,} bytes", str(self._path))
            self._seen = found.st_ino, found.st_size
            self._found |= dict(filter(None, map(self._parsed, lines.splitlines())))
        return self._found

    def remove(self, known: Container[str]) -> None:
        """Remove the approvals that the journal knows. Raises OSError."""
        found = self.read()
        if not any(id in known for id in found):
            return
        with self._locked():
            self._seen = None  # another process may have added one
            kept = {id: how for id, how in self.read().items() if id not in known}
            beside = self._path.with_name(f".{self._path.name}.new")
            write_file(beside, b"".join(self._line(id, how) for id, how in kept.items()))
            beside.replace(self._path)

    def _line(self, id: str, how: str) -> bytes:
        return f"{how} {id} {self._signer.of(_KIND, id, how).hex()}\n".encode()

    @contextmanager
    def _locked(self) -> Generator[int]:
        """The file, open and locked. Another process may have replaced it while this one waited for the lock."""
        while True:
            is_new = not self._path.exists()
            fd = open_to_append(self._path)
            try:
                _lock(fd, self._path)
                if is_new:
                    sync_directory(self._path.parent)
                if self._is_at_its_place(fd):
                    yield fd
                    return
            finally:
                os.close(fd)

    def _is_at_its_place(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.stat(self._path, follow_symlinks=False), os.fstat(fd))
        except FileNotFoundError:
            return False

    def _parsed(self, line: bytes) -> tuple[str, EndedBy] | None:
        try:
            how, id, signature = line.decode().split(" ")
            fits = self._signer.fits(bytes.fromhex(signature), _KIND, id, how)
        except ValueError:
            fits, how, id = False, "", ""
        if not fits:
            _log.warning("a line of %s does not fit its signature: it was edited, or cut off", self._path)
            return None
        return (id, "withdrawn") if how == "withdrawn" else (id, "revoked")


def _lock(fd: int, path: Path) -> None:
    """Lock the file. Whoever has it locked holds it for the time of a write. Raises OSError after `LOCK_S`."""
    end = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise OSError(errno.EBUSY, "another program holds its lock", str(path)) from None
            time.sleep(0.01)
