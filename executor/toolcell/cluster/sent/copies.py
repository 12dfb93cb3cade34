"""A session's private copy of a workspace on a node, and what has changed in it. The copy is hostile: cells write
there."""

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from toolcell.workplaces.diff import CopyChanges, NotKept, TreeDiff
from toolcell.workplaces.exclusions import Exclusions
from toolcell.workplaces.listing import TreeEntry
from toolcell_sandbox.trees import walker
from toolcell_sandbox.trees.walker import Root

from .blobs import BlobRoom, BlobStore
from .manifest import TreeManifest

__all__ = ["CopyRoom", "WorkingCopy"]

SPARE_BYTES: Final = 256 * 1024 * 1024
"""The bytes that a new copy leaves free on the disk."""
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class CopyRoom(OSError):
    """The disk has no room for another copy."""


class WorkingCopy:
    """One copy. `make` fills it, `changes` finds its changes, `settle` notes the changes that the driver has. Not
    thread-safe: its owner calls one method at a time."""

    def __init__(self, path: str, tree: TreeManifest, exclusions: Exclusions, most_bytes: int, most_files: int) -> None:
        self.path = path
        self._tree = tree
        self._diff = TreeDiff(path, tree.entries, exclusions, most_bytes, most_files)

    def __repr__(self) -> str:
        return f"<WorkingCopy {self.path} · {len(self._tree.entries)} entries>"

    # -- from the store to the copy -----------------------------------------------------------------------------------

    def make(self, store: BlobStore) -> None:
        """Make the directory and its files. Raises KeyError if the store lacks a content, CopyRoom and OSError; then
        the directory is removed."""
        above = os.path.dirname(self.path)
        os.makedirs(above, 0o700)
        try:
            room = os.statvfs(above)
            if room.f_bavail * room.f_frsize < self._tree.total_bytes + SPARE_BYTES:
                raise CopyRoom(
                    errno.ENOSPC, f"the disk of the node has no room for {self._tree.total_bytes:,} bytes", above
                )
            os.mkdir(self.path, 0o755)
            for entry in self._tree.entries.values():
                self._make_entry(entry, store)
            for entry in reversed(self._tree.entries.values()):
                if entry.kind == "directory":
                    os.chmod(f"{self.path}/{entry.path}", entry.mode | 0o700)
            self._diff.begin()
        except BaseException:
            self.remove()
            raise

    def _make_entry(self, entry: TreeEntry, store: BlobStore) -> None:
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
        """Scan the copy, and store the contents of changed files, pinned until `release`. Blocks."""
        self.release(store)

        def keep(size: int, read: Callable[[Callable[[bytes], object]], bytes]) -> None:
            try:
                store.take(size, read)
            except BlobRoom as error:
                raise NotKept(f"the node's store is full: {error.strerror}") from None

        return self._diff.changes(keep)

    def settle(self, paths: Iterable[str]) -> None:
        """Note the paths whose last scanned state the driver has now. They are no changes any more."""
        self._diff.settle(paths)

    def release(self, store: BlobStore) -> None:
        """Unpin the contents of the last scan."""
        store.unpin(self._diff.last.digests)
        self._diff.last.digests = []
