"""Facts that a look records about the paths of a tree, and when two of them count as unchanged."""

import hashlib
import os
import stat
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from . import walker

RACY_NS = 20_000_000  # the kernel's coarse clock ticks every 1 to 10 ms
DIGEST_BYTES = 1024 * 1024  # a larger file is not put back: without a digest, changes cannot be ruled out
COARSE_NS = 2_100_000_000  # change times count seconds on ext4 with 128-byte inodes, and two seconds on FAT
NAME_CHARS = 128
"""The most characters of an escaped name in a text for a model."""


class Facts(NamedTuple):
    """What lstat(2) says of an entry that may have changed."""

    device: int
    inode: int
    mode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, info: os.stat_result) -> "Facts":
        """The facts in a result of lstat(2)."""
        return cls(info.st_dev, info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


Names = tuple[str | None, ...]
"""For each vocabulary of a tree, the name that protects a path: "" for none, None if the vocabulary ends above it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A protected path at the time of a look: the names that protect it, and lstat(2)'s facts."""

    names: Names
    device: int
    inode: int
    mode: int
    size: int
    changed_ns: int
    racy: bool  # the change time was so fresh that a later change may have the same one
    digest: bytes  # of a file's content or a link's target; b"" if unknown

    @property
    def name(self) -> str:
        """The first of the names."""
        return next(name for name in self.names if name)


Found = dict[str, Seen]
"""The protected paths of a tree, relative to its root, with all paths below a protected directory."""


@dataclass(slots=True)
class Look:
    """The findings of one look at a tree. `unknown` gives the reason if the look is incomplete, else ""."""

    taken_ns: int
    vocabularies: int = 0  # the number of vocabularies that it looked for
    found: Found = field(default_factory=dict[str, Seen])
    unknown: str = ""
    doubt: str = ""  # the reason if a change of a found file may not show
    root: tuple[int, int] | None = None  # device and inode of the root; None without a root
    closed: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])  # inaccessible, of other users
    repositories: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """The directories that git would use as repositories: device and inode by path."""
    complete: set[str] = field(default_factory=set[str])
    """The repositories that have the content of one, not only the name `.git`."""
    harmful: set[str] = field(default_factory=set[str])
    """Parts that were harmful before the call, of repositories that earlier calls made. This call did not make them."""
    settings: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """The git settings of repositories that calls made, by path."""
    elsewhere: dict[int, str] = field(default_factory=dict[int, str])
    """By inode of a found path: the path where a later look met it. Looks list a changed directory only once."""

    def is_before(self, changed_ns: int) -> bool:
        """Whether a change with this change time may be later than the look, at the resolution of the file system."""
        return changed_ns >= self.taken_ns - tick_of(changed_ns)

    def learn(self, now: "Look") -> None:
        """Add unchanged paths of a later look that are protected only by vocabularies that are new in it."""
        for path, seen in now.found.items():
            if not any(seen.names[: self.vocabularies]) and not self.is_before(seen.changed_ns):
                self.found.setdefault(path, seen)
        self.vocabularies = max(self.vocabularies, now.vocabularies)

    def as_in(self, before: "Look") -> "Look":
        """A copy of this look with only the paths that are unchanged since `before`."""
        same = {path: seen for path, seen in self.found.items() if path in before.found}
        return replace(self, found={path: seen for path, seen in same.items() if as_before(seen, before.found[path])})


def facts_of(info: os.stat_result) -> tuple[int, int, int, int, int]:
    return info.st_dev, info.st_ino, info.st_mode, info.st_size, info.st_ctime_ns


def tick_of(changed_ns: int) -> int:
    """The age in ns from which a change time is reliable; 2.1 s if the file system may keep whole seconds."""
    return RACY_NS if changed_ns % 1_000_000_000 else COARSE_NS


def is_racy(info: os.stat_result) -> bool:
    """Whether the change time is so fresh that a later change may have the same one."""
    return info.st_ctime_ns > time.time_ns() - tick_of(info.st_ctime_ns)


def digest_of(name: str, parent: int, info: os.stat_result) -> bytes:
    """The digest of a file's content or a link's target, else of the file type; b"" if it is gone or denies access."""
    try:
        held = walker.entry(name, parent)
    except OSError:
        return b""
    try:
        if stat.S_ISREG(info.st_mode):
            raw = walker.content(held, info.st_size + 1)
        elif stat.S_ISLNK(info.st_mode):
            raw = walker.target(held)
        else:
            raw = b"%d" % info.st_mode
    except OSError:
        return b""
    finally:
        os.close(held)
    return hashlib.blake2b(raw, digest_size=16).digest()


def protect(names: Names, active: Collection[int]) -> bool:
    """Whether one of the active vocabularies protects it."""
    return any(names[index] for index in active if index < len(names))


def is_same_inode(seen: Seen, other: Seen | None) -> bool:
    return other is not None and (seen.device, seen.inode) == (other.device, other.inode)


def as_before(seen: Seen, was: Seen) -> bool:
    """Whether the path is unchanged. The entries of a directory are compared separately."""
    if not is_same_inode(seen, was):
        return False
    if stat.S_ISDIR(seen.mode) and stat.S_ISDIR(was.mode):
        return True
    facts = seen.mode, seen.size, seen.changed_ns
    return facts == (was.mode, was.size, was.changed_ns) and (
        not was.racy or not was.digest or not seen.digest or seen.digest == was.digest  # see `Look.doubt`
    )


def is_as(info: os.stat_result, was: Seen) -> bool:
    """Whether the inode is unchanged; for a directory, whether it is the same inode."""
    if (info.st_dev, info.st_ino) != (was.device, was.inode):
        return False
    return stat.S_ISDIR(info.st_mode) or facts_of(info) == (was.device, was.inode, was.mode, was.size, was.changed_ns)


def doubt_about(path: str) -> str:
    """The reason why a change of this file may not show."""
    return f"a change to a file that was just written may go unnoticed, because it could not be read: {shown(path)}"


def said(error: OSError, path: str = "") -> str:
    where = f": {shown(path)}" if path else ""
    return f"{error.strerror or 'it cannot be read'}{where}"


def shown(path: str) -> str:
    """A path from a program: in quotes, escaped, at most `NAME_CHARS` characters."""
    text = ascii(path)
    return text if len(text) <= NAME_CHARS + 2 else f"{text[: NAME_CHARS - 32]}…{text[-33:]}"
