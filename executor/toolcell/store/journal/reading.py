"""Read a durable journal while it is written: from the index, and from the log what the index does not have yet."""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from toolcell.errors import UsageError
from toolcell.store.journal.arguments import with_digest
from toolcell.store.journal.chain import BrokenChain, Head, JournalEntry, entries, is_at
from toolcell.store.journal.database import Index, row_of
from toolcell.store.journal.journal import Record
from toolcell.store.journal.segments import LogFile

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
        with LogFile(self._log) as file:
            if size < file.begin:
                head, size = file.head, file.begin
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
        start = -1
        while True:
            with LogFile(self._log) as file:  # again each time: there may be another segment
                is_same = start < file.begin or is_at(file, head, start, size)
                if file.seek(0, 2) < size or not is_same:
                    raise BrokenChain("is not there: the log was replaced or cut", head.number, size)
                for each in entries(file, head, size):
                    head, start, size = each.head, size, each.end
                    if wanted(each.record):
                        yield _numbered(each)
            time.sleep(FOLLOW_S)

    def entries(self) -> Iterator[JournalEntry]:
        """Every entry of the segments that are there, checked. Raises BrokenChain."""
        with LogFile(self._log) as file:
            for each in entries(file, file.head, file.begin):
                yield each._replace(record=each.record._replace(data=with_digest(each.record.data)))

    def first(self) -> tuple[Head, int]:
        """The head before the first entry that is there, and its offset: 0 unless segments were removed."""
        with LogFile(self._log) as file:
            return file.head, file.begin

    def verified_end(self) -> tuple[Head, int]:
        """Check the whole log. Returns its head and its size in bytes. Raises BrokenChain."""
        head, end = self.first()
        for each in self.entries():
            head, end = each.head, each.end
        return self._complete(head, end)

    def verify(self, known: Head | None = None) -> Head:
        """Check the whole log, the index against it, and a head that was kept elsewhere. Returns the present head.
        Raises BrokenChain."""
        head, end = first, begin = self.first()
        if known is not None and known.number < first.number:
            raise BrokenChain("is not there any more: its segment was removed", known.number, begin, _OLDER)
        rows = (row for row in self._rows() if row[0] > first.number)
        is_known = known is None or known in (Head(), first)
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
        with LogFile(self._log) as file:
            if file.seek(0, 2) <= end:
                return head, end
        time.sleep(FOLLOW_S)  # an entry that is being written, or damage
        before = end
        with LogFile(self._log) as file:
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


_OLDER = "Pass a later head. The bound of the journal (`journal_bytes`) decides how much of it is kept."
_REMOVE = "The log itself is intact so far. Remove {} while no supervisor runs: it is made again from the log."


def _says_the_same(row: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Whether two rows differ in the form of their JSON only, as those of another version of toolcell may."""
    try:
        return row[:5] == other[:5] and json.loads(str(row[5])) == json.loads(str(other[5]))
    except ValueError:
        return False


def _numbered(entry: JournalEntry) -> Numbered:
    return entry.head.number, entry.record._replace(data=with_digest(entry.record.data))
