"""The tasks of MCP clients in a state directory: what one run of the server leaves for the next.

A task is kept when it begins and when it ends. What became of a task whose server was killed, the journal says. The
tasks are a table of the state directory's database, with a connection of their own, because threads use it.
"""

import json
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from mcp_types import INTERNAL_ERROR

from toolcell.backends.threads import in_thread
from toolcell.store.database import Database, Row
from toolcell.store.journal.reading import JournalReader
from toolcell.store.schema import STATE, TASKS

__all__ = ["EarlierTask", "TaskKeeper", "TaskStore"]

WORKING: Final = "working"
_MEANING: Final = {
    "not started": "its call was not started, so it can be repeated",
    "finished": "its call had begun, but cannot have changed anything that lasts, so it can be repeated",
    "outcome unknown": "its call may have run in part or in whole",
}


class KeptTask(NamedTuple):
    """A task of the principal `owner`. Its calls were made in `session_id`. `left_s` is how long it is kept from now
    on. `outcome` is JSON: the members "result" or "error" of the answer to tasks/get."""

    id: str
    owner: str
    session_id: str
    created: str
    updated: str
    ttl_ms: int
    status: str
    outcome: str | None
    left_s: float
    is_valid: bool = True


class TaskStore:
    """The tasks of all principals. Any thread may call it. Every method may raise sqlite3.Error."""

    def __init__(self, path: Path, key: bytes) -> None:
        """Raises OSError too."""
        self._lock = threading.Lock()
        self._database = Database(path, key, STATE)

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def keep(self, task: KeptTask) -> None:
        """Keep a task, in place of an earlier state of it. Tasks that have expired are forgotten."""
        values = dict(zip(TASKS.columns, task[:8], strict=True))
        with self._lock, self._database.transaction():
            self._database.prune(TASKS)
            self._database.put(TASKS, values, self._database.age() + task.left_s)

    def of(self, owner: str) -> list[KeptTask]:
        """The tasks of a principal, the oldest first."""
        with self._lock:
            age = self._database.age()
            rows = self._database.rows(TASKS, "owner = ? ORDER BY created", owner)
        return [_kept(row, row.until - age) for row in rows]


def _kept(row: Row, left_s: float) -> KeptTask:
    id, owner, session, created, updated, ttl, status, outcome = row.values.values()
    if not row.is_valid:
        return KeptTask(str(id), owner, "", str(created), str(updated), int(left_s * 1000), "", None, left_s, False)
    return KeptTask(id, owner, session, created, updated, ttl, status, outcome, left_s)


class EarlierTask(NamedTuple):
    """A task of an earlier run. `expires_at` is in seconds of the monotonic clock."""

    id: str
    created: str
    updated: str
    expires_at: float
    ttl_ms: int
    status: str
    result: dict[str, Any] | None
    error: dict[str, Any] | None


class TaskKeeper:
    """Keeps the tasks of one principal. Without a store, it keeps nothing. `earlier` are those of earlier runs."""

    def __init__(self, owner: str, session_id: str, store: TaskStore | None, earlier: tuple[EarlierTask, ...]) -> None:
        self.earlier = earlier
        self._owner = owner
        self._session_id = session_id
        self._store = store

    @classmethod
    async def of(
        cls, owner: str, session_id: str, store: TaskStore | None, journal: JournalReader | None
    ) -> "TaskKeeper":
        """The keeper of the principal `owner`. `journal` says what became of interrupted calls. Raises sqlite3.Error
        and BrokenChain."""
        if store is None or journal is None:
            return cls(owner, session_id, None, ())
        return cls(owner, session_id, store, await in_thread(partial(_earlier, store, owner, journal)))

    def call_id(self, task: str, number: int) -> str:
        """The id of a task's call in the journal. `number` counts its calls from 0."""
        return _call_id(self._session_id, task, number)

    async def keep(
        self,
        id: str,
        times: tuple[str, str],
        life: tuple[float, int],
        status: str,
        outcome: Mapping[str, Any] | None,
    ) -> None:
        """Keep a task's state on the disk. `times` are those of its creation and its last change; `life` is when it
        expires, by the monotonic clock, and its time to live in ms. Raises sqlite3.Error."""
        if self._store is None:
            return
        text = None if outcome is None else json.dumps(outcome)
        left_s = life[0] - time.monotonic()
        kept = KeptTask(id, self._owner, self._session_id, *times, life[1], status, text, left_s)
        await in_thread(partial(self._store.keep, kept))


def _earlier(store: TaskStore, owner: str, journal: JournalReader) -> tuple[EarlierTask, ...]:
    return tuple(_restored(kept, journal) for kept in store.of(owner))


def _restored(kept: KeptTask, journal: JournalReader) -> EarlierTask:
    left_s = min(kept.left_s, kept.ttl_ms / 1000)
    common = (kept.id, kept.created, kept.updated, time.monotonic() + left_s, kept.ttl_ms)
    if not kept.is_valid:
        message = "The task was kept, but cannot be read: its row was edited or damaged. Its call may have run."
        return EarlierTask(*common, "failed", None, {"code": INTERNAL_ERROR, "message": message})
    if kept.status == WORKING:
        return EarlierTask(*common, "failed", None, _interruption(kept, journal))
    outcome = {} if kept.outcome is None else cast("dict[str, Any]", json.loads(kept.outcome))
    return EarlierTask(*common, kept.status, outcome.get("result"), outcome.get("error"))


def _interruption(kept: KeptTask, journal: JournalReader) -> dict[str, Any]:
    """The error of a task that was interrupted. The end of its last call in the journal says what may have happened."""
    calls = _call_id(kept.session_id, kept.id, None)
    ends = journal.records(
        "kind = 'call' AND session = ? AND substr(call, 1, ?) = ?",
        (kept.session_id, len(calls), calls),
        wanted=lambda record: record.kind == "call" and record.call_id.startswith(calls),
        last=1,
    )
    end: Mapping[str, Any] = ends[-1][1].data if ends else {}
    was_cut = end.get("error") == "interrupted"  # otherwise the call ended, and its task did not
    said = end.get("outcome") if was_cut else None
    outcome = str(said) if said in _MEANING else "outcome unknown"
    message = f"The server was restarted before the task ended: {_MEANING[outcome]}."
    data = {"kind": "interrupted", "outcome": outcome, "retryable": outcome != "outcome unknown"}
    return {"code": INTERNAL_ERROR, "message": message, "data": data}


def _call_id(session_id: str, task: str, number: int | None) -> str:
    return f"{session_id}-task-{task}-{'' if number is None else number + 1}"
