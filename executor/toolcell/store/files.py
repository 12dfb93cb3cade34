"""How small files of a state directory are read and written, so that nothing in their place can hold the supervisor.

Another process of the same user may have put a FIFO, a link or a device where a file should be. So a file is opened
without waiting and without following a link, and only a regular file is used. A new file has a name that was free.
"""

import errno
import os
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["OpenDirectory", "open_file", "open_to_append", "replace_file", "sync_directory", "write_file"]

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class OpenDirectory:
    """An open directory. Threads use its descriptor by `with`, also while it is closed: the last one closes it."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._users = 1
        self._lock = threading.Lock()

    def __enter__(self) -> int:
        with self._lock:
            if not self._users:
                raise OSError(errno.EBADF, "the directory is closed")
            self._users += 1
        return self._fd

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                os.close(self._fd)


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading. Raises OSError, also if it is not a regular file."""
    return open(_regular(os.open(path, os.O_RDONLY | _FLAGS), path), "rb")


def open_to_append(path: Path) -> int:
    """Open a file to read and append, or make it. Raises OSError, also if it is not a regular file."""
    return _regular(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _FLAGS, 0o600), path)


def write_file(path: Path | str, data: bytes, *, at: int | None = None, durable: bool = True) -> None:
    """Make a file, in place of what has this name. `at` is the descriptor of its directory. Raises OSError."""
    with suppress(FileNotFoundError):
        os.unlink(path, dir_fd=at)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600, dir_fd=at)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        if durable:
            os.fsync(file.fileno())


def replace_file(path: Path, data: bytes) -> None:
    """Write a small file so that readers see the old or the new one, also after a power failure. Raises OSError."""
    beside = path.with_name(f".{path.name}.new")
    write_file(beside, data)
    beside.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _regular(fd: int, path: Path) -> int:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return fd
