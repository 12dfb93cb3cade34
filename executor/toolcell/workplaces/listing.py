"""List a tree that other processes may change, and digest its files. Follows no link and opens no device.

The walk is that of the sandbox (`toolcell_sandbox.trees.look`). This module says which entries count: those that are
not excluded, have a sound path, and are a file, a directory or a link.
"""

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple

from toolcell_sandbox.trees import walker
from toolcell_sandbox.trees.facts import Facts, Look, is_racy, said
from toolcell_sandbox.trees.judge import is_sound
from toolcell_sandbox.trees.look import Audience, Vocabularies, Walk
from toolcell_sandbox.trees.walker import MIB, Budget, Cut, Root

from .exclusions import Exclusions, ignored_by

__all__ = [
    "MOST_LISTED",
    "DigestCache",
    "LeftEntry",
    "TreeEntry",
    "TreeListing",
    "UnstableFile",
    "digested",
    "listed",
]

MOST_LISTED: Final = 1_000
"""The most entries that are named with the reason why they were left out."""
MOST_IGNORES, IGNORE_BYTES = 200, 64 * 1024
MAX_TARGET: Final = 4_096
MAX_CACHED: Final = 200_000

LeftEntry = tuple[str, str]
"""A path, and why it was left out."""
EntryKind = Literal["file", "directory", "link"]
_CODES: Final[Mapping[EntryKind, int]] = {"file": 0, "directory": 1, "link": 2}
_KINDS: Final[Mapping[int, EntryKind]] = {code: kind for kind, code in _CODES.items()}
_MODE_BITS: Final = 0o777
_MOST_NS: Final = 1 << 62
"""The latest time of a file, in the year 2116. Some file systems have times beyond 64 bits of nanoseconds."""


class TreeEntry(NamedTuple):
    """An entry of a tree. `path` is relative. `content` is the SHA-256 of a file, or the target of a link. `mode` has
    permission bits only: set-uid, set-gid and sticky bits are never sent."""

    path: str
    kind: EntryKind
    mode: int = 0
    size: int = 0
    content: bytes = b""
    modified_ns: int = 0

    @property
    def is_executable(self) -> bool:
        return self.kind == "file" and bool(self.mode & stat.S_IXUSR)

    def is_like(self, other: "TreeEntry | None") -> bool:
        """Whether both have the same kind, content and executability. Other permissions and times do not matter."""
        return (
            other is not None
            and (self.kind, self.content) == (other.kind, other.content)
            and self.is_executable == other.is_executable
        )

    def to_wire(self) -> list[Any]:
        """As msgpack carries it."""
        modified_ns = max(-_MOST_NS, min(self.modified_ns, _MOST_NS))
        return [self.path, _CODES[self.kind], self.mode, self.size, self.content, modified_ns]

    @classmethod
    def from_wire(cls, wire: Sequence[Any]) -> "TreeEntry":
        """The inverse of `to_wire`. Raises ValueError for an entry that no tree can have."""
        path, code, mode, size, content, modified_ns = wire
        kind = _KINDS.get(code)
        if kind is None or not is_sound(path) or (kind == "file" and len(content) != 32) or size < 0:
            raise ValueError(f"this is no entry of a tree: {wire!r:.200}")
        return cls(path, kind, mode & _MODE_BITS, size, content, modified_ns)


class UnstableFile(Exception):
    """A file changed while it was read."""


@dataclass(slots=True)
class TreeListing(Audience):
    """The entries of a tree. `unknown` is the reason why a part of the tree is unknown, "" if none is. If it is set, a
    path may exist without being listed. `unread` are the directories that could not be listed."""

    exclusions: Exclusions
    most: int = MAX_CACHED
    ignores: bool = False
    facts: dict[str, Facts] = field(default_factory=dict[str, Facts])
    left_out: list[LeftEntry] = field(default_factory=list[LeftEntry])
    left_count: int = 0
    unread: set[str] = field(default_factory=set[str])
    unknown: str = ""
    _ignored: list[tuple[str, tuple[str, ...]]] = field(default_factory=list[tuple[str, tuple[str, ...]]])
    _own: Exclusions = field(init=False)

    def __post_init__(self) -> None:
        self._own = self.exclusions

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
        return not self.unknown and not any("/".join(parts[:count]) in self.unread for count in range(len(parts)))

    # -- the walk -----------------------------------------------------------------------------------------------------

    def visit(self, above: str | None, name: str, info: os.stat_result) -> str:
        """The path of the directory."""
        return f"{above}/{name}" if above else name

    def opened(self, place: str, fd: int) -> None:
        if self.ignores and len(self._ignored) < MOST_IGNORES and (lines := _ignore_file(fd)):
            self._ignored.append((place, lines))
            self.exclusions = self._own.after(self._ignored)

    def entry(self, place: str, each: "os.DirEntry[str]") -> bool:
        path = f"{place}/{each.name}" if place else each.name
        try:
            info = each.stat(follow_symlinks=False)
        except OSError:
            return False  # it has gone meanwhile
        is_directory = stat.S_ISDIR(info.st_mode)
        if self.exclusions.excludes(path, is_directory=is_directory):
            return False
        if not is_sound(path):
            self.leave_out(path[:200], "its path is too long or too deep")
            self.unread.add(path)
            return False
        if not (is_directory or stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
            self.leave_out(path, "it is neither a file, a directory nor a link")
            return False
        self.facts[path] = Facts.of(info)
        if len(self.facts) > self.most:
            raise Cut(f"it has more than {self.most:,} entries")
        return True

    def missed(self, place: str | None, path: str, error: OSError) -> None:
        if not path:
            raise error
        self.unread.add(path)
        self.facts.pop(path, None)
        self.leave_out(path, said(error))

    def cut(self, error: Cut | OSError) -> None:
        if isinstance(error, OSError):
            raise error
        self.unknown = str(error)


def listed(
    root: Root, exclusions: Exclusions, *, most: int, seconds: float, ignores: bool = False, opens: bool = False
) -> TreeListing:
    """List a tree, for at most `most` entries and `seconds` seconds. `ignores`: obey `.gitignore` files. `opens`:
    change the permissions of our own directories that deny access. Raises OSError if the root cannot be listed."""
    found = TreeListing(exclusions, most, ignores)
    budget = Budget(directories=most + 1, entries=most + 256, seconds=seconds)
    Walk(root.path, Vocabularies(), None, budget, Look(0) if opens else None, audience=found).taken()
    return found


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
) -> TreeEntry:
    """The entry at a path of a listing. `sink` gets the content of a file in pieces. `opens`: change the permissions of
    our own file that denies access. Raises UnstableFile if the entry has changed since the listing, and OSError."""
    mode = facts.mode & 0o777
    if stat.S_ISDIR(facts.mode):
        return TreeEntry(path, "directory", mode)
    known = cache.of(facts) if cache is not None and sink is None else None
    if known is not None:
        return TreeEntry(path, "file", mode, facts.size, known, facts.modified_ns)
    held = root.open(path, walker.ENTRY)
    try:
        if Facts.of(os.fstat(held)) != facts:
            raise UnstableFile(path)
        if stat.S_ISLNK(facts.mode):
            return TreeEntry(path, "link", 0, 0, walker.target(held)[:MAX_TARGET])
        fd, now = _open_file(held, facts, opens=opens)
        try:
            digest = _read(fd, path, facts.size, sink)
        finally:
            os.close(fd)
        info = os.fstat(held)
        if Facts.of(info) != now:
            raise UnstableFile(path)
    finally:
        os.close(held)
    if cache is not None:
        cache.keep(facts, info, digest)
    return TreeEntry(path, "file", mode, facts.size, digest, facts.modified_ns)


def _open_file(held: int, facts: Facts, *, opens: bool) -> tuple[int, Facts]:
    """Open a held file for reading. Returns its facts too, which differ if its permissions had to be changed."""
    try:
        return walker.readable(held), facts
    except PermissionError:
        if not opens or os.fstat(held).st_uid != os.geteuid():
            raise
    os.chmod(f"/proc/self/fd/{held}", 0o600 | facts.mode & 0o777)
    now = Facts.of(os.fstat(held))
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
