"""The SQLite tables of approvals. Each row is signed when it is written, and checked when it is read."""

import json
import os
import sqlite3
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from .entry import ApprovalEntry, ApprovalState, StandingApproval
from .request import ApprovalRequest, Approved, Denied, canonical, from_data, to_data
from .signing import Signer

BUSY_S: Final = 10.0
"""The time to wait for another process that writes."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS requests (
    id TEXT PRIMARY KEY, tool TEXT NOT NULL, created_at REAL NOT NULL, expires_at REAL NOT NULL, request TEXT NOT NULL,
    signature BLOB NOT NULL, answer TEXT, answer_signature BLOB, used_at REAL, withdrawn_at REAL
) STRICT;
CREATE INDEX IF NOT EXISTS by_tool ON requests (tool, created_at);
CREATE INDEX IF NOT EXISTS by_expiry ON requests (expires_at);
CREATE TABLE IF NOT EXISTS standing (
    id TEXT PRIMARY KEY, tool TEXT NOT NULL, expires_at REAL NOT NULL, approval TEXT NOT NULL, signature BLOB NOT NULL
) STRICT;
"""
_ANSWERABLE: Final = "answer IS NULL AND withdrawn_at IS NULL AND expires_at > ?"


class ApprovalTable:
    """The rows of one database, or of one in memory. One thread at a time uses it."""

    def __init__(self, path: Path | None, signer: Signer) -> None:
        """Open or make the database. Raises sqlite3.Error or OSError."""
        self._signer = signer
        self._database = sqlite3.connect(
            ":memory:" if path is None else path, isolation_level=None, check_same_thread=False, timeout=BUSY_S
        )
        if path is not None:
            os.chmod(path, 0o600)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")  # an answer is rare, and must not be lost
        self._database.executescript(_SCHEMA)

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Write all or nothing, and keep other processes from writing meanwhile."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def version(self) -> int:
        """A number that changes when another process has changed the database."""
        (version,) = self._database.execute("PRAGMA data_version").fetchone()
        return int(version)

    # -- requests ------------------------------------------------------------------------------------------------------

    def add(self, request: ApprovalRequest, schema: Mapping[str, Any]) -> ApprovalRequest:
        """Keep a request. `schema` is that of the tool's arguments. Returns the request as it is kept: a copy."""
        text = canonical({"request": to_data(request), "schema": schema})
        self._database.execute(
            "INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, NULL, NULL)",
            (
                *(request.id, request.tool, request.created_at, request.expires_at, text),
                self._signer.of("request", request.id, text.encode()),
            ),
        )
        return from_data(json.loads(text)["request"])

    def all(self) -> list[ApprovalEntry]:
        """Every request, oldest first."""
        return self._entries("")

    def named(self, id: str) -> list[ApprovalEntry]:
        """The requests whose ids begin with `id`."""
        return self._entries("substr(id, 1, length(?)) = ?", id, id)

    def unused(self, tool: str) -> list[ApprovalEntry]:
        """The tool's requests that are not used, withdrawn or expired."""
        where = "tool = ? AND used_at IS NULL AND withdrawn_at IS NULL AND expires_at > ?"
        return self._entries(where, tool, time.time())

    def last(self, tool: str, number: int) -> list[ApprovalEntry]:
        """The tool's last requests."""
        where = "rowid IN (SELECT rowid FROM requests WHERE tool = ? ORDER BY created_at DESC LIMIT ?)"
        return self._entries(where, tool, number)

    def entry(self, id: str) -> ApprovalEntry | None:
        return next(iter(self._entries("id = ?", id)), None)

    def schema(self, id: str) -> Mapping[str, Any]:
        """The schema of the arguments of a request, whose row was found valid."""
        (text,) = self._database.execute("SELECT request FROM requests WHERE id = ?", (id,)).fetchone()
        schema: Mapping[str, Any] = json.loads(text)["schema"]
        return schema

    def answer(self, id: str, answer: Approved | Denied, by: str) -> None:
        """Keep the answer to a request that has none."""
        said = (
            {"approved": True, "arguments": answer.arguments, "payload": answer.payload}
            if isinstance(answer, Approved)
            else {"approved": False}
        )
        text = canonical({**said, "message": getattr(answer, "message", ""), "by": by, "at": time.time()})
        (signature,) = self._database.execute("SELECT signature FROM requests WHERE id = ?", (id,)).fetchone()
        self._database.execute(
            "UPDATE requests SET answer = ?, answer_signature = ? WHERE id = ?",
            (text, self._signer.of("answer", id, signature, text.encode()), id),
        )

    def mark_used(self, id: str) -> None:
        self._database.execute("UPDATE requests SET used_at = ? WHERE id = ?", (time.time(), id))

    def mark_withdrawn(self, id: str) -> None:
        self._database.execute("UPDATE requests SET withdrawn_at = ? WHERE id = ?", (time.time(), id))

    def pending(self) -> int:
        """The number of requests that can be answered."""
        query = f"SELECT count(*) FROM requests WHERE {_ANSWERABLE}"
        (number,) = self._database.execute(query, (time.time(),)).fetchone()
        return int(number)

    def prune(self, kept_s: float) -> None:
        """Remove what expired more than `kept_s` seconds ago."""
        for table in ("requests", "standing"):
            self._database.execute(f"DELETE FROM {table} WHERE expires_at < ?", (time.time() - kept_s,))

    def _entries(self, where: str, *values: object) -> list[ApprovalEntry]:
        query = (
            "SELECT id, tool, expires_at, request, signature, answer, answer_signature, used_at, withdrawn_at "
            f"FROM requests {f'WHERE {where}' if where else ''} ORDER BY created_at"
        )
        return [self._read(*row) for row in self._database.execute(query, values)]

    def _read(
        self,
        id: str,
        tool: str,
        expires_at: float,
        text: str,
        signature: bytes,
        answered: str | None,
        answer_signature: bytes | None,
        used_at: float | None,
        withdrawn_at: float | None,
    ) -> ApprovalEntry:
        invalid = ApprovalEntry(id=id, state="invalid", request=None)
        if not self._signer.fits(signature, "request", id, text.encode()):
            return invalid
        request = from_data(json.loads(text)["request"])
        if (request.id, request.tool, request.expires_at) != (id, tool, expires_at):
            return invalid
        said: Mapping[str, Any] = {}
        if answered is not None:
            if not self._signer.fits(answer_signature, "answer", id, signature, answered.encode()):
                return invalid
            said = json.loads(answered)
        state: ApprovalState = "pending"
        if used_at is not None:
            state = "used"
        elif withdrawn_at is not None:
            state = "withdrawn"
        elif expires_at <= time.time():
            state = "expired"
        elif said:
            state = "approved" if said["approved"] else "denied"
        return ApprovalEntry(
            id=id,
            state=state,
            request=request,
            approved=bool(said.get("approved")),
            arguments=said.get("arguments"),
            payload=said.get("payload"),
            message=said.get("message", ""),
            answered_by=said.get("by", ""),
            answered_at=said.get("at"),
        )

    # -- standing approvals --------------------------------------------------------------------------------------------

    def add_standing(self, approval: StandingApproval) -> None:
        text = canonical(asdict(approval))
        self._database.execute(
            "INSERT INTO standing VALUES (?, ?, ?, ?, ?)",
            (
                *(approval.id, approval.tool, approval.expires_at, text),
                self._signer.of("standing", approval.id, text.encode()),
            ),
        )

    def standing(self, tool: str | None = None) -> Iterator[StandingApproval]:
        """The standing approvals that hold now, of every tool or of one. An invalid row is left out."""
        where, values = ("", ()) if tool is None else ("AND tool = ?", (tool,))
        rows: Iterable[tuple[str, str, bytes]] = self._database.execute(
            f"SELECT id, approval, signature FROM standing WHERE expires_at > ? {where}", (time.time(), *values)
        ).fetchall()
        for id, text, signature in rows:
            if self._signer.fits(signature, "standing", id, text.encode()):
                approval = StandingApproval(**json.loads(text))
                if approval.id == id and approval.expires_at > time.time():
                    yield approval

    def remove_standing(self, id: str) -> None:
        self._database.execute("DELETE FROM standing WHERE id = ?", (id,))
