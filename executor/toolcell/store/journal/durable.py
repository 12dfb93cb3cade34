"""The journal of a supervisor with a state directory: each record is in the log before `write` returns.

A call has an intent before it is sent, and a "call" record before its result is returned. So after a kill of the
supervisor, an intent without an end belongs to a call that was interrupted: `interrupted` finds those.
"""

import logging
import sqlite3
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, cast

from toolcell.store.database import is_damage
from toolcell.store.journal.arguments import bounded_log
from toolcell.store.journal.entries import BrokenChain, Head, JournalEntry, SharedFacts, entries, is_at
from toolcell.store.journal.journal import Journal, Record
from toolcell.store.journal.log import JournalFull, JournalLog
from toolcell.store.journal.reading import Index, opened_index, put_aside
from toolcell.store.journal.segments import LogFile

_log = logging.getLogger("toolcell.journal")
FILL_S: Final = 0.25
"""Seconds between two transactions in which the index takes new records from the log."""
MOST_UNWRITTEN: Final = 10_000
"""The most records that wait for room on a full disk; the oldest is dropped first."""
BEHIND_S: Final = 5.0
"""The age of a record that is not durable, in seconds, from which on it is a problem."""
_PYTHON: Final = ".".join(map(str, sys.version_info[:3]))
NOT_STARTED, FINISHED, UNKNOWN = "not started", "finished", "outcome unknown"


class DurableJournal:
    """Writes each record to the log, and passes it on to the program's journal."""

    def __init__(
        self,
        log: Path,
        index: Path,
        beside: Journal,
        also: Iterable[Callable[[], None]] = (),
        most_bytes: int = 0,
    ) -> None:
        """`also` are calls that make other files durable, as often as the log, and `most_bytes` is the log's bound
        (`JournalLog`)."""
        self.beside = beside
        self._failure = ""
        self._unwritten: deque[Record] = deque(maxlen=MOST_UNWRITTEN)
        self._writing_late = threading.Lock()
        self._index_failure = ""
        self.removed = 0
        """The number of entries whose segments were removed, at the opening."""
        self.interrupted: dict[tuple[str, str], Mapping[str, Any]] = {}
        """The ends of the interrupted calls, by session and call."""
        self.given_back: set[str] = set()
        """The requests for approval whose answers interrupted calls had, and did not use."""
        self.waited: set[str] = set()
        """The requests of interrupted calls that did not begin."""
        self._log = JournalLog(log, also, most_bytes)
        self._index_path = index
        self._filler: threading.Thread | None = None
        self._closing = threading.Event()

    @property
    def head(self) -> Head:
        return self._log.head

    @property
    def failure(self) -> str:
        """Why records cannot be written, kept or indexed, "" if they can."""
        behind_s = self._log.behind_s()
        if behind_s > BEHIND_S and not self._log.broken:
            return f"The last {behind_s:.0f} s of the journal are not on the disk yet: the disk is slow."
        return self._log.broken or self._failure or self._index_failure

    def open(self) -> None:
        """Open the log, fill the index, and record the calls that were interrupted. Raises BrokenChain, OSError or
        sqlite3.Error."""
        index = opened_index(self._index_path)
        try:
            self._require_log_of(index)
            index.fill(self._log.open(index.head, index.size))
            with LogFile(self._log.path) as file:
                self.removed = file.head.number
            unended = [each for call in index.unended(_SINCE_LAST_START) for each in _of_call(index, call)]
        except BaseException:
            self._log.close()
            raise
        finally:
            index.close()
        for each in _without_end(unended):
            intent, data = each.record, _interruption(each.record, each.outcome)
            earlier = self.interrupted.get((intent.session_id, intent.call_id), data)
            self.interrupted[intent.session_id, intent.call_id] = max(data, earlier, key=_effect)
            if each.outcome == NOT_STARTED:
                self.given_back |= each.answers
                self.waited |= each.asked
                for request in each.answers:
                    self.write(given_back(intent.session_id, intent.call_id, request))
            self.write(Record("call", intent.session_id, intent.call_id, data))

    def begin(self, opens: int) -> None:
        """Record the start of the supervisor. `opens` is the database's high-water mark (`store.Store`)."""
        about = {"event": "started", "toolcell": version("toolcell"), "python": _PYTHON, "opens": opens}
        self.write(Record("supervisor", "", data=about))
        self._filler = threading.Thread(target=self._fill, name="toolcell-journal-index", daemon=True)
        self._filler.start()

    def end_of(self, past: Index, session: str, call: str, after: int) -> Mapping[str, Any] | None:
        """The data of the end of a call that an earlier supervisor made, among the entries after the number `after`. If
        several calls had this id, it is the end with the most effect: any of them may be the call."""
        ends = past.ends_of(session, call, after)
        if (session, call) in self.interrupted:
            ends.append(self.interrupted[session, call])
        return max(reversed(ends), key=_effect, default=None)

    def past(self) -> Index:
        """The index of what earlier supervisors have written. Raises sqlite3.Error."""
        return Index(self._index_path, to_write=False)

    @property
    def has_gap(self) -> bool:
        """Whether the index was lost together with segments of the log, so that nothing tells which approvals were used
        or ended before."""
        return self._log.has_gap

    def write(self, record: Record) -> None:
        """Append the record. A failure is logged and kept in `failure`, because an end cannot be taken back. The record
        is appended later, before the next one that can be."""
        self.beside.write(record)
        if record.kind == "log":
            record = bounded_log(record)
        try:
            if self._unwritten:
                self._write_late()
            self._log.append(record)
        except JournalFull as error:
            if not self._failure:
                _log.error("%s", error)
            self._failure = str(error)
            self._unwritten.append(record)
        else:
            self._failure = ""

    def _write_late(self) -> None:
        """Append the records that could not be, in order. Raises JournalFull."""
        with self._writing_late:
            while self._unwritten:
                self._log.append(self._unwritten[0])
                self._unwritten.popleft()

    def intend(self, record: Record, shared: SharedFacts | None = None) -> str:
        """Append the intent of a call, whose data follows the `shared` facts. If records of approvals wait for room,
        they come first: one may be the use of this call's approval. Returns why the call must not be sent, "" if it may
        be. A model may read that, so it does not name the file."""
        try:
            if self._unwritten and any(each.kind == "approval" for each in self._unwritten):
                self._write_late()
            self._log.append(record, shared)
        except JournalFull as error:
            return self._without_path(error)
        return ""

    def _without_path(self, error: JournalFull) -> str:
        return str(error).replace(f"The journal {str(self._log.path)!r}", "The journal")

    def announce(self, record: Record) -> bool:
        """Append a record that must precede its step. Returns False if it could not be written; then skip the step."""
        if self.intend(record):
            return False
        self.beside.write(record)
        return True

    def claim(self, record: Record) -> int:
        """Append a record that must precede its step, and return its number. Raises JournalFull, whose text has no
        path, because a model may read it."""
        try:
            return self._log.append(record)
        except JournalFull as error:
            raise JournalFull(self._without_path(error)) from error

    def give_up(self) -> None:
        """Close the log without a record of the end, after a failed start."""
        self._closing.set()
        if self._filler is not None:
            self._filler.join()
        with suppress(OSError):
            self._log.close()

    def close(self, opens: int) -> None:
        """Record the end, and make every record durable."""
        self.write(Record("supervisor", "", data={"event": "ended", "opens": opens}))
        try:
            self._log.close()
        except OSError as error:
            _log.error("the journal cannot be made durable: %s", error)
        self._closing.set()
        if self._filler is not None and self._filler.is_alive():  # in a fork it is not
            self._filler.join()

    def _require_log_of(self, index: Index) -> None:
        """Raise BrokenChain unless the log begins with the entries that are in the index."""
        cure = (
            f"If {self._log.path.name} is right, remove {self._index_path.name}: it is made again. Otherwise restore a "
            "copy of the log."
        )
        try:
            with LogFile(self._log.path) as file:
                size = file.seek(0, 2)
                if index.size > size:
                    raise BrokenChain(
                        f"is not there: the log ends at byte {size:,}, and {self._index_path.name} goes on",
                        index.head.number,
                        index.size,
                        cure,
                    )
                is_first = index.head in (Head(), file.head)
                is_within = is_first or index.size > file.begin
                if not is_within or not (is_first or is_at(file, index.head, index.start, index.size)):
                    what = f"is not the one that {self._index_path.name} has: this is another log"
                    raise BrokenChain(what, index.head.number, index.start, cure)
        except FileNotFoundError:
            if index.size:
                raise BrokenChain(
                    f"is not there: {self._log.path.name} was removed, and {self._index_path.name} was not",
                    index.head.number,
                    index.size,
                    cure,
                ) from None

    def _fill(self) -> None:
        """In a thread, take new records into the index, and once more at the end. Only durable records are taken, so
        that after a power failure the index has none that the log has lost."""
        index: Index | None = None
        ending = False
        while not ending:
            ending = self._closing.wait(FILL_S)
            try:
                index = index or opened_index(self._index_path)
                if self._log.synced > index.size:
                    with LogFile(self._log.path) as file:
                        if index.size < file.begin:  # it was made again; the next start tells of what it has lost
                            raise RuntimeError("it lacks removed segments, start the supervisor again")
                        index.fill(self._durable(entries(file, index.head, index.size)))
                        has_removed = self._log.remove_oldest(index.size) > file.begin
                    if has_removed:
                        with LogFile(self._log.path) as file:
                            index.forget(file.head)
                self._index_failure = ""
            except Exception as error:  # the log has everything: it is tried again, also by the next `open`
                if not self._index_failure:
                    _log.exception("the index of the journal cannot be filled")
                self._index_failure = f"The index of the journal cannot be filled: {error}."
                if index is not None:
                    index.close()
                    index = None
                if isinstance(error, sqlite3.Error) and is_damage(error):
                    put_aside(self._index_path, error)
        if index is not None:
            index.close()

    def _durable(self, found: Iterable[JournalEntry]) -> Iterator[JournalEntry]:
        return takewhile(lambda each: each.end <= self._log.synced, found)


_SINCE_LAST_START: Final = (
    "number > ifnull((SELECT max(number) FROM records WHERE kind = 'supervisor' AND data LIKE '%\"started\"%'), 0)"
)


def _of_call(index: Index, call: tuple[str, str]) -> list[Record]:
    found = index.records(f"{_SINCE_LAST_START} AND session = ? AND call = ?", call)
    return [record for _number, record in found]


def interrupted(records: Iterable[Record]) -> list[tuple[Record, str]]:
    """The intents of calls without an end, oldest first, and the outcome of each: "not started", "outcome unknown", or
    "finished" if it was sent and cannot have changed anything that lasts.

    Calls at the same time may have the same id. Then an end is that of the oldest of them. A call that was refused
    before its intent was written has an end that says so, with `intended` false. A call that asks for a confirmation
    ends by that, so its question is not a call that waits.
    """
    return [(each.record, each.outcome) for each in _without_end(records)]


@dataclass(slots=True, eq=False)
class _Open:
    """A call without an end so far. `has_acted`: it has begun a handle operation with an effect. `is_sent`: it has a
    "sent" record, which a call that did not wait for a cell lacks. `asked` are its requests for approval, and `answers`
    those whose approving answers it has had."""

    record: Record
    is_started: bool
    asked: set[str] = field(default_factory=set[str])
    answers: set[str] = field(default_factory=set[str])
    is_sent: bool = False
    has_acted: bool = False

    @property
    def outcome(self) -> str:
        if not self.is_started:
            return NOT_STARTED
        grants: object = self.record.data.get("grants")
        is_in_cell = self.record.data.get("placement") == "cell" and isinstance(grants, list)
        if is_in_cell and not self.has_acted and _LASTING.isdisjoint(cast("list[str]", grants)):
            return FINISHED
        return UNKNOWN


def _without_end(records: Iterable[Record]) -> list[_Open]:
    """The calls without an end, oldest first. Calls at the same time with the same id have no approvals, because
    nothing tells which of them had an answer."""
    mixed: set[tuple[str, str]] = set()
    open_: dict[tuple[str, str], list[_Open]] = {}
    for record in records:
        calls = open_.setdefault((record.session_id, record.call_id), [])
        match record.kind:
            case "intent":
                waited = next((each for each in calls if each.record.kind == "approval"), None)
                if waited is not None:
                    calls.remove(waited)
                now = _Open(record, is_started=True)
                calls.append(now if waited is None else replace(waited, record=record, is_started=True))
            case "approval":
                _note_approval(calls, record)
            case "sent" if calls:
                calls[-1].is_started = calls[-1].is_sent = True
            case "queued" if calls:  # it follows "sent" if it waited for room on a full disk
                calls[-1].is_started = calls[-1].is_sent
            case "operation" if record.data.get("effect"):  # it may be that of any call with this id
                for each in calls:
                    each.has_acted = True
            case "call" | "denied" if "operation" not in record.data:
                kinds = ("intent", "approval") if record.data.get("intended", True) else ("approval",)
                ended = next((each for each in calls if each.record.kind in kinds), None)
                if ended is not None:
                    calls.remove(ended)
            case _:
                pass
        if len(calls) > 1:
            mixed.add((record.session_id, record.call_id))
    for calls in (open_[key] for key in mixed):
        calls[:] = [replace(each, asked=set(), answers=set()) for each in calls]
    return [each for calls in open_.values() for each in calls]


def _note_approval(calls: list[_Open], record: Record) -> None:
    """Note a record of an approval. The answer to a confirmation is had before the call waits for anything else."""
    data = record.data
    is_asked = data.get("event") == "asked" and data.get("asks") != "confirmation"
    has_answer = bool(data.get("used")) and str(data.get("answer")).startswith(("approved", "confirmed"))
    if not (is_asked or has_answer):
        return
    if not calls or (is_asked and (calls[-1].record.kind == "intent" or calls[-1].asked)):
        calls.append(_Open(record, is_started=False))
    request = str(data.get("request"))
    (calls[-1].answers if has_answer else calls[-1].asked).add(request)


def _effect(end: Mapping[str, Any]) -> int:
    """How much a call with this end may have done."""
    if end.get("error") is None or end.get("outcome") == UNKNOWN:
        return 2
    return 0 if end.get("outcome") == NOT_STARTED else 1


_LASTING: Final = frozenset({"write", "exec", "net"})
"""The grants with which a call can do what lasts and is not in the journal. An operation with an effect is."""


def given_back(session_id: str, call_id: str, request: str) -> Record:
    """The record of an approval that a call had, and did not use, because it did not begin."""
    return Record("approval", session_id, call_id, {"event": "given back", "request": request, "answer": "given back"})


def _interruption(intent: Record, outcome: str) -> Mapping[str, Any]:
    given = {name: intent.data[name] for name in ("tool", "version", "attempt") if name in intent.data}
    message = f"The supervisor ended before the call did: {outcome}."
    if outcome == FINISHED:
        message = "The supervisor ended before the call did. The call cannot have changed anything that lasts."
    return {**given, "error": "interrupted", "message": message, "outcome": outcome}
