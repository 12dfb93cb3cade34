"""The suspended sessions that outlive their supervisor. Each row is signed, as approvals are."""

import json
import sqlite3
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolcell.errors import UsageError
from toolcell.store.journal.cures import told
from toolcell.store.state.directory import SESSIONS
from toolcell.store.state.results import BUSY_S
from toolcell.store.state.signing import Signer
from toolcell.wire.forks import FileConnection

__all__ = ["KeptSession", "SessionStore"]

KEPT_S: Final = 30 * 86_400.0
"""The time for which a suspended session is kept."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, parent TEXT NOT NULL, at REAL NOT NULL, data TEXT NOT NULL, signature BLOB NOT NULL
) STRICT;
"""


class KeptSession(NamedTuple):
    """A suspended session: its id, its parent's id or "", and the rest as JSON data."""

    id: str
    parent_id: str
    data: Mapping[str, Any]


class SessionStore:
    """The suspended sessions in one state directory. Only its supervisor writes, on one thread. Each method raises
    UsageError if the file cannot be read or written."""

    def __init__(self, path: Path, key: bytes) -> None:
        """Raises sqlite3.Error or OSError."""
        self._signer = Signer(key)
        self._closed: set[str] = set()  # sessions whose rows are to be removed
        self._database = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=BUSY_S, factory=FileConnection
        )
        with ExitStack() as undo:
            undo.callback(self._database.close)
            path.chmod(0o600)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")  # a suspension is rare, and must not be lost
            self._database.executescript(_SCHEMA)
            self._database.execute("DELETE FROM sessions WHERE at < ?", (time.time() - KEPT_S,))
            undo.pop_all()

    def close(self) -> None:
        self._database.close()

    def keep(self, session: KeptSession) -> None:
        """Keep a session, in place of an earlier row of the same id."""
        text = json.dumps(session.data, sort_keys=True)
        signature = self._signer.of("session", session.id, session.parent_id.encode(), text.encode())
        values = (session.id, session.parent_id, time.time(), text, signature)
        with told(SESSIONS):
            self._database.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?)", values)
        self._closed.discard(session.id)

    def find(self, id: str) -> KeptSession | None:
        """The session of this id, or None. Raises UsageError if its row does not fit its signature."""
        with told(SESSIONS):
            row = self._database.execute("SELECT parent, data, signature FROM sessions WHERE id = ?", (id,)).fetchone()
        if row is None or id in self._closed:
            return None
        parent, text, signature = row
        if not self._signer.fits(signature, "session", id, parent.encode(), text.encode()):
            raise UsageError(f"The suspended session {id!r} does not fit its signature: its row was edited.")
        return KeptSession(id, parent, json.loads(text))

    def ids(self) -> list[str]:
        """The ids of all kept sessions, the oldest first."""
        with told(SESSIONS):
            found = self._database.execute("SELECT id FROM sessions ORDER BY at").fetchall()
        return [id for (id,) in found if id not in self._closed]

    def forget(self, id: str) -> None:
        """Remove a session that was resumed."""
        with told(SESSIONS):
            self._database.execute("DELETE FROM sessions WHERE id = ?", (id,))

    def drop(self, id: str) -> None:
        """Remove a session that was closed, and all below it. If that fails, it is gone for this supervisor, and its
        row is removed at the next close of a session."""
        self._closed.add(id)
        below = (
            "WITH RECURSIVE gone (id) AS (VALUES (?) UNION SELECT s.id FROM sessions s JOIN gone ON s.parent = gone.id)"
        )
        with told(SESSIONS):
            for each in list(self._closed):
                self._database.execute(f"{below} DELETE FROM sessions WHERE id IN gone", (each,))
                self._closed.discard(each)
