"""The SQLite tables of approvals. Each row is signed when it is written, and checked when it is read.

A request may have megabytes, so no row is read before an index has found it. What an index has is not signed: it finds
rows, and says what they cost.
"""

import json
import logging
import os
import sqlite3
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from toolcell.store.approvals.ended import EndedBy
from toolcell.store.approvals.entry import ApprovalEntry, ApprovalState, StandingApproval
from toolcell.store.approvals.request import ApprovalRequest, Approved, Denied, canonical, from_data, to_data
from toolcell.store.state.signing import Signer
from toolcell.wire.forks import FileConnection

_log = logging.getLogger("toolcell.approval")
BUSY_S: Final = 10.0
"""The time to wait for another process that writes."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS requests (
    id TEXT PRIMARY KEY, tool TEXT NOT NULL, session TEXT NOT NULL, call TEXT NOT NULL, asks TEXT NOT NULL,
    same_call TEXT NOT NULL, bytes INTEGER NOT NULL, created_at REAL NOT NULL, expires_at REAL NOT NULL,
    signature BLOB NOT NULL, answer_signature BLOB, used_at REAL, withdrawn_at REAL, state_signature BLOB,
    answer TEXT, request TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS by_tool ON requests (tool, created_at, bytes);
CREATE INDEX IF NOT EXISTS by_expiry ON requests (expires_at);
CREATE INDEX IF NOT EXISTS open ON requests
    (session, same_call, asks, created_at, id, tool, bytes, expires_at, used_at, withdrawn_at)
    WHERE used_at IS NULL AND withdrawn_at IS NULL;
CREATE TABLE IF NOT EXISTS standing (
    id TEXT PRIMARY KEY, tool TEXT NOT NULL, expires_at REAL NOT NULL, approval TEXT NOT NULL, signature BLOB NOT NULL,
    revoked_at REAL, state_signature BLOB
) STRICT;
CREATE TABLE IF NOT EXISTS clock (
    one INTEGER PRIMARY KEY CHECK (one = 1), latest REAL NOT NULL, signature BLOB NOT NULL
) STRICT;
"""
REQUEST, ANSWER, STATE, STANDING, REVOCATION, CLOCK = (
    "request.2", "answer.2", "state.2", "standing.2", "revocation.2", "clock.2",
)  # fmt: skip
"""The kinds of signatures. They name the version of the state directory, so that no row of an earlier version, which
signed less, can be put in."""
_UNUSED: Final = "used_at IS NULL AND withdrawn_at IS NULL AND expires_at > ?"
_UNANSWERED: Final = f"answer IS NULL AND {_UNUSED}"
COST: Final = 32 * 1024
"""Bytes that a request takes besides its text: its row, and the tasks and the objects of the call that waits for it."""
COMPARED_BYTES: Final = 16 * 1024
"""The size of the largest earlier requests that are compared with a new one."""
KEPT_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of requests that are over. The oldest are removed first."""


class ApprovalTable:
    """The rows of one database, or of one in memory. One thread at a time uses it."""

    def __init__(self, path: Path | None, signer: Signer) -> None:
        """Open or make the database. Raises sqlite3.Error or OSError."""
        self._signer = signer
        where, kind = (":memory:", sqlite3.Connection) if path is None else (path, FileConnection)
        self._database = sqlite3.connect(
            where, isolation_level=None, check_same_thread=False, timeout=BUSY_S, factory=kind
        )
        with ExitStack() as undo:
            undo.callback(self._database.close)
            if path is not None:
                os.chmod(path, 0o600)
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute("PRAGMA synchronous = FULL")  # an answer is rare, and must not be lost
            self._database.executescript(_SCHEMA)
            self._added = KEPT_BYTES  # bytes since the last look for too many; so the first look is at once
            self._seen = self._latest(), time.monotonic()
            undo.pop_all()

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Write all or nothing, and keep other processes from writing meanwhile."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._keep_time()
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:  # a full disk has ended it
                self._database.execute("ROLLBACK")
            raise

    def version(self) -> int:
        """A number that changes when another process has changed the database."""
        (version,) = self._database.execute("PRAGMA data_version").fetchone()
        return int(version)

    # -- time ----------------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """The time in Unix seconds. It never goes back, also after a restart, so nothing that has expired is valid
        again if somebody sets the clock back. Any thread may call it."""
        seen, at = self._seen
        monotonic = time.monotonic()
        found = max(time.time(), seen + monotonic - at)
        self._seen = found, monotonic
        return found

    def _latest(self) -> float:
        """The latest time that a transaction has kept, 0 if there is none."""
        row = self._database.execute("SELECT latest, signature FROM clock").fetchone()
        if row is None:
            return 0.0
        if self._signer.fits(row[1], CLOCK, "", repr(row[0]).encode()):
            return float(row[0])
        _log.warning("the latest time that the store of approvals has kept was edited; the system's clock is used")
        return 0.0

    def _keep_time(self) -> None:
        now = max(self.now(), self._latest())
        values = (now, self._signer.of(CLOCK, "", repr(now).encode()))
        self._database.execute("INSERT OR REPLACE INTO clock VALUES (1, ?, ?)", values)

    # -- requests ------------------------------------------------------------------------------------------------------

    def add(self, request: ApprovalRequest, text: str) -> ApprovalRequest:
        """Keep a request, of which `text` is the text. Returns the request as it is kept: a copy."""
        size = COST + len(text)
        self._database.execute(
            "INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL, NULL, NULL, ?)",
            (
                *(request.id, request.tool, request.session_id, request.call_id, request.asks, request.same_call, size),
                *(request.created_at, request.expires_at, self._signer.of(REQUEST, request.id, text.encode()), text),
            ),
        )
        self._sign_state(request.id)
        self._added += size
        return from_data(json.loads(text)["request"])

    def all(self) -> list[ApprovalEntry]:
        """Every request, oldest first."""
        return self._entries("")

    def unanswered(self) -> list[ApprovalEntry]:
        """The requests that can be answered, oldest first."""
        return self._entries(_UNANSWERED, self.now())

    def named(self, id: str) -> list[str]:
        """The ids that begin with `id`, which is not empty."""
        end = id[:-1] + chr(ord(id[-1]) + 1)
        return self._column("SELECT id FROM requests WHERE id >= ? AND id < ?", id, end)

    def unused(self, request: ApprovalRequest) -> list[str]:
        """The ids of the requests of the same call that are not used, withdrawn or expired, oldest first."""
        where = f"session = ? AND same_call = ? AND asks = ? AND {_UNUSED}"
        values = (request.session_id, request.same_call, request.asks, self.now())
        return self._column(f"SELECT id FROM requests WHERE {where} ORDER BY created_at", *values)

    def last(self, tool: str, number: int) -> list[ApprovalEntry]:
        """The tool's last requests of at most `COMPARED_BYTES`."""
        where = "rowid IN (SELECT rowid FROM requests WHERE tool = ? AND bytes <= ? ORDER BY created_at DESC LIMIT ?)"
        return self._entries(where, tool, COST + COMPARED_BYTES, number)

    def entry(self, id: str) -> ApprovalEntry | None:
        return next(iter(self._entries("id = ?", id)), None)

    def about(self, id: str) -> tuple[str, str, str]:
        """The session, call and tool of a request, "" if there is none."""
        query = "SELECT session, call, tool FROM requests WHERE id = ?"
        session, call, tool = self._database.execute(query, (id,)).fetchone() or ("", "", "")
        return session, call, tool

    def _column(self, query: str, *values: object) -> list[Any]:
        return [value for (value,) in self._database.execute(query, values)]

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
        text = canonical({**said, "message": getattr(answer, "message", ""), "by": by, "at": self.now()})
        (signature,) = self._database.execute("SELECT signature FROM requests WHERE id = ?", (id,)).fetchone()
        self._database.execute(
            "UPDATE requests SET answer = ?, answer_signature = ? WHERE id = ?",
            (text, self._signer.of(ANSWER, id, signature, text.encode()), id),
        )
        self._sign_state(id)

    def mark_used(self, id: str) -> None:
        self._database.execute("UPDATE requests SET used_at = ? WHERE id = ?", (self.now(), id))
        self._sign_state(id)

    def mark_withdrawn(self, id: str) -> None:
        self._database.execute("UPDATE requests SET withdrawn_at = ? WHERE id = ?", (self.now(), id))
        self._sign_state(id)

    def _sign_state(self, id: str) -> None:
        row = self._database.execute(f"SELECT {_OF_STATE} FROM requests WHERE id = ?", (id,)).fetchone()
        signature = self._signer.of(STATE, id, *_state_texts(*row))
        self._database.execute("UPDATE requests SET state_signature = ? WHERE id = ?", (signature, id))

    def pending(self) -> int:
        """The number of requests that can be answered."""
        (number,) = self._column(f"SELECT count(*) FROM requests INDEXED BY open WHERE {_UNANSWERED}", self.now())
        return int(number)

    def questions(self, session: str, tool: str) -> int:
        """The number of confirmations that can be answered, of one tool in one session."""
        where = f"session = ? AND tool = ? AND asks = 'confirmation' AND {_UNANSWERED}"
        (number,) = self._column(
            f"SELECT count(*) FROM requests INDEXED BY open WHERE {where}", session, tool, self.now()
        )
        return int(number)

    def bytes_by_session(self) -> list[tuple[str, int]]:
        """The bytes of each session's requests that are not used, withdrawn or expired."""
        query = f"SELECT session, sum(bytes) FROM requests WHERE {_UNUSED} GROUP BY session"
        return self._database.execute(query, (self.now(),)).fetchall()

    def ended(self) -> list[tuple[str, EndedBy]]:
        """The ids of the requests that were withdrawn and of the standing approvals that were revoked, by their rows,
        and which of both happened."""
        query = (
            "SELECT id, 'withdrawn' FROM requests WHERE withdrawn_at IS NOT NULL "
            "UNION ALL SELECT id, 'revoked' FROM standing WHERE revoked_at IS NOT NULL"
        )
        return self._database.execute(query).fetchall()

    def prune(self, kept_s: float) -> None:
        """Remove rows that expired more than `kept_s` seconds ago, and the oldest requests that are over, beyond
        `KEPT_BYTES`."""
        now = self.now()
        for table in ("requests", "standing"):
            self._database.execute(f"DELETE FROM {table} WHERE expires_at < ?", (now - kept_s,))
        if self._added < KEPT_BYTES // 8:
            return
        self._added = 0
        over = "used_at IS NOT NULL OR withdrawn_at IS NOT NULL OR expires_at <= ?"
        summed = "SELECT rowid AS row, sum(bytes) OVER (ORDER BY created_at DESC, rowid) AS total FROM requests"
        query = f"DELETE FROM requests WHERE rowid IN (SELECT row FROM ({summed} WHERE {over}) WHERE total > ?)"
        self._database.execute(query, (now, KEPT_BYTES))

    def _entries(self, where: str, *values: object) -> list[ApprovalEntry]:
        query = (
            "SELECT id, tool, expires_at, request, signature, answer, answer_signature, used_at, withdrawn_at, "
            f"state_signature FROM requests {f'WHERE {where}' if where else ''} ORDER BY created_at"
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
        state_signature: bytes | None,
    ) -> ApprovalEntry:
        invalid = ApprovalEntry(id=id, state="invalid", request=None)
        state_texts = _state_texts(signature, answer_signature, used_at, withdrawn_at)
        if not self._signer.fits(state_signature, STATE, id, *state_texts):
            return invalid
        if not self._signer.fits(signature, REQUEST, id, text.encode()):
            return invalid
        request = from_data(json.loads(text)["request"])
        if (request.id, request.tool, request.expires_at) != (id, tool, expires_at):
            return invalid
        said: Mapping[str, Any] = {}
        if answered is not None:
            if not self._signer.fits(answer_signature, ANSWER, id, signature, answered.encode()):
                return invalid
            said = json.loads(answered)
        state: ApprovalState = "pending"
        if used_at is not None:
            state = "used"
        elif withdrawn_at is not None:
            state = "withdrawn"
        elif expires_at <= self.now():
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
        signature = self._signer.of(STANDING, approval.id, text.encode())
        self._database.execute(
            "INSERT INTO standing VALUES (?, ?, ?, ?, ?, NULL, ?)",
            (
                *(approval.id, approval.tool, approval.expires_at, text, signature),
                self._signer.of(REVOCATION, approval.id, signature, repr(None).encode()),
            ),
        )

    def standing(self, tool: str | None = None) -> Iterator[StandingApproval]:
        """The standing approvals that hold now, of every tool or of one. An invalid row is left out."""
        where, values = ("", ()) if tool is None else ("AND tool = ?", (tool,))
        rows: Iterable[tuple[str, str, bytes, float | None, bytes]] = self._database.execute(
            "SELECT id, approval, signature, revoked_at, state_signature FROM standing "
            f"WHERE expires_at > ? AND revoked_at IS NULL {where}",
            (self.now(), *values),
        ).fetchall()
        for id, text, signature, revoked_at, state_signature in rows:
            is_valid = self._signer.fits(signature, STANDING, id, text.encode())
            if is_valid and self._signer.fits(state_signature, REVOCATION, id, signature, repr(revoked_at).encode()):
                said: dict[str, Any] = json.loads(text)
                ancestors: list[str] = said.pop("ancestors", [])  # an earlier version kept none
                approval = StandingApproval(**said, ancestors=tuple(ancestors))
                if approval.id == id and approval.expires_at > self.now():
                    yield approval

    def revoke_standing(self, id: str) -> None:
        """End a standing approval. Its row stays until it would have expired."""
        (signature,) = self._database.execute("SELECT signature FROM standing WHERE id = ?", (id,)).fetchone()
        now = self.now()
        self._database.execute(
            "UPDATE standing SET revoked_at = ?, state_signature = ? WHERE id = ?",
            (now, self._signer.of(REVOCATION, id, signature, repr(now).encode()), id),
        )


def text_of(request: ApprovalRequest, schema: Mapping[str, Any]) -> str:
    """The text of a request's row, in ASCII. `schema` is that of the tool's arguments."""
    return canonical({"request": to_data(request), "schema": schema})


_OF_STATE: Final = "signature, answer_signature, used_at, withdrawn_at"


def _state_texts(
    signature: object, answer_signature: bytes | None, used_at: float | None, withdrawn_at: float | None
) -> tuple[bytes, bytes, bytes, bytes]:
    """The parts of a request's state that are signed."""
    own = signature if isinstance(signature, bytes) else b""
    return own, answer_signature or b"", repr(used_at).encode(), repr(withdrawn_at).encode()
