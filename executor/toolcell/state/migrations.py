"""The steps from each version of a state directory to the next one. A step may be killed and begun again.

A step writes what its version was, in words of its own: the modules that use the files know the present version only.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from .signing import Signer

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


STEPS: tuple[Step, ...] = (_begin, _to_signed_states, _to_lines)
