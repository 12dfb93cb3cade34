"""The user's runtime directory (0700), where each supervisor keeps its record."""

import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK = "lock"
_ASIDE = ".aside"
KEPT_ASIDE = 8
_AGAIN_S = 0.02


class RuntimeDirectory:
    """An open runtime directory: `$XDG_RUNTIME_DIR/toolcell`, `/run/user/<uid>/toolcell`, `/run/toolcell` for root, or
    `toolcell-<uid>` in the directory of temporary files. Raises PermissionError, with the cure, if other users can
    access it.
    """

    def __init__(self) -> None:
        self.fd, self.path, self._temporary = -1, "", False
        for base in _bases():
            self._open(f"{base}/toolcell")
            return
        self._temporary = True
        self._open(f"{tempfile.gettempdir()}/toolcell-{os.geteuid()}")

    def __repr__(self) -> str:
        return f"<RuntimeDirectory {self.path}>"

    def _open(self, path: str) -> None:
        try:
            os.mkdir(path, 0o700)
            os.chmod(path, 0o700)  # the umask may have cleared bits
        except FileExistsError:
            pass
        try:
            fd = os.open(path, _OPEN)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EACCES):
                raise _unusable(path, "It is not a directory that this user can open.") from error
            raise
        try:
            info = os.fstat(fd)
            if info.st_uid != os.geteuid():
                raise _unusable(path, f"It belongs to the user {info.st_uid}.")
            if stat.S_IMODE(info.st_mode) != 0o700:
                raise _unusable(path, f"Its mode is {stat.S_IMODE(info.st_mode):04o}, not 0700.")
        except OSError:
            os.close(fd)
            raise
        self.fd, self.path = fd, path

    @contextmanager
    def locked(self, until: float) -> Generator[None, None, None]:
        """Hold the cleanup lock. Raises TimeoutError if the lock is not free by `until` (time.monotonic, s)."""
        fd = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self.fd)
        try:
            while not try_lock(fd):
                if time.monotonic() > until:
                    raise TimeoutError(
                        errno.ETIMEDOUT, "another supervisor has held the cleanup lock too long", self.path
                    )
                time.sleep(_AGAIN_S)
            yield
        finally:
            os.close(fd)

    def records(self) -> list[str]:
        """The names of the records."""
        return sorted(name for name in os.listdir(self.fd) if name.endswith(".record"))

    def aside(self, record: str) -> str:
        """Put an unreadable record aside for inspection. The latest `KEPT_ASIDE` of them are kept."""
        aside = record.removesuffix(".record") + _ASIDE
        os.rename(record, aside, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        with os.scandir(self.fd) as entries:
            files = [each for each in entries if each.name.endswith(_ASIDE) and not each.is_dir(follow_symlinks=False)]
            files.sort(key=lambda each: each.stat(follow_symlinks=False).st_ctime_ns)
        for each in files[:-KEPT_ASIDE]:
            os.unlink(each.name, dir_fd=self.fd)
        return aside

    def close(self) -> None:
        """Close the directory. Remove it if it is a directory of temporary files and has no record."""
        if self.fd < 0:
            return
        if self._temporary and set(os.listdir(self.fd)) <= {_LOCK}:
            with suppress(OSError):  # another supervisor uses or removes it
                os.unlink(_LOCK, dir_fd=self.fd)
            with suppress(OSError):
                os.rmdir(self.path)
        os.close(self.fd)
        self.fd = -1


def _unusable(path: str, why: str) -> PermissionError:
    return PermissionError(errno.EPERM, f"{why} Remove it, or make it this user's with mode 0700", path)


def _bases() -> Iterator[str]:
    """The directories in which this user may have a runtime directory. Directories that others can write to are left
    out.
    """
    me = os.geteuid()
    named = os.environ.get("XDG_RUNTIME_DIR", "")
    for path, others in ((named, 0o077), (f"/run/user/{me}", 0o077), *([("/run", 0o022)] if me == 0 else [])):
        if not path.startswith("/"):
            continue
        try:
            info = os.stat(path)
        except OSError:
            continue  # it does not exist
        if stat.S_ISDIR(info.st_mode) and info.st_uid == me and not info.st_mode & others and os.access(path, os.W_OK):
            yield path


def try_lock(fd: int) -> bool:
    """Try to take an exclusive flock(2) without waiting. Return whether it was taken."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
