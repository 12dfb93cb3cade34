"""Facts that a look records about protected paths, and when two of them count as unchanged."""

import hashlib
import os
import stat
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from . import walker

RACY_NS = 20_000_000  # the kernel's coarse clock ticks every 1 to 10 ms
DIGEST_BYTES = 1024 * 1024  # a larger file is not put back, since nobody could tell that it is what it was
COARSE_NS = 2_100_000_000  # ext4 with inodes of 128 bytes keeps seconds, FAT two of them
NAME_CHARS = 128
"""Characters of a name that a model reads, once it is escaped."""

Names = tuple[str | None, ...]
"""For each vocabulary of a tree, the name that protects a path: "" for none, None where it does not hold."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was at a protected path: the names that protect it, and lstat's facts."""

    names: Names
    device: int
    inode: int
    mode: int
    size: int
    changed_ns: int
    racy: bool  # it was so fresh that another change may not have changed the change time
    digest: bytes  # of a file's content or a link's target; b"" where it is not known

    @property
    def name(self) -> str:
        """The first of the names."""
        return next(name for name in self.names if name)


Found = dict[str, Seen]
"""Every protected path of a tree, relative to its root, with all that is below a protected directory."""


@dataclass(slots=True)
class Look:
    """The findings of one look at a tree. `unknown` says why it is incomplete; "" if it is complete."""

    taken_ns: int
    vocabularies: int = 0  # how many it looked for
    found: Found = field(default_factory=dict[str, Seen])
    unknown: str = ""
    doubt: str = ""  # why a change of what was found may not show
    root: tuple[int, int] | None = None  # device and inode of the root; None where there was none
    closed: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])  # others' directories, not to be read
    repositories: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Directories that git would take for repositories: device and inode by path."""
    complete: set[str] = field(default_factory=set[str])
    """Those of them that have all that makes a repository, not the name `.git` alone."""

    def is_before(self, changed_ns: int) -> bool:
        """Whether a change of this time may have come after the look, as finely as its file system keeps times."""
        return changed_ns >= self.taken_ns - tick_of(changed_ns)

    def learn(self, now: "Look") -> None:
        """Take from a later look what this one did not look for, and what has not changed since."""
        for path, seen in now.found.items():
            if not any(seen.names[: self.vocabularies]) and not self.is_before(seen.changed_ns):
                self.found.setdefault(path, seen)
        self.vocabularies = max(self.vocabularies, now.vocabularies)

    def as_in(self, before: "Look") -> "Look":
        """This look, with only the paths that are unchanged since `before`."""
        same = {path: seen for path, seen in self.found.items() if path in before.found}
        return replace(self, found={path: seen for path, seen in same.items() if as_before(seen, before.found[path])})


def facts_of(info: os.stat_result) -> tuple[int, int, int, int, int]:
    return info.st_dev, info.st_ino, info.st_mode, info.st_size, info.st_ctime_ns


def tick_of(changed_ns: int) -> int:
    """The age in ns from which a change time is reliable; 2.1 s if the file system may keep whole seconds."""
    return RACY_NS if changed_ns % 1_000_000_000 else COARSE_NS


def is_racy(info: os.stat_result) -> bool:
    """Whether another change may leave the change time as it is."""
    return info.st_ctime_ns > time.time_ns() - tick_of(info.st_ctime_ns)


def digest_of(name: str, parent: int, info: os.stat_result) -> bytes:
    """Of a file's content or a link's target, of anything else its kind; b"" where it is gone or closed to us."""
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
    """Whether one of the active vocabularies has a name for it."""
    return any(names[index] for index in active if index < len(names))


def is_same_inode(seen: Seen, other: Seen | None) -> bool:
    return other is not None and (seen.device, seen.inode) == (other.device, other.inode)


def as_before(seen: Seen, was: Seen) -> bool:
    """Whether it is unchanged. A directory's entries are compared separately."""
    if not is_same_inode(seen, was):
        return False
    if stat.S_ISDIR(seen.mode) and stat.S_ISDIR(was.mode):
        return True
    facts = seen.mode, seen.size, seen.changed_ns
    return facts == (was.mode, was.size, was.changed_ns) and (
        not was.racy or not was.digest or not seen.digest or seen.digest == was.digest  # see `Look.doubt`
    )


def is_as(info: os.stat_result, was: Seen) -> bool:
    """Whether this is what it was, as far as its inode tells; of a directory, whether it is the same one."""
    if (info.st_dev, info.st_ino) != (was.device, was.inode):
        return False
    return stat.S_ISDIR(info.st_mode) or facts_of(info) == (was.device, was.inode, was.mode, was.size, was.changed_ns)


def doubt_about(path: str) -> str:
    """Why a change of this file may not show."""
    return f"a change to a file that was just written may go unnoticed, because it could not be read: {shown(path)}"


def said(error: OSError, path: str = "") -> str:
    where = f": {shown(path)}" if path else ""
    return f"{error.strerror or 'it cannot be read'}{where}"


def shown(path: str) -> str:
    """A path that a program chose: in quotes, escaped, at most `NAME_CHARS`."""
    text = ascii(path)
    return text if len(text) <= NAME_CHARS + 2 else f"{text[: NAME_CHARS - 32]}…{text[-33:]}"
