"""The file behind `SQLiteMemory`: its schema, and how several processes open it at the same time."""

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from toolcell.backends.protocols import NotConfigured

__all__ = ["open_database", "transaction"]

T = TypeVar("T")

_APPLICATION_ID = 0x746C636C  # "tlcl": distinguishes our files from files of other programs
_VERSION = 2
_BUSY_S = 5.0  # how long to wait for another process that writes

# `room` is the namespace as one token of digits, which no stemmer changes. FTS5 then intersects two lists, instead of
# ranking the records of all namespaces. The namespace is compared as well, so a hash collision is harmless.
_SCHEMA = (
    """CREATE TABLE record(
        number INTEGER PRIMARY KEY, namespace TEXT NOT NULL, room TEXT NOT NULL, id TEXT NOT NULL, text TEXT NOT NULL,
        kind TEXT NOT NULL, tags TEXT NOT NULL, created_at REAL NOT NULL, UNIQUE(namespace, id))""",
    "CREATE TABLE quota(namespace TEXT PRIMARY KEY, records INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE VIRTUAL TABLE word USING fts5(room, text, tags, content='record', content_rowid='number',
        tokenize='porter unicode61 remove_diacritics 2')""",
    """CREATE TRIGGER record_added AFTER INSERT ON record BEGIN
        INSERT INTO word(rowid, room, text, tags) VALUES (new.number, new.room, new.text, new.tags);
        INSERT INTO quota VALUES (new.namespace, 1) ON CONFLICT DO UPDATE SET records = records + 1;
    END""",
    """CREATE TRIGGER record_removed AFTER DELETE ON record BEGIN
        INSERT INTO word(word, rowid, room, text, tags) VALUES ('delete', old.number, old.room, old.text, old.tags);
        UPDATE quota SET records = records - 1 WHERE namespace = old.namespace;
    END""",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    "PRAGMA user_version = 1",
)
_VECTORS = (
    "CREATE TABLE vector(number INTEGER PRIMARY KEY, model TEXT NOT NULL, data BLOB NOT NULL)",
    """CREATE TRIGGER vector_removed AFTER DELETE ON record BEGIN
        DELETE FROM vector WHERE number = old.number;
    END""",
    "PRAGMA user_version = 2",
)
_STEPS = (_SCHEMA, _VECTORS)
"""The statements that lead from each version to the next one."""


def transaction(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Return `work(db)`, run in one transaction."""
    db.execute("BEGIN IMMEDIATE")  # take the write lock first: a reader that upgrades can fail without waiting
    try:
        result = work(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result


def open_database(path: str | Path) -> sqlite3.Connection:
    """Open or make the file at `path`, readable for this user only. Raise `NotConfigured` if that is impossible."""
    try:
        if str(path) != ":memory:":
            Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            _prepare(db)
        except BaseException:
            db.close()
            raise
        return db
    except (OSError, sqlite3.Error) as error:
        cure = "Give a path in a writable folder that is new or was made by SQLiteMemory."
        if "fts5" in str(error):
            cure = "Use a Python whose SQLite has FTS5, as those of python.org and the distributions do."
        raise NotConfigured(f"The memory {str(path)!r} cannot be opened: {error}. {cure}") from error


def _prepare(db: sqlite3.Connection) -> None:
    _check(_version(db))  # before writing, because the file may be another program's
    give_up = time.monotonic() + _BUSY_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError:
            # If two processes switch at once, SQLite reports "locked" here without waiting for its timeout.
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)
    if _version(db) != _VERSION:
        transaction(db, _migrate)


def _version(db: sqlite3.Connection) -> int | None:
    """The schema's version; 0 for an empty file, None for a file of another program."""
    # One statement reads one snapshot, because another process may be making the schema.
    application, version, tables = db.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
        "FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if application == _APPLICATION_ID:
        return int(version)
    return 0 if (application, version, tables) == (0, 0, 0) else None


def _migrate(db: sqlite3.Connection) -> None:
    version = _version(db)  # again, under the write lock: another process may have made the schema
    _check(version)
    for statements in _STEPS[version or 0 :]:
        for statement in statements:
            db.execute(statement)


def _check(version: int | None) -> None:
    if version is None or version > _VERSION:
        raise sqlite3.DatabaseError("it is the file of another program or of a newer toolcell")
