"""The index of a durable journal: an SQLite database (WAL), filled from the log and made again from it if lost."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from .chain import START, Head, JournalEntry
from .journal import Record
from .redact import digest_of

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, session TEXT NOT NULL, call TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS by_call ON records (call, number) WHERE call != '';
CREATE INDEX IF NOT EXISTS by_session ON records (session, number);
CREATE INDEX IF NOT EXISTS by_kind ON records (kind, number);
CREATE TABLE IF NOT EXISTS filled (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER, digest BLOB, size INTEGER)
    STRICT;
"""
_VERSION = 1


class Index:
    """An open index. `head` and `size` say up to where the log is in it. One thread uses it."""

    def __init__(self, path: Path, *, to_write: bool) -> None:
        """Open the index. Raises sqlite3.Error."""
        where = f"file:{path}?mode={'rwc' if to_write else 'ro'}"
        self._database = sqlite3.connect(where, uri=True, isolation_level=None, check_same_thread=False, timeout=10.0)
        if to_write:
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            if self._database.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                self._database.executescript(
                    f"DROP TABLE IF EXISTS records; DROP TABLE IF EXISTS filled; PRAGMA user_version = {_VERSION};"
                )
            self._database.executescript(_SCHEMA)
        self.head, self.size = self._filled()

    def close(self) -> None:
        self._database.close()

    def fill(self, entries: Iterable[JournalEntry]) -> None:
        """Add entries that follow `head`, in one transaction."""
        taken = list(entries)
        if not taken:
            return
        rows = [(each.head.number, each.record.at, *each.record[:3], _text(each.record)) for each in taken]
        last = taken[-1]
        with closing(self._database.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            cursor.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?)", rows)
            cursor.execute("INSERT OR REPLACE INTO filled VALUES (1, ?, ?, ?)", (*last.head, last.end))
            cursor.execute("COMMIT")
        self.head, self.size = last.head, last.end

    def records(
        self, where: str = "", values: Iterable[object] = (), *, last: int = -1
    ) -> Iterator[tuple[int, Record]]:
        """The last records that match an SQL condition, oldest first, with their numbers."""
        query = f"SELECT * FROM records {f'WHERE {where}' if where else ''} ORDER BY number DESC LIMIT ?"
        found = self._database.execute(f"SELECT * FROM ({query}) ORDER BY number", (*values, last))
        for number, at, kind, session, call, data in found:
            yield number, Record(kind, session, call, json.loads(data), at)

    def _filled(self) -> tuple[Head, int]:
        try:
            row = self._database.execute("SELECT number, digest, size FROM filled").fetchone()
        except sqlite3.OperationalError:  # a reader came before the writer's first transaction
            row = None
        return (Head(row[0], row[1]), row[2]) if row else (Head(0, START), 0)


def _text(record: Record) -> str:
    data = record.data
    if record.kind == "intent" and "digest" not in data:
        data = {**data, "digest": digest_of(data.get("arguments", {}))}
    return json.dumps(data, ensure_ascii=True, default=repr)
