"""What one principal's tasks leave for another run of the server, and what this run finds of an earlier one."""

import json
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple, cast

from mcp_types import INTERNAL_ERROR

from toolcell.backends.threads import in_thread
from toolcell.store.journal.reading import JournalReader

from .kept_tasks import WORKING, KeptTask, TaskStore

__all__ = ["EarlierTask", "TaskKeeper"]

_MEANING: Final = {
    "not started": "its call was not started, so it can be repeated",
    "finished": "its call had begun, but cannot have changed anything that lasts, so it can be repeated",
    "outcome unknown": "its call may have run in part or in whole",
}


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
        expires_at = time.time() + life[0] - time.monotonic()
        kept = KeptTask(id, self._owner, self._session_id, *times, expires_at, life[1], status, text)
        await in_thread(partial(self._store.keep, kept))


def _earlier(store: TaskStore, owner: str, journal: JournalReader) -> tuple[EarlierTask, ...]:
    return tuple(_restored(kept, journal) for kept in store.of(owner))


def _restored(kept: KeptTask, journal: JournalReader) -> EarlierTask:
    left_s = min(kept.expires_at - time.time(), kept.ttl_ms / 1000)
    common = (kept.id, kept.created, kept.updated, time.monotonic() + left_s, kept.ttl_ms)
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
