"""Remove and restore what a call leaves behind: its processes, the settings of the shared pipes, and its scratch.

If the init is pid 1 of its own pid namespace, the kernel gives it every orphan, and kill(-1) reaches all processes of
the cell. Without a pid namespace (`allow_missing`), the init is a child subreaper (PR_SET_CHILD_SUBREAPER, prctl(2)),
and kill(-1) would reach the user's own processes. Then the init kills its children, generation by generation: each
death makes the next generation its children.
"""

import errno
import fcntl
import os
import signal
import stat
import struct
import time
from collections.abc import Container
from typing import Final

from toolcell_sandbox.profile import is_below
from toolcell_sandbox.view import View

from .control import FRAMES_IN, SHARED

_LOOK_AGAIN_S = 0.001


def children(fd: int) -> list[int]:
    """The pids that are listed now. The kernel may omit some while others die, so callers repeat this until none is
    left."""
    size = 4096
    while len(listed := os.pread(fd, size, 0)) == size:
        size *= 2
    return [int(pid) for pid in listed.split()]


def open_children() -> int:
    """A descriptor of the list of this process's children, or -1 without /proc."""
    try:
        return os.open("/proc/thread-self/children", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def kill_namespace() -> None:
    """Kill and reap every process of the pid namespace except this one, pid 1. Forks under way are killed too
    (kernel/signal.c)."""
    while True:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            pass  # no process is left to kill, but there may be zombies to reap
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def kill_children(fd: int, spared: Container[int] = (), rounds: int | None = None) -> bool:
    """Kill the children that `fd` lists, and the orphans that become children by their deaths, until only `spared` are
    left. Returns False if that takes more than `rounds` rounds.

    None is reaped before all are dead. A zombie counts in the process limit, so a fork bomb comes to an end. Its pid
    cannot be reused. And the list only grows, so it omits none.
    """
    killed: set[int] = set()
    while True:
        found = [pid for pid in children(fd) if pid not in killed and pid not in spared]
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        for pid in found:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # when this returns, its children are ours
        killed.update(found)
        if not found:
            break
        if rounds is not None:
            rounds -= 1
            if rounds <= 0:
                return False
    for pid in killed:
        os.waitpid(pid, 0)
    if not spared and _any_child():
        time.sleep(_LOOK_AGAIN_S)  # the list has omitted a child
        kill_children(fd)
    return True


def _any_child() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


_UNLOCKED = struct.pack("hhqqi", fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)  # struct flock, for the whole file
_F_SETSIG, _F_GETSIG = 10, 11  # fcntl(2); the module has no names for them
_SETTINGS: Final = (
    (fcntl.F_GETFL, fcntl.F_SETFL),
    (fcntl.F_GETOWN, fcntl.F_SETOWN),
    (_F_GETSIG, _F_SETSIG),
    (fcntl.F_GETPIPE_SZ, fcntl.F_SETPIPE_SZ),
)
"""The fcntl(2) commands that get each setting, and those that set it."""


def use_leaves_times() -> bool:
    """Whether this kernel keeps the times of an unnamed pipe when it is read and written. Older kernels change them at
    each use."""
    reader, writer = os.pipe()
    try:
        os.utime(reader, ns=(0, 0))
        os.write(writer, b"1")
        os.read(reader, 1)
        info = os.fstat(reader)
        return info.st_atime_ns == info.st_mtime_ns == 0
    finally:
        os.close(reader)
        os.close(writer)


def has_ofd_locks() -> bool:
    """Whether this process may take locks of open files (F_OFD_SETLK). The filter refuses them with EINVAL."""
    try:
        fcntl.fcntl(FRAMES_IN, fcntl.F_OFD_SETLK, _UNLOCKED)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


class SharedSettings:
    """The settings of `SHARED` that a process can change for others, because they belong to the open file description
    or to the pipe, not to the descriptor."""

    def __init__(self) -> None:
        self._times_tell = use_leaves_times()
        self._has_ofd_locks = has_ofd_locks()
        self._fds: list[int] = []
        self._gets: list[int] = []
        self._puts: list[int] = []
        for fd in SHARED:
            for get, put in _SETTINGS if stat.S_ISFIFO(os.fstat(fd).st_mode) else _SETTINGS[:-1]:
                self._fds.append(fd)
                self._gets.append(get)
                self._puts.append(put)
        self._found = self.now()
        self._pipes_found = self._pipes()

    def now(self) -> list[int]:
        """The current values, in the order of `_fds`."""
        return list(map(fcntl.fcntl, self._fds, self._gets))

    def _pipes(self) -> list[tuple[int, int, int, int]]:
        """The pipes' modes, owners and change times. A call can change them if its user is the supervisor's."""
        found: list[tuple[int, int, int, int]] = []
        for info in map(os.fstat, SHARED):
            changed = info.st_ctime_ns if self._times_tell else 0
            found.append((info.st_mode, info.st_uid, info.st_gid, changed))
        return found

    def restore(self) -> None:
        """Undo a call's changes: non-blocking, asynchronous, a smaller pipe, locks. Raises OSError for changes that
        cannot be undone: a pipe's change time shows that its mode or times were changed."""
        for fd in SHARED:
            fcntl.flock(fd, fcntl.LOCK_UN)
            if self._has_ofd_locks:
                fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _UNLOCKED)
        if self._pipes() != self._pipes_found:
            raise OSError(errno.EPERM, "a call changed the mode, owner or times of a shared pipe")
        if self.now() != self._found:
            for fd, get, put, value in zip(self._fds, self._gets, self._puts, self._found, strict=True):
                if fcntl.fcntl(fd, get) != value:
                    fcntl.fcntl(fd, put, value)


class Scratch:
    """A directory, with the mount points and symbolic links of the cell's view in it.

    A call may delete the links, put something else in their places, and rename directories that lead to them or to a
    mount point.
    """

    def __init__(self, path: str, view: View) -> None:
        self._path = path
        self._own = self.now()
        modified = os.stat(path).st_mtime_ns
        # atime is 1 s after mtime, so that listing the directory does not update atime (relatime, mount(8)).
        self._times = modified + 1_000_000_000, modified
        os.utime(path, ns=self._times)
        self.show(view)

    def now(self) -> list[int | str]:
        """The directory's present mode and extended attributes."""
        return [os.stat(self._path)[stat.ST_MODE], *os.listxattr(self._path)]

    def show(self, view: View) -> None:
        """Note the mount points and links of a view that has changed."""
        path = self._path
        self._mounts = frozenset(bind.path for bind in view.binds if is_below(bind.path, (path,)))
        self._links = {place: text for place, text in view.links if is_below(place, (path,))}
        # The names in the directory that cannot be moved or replaced; None if there are links or deeper mount points.
        direct = [os.path.basename(place) for place in self._mounts if os.path.dirname(place) == path]
        self._fixed = direct if len(direct) == len(self._mounts) and not self._links else None

    def sweep(self) -> None:
        """Delete everything except the mount points, the links, and the directories that lead to them. Do nothing if a
        quick look finds the directory clean. Follow no link. Restore the directory's times.

        Raises OSError or RecursionError if a call has left something that cannot be deleted, has moved a mount point,
        or has changed the mode, the attributes or the access control list of the directory itself: there the next call
        could find data, or no room.
        """
        if os.listdir(self._path) != self._fixed:
            self._empty(self._path, os.stat(self._path).st_dev)
            for place, text in self._links.items():
                if not os.path.lexists(place):
                    os.makedirs(os.path.dirname(place), 0o755, exist_ok=True)
                    os.symlink(text, place)
        if self.now() != self._own:
            raise OSError(errno.EPERM, "it is not as the cell found it", self._path)
        info = os.stat(self._path)
        if (info.st_atime_ns, info.st_mtime_ns) != self._times:
            os.utime(self._path, ns=self._times)

    def _empty(self, directory: str, device: int) -> None:
        with os.scandir(directory) as entries:
            found = list(entries)
        for entry in found:
            if entry.path in self._mounts:
                continue
            if entry.is_symlink() and os.readlink(entry.path) == self._links.get(entry.path):
                continue
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
            elif any(place.startswith(entry.path + "/") for place in (*self._mounts, *self._links)):
                self._empty(entry.path, device)
            else:
                info = entry.stat(follow_symlinks=False)
                if info.st_dev != device:
                    raise OSError(errno.EXDEV, "a mount point was moved here", entry.path)
                mode = stat.S_IMODE(info.st_mode)
                if mode & 0o700 != 0o700:
                    os.chmod(entry.path, 0o700)
                self._empty(entry.path, device)
                os.rmdir(entry.path)
