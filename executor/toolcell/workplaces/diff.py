"""What has changed in a directory since it was made from known entries, and what is written elsewhere of it.

The directory is hostile: cells write there. A scan lists it, reads what may have changed, and compares it with the
entries that the other side has. Contents go to a store of the caller as they are read, so that what is sent is what was
digested.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolcell_sandbox.trees.facts import Facts, said, tick_of
from toolcell_sandbox.trees.judge import is_sound
from toolcell_sandbox.trees.walker import Root

from .exclusions import Exclusions
from .listing import LeftEntry, TreeEntry, TreeListing, UnstableFile, digested, listed

__all__ = ["CopyChanges", "NotKept", "ReceivedDiff", "TreeDiff"]

SCAN_S: Final = 30.0
"""How long a scan may take, in seconds."""
ATTEMPTS: Final = 3
MOST_WAIT_NS: Final = 100_000_000

Keep = Callable[[int, Callable[[Callable[[bytes], object]], bytes]], object]
"""Stores a content: `keep(size, read)`, where `read(sink)` gives the content in pieces, and returns its digest."""


class NotKept(Exception):
    """A content cannot be stored. The message says why."""


@dataclass(frozen=True, slots=True)
class ReceivedDiff:
    """The changes that a node has found in a copy: new or changed entries (`made`) and deleted paths (`gone`).
    `expected` has the entries of the workspace here as they were last sent or brought back, by path. `base` also has
    the entries of `SentWorkspaces.base`."""

    made: Mapping[str, TreeEntry]
    gone: Sequence[str]
    expected: Mapping[str, TreeEntry]
    base: Mapping[str, TreeEntry]
    left_out: Sequence[LeftEntry] = ()
    left_count: int = 0
    unknown: str = ""

    @classmethod
    def from_wire(
        cls, wire: Sequence[Any], expected: Mapping[str, TreeEntry], base: Mapping[str, TreeEntry]
    ) -> "ReceivedDiff":
        """The inverse of `CopyChanges.to_wire`. A cell has chosen the names in it. Raises ValueError and TypeError for
        what no tree can give."""
        made, gone, left_out, left_count, unknown = wire
        return cls(
            {each.path: each for each in map(TreeEntry.from_wire, made)},
            tuple(path for path in gone if is_sound(path)),
            expected,
            base,
            tuple((str(path), str(why)) for path, why in left_out),
            int(left_count),
            str(unknown),
        )


@dataclass(slots=True)
class CopyChanges:
    """The changes in a copy since it was sent or last brought back: new or changed entries, and deleted paths.

    `digests` are the contents that were stored. `unknown` is the reason why changes may be missing, "" if none is."""

    made: list[TreeEntry] = field(default_factory=list[TreeEntry])
    gone: list[str] = field(default_factory=list[str])
    left_out: list[LeftEntry] = field(default_factory=list[LeftEntry])
    left_count: int = 0
    unknown: str = ""
    began_ns: int = 0
    digests: list[bytes] = field(default_factory=list[bytes])
    facts: dict[str, Facts] = field(default_factory=dict[str, Facts])

    def to_wire(self) -> list[Any]:
        """As msgpack carries it."""
        made = [entry.to_wire() for entry in self.made]
        return [made, self.gone, self.left_out, self.left_count, self.unknown]


class TreeDiff:
    """Finds the changes in a directory that was made from `entries`. `begin` notes how they lie there, `changes` scans,
    `settle` notes the changes that the other side has. Not thread-safe."""

    def __init__(
        self, path: str, entries: Mapping[str, TreeEntry], exclusions: Exclusions, most_bytes: int, most_files: int
    ) -> None:
        self._path = path
        self._base = dict(entries)
        self._exclusions = exclusions
        self._most_bytes, self._most_files = most_bytes, most_files
        self._facts: dict[str, Facts] = {}
        self._racy: set[str] = set()
        self.last = CopyChanges()

    def begin(self) -> None:
        """Note the entries, which were just made. Wait for one tick of the file system's clock, so that a later change
        of a file gives it another change time. If a tick is longer than `MOST_WAIT_NS`, the first scan reads all files
        again instead."""
        self._facts = {path: Facts.of(os.lstat(f"{self._path}/{path}")) for path in self._base}
        wait_ns = max((tick_of(each.changed_ns) for each in self._facts.values()), default=0)
        if wait_ns <= MOST_WAIT_NS:
            time.sleep(wait_ns / 1e9)
        else:
            self._racy = set(self._facts)

    def changes(self, keep: Keep) -> CopyChanges:
        """Scan the directory, and store the contents of changed files with `keep`. Blocks."""
        found = self.last = CopyChanges(began_ns=time.time_ns())
        try:
            with Root(self._path) as root:
                listing = listed(root, self._exclusions, most=2 * self._most_files + 1_000, seconds=SCAN_S, opens=True)
                found.unknown = listing.unknown
                self._take_made(found, root, listing, keep)
        except OSError as error:
            found.unknown = said(error)
            return found
        found.gone = [path for path in self._base if path not in listing.facts and listing.knows(path)]
        return found

    def _take_made(self, found: CopyChanges, root: Root, listing: TreeListing, keep: Keep) -> None:
        """Collect new and changed entries, the smallest files first, so that a large file displaces no other."""
        new = [(path, facts) for path, facts in listing.facts.items() if not self._is_same(path, facts)]
        new.sort(key=lambda each: each[1].size if stat.S_ISREG(each[1].mode) else -1)
        left_bytes, left_files = self._most_bytes, self._most_files
        for path, facts in new:
            left_bytes -= facts.size if stat.S_ISREG(facts.mode) else 0
            left_files -= 1
            if left_bytes < 0 or left_files < 0:
                what = f"{self._most_bytes:,} bytes" if left_bytes < 0 else f"{self._most_files:,} entries"
                listing.leave_out(path, f"more than {what} have changed")
                left_bytes += facts.size if stat.S_ISREG(facts.mode) else 0
                continue
            try:
                entry = self._taken(root, path, facts, keep)
            except FileNotFoundError:
                continue  # deleted since the listing: the next scan reports it
            except NotKept as error:
                listing.leave_out(path, str(error))
                continue
            except OSError as error:
                listing.leave_out(path, said(error))
                continue
            except UnstableFile:
                listing.leave_out(path, "it changes while it is read")
                continue
            if entry.kind == "file":
                found.digests.append(entry.content)
            if not entry.is_like(self._base.get(path)):
                found.made.append(entry)
                found.facts[path] = facts
        found.left_out, found.left_count = listing.left_out, listing.left_count
        found.made.sort()

    def _is_same(self, path: str, facts: Facts) -> bool:
        """Whether the entry certainly has not changed since it was made or brought back."""
        base, was = self._base.get(path), self._facts.get(path)
        if base is None:
            return False
        if base.kind == "directory":
            return stat.S_ISDIR(facts.mode)
        return facts == was and path not in self._racy

    def _taken(self, root: Root, path: str, facts: Facts, keep: Keep) -> TreeEntry:
        for attempt in range(ATTEMPTS):
            try:
                if not stat.S_ISREG(facts.mode):
                    return digested(root, path, facts)
                return self._stored(root, path, facts, keep)
            except UnstableFile:
                if attempt + 1 == ATTEMPTS:
                    raise
                again = Facts.of(root.stat(path))
                if stat.S_IFMT(again.mode) != stat.S_IFMT(facts.mode) or again.size > 2 * facts.size + 4_096:
                    raise
                facts = again
        raise UnstableFile(path)

    def _stored(self, root: Root, path: str, facts: Facts, keep: Keep) -> TreeEntry:
        entries: list[TreeEntry] = []

        def read(sink: Callable[[bytes], object]) -> bytes:
            entries.append(digested(root, path, facts, sink, opens=True))
            return entries[0].content

        keep(facts.size, read)
        return entries[0]

    def settle(self, paths: Iterable[str]) -> None:
        """Note the paths whose last scanned state the other side has now. They are no changes any more."""
        made = {entry.path: entry for entry in self.last.made}
        for path in paths:
            entry = made.get(path)
            if entry is None:
                self._base.pop(path, None)
                self._facts.pop(path, None)
            else:
                self._base[path] = entry
                facts = self._facts[path] = self.last.facts[path]
                if facts.changed_ns >= self.last.began_ns - tick_of(facts.changed_ns):
                    self._racy.add(path)
                else:
                    self._racy.discard(path)
