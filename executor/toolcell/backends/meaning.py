"""The vectors of a `SQLiteMemory`: kept in its file, and in memory for the namespaces that are searched.

Records without a vector of the present embedder get one at the next search of their namespace. The tables in memory are
dropped when another process has written to the file.
"""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from json import loads
from typing import Any, Final, Protocol, TypeVar

from toolcell.backends.embedding import Embedder
from toolcell.backends.vectors import VectorCache, VectorTable, packed, unit

__all__ = ["MeaningIndex", "text_to_embed"]

T = TypeVar("T")
CACHE_BYTES: Final = 256 * 1024 * 1024
_BATCH = 256  # records that are embedded while nobody else waits for the file
_QUERY_CHARS = 2000

_PUT = "INSERT OR REPLACE INTO vector(number, model, data) VALUES (?, ?, ?)"
_LACKING = """
SELECT number, text, tags FROM record LEFT JOIN vector USING (number)
WHERE namespace = ? AND (model IS NULL OR model <> ?) LIMIT ?
"""
_ALL = "SELECT number, data FROM record JOIN vector USING (number) WHERE namespace = ? AND model = ?"


class _OnConnection(Protocol):
    """Runs work on the connection, under its lock."""

    def __call__(self, work: Callable[[sqlite3.Connection], T], *, writing: bool = False) -> T: ...


def text_to_embed(text: str, tags: Sequence[str]) -> str:
    """The text whose vector stands for a record."""
    return f"{text}\n{' '.join(tags)}" if tags else text


class MeaningIndex:
    """Finds records by their vectors. All methods are blocking and safe from any thread."""

    def __init__(self, embedder: Embedder, run: _OnConnection) -> None:
        self._embedder, self._run = embedder, run
        self._model = f"{embedder.name}/{embedder.dimensions}"
        self._lock = threading.RLock()  # around the tables
        self._tables = VectorCache(CACHE_BYTES)
        self._version = -1

    def vector(self, text: str) -> bytes:
        """The vector of a text."""
        return packed(self._embedder.embed([text]))[0]

    def put(self, db: sqlite3.Connection, number: int, vector: bytes) -> None:
        """Write a record's vector, in the transaction that writes the record."""
        db.execute(_PUT, (number, self._model, vector))

    def change(self, namespace: str, removed: Sequence[int], added: int | None, vector: bytes) -> None:
        """Note what this process has written, in the tables in memory."""
        with self._lock:
            table = self._tables.get(namespace)
            if table is not None:
                for number in removed:
                    table.remove(number)
                if added is not None:
                    table.add([(added, vector)])

    def nearest(self, query: str, namespace: str, limit: int) -> list[int]:
        """The numbers of the records whose meaning is nearest to the query's, the nearest first."""
        vector = unit(self._embedder.embed([query[:_QUERY_CHARS]])[0])
        version: int = self._run(lambda db: db.execute("PRAGMA data_version").fetchone()[0])
        with self._lock:
            if version != self._version:  # another connection has written
                self._tables.clear()
                self._version = version
            table = self._tables.get(namespace) or self._loaded(namespace)
            return table.nearest(vector, limit, self._embedder.least)

    def _loaded(self, namespace: str) -> VectorTable:
        """The table of a namespace, from the file, after records without a vector got one."""
        while self._fill(namespace):
            pass
        table = VectorTable(self._embedder.dimensions)
        table.add(self._run(lambda db: db.execute(_ALL, (namespace, self._model)).fetchall()))
        self._tables.put(namespace, table)
        return table

    def _fill(self, namespace: str) -> bool:
        """Give some records their vectors. Return whether there may be more."""
        asked = (namespace, self._model, _BATCH)
        rows: list[tuple[int, str, str]] = self._run(lambda db: db.execute(_LACKING, asked).fetchall())
        if not rows:
            return False
        vectors = packed(self._embedder.embed([text_to_embed(text, loads(tags)) for _number, text, tags in rows]))
        filled = [(row[0], self._model, vector) for row, vector in zip(rows, vectors, strict=True)]

        def write(db: sqlite3.Connection) -> Any:
            return db.executemany(_PUT, filled)

        self._run(write, writing=True)
        return len(rows) == _BATCH
