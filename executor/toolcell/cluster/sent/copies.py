"""A session's private copy of a workspace on a node, and what has changed in it. The copy is hostile: cells write
there."""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from toolcell.cluster.link import pack
from toolcell_sandbox.trees import walker
from toolcell_sandbox.trees.facts import Facts, said, tick_of
from toolcell_sandbox.trees.walker import Root

from .blobs import BlobRoom, BlobStore
from .exclusions import Exclusions
from .listing import LeftEntry, TreeListing, UnstableFile, digested, facts_of, listed
from .manifest import SentEntry, TreeManifest

__all__ = ["CopyChanges", "CopyRoom", "WorkingCopy"]

SCAN_S: Final = 30.0
"""How long a scan of a copy may take, in seconds."""
SPARE_BYTES: Final = 256 * 1024 * 1024
"""The bytes that a new copy leaves free on the disk."""
ATTEMPTS: Final = 3
MOST_WAIT_NS: Final = 100_000_000
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class CopyRoom(OSError):
    """The disk has no room for another copy."""


@dataclass(slots=True)
class CopyChanges:
    """The changes in a copy since it was sent or last brought back: new or changed entries, and deleted paths.

    The contents of the files are in the store, where `digests` pins them. `unknown` is the reason why changes may be
    missing, "" if none is."""

    made: list[SentEntry] = field(default_factory=list[SentEntry])
    gone: list[str] = field(default_factory=list[str])
    left_out: list[LeftEntry] = field(default_factory=list[LeftEntry])
    left_count: int = 0
    unknown: str = ""
    began_ns: int = 0
    digests: list[bytes] = field(default_factory=list[bytes])
    facts: dict[str, Facts] = field(default_factory=dict[str, Facts])

    def packed(self) -> bytes:
        """As msgpack, for the driver."""
        made = [entry.to_wire() for entry in self.made]
        return pack([made, self.gone, self.left_out, self.left_count, self.unknown])


class WorkingCopy:
    """One copy. `make` fills it, `changes` finds its changes, `settle` notes the changes that the driver has. Not
    thread-safe: its owner calls one method at a time."""

    def __init__(self, path: str, tree: TreeManifest, exclusions: Exclusions, most_bytes: int, most_files: int) -> None:
        self.path = path
        self._base = dict(tree.entries)
        self._bytes = tree.total_bytes
        self._exclusions = exclusions
        self._most_bytes, self._most_files = most_bytes, most_files
        self._facts: dict[str, Facts] = {}
        self._racy: set[str] = set()
        self._last = CopyChanges()

    def __repr__(self) -> str:
        return f"<WorkingCopy {self.path} · {len(self._base)} entries>"

    # -- from the store to the copy -----------------------------------------------------------------------------------

    def make(self, store: BlobStore) -> None:
        """Make the directory and its files. Raises KeyError if the store lacks a content, CopyRoom and OSError; then
        the directory is removed."""
        above = os.path.dirname(self.path)
        os.makedirs(above, 0o700)
        try:
            room = os.statvfs(above)
            if room.f_bavail * room.f_frsize < self._bytes + SPARE_BYTES:
                raise CopyRoom(errno.ENOSPC, f"the disk of the node has no room for {self._bytes:,} bytes", above)
            os.mkdir(self.path, 0o755)
            for entry in self._base.values():
                self._make_entry(entry, store)
            for entry in reversed(self._base.values()):
                if entry.kind == "directory":
                    os.chmod(f"{self.path}/{entry.path}", entry.mode | 0o700)
            self._facts = {path: facts_of(os.lstat(f"{self.path}/{path}")) for path in self._base}
            self._let_settle()
        except BaseException:
            self.remove()
            raise

    def _make_entry(self, entry: SentEntry, store: BlobStore) -> None:
        path = f"{self.path}/{entry.path}"
        if entry.kind == "directory":
            os.mkdir(path, 0o700)
        elif entry.kind == "link":
            os.symlink(entry.content, os.fsencode(path))
        else:
            fd = os.open(path, _NEW, 0o600)
            try:
                if entry.size:
                    store.copy(entry.content, fd)
                os.fchmod(fd, entry.mode)
                os.utime(fd, ns=(entry.modified_ns, entry.modified_ns))
            finally:
                os.close(fd)

    def _let_settle(self) -> None:
        """Wait for one tick of the file system's clock, so that a later change of a file gives it another change time.
        If a tick is longer than `MOST_WAIT_NS`, the next scan reads all files again instead."""
        wait_ns = max((tick_of(each.changed_ns) for each in self._facts.values()), default=0)
        if wait_ns <= MOST_WAIT_NS:
            time.sleep(wait_ns / 1e9)
        else:
            self._racy = set(self._facts)

    def remove(self) -> None:
        """Remove the copy, with the directory around it. Raises OSError if a part of it stays."""
        above, name = os.path.split(os.path.dirname(self.path))
        with Root(above) as root:
            walker.remove(name, root.fd)

    def add(self, files: Iterable[tuple[str, bytes]]) -> None:
        """Write files of the driver, which are excluded from the changes. A file is left out if a cell has put another
        entry in its place."""
        with Root(self.path) as root:
            for path, raw in files:
                with suppress(OSError):
                    root.write_new(path, raw)

    # -- changes ------------------------------------------------------------------------------------------------------

    def changes(self, store: BlobStore) -> CopyChanges:
        """Scan the copy, and store the contents of changed files. Blocks."""
        self.release(store)
        found = self._last = CopyChanges(began_ns=time.time_ns())
        try:
            with Root(self.path) as root:
                listing = listed(root, self._exclusions, most=2 * self._most_files + 1_000, seconds=SCAN_S, opens=True)
                found.unknown = listing.cut
                self._take_made(found, root, listing, store)
        except OSError as error:
            found.unknown = said(error)
            return found
        found.gone = [path for path in self._base if path not in listing.facts and listing.knows(path)]
        return found

    def _take_made(self, found: CopyChanges, root: Root, listing: TreeListing, store: BlobStore) -> None:
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
                entry = self._taken(root, path, facts, store)
            except FileNotFoundError:
                continue  # deleted since the listing: the next scan reports it
            except BlobRoom as error:
                listing.leave_out(path, f"the node's store is full: {error.strerror}")
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

    def _taken(self, root: Root, path: str, facts: Facts, store: BlobStore) -> SentEntry:
        for attempt in range(ATTEMPTS):
            try:
                if not stat.S_ISREG(facts.mode):
                    return digested(root, path, facts)
                return self._stored(root, path, facts, store)
            except UnstableFile:
                if attempt + 1 == ATTEMPTS:
                    raise
                again = facts_of(root.stat(path))
                if stat.S_IFMT(again.mode) != stat.S_IFMT(facts.mode) or again.size > 2 * facts.size + 4_096:
                    raise
                facts = again
        raise UnstableFile(path)

    def _stored(self, root: Root, path: str, facts: Facts, store: BlobStore) -> SentEntry:
        entries: list[SentEntry] = []

        def read(sink: Callable[[bytes], object]) -> bytes:
            entries.append(digested(root, path, facts, sink, opens=True))
            return entries[0].content

        store.take(facts.size, read)
        return entries[0]

    # -- after the driver has taken them ------------------------------------------------------------------------------

    def settle(self, paths: Iterable[str]) -> None:
        """Note the paths whose last scanned state the driver has now. They are no changes any more."""
        made = {entry.path: entry for entry in self._last.made}
        for path in paths:
            entry = made.get(path)
            if entry is None:
                self._base.pop(path, None)
                self._facts.pop(path, None)
            else:
                self._base[path] = entry
                facts = self._facts[path] = self._last.facts[path]
                if facts.changed_ns >= self._last.began_ns - tick_of(facts.changed_ns):
                    self._racy.add(path)
                else:
                    self._racy.discard(path)

    def release(self, store: BlobStore) -> None:
        """Unpin the contents of the last scan."""
        store.unpin(self._last.digests)
        self._last.digests = []
