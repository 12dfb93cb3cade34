"""The protocol of a journal, and the default journal, which keeps the most recent records in memory."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol, Self

from toolcell.rules.misuse import count
from toolcell.wire.budget import memory_of

_new = tuple[object, ...].__new__


class _Fields(NamedTuple):
    kind: str
    session_id: str
    call_id: str
    data: Mapping[str, Any]
    at: float


class Record(_Fields):
    """One event. `kind` is "call" (a call ended; if its caller had gone, `stdout`, `stderr` and `progress` hold its
    output and progress), "denied" (the broker or the dispatcher refused), "quarantined" (a file with a protected name
    that a call made, and its present place), "incident" (a cell broke the protocol, or a module claimed the name of
    another tool), "egress" (a call's connection through its proxy has ended, or was refused: host, port, allowed,
    reason, bytes_in, bytes_out), "http" (a request of `ctx.http`, or a redirect, has ended or was refused: method,
    scheme, host, port, path, rule, allowed, reason, status, credentials by name, bytes_in, bytes_out), "log" (a tool
    called `ctx.log`) or "session" (opened, suspended, resumed, closed). `data` holds the facts, as JSON data. A
    traceback appears only here, never in what a model sees. `at` is in Unix seconds, by default now.
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
        """Make the record of an event that happens now. It takes half the time of the constructor."""
        return _new(cls, (kind, session_id, call_id, data, time.time()))


class Journal(Protocol):
    """Receives the records. `write` is called on the event loop for every call. It must be quick and never raise."""

    def write(self, record: Record) -> None: ...


class RecentJournal:
    """Keeps the last `size` records in memory, or fewer if the logs of tools take more than `log_bytes`. Iterates from
    the oldest record. The default journal of a `Supervisor`.
    """

    def __init__(self, size: int = 10_000, log_bytes: int = 32 * 1024 * 1024) -> None:
        self._records: deque[Record] = deque(maxlen=count("size", size, "Pass how many records to keep."))
        self._log_bytes = count("log_bytes", log_bytes, "Pass how many bytes of logs to keep.")
        self._logs: deque[tuple[int, int]] = deque()  # the number and the size in bytes of each log record
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
        """Drop the oldest records until the logs are within `log_bytes`."""
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
        """The records that match all given arguments."""
        return [
            record
            for record in self._records
            if (not kind or record.kind == kind)
            and (not session_id or record.session_id == session_id)
            and (not call_id or record.call_id == call_id)
        ]
