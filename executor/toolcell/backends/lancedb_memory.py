"""A memory in LanceDB (ADR-0004, ADR-0006), which runs in a process of its own. Needs the extra `[lancedb]`."""

import os
import select
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgpack

from toolcell.backends.embedding import Embedder
from toolcell.backends.protocols import BackendError, MemoryRecord, Unreachable
from toolcell.backends.records import (
    MAX_LIMIT,
    ClosedByWith,
    checked_id,
    checked_namespace,
    checked_record,
    full,
    room_of,
    words_of,
)
from toolcell.backends.threads import Threads
from toolcell.errors import ArgumentError
from toolcell.rules.misuse import count
from toolcell.rules.misuse import path as checked_path

__all__ = ["LanceDBMemory"]

START_S: Final = 60.0  # the imports take 1 s on an idle machine
ANSWER_S: Final = 30.0
_ANSWER_BYTES = 64 * 1024 * 1024


class LanceDBMemory(ClosedByWith):
    """Records in the LanceDB directory `path`, kept until deleted. Implements `MemoryStore`.

    LanceDB runs in a process of its own, which is started at the first use and again after a crash, and ends with this
    one. All methods are safe from any task and thread. With an `embedder`, such as `LocalEmbedder()`, a search also
    finds records that say it in other words; a directory belongs to one embedder. A text may have `max_text_bytes` in
    UTF-8, a namespace `max_records`.
    """

    durable = True

    def __init__(
        self,
        path: str | Path,
        *,
        embedder: Embedder | None = None,
        max_text_bytes: int = 64 * 1024,
        max_records: int = 100_000,
    ) -> None:
        if find_spec("lancedb") is None:
            raise ArgumentError("LanceDBMemory needs lancedb. Install it: pip install 'toolcell[lancedb]'.")
        self._max_text_bytes = count("max_text_bytes", max_text_bytes, "Pass how long a text may be.")
        self._max_records = count("max_records", max_records, "Pass how many records to keep.")
        self._embedder = embedder
        dimensions, name = (0, "") if embedder is None else (embedder.dimensions, embedder.name)
        self._process = _LanceDBProcess([os.path.abspath(checked_path("path", path)), str(dimensions), name])
        self._threads = Threads(4)

    def __repr__(self) -> str:
        return f"<LanceDBMemory {self._process!r}>"

    async def search(self, query: str, *, limit: int, namespace: str) -> list[MemoryRecord]:
        """As `SQLiteMemory.search`."""
        words, limit = words_of(query), min(limit, MAX_LIMIT)
        if not words or limit < 1:
            return []
        return await self._threads.run(partial(self._search, query, words, limit, checked_namespace(namespace)))

    async def store(self, record: MemoryRecord, *, namespace: str) -> str:
        """As `SQLiteMemory.store`."""
        record = checked_record(record, self._max_text_bytes)
        await self._threads.run(partial(self._store, record, checked_namespace(namespace)))
        return record.id

    async def delete(self, record_id: str, *, namespace: str) -> bool:
        """Forget one record; return whether it was there."""
        key = _key(checked_namespace(namespace), checked_id(record_id))
        return bool(await self._threads.run(partial(self._process.ask, "delete", key)))

    def close(self) -> None:
        """End the process. Idempotent; every later call raises `BackendError`."""
        self._process.close()

    def _search(self, query: str, words: list[str], limit: int, namespace: str) -> list[MemoryRecord]:
        vector, least = self._vector(query), 0.0 if self._embedder is None else self._embedder.least
        rows = self._process.ask("search", room_of(namespace), " ".join(words), vector, least, limit)
        return [MemoryRecord(id, text, kind, tuple(tags), at, score) for id, text, kind, tags, at, score in rows]

    def _store(self, record: MemoryRecord, namespace: str) -> None:
        said = f"{record.text}\n{' '.join(record.tags)}" if record.tags else record.text
        row: dict[str, Any] = {
            "key": _key(namespace, record.id),
            "room": room_of(namespace),
            "words": said,
            "id": record.id,
            "text": record.text,
            "kind": record.kind,
            "tags": list(record.tags),
            "created_at": record.created_at,
        }
        if self._embedder is not None:
            row["vector"] = self._vector(said)
        if not self._process.ask("store", row, self._max_records):
            raise full(self._max_records)

    def _vector(self, text: str) -> Sequence[float]:
        if self._embedder is None:
            return []
        return array("f", [float(each) for each in self._embedder.embed([text])[0]]).tolist()


def _is_readable(fd: int, deadline: float) -> bool:
    """Wait until there are bytes to read, or the end; poll(2), because select(2) fails for descriptors from 1024."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))


def _key(namespace: str, record_id: str) -> str:
    """One name in hexadecimal for a record of a namespace: filters of LanceDB are SQL."""
    return sha256(f"{room_of(namespace)}/{record_id}".encode()).hexdigest()


class _LanceDBProcess:
    """The process that runs LanceDB, one request at a time."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def __repr__(self) -> str:
        running = self._process is not None and self._process.poll() is None
        return f"{self._arguments[0]} · {'closed' if self._closed else 'running' if running else 'not running'}"

    def ask(self, operation: str, *arguments: Any) -> Any:
        """The answer to a request. Blocking. Raises Unreachable for every failure."""
        with self._lock:
            if self._closed:
                raise BackendError("The memory is closed. Open a new one.")
            process = self._process
            if process is None or process.poll() is not None:
                process = self._started()
            packed: bytes = msgpack.packb({"operation": operation, "arguments": arguments})
            try:
                assert process.stdin is not None
                process.stdin.write(len(packed).to_bytes(4, "big") + packed)
                process.stdin.flush()
                return self._answer(process, ANSWER_S)
            except OSError as error:
                self._end()
                raise Unreachable(f"The memory's process has ended: {error.strerror}. Try again in a moment.") from None

    def close(self) -> None:
        """End the process, also while it works. What it has answered is on disk."""
        self._closed = True
        if self._process is not None:
            self._process.kill()
        with self._lock:
            self._end()

    def _started(self) -> "subprocess.Popen[bytes]":
        self._end()
        self._process = process = subprocess.Popen(
            [sys.executable, "-I", "-m", "toolcell.backends.lancedb_process", *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ},
        )
        self._answer(process, START_S)
        return process

    def _answer(self, process: "subprocess.Popen[bytes]", within_s: float) -> Any:
        deadline = time.monotonic() + within_s
        size = int.from_bytes(self._read(process, 4, deadline), "big")
        if size > _ANSWER_BYTES:
            self._end()
            raise Unreachable(f"The memory's process answered with {size:,} bytes. Ask for fewer records.")
        answer: Any = msgpack.unpackb(self._read(process, size, deadline))
        if not answer["ok"]:
            raise Unreachable(f"The memory could not be used: {answer['value']}. Whoever runs the agent should look.")
        return answer["value"]

    def _read(self, process: "subprocess.Popen[bytes]", size: int, deadline: float) -> bytes:
        assert process.stdout is not None
        data, fd = bytearray(), process.stdout.fileno()
        while len(data) < size:
            ready = _is_readable(fd, deadline)
            piece = os.read(fd, size - len(data)) if ready else b""
            if not piece:
                self._end()
                why = "has ended" if ready else "did not answer in time"
                raise Unreachable(f"The memory's process {why}. Try again in a moment.")
            data += piece
        return bytes(data)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    try:
                        stream.close()
                    except OSError:  # unsent bytes of a request that failed
                        pass
