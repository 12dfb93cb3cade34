"""The default memory store: one SQLite file with full-text search, without another dependency or server.

Text is indexed with FTS5 (Porter stemming, diacritics ignored) and ranked by bm25. FTS5's tokenizer cannot split text
of scripts without spaces between words, so such text is also searched by substring. With an embedder, records are also
found by their meaning: the ranking by bm25 and the one by cosine similarity are fused (`fusion`).
"""

import json
import re
import sqlite3
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from toolcell.backends.database import open_database, transaction
from toolcell.backends.embedding import Embedder
from toolcell.backends.protocols import BackendError, MemoryRecord, Unreachable
from toolcell.backends.records import (
    MAX_LIMIT,
    ClosedByWith,
    checked_id,
    checked_namespace,
    checked_record,
    full,
    fused,
    room_of,
    words_of,
)
from toolcell.backends.threads import Threads
from toolcell.errors import ArgumentError
from toolcell.rules.misuse import count
from toolcell.rules.misuse import path as checked_path

if TYPE_CHECKING:
    from toolcell.backends.vector_index import MeaningIndex

__all__ = ["SQLiteMemory"]

T = TypeVar("T")

_LIKE_ROOM = re.compile("[0-9]{20}")  # in a query; other queries match no room, and FTS5 need not filter by column
_SCANNED = 5000  # the newest records, which a substring search covers

_INSERT = "INSERT INTO record(namespace, room, id, text, kind, tags, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM record WHERE namespace = ? AND id = ? RETURNING number"
_FULL = "SELECT records >= ? FROM quota WHERE namespace = ?"
_COLUMNS = "id, text, kind, tags, created_at"
_SHARE = """
SELECT 2 * records >= (SELECT max(number) FROM record), EXISTS (SELECT 1 FROM quota WHERE namespace <> :namespace)
FROM quota WHERE namespace = :namespace
"""
_BEST = """
SELECT rowid AS number, -bm25(word, 0.0, 1.0, 2.0) AS score FROM word WHERE word MATCH ?
ORDER BY score DESC, rowid DESC LIMIT ?
"""
_OWNED = f"SELECT number, score, namespace FROM record JOIN ({_BEST}) USING (number) ORDER BY score DESC, number DESC"
_ROWS = f"SELECT number, {_COLUMNS} FROM record WHERE number IN (SELECT value FROM json_each(?)) AND +namespace = ?"
_POOL = 50  # the least of each ranking that is fused
_SCAN = f"""
SELECT {_COLUMNS}, score FROM (
    SELECT *, (SELECT count(*) FROM json_each(?) WHERE instr(text, value) > 0) AS score
    FROM (SELECT * FROM record WHERE namespace = ? ORDER BY number DESC LIMIT {_SCANNED})
) WHERE score > 0 ORDER BY score DESC, created_at DESC LIMIT ?
"""


class SQLiteMemory(ClosedByWith):
    """Records in `path`, kept until deleted; ":memory:" keeps them until `close`. Implements `MemoryStore`.

    Opening creates the file (and its folder) for this user only. Several processes may have it open. All methods are
    safe from any task and thread. A text may have `max_text_bytes` in UTF-8, a namespace `max_records`. With an
    `embedder`, such as `LocalEmbedder()`, a search also finds records that say it in other words. It needs numpy, which
    is in the extra `[embed]`.
    """

    def __init__(
        self,
        path: str | Path = ":memory:",
        *,
        embedder: Embedder | None = None,
        max_text_bytes: int = 64 * 1024,
        max_records: int = 100_000,
    ) -> None:
        self._max_text_bytes = count("max_text_bytes", max_text_bytes, "Pass how long a text may be.")
        self._max_records = count("max_records", max_records, "Pass how many records to keep.")
        self._lock = threading.Lock()
        self._threads = Threads(4)
        self.durable = str(path) != ":memory:"
        """Whether the records are there after this process has ended."""
        self._connection: sqlite3.Connection | None = open_database(checked_path("path", path))
        try:
            self._meaning = None if embedder is None else _index_of(embedder, self._run)
        except BaseException:
            self.close()
            raise

    async def search(self, query: str, *, limit: int, namespace: str) -> list[MemoryRecord]:
        """Return at most `limit` records (never more than 100) that share a word with `query`, best first; with an
        embedder, also those whose meaning is near.

        Any text is a valid query; there are no operators. A better match has a higher `score`. Scores of different
        queries cannot be compared.
        """
        words = words_of(query)
        limit = min(limit, MAX_LIMIT)
        if not words or limit < 1:
            return []
        return await self._threads.run(partial(self._search, query, words, limit, checked_namespace(namespace)))

    async def store(self, record: MemoryRecord, *, namespace: str) -> str:
        """Store `record` and return its id. The record is on disk when this returns.

        An empty id gets a new one; an existing id replaces that record of the namespace. `created_at` is now if it is
        not given, and `score` is not stored. Raises `Refused` if a limit is exceeded, or for text that is not Unicode.
        """
        record = checked_record(record, self._max_text_bytes)
        await self._threads.run(partial(self._store, record, checked_namespace(namespace)))
        return record.id

    async def delete(self, record_id: str, *, namespace: str) -> bool:
        """Forget one record; return whether it was there."""
        return await self._threads.run(partial(self._delete, checked_id(record_id), checked_namespace(namespace)))

    def close(self) -> None:
        """Close the file. Idempotent; every later call raises `BackendError`."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _search(self, query: str, words: list[str], limit: int, namespace: str) -> list[MemoryRecord]:
        if self._meaning is None:
            scores = dict(self._by_words(words, limit, namespace))
        else:
            pool = max(_POOL, limit)
            near = self._meaning.nearest(query, namespace, pool)
            said = [number for number, _score in self._by_words(words, pool, namespace)]
            scores = dict(fused([said, near], limit))
        found = self._run(lambda db: db.execute(_ROWS, (json.dumps(list(scores)), namespace)).fetchall())
        known = {row[0]: (*row[1:], scores[row[0]]) for row in found}
        rows = [known[number] for number in scores if number in known]  # a record may be deleted meanwhile
        unspaced = [word for word in words if not word.isascii()]
        if len(rows) < limit and unspaced:
            seen = {row[0] for row in rows}
            found = self._run(lambda db: db.execute(_SCAN, (json.dumps(unspaced), namespace, limit)).fetchall())
            rows += [(*row[:5], 0.0) for row in found if row[0] not in seen][: limit - len(rows)]
        return [
            MemoryRecord(id, text, kind, tuple(json.loads(tags)), at, score) for id, text, kind, tags, at, score in rows
        ]

    def _by_words(self, words: list[str], limit: int, namespace: str) -> list[tuple[int, float]]:
        """The numbers of the records that share a word, and their scores, the best first, the newest of equals first.

        bm25 reads the list of every word in the query, and that of `room` is long in a namespace that has most of the
        records. There, the best records of all namespaces are taken; their scores are the same. The query with `room`
        is for when too few of them are this namespace's. A namespace that is alone needs no look at who owns a record.
        """
        # \w matches no quote and no NUL, so putting a word in quotes is enough to escape it.
        quoted = " OR ".join(f'"{word}"' for word in words)
        either = f"{{text tags}} : ({quoted})" if _LIKE_ROOM.search(quoted) else f"({quoted})"
        own = f'room : "{room_of(namespace)}" AND {either}'

        def look(db: sqlite3.Connection) -> list[tuple[int, float]]:
            has_most, has_others = db.execute(_SHARE, {"namespace": namespace}).fetchone() or (0, 1)
            if not has_others:
                return db.execute(_BEST, (either, limit)).fetchall()
            if has_most:
                rows = db.execute(_OWNED, (either, 2 * limit)).fetchall()
                found = [(number, score) for number, score, name in rows if name == namespace]
                if len(found) >= limit or len(rows) < 2 * limit:
                    return found[:limit]
            rows = db.execute(_OWNED, (own, limit)).fetchall()
            return [(number, score) for number, score, name in rows if name == namespace]

        return self._run(look)

    def _store(self, record: MemoryRecord, namespace: str) -> None:
        tags = json.dumps(record.tags, ensure_ascii=False)
        vector = b""
        if self._meaning is not None:
            from toolcell.backends.vector_index import text_to_embed

            vector = self._meaning.vector(text_to_embed(record.text, record.tags))
        row = (namespace, room_of(namespace), record.id, record.text, record.kind, tags, record.created_at)

        def write(db: sqlite3.Connection) -> tuple[list[int], int | None]:
            replaced = _numbers(db.execute(_DELETE, (namespace, record.id)))
            if db.execute(_FULL, (self._max_records, namespace)).fetchone() == (1,):
                raise _Full
            number = db.execute(_INSERT, row).lastrowid
            if self._meaning is not None and number is not None:
                self._meaning.put(db, number, vector)
            return replaced, number

        try:
            replaced, number = self._run(write, writing=True)
        except _Full:
            raise full(self._max_records) from None
        if self._meaning is not None:
            self._meaning.change(namespace, replaced, number, vector)

    def _delete(self, record_id: str, namespace: str) -> bool:
        removed = self._run(lambda db: _numbers(db.execute(_DELETE, (namespace, record_id))), writing=True)
        if self._meaning is not None:
            self._meaning.change(namespace, removed, None, b"")
        return bool(removed)

    def _run(self, work: Callable[[sqlite3.Connection], T], *, writing: bool = False) -> T:
        with self._lock:
            if self._connection is None:
                raise BackendError("The memory is closed. Open a new one.")
            try:
                return transaction(self._connection, work) if writing else work(self._connection)
            except sqlite3.Error as error:
                raise Unreachable(f"The memory could not be used: {error}. Try again in a moment.") from error


class _Full(Exception):
    """The namespace has no room. It undoes the transaction."""


def _index_of(embedder: Embedder, run: Any) -> "MeaningIndex":
    try:
        from toolcell.backends.vector_index import MeaningIndex
    except ImportError:
        raise ArgumentError("An embedder needs numpy. Install it: pip install 'toolcell[embed]'.") from None
    if not isinstance(embedder, Embedder):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(
            f"embedder is no Embedder: {embedder!r}. Pass LocalEmbedder(), or a class with its methods."
        )
    return MeaningIndex(embedder, run)


def _numbers(rows: Sequence[tuple[int]] | sqlite3.Cursor) -> list[int]:
    return [number for (number,) in rows]
