"""The results that outlive their supervisor: of calls with an idempotency key, and of tasks."""

import logging
import os
import sqlite3
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Literal, NamedTuple

from toolcell.wire.forks import FileConnection
from toolcell_tools.encode import in_utf8
from toolcell_tools.errors import CallOutcome, Cancelled
from toolcell_tools.result import ToolResult

__all__ = ["KeptCall", "ResultStore"]

_log = logging.getLogger("toolcell.journal")
KEPT_S: Final = 30 * 86_400.0
"""The time for which a result is kept after its call."""
BUSY_S: Final = 0.25
"""The time to wait for a lock. Only this process writes, and its event loop waits meanwhile."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS calls (
    kind TEXT NOT NULL, session TEXT NOT NULL, id TEXT NOT NULL, asked TEXT NOT NULL, call TEXT NOT NULL,
    at REAL NOT NULL, result TEXT, PRIMARY KEY (kind, session, id)
) STRICT;
CREATE INDEX IF NOT EXISTS by_time ON calls (at);
"""
Kind = Literal["key", "task"]


class KeptCall(NamedTuple):
    """A call that began. `asked` is a digest of its tool and arguments. `result` is None until it ends. `at` is
    the time of the last change, in Unix seconds."""

    kind: Kind
    session_id: str
    id: str
    asked: str
    call_id: str
    result: ToolResult | None
    at: float = 0.0


class ResultStore:
    """The results in one state directory. Only its supervisor writes, on one thread. No write waits for the disk:
    `sync`, which the journal calls, makes the writes durable. Every method may raise sqlite3.Error."""

    def __init__(self, path: Path) -> None:
        self._wal = path.with_name(path.name + "-wal")
        self._synced = -1
        self._changes = 0
        self._database = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=BUSY_S, factory=FileConnection
        )
        with ExitStack() as undo:
            undo.callback(self._database.close)
            path.chmod(0o600)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.executescript(_SCHEMA)
            self._database.execute("DELETE FROM calls WHERE at < ?", (time.time() - KEPT_S,))
            undo.pop_all()

    def close(self) -> None:
        self._database.close()

    def sync(self) -> None:
        """Make the writes so far durable. Any thread may call this. Raises OSError."""
        changes = self._changes
        if changes == self._synced:
            return
        try:
            fd = os.open(self._wal, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # SQLite has moved everything to the database, and has synchronised that
            return
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)
        self._synced = changes

    def find(self, kind: Kind, session_id: str, id: str) -> KeptCall | None:
        """The call of this key, or the task."""
        where = "kind = ? AND session = ? AND id = ?" if kind == "key" else "kind = ? AND id = ?"
        values = (kind, session_id, id) if kind == "key" else (kind, id)
        return next(iter(self._calls(where, *values)), None)

    def begun_or_kept(self, call: KeptCall) -> KeptCall | None:
        """The earlier call of this key that has a result, or is another call. Otherwise keep this one, which begins."""
        earlier = self.find("key", call.session_id, call.id)
        if earlier is not None and (earlier.asked != call.asked or earlier.result is not None):
            return earlier
        self.begin(call)
        return None

    def begin(self, call: KeptCall) -> None:
        """Keep a call that begins, in place of an earlier one with the same key."""
        text = None if call.result is None else call.result.model_dump_json()
        values = (*call[:4], in_utf8(call.call_id), time.time(), text)
        self._database.execute("INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        self._changes += 1

    def finish(self, call: KeptCall, result: ToolResult) -> None:
        """Keep the result of a call."""
        self._database.execute(
            "UPDATE calls SET result = ?, at = ? WHERE kind = ? AND session = ? AND id = ?",
            (result.model_dump_json(), time.time(), *call[:3]),
        )
        self._changes += 1

    def forget(self, call: KeptCall) -> None:
        """Remove a call, so that its key can be used again."""
        self._database.execute("DELETE FROM calls WHERE kind = ? AND session = ? AND id = ?", call[:3])
        self._changes += 1

    def begun(self) -> list[KeptCall]:
        """The calls without a result."""
        return self._calls("result IS NULL")

    def settle(self, call: KeptCall, end: Mapping[str, object] | None, since: float) -> None:
        """Decide what a call means that had no result when the supervisor was killed. `end` is the end of the call in
        the journal. Without one, the call was never sent, unless it began before `since`: the journal may have lost its
        end."""
        outcome: CallOutcome = "outcome unknown" if call.at < since else "not started"
        if end is not None:
            outcome = "outcome unknown" if end.get("error") is None else _outcome(end)
        if call.kind == "key" and outcome != "outcome unknown":
            self.forget(call)  # it did nothing, or it failed: the key can be used again
            return
        if end is not None and end.get("error") is None:
            message = "The call has finished, but its supervisor was killed before its result was kept."
        elif end is None and outcome == "outcome unknown":
            message = "The supervisor was killed before the result was kept, and the journal has lost the call's end."
        elif end is not None and end["error"] != "interrupted":  # the next supervisor's word for a call without an end
            message = f"The call has failed ({end['error']}), but its supervisor was killed before its result was kept."
        else:
            message = f"The supervisor was killed before the call ended. {_SAYS[outcome]}"
        sent = outcome != "not started"
        error = Cancelled(message=message, delivered=sent, effect=outcome == "outcome unknown")
        self.finish(call, ToolResult.build(error=error, call_id=call.call_id, session_id=call.session_id))

    def _calls(self, where: str, *values: object) -> list[KeptCall]:
        rows = self._database.execute(
            f"SELECT kind, session, id, asked, call, result, at FROM calls WHERE {where}", values
        ).fetchall()
        return [
            KeptCall(kind, session, id, asked, call, None if text is None else _read(text, call, session), at)
            for kind, session, id, asked, call, text, at in rows
        ]


_SAYS: Final[Mapping[CallOutcome, str]] = {
    "not started": "The call did not run.",
    "outcome unknown": "The call may have run in part or in whole.",
    "finished": "The call cannot have changed anything that lasts.",
}


def _read(text: str, call_id: str, session_id: str) -> ToolResult:
    """The result that was kept. If it cannot be read, an error says so, because the call must not run again."""
    try:
        return ToolResult.parse(text)
    except ValueError:
        _log.exception("the kept result of the call %s cannot be read", call_id)
        message = "The call was made before, and its result was kept, but cannot be read."
        error = Cancelled(message=message, delivered=True, effect=True)
        return ToolResult.build(error=error, call_id=call_id, session_id=session_id)


def _outcome(end: Mapping[str, object]) -> CallOutcome:
    said = end.get("outcome")
    return "not started" if said == "not started" else "outcome unknown" if said == "outcome unknown" else "finished"
