"""The workspace handles: reading and writing files below one root, by relative path."""

import builtins
import errno
import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from .artifact import Artifact, ArtifactLog
from .capability import Capability
from .failures import MissingCapability, ProtectedName, ToolFailure
from .paths import failure_of, relative, resolved

__all__ = ["DeniedWorkspace", "Entry", "WorkspaceReader", "WorkspaceWriter"]

StrPath = str | os.PathLike[str]
Protects = Callable[[str, bool], str]
"""Maps an absolute path, and whether a directory is meant, to the protected name that covers it, or to ""."""
GLOB_MATCHES = 10_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One directory entry. `kind` is "file", "directory", "link" or "other". `size` is in bytes, for files."""

    path: str
    kind: str
    size: int | None = None


class _Rooted:
    def __init__(self, root: StrPath) -> None:
        self._given = root

    @cached_property
    def root(self) -> Path:
        """The real path of the workspace, resolved at its first use: most calls never need it."""
        return Path(os.path.realpath(self._given))

    def resolve(self, path: StrPath) -> Path:
        """The real, absolute path that `path` names. Raises ToolFailure unless it lies in the workspace."""
        return resolved(self.root, path)


class WorkspaceReader(_Rooted):
    """Reads below `root`. Every method takes a path relative to `root`, and raises ToolFailure with the reason."""

    def open(self, path: StrPath) -> BinaryIO:
        """A regular file, open for reading bytes. Anything else (a directory, a FIFO, a device) is refused."""
        with _failures(path):
            # O_NONBLOCK: without it, opening a FIFO that has no writer would wait for ever.
            descriptor = os.open(self.resolve(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                _refuse_irregular(os.fstat(descriptor), path)
                return os.fdopen(descriptor, "rb")
            except BaseException:
                os.close(descriptor)
                raise

    def read_bytes(self, path: StrPath) -> bytes:
        """The bytes of a whole file."""
        with _failures(path), self.open(path) as file:
            return file.read()

    def read_text(self, path: StrPath) -> str:
        """The text of a whole UTF-8 file, newlines unchanged."""
        try:
            return self.read_bytes(path).decode()
        except UnicodeDecodeError as failure:
            raise ToolFailure(f"{os.fspath(path)!r} is not UTF-8 text (byte {failure.start:,})") from failure

    def exists(self, path: StrPath) -> bool:
        """Whether there is anything at `path`."""
        return self.resolve(path).exists()

    def list(self, path: StrPath = ".") -> builtins.list[Entry]:
        """The entries of a directory, sorted by name."""
        with _failures(path), os.scandir(self.resolve(path)) as entries:
            found = [_entry(self.root, entry) for entry in entries]
        return sorted(found, key=lambda entry: entry.path)

    def glob(self, pattern: str) -> builtins.list[str]:
        """The paths that match, sorted. `**` matches any depth. Raises ToolFailure for more than 10,000 paths."""
        root = self.resolve(".")
        if pattern.startswith("/") or ".." in pattern.split("/") or "\0" in pattern or not pattern:
            raise ToolFailure(f"{pattern!r} is not a pattern below the workspace root, such as 'src/**/*.py'")
        with _failures(pattern):
            try:
                matches = builtins.list(islice(root.glob(pattern), GLOB_MATCHES + 1))
            except ValueError as failure:
                raise ToolFailure(f"{pattern!r} is not a valid pattern: {failure}") from failure
        if len(matches) > GLOB_MATCHES:
            raise ToolFailure(f"{pattern!r} matches more than {GLOB_MATCHES:,} paths; narrow it")
        return sorted(relative(root, match) for match in matches if self._inside(match))

    def _inside(self, match: Path) -> bool:
        try:
            self.resolve(match)
        except ToolFailure:
            return False
        return True


class DeniedWorkspace(WorkspaceReader):
    """The value of `ctx.workspace` if READ was not granted: every method raises MissingCapability."""

    def resolve(self, path: StrPath) -> Path:
        raise MissingCapability(Capability.READ)


class WorkspaceWriter(_Rooted):
    """Writes below `root`. `artifacts` has one entry for each changed path, in order.

    A path for which `protects` returns a name raises ProtectedName before anything changes.
    """

    def __init__(self, root: StrPath, protects: Protects | None = None) -> None:
        super().__init__(root)
        self._protects = protects
        self._log = ArtifactLog()

    @property
    def artifacts(self) -> list[Artifact]:
        return self._log.artifacts

    def write_text(self, path: StrPath, text: str) -> Artifact:
        """Make or replace a UTF-8 file with exactly `text`."""
        try:
            return self.write_bytes(path, text.encode())
        except UnicodeEncodeError as failure:
            raise ToolFailure(f"the text has a lone surrogate at character {failure.start}; remove it") from failure

    def write_bytes(self, path: StrPath, data: bytes) -> Artifact:
        """Make or replace a file atomically: readers see the old content or the new, never a part.

        Missing directories are made. An existing file keeps its mode. A symlink inside the workspace is followed.
        """
        from hashlib import sha256

        target = self._file(path)
        with _failures(path):
            _make_directories(target.parent)
            mode = _mode_of(target, path)
            _replace_content(target, data, mode)
        kind = "created" if mode is None else "modified"
        return self._note(target, kind, f"sha256:{sha256(data).hexdigest()}", len(data))

    def replace(self, source: StrPath, target: StrPath) -> Artifact:
        """Move a file to `target`. A file that is there is replaced."""
        old, new = self._file(source), self._file(target)
        with _failures(source):
            _refuse_irregular(os.lstat(old), source)
        with _failures(target):
            _make_directories(new.parent)
            kind = "created" if _mode_of(new, target) is None else "modified"
            os.replace(old, new)
        self._note(old, "deleted")
        return self._note(new, kind, size=new.stat().st_size)

    def unlink(self, path: StrPath) -> Artifact:
        """Remove a file or a symlink. The target of a symlink stays."""
        parent, name = os.path.split(os.fspath(path).rstrip("/"))
        target = self.resolve(parent or ".") / name
        if name in {"", ".", ".."}:
            raise ToolFailure(f"{os.fspath(path)!r} is a directory; only files can be removed")
        self._refuse_protected(path, target)
        with _failures(path):
            target.unlink()
        return self._note(target, "deleted")

    def mkdir(self, path: StrPath) -> None:
        """Make a directory and its missing parents. An existing directory is no error."""
        target = self.resolve(path)
        self._refuse_protected(path, target, directory=True)
        with _failures(path):
            _make_directories(target)

    def check(self, path: StrPath) -> None:
        """Raise the error that a write to `path` would raise because of its name, without writing."""
        self._file(path)

    def _file(self, path: StrPath) -> Path:
        target = self.resolve(path)
        if target == self.root or os.fspath(path).endswith("/"):
            raise ToolFailure(f"{os.fspath(path)!r} is a directory; name a file")
        self._refuse_protected(path, target)
        return target

    def _refuse_protected(self, path: StrPath, target: Path, *, directory: bool = False) -> None:
        """Raise ProtectedName if the path as written, or the path that its links lead to, is protected."""
        if self._protects is None:
            return
        for each in (os.path.normpath(self.root / path), str(target)):
            name = self._protects(each, directory)
            if name:
                raise ProtectedName(os.fspath(path), name)

    def _note(self, target: Path, kind: str, digest: str | None = None, size: int | None = None) -> Artifact:
        return self._log.record(Artifact(relative(self.root, target), kind, digest, size))


@contextmanager
def _failures(path: StrPath) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise failure_of(error, os.fspath(path)) from error


def _make_directories(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # a parent is a file; EEXIST would not tell
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error


def _refuse_irregular(status: os.stat_result, path: StrPath) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ToolFailure(f"{os.fspath(path)!r} is a directory; name a file")
    if not stat.S_ISREG(status.st_mode):
        raise ToolFailure(f"{os.fspath(path)!r} is not a regular file")


def _mode_of(target: Path, path: StrPath) -> int | None:
    """The permission bits of the regular file at `target`, or None if nothing is there. Anything else is refused."""
    try:
        status = os.lstat(target)
    except FileNotFoundError:
        return None
    _refuse_irregular(status, path)
    return stat.S_IMODE(status.st_mode)


def _replace_content(target: Path, data: bytes, mode: int | None) -> None:
    temporary = target.parent / f".toolcell-{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o666)  # the umask applies
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
        os.rename(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _entry(root: Path, entry: os.DirEntry[str]) -> Entry:
    path = relative(root, Path(entry.path))
    if entry.is_symlink():
        return Entry(path, "link")
    if entry.is_dir(follow_symlinks=False):
        return Entry(path, "directory")
    if entry.is_file(follow_symlinks=False):
        return Entry(path, "file", entry.stat(follow_symlinks=False).st_size)
    return Entry(path, "other")
