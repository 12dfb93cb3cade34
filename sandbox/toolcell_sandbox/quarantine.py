"""Move protected names that a call made out of a tree that hostile processes may write to."""

import errno
import os
import tempfile

from . import walker
from .walker import Copies, Root

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMLINK)


class Quarantine:
    """A directory for files taken out of workspaces: created at first use, mode 0700.

    `directory` is where; without it, a new one among the temporary files. Nothing in it is ever deleted by us.
    """

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory
        self._made = ""

    @property
    def made(self) -> str:
        """Where it is; "" before the first need."""
        return self._made

    @property
    def temporary(self) -> str:
        """The directory that it has made for itself; "" where there is none, or it was given one."""
        return self._made if self._directory is None else ""

    def take(self, root: Root, path: str, inode: tuple[int, int], copies: Copies) -> str:
        """Move what is at `path` of a tree here, if it has that device and inode; returns its new place, else "".

        Where that cannot be (no room, which a call can see to; or another file system, and it is too large or too odd
        to be copied), it stays beside its place under a name that nothing reads, which is returned. OSError where not
        even that can be.
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
                    return place or os.path.join(root.path, os.path.dirname(path), beside)  # where nothing reads it
                _move_if_free(beside, parent, name, parent)  # another took its place since, and is looked at anew
            except FileNotFoundError:
                pass  # it was removed meanwhile
            if shelf:
                os.rmdir(shelf)
            return ""
        finally:
            os.close(parent)

    def _shelved(self, shelf: str, name: str, beside: str, parent: int, copies: Copies) -> str:
        """Move it to its shelf and say where it is there; "" where that cannot be."""
        fd = os.open(shelf, walker.PATH)
        try:
            walker.move(beside, parent, name, fd)
        except FileNotFoundError:
            raise
        except OSError:  # such as another file system: then the copy is the one that can be looked at elsewhere
            copied = copies.copy(beside, parent, name, fd)
            if copied is None:
                os.rmdir(shelf)
                return ""
            copied.remove(parent)  # what somebody has put in it since stays beside its place
        finally:
            os.close(fd)
        return f"{shelf}/{name}"

    def _shelf(self, root: str) -> str:
        """A new directory in here for one thing, so that no two names meet; "" where there is no room for one."""
        try:
            try:
                return tempfile.mkdtemp(prefix="", dir=self._place(root))
            except FileNotFoundError:  # somebody has tidied up
                self._made = ""
                return tempfile.mkdtemp(prefix="", dir=self._place(root))
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            return ""

    def _place(self, root: str) -> str:
        """The quarantine's own directory, made at first use. Raises OSError where it lies in `root`."""
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
        pass  # it stays under the name that nothing reads
