"""Vectors of records in memory, by namespace, and the exact search for the nearest ones: one product with a matrix."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, cast

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

__all__ = ["VectorCache", "VectorTable", "packed", "unit", "unpacked"]

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
