"""The journal of a supervisor with a state directory: each record is in the log before `write` returns.

A call has an intent before it is sent, and a "call" record before its result is returned. So after a kill of the
supervisor, an intent without an end belongs to a call that was interrupted: `interrupted` finds those.
"""

import logging
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from .chain import BrokenChain, Head, JournalEntry, entries
from .database import Index
from .journal import Journal, Record
from .log import JournalFull, JournalLog

_log = logging.getLogger("toolcell.journal")
FILL_S: Final = 0.25
"""Seconds between two transactions in which the index takes new records from the log."""
ENDS: Final = frozenset({"call", "denied"})
"""The kinds of the record that ends a call, unless it is the broker's refusal of an operation."""
NOT_STARTED, UNKNOWN = "not started", "outcome unknown"


class DurableJournal:
    """Writes each record to the log, and passes it on to the program's journal."""

    def __init__(self, log: Path, index: Path, beside: Journal) -> None:
        self.beside = beside
        self.failure = ""
        """Why the last record could not be written, "" if it was written."""
        self._log = JournalLog(log)
        self._index_path = index
        self._filler: threading.Thread | None = None
        self._closing = threading.Event()

    @property
    def head(self) -> Head:
        return self._log.head

    def open(self, wanted: Iterable[tuple[str, str]] = ()) -> Mapping[tuple[str, str], Mapping[str, Any]]:
        """Open the log, and record the calls that were interrupted. Returns the data of the end of each call in
        `wanted`, (session, call), that the last supervisor has sent. Raises BrokenChain, OSError or sqlite3.Error."""
        index = Index(self._index_path, to_write=True)
        try:
            if index.size > (self._log.path.stat().st_size if self._log.path.exists() else 0):
                raise BrokenChain("is missing, with all later entries", index.head.number, index.size)
            index.fill(self._log.open(index.head, index.size))
            found = [
                Record("call", record.session_id, record.call_id, _interruption(record, started=started))
                for record, started in interrupted(record for _number, record in index.records(_SINCE_LAST_START))
            ]
            ends = {call: end for call in wanted for end in _end_of(index, call)}
        finally:
            index.close()
        for record in found:
            self.write(record)
        self.write(Record("supervisor", "", data={"event": "started"}))
        self._filler = threading.Thread(target=self._fill, name="toolcell-journal-index", daemon=True)
        self._filler.start()
        return ends | {(record.session_id, record.call_id): record.data for record in found}

    def used_approvals(self) -> set[str]:
        """The requests for approval whose answers calls have had. Raises sqlite3.Error."""
        index = Index(self._index_path, to_write=False)
        try:
            found = index.records("kind = 'approval'")
            return {str(record.data.get("request")) for _number, record in found if record.data.get("used")}
        finally:
            index.close()

    def write(self, record: Record) -> None:
        """Append the record. A failure is logged and kept in `failure`, because an end cannot be taken back."""
        self.beside.write(record)
        try:
            self._log.append(record)
        except JournalFull as error:
            if not self.failure:
                _log.error("%s", error)
            self.failure = str(error)
        else:
            self.failure = ""

    def intend(self, record: Record) -> str:
        """Append the intent of a call. Returns why the call must not be sent, "" if it may be."""
        try:
            self._log.append(record)
        except JournalFull as error:
            return str(error)
        return ""

    def close(self) -> None:
        """Record the end, and make every record durable."""
        self.write(Record("supervisor", "", data={"event": "ended"}))
        self._closing.set()
        if self._filler is not None:
            self._filler.join()
        self._log.close()

    def _fill(self) -> None:
        """In a thread, take new records into the index, and once more at the end."""
        index = Index(self._index_path, to_write=True)
        try:
            with open(self._log.path, "rb") as file:
                ending = False
                while not ending:
                    ending = self._closing.wait(FILL_S)
                    if self._log.size > index.size:
                        index.fill(entries(file, index.head, index.size))
        except Exception:  # the log has everything: `open` fills the index the next time
            _log.exception("the index of the journal cannot be filled")
        finally:
            index.close()


_SINCE_LAST_START: Final = (
    "number > ifnull((SELECT max(number) FROM records WHERE kind = 'supervisor' AND data LIKE '%started%'), 0)"
)


def _end_of(index: Index, call: tuple[str, str]) -> Iterable[Mapping[str, Any]]:
    where = f"{_SINCE_LAST_START} AND session = ? AND call = ? AND kind IN ('call', 'denied')"
    ends = [record.data for _number, record in index.records(where, call) if "operation" not in record.data]
    return ends[-1:]


def interrupted(records: Iterable[Record]) -> list[tuple[Record, bool]]:
    """The intents of calls without an end, oldest first, and whether each may have been sent to a process."""
    open_: dict[tuple[str, str], tuple[Record, bool]] = {}
    for record in records:
        key = record.session_id, record.call_id
        match record.kind:
            case "intent":
                open_[key] = record, True
            case "approval" if record.data.get("event") == "asked":
                open_[key] = record, False
            case "queued" | "sent" if key in open_:
                open_[key] = open_[key][0], record.kind == "sent"
            case "call" | "denied" if "operation" not in record.data:
                open_.pop(key, None)
            case _:
                pass
    return list(open_.values())


def _interruption(intent: Record, *, started: bool) -> Mapping[str, Any]:
    given = {name: intent.data[name] for name in ("tool", "version", "attempt") if name in intent.data}
    outcome = UNKNOWN if started else NOT_STARTED
    message = f"The supervisor ended before the call did: {outcome}."
    return {**given, "error": "interrupted", "message": message, "outcome": outcome}


def all_entries(path: Path) -> Iterable[JournalEntry]:
    """Every entry of a log, checked. Raises BrokenChain or OSError."""
    with open(path, "rb") as file:
        yield from entries(file)
