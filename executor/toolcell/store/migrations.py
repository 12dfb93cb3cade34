"""The steps from each version of a state directory to the next one.

A step may be killed at any moment and begun again: a directory has its next version only when the step is complete, and
the file `version` is replaced after that. A step that removes files is one of its own, so they are there until all that
replaces them is on the disk.

A step writes what its version was, in words of its own: the modules that use the files know the present version only.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from toolcell.errors import UsageError
from toolcell.store.database import DAY_S, Database, Signer, Table, build, connect, install, transaction
from toolcell.store.schema import CALLS, REQUESTS, SESSIONS, STANDING, STATE, TASKS

Step = Callable[[Path, Callable[[], bytes]], None]
"""Takes the directory and a function that gives its key."""


def _begin(path: Path, key: Callable[[], bytes]) -> None:
    """From nothing to version 1: the files are made at their first use."""


def _to_signed_states(path: Path, key: Callable[[], bytes]) -> None:
    """From version 1 to 2: the states of approvals ("used", "withdrawn", "revoked") are signed, too. Rows that were
    edited stay invalid. The index of the journal is made again from the log, as it has a version of its own."""
    if (path / "approvals.sqlite").exists():
        with closing(connect(path / "approvals.sqlite")) as database:
            _sign_states(database, Signer(key()))


def _sign_states(database: sqlite3.Connection, signer: Signer) -> None:
    """Sign the states in tables of version 1. Does nothing to later tables."""
    columns = [name for _number, name, *_rest in database.execute("PRAGMA table_info(requests)")]
    if not columns or "state_signature" in columns:
        return
    with transaction(database):
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
        with closing(connect(path / "approvals.sqlite")) as database:
            _find_requests(database)


def _find_requests(database: sqlite3.Connection) -> None:
    """Make the table of requests anew. Does nothing to later tables."""
    columns = [name for _number, name, *_rest in database.execute("PRAGMA table_info(requests)")]
    if not columns or "same_call" in columns:
        return
    database.create_function("found_by", 2, _found_by, deterministic=True)
    with transaction(database):
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


OLD_DATABASES: Final = ("approvals.sqlite", "results.sqlite", "sessions.sqlite", "tasks.sqlite")
"""The databases of version 4."""


def _to_one_database(path: Path, key: Callable[[], bytes]) -> None:
    """From version 4 to 5: the rows of four databases are in one, `state.sqlite`, and all of them are signed. The new
    database gets its name when it is whole; the old ones stay."""
    if not any((path / name).exists() for name in OLD_DATABASES):
        return
    for end in ("-wal", "-shm", "", ".healed"):  # of a try that was killed: it is made again
        (path / f"state.sqlite{end}").unlink(missing_ok=True)
    build(path / "state.sqlite", key(), STATE, lambda new: _fill(new, path, Signer(key())))
    install(path / "state.sqlite")


def _fill(new: Database, path: Path, signer: Signer) -> None:
    """Copy the rows of the old databases. Raises UsageError if one is damaged."""
    for name, table, query, values_of in _OLD:
        if not (path / name).exists():
            continue
        try:
            with closing(connect(path / name)) as old:
                for clock in _old_rows(old, "SELECT latest, signature FROM clock"):
                    if signer.fits(clock["signature"], "clock.2", "", repr(clock["latest"]).encode()):
                        new.go_on_from(clock["latest"])
                for row in _old_rows(old, query):
                    values, is_valid, until = values_of(row, signer)
                    new.put(table, values, until)
                    if not is_valid:
                        new.query(f"UPDATE {table.name} SET signature = x'' WHERE id = ?", values["id"])
        except sqlite3.Error as error:
            raise UsageError(
                f"{path / name} cannot be migrated: {error}. Restore a copy of it, or move it away with its -wal and "
                "-shm files: what it has is then forgotten."
            ) from error


def _old_rows(old: sqlite3.Connection, query: str) -> Iterator[dict[str, Any]]:
    table = query.split(" FROM ")[1].split()[0]
    if old.execute("SELECT count(*) FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]:
        found = old.execute(query)
        names = [each[0] for each in found.description]
        yield from (dict(zip(names, row, strict=True)) for row in found)


_Converted = tuple[dict[str, Any], bool, float]
"""The values of a new row, whether the old one fitted its signature, and its `until`, for the age 0."""


def _call(row: dict[str, Any], signer: Signer) -> _Converted:
    return {**row, "mark": 0}, True, 30 * DAY_S


def _request(row: dict[str, Any], signer: Signer) -> _Converted:
    text, answer = row["request"], row["answer"]
    signature, answered = row.pop("signature") or b"", row.pop("answer_signature")
    state = (signature, answered or b"", repr(row["used_at"]).encode(), repr(row["withdrawn_at"]).encode())
    is_valid = signer.fits(row.pop("state_signature"), "state.2", row["id"], *state)
    is_valid = is_valid and signer.fits(signature, "request.2", row["id"], text.encode())
    if is_valid:  # its columns are not signed, and must be those of its text
        said = json.loads(text)["request"]
        is_valid = (said["id"], said["tool"], said["expires_at"]) == (row["id"], row["tool"], row["expires_at"])
    if answer is not None:
        is_valid = is_valid and signer.fits(answered, "answer.2", row["id"], signature, answer.encode())
    return row, is_valid, 37 * DAY_S


def _standing(row: dict[str, Any], signer: Signer) -> _Converted:
    signature, text = row.pop("signature"), row["approval"]
    is_valid = signer.fits(signature, "standing.2", row["id"], text.encode())
    is_valid = is_valid and json.loads(text)["expires_at"] == row["expires_at"]
    state = (signature or b"", repr(row["revoked_at"]).encode())
    is_valid = is_valid and signer.fits(row.pop("state_signature"), "revocation.2", row["id"], *state)
    return row, is_valid, 37 * DAY_S


def _session(row: dict[str, Any], signer: Signer) -> _Converted:
    is_valid = signer.fits(row.pop("signature"), "session", row["id"], row["parent"].encode(), row["data"].encode())
    return {**row, "mark": 0}, is_valid, 30 * DAY_S


def _task(row: dict[str, Any], signer: Signer) -> _Converted:
    return row, True, row["ttl"] / 1000


_OLD: Final[tuple[tuple[str, Table, str, Callable[[dict[str, Any], Signer], _Converted]], ...]] = (
    ("results.sqlite", CALLS, "SELECT kind, session, id, asked, call, result FROM calls", _call),
    ("approvals.sqlite", REQUESTS, "SELECT * FROM requests", _request),
    ("approvals.sqlite", STANDING, "SELECT * FROM standing", _standing),
    ("sessions.sqlite", SESSIONS, "SELECT id, parent, data, signature FROM sessions ORDER BY at", _session),
    (
        "tasks.sqlite",
        TASKS,
        "SELECT id, owner, session, created, updated, ttl, status, outcome FROM tasks",
        _task,
    ),
)


def _without_old_databases(path: Path, key: Callable[[], bytes]) -> None:
    """From version 5 to 6: the databases of version 4 are removed."""
    for name in OLD_DATABASES:
        for end in (
            "-shm",
            "-wal",
            "",
        ):
            (path / (name + end)).unlink(missing_ok=True)


STEPS: tuple[Step, ...] = (
    _begin,
    _to_signed_states,
    _to_lines,
    _to_found_requests,
    _to_one_database,
    _without_old_databases,
)
