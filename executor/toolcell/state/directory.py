"""The state directory: made for its user alone, with one writer at a time, and a version that later code migrates."""

import fcntl
import os
import secrets
import stat
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolcell.errors import UsageError
from toolcell_sandbox.profile import is_below

VERSION: Final = 1
"""The version of the files in a state directory. It is the number in the file `version`."""
KEY_BYTES: Final = 32
LOG, DATABASE, APPROVALS, RESULTS = "journal.log", "journal.sqlite", "approvals.sqlite", "results.sqlite"
SESSIONS: Final = "sessions.sqlite"


_directories: weakref.WeakSet["StateDirectory"] = weakref.WeakSet()


def _let_go_after_fork() -> None:
    """In a fork of the program, close the locks: a fork that outlives the supervisor must not keep others out."""
    for directory in list(_directories):
        directory.close()


os.register_at_fork(after_in_child=_let_go_after_fork)


class StateDirectory:
    """One state directory. `open_to_write` takes its lock; readers need none.

    - `version`: the version of the other files, in decimal.
    - `lock`: locked (flock(2)) by the supervisor that writes here.
    - `key`: the key for the HMAC of approvals and sessions, 0600. It guards against edited rows, not against the same
      user.
    - `journal.log`: the journal (`toolcell.journal.chain`).
    - `journal.sqlite`: an index of the journal, made from it.
    - `approvals.sqlite`: requests for approval and their answers (`toolcell.approvals`).
    - `results.sqlite`: results of calls with an idempotency key, and of tasks (`results`).
    - `sessions.sqlite`: suspended sessions (`sessions`).
    - `status.json`: what the supervisor does now, written once a second.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.abspath(path))
        self._lock = -1
        _directories.add(self)

    def __repr__(self) -> str:
        return f"<StateDirectory {self.path}{' · written' if self._lock >= 0 else ''}>"

    @property
    def log(self) -> Path:
        return self.path / LOG

    @property
    def database(self) -> Path:
        return self.path / DATABASE

    @property
    def approvals(self) -> Path:
        return self.path / APPROVALS

    @property
    def status(self) -> Path:
        return self.path / "status.json"

    @property
    def results(self) -> Path:
        return self.path / RESULTS

    @property
    def sessions(self) -> Path:
        return self.path / SESSIONS

    def require_apart(self, directory: str, what: str) -> None:
        """Raise UsageError if cells may see a part of the state directory, or a directory that contains it, through
        `directory`. `what` names `directory` in the error."""
        real, own = os.path.realpath(directory), os.path.realpath(self.path)
        if is_below(real, [own]) or is_below(own, [real]):
            raise UsageError(
                f"The state directory {str(self.path)!r} and {what} {directory!r} overlap, so a cell could see the "
                "journal and the key. Use a state directory that no session can see, for example "
                "~/.local/state/toolcell."
            )

    def open_to_write(self) -> None:
        """Make the directory, lock it, and migrate its files. Raises UsageError, or OSError if it cannot be made."""
        with suppress(FileExistsError):
            self.path.mkdir(mode=0o700, parents=True)
        self.require_private()
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            self._take_lock()
            self._migrate()
        except BaseException:
            self.close()
            raise

    def require_private(self) -> None:
        """Raise UsageError unless this is a directory of this user that no other user can enter."""
        found = os.stat(self.path, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            raise UsageError(f"The state directory {str(self.path)!r} is not a directory. Name a directory.")
        if found.st_uid != os.geteuid():
            raise UsageError(f"The state directory {str(self.path)!r} belongs to another user (uid {found.st_uid}).")
        if found.st_mode & 0o077:
            raise UsageError(
                f"Other users can enter the state directory {str(self.path)!r}. Run: chmod 700 {self.path}"
            )

    def version(self) -> int:
        """The version of the files here, 0 if there are none. Raises UsageError if the version cannot be read."""
        try:
            text = (self.path / "version").read_text("ascii").strip()
            return int(text)
        except FileNotFoundError:
            return 0
        except ValueError as error:
            raise UsageError(f"{self.path / 'version'} has no version number: {error}. Restore a copy.") from None

    def key(self) -> bytes:
        """The key for the HMAC of approvals. It is made at the first use. Raises UsageError or OSError."""
        path = self.path / "key"
        with suppress(FileExistsError):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:
                file.write(secrets.token_bytes(KEY_BYTES))
        key = path.read_bytes()
        if len(key) != KEY_BYTES or path.stat().st_mode & 0o077:
            raise UsageError(f"{path} is not a key that only its user can read. Remove it; pending approvals end.")
        return key

    def close(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._lock, 20, 0).decode("ascii", "replace").strip() or "unknown"
            raise UsageError(
                f"Another supervisor (process {owner}) writes to the state directory {str(self.path)!r}. "
                "Give each supervisor a state directory of its own."
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, b"%d\n" % os.getpid(), 0)

    def _migrate(self) -> None:
        found = self.version()
        if found > VERSION:
            raise UsageError(
                f"The state directory {str(self.path)!r} has version {found}, and this toolcell knows {VERSION}. "
                "Install the later toolcell again."
            )
        for step in range(found, VERSION):
            _STEPS[step](self.path)
            _replace(self.path / "version", f"{step + 1}\n")


def _begin(path: Path) -> None:
    """From nothing to version 1: the files are made at their first use."""


_STEPS = (_begin,)
"""The step from each version to the next one."""


def _replace(path: Path, text: str) -> None:
    """Write a small file so that readers see the old or the new text, also after a power failure."""
    beside = path.with_name(f".{path.name}.new")
    with open(beside, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
