"""Which directory a session's workspace is: looked at before every call, since another can have taken its place."""

import os
import stat
import time
from dataclasses import dataclass

from toolcell_sandbox.kernel.birth import born_ns

TICK_NS = 20_000_000  # twice the coarsest clock that a kernel gives its files


@dataclass(frozen=True, slots=True)
class DirectoryIdentity:
    """Device, inode and birth of a directory, for the number of one that is gone is given to another.

    The birth takes a statx(2), far dearer than the lstat(2) of every call. It is taken to stand as long as the time of
    the last change does, which no program sets: a directory made later has a later one, but for the clock's tick.
    """

    device: int = 0
    inode: int = 0
    changed_ns: int = 0
    birth_ns: int = 0
    is_taken: bool = False
    """Whether something lies there that is neither a directory nor a link, which the cell that is made looks into."""

    @property
    def identity(self) -> tuple[int, int, int]:
        return self.device, self.inode, self.birth_ns

    def now(self, path: str) -> "DirectoryIdentity":
        """What is there now; zeros where nothing is, which the cell that is made then says."""
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
