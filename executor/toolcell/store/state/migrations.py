"""The steps from each version of a state directory to the next one. A step may be killed and begun again.

A step writes what its version was, in words of its own: the modules that use the files know the present version only.
"""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path

from toolcell.store.state.signing import Signer

Step = Callable[[Path, Callable[[], bytes]], None]
"""Takes the directory and a function that gives its key."""


def _begin(path: Path, key: Callable[[], bytes]) -> None:
    """From nothing to version 1: the files are made at their first use."""


def _to_signed_states(path: Path, key: Callable[[], bytes]) -> None:
    """From version 1 to 2: the states of approvals ("used", "withdrawn", "revoked") are signed, too. Rows that were
    edited stay invalid. The index of the journal is made again from the log, as it has a version of its own."""
    if (path / "approvals.sqlite").exists():
        with closing(sqlite3.connect(path / "approvals.sqlite", isolation_level=None)) as database:
            _sign_states(database, Signer(key()))


def _sign_states(database: sqlite3.Connection, signer: Signer) -> None:
    """Sign the states in tables of version 1. Does nothing to later tables."""
    columns = [name for _number, name, *_rest in database.execute("PRAGMA table_info(requests)")]
    if not columns or "state_signature" in columns:
        return
    database.execute("BEGIN IMMEDIATE")
    try:
        database.execute("ALTER TABLE requests ADD COLUMN state_signature BLOB")
        database.execute("ALTER TABLE standing ADD COLUMN revoked_at REAL")
        database.execute("ALTER TABLE standing ADD COLUMN state_signature BLOB")
        rows = database.execute(
            "SELECT id, request, signature, answer, answer_signature, used_at, withdrawn_at FROM requests"
        ).fetchall()
        for row in rows:
            _sign_request(database, signer, *row)
        for id, text, signature in database.execute("SELECT id, approval, signature FROM standing").fetchall():
            if signer.fits(signature, "standing", id, text.encode()):
                new = signer.of("standing.2", id, text.encode())
                state = signer.of("revocation.2", id, new, repr(None).encode())
                database.execute(
                    "UPDATE standing SET signature = ?, state_signature = ? WHERE id = ?", (new, state, id)
                )
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _sign_request(
    database: sqlite3.Connection,
    signer: Signer,
    id: str,
    text: str,
    signature: bytes,
    answered: str | None,
    answer_signature: bytes | None,
    used_at: float | None,
    withdrawn_at: float | None,
) -> None:
    """Sign one request again, its answer and its state, unless a signature of version 1 does not fit."""
    if not signer.fits(signature, "request", id, text.encode()):
        return
    new, new_answer = signer.of("request.2", id, text.encode()), None
    if answered is not None:
        if not signer.fits(answer_signature, "answer", id, signature, answered.encode()):
            return
        new_answer = signer.of("answer.2", id, new, answered.encode())
    state = signer.of("state.2", id, new, new_answer or b"", repr(used_at).encode(), repr(withdrawn_at).encode())
    database.execute(
        "UPDATE requests SET signature = ?, answer_signature = ?, state_signature = ? WHERE id = ?",
        (new, new_answer, state, id),
    )


def _to_lines(path: Path, key: Callable[[], bytes]) -> None:
    """From version 2 to 3: approvals, sessions and memory belong to a line of agents. The files of version 2 name
    the last agent only. They are right for the agents of root sessions, so nothing is rewritten. A helper's approvals
    are asked for anew and its memory is not found, because version 2 does not say whose helper it was."""


def _to_found_requests(path: Path, key: Callable[[], bytes]) -> None:
    """From version 3 to 4: the table of requests has columns by which an index finds a request and its size. What is
    signed stays the same."""
    if (path / "approvals.sqlite").exists():
        with closing(sqlite3.connect(path / "approvals.sqlite", isolation_level=None)) as database:
            _find_requests(database)


def _find_requests(database: sqlite3.Connection) -> None:
    """Make the table of requests anew. Does nothing to later tables."""
    columns = [name for _number, name, *_rest in database.execute("PRAGMA table_info(requests)")]
    if not columns or "same_call" in columns:
        return
    database.create_function("found_by", 2, _found_by, deterministic=True)
    database.execute("BEGIN IMMEDIATE")
    try:
        database.execute("ALTER TABLE requests RENAME TO requests_3")
        for (index,) in database.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'requests_3' AND sql IS NOT NULL"
        ).fetchall():
            database.execute(f"DROP INDEX {index}")
        database.execute(
            "CREATE TABLE requests (id TEXT PRIMARY KEY, tool TEXT NOT NULL, session TEXT NOT NULL, "
            "call TEXT NOT NULL, asks TEXT NOT NULL, same_call TEXT NOT NULL, bytes INTEGER NOT NULL, "
            "created_at REAL NOT NULL, expires_at REAL NOT NULL, signature BLOB NOT NULL, answer_signature BLOB, "
            "used_at REAL, withdrawn_at REAL, state_signature BLOB, answer TEXT, request TEXT NOT NULL) STRICT"
        )
        found = ", ".join(f"found_by('{name}', request)" for name in ("session", "call", "asks", "same_call"))
        database.execute(
            f"INSERT INTO requests SELECT id, tool, {found}, length(request) + 32768, created_at, expires_at, "
            "signature, answer_signature, used_at, withdrawn_at, state_signature, answer, request FROM requests_3"
        )
        database.execute("DROP TABLE requests_3")
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _found_by(column: str, text: str) -> str:
    """The value of a new column for the request of this text, "" if the text was edited so that it has none."""
    try:
        said = json.loads(text)["request"]
        line = [*said.get("ancestors", ()), said["agent_id"]]
        call = [said["session_id"], line, said["tool"], said["version"], said["fingerprint"], said["arguments"]]
        values = {"session": said["session_id"], "call": said["call_id"], "asks": said.get("asks", "approval")}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    if column != "same_call":
        return str(values[column])
    return sha256(json.dumps(call, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


STEPS: tuple[Step, ...] = (_begin, _to_signed_states, _to_lines, _to_found_requests)
