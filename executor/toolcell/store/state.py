"""The open state of a durable supervisor: its directory, its journal and its database, opened and closed together.

The log says what happened, and the database what is pending or kept. Either may be lost or put back from a copy while
no supervisor runs. So each has a high-water mark of the other. The database counts how often it was opened and closed
(`opens`), and the log's records of the supervisor's start and end have that count: a database with a lower one is an
older copy. The database keeps the number of the log's last entry (`mark`): claims of keys after it are compared with
the rows (`results`). In every case the log wins: keys that ran do not run again, answers that were used are not used
again, and sessions that were resumed do not come back. What was noticed is a warning, and an incident in the journal.

`approvals.ended` is a file beside both, because a revocation by another process must hold before a supervisor has
recorded it, whatever is put back.

Nothing here can hold the end of the supervisor: a file system that hangs is given up after `CLOSE_S`.
"""

import logging
import sqlite3
import threading
from collections.abc import Generator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any, Final

from toolcell.errors import UsageError
from toolcell.store.approvals import Approvals
from toolcell.store.cures import unusable_state
from toolcell.store.database import LOOP_BUSY_S, Database, heal, install, is_damage
from toolcell.store.directory import DATABASE, StateDirectory
from toolcell.store.journal import Journal, Record
from toolcell.store.journal.durable import DurableJournal
from toolcell.store.journal.entries import BrokenChain
from toolcell.store.journal.reading import Index, KnownApprovals
from toolcell.store.results import KeptCall, ResultStore
from toolcell.store.schema import STATE
from toolcell.store.sessions import KeptSession, SessionStore

__all__ = ["OpenState"]

_log = logging.getLogger("toolcell.journal")
CLOSE_S: Final = 10.0
"""The most seconds that the end of the supervisor waits for its files."""


class OpenState:
    """What a supervisor with a state directory keeps there: `journal`, `results`, `sessions` and `approvals`."""

    def __init__(self, directory: StateDirectory, beside: Journal, journal_bytes: int) -> None:
        """Open everything. `beside` is the program's journal. Raises UsageError, which names the file and the cure."""
        self._directory = directory
        self._noticed: list[str] = []
        with _told(directory), ExitStack() as undo:
            directory.open_to_write()
            undo.callback(directory.close)
            self._database = self._opened()
            undo.callback(self._database.close)
            self.journal = DurableJournal(directory.log, directory.index, beside, (self._database.sync,), journal_bytes)
            undo.callback(self.journal.give_up)
            self.journal.open()
            self.results = ResultStore(self._database, self.journal.claim)
            self.sessions = SessionStore(self._database)
            with closing(self.journal.past()) as past:
                opens = max(self._database.opens, past.opens() + 1)
                self._compare(past)
                self.approvals = self._approvals(past.approvals())
            undo.callback(self.approvals.close)
            self._database.prune(*STATE.tables)
            self._database.note(opens, self.journal.head.number)  # it has the higher count before the log does
            self._database.sync()
            self.journal.begin(opens)
            for what in self._noticed:
                _log.warning("%s: %s", directory.database, what)
                self.journal.write(Record("incident", "", data={"what": f"{DATABASE}: {what}"}))
            self.record_ended_approvals()
            undo.pop_all()

    def _opened(self) -> Database:
        """The database. A damaged one is healed."""
        path, key = self._directory.database, self._directory.key()
        install(path)  # of a start that was killed

        def opened() -> Database:
            return Database(path, key, STATE, wait_s=LOOP_BUSY_S, syncs=False)

        database: Database | None = None
        try:
            database = opened()
            database.check()
            return database
        except sqlite3.Error as error:
            if database is not None:
                database.close()
            if not (is_damage(error) or "no such column" in str(error)):
                raise
            lost = ", ".join(heal(path, key, STATE)) or "none"
            self._noticed.append(
                f"It was damaged ({error}). It was made again from what could be read; tables that have lost rows: "
                f"{lost}. The old file is {path.name}.damaged."
            )
        return opened()

    def _compare(self, past: Index) -> None:
        """Make the database agree with the log, and notice which of them was put back. `past` is the index of the
        log."""
        journal, database, last = self.journal, self._database, self.journal.head.number
        known, after = past.opens(), database.mark if database.mark <= last else 0
        if database.opens < known:
            lost = f" Keys before entry {journal.removed:,} are not known." if after < journal.removed else ""
            self._noticed.append(
                "It is missing or an older copy: the journal goes further. Keys of calls that ran since then do not "
                f"run again.{lost} Requests for approval, suspended sessions and tasks of that time are lost."
            )
        elif database.opens > known + 1:  # by one if a start was killed
            self._noticed.append("It goes further than the journal, which was removed or put back from a copy.")

        def end_of(call: KeptCall) -> Mapping[str, Any] | None:
            return journal.end_of(past, call.session_id, call.call_id, call.mark)

        for call in self.results.begun():
            self.results.settle(call, end_of(call), is_known=journal.removed <= call.mark <= last)
        if lost_calls := self.results.heal(past.claims(after), after, end_of):
            self._noticed.append(
                f"{lost_calls:,} keys and tasks of calls that ran were missing. They do not run again."
            )
        for id, mark in self.sessions.marks():
            if mark <= last and past.was_resumed(id, mark):
                self.sessions.forget(id)
                self._noticed.append(f"The suspended session {id!r} was put back after it was resumed or closed.")

    def _approvals(self, known: KnownApprovals) -> Approvals:
        journal = self.journal
        approvals = Approvals(
            self._directory.database,
            self._directory.key(),
            used=known.used - journal.given_back,
            ended=known.ended,
            given_back=known.given_back | journal.given_back | (journal.waited - known.used),
        )
        if journal.has_gap and (number := approvals.end_answers()):
            _log.warning("the journal has lost which approvals were used: %d of them are withdrawn", number)
        return approvals

    def keep_session(self, session: KeptSession) -> None:
        """Keep a suspended session. Raises UsageError."""
        self.sessions.keep(session, self.journal.head.number)

    def record_ended_approvals(self) -> None:
        """Record the approvals that somebody has withdrawn or revoked. Then an earlier row that is put back into the
        store is not valid."""
        for id, how, (session_id, call_id, tool) in self.approvals.newly_ended():
            data = {"event": how, "tool": tool, "request": id, "answer": how}
            self.journal.write(Record("approval", session_id, call_id, data))

    def close(self) -> None:
        """Record the end, and close everything. It takes at most `CLOSE_S`, whatever the files do."""
        thread = threading.Thread(target=self._close, name="toolcell-close", daemon=True)
        thread.start()
        thread.join(CLOSE_S)
        if thread.is_alive():
            _log.error("%s did not close within %g s: its file system hangs", self._directory.path, CLOSE_S)

    def _close(self) -> None:
        with ExitStack() as last:  # every step runs, the last first, even if another fails
            last.callback(self._directory.close)
            last.callback(self._end)
            last.callback(self.approvals.close)
            with suppress(UsageError):  # the next supervisor finds them
                self.record_ended_approvals()

    def _end(self) -> None:
        opens = self._database.opens
        try:
            self.results.write_late()
            self._database.note(opens + 1, self.journal.head.number)
            self._database.sync()
            opens += 1
        except (sqlite3.Error, OSError):  # a full disk, for example: the next start finds what is kept
            _log.exception("%s does not say up to where it goes", self._directory.database)
        try:
            self._database.close()
        finally:
            self.journal.close(opens)


@contextmanager
def _told(directory: StateDirectory) -> Generator[None]:
    try:
        yield
    except (OSError, sqlite3.Error, BrokenChain) as error:
        raise UsageError(unusable_state(directory.path, DATABASE, error)) from error
