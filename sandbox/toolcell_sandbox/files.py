"""Which files of a tree have changed between two looks at it. A look holds the content of small files, for a diff.

A look costs one stat(2) for each file. The content of an unchanged file is taken from the look before, as in git's
index. Nothing follows a link, and nothing below a directory of `SKIPPED` is looked at.
"""

import hashlib
import os
import stat
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal

from . import walker
from .seen import facts_of, is_racy, said, shown
from .walker import MIB, Budget, Cut, Root

KEPT_BYTES = 32 * 1024
"""The largest file whose content a look holds."""
DIGEST_BYTES = 16 * MIB
"""The largest file of which a digest is made, and the most bytes of all such files of one comparison."""
MAX_DEPTH = 64
SKIPPED = frozenset({".git", ".hg", ".toolcell", "__pycache__", "node_modules"})


@dataclass(frozen=True, slots=True)
class FileState:
    """A regular file at the time of a look: lstat(2)'s facts, and its content if it is small."""

    facts: tuple[int, int, int, int, int]
    racy: bool  # the change time was so fresh that a later change may have the same one
    raw: bytes | None

    def is_as(self, other: "FileState") -> bool:
        if self.facts != other.facts:
            return False
        return not other.racy or self.raw is None or other.raw is None or self.raw == other.raw


@dataclass(slots=True)
class FilesLook:
    """The files of a tree by path. `unknown` gives the reason if the look is incomplete, else ""."""

    files: dict[str, FileState] = field(default_factory=dict[str, FileState])
    unknown: str = ""
    ended: float = field(default=0.0, compare=False)
    """When it was complete, by time.monotonic()."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One file that differs. `before` and `after` are its contents, None if unknown or if there was none."""

    path: str
    kind: Literal["created", "modified", "deleted"]
    size: int | None = None
    digest: str | None = None
    before: bytes | None = None
    after: bytes | None = None


def look_at_files(root: str, before: FilesLook | None = None, seconds: float = 5.0) -> FilesLook:
    """Look at all regular files below `root`: at most 200,000 entries, 16 MiB of content and `seconds`."""
    look = FilesLook()
    known = before.files if before is not None else {}
    budget = Budget(entries=200_000, content_bytes=16 * MIB, seconds=seconds)
    try:
        with Root(root) as top, closing(_files(top, budget, look)) as found:
            for path, name, parent in found:
                try:
                    info = os.stat(name, dir_fd=parent, follow_symlinks=False)
                    if stat.S_ISREG(info.st_mode):
                        look.files[path] = _state(name, parent, info, known.get(path), budget)
                except FileNotFoundError:
                    continue
    except Cut as cut:
        look.unknown = str(cut)
    except OSError as error:
        look.unknown = said(error)
    look.ended = time.monotonic()
    return look


def changes_of(root: str, before: FilesLook, after: FilesLook, most: int) -> tuple[list[ChangedFile], int]:
    """The first `most` changes between two looks, by path, and the number of all. What a look did not see is neither
    created nor deleted.
    """
    changed = [path for path, now in after.files.items() if (was := before.files.get(path)) and not now.is_as(was)]
    made = [] if before.unknown else [path for path in after.files if path not in before.files]
    gone = [] if after.unknown else [path for path in before.files if path not in after.files]
    paths = sorted([*changed, *made, *gone])
    left, found = DIGEST_BYTES, list[ChangedFile]()
    for path in paths[:most]:
        was, now = before.files.get(path), after.files.get(path)
        if now is None:
            found.append(ChangedFile(path, "deleted", before=was.raw if was else None))
            continue
        size, raw = now.facts[3], now.raw
        if raw is None and size <= left:
            raw = _content(root, path, size)
            left -= size
        digest = None if raw is None else f"sha256:{hashlib.sha256(raw).hexdigest()}"
        kind: Literal["created", "modified"] = "created" if was is None else "modified"
        found.append(ChangedFile(path, kind, size, digest, was.raw if was else None, now.raw))
    return found, len(paths)


def _files(top: Root, budget: Budget, look: FilesLook) -> Generator[tuple[str, str, int]]:
    """Path, name and parent of each entry that is a file, the directories depth first."""
    todo = [("", 0)]
    while todo:
        path, depth = todo.pop()
        budget.spend("directories")
        try:
            fd = top.open(path, walker.LIST)
        except FileNotFoundError:
            continue
        except OSError as error:
            look.unknown = look.unknown or said(error, path)
            continue
        try:
            with os.scandir(fd) as scan:
                for each in scan:
                    budget.entry()
                    below = f"{path}/{each.name}" if path else each.name
                    if each.is_file(follow_symlinks=False):
                        yield below, each.name, fd
                    elif each.is_dir(follow_symlinks=False) and each.name not in SKIPPED:
                        if depth < MAX_DEPTH:
                            budget.spend("bytes of paths", len(below))
                            todo.append((below, depth + 1))
                        else:
                            look.unknown = look.unknown or f"a directory is too deep: {shown(below)}"
        finally:
            os.close(fd)


def _state(name: str, parent: int, info: os.stat_result, known: FileState | None, budget: Budget) -> FileState:
    facts, racy, raw = facts_of(info), is_racy(info), None
    if info.st_size <= KEPT_BYTES and budget.may_read(info):
        if known is not None and not known.racy and known.facts == facts and known.raw is not None:
            return known
        try:
            held = walker.entry(name, parent)
            try:
                raw = walker.content(held, KEPT_BYTES + 1)
            finally:
                os.close(held)
        except FileNotFoundError:
            raise
        except OSError:  # it denies access, or was swapped for something else
            raw = None
        if raw is not None and len(raw) != info.st_size:
            raw = None  # it changes meanwhile
    return FileState(facts, racy, raw)


def _content(root: str, path: str, size: int) -> bytes | None:
    """The content of a file of `size` bytes, or None if it cannot be read or has changed."""
    try:
        with Root(root) as top:
            held = top.open(path, walker.ENTRY)
            try:
                raw = walker.content(held, size + 1)
            finally:
                os.close(held)
    except OSError:
        return None
    return raw if len(raw) == size else None
