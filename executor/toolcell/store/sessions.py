"""The suspended sessions that outlive their supervisor."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolcell.errors import UsageError
from toolcell.store.cures import told
from toolcell.store.database import DAY_S, Database
from toolcell.store.directory import DATABASE
from toolcell.store.schema import SESSIONS

__all__ = ["KeptSession", "SessionStore"]

KEPT_S: Final = 30 * DAY_S
"""The time for which a suspended session is kept, in seconds of the database's age."""


class KeptSession(NamedTuple):
    """A suspended session: its id, its parent's id or "", and the rest as JSON data."""

    id: str
    parent_id: str
    data: Mapping[str, Any]


class SessionStore:
    """The suspended sessions in one state directory. Only its supervisor writes, on one thread. Each method raises
    UsageError if the file cannot be read or written."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._closed: set[str] = set()  # sessions whose rows are to be removed

    def keep(self, session: KeptSession, mark: int) -> None:
        """Keep a session, in place of an earlier row of the same id. `mark` is the number of the log's last entry."""
        text = json.dumps(session.data, sort_keys=True)
        values = {"id": session.id, "parent": session.parent_id, "mark": mark, "data": text}
        with told(DATABASE):
            self._database.put(SESSIONS, values, self._database.age() + KEPT_S)
            self._database.sync()  # a suspension is rare, and must not be lost
        self._closed.discard(session.id)

    def find(self, id: str) -> KeptSession | None:
        """The session of this id, or None. Raises UsageError if its row does not fit its signature."""
        with told(DATABASE):
            rows = self._database.rows(SESSIONS, "id = ?", id)
        if not rows or id in self._closed:
            return None
        if not rows[0].is_valid:
            raise UsageError(
                f"The suspended session {id!r} does not fit its signature: its row in {DATABASE} was edited or "
                "damaged. Open a new session."
            )
        return KeptSession(id, rows[0]["parent"], json.loads(rows[0]["data"]))

    def ids(self) -> list[str]:
        """The ids of all kept sessions, the oldest first."""
        with told(DATABASE):
            found = self._database.query("SELECT id FROM sessions ORDER BY rowid")
        return [id for (id,) in found if id not in self._closed]

    def marks(self) -> list[tuple[str, int]]:
        """The ids of the kept sessions whose rows are valid, with their marks."""
        return [(row["id"], row["mark"]) for row in self._database.rows(SESSIONS) if row.is_valid]

    def forget(self, id: str) -> None:
        """Remove a session that was resumed."""
        with told(DATABASE):
            self._database.remove(SESSIONS, "id = ?", id)
            self._database.sync()

    def drop(self, id: str) -> None:
        """Remove a session that was closed, and all below it. If that fails, it is gone for this supervisor, and its
        row is removed at the next close of a session."""
        self._closed.add(id)
        below = (
            "WITH RECURSIVE gone (id) AS (VALUES (?) UNION SELECT s.id FROM sessions s JOIN gone ON s.parent = gone.id)"
        )
        with told(DATABASE):
            for each in list(self._closed):
                self._database.query(f"{below} DELETE FROM sessions WHERE id IN gone", each)
                self._closed.discard(each)
