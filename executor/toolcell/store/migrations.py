"""How a state directory of an earlier version becomes one of this version.

Up to version 4, four databases had the rows that `state.sqlite` has now. They are copied into a new database, which
gets its name when it is whole; then the file `version` says 5; then the old files are removed, and it says 6. So a kill
at any moment loses nothing, and the next start goes on. A row that did not fit its signature fits none in the new
database either.

This module writes what earlier versions were, in words of its own: the modules that use the files know the present
version only.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from toolcell.errors import UsageError
from toolcell.store.database import DAY_S, Database, Signer, Table, build, connect, install
from toolcell.store.files import replace_file
from toolcell.store.schema import CALLS, REQUESTS, SESSIONS, STANDING, STATE, TASKS

VERSION: Final = 6
"""The version of the files in a state directory. It is the number in the file `version`."""
VERSION_FILE: Final = "version"
OLD_DATABASES: Final = ("approvals.sqlite", "results.sqlite", "sessions.sqlite", "tasks.sqlite")
_ONE_DATABASE: Final = 5


def migrate(path: Path, found: int, key: Callable[[], bytes]) -> None:
    """Migrate the files of the version `found`, 0 for none. `key` gives the key of the directory. Raises UsageError,
    sqlite3.Error or OSError."""
    if found < _ONE_DATABASE and any((path / name).exists() for name in OLD_DATABASES):
        for end in ("-wal", "-shm", "", ".healed"):  # of a try that was killed: it is made again
            (path / f"state.sqlite{end}").unlink(missing_ok=True)
        build(path / "state.sqlite", key(), STATE, lambda new: _fill(new, path, Signer(key())))
        install(path / "state.sqlite")
        replace_file(path / VERSION_FILE, b"%d\n" % _ONE_DATABASE)
    if found < VERSION:
        for name in OLD_DATABASES:
            for end in ("-shm", "-wal", ""):
                (path / (name + end)).unlink(missing_ok=True)
        replace_file(path / VERSION_FILE, b"%d\n" % VERSION)


def _fill(new: Database, path: Path, signer: Signer) -> None:
    """Copy the rows of the old databases. Raises UsageError if one is damaged."""
    for name, table, query, values_of in _OLD:
        if not (path / name).exists():
            continue
        try:
            with closing(connect(path / name)) as old:
                for clock in _old_rows(old, "SELECT latest, signature FROM clock"):
                    if signer.fits(clock["signature"], "clock.2", "", repr(clock["latest"])):
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
    """A request of version 4, or of an earlier one, which has fewer columns. Version 1 did not sign the states."""
    id, text, answer, signature = row["id"], row["request"], row["answer"], row["signature"]
    kinds = ("request.2", "answer.2") if "state_signature" in row else ("request", "answer")
    is_valid = signer.fits(signature, kinds[0], id, text)
    if answer is not None:
        is_valid = is_valid and signer.fits(row["answer_signature"], kinds[1], id, signature, answer)
    if "state_signature" in row:
        parts = (signature, row["answer_signature"] or b"", repr(row["used_at"]), repr(row["withdrawn_at"]))
        is_valid = is_valid and signer.fits(row["state_signature"], "state.2", id, *parts)
    said: dict[str, Any] = json.loads(text)["request"] if is_valid else {}
    if is_valid:  # the columns are not signed, and must be those of the text
        is_valid = (said["id"], said["tool"], said["expires_at"]) == (id, row["tool"], row["expires_at"])
    kept = ("id", "tool", "created_at", "expires_at", "used_at", "withdrawn_at", "answer", "request")
    found_by = {
        "session": said.get("session_id", ""),
        "call": said.get("call_id", ""),
        "asks": said.get("asks", "approval"),
        "same_call": _same_call(said) if said else "",
        "bytes": len(text) + 32 * 1024,
    }
    return {**{name: row[name] for name in kept}, **found_by}, is_valid, 37 * DAY_S


def _same_call(said: dict[str, Any]) -> str:
    line = [*said.get("ancestors", ()), said["agent_id"]]
    call = [said["session_id"], line, said["tool"], said["version"], said["fingerprint"], said["arguments"]]
    return sha256(json.dumps(call, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _standing(row: dict[str, Any], signer: Signer) -> _Converted:
    id, text, signature, is_old = row["id"], row["approval"], row["signature"], "state_signature" not in row
    is_valid = signer.fits(signature, "standing" if is_old else "standing.2", id, text)
    if not is_old:
        revoked = repr(row["revoked_at"])
        is_valid = is_valid and signer.fits(row["state_signature"], "revocation.2", id, signature, revoked)
    is_valid = is_valid and json.loads(text)["expires_at"] == row["expires_at"]
    kept = {name: row[name] for name in ("id", "tool", "expires_at", "approval")}
    return {**kept, "revoked_at": row.get("revoked_at")}, is_valid, 37 * DAY_S


def _session(row: dict[str, Any], signer: Signer) -> _Converted:
    is_valid = signer.fits(row.pop("signature"), "session", row["id"], row["parent"], row["data"])
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
