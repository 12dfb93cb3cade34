"""The rows of approvals: requests with their answers, and standing approvals.

A request may have megabytes, so no row is read before an index has found it. What an index has is not checked: it finds
rows, and says what they cost.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from toolcell.store.approvals.ended import EndedBy
from toolcell.store.approvals.request import (
    ApprovalEntry,
    ApprovalRequest,
    ApprovalState,
    Approved,
    Denied,
    StandingApproval,
    canonical,
    from_data,
    to_data,
)
from toolcell.store.database import Database, Row
from toolcell.store.schema import REQUESTS, STANDING

_UNUSED: Final = "used_at IS NULL AND withdrawn_at IS NULL AND expires_at > ?"
_UNANSWERED: Final = f"answer IS NULL AND {_UNUSED}"
COST: Final = 32 * 1024
"""Bytes that a request takes besides its text: its row, and the tasks and the objects of the call that waits for it."""
COMPARED_BYTES: Final = 16 * 1024
"""The size of the largest earlier requests that are compared with a new one."""
KEPT_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of requests that are over. The oldest are removed first."""


class ApprovalTable:
    """The rows in one database. One thread at a time uses it. Every method may raise sqlite3.Error."""

    def __init__(self, database: Database, kept_s: float) -> None:
        """A row is kept for `kept_s` seconds after its expiry."""
        self._database = database
        self._kept_s = kept_s
        self._added = KEPT_BYTES  # bytes since the last look for too many; so the first look is at once

    # -- requests ------------------------------------------------------------------------------------------------------

    def add(self, request: ApprovalRequest, text: str) -> ApprovalRequest:
        """Keep a request, of which `text` is the text. Returns the request as it is kept: a copy."""
        size = COST + len(text)
        values = {
            "id": request.id,
            "tool": request.tool,
            "session": request.session_id,
            "call": request.call_id,
            "asks": request.asks,
            "same_call": request.same_call,
            "bytes": size,
            "created_at": request.created_at,
            "expires_at": request.expires_at,
            "used_at": None,
            "withdrawn_at": None,
            "answer": None,
            "request": text,
        }
        self._database.put(REQUESTS, values, self._until(request.expires_at))
        self._added += size
        return from_data(json.loads(text)["request"])

    def _until(self, expires_at: float) -> float:
        """The age of the database at which a row that expires then may be removed."""
        return self._database.age() + max(0.0, expires_at - self._database.now()) + self._kept_s

    def all(self) -> list[ApprovalEntry]:
        """Every request, oldest first."""
        return self._entries("TRUE")

    def unanswered(self) -> list[ApprovalEntry]:
        """The requests that can be answered, oldest first."""
        return self._entries(_UNANSWERED, self._database.now())

    def named(self, id: str) -> list[str]:
        """The ids that begin with `id`, which is not empty."""
        end = id[:-1] + chr(ord(id[-1]) + 1)
        return self._column("SELECT id FROM requests WHERE id >= ? AND id < ?", id, end)

    def unused(self, request: ApprovalRequest) -> list[str]:
        """The ids of the requests of the same call that are not used, withdrawn or expired, oldest first."""
        where = f"session = ? AND same_call = ? AND asks = ? AND {_UNUSED}"
        values = (request.session_id, request.same_call, request.asks, self._database.now())
        return self._column(f"SELECT id FROM requests WHERE {where} ORDER BY created_at", *values)

    def last(self, tool: str, number: int) -> list[ApprovalEntry]:
        """The tool's last requests of at most `COMPARED_BYTES`."""
        where = "rowid IN (SELECT rowid FROM requests WHERE tool = ? AND bytes <= ? ORDER BY created_at DESC LIMIT ?)"
        return self._entries(where, tool, COST + COMPARED_BYTES, number)

    def entry(self, id: str) -> ApprovalEntry | None:
        return next(iter(self._entries("id = ?", id)), None)

    def about(self, id: str) -> tuple[str, str, str]:
        """The session, call and tool of a request, "" if there is none."""
        found = self._database.query("SELECT session, call, tool FROM requests WHERE id = ?", id)
        session, call, tool = found[0] if found else ("", "", "")
        return session, call, tool

    def schema(self, id: str) -> Mapping[str, Any]:
        """The schema of the arguments of a request, whose row was found valid."""
        (text,) = self._column("SELECT request FROM requests WHERE id = ?", id)
        schema: Mapping[str, Any] = json.loads(text)["schema"]
        return schema

    def answer(self, id: str, answer: Approved | Denied, by: str) -> None:
        """Keep the answer to a request that has none."""
        said = (
            {"approved": True, "arguments": answer.arguments, "payload": answer.payload}
            if isinstance(answer, Approved)
            else {"approved": False}
        )
        at = self._database.now()
        text = canonical({**said, "message": getattr(answer, "message", ""), "by": by, "at": at})
        self._change(id, answer=text)

    def mark_used(self, id: str) -> None:
        self._change(id, used_at=self._database.now())

    def mark_unused(self, id: str) -> None:
        self._change(id, used_at=None)

    def mark_withdrawn(self, id: str) -> None:
        self._change(id, withdrawn_at=self._database.now())

    def _change(self, id: str, **values: object) -> None:
        """Change columns of a request. An invalid row stays invalid."""
        (row,) = self._database.rows(REQUESTS, "id = ?", id)
        if row.is_valid:
            self._database.change(REQUESTS, row.values, row.until, **values)
        else:
            sets = ", ".join(f"{name} = ?" for name in values)
            self._database.query(f"UPDATE requests SET {sets} WHERE id = ?", *values.values(), id)

    def pending(self) -> int:
        """The number of requests that can be answered."""
        where = f"requests INDEXED BY requests_open WHERE {_UNANSWERED}"
        return int(self._column(f"SELECT count(*) FROM {where}", self._database.now())[0])

    def questions(self, session: str, tool: str) -> int:
        """The number of confirmations that can be answered, of one tool in one session."""
        where = f"session = ? AND tool = ? AND asks = 'confirmation' AND {_UNANSWERED}"
        query = f"SELECT count(*) FROM requests INDEXED BY requests_open WHERE {where}"
        return int(self._column(query, session, tool, self._database.now())[0])

    def bytes_by_session(self) -> list[tuple[str, int]]:
        """The bytes of each session's requests that are not used, withdrawn or expired."""
        query = f"SELECT session, sum(bytes) FROM requests WHERE {_UNUSED} GROUP BY session"
        return self._database.query(query, self._database.now())

    def ended(self) -> list[tuple[str, EndedBy]]:
        """The ids of the requests that were withdrawn and of the standing approvals that were revoked, by their rows,
        and which of both happened."""
        return self._database.query(
            "SELECT id, 'withdrawn' FROM requests WHERE withdrawn_at IS NOT NULL "
            "UNION ALL SELECT id, 'revoked' FROM standing WHERE revoked_at IS NOT NULL"
        )

    def used(self) -> list[str]:
        """The ids of the requests whose answers were used, by their rows."""
        return self._column("SELECT id FROM requests WHERE used_at IS NOT NULL")

    def prune(self) -> None:
        """Remove rows that expired long ago, and the oldest requests that are over, beyond `KEPT_BYTES`."""
        self._database.prune(REQUESTS, STANDING)
        if self._added < KEPT_BYTES // 8:
            return
        self._added = 0
        over = "used_at IS NOT NULL OR withdrawn_at IS NOT NULL OR expires_at <= ?"
        summed = "SELECT rowid AS row, sum(bytes) OVER (ORDER BY created_at DESC, rowid) AS total FROM requests"
        query = f"DELETE FROM requests WHERE rowid IN (SELECT row FROM ({summed} WHERE {over}) WHERE total > ?)"
        self._database.query(query, self._database.now(), KEPT_BYTES)

    def _column(self, query: str, *values: object) -> list[Any]:
        return [value for (value,) in self._database.query(query, *values)]

    def _entries(self, where: str, *values: object) -> list[ApprovalEntry]:
        rows = self._database.rows(REQUESTS, f"{where} ORDER BY created_at", *values)
        return [self._entry(row) for row in rows]

    def _entry(self, row: Row) -> ApprovalEntry:
        if not row.is_valid:
            return ApprovalEntry(id=str(row["id"]), state="invalid", request=None)
        said: Mapping[str, Any] = {} if row["answer"] is None else json.loads(row["answer"])
        state: ApprovalState = "pending"
        if row["used_at"] is not None:
            state = "used"
        elif row["withdrawn_at"] is not None:
            state = "withdrawn"
        elif row["expires_at"] <= self._database.now():
            state = "expired"
        elif said:
            state = "approved" if said["approved"] else "denied"
        return ApprovalEntry(
            id=row["id"],
            state=state,
            request=from_data(json.loads(row["request"])["request"]),
            approved=bool(said.get("approved")),
            arguments=said.get("arguments"),
            payload=said.get("payload"),
            message=said.get("message", ""),
            answered_by=said.get("by", ""),
            answered_at=said.get("at"),
        )

    # -- standing approvals --------------------------------------------------------------------------------------------

    def add_standing(self, approval: StandingApproval) -> None:
        values = {"id": approval.id, "tool": approval.tool, "expires_at": approval.expires_at, "revoked_at": None}
        self._database.put(
            STANDING, {**values, "approval": canonical(asdict(approval))}, self._until(approval.expires_at)
        )

    def standing(self, tool: str | None = None) -> Iterator[StandingApproval]:
        """The standing approvals that hold now, of every tool or of one. An invalid row is left out."""
        where, values = ("", ()) if tool is None else ("AND tool = ?", (tool,))
        rows: Iterable[Row] = self._database.rows(
            STANDING, f"expires_at > ? AND revoked_at IS NULL {where}", self._database.now(), *values
        )
        for row in rows:
            if row.is_valid:
                said: dict[str, Any] = json.loads(row["approval"])
                ancestors: list[str] = said.pop("ancestors", [])  # an earlier version kept none
                yield StandingApproval(**said, ancestors=tuple(ancestors))

    def revoke_standing(self, id: str) -> None:
        """End a standing approval. Its row stays until it would have expired."""
        (row,) = self._database.rows(STANDING, "id = ?", id)
        self._database.change(STANDING, row.values, row.until, revoked_at=self._database.now())


def text_of(request: ApprovalRequest, schema: Mapping[str, Any]) -> str:
    """The text of a request's row, in ASCII. `schema` is that of the tool's arguments."""
    return canonical({"request": to_data(request), "schema": schema})
