"""The directory in which a node keeps contents and copies, below /var/tmp or below a path of the program."""

import errno
import os
import stat
from typing import Final

from toolcell.workplaces.runtime import try_lock
from toolcell_sandbox.trees import walker
from toolcell_sandbox.trees.walker import Root

__all__ = ["NodeDirectory"]

_ABOVE: Final = "/var/tmp"  # on a disk; /tmp may be in memory
MOST_SLOTS: Final = 64
COPIES, STORE = "copies", "store"


class NodeDirectory:
    """The first directory `0`, `1`, … below `above` that no other process has locked. It keeps the contents of an
    earlier process, and removes the copies. Raises OSError if all are locked, or if other users can access one."""

    def __init__(self, above: str | None = None) -> None:
        self.above = os.path.realpath(above or f"{_ABOVE}/toolcell-nodes-{os.geteuid()}")
        _make_own(self.above)
        for number in range(MOST_SLOTS):
            self.path = f"{self.above}/{number}"
            _make_own(self.path)
            self._lock = os.open(f"{self.path}/lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            if try_lock(self._lock):
                break
            os.close(self._lock)
        else:
            raise OSError(errno.EBUSY, f"{MOST_SLOTS} node supervisors use it", self.above)
        self.store = f"{self.path}/{STORE}"
        self.copies = f"{self.path}/{COPIES}"
        with Root(self.path) as root:
            walker.remove(COPIES, root.fd)
        os.mkdir(self.copies, 0o700)

    def __repr__(self) -> str:
        return f"<NodeDirectory {self.path}>"

    def close(self) -> None:
        """Remove the copies, and unlock the directory."""
        if self._lock >= 0:
            with Root(self.path) as root:
                walker.remove(COPIES, root.fd)
            os.close(self._lock)
            self._lock = -1


def _make_own(path: str) -> None:
    """Make a directory of ours with mode 0700. Raises PermissionError if there is another one."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    info = os.lstat(path)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o077:
        raise PermissionError(
            errno.EPERM,
            "It is not a directory of this user alone (mode 0700). Remove it, or pass SentWorkspaces(directory=…)",
            path,
        )
