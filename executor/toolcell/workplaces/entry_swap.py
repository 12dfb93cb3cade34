"""Replace, make or remove one directory entry, unless another process has changed it since it was read.

The new entry is made beside its place and exchanged with the old one in one step (renameat2(2)). The old
entry is then compared with the entry that was read. If another process was faster, the exchange is undone. A process
that holds the old file open may still write to it.
"""

import errno
import os
import stat
from collections.abc import Callable
from typing import Final

from toolcell_sandbox.kernel.syscalls import attempt
from toolcell_sandbox.trees import walker
from toolcell_sandbox.trees.facts import Facts

from .listing import TreeEntry

__all__ = ["MovedOn", "make_directory", "place", "remove"]

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_EXCHANGE: Final = 2  # RENAME_EXCHANGE
_UNSUPPORTED: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


class MovedOn(Exception):
    """Another process has changed the entry since it was read. Its change stays."""


def place(parent: int, entry: TreeEntry, was: Facts | None, fill: Callable[[int], object]) -> None:
    """Put a file or a link into an open directory. It replaces the entry `was`; None if there was no entry. `fill`
    writes the content of a file. Raises MovedOn and OSError; then nothing has changed."""
    name = os.path.basename(entry.path)
    new = _new_name()
    try:
        if entry.kind == "link":
            os.symlink(entry.content, os.fsencode(new), dir_fd=parent)
        else:
            _make_file(parent, new, entry, was, fill)
        if was is None:
            _move_in(parent, new, name)
        else:
            _exchange(parent, new, name, was)
    finally:
        try:
            os.unlink(new, dir_fd=parent)
        except FileNotFoundError:
            pass


def _make_file(parent: int, name: str, entry: TreeEntry, was: Facts | None, fill: Callable[[int], object]) -> None:
    fd = os.open(name, _NEW, 0o600, dir_fd=parent)
    try:
        fill(fd)
        if os.fstat(fd).st_size != entry.size:
            raise OSError(errno.EIO, "the content does not have its size", entry.path)
        if os.geteuid() == 0:
            owner = os.fstat(parent)
            os.fchown(fd, owner.st_uid, owner.st_gid)
        os.fchmod(fd, _mode(entry, was))
    finally:
        os.close(fd)


def _mode(entry: TreeEntry, was: Facts | None) -> int:
    """The permissions of a file: those of the old file, with the new file's right to execute."""
    mode = 0o644 if was is None or not stat.S_ISREG(was.mode) else was.mode & 0o777
    return mode | (mode & 0o444) >> 2 if entry.is_executable else mode & ~0o111


def _move_in(parent: int, new: str, name: str) -> None:
    try:
        walker.move(new, parent, name, parent)
    except FileExistsError:
        raise MovedOn(name) from None


def _exchange(parent: int, new: str, name: str, was: Facts) -> None:
    result = attempt("renameat2", parent, new, parent, name, _EXCHANGE)
    if result == -errno.ENOENT:
        raise MovedOn(name)
    if -result in _UNSUPPORTED:
        if not _is(parent, name, was):
            raise MovedOn(name)
        os.rename(new, name, src_dir_fd=parent, dst_dir_fd=parent)
        return
    if result < 0:
        raise OSError(-result, os.strerror(-result), name)
    if not _is(parent, new, was):
        attempt("renameat2", parent, new, parent, name, _EXCHANGE)
        raise MovedOn(name)


def remove(parent: int, name: str, was: Facts) -> None:
    """Remove a file or a link that has not changed since it was read. Raises MovedOn and OSError; then it stays."""
    aside = _new_name()
    try:
        walker.move(name, parent, aside, parent)
    except FileNotFoundError:
        raise MovedOn(name) from None
    if _is(parent, aside, was):
        os.unlink(aside, dir_fd=parent)
        return
    walker.move(aside, parent, name, parent)
    raise MovedOn(name)


def make_directory(parent: int, name: str) -> None:
    """Make a directory, with the owner of the one above it. Raises FileExistsError."""
    os.mkdir(name, 0o755, dir_fd=parent)
    if os.geteuid() == 0:
        owner = os.fstat(parent)
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=parent, follow_symlinks=False)


def _is(parent: int, name: str, was: Facts) -> bool:
    """Whether the entry has not changed since it was read. The change time is not compared: a rename changes it."""
    try:
        now = Facts.of(os.stat(name, dir_fd=parent, follow_symlinks=False))
    except FileNotFoundError:
        return False
    return now._replace(changed_ns=was.changed_ns) == was


def _new_name() -> str:
    return f".toolcell-{os.urandom(8).hex()}.part"
