"""List a tree that other processes may change, and digest its files. Follows no link and opens no device."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from toolcell_sandbox.trees import walker
from toolcell_sandbox.trees.facts import Facts, is_racy, said
from toolcell_sandbox.trees.walker import Budget, Cut, Root

from .exclusions import Exclusions, ignored_by
from .manifest import SentEntry, is_sound

__all__ = ["MOST_LISTED", "DigestCache", "LeftEntry", "TreeListing", "UnstableFile", "digested", "facts_of", "listed"]

MIB: Final = 1024 * 1024
MOST_LISTED: Final = 1_000
"""The most entries that are named with the reason why they were left out."""
MOST_IGNORES, IGNORE_BYTES = 200, 64 * 1024
MAX_TARGET: Final = 4_096
MAX_CACHED: Final = 200_000

LeftEntry = tuple[str, str]
"""A path, and why it was left out."""


class UnstableFile(Exception):
    """A file changed while it was read."""


@dataclass(slots=True)
class TreeListing:
    """The entries of a tree. `cut` is the reason why a part of the tree is unknown, "" if none is. If it is set, a path
    may exist without being listed. `unread` are the directories that could not be listed."""

    facts: dict[str, Facts] = field(default_factory=dict[str, Facts])
    left_out: list[LeftEntry] = field(default_factory=list[LeftEntry])
    left_count: int = 0
    excluded: int = 0
    unread: set[str] = field(default_factory=set[str])
    cut: str = ""
    exclusions: Exclusions = field(default_factory=lambda: Exclusions([]))

    def leave_out(self, path: str, why: str) -> None:
        """Note an entry that is not a part of the listing."""
        self.left_count += 1
        if len(self.left_out) < MOST_LISTED:
            self.left_out.append((path, why))

    @property
    def total_bytes(self) -> int:
        """The sum of the sizes of the files."""
        return sum(each.size for each in self.facts.values() if stat.S_ISREG(each.mode))

    def knows(self, path: str) -> bool:
        """Whether the listing would have the path if it existed."""
        parts = path.split("/")
        return not self.cut and not any("/".join(parts[:count]) in self.unread for count in range(len(parts)))


def facts_of(info: os.stat_result) -> Facts:
    """The metadata that shows whether a file has changed."""
    return Facts(info.st_dev, info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def listed(
    root: Root, exclusions: Exclusions, *, most: int, seconds: float, ignores: bool = False, opens: bool = False
) -> TreeListing:
    """List a tree, for at most `most` entries and `seconds` seconds. `ignores`: obey `.gitignore` files. `opens`:
    change the permissions of our own directories that deny access. Raises OSError if the root cannot be listed."""
    found = TreeListing(exclusions=exclusions)
    budget = Budget(directories=most + 1, entries=most + 256, seconds=seconds)
    ignored: list[tuple[str, tuple[str, ...]]] = []
    todo = [""]
    try:
        while todo:
            path = todo.pop()
            budget.spend("directories")
            try:
                fd = _opened(root, path, opens=opens)
            except OSError as error:
                if not path:
                    raise
                found.unread.add(path)
                found.facts.pop(path, None)
                found.leave_out(path, said(error))
                continue
            try:
                if ignores and len(ignored) < MOST_IGNORES and (lines := _ignore_file(fd)):
                    ignored.append((path, lines))
                    found.exclusions = exclusions.after(ignored)
                todo += _entries(found, path, fd, budget)
            finally:
                os.close(fd)
            if len(found.facts) > most:
                raise Cut(f"it has more than {most:,} entries")
    except Cut as cut:
        found.cut = str(cut)
    return found


def _opened(root: Root, path: str, *, opens: bool) -> int:
    try:
        return root.open(path, walker.LIST)
    except PermissionError:
        if not opens or not path:
            raise
    parent = root.parent(path)
    try:
        walker.open_up(os.path.basename(path), parent)
    finally:
        os.close(parent)
    return root.open(path, walker.LIST)


def _entries(found: TreeListing, path: str, fd: int, budget: Budget) -> list[str]:
    """Add the entries of one directory. Returns the directories among them."""
    below: list[str] = []
    with os.scandir(fd) as scan:
        for each in scan:
            budget.entry()
            name = f"{path}/{each.name}" if path else each.name
            try:
                info = each.stat(follow_symlinks=False)
            except OSError:
                continue  # it has gone meanwhile
            is_directory = stat.S_ISDIR(info.st_mode)
            if found.exclusions.excludes(name, is_directory=is_directory):
                found.excluded += 1
                continue
            if not is_sound(name):
                found.leave_out(name[:200], "its path is too long or too deep")
                found.unread.add(name)
                continue
            if not (is_directory or stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
                found.leave_out(name, "it is neither a file, a directory nor a link")
                continue
            found.facts[name] = facts_of(info)
            if is_directory:
                below.append(name)
    return below


def _ignore_file(fd: int) -> tuple[str, ...]:
    """The patterns of the `.gitignore` in an open directory."""
    try:
        held = walker.entry(".gitignore", fd)
    except OSError:
        return ()
    try:
        raw = walker.content(held, IGNORE_BYTES)
    except OSError:
        return ()
    finally:
        os.close(held)
    return ignored_by(raw.decode("utf-8", "surrogateescape"))


class DigestCache:
    """The digests of files by their facts, so that an unchanged file is not read again. Not thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[Facts, bytes] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, facts: Facts) -> bytes | None:
        return self._kept.get(facts)

    def keep(self, facts: Facts, info: os.stat_result, digest: bytes) -> None:
        """Keep a digest, unless a later change may leave the facts as they are."""
        if not is_racy(info):
            if len(self._kept) >= MAX_CACHED:
                self._kept.clear()
            self._kept[facts] = digest


def digested(
    root: Root,
    path: str,
    facts: Facts,
    sink: Callable[[bytes], object] | None = None,
    cache: DigestCache | None = None,
    *,
    opens: bool = False,
) -> SentEntry:
    """The entry at a path of a listing. `sink` gets the content of a file in pieces. `opens`: change the permissions of
    our own file that denies access. Raises UnstableFile if the entry has changed since the listing, and OSError."""
    mode = facts.mode & 0o777
    if stat.S_ISDIR(facts.mode):
        return SentEntry(path, "directory", mode)
    known = cache.of(facts) if cache is not None and sink is None else None
    if known is not None:
        return SentEntry(path, "file", mode, facts.size, known, facts.modified_ns)
    held = root.open(path, walker.ENTRY)
    try:
        if facts_of(os.fstat(held)) != facts:
            raise UnstableFile(path)
        if stat.S_ISLNK(facts.mode):
            return SentEntry(path, "link", 0, 0, walker.target(held)[:MAX_TARGET])
        fd, now = _open_file(held, facts, opens=opens)
        try:
            digest = _read(fd, path, facts.size, sink)
        finally:
            os.close(fd)
        info = os.fstat(held)
        if facts_of(info) != now:
            raise UnstableFile(path)
    finally:
        os.close(held)
    if cache is not None:
        cache.keep(facts, info, digest)
    return SentEntry(path, "file", mode, facts.size, digest, facts.modified_ns)


def _open_file(held: int, facts: Facts, *, opens: bool) -> tuple[int, Facts]:
    """Open a held file for reading. Returns its facts too, which differ if its permissions had to be changed."""
    try:
        return walker.readable(held), facts
    except PermissionError:
        if not opens or os.fstat(held).st_uid != os.geteuid():
            raise
    os.chmod(f"/proc/self/fd/{held}", 0o600 | facts.mode & 0o777)
    now = facts_of(os.fstat(held))
    if now._replace(mode=facts.mode, changed_ns=facts.changed_ns) != facts:
        raise UnstableFile("its facts changed while it was opened")
    return walker.readable(held), now


def _read(fd: int, path: str, size: int, sink: Callable[[bytes], object] | None) -> bytes:
    """The digest of an open file of this size."""
    digest, left = sha256(), size
    while left > 0:
        try:
            piece = os.read(fd, min(MIB, left))
        except BlockingIOError as error:  # another process has a lease on it
            raise UnstableFile(path) from error
        if not piece:
            raise UnstableFile(path)
        left -= len(piece)
        digest.update(piece)
        if sink is not None:
            sink(piece)
    return digest.digest()
