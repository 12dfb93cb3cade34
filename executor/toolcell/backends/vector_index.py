"""The vectors of a `SQLiteMemory`: kept in its file, and in memory for the namespaces that are searched.

A search is exact: one product with a matrix. Records without a vector of the present embedder get one at the next
search of their namespace. The tables in memory are dropped when another process has written to the file.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, cast

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]
import sqlite3
import threading
from collections.abc import Callable
from json import loads
from typing import Any, Protocol, TypeVar

from toolcell.backends.embedding import Embedder

__all__ = [
    "MeaningIndex",
    "VectorCache",
    "VectorTable",
    "packed",
    "text_to_embed",
    "unit",
    "unpacked",
]

_FIRST: Final = 64  # rows of a new table


def packed(vectors: Sequence[Sequence[float]]) -> list[bytes]:
    """Each vector with the length 1, as float32 in the machine's order of bytes. A vector of zeros stays one."""
    matrix = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    lengths[lengths == 0.0] = 1.0
    return [row.tobytes() for row in matrix / lengths]


def unpacked(data: bytes) -> "Matrix":
    return np.frombuffer(data, dtype=np.float32)


def unit(vector: Sequence[float]) -> "Matrix":
    """A vector with the length 1, as float32. A vector of zeros stays one."""
    made = np.asarray(vector, dtype=np.float32)
    return made / (float(made @ made) ** 0.5 or 1.0)


class VectorTable:
    """Numbers with their vectors, of length 1."""

    def __init__(self, dimensions: int) -> None:
        self._numbers: NDArray[np.int64] = np.empty(_FIRST, np.int64)
        self._matrix: Matrix = np.empty((_FIRST, dimensions), np.float32)
        self._rows: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def size(self) -> int:
        """In bytes."""
        return self._matrix.nbytes + self._numbers.nbytes

    def add(self, items: Iterable[tuple[int, bytes]]) -> None:
        """Add numbers, or replace their vectors."""
        for number, data in items:
            row = self._rows.setdefault(number, len(self._rows))
            if row == len(self._numbers):
                self._numbers = np.concatenate([self._numbers, np.empty_like(self._numbers)])
                self._matrix = np.concatenate([self._matrix, np.empty_like(self._matrix)])
            self._numbers[row], self._matrix[row] = number, unpacked(data)

    def remove(self, number: int) -> None:
        """Remove a number, if it is here. The last row takes its place."""
        row = self._rows.pop(number, None)
        if row is None or row == len(self._rows):
            return
        last = len(self._rows)
        moved = int(self._numbers[last])
        self._numbers[row], self._matrix[row] = moved, self._matrix[last]
        self._rows[moved] = row

    def nearest(self, vector: "Matrix", limit: int, least: float) -> list[int]:
        """At most `limit` numbers, the nearest first, of vectors whose cosine similarity is `least` or more. `vector`
        has the length 1."""
        total = len(self._rows)
        if total == 0 or limit < 1:
            return []
        scores = self._matrix[:total] @ vector
        near = np.flatnonzero(scores >= least)  # few: to select of all rows takes half as long as the product
        if len(near) > limit:
            near = near[np.argpartition(-scores[near], limit)[:limit]]
        return cast("list[int]", self._numbers[near[np.argsort(-scores[near], kind="stable")]].tolist())


class VectorCache:
    """The tables of the namespaces that were used last, of at most `max_bytes` bytes together, and always one."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._tables: OrderedDict[str, VectorTable] = OrderedDict()

    def get(self, namespace: str) -> VectorTable | None:
        table = self._tables.get(namespace)
        if table is not None:
            self._tables.move_to_end(namespace)
        return table

    def put(self, namespace: str, table: VectorTable) -> None:
        self._tables[namespace] = table
        self._tables.move_to_end(namespace)
        while len(self._tables) > 1 and sum(each.size for each in self._tables.values()) > self._max_bytes:
            self._tables.popitem(last=False)

    def clear(self) -> None:
        self._tables.clear()


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
