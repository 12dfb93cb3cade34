"""The index of a durable journal: an SQLite database (WAL), filled from the log and made again from it if lost."""

import json
import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Final

from toolcell.store.journal.arguments import with_digest
from toolcell.store.journal.chain import START, Head, JournalEntry
from toolcell.store.journal.journal import Record
from toolcell.wire.forks import FileConnection
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
        where = f"{path.absolute().as_uri()}?mode={'rwc' if to_write else 'ro'}"
        self._database = sqlite3.connect(
            where, uri=True, isolation_level=None, check_same_thread=False, timeout=10.0, factory=FileConnection
        )
        try:
            if to_write:
                os.chmod(path, 0o600)
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute("PRAGMA synchronous = NORMAL")
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
            with closing(self._database.cursor()) as cursor:
                cursor.execute("BEGIN IMMEDIATE")
                try:
                    cursor.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?)", map(row_of, taken))
                    cursor.execute(
                        "INSERT OR REPLACE INTO filled VALUES (1, ?, ?, ?, ?)", (*last.head, last.end, start)
                    )
                    cursor.execute("COMMIT")
                except BaseException:
                    if self._database.in_transaction:  # a full disk has ended it
                        cursor.execute("ROLLBACK")
                    raise
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
    except sqlite3.DatabaseError as error:
        if type(error) is not sqlite3.DatabaseError:  # it is locked, or the disk is full
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
