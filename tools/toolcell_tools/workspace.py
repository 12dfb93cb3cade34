"""The workspace handles: reading and writing files below one root, by relative path."""

import builtins
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from .artifact import Artifact, ArtifactLog, digest_of
from .capability import Capability
from .failures import MissingCapability, ProtectedName, ToolFailure
from .file_changes import FileChange, commit, make_directories, refuse_irregular
from .paths import failures, relative, resolved
from .text_file import model_text

__all__ = ["DeniedWorkspace", "Entry", "FileChange", "WorkspaceReader", "WorkspaceWriter"]

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
        with failures(path):
            # O_NONBLOCK: without it, opening a FIFO that has no writer would wait for ever.
            descriptor = os.open(self.resolve(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                refuse_irregular(os.fstat(descriptor), path)
                return os.fdopen(descriptor, "rb")
            except BaseException:
                os.close(descriptor)
                raise

    def read_bytes(self, path: StrPath) -> bytes:
        """The bytes of a whole file."""
        with failures(path), self.open(path) as file:
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
        with failures(path), os.scandir(self.resolve(path)) as entries:
            found = [_entry(self.root, entry) for entry in entries]
        return sorted(found, key=lambda entry: entry.path)

    def glob(self, pattern: str) -> builtins.list[str]:
        """The paths that match, sorted. `**` matches any depth. Raises ToolFailure for more than 10,000 paths."""
        root = self.resolve(".")
        if pattern.startswith("/") or ".." in pattern.split("/") or "\0" in pattern or not pattern:
            raise ToolFailure(f"{pattern!r} is not a pattern below the workspace root, such as 'src/**/*.py'")
        with failures(pattern):
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
        return self.write_bytes(path, model_text(text, "the text").encode())

    def write_bytes(self, path: StrPath, data: bytes) -> Artifact:
        """Make or replace a file atomically: readers see the old content or the new, never a part.

        Missing directories are made. An existing file keeps its mode, without set-ID bits, and its extended attributes.
        A symlink inside the workspace is followed. A read-only file and a hard link are refused.
        """
        return self.change([FileChange(os.fspath(path), data)])[0]

    def change(self, changes: Sequence[FileChange], *, prune: bool = False) -> list[Artifact]:
        """Make, replace and remove several files: all of them, or none. Each path is named once.

        With `prune`, directories that a removal leaves empty are removed too.
        """
        planned = [self._resolved(change) for change in changes]
        made = [not os.path.lexists(file.target) for file in planned]
        commit(planned, prune_below=self.root if prune else None)
        return [self._noted(file, new) for file, new in zip(planned, made, strict=True)]

    def _resolved(self, change: FileChange) -> FileChange:
        target = self._entry(change.name) if change.data is None else self._file(change.name)
        return replace(change, target=target, like=None if change.like is None else self.resolve(change.like))

    def _noted(self, file: FileChange, new: bool) -> Artifact:
        if file.data is None:
            return self._note(file.target, "deleted")
        return self._note(file.target, "created" if new else "modified", digest_of(file.data), len(file.data))

    def replace(self, source: StrPath, target: StrPath) -> Artifact:
        """Move a file to `target`. A file that is there is replaced."""
        old, new = self._file(source), self._file(target)
        with failures(source):
            refuse_irregular(os.lstat(old), source)
        with failures(target):
            make_directories(new.parent)
            kind = "modified" if os.path.lexists(new) else "created"
            if kind == "modified":
                refuse_irregular(os.lstat(new), target)
            os.replace(old, new)
        self._note(old, "deleted")
        return self._note(new, kind, size=new.stat().st_size)

    def unlink(self, path: StrPath) -> Artifact:
        """Remove a file or a symlink. The target of a symlink stays."""
        target = self._entry(path)
        with failures(path):
            target.unlink()
        return self._note(target, "deleted")

    def _entry(self, path: StrPath) -> Path:
        """The path of a file or of a symlink itself."""
        parent, name = os.path.split(os.fspath(path).rstrip("/"))
        target = self.resolve(parent or ".") / name
        if name in {"", ".", ".."}:
            raise ToolFailure(f"{os.fspath(path)!r} is a directory; only files can be removed")
        self._refuse_protected(path, target)
        return target

    def mkdir(self, path: StrPath) -> None:
        """Make a directory and its missing parents. An existing directory is no error."""
        target = self.resolve(path)
        self._refuse_protected(path, target, directory=True)
        with failures(path):
            make_directories(target)

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
        for each in dict.fromkeys((os.path.normpath(self.root / path), str(target))):
            name = self._protects(each, directory)
            if name:
                raise ProtectedName(os.fspath(path), name)

    def _note(self, target: Path, kind: str, digest: str | None = None, size: int | None = None) -> Artifact:
        return self._log.record(Artifact(relative(self.root, target), kind, digest, size))


def _entry(root: Path, entry: os.DirEntry[str]) -> Entry:
    path = relative(root, Path(entry.path))
    if entry.is_symlink():
        return Entry(path, "link")
    if entry.is_dir(follow_symlinks=False):
        return Entry(path, "directory")
    if entry.is_file(follow_symlinks=False):
        return Entry(path, "file", entry.stat(follow_symlinks=False).st_size)
    return Entry(path, "other")
