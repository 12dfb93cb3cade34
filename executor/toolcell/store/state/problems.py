"""Why a state directory cannot be used, and what to do, in words."""

import sqlite3
from contextlib import closing

from toolcell.store.journal.chain import BrokenChain
from toolcell.store.journal.cures import cure_of
from toolcell.store.state.directory import StateDirectory

_DAMAGED = (
    "Restore a copy of {}, or move it away with its -wal and -shm files: without it, idempotency keys and tasks "
    "(results.sqlite), requests for approval (approvals.sqlite) or suspended sessions (sessions.sqlite) of earlier "
    "supervisors are forgotten. The journal is not affected: `toolcell audit verify`."
)


def unusable_state(state: StateDirectory, error: OSError | sqlite3.Error | BrokenChain) -> str:
    """The message of a UsageError."""
    where = f"The state directory {str(state.path)!r} cannot be used"
    match error:
        case BrokenChain():
            return f"{where}: the journal is damaged. {error} {error.cure} See `toolcell audit verify`."
        case OSError():
            named = f" ({error.filename})" if error.filename else ""
            return f"{where}: {error.strerror or error}{named}. {cure_of(error)}"
        case _:
            name = _named(state)
            is_damaged = bool(name) or type(error) is sqlite3.DatabaseError
            cure = _DAMAGED.format(name or "the database") if is_damaged else cure_of(error)
            return f"{where}: {f'{name}: ' if name else ''}{error}. {cure}"


def _named(state: StateDirectory) -> str:
    """The name of a database that is damaged, or has other tables than ours, "" if none is."""
    uses = {
        state.results: "SELECT at, result FROM calls",
        state.approvals: "SELECT requests.tool, standing.approval, latest FROM requests, standing, clock",
        state.sessions: "SELECT at, data FROM sessions",
    }
    for path, use in uses.items():
        if not path.exists():
            continue
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
                has_tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
                if has_tables:
                    database.execute(f"{use} LIMIT 1").fetchone()
        except sqlite3.OperationalError as error:
            if "no such" in str(error):
                return path.name
        except sqlite3.DatabaseError:
            return path.name
    return ""
