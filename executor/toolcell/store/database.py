"""The one way to open, sign, bound and heal an SQLite database of the supervisor's own.

A state directory has one database beside its log (`schema`). Its rows are small facts that change; records, which are
many and never change, stay in the log, because an insert takes eight times as long as an append.

- Each row has an HMAC-SHA256 under the key of the directory, over the name of its table and all its values. A row that
  was edited, moved to another key or hit by a flipped bit is not valid, and its reader says what follows. It is never
  pruned: without it, a call would run again.
- Each row has a time after which it may be removed (`until`). This time is counted in seconds of the database's *age*.
  The age grows with the running time of its users, and by at most a day between two of them. So a system clock that
  jumps removes nothing.
- `now` is the time in Unix seconds, and never goes back. It decides what has expired.
- `opens` and `mark` are the high-water marks that the log has too (`state.OpenState`).
- A damaged database is copied, table by table and as far as it can be read, into a new one. So damage to one table
  costs no other. The damaged file stays beside it. A kill at any moment of this loses nothing: the new database gets
  its final name only when it is whole.
"""

import hmac
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from toolcell.store.files import sync_directory
from toolcell.wire.forks import FileConnection

__all__ = [
    "BUSY_S",
    "DAY_S",
    "LOOP_BUSY_S",
    "Database",
    "Row",
    "Schema",
    "Signer",
    "Table",
    "build",
    "connect",
    "heal",
    "install",
    "is_damage",
    "transaction",
]

_log = logging.getLogger("toolcell.journal")
DAY_S: Final = 86_400.0
BUSY_S: Final = 10.0
"""The time to wait for another process that writes."""
LOOP_BUSY_S: Final = 0.25
"""The same on the event loop, which waits meanwhile."""
CHECK_S: Final = 2.0
"""The most seconds for the check of a database at its opening. What is not checked is found when it is used."""
_ID: Final = 0x746C6373
"""`application_id`: distinguishes a state database from the files of other programs."""
_META: Final = (
    "CREATE TABLE IF NOT EXISTS meta (one INTEGER PRIMARY KEY CHECK (one = 1), opens INTEGER NOT NULL, "
    "mark INTEGER NOT NULL, latest REAL NOT NULL, age REAL NOT NULL, wall REAL NOT NULL, signature BLOB NOT NULL) "
    "STRICT"
)


def connect(
    path: Path | None,
    *,
    wait_s: float = BUSY_S,
    sync: Literal["NORMAL", "FULL"] = "FULL",
    read_only: bool = False,
    damaged: bool = False,
    prepare: Callable[[sqlite3.Connection], None] = lambda _connection: None,
) -> sqlite3.Connection:
    """Open a database file in WAL mode, readable for this user only, or one in memory. Several threads may use it, one
    at a time. A `damaged` one is opened for what can be read of it. `prepare` makes its tables, before the WAL is
    used, which would keep a second copy of them. Raises sqlite3.Error or OSError."""
    if path is None:
        memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        prepare(memory)
        return memory
    where = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    database = sqlite3.connect(
        where, uri=True, isolation_level=None, check_same_thread=False, timeout=wait_s, factory=FileConnection
    )
    try:
        if damaged:
            database.execute("PRAGMA writable_schema = ON")  # otherwise nothing is read of a file that was cut
        elif not read_only:
            os.chmod(path, 0o600)
            prepare(database)
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(f"PRAGMA synchronous = {sync}")
    except BaseException:
        database.close()
        raise
    return database


@contextmanager
def transaction(database: sqlite3.Connection) -> Generator[None]:
    """Write all or nothing, and keep other processes from writing meanwhile."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:  # a full disk has ended it
            database.execute("ROLLBACK")
        raise


class Signer:
    """Signs rows and lines with one key. A signature of one kind, or of another id, fits no other."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, kind: str, *values: object) -> bytes:
        """The signature, 32 bytes. Each value is preceded by its length, so values cannot be shifted."""
        parts: list[bytes] = []
        for value in (kind, *values):
            part = value.encode("utf-8", "surrogateescape") if type(value) is str else _bytes_of(value)
            parts += (_NONE, b"") if part is None else (len(part).to_bytes(8, "big"), part)
        return hmac.digest(self._key, b"".join(parts), "sha256")

    def fits(self, signature: object, kind: str, *values: object) -> bool:
        """Whether `signature` is that of these values."""
        return isinstance(signature, bytes) and hmac.compare_digest(signature, self.of(kind, *values))


_NONE: Final = b"\xff" * 8  # no length


def _bytes_of(value: object) -> bytes | None:
    match value:
        case str():
            return value.encode("utf-8", "surrogateescape")
        case bytes() | None:
            return value
        case int() | float():
            return repr(float(value)).encode()  # a column of the type REAL makes an int a float
        case _:
            raise TypeError(f"no value of a row: {type(value).__name__}")


@dataclass(frozen=True)
class Table:
    """A table: its columns, which are all signed, its key, and its indexes by their names."""

    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...]
    indexes: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def sql(self) -> list[str]:
        """The statements that make it."""
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        made = f"{columns}, until REAL NOT NULL, signature BLOB NOT NULL, PRIMARY KEY ({', '.join(self.key)})"
        return [
            f"CREATE TABLE IF NOT EXISTS {self.name} ({made}) STRICT",
            *(f"CREATE INDEX IF NOT EXISTS {name} ON {self.name} {what}" for name, what in self.indexes.items()),
        ]

    @cached_property
    def put_sql(self) -> str:
        return f"INSERT OR REPLACE INTO {self.name} VALUES ({', '.join('?' * (len(self.columns) + 2))})"

    @cached_property
    def key_sql(self) -> str:
        """The condition that finds one row."""
        return " AND ".join(f"{name} = ?" for name in self.key)


class Schema(NamedTuple):
    """The tables of a database, and the version of their form."""

    tables: tuple[Table, ...]
    version: int = 1


@dataclass(frozen=True, slots=True)
class Row:
    """A row that was read. `values` has its columns by name. They and `until`, the age at which it may be removed, mean
    nothing unless it `is_valid`."""

    values: Mapping[str, Any]
    is_valid: bool
    until: float

    def __getitem__(self, column: str) -> Any:
        return self.values[column]


class _Meta(NamedTuple):
    opens: int = 0
    mark: int = 0
    latest: float = 0.0
    age: float = 0.0
    wall: float = 0.0


class Database:
    """An open database with signed rows. One thread at a time uses it. Every method may raise sqlite3.Error."""

    def __init__(
        self,
        path: Path | None,
        key: bytes,
        schema: Schema,
        *,
        wait_s: float = BUSY_S,
        syncs: bool = True,
    ) -> None:
        """Open or make the database. With `syncs`, the end of each `transaction` makes it durable. It does so without
        the lock, because others on the event loop wait for that, and a disk may take long. Raises sqlite3.Error or
        OSError."""
        self._syncs = syncs
        self.path = path
        self.schema = schema
        self.signer = Signer(key)
        self._written = 0  # changes that `sync` has to make durable
        self._synced = 0
        self._connection = connect(path, wait_s=wait_s, sync="NORMAL", prepare=self._prepare)
        try:
            self._connection.text_factory = _text
            meta, now = self._meta(), time.monotonic()
            away_s = time.time() - meta.wall if meta.wall else 0.0
            self._began = meta.age + min(max(away_s, 0.0), DAY_S) - now
            """The age of the database at the time 0 of the monotonic clock."""
            self._seen = meta.latest, now
            self.opens, self.mark = meta.opens, meta.mark
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make the tables of a new file. Raises DatabaseError for a file that lacks some, or is not ours."""
        (id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if (id != _ID and found) or version > self.schema.version:
            raise sqlite3.NotSupportedError("it is the file of another program, or of a later toolcell")
        missing = {"meta", *(table.name for table in self.schema.tables)} - found
        if version == self.schema.version:
            if missing:
                raise sqlite3.DatabaseError(f"it lacks the table {min(missing)}")
            return
        with transaction(connection):
            connection.execute(_META)
            for table in self.schema.tables:
                for statement in table.sql:
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_ID}")
            connection.execute(f"PRAGMA user_version = {self.schema.version}")

    def close(self) -> None:
        self._connection.close()

    def wait_at_most(self, seconds: float) -> None:
        """Wait no longer for other processes from now on."""
        self._connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    def check(self) -> None:
        """Raise DatabaseError if the file is damaged, as far as `CHECK_S` seconds tell."""
        end = time.monotonic() + CHECK_S
        self._connection.set_progress_handler(lambda: time.monotonic() > end, 10_000)
        try:
            for table in self.schema.tables:
                self.rows(table, "TRUE LIMIT 1")
            found = [text for (text,) in self._connection.execute("PRAGMA integrity_check(1)")]
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_INTERRUPT:
                raise
            return
        finally:
            self._connection.set_progress_handler(None, 0)
        if found != ["ok"]:
            raise sqlite3.DatabaseError(found[0] if found else "it cannot be checked")

    # -- rows ----------------------------------------------------------------------------------------------------------

    def rows(self, table: Table, where: str = "TRUE", *values: object) -> list[Row]:
        """The rows that match an SQL condition, which may end with an order."""
        names, query = tuple(table.columns), f"SELECT {', '.join(table.columns)}, until, signature FROM {table.name}"
        found = self._connection.execute(f"{query} WHERE {where}", values).fetchall()
        return [
            Row(dict(zip(names, row, strict=False)), self.signer.fits(row[-1], table.name, *row[:-1]), row[-2])
            for row in found
        ]

    def query(self, query: str, *values: object) -> list[Any]:
        """The rows of a query that needs no signatures: what finds and counts rows."""
        return self._connection.execute(query, values).fetchall()

    def put(self, table: Table, values: Mapping[str, object], until: float) -> None:
        """Keep a row, in place of an earlier one with its key. It may be removed at the age `until`."""
        row = [*(values[name] for name in table.columns), until]
        self._connection.execute(table.put_sql, (*row, self.signer.of(table.name, *row)))
        self._written += 1

    def change(self, table: Table, row: Mapping[str, object], until: float, **changed: object) -> None:
        """Change columns of a row. `row` has its values so far. It may be removed at the age `until`. Does nothing if
        the row is not there."""
        new = {**row, **changed}
        signature = self.signer.of(table.name, *[new[name] for name in table.columns], until)
        query = f"UPDATE {table.name} SET {' = ?, '.join(changed)} = ?, until = ?, signature = ? WHERE {table.key_sql}"
        self._connection.execute(query, (*changed.values(), until, signature, *[row[name] for name in table.key]))
        self._written += 1

    def has(self, table: Table, *key: object) -> bool:
        """Whether there is a row with this key, valid or not."""
        return bool(self.query(f"SELECT 1 FROM {table.name} WHERE {table.key_sql}", *key))

    def remove(self, table: Table, where: str, *values: object) -> None:
        self._connection.execute(f"DELETE FROM {table.name} WHERE {where}", values)
        self._written += 1

    def prune(self, *tables: Table) -> None:
        """Remove the valid rows whose time is over. The time of another row is not known, so the row stays."""
        for table in tables:
            for row in self.rows(table, "until < ?", self.age()):
                if row.is_valid:
                    self.remove(table, table.key_sql, *[row[name] for name in table.key])

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Write all or nothing, and keep other processes from writing meanwhile. Keeps the time too. Raises OSError if
        what was written cannot be made durable."""
        with transaction(self._connection):
            yield
            self._keep_meta()
        self._written += 1
        if self._syncs:
            self.sync()

    def version(self) -> int:
        """A number that changes when another process has changed the database."""
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(version)

    def sync(self) -> None:
        """Make the writes so far durable. Any thread may call this. Raises OSError."""
        written = self._written
        if written == self._synced or self.path is None:
            return
        try:
            fd = os.open(self.path.with_name(self.path.name + "-wal"), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:  # SQLite has moved everything to the database, and has synchronised that
            return
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)
        self._synced = written

    # -- time and marks ------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """The time in Unix seconds. It never goes back, also after a restart, so nothing that has expired is valid
        again if somebody sets the clock back. Any thread may call it."""
        (latest, at), monotonic = self._seen, time.monotonic()
        found = max(time.time(), latest + monotonic - at)
        self._seen = found, monotonic
        return found

    def age(self) -> float:
        """The age of the database in seconds."""
        return self._began + time.monotonic()

    def go_on_from(self, latest: float) -> None:
        """Let no time of `now` be before `latest`."""
        self._seen = max(self.now(), latest), time.monotonic()

    def take_over(self, old: sqlite3.Connection) -> None:
        """Go on from the time and the count of a damaged database, if they can be read, but with the mark 0, so that
        all claims in the log are compared with the rows."""
        with suppress(sqlite3.Error):
            meta = self._meta(old)
            self._began += max(0.0, meta.age - self.age())
            self.go_on_from(meta.latest)
            self._keep_meta(meta.opens, 0)

    def note(self, opens: int, mark: int) -> None:
        """Keep the high-water marks: how often a supervisor has opened or closed the store, and the number of the
        log's last entry at that time."""
        with transaction(self._connection):
            self._keep_meta(opens, mark)
        self._written += 1
        self.opens, self.mark = opens, mark

    def _meta(self, connection: sqlite3.Connection | None = None) -> _Meta:
        row = (
            (connection or self._connection)
            .execute("SELECT opens, mark, latest, age, wall, signature FROM meta")
            .fetchone()
        )
        if row is None:
            return _Meta()
        if not self.signer.fits(row[-1], "meta", *row[:-1]):
            _log.warning("the latest time that %s has kept was edited; the system's clock is used", self.path)
            return _Meta()
        return _Meta(*row[:-1])

    def _keep_meta(self, opens: int | None = None, mark: int | None = None) -> None:
        meta, now = self._meta(), self.now()
        kept = _Meta(
            meta.opens if opens is None else opens,
            meta.mark if mark is None else mark,
            max(now, meta.latest),
            max(self.age(), meta.age),
            time.time(),
        )
        self._connection.execute(
            "INSERT OR REPLACE INTO meta VALUES (1, ?, ?, ?, ?, ?, ?)", (*kept, self.signer.of("meta", *kept))
        )


def _text(raw: bytes) -> str:
    """A text of the database. Damaged text is not valid UTF-8; then its signature does not fit."""
    return raw.decode("utf-8", "surrogateescape")


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error says that a file is damaged, rather than locked or on a full disk."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return type(error) is sqlite3.DatabaseError or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


# -- a new file in place of an old one ---------------------------------------------------------------------------------


def install(path: Path) -> None:
    """Give the whole new database `<path>.healed`, if there is one, its final name. The old file and its WAL become
    `<path>.damaged`. A kill at any moment is made good by the next call."""
    new, old = path.with_name(path.name + ".healed"), path.with_name(path.name + ".damaged")
    if not new.exists():
        return
    for end in ("-wal", "-shm"):  # never a WAL of the old file beside the new one
        with suppress(FileNotFoundError):
            os.replace(path.with_name(path.name + end), old.with_name(old.name + end))
    with suppress(FileNotFoundError):
        os.replace(path, old)
    sync_directory(path.parent)
    os.replace(new, path)
    sync_directory(path.parent)


def build(path: Path, key: bytes, schema: Schema, fill: Callable[[Database], None]) -> None:
    """Make a new database, fill it, and give it the name `<path>.healed` when it is whole and on the disk."""
    new, done = path.with_name(path.name + ".new"), path.with_name(path.name + ".healed")
    for end in ("", "-wal", "-shm"):
        new.with_name(new.name + end).unlink(missing_ok=True)  # of a try that was killed
    with closing(Database(new, key, schema)) as database:
        with database.transaction():
            fill(database)
        database.query("PRAGMA journal_mode = DELETE")  # everything is in the one file now
    sync_directory(path.parent)
    os.replace(new, done)
    sync_directory(path.parent)


def heal(path: Path, key: bytes, schema: Schema) -> list[str]:
    """Copy a damaged database into a new one, as far as it can be read. Returns the names of the tables that have lost
    rows. Raises sqlite3.Error if nothing can be read."""
    lost: list[str] = []
    with closing(connect(path, damaged=True)) as old:
        old.text_factory = _text
        old.execute("SELECT count(*) FROM sqlite_master").fetchone()  # raises if it is no database

        def fill(new: Database) -> None:
            new.take_over(old)
            for table in schema.tables:
                if not _copied(old, new, table):
                    lost.append(table.name)

        build(path, key, schema, fill)
    install(path)
    return lost


def _copied(old: sqlite3.Connection, new: Database, table: Table) -> bool:
    """Copy the rows of a table from its beginning, and from its end if that meets damage. Returns whether that was
    everything."""
    columns = (*table.columns, "until", "signature")
    is_whole = True
    for order in ("ASC", "DESC"):
        try:
            query = f"SELECT {', '.join(columns)} FROM {table.name} NOT INDEXED ORDER BY rowid {order}"
            for row in old.execute(query):
                is_whole = is_whole and new.signer.fits(row[-1], table.name, *row[:-1])
                try:
                    new.query(f"INSERT OR IGNORE INTO {table.name} VALUES ({', '.join('?' * len(row))})", *row)
                except (sqlite3.IntegrityError, ValueError):  # a damaged value, such as a text in place of a number
                    is_whole = False
            return is_whole
        except sqlite3.Error:
            is_whole = False
    return False
