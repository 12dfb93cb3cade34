"""Read a durable journal while it is written: from the index, and from the log what the index does not have yet."""

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from toolcell.errors import UsageError

from .chain import BrokenChain, Head, JournalEntry, entries
from .database import Index, row_of
from .journal import Record
from .redact import with_digest

FOLLOW_S = 0.2
"""Seconds between two looks of `follow`."""
Numbered = tuple[int, Record]
Wanted = Callable[[Record], bool]


class JournalReader:
    """Reads the journal of a state directory. It takes no lock, and changes nothing."""

    def __init__(self, log: Path, index: Path) -> None:
        """Raises UsageError if there is no journal."""
        if not log.exists():
            raise UsageError(f"There is no journal at {str(log)!r}. Pass the directory of Supervisor(state=…).")
        self._log, self._index = log, index

    def records(self, where: str = "", values: tuple[object, ...] = (), *, wanted: Wanted, last: int) -> list[Numbered]:
        """The last records that match, oldest first. `wanted` says the same as the SQL condition `where`. Raises
        BrokenChain."""
        found: list[Numbered] = []
        head, size = Head(), 0
        try:
            with closing(Index(self._index, to_write=False)) as index:
                head, size = index.head, index.size
                found = list(index.records(f"({where or 'TRUE'}) AND number <= ?", (*values, head.number), last=last))
        except (sqlite3.Error, ValueError):
            head, size, found = Head(), 0, []  # there is no index yet, or it is damaged: everything comes from the log
        with open(self._log, "rb") as file:
            for each in entries(file, head, size):
                if wanted(each.record):
                    found.append(_numbered(each))
                    if len(found) > 2 * last:
                        del found[:-last]
        return found[-last:]

    def follow(self, wanted: Wanted) -> Iterator[Numbered]:
        """The records that are written from now on. Ends never by itself. Raises BrokenChain, also if the log is
        replaced or cut."""
        head, size = self.verified_end()
        with open(self._log, "rb") as file:
            while True:
                for each in entries(file, head, size):
                    head, size = each.head, each.end
                    if wanted(each.record):
                        yield _numbered(each)
                time.sleep(FOLLOW_S)
                own = os.fstat(file.fileno())
                if not self._log.exists() or own.st_size < size or not os.path.samestat(own, self._log.stat()):
                    raise BrokenChain("is not there: the log was replaced or cut", head.number, size)

    def entries(self) -> Iterator[JournalEntry]:
        """Every entry, checked. Raises BrokenChain."""
        with open(self._log, "rb") as file:
            for each in entries(file):
                yield each._replace(record=each.record._replace(data=with_digest(each.record.data)))

    def verified_end(self) -> tuple[Head, int]:
        """Check the whole log. Returns its head and its size in bytes. Raises BrokenChain."""
        head, end = Head(), 0
        for each in self.entries():
            head, end = each.head, each.end
        return self._complete(head, end)

    def verify(self, known: Head | None = None) -> Head:
        """Check the whole log, the index against it, and a head that was kept elsewhere. Returns the present head.
        Raises BrokenChain."""
        head, end = Head(), 0
        rows = self._rows()
        is_known = known is None or known.number == 0
        for each in self.entries():
            head, end = each.head, each.end
            if known is not None and head.number == known.number:
                if head.digest != known.digest:
                    raise BrokenChain("is another one than the head that was kept", known.number, each.end)
                is_known = True
            row = next(rows, None)
            if row is not None and row != row_of(each) and not _says_the_same(row, row_of(each)):
                what = f"has another row in {self._index.name}, so `audit list` and `audit show` may be wrong about it"
                raise BrokenChain(what, head.number, end, _REMOVE.format(self._index.name))
        if known is not None and not is_known:
            raise BrokenChain("is missing: the log ends before the head that was kept", known.number, end)
        head, end = self._complete(head, end)
        if (left := next(rows, None)) is not None and left[0] > head.number:
            raise BrokenChain(f"is missing: {self._index.name} has it, and the log has not", left[0], end)
        return head

    def _complete(self, head: Head, end: int) -> tuple[Head, int]:
        """The head and the size, if the log ends there. Raises BrokenChain."""
        if self._log.stat().st_size > end:  # an entry that is being written, or damage
            time.sleep(FOLLOW_S)
            with open(self._log, "rb") as file:
                before = end
                for each in entries(file, head, end):
                    head, end = each.head, each.end
            if end == before:
                cure = (
                    "If a power failure has cut it off, start the supervisor, which moves the rest to a file beside "
                    "the log. Otherwise restore a copy of journal.log."
                )
                raise BrokenChain("is not complete", head.number + 1, end, cure)
        return head, end

    def _rows(self) -> Iterator[tuple[int, float, str, str, str, str]]:
        """The rows of the index. None if it is not there. Raises BrokenChain if it is damaged."""
        try:
            with closing(Index(self._index, to_write=False)) as index:
                yield from index.rows()
        except sqlite3.OperationalError:  # it is not there, or on a file system that cannot be written
            return
        except sqlite3.DatabaseError as error:
            raise BrokenChain(f"cannot be compared: {error}", 1, 0, _REMOVE.format(self._index.name)) from None


_REMOVE = "The log itself is intact so far. Remove {} while no supervisor runs: it is made again from the log."


def _says_the_same(row: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Whether two rows differ in the form of their JSON only, as those of another version of toolcell may."""
    try:
        return row[:5] == other[:5] and json.loads(str(row[5])) == json.loads(str(other[5]))
    except ValueError:
        return False


def _numbered(entry: JournalEntry) -> Numbered:
    return entry.head.number, entry.record._replace(data=with_digest(entry.record.data))
