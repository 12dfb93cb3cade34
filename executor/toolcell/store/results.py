"""The results that outlive their supervisor: of calls with an idempotency key, and of tasks.

A call claims its key in the log before it runs, and has a row here. The log is the authority: if the database is lost,
put back from a copy or healed, `heal` finds each claim whose row is missing. A call that ran, or may have run, then has
a row again, whose result says that it was lost. So a key never runs twice unnoticed, whatever became of the database.
"""

import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple

from toolcell.store.database import DAY_S, Database, Row
from toolcell.store.journal.journal import Record
from toolcell.store.schema import CALLS
from toolcell_tools.encode import in_utf8
from toolcell_tools.errors import CallOutcome, Cancelled
from toolcell_tools.result import ToolResult

__all__ = ["KeptCall", "ResultStore", "outcome_of"]

_log = logging.getLogger("toolcell.journal")
KEPT_S: Final = 30 * DAY_S
"""The time for which a result is kept after its call, in seconds of the database's age."""
Kind = Literal["key", "task"]


class KeptCall(NamedTuple):
    """A call that began. `asked` is a digest of its tool and arguments, "" if that is not known any more. `result` is
    None until it ends. `mark` is the number of its claim in the log, 0 before it has one."""

    kind: Kind
    session_id: str
    id: str
    asked: str
    call_id: str
    result: ToolResult | None = None
    mark: int = 0

    def is_of(self, asked: str) -> bool:
        """Whether this may be the call with this digest."""
        return self.asked in ("", asked)


EndOf = Callable[[KeptCall], Mapping[str, Any] | None]


class ResultStore:
    """The results in one state directory. Only its supervisor writes, on one thread. No write waits for the disk: the
    journal makes them durable (`Database.sync`). Every method may raise sqlite3.Error."""

    def __init__(self, database: Database, claim: Callable[[Record], int]) -> None:
        """`claim` writes a record to the log and returns its number. It may raise OSError."""
        self._database = database
        self._claim = claim
        self._late: deque[tuple[KeptCall, str]] = deque()  # results that could not be written yet

    def find(self, kind: Kind, session_id: str, id: str) -> KeptCall | None:
        """The call of this key, or the task."""
        where = "kind = ? AND session = ? AND id = ?" if kind == "key" else "kind = ? AND id = ?"
        values = (kind, session_id, id) if kind == "key" else (kind, id)
        return next(iter(self._calls(where, *values)), None)

    def begin(self, call: KeptCall) -> KeptCall:
        """Claim the key, or the task's id, for this call. Returns the earlier call if it has a result or was a
        different call, otherwise this one with its mark. Raises OSError if the claim cannot be written."""
        is_known = self._database.has(CALLS, *call[:3])
        earlier = self.find(*call[:3]) if is_known else None
        if earlier is not None and (earlier.result is not None or not earlier.is_of(call.asked)):
            return earlier
        begun = call._replace(mark=self._claim(_claim_of(call, asked=call.asked)))
        self._database.put(CALLS, _values(begun), self._database.age() + KEPT_S)
        return begun

    def finish(self, call: KeptCall, result: ToolResult) -> None:
        """Keep the result of a call that has begun. If this raises sqlite3.Error, for example because another process
        holds the database, it is tried again with the next result, and at the end of the supervisor."""
        self._late.append((call, result.model_dump_json()))
        self.write_late()

    def write_late(self) -> None:
        """Write the results that could not be written before."""
        while self._late:
            call, result = self._late.popleft()
            try:
                self._database.change(CALLS, _values(call), self._database.age() + KEPT_S, result=result)
            except sqlite3.OperationalError:
                self._late.appendleft((call, result))
                raise

    def forget(self, call: KeptCall) -> None:
        """Remove a call, so that its key can be used again."""
        with suppress(OSError):  # without this record, the end of the call in the log decides
            self._claim(_claim_of(call, freed=True))
        self._database.remove(CALLS, "kind = ? AND session = ? AND id = ?", *call[:3])

    def begun(self) -> list[KeptCall]:
        """The calls without a result. An edited row is none: it has an error, and does not run again."""
        return [call for call in self._calls("result IS NULL") if call.result is None]

    def settle(self, call: KeptCall, end: Mapping[str, Any] | None, *, is_known: bool) -> None:
        """Decide what a call means that had no result when the supervisor was killed. `end` is the end of the call in
        the log. Without one, the call was never sent, if the log `is_known` from its claim on."""
        outcome = outcome_of(end, is_known=is_known)
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
        self._keep_error(call, message, outcome)

    def heal(self, claims: Iterable[tuple[int, Record]], after: int, end_of: EndOf) -> int:
        """Keep the calls whose rows were lost, of the claims that the log has after the number `after`. `end_of` finds
        the end of a call in the log. Returns how many rows were missing."""
        last = {(str(each.data["of"]), each.session_id, str(each.data["id"])): (mark, each) for mark, each in claims}
        kept = set(self._database.query("SELECT kind, session, id FROM calls WHERE mark > ?", after))
        lost = 0
        for (of, session, id), (mark, claim) in last.items():
            kind: Kind = "key" if of == "key" else "task"
            if claim.data.get("freed") or (kind, session, id) in kept or self.find(kind, session, id) is not None:
                continue
            call = KeptCall(kind, session, id, str(claim.data["asked"]), str(claim.data["call"]), None, mark)
            outcome = outcome_of(end_of(call), is_known=True)
            if outcome == "not started" or (kind == "key" and outcome != "outcome unknown"):
                continue  # it did nothing, or it failed
            message = "The call was made before, but its result was lost: the database was damaged or put back."
            self._keep_error(call, message, outcome)
            lost += 1
        return lost

    def _keep_error(self, call: KeptCall, message: str, outcome: CallOutcome) -> None:
        error = Cancelled(message=message, delivered=outcome != "not started", effect=outcome == "outcome unknown")
        result = ToolResult.build(error=error, call_id=call.call_id, session_id=call.session_id)
        values = {**_values(call), "result": result.model_dump_json()}
        self._database.put(CALLS, values, self._database.age() + KEPT_S)

    def _calls(self, where: str, *values: object) -> list[KeptCall]:
        return [_read(row) for row in self._database.rows(CALLS, where, *values)]


def _values(call: KeptCall) -> dict[str, object]:
    """The row of a call without a result."""
    kind, session, id, asked, called, _result, mark = call
    return {
        "kind": kind,
        "session": session,
        "id": id,
        "asked": asked,
        "call": in_utf8(called),
        "mark": mark,
        "result": None,
    }


def _claim_of(call: KeptCall, **facts: object) -> Record:
    """The record of a claim, or of its end. It is no step of the call, whose records begin with its intent."""
    return Record(
        "claim", call.session_id, data={"of": call.kind, "id": call.id, "call": in_utf8(call.call_id), **facts}
    )


def outcome_of(end: Mapping[str, Any] | None, *, is_known: bool) -> CallOutcome:
    """The outcome of a call with this end in the log. "outcome unknown" if it had a result, which is not there."""
    if end is None:
        return "not started" if is_known else "outcome unknown"
    said = end.get("outcome")
    if end.get("error") is None or said == "outcome unknown":
        return "outcome unknown"
    return "not started" if said == "not started" else "finished"


_SAYS: Final[Mapping[CallOutcome, str]] = {
    "not started": "The call did not run.",
    "outcome unknown": "The call may have run in part or in whole.",
    "finished": "The call cannot have changed anything that lasts.",
}


def _read(row: Row) -> KeptCall:
    """The call that was kept. If its row was edited or damaged, an error says so, because it must not run again."""
    kind, session, id, asked, call, mark, text = row.values.values()
    try:
        if not row.is_valid:
            raise ValueError("its row does not fit its signature")
        return KeptCall(kind, session, id, asked, call, None if text is None else ToolResult.parse(text), mark)
    except ValueError:
        _log.exception("the kept result of the call %s cannot be read", call)
        message = "The call was made before, and its result was kept, but cannot be read."
        error = Cancelled(message=message, delivered=True, effect=True)
        result = ToolResult.build(error=error, call_id=str(call), session_id=str(session))
        return KeptCall("key" if kind == "key" else "task", str(session), str(id), "", str(call), result)
