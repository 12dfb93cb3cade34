"""The identity of a session's workspace directory, checked before every call: the directory can be replaced."""

import os
import stat
import time
from dataclasses import dataclass

from toolcell_sandbox.kernel.syscalls import born_ns

TICK_NS = 20_000_000  # twice the coarsest tick of the kernel's file clock


@dataclass(frozen=True, slots=True)
class DirectoryIdentity:
    """Device, inode and birth time of a directory. The birth time is needed because inode numbers are reused.

    The birth time takes a statx(2), which is far slower than the lstat(2) of every call. It is read again only if the
    change time differs. No program can set the change time, and a later directory has a later one, to a clock tick.
    """

    device: int = 0
    inode: int = 0
    changed_ns: int = 0
    birth_ns: int = 0
    is_taken: bool = False
    """Whether the path is neither a directory nor a link. A link is checked when the cell is made."""

    @property
    def identity(self) -> tuple[int, int, int]:
        return self.device, self.inode, self.birth_ns

    def now(self, path: str) -> "DirectoryIdentity":
        """The present identity. Zeros mean that nothing is there; the cell that is made then reports the error."""
        try:
            info = os.lstat(path)
        except OSError:
            return NOWHERE
        if (info.st_ino, info.st_dev, info.st_ctime_ns) == (self.inode, self.device, self.changed_ns):
            return self
        settled = time.time_ns() - info.st_ctime_ns > TICK_NS
        is_taken = not (stat.S_ISDIR(info.st_mode) or stat.S_ISLNK(info.st_mode))
        return DirectoryIdentity(info.st_dev, info.st_ino, info.st_ctime_ns if settled else 0, born_ns(path), is_taken)


NOWHERE = DirectoryIdentity()
