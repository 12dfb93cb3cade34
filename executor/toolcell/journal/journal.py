"""The journal that the supervisor writes: a small protocol, and the one that keeps the most recent records in
memory.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol, Self

from toolcell.misuse import count
from toolcell.sizes import memory_of

_new = tuple[object, ...].__new__


class _Fields(NamedTuple):
    kind: str
    session_id: str
    call_id: str
    data: Mapping[str, Any]
    at: float


class Record(_Fields):
    """One event. `kind` is "call" (a call ended; where its caller had gone, `stdout`, `stderr` and `progress` are what
    it had printed and reported), "denied" (the broker or the dispatcher refused), "quarantined" (what
    a call made of protected names, and where that is now), "incident" (a cell broke the protocol, or a module claimed
    the name of another tool), "egress" (a call's connection through its proxy has ended, or was refused: host, port,
    allowed, reason, bytes_in, bytes_out), "http" (a request of `ctx.http`, or a redirect that it followed, is over, or
    was refused: method, scheme, host, port, path, rule, allowed, reason, status, credentials by name, bytes_in,
    bytes_out), "log" (a tool's own word) or "session" (opened, closed). `data` are its facts, JSON data; a traceback,
    if there is one, is only here and never in what a model sees. `at` is Unix seconds, by default now.
    """

    __slots__ = ()

    def __new__(
        cls,
        kind: str,
        session_id: str,
        call_id: str = "",
        data: Mapping[str, Any] | None = None,
        at: float | None = None,
    ) -> Self:
        facts: Mapping[str, Any] = {} if data is None else data
        return _new(cls, (kind, session_id, call_id, facts, time.time() if at is None else at))

    @classmethod
    def now(cls, kind: str, session_id: str, call_id: str, data: Mapping[str, Any]) -> Self:
        """One event of this moment. Each call has one, and the constructor takes twice the time."""
        return _new(cls, (kind, session_id, call_id, data, time.time()))


class Journal(Protocol):
    """Where records go. Called on the event loop for every call: take the record and return; never raise."""

    def write(self, record: Record) -> None: ...


class RecentJournal:
    """Keeps the last `size` records in memory, and fewer where what tools log takes more than `log_bytes`; iterate over
    it, oldest first. The default of `Supervisor`.
    """

    def __init__(self, size: int = 10_000, log_bytes: int = 32 * 1024 * 1024) -> None:
        self._records: deque[Record] = deque(maxlen=count("size", size, "Pass how many records to keep."))
        self._log_bytes = count("log_bytes", log_bytes, "Pass how many bytes of logs to keep.")
        self._logs: deque[tuple[int, int]] = deque()  # of each, the number of its record, and what it takes
        self._logged = 0
        self._written = 0

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self._records))

    def __len__(self) -> int:
        return len(self._records)

    def write(self, record: Record) -> None:
        self._records.append(record)
        self._written += 1
        if record[0] == "log":
            self._count(memory_of(record.data))

    def _count(self, size: int) -> None:
        """Drop the oldest records until what is logged is within bounds."""
        self._logs.append((self._written, size))
        self._logged += size
        while self._logs and self._logs[0][0] <= self._written - len(self._records):
            self._logged -= self._logs.popleft()[1]
        while self._logged > self._log_bytes and len(self._logs) > 1:
            number, size = self._logs.popleft()
            self._logged -= size
            while self._written - len(self._records) < number:
                self._records.popleft()

    def of(self, *, kind: str = "", session_id: str = "", call_id: str = "") -> list[Record]:
        """The records that match every word given."""
        return [
            record
            for record in self._records
            if (not kind or record.kind == kind)
            and (not session_id or record.session_id == session_id)
            and (not call_id or record.call_id == call_id)
        ]
