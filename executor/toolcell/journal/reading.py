"""Read a durable journal while it is written: from the index, and from the log what the index does not have yet."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from toolcell.errors import UsageError

from .chain import BrokenChain, Head, JournalEntry, entries
from .database import Index
from .journal import Record

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
        """The last records that match, oldest first. `wanted` says the same as the SQL condition `where`."""
        found: list[Numbered] = []
        head, size = Head(), 0
        try:
            with closing(Index(self._index, to_write=False)) as index:
                head, size = index.head, index.size
                found = list(index.records(f"({where or 'TRUE'}) AND number <= ?", (*values, head.number), last=last))
        except sqlite3.OperationalError:
            pass  # there is no index yet, so everything comes from the log
        with open(self._log, "rb") as file:
            fresh = [(each.head.number, each.record) for each in entries(file, head, size) if wanted(each.record)]
        return [*found, *fresh][-last:]

    def follow(self, wanted: Wanted) -> Iterator[Numbered]:
        """The records that are written from now on. Ends never by itself."""
        head, size = self.verified_end()
        with open(self._log, "rb") as file:
            while True:
                for each in entries(file, head, size):
                    head, size = each.head, each.end
                    if wanted(each.record):
                        yield each.head.number, each.record
                time.sleep(FOLLOW_S)

    def entries(self) -> Iterator[JournalEntry]:
        """Every entry, checked. Raises BrokenChain."""
        with open(self._log, "rb") as file:
            yield from entries(file)

    def verified_end(self) -> tuple[Head, int]:
        """Check the whole log. Returns its head and its size in bytes. Raises BrokenChain."""
        head, end = Head(), 0
        for each in self.entries():
            head, end = each.head, each.end
        if self._log.stat().st_size > end:  # an entry that is being written, or damage
            time.sleep(FOLLOW_S)
            with open(self._log, "rb") as file:
                before = end
                for each in entries(file, head, end):
                    head, end = each.head, each.end
            if end == before:
                raise BrokenChain("is not complete", head.number + 1, end)
        return head, end

    def verify(self, known: Head | None = None) -> Head:
        """Check the whole log against a head that was kept elsewhere. Returns the present head. Raises BrokenChain."""
        if known is not None and known.number:
            for each in self.entries():
                if each.head.number == known.number:
                    if each.head.digest != known.digest:
                        raise BrokenChain("is another one than the head that was kept", known.number, each.end)
                    break
            else:
                raise BrokenChain("is missing: the log ends before the head that was kept", known.number, 0)
        return self.verified_end()[0]
