"""The tasks of MCP clients in a state directory, so that they are found after a restart of the server."""

import sqlite3
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from toolcell.wire.forks import FileConnection

__all__ = ["KeptTask", "TaskStore"]

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS tasks (
    id TEXT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, session TEXT NOT NULL, created TEXT NOT NULL,
    updated TEXT NOT NULL, expires REAL NOT NULL, ttl INTEGER NOT NULL, status TEXT NOT NULL, outcome TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS by_owner ON tasks (owner);
"""
WORKING: Final = "working"


class KeptTask(NamedTuple):
    """A task of the principal `owner`. Its calls were made in `session_id`. `expires_at` is in seconds since the epoch.
    `outcome` is JSON: the members "result" or "error" of the answer to tasks/get."""

    id: str
    owner: str
    session_id: str
    created: str
    updated: str
    expires_at: float
    ttl_ms: int
    status: str
    outcome: str | None


class TaskStore:
    """The tasks of all principals. Any thread may call it. Every method may raise sqlite3.Error."""

    def __init__(self, path: Path) -> None:
        """Raises OSError too."""
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=FileConnection)
        with ExitStack() as undo:
            undo.callback(self._database.close)
            path.chmod(0o600)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")  # tasks are rare and long
            self._database.executescript(_SCHEMA)
            self._database.execute("DELETE FROM tasks WHERE expires < ?", (time.time(),))
            undo.pop_all()

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def keep(self, task: KeptTask) -> None:
        """Keep a task, in place of an earlier state of it. Tasks that have expired are forgotten."""
        with self._lock:
            self._database.execute("DELETE FROM tasks WHERE expires < ? AND status != ?", (time.time(), WORKING))
            self._database.execute("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", task)

    def of(self, owner: str) -> list[KeptTask]:
        """The tasks of a principal, the oldest first."""
        with self._lock:
            rows = self._database.execute("SELECT * FROM tasks WHERE owner = ? ORDER BY created", (owner,)).fetchall()
        return [KeptTask(*row) for row in rows]
