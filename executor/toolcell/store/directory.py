"""The state directory: made for its user alone, with one writer at a time, and a version that later code migrates."""

import fcntl
import os
import secrets
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolcell.errors import UsageError
from toolcell.store.files import open_file, sync_directory, write_file
from toolcell.store.migrations import OLD_DATABASES, VERSION, VERSION_FILE, migrate
from toolcell.store.overlap import links_to, overlaps
from toolcell.wire import forks
from toolcell_sandbox.profile import is_below

KEY_BYTES: Final = 32
LOCK_S: Final = 0.3
"""How long to wait for the lock: `toolcell status` has it for a moment, to see whether a supervisor runs."""
LOG, INDEX, DATABASE, MEMORY = "journal.log", "journal.sqlite", "state.sqlite", "memory.sqlite"
STATUS, LOCK, KEY, ENDED = "status.json", "lock", "key", "approvals.ended"
_FILES: Final = (
    *(LOG, STATUS, VERSION_FILE, LOCK, KEY, ENDED),
    *(name + end for name in (INDEX, DATABASE, MEMORY, *OLD_DATABASES) for end in ("", "-wal", "-shm", "-journal")),
    *(DATABASE + end for end in (".new", ".new-journal", ".healed")),
)
_NUMBER_CHARS: Final = 20
_KINDS: Final = {stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a FIFO", stat.S_IFDIR: "a directory"}


class StateDirectory:
    """One state directory. `open_to_write` takes its lock; readers need none.

    - `version`: the version of the other files, in decimal.
    - `lock`: the process id of the supervisor that writes here. It locks the directory itself (flock(2)), because
      nobody can replace that by another file.
    - `key`: the key for the HMAC of approvals and sessions, 0600. It guards against edited rows, not against the same
      user.
    - `journal.log`: the journal (`toolcell.store.journal.entries`).
    - `journal.sqlite`: an index of the journal, made from it.
    - `state.sqlite`: requests for approval with their answers, results of calls with an idempotency key and of tasks,
      suspended sessions, and the tasks of MCP clients (`schema`).
    - `approvals.ended`: withdrawn and revoked approvals that the journal may not have yet (`approvals.ended`).
    - `memory.sqlite`: the agents' memory (`toolcell.backends.memory`).
    - `status.json`: what the supervisor does now, written once a second.
    """

    def __init__(self, path: str | Path) -> None:
        given = os.path.abspath(path)
        self._links = links_to(os.path.dirname(given))
        self.path = Path(os.path.realpath(os.path.dirname(given)), os.path.basename(given))
        self._lock = -1
        forks.register(self)

    def __repr__(self) -> str:
        return f"<StateDirectory {self.path}{' · written' if self._lock >= 0 else ''}>"

    @property
    def log(self) -> Path:
        return self.path / LOG

    @property
    def index(self) -> Path:
        return self.path / INDEX

    @property
    def database(self) -> Path:
        return self.path / DATABASE

    @property
    def status(self) -> Path:
        return self.path / STATUS

    @property
    def memory(self) -> Path:
        return self.path / MEMORY

    def require_apart(self, directory: str, what: str) -> None:
        """Raise UsageError if cells may see a part of the state directory through `directory`, or could replace a link
        that leads to it. `what` names `directory` in the error."""
        real = os.path.realpath(directory)
        if overlaps(real, os.path.realpath(self.path)) or any(is_below(link, [real]) for link in self._links):
            raise UsageError(
                f"The state directory {str(self.path)!r} and {what} {directory!r} overlap, so a cell could see the "
                "journal and the key. Use a state directory that no session can see, for example "
                "~/.local/state/toolcell."
            )

    def require_outside_of_interpreter(self) -> None:
        """Raise UsageError for a place below the Python installation, which every cell sees."""
        for prefix in {sys.prefix, sys.base_prefix, sys.exec_prefix}:
            self.require_apart(prefix, "the Python installation")

    def open_to_write(self) -> None:
        """Make the directory, lock it, and migrate its files. Raises UsageError, or OSError if it cannot be made."""
        with suppress(FileExistsError):
            self.path.mkdir(mode=0o700, parents=True)
        self.require_private()
        self.require_files()
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
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

    def require_files(self) -> None:
        """Raise UsageError if there is anything but a file of this user in the place of one of the files here: a link
        would lead out of the directory, and the reader of a FIFO would wait for ever."""
        for name in _FILES:
            try:
                found = os.stat(self.path / name, follow_symlinks=False)
            except OSError:  # it is not there, or whoever opens it has the same error
                continue
            if not stat.S_ISREG(found.st_mode):
                raise UsageError(
                    f"{str(self.path / name)!r} is not a file, but "
                    f"{_KINDS.get(stat.S_IFMT(found.st_mode), 'a device')}. "
                    "Somebody has replaced it: put the file back, or move the state directory away."
                )
            if found.st_uid != os.geteuid():
                raise UsageError(
                    f"{str(self.path / name)!r} belongs to another user (uid {found.st_uid}). Give it to the user of "
                    "this program, or move the state directory away."
                )

    def version(self) -> int:
        """The version of the files here, 0 if there are none. Raises UsageError if the version cannot be read."""
        try:
            with open_file(self.path / VERSION_FILE) as file:
                return int(file.read(_NUMBER_CHARS))
        except FileNotFoundError:
            return 0
        except ValueError as error:
            raise UsageError(f"{self.path / 'version'} has no version number: {error}. Restore a copy.") from None

    def key(self) -> bytes:
        """The key for the HMAC of approvals. It is made at the first use. Raises UsageError or OSError."""
        path = self.path / KEY
        if not path.exists():
            beside = self.path / f".key.{os.getpid()}.{secrets.token_hex(4)}"
            write_file(beside, secrets.token_bytes(KEY_BYTES))
            try:
                with suppress(FileExistsError):
                    os.link(beside, path)  # whole or not at all, also for another process
            finally:
                beside.unlink()
            sync_directory(self.path)
        with open_file(path) as file:
            key, found = file.read(KEY_BYTES + 1), os.fstat(file.fileno())
        if len(key) != KEY_BYTES or found.st_mode & 0o077 or found.st_uid != os.geteuid():
            raise UsageError(f"{path} is not a key that only its user can read. Remove it; pending approvals end.")
        return key

    def require_version(self) -> None:
        """Raise UsageError unless the files have the version that this toolcell reads."""
        found = self.version()
        if found > VERSION:
            raise self._too_new(found)
        if 0 < found < VERSION:
            raise UsageError(
                f"The state directory {str(self.path)!r} has version {found}, and this toolcell reads {VERSION}. Start "
                "a supervisor on it once, which migrates its files."
            )

    def is_written(self) -> bool:
        """Whether a supervisor writes here. Raises OSError."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def close(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # a fork that has just begun may still hold the descriptor
        self.let_go()

    def let_go(self) -> None:
        """Close the descriptor: a fork that outlives the supervisor must not keep others out."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _take_lock(self) -> None:
        last = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() < last:
                    time.sleep(0.02)
                    continue
                raise UsageError(
                    f"Another supervisor (process {self._owner()}) writes to the state directory {str(self.path)!r}. "
                    "Give each supervisor a state directory of its own."
                ) from None
        write_file(self.path / LOCK, b"%d\n" % os.getpid())

    def _owner(self) -> str:
        try:
            with open_file(self.path / LOCK) as file:
                return file.read(_NUMBER_CHARS).decode("ascii", "replace").strip() or "unknown"
        except OSError:
            return "unknown"

    def _migrate(self) -> None:
        found = self.version()
        if found > VERSION:
            raise self._too_new(found)
        migrate(self.path, found, self.key)

    def _too_new(self, found: int) -> UsageError:
        return UsageError(
            f"The state directory {str(self.path)!r} has version {found}, and this toolcell knows {VERSION}. "
            "Install the later toolcell again."
        )
