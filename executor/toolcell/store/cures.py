"""What to do about an error of the files in a state directory, in words."""

import errno
import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from toolcell.errors import UsageError
from toolcell.store.database import is_damage
from toolcell.store.journal.entries import BrokenChain

READ_ONLY: Final = "Its file system is read-only: use another directory, or mount it so that it can be written."
_DAMAGED: Final = "It is damaged, or its disk fails: look at the disk, and restore a copy."
_OF_ERRNO: Final = {
    errno.EACCES: "Give it to the user of this program.",
    errno.EPERM: "Give it to the user of this program.",
    errno.EROFS: READ_ONLY,
    errno.ENOSPC: "Free space there.",
    errno.EDQUOT: "The user's quota is used up: free space there.",
    errno.EFBIG: "The limit on the size of files is reached: raise it (ulimit -f).",
    errno.EMFILE: "The limit on open files is reached: raise it (ulimit -n).",
    errno.ENOENT: "Something in it was removed meanwhile. Start again.",
    errno.EBADMSG: _DAMAGED,
    errno.EINVAL: "Something else is in its place: remove that.",
    errno.ELOOP: "It is a symbolic link where there must be a file. Remove the link.",
}
_OF_SQLITE: Final = {
    sqlite3.SQLITE_FULL: _OF_ERRNO[errno.ENOSPC],
    sqlite3.SQLITE_IOERR: "Look at the disk: it fails, or a quota or the limit on the size of files is reached.",
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_BUSY: "Another program holds its lock: end that program.",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}
_PRIMARY: Final = 0xFF  # the rest of an SQLite error code says more of the same error
_LOOK: Final = "Look at the disk."


def cure_of(error: Exception) -> str:
    """The cure of an OSError or an sqlite3.Error."""
    if isinstance(error, sqlite3.Error):
        code: int = getattr(error, "sqlite_errorcode", 0)  # an error of the module has none
        return _OF_SQLITE.get(code & _PRIMARY, _LOOK)
    return _OF_ERRNO.get(error.errno or 0, _LOOK) if isinstance(error, OSError) else _LOOK


@contextmanager
def told(name: str) -> Generator[None]:
    """Turn an OSError or an sqlite3.Error into a UsageError with the cure. `name` is that of the file, unless the error
    names another."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        why = str(error)
        if isinstance(error, OSError):
            name = os.path.basename(error.filename or name)
            why = error.strerror or why
        raise UsageError(f"{name} cannot be used: {why}. {cure_of(error)}") from error


def unusable_state(path: Path, database: str, error: OSError | sqlite3.Error | BrokenChain) -> str:
    """The message of a UsageError for a state directory that cannot be opened. `database` names its database."""
    where = f"The state directory {str(path)!r} cannot be used"
    match error:
        case BrokenChain():
            return f"{where}: the journal is damaged. {error} {error.cure} See `toolcell audit verify`."
        case OSError():
            named = f" ({error.filename})" if error.filename else ""
            return f"{where}: {error.strerror or error}{named}. {cure_of(error)}"
        case _:
            is_lost = is_damage(error) or isinstance(error, sqlite3.NotSupportedError)
            cure = _NO_DATABASE.format(database) if is_lost else cure_of(error)
            return f"{where}: {database}: {error}. {cure}"


_NO_DATABASE: Final = (
    "Restore a copy of {0}, or move it away with its -wal and -shm files: without it, requests for approval, suspended "
    "sessions, tasks and kept results of earlier supervisors are forgotten. Idempotency keys of calls that ran are "
    "found in the journal, so none runs again. The journal is not affected: `toolcell audit verify`."
)
