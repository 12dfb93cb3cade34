"""Why a state directory cannot be used, and what to do, in words."""

import errno
import sqlite3
from contextlib import closing

from toolcell.journal.chain import BrokenChain

from .directory import StateDirectory

_CURES = {
    errno.EACCES: "Give it to the user of this program.",
    errno.EPERM: "Give it to the user of this program.",
    errno.EROFS: "Its file system is read-only: use another directory, or mount it so that it can be written.",
    errno.ENOSPC: "The disk is full: free space there.",
    errno.EDQUOT: "The user's quota is used up: free space there.",
    errno.ENOENT: "Something in it was removed meanwhile. Start again.",
    errno.ELOOP: "It is a symbolic link where there must be a file. Remove the link.",
}
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
            cure = _CURES.get(error.errno or 0, "Look at its disk.")
            return f"{where}: {error.strerror or error}{named}. {cure}"
        case _:
            name = _named(state)
            is_damaged = bool(name) or type(error) is sqlite3.DatabaseError
            damaged = _DAMAGED.format(name or "the database") if is_damaged else _ROOM
            return f"{where}: {f'{name}: ' if name else ''}{error}. {damaged}"


_ROOM = "Look whether the directory can be written, and whether its disk is full."


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
