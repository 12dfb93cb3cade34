"""The private scratch directory of a cell: emptied after each call, and restored to its first state."""

import errno
import os
import stat

from toolcell_sandbox.profile import is_below
from toolcell_sandbox.view import View


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
