"""The process of a `LanceDBMemory`: `python -I -m toolcell.backends.lancedb_process DIRECTORY DIMENSIONS MODEL`.

LanceDB starts threads that a fork would break, so neither the supervisor nor a zygote imports it. Each request and each
answer is a length of 4 bytes and a msgpack value, over standard input and output. The process ends when its input
ends. Nothing here is hostile: the other end is the supervisor.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, BinaryIO, Final

import msgpack

from toolcell.backends.records import fused

TABLE: Final = "record"
_POOL: Final = 50  # the least of each ranking that is fused
_OPTIMIZED_AFTER: Final = 64  # writes, each of which adds files
_FIELDS = ("id", "text", "kind", "tags", "created_at")


class Store:
    """One LanceDB table of records."""

    def __init__(self, directory: str, dimensions: int, model: str) -> None:
        arrow: Any = import_module("pyarrow")
        self._dimensions = dimensions
        self._writes = 0
        kinds = {
            "key": arrow.string(),
            "room": arrow.string(),
            "words": arrow.string(),
            "tags": arrow.list_(arrow.string()),
        }
        columns = [
            (name, kinds.get(name, arrow.string())) for name in ("key", "room", "words", "id", "text", "kind", "tags")
        ]
        columns.append(("created_at", arrow.float64()))
        if dimensions:
            columns.append(("vector", arrow.list_(arrow.float32(), dimensions)))
        schema = arrow.schema(columns, metadata={"toolcell_model": model})
        db: Any = import_module("lancedb").connect(directory)
        self._table: Any = db.create_table(TABLE, schema=schema, exist_ok=True)
        said: Mapping[bytes, bytes] = self._table.schema.metadata or {}
        known = said.get(b"toolcell_model", b"").decode()
        if known != model:
            raise ValueError(
                f"it was made with the embedder {known or 'none'!r}, and is opened with {model or 'none'!r}"
            )
        if not self._table.list_indices():
            index: Any = import_module("lancedb.index")
            self._table.create_index("words", config=index.FTS(stem=True, remove_stop_words=False))

    def search(self, room: str, words: str, vector: Sequence[float], least: float, limit: int) -> list[list[Any]]:
        """The fields of the best records of a room, and their scores."""
        where, pool = f"room = '{room}'", max(_POOL, limit)
        query: Any = import_module("lancedb.query").MatchQuery(words, "words")
        said = self._table.search(query).where(where, prefilter=True).limit(pool).to_list()
        rankings = [said]
        if self._dimensions:
            near = self._table.search(list(vector)).distance_type("cosine").where(where, prefilter=True).limit(pool)
            rankings.append([row for row in near.to_list() if 1.0 - row["_distance"] >= least])
        rows = {row["key"]: row for ranking in rankings for row in ranking}
        best = fused([[row["key"] for row in ranking] for ranking in rankings], limit)
        return [[*(rows[key][name] for name in _FIELDS), score] for key, score in best]

    def store(self, row: Mapping[str, Any], max_records: int) -> bool:
        """Add a row, or replace the one of its key. False if the room is full."""
        known = self._table.count_rows(f"key = '{row['key']}'")
        if not known and self._table.count_rows(f"room = '{row['room']}'") >= max_records:
            return False
        merge = self._table.merge_insert("key").when_matched_update_all().when_not_matched_insert_all()
        merge.execute([dict(row)])
        self._writes += 1
        return True

    def delete(self, key: str) -> bool:
        before = self._table.count_rows(f"key = '{key}'")
        self._table.delete(f"key = '{key}'")
        self._writes += 1
        return bool(before)

    def tidy(self) -> None:
        """Merge small files, and index what was added, once in a while."""
        if self._writes >= _OPTIMIZED_AFTER:
            self._writes = 0
            self._table.optimize()


def serve(requests: BinaryIO, answers: BinaryIO, store: Store) -> None:
    """Answer requests until the input ends."""
    operations: Mapping[str, Callable[..., Any]] = {
        "search": store.search, "store": store.store, "delete": store.delete
    }  # fmt: skip
    while (request := receive(requests)) is not None:
        try:
            answer = {"ok": True, "value": operations[request["operation"]](*request["arguments"])}
        except Exception as error:
            answer = {"ok": False, "value": f"{type(error).__name__}: {error}"[:500]}
        send(answers, answer)
        store.tidy()


def send(stream: BinaryIO, value: Any) -> None:
    packed: bytes = msgpack.packb(value)
    stream.write(len(packed).to_bytes(4, "big") + packed)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """The next value, or None at the end of the stream."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    return msgpack.unpackb(stream.read(int.from_bytes(head, "big")))


def main() -> None:
    os.umask(0o077)  # what agents remember is the user's own, as in the file of `SQLiteMemory`
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a print of a library is no answer
    try:
        store = Store(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    except Exception as error:
        send(answers, {"ok": False, "value": f"{type(error).__name__}: {error}"[:500]})
        return
    send(answers, {"ok": True, "value": None})
    serve(sys.stdin.buffer, answers, store)


if __name__ == "__main__":
    main()
