"""Move files that a call planted under protected names out of a hostile tree."""

import errno
import os
import tempfile

from . import walker
from .walker import Copies, Root

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMLINK)


class Quarantine:
    """A directory for files that were taken out of workspaces. It is created at first use, with mode 0700.

    `directory` is its path; by default it is a new temporary directory. Toolcell never deletes anything in it.
    """

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory
        self._made = ""

    @property
    def made(self) -> str:
        """Its path; "" before the first use."""
        return self._made

    @property
    def temporary(self) -> str:
        """Its path if it is a temporary directory of its own, else ""."""
        return self._made if self._directory is None else ""

    def take(self, root: Root, path: str, inode: tuple[int, int], copies: Copies) -> str:
        """Move the file at `path` of a tree into the quarantine, if it has that device and inode. Returns its new path,
        or "" if it is another file or gone.

        It may not be possible to move it: the disk is full (which a call can cause), or the quarantine is on another
        file system and the file cannot be copied. Then it is renamed, in its directory, to a name that nothing reads,
        and that path is returned. Raises OSError if it cannot be renamed either.
        """
        name = os.path.basename(path)
        try:
            parent = root.parent(path)
        except FileNotFoundError:
            return ""
        try:
            shelf = self._shelf(root.path)
            beside = f"toolcell-quarantined-{os.urandom(8).hex()}"
            try:
                walker.move(name, parent, beside, parent)
                if _is(inode, beside, parent):
                    place = shelf and self._shelved(shelf, name, beside, parent, copies)
                    return place or os.path.join(root.path, os.path.dirname(path), beside)  # which nothing reads
                _move_if_free(beside, parent, name, parent)  # it is another file now, which the next look judges
            except FileNotFoundError:
                pass  # it was removed meanwhile
            if shelf:
                os.rmdir(shelf)
            return ""
        finally:
            os.close(parent)

    def _shelved(self, shelf: str, name: str, beside: str, parent: int, copies: Copies) -> str:
        """Move it into its shelf. Returns its path there; "" if it could not be moved."""
        fd = os.open(shelf, walker.PATH)
        try:
            walker.move(beside, parent, name, fd)
        except FileNotFoundError:
            raise
        except OSError:  # for example another file system, so it is copied
            copied = copies.copy(beside, parent, name, fd)
            if copied is None:
                os.rmdir(shelf)
                return ""
            copied.remove(parent)  # entries that are new since the copy stay
        finally:
            os.close(fd)
        return f"{shelf}/{name}"

    def _shelf(self, root: str) -> str:
        """A new directory in the quarantine for one file, so that names never clash; "" if the disk is full."""
        try:
            try:
                return tempfile.mkdtemp(prefix="", dir=self._place(root))
            except FileNotFoundError:  # somebody removed the quarantine
                self._made = ""
                return tempfile.mkdtemp(prefix="", dir=self._place(root))
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            return ""

    def _place(self, root: str) -> str:
        """The directory of the quarantine, made at first use. Raises OSError if it lies in `root`."""
        if not self._made:
            if self._directory is None:
                self._made = os.path.realpath(tempfile.mkdtemp(prefix="toolcell-quarantine-"))
            else:
                os.makedirs(self._directory, 0o700, exist_ok=True)
                self._made = os.path.realpath(self._directory)
        if self._made == root or self._made.startswith(root.rstrip("/") + "/"):
            raise OSError(errno.EINVAL, "the quarantine lies in the workspace")
        return self._made


def _is(inode: tuple[int, int], name: str, parent: int) -> bool:
    held = walker.entry(name, parent)
    try:
        info = os.fstat(held)
        return (info.st_dev, info.st_ino) == inode
    finally:
        os.close(held)


def _move_if_free(name: str, parent: int, new_name: str, new_parent: int) -> None:
    try:
        walker.move(name, parent, new_name, new_parent)
    except FileExistsError:
        pass  # it keeps the name that nothing reads
