"""Change files: all of them, or none.

The new content is written to temporary files first, each beside its target, with the mode and the extended attributes
of the file that it replaces: a full disk or a missing permission shows there. Only renames are left then. Each has its
undo, and a failure runs them backwards. Refused are hard links, which a new file would separate from their other names,
and files that the call may not write.
"""

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from .failures import ToolFailure
from .paths import failures

__all__ = ["FileChange", "commit", "make_directories", "refuse_irregular"]

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file to write, or to remove if `data` is None. `name` is its path relative to the workspace.

    It keeps the mode and the extended attributes of the file that is there, or takes those of the file at `like`.
    `executable` sets or clears the execute bits; None leaves them. The writer sets `target`, the real path of `name`,
    and makes `like` a real path.
    """

    name: str
    data: bytes | None
    like: Path | None = None
    executable: bool | None = None
    target: Path = Path()


def commit(files: Sequence[FileChange], *, prune_below: Path | None = None) -> None:
    """Write and remove the files. Raises ToolFailure; then nothing is changed.

    Missing directories are made. A reader of a file sees its old content or its new, never a part. Directories below
    `prune_below` that a removal has left empty are removed, as git does.
    """
    writes = [file for file in files if file.data is not None]
    removals = [file for file in files if file.data is None]
    written, removed = {file.target for file in writes}, {file.target for file in removals}
    above_writes = {above for target in written for above in target.parents}
    for file in writes:
        _refuse_unwritable(file, removed)
    for file in removals:
        status = _status(file.target, file.name)
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise ToolFailure(f"{file.name!r} is a directory; only files can be removed")
    kept = [_kept(file) for file in writes]
    tidy = ExitStack()
    with ExitStack() as undo:
        early = {file.target for file in removals if file.target in above_writes or _above(file.target, written)}
        for file in removals:
            if file.target in early:
                _set_aside(file, written, undo, tidy)
        staged = [_staged(file, metadata, undo) for file, metadata in zip(writes, kept, strict=True)]
        for file, temporary in zip(writes, staged, strict=True):
            _put(file, temporary, undo, tidy, alone=len(files) == 1)
        for file in removals:
            if file.target not in early:
                _set_aside(file, written, undo, tidy)
        undo.pop_all()
    tidy.close()
    if prune_below is not None:
        for file in removals:
            _prune(file.target.parent, prune_below)


def _above(target: Path, written: set[Path]) -> Path | None:
    """The directory of `target` whose place a file takes."""
    return next((above for above in target.parents if above in written), None)


def refuse_irregular(status: os.stat_result, path: StrPath) -> None:
    """Raise ToolFailure unless `status` is that of a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise ToolFailure(f"{os.fspath(path)!r} is a directory; name a file")
    if not stat.S_ISREG(status.st_mode):
        raise ToolFailure(f"{os.fspath(path)!r} is not a regular file")


def _refuse_unwritable(file: FileChange, removed: set[Path]) -> None:
    """Refuse a file whose replacement would lose more than its content."""
    for path in (file.target, file.like if file.like in removed else None):
        status = None if path is None else _status(path, file.name)
        if path is None or status is None:
            continue
        if stat.S_ISDIR(status.st_mode) and any(path in gone.parents for gone in removed):
            continue
        refuse_irregular(status, file.name)
        if status.st_nlink > 1:
            raise ToolFailure(
                f"{file.name!r} is a hard link: its file has {status.st_nlink:,} names, and a change would separate "
                "them. Delete this name and make the file anew, or change it with a program that writes in place"
            )
        if not _is_read_only(path, status):
            continue
        with failures(file.name):
            if file.data == path.read_bytes():
                continue
        raise ToolFailure(
            f"{file.name!r} is read-only for this call (mode {stat.S_IMODE(status.st_mode):o}). If it shall change, "
            "give write permission first, for example with chmod u+w"
        )


def _is_read_only(path: Path, status: os.stat_result) -> bool:
    """Whether nobody may write the file, or the call owns it and may not. Another user's file can be replaced by anyone
    who may write its directory: see rename(2)."""
    if not status.st_mode & 0o222 or os.statvfs(path).f_flag & os.ST_RDONLY:
        return True
    return status.st_uid == os.geteuid() and not os.access(path, os.W_OK)


def _status(path: Path, name: str) -> os.stat_result | None:
    try:
        with failures(name):
            return os.lstat(path)
    except ToolFailure as failure:
        if isinstance(failure.__cause__, FileNotFoundError | NotADirectoryError):
            return None
        raise


def _temporary(directory: Path) -> Path:
    return directory / f".toolcell-{os.urandom(8).hex()}.tmp"


@dataclass(frozen=True, slots=True)
class _Metadata:
    mode: int
    attributes: dict[str, bytes]


def _kept(file: FileChange) -> _Metadata | None:
    """The mode and the extended attributes that the written file takes over. The kernel assigns those of `security`."""
    source = file.like or file.target
    status = _status(source, file.name)
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    with failures(file.name):
        try:
            names = os.listxattr(source, follow_symlinks=False)
        except OSError as error:
            if error.errno != errno.ENOTSUP:
                raise
            names = []
        kept = [name for name in names if not name.startswith("security.")]
        return _Metadata(_mode(status, file.executable), {name: os.getxattr(source, name) for name in kept})


def _staged(file: FileChange, metadata: _Metadata | None, undo: ExitStack) -> Path:
    """Write the content to a temporary file beside the target."""
    temporary = _temporary(file.target.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with failures(file.name):
        make_directories(file.target.parent, undo)
        descriptor = os.open(temporary, flags, 0o777 if file.executable else 0o666)  # the umask applies
        undo.callback(temporary.unlink, missing_ok=True)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(file.data or b"")
            if metadata is not None:
                _set_attributes(descriptor, metadata.attributes, file.name)
                os.fchmod(descriptor, metadata.mode)
    return temporary


def _mode(status: os.stat_result, executable: bool | None) -> int:
    mode = stat.S_IMODE(status.st_mode) & ~(stat.S_ISUID | stat.S_ISGID)  # a write clears them too, inode(7)
    if executable is None:
        return mode
    return mode | (mode & 0o444) >> 2 if executable else mode & ~0o111


def _set_attributes(descriptor: int, attributes: dict[str, bytes], name: str) -> None:
    for attribute, value in attributes.items():
        try:
            os.setxattr(descriptor, attribute, value)
        except OSError as error:
            raise ToolFailure(
                f"{name!r} has the extended attribute {attribute!r}, which cannot be kept here"
            ) from error


def _put(file: FileChange, temporary: Path, undo: ExitStack, tidy: ExitStack, *, alone: bool) -> None:
    """Rename the temporary file to the target, and keep the file that was there until all is done."""
    with failures(file.name):
        if not alone and os.path.lexists(file.target):
            backup = _temporary(file.target.parent)
            undo.callback(backup.unlink, missing_ok=True)
            try:
                os.link(file.target, backup)  # the target is never missing
            except OSError:  # a file system without hard links
                os.rename(file.target, backup)
            undo.callback(os.rename, backup, file.target)
            tidy.callback(backup.unlink, missing_ok=True)
        elif not alone:
            undo.callback(file.target.unlink, missing_ok=True)
        os.rename(temporary, file.target)


def _set_aside(file: FileChange, written: set[Path], undo: ExitStack, tidy: ExitStack) -> None:
    """Rename a file that is removed. It is deleted when all is done.

    If a write takes the place of one of its directories, these are removed too.
    """
    above = _above(file.target, written)
    backup = _temporary((above or file.target).parent)
    with failures(file.name):
        os.rename(file.target, backup)
    undo.callback(os.rename, backup, file.target)
    tidy.callback(backup.unlink, missing_ok=True)
    if above is not None:
        _prune(file.target.parent, above.parent, undo)


def _prune(directory: Path, below: Path, undo: ExitStack | None = None) -> None:
    """Remove the directory if it is empty, and those above it, up to `below`."""
    while below in directory.parents:
        mode = stat.S_IMODE(os.lstat(directory).st_mode) if directory.is_dir() else 0o777
        try:
            directory.rmdir()
        except OSError as error:
            if error.errno == errno.ENOENT:
                directory = directory.parent
                continue
            return  # not empty, or not ours to remove
        if undo is not None:
            undo.callback(directory.mkdir, mode)
        directory = directory.parent


def make_directories(directory: Path, undo: ExitStack | None = None) -> None:
    """Make a directory and the missing ones above it."""
    missing = [each for each in (directory, *directory.parents) if not os.path.lexists(each)]
    try:
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            if undo is not None:
                undo.callback(each.rmdir)
        directory.mkdir(exist_ok=True)
    except FileExistsError as error:  # a part of the path is a file; EEXIST would not tell
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error
