"""Read a durable journal while it is written: its index, and from the log what the index does not have yet.

The index is an SQLite database of its own, because it is made from the log, and is made again from it if it is lost or
damaged. So nothing in it is signed, and a writer that fills it stands in no other writer's way.
"""

import json
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolcell.errors import UsageError
from toolcell.store.database import connect, is_damage, transaction
from toolcell.store.journal.arguments import with_digest
from toolcell.store.journal.entries import START, BrokenChain, Head, JournalEntry, entries, is_at
from toolcell.store.journal.journal import Record
from toolcell.store.journal.segments import LogFile, closed_segments
from toolcell_tools.encode import in_utf8

_log = logging.getLogger("toolcell.journal")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, session TEXT NOT NULL, call TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS by_call ON records (call, number) WHERE call != '';
CREATE INDEX IF NOT EXISTS by_session ON records (session, number);
CREATE INDEX IF NOT EXISTS by_kind ON records (kind, number);
CREATE TABLE IF NOT EXISTS filled (
    one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER, digest BLOB, size INTEGER, start INTEGER
) STRICT;
"""
_VERSION = 2
FILLED_AT_ONCE: Final = 10_000
"""The most entries that one transaction adds."""


class Index:
    """An open index. `head` and `size` say up to where the log is in it, `start` where the last of these entries
    begins. One thread uses it."""

    def __init__(self, path: Path, *, to_write: bool) -> None:
        """Open the index. Raises sqlite3.Error. Its type is exactly DatabaseError if the file is damaged."""
        self._database = connect(path, sync="NORMAL", read_only=not to_write)
        try:
            if to_write:
                if self._database.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                    self._database.executescript(
                        f"DROP TABLE IF EXISTS records; DROP TABLE IF EXISTS filled; PRAGMA user_version = {_VERSION};"
                    )
                self._database.executescript(_SCHEMA)
            self.head, self.size, self.start = self._filled()
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        self._database.close()

    def fill(self, entries: Iterable[JournalEntry]) -> None:
        """Add entries that follow `head`, in transactions of bounded size."""
        left = iter(entries)
        while taken := list(islice(left, FILLED_AT_ONCE)):
            start = taken[-2].end if len(taken) > 1 else self.size
            last = taken[-1]
            with transaction(self._database):
                query = "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?)"
                self._database.executemany(query, map(row_of, taken))
                self._database.execute(
                    "INSERT OR REPLACE INTO filled VALUES (1, ?, ?, ?, ?)", (*last.head, last.end, start)
                )
            self.head, self.size, self.start = last.head, last.end, start

    def forget(self, head: Head) -> None:
        """Remove the entries up to this head, whose segments of the log were removed. The approvals stay, so that none
        is used again, and so do the intents and the effects of calls without an end."""
        self._database.execute(
            "DELETE FROM records WHERE number <= ? AND kind NOT IN ('approval', 'supervisor') AND NOT "
            "((kind = 'intent' OR (kind = 'operation' AND data LIKE '%\"effect\": true%')) "
            "AND NOT EXISTS (SELECT 1 FROM records AS later WHERE later.call = records.call "
            "AND later.session = records.session AND later.kind IN ('call', 'denied') "
            "AND later.number > records.number))",
            (head.number,),
        )

    def records(
        self, where: str = "", values: Iterable[object] = (), *, last: int = -1
    ) -> Iterator[tuple[int, Record]]:
        """The last records that match an SQL condition, oldest first, with their numbers."""
        query = f"SELECT * FROM records {f'WHERE {where}' if where else ''} ORDER BY number DESC LIMIT ?"
        found = self._database.execute(f"SELECT * FROM ({query}) ORDER BY number", (*values, last))
        for number, at, kind, session, call, data in found:
            yield number, Record(kind, session, call, json.loads(data), at)

    def unended(self, since: str) -> list[tuple[str, str]]:
        """The (session, call) of each call with an intent or a request for approval that no end follows, among the
        records that match the SQL condition `since`."""
        is_end = "(kind = 'call' OR (kind = 'denied' AND data NOT LIKE '%\"operation\":%'))"
        found = self._database.execute(
            "SELECT session, call FROM records WHERE call != '' AND kind IN ('intent', 'approval', 'call', 'denied') "
            f"AND {since} GROUP BY session, call HAVING max(iif(kind IN ('intent', 'approval'), number, 0)) > "
            f"max(iif({is_end}, number, 0)) OR sum(kind = 'intent') > sum({is_end})"
        )
        return [(str(session), str(call)) for session, call in found]

    def ends_of(self, session: str, call: str, after: int) -> list[Mapping[str, Any]]:
        """The data of the ends of the calls with this id, among the entries after the number `after`."""
        where = "session = ? AND call = ? AND kind IN ('call', 'denied') AND number > ?"
        found = self.records(where, (session, call, after))
        return [each.data for _number, each in found if "operation" not in each.data]

    def claims(self, after: int) -> Iterator[tuple[int, Record]]:
        """The claims of keys and tasks after the number `after`."""
        return self.records("kind = 'claim' AND number > ?", (after,))

    def approvals(self) -> "KnownApprovals":
        """What became of approvals."""
        known = KnownApprovals(set(), set(), set())
        words = ('"used": true', "given back", '"withdrawn"', '"revoked"')
        where = f"kind = 'approval' AND ({' OR '.join('data LIKE ?' for _ in words)})"
        for _number, record in self.records(where, [f"%{word}%" for word in words]):
            request, event = str(record.data.get("request")), record.data.get("event")
            if record.data.get("used"):
                known.used.add(request)
                known.given_back.discard(request)
            elif event == "given back":
                known.used.discard(request)
                known.given_back.add(request)
            elif event in ("withdrawn", "revoked"):
                known.ended.add(request)
        return known

    def opens(self) -> int:
        """The high-water mark in the log: how often the database had been opened or closed at the last start or end of
        a supervisor. 0 if the log has none."""
        found = self.records("kind = 'supervisor' AND data LIKE '%\"opens\": %'", last=1)
        return next((int(record.data["opens"]) for _number, record in found), 0)

    def was_resumed(self, session: str, after: int) -> bool:
        """Whether a session was resumed or closed after the entry with this number. If the number is not known (0),
        it may have been suspended again since."""
        found = self.records("kind = 'session' AND session = ? AND number > ?", (session, after))
        events = [record.data.get("event") for _number, record in found]
        return not {"resumed", "closed"}.isdisjoint(events if after else events[-1:])

    def rows(self) -> Iterator[tuple[int, float, str, str, str, str]]:
        """Every row as it is stored, in order, of one state of the index; `head` is then that of this state."""
        self._database.execute("BEGIN")
        self.head, self.size, self.start = self._filled()
        yield from self._database.execute("SELECT * FROM records ORDER BY number")

    def _filled(self) -> tuple[Head, int, int]:
        try:
            row = self._database.execute("SELECT number, digest, size, start FROM filled").fetchone()
        except sqlite3.OperationalError:  # a reader came before the writer's first transaction
            row = None
        return (Head(row[0], row[1]), row[2], row[3]) if row else (Head(0, START), 0, 0)


class KnownApprovals(NamedTuple):
    """The ids of requests whose answers were used, and of those whose answers were given back after that, because no
    call ran. And the ids of withdrawn requests and revoked standing approvals."""

    used: set[str]
    given_back: set[str]
    ended: set[str]


def row_of(entry: JournalEntry) -> tuple[int, float, str, str, str, str]:
    """The row of an entry."""
    record = entry.record
    data = json.dumps(with_digest(record.data), ensure_ascii=True, default=repr)
    kind, session_id, call_id = map(in_utf8, (record.kind, record.session_id, record.call_id))
    return (entry.head.number, record.at, kind, session_id, call_id, data)


def opened_index(path: Path) -> Index:
    """The index, to write. A damaged one is moved aside, for the log has everything. Raises sqlite3.Error."""
    try:
        return Index(path, to_write=True)
    except sqlite3.Error as error:
        if not is_damage(error):  # it is locked, or the disk is full
            raise
        put_aside(path, error)
        return Index(path, to_write=True)


def put_aside(path: Path, error: Exception) -> None:
    """Move a damaged index to a file beside it."""
    aside = path.with_name(f"{path.name}.damaged")
    _log.warning("%s is damaged (%s); it is moved to %s and made again from the log", path, error, aside.name)
    path.replace(aside)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


FOLLOW_S = 0.2
"""Seconds between two looks of `follow`."""
Numbered = tuple[int, Record]
Wanted = Callable[[Record], bool]


class JournalReader:
    """Reads the journal of a state directory. It takes no lock, and changes nothing."""

    def __init__(self, log: Path, index: Path) -> None:
        """Raises UsageError if there is no journal, and BrokenChain if it was removed."""
        if not log.exists() and not closed_segments(log):
            if index.exists():
                raise BrokenChain(f"is not there: {log.name} was removed, and {index.name} was not", 1, 0)
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
