"""Move files that a call planted under protected names out of a hostile tree.

The quarantine is on a disk: in memory, planted files would outlive their call and count in no limit. It is bounded by
bytes and by age, because every call may add to it. The oldest entries are deleted first.
"""

import errno
import os
import re
import stat
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from toolcell_sandbox.limits import MIB

from . import walker
from .walker import Copies, Root

MOST_BYTES = 256 * MIB
"""The most bytes in a quarantine, each entry counted as at least a block. A larger file stays in its directory, under a
name that nothing reads."""
MOST_AGE_S = 30 * 86_400.0
"""Entries that are older are deleted."""
BLOCK_BYTES = 4096
_FRESH_S = 10.0  # how old a reading of the directory may be: other supervisors of this user add to it
_SHELF = re.compile("toolcell-[a-z0-9_]{8}")  # mkdtemp's; everything else in the directory is left alone
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMLINK)
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class _Shelf:
    name: str
    made_at: float  # time.time seconds
    size: int


class Quarantine:
    """A directory for files that were taken out of workspaces. It is created at first use, with mode 0700.

    `directory` is its path. By default it is `toolcell/quarantine` in the user's cache directory, which the user's
    supervisors share, or `toolcell-quarantine-<uid>` in /var/tmp or among the temporary files: the first that is on a
    disk, is the user's alone and is not in the workspace. It holds `most_bytes` and keeps entries for `MOST_AGE_S`.
    """

    def __init__(self, directory: str | None = None, most_bytes: int = MOST_BYTES) -> None:
        self._directory = directory
        self._most_bytes = most_bytes
        self._made = ""
        self._read_at = -_FRESH_S
        self._shelves: deque[_Shelf] = deque()  # oldest first
        self._held_bytes = 0
        self._dropped: list[str] = []
        self._lock = threading.Lock()  # trees are audited in several threads

    @property
    def made(self) -> str:
        """Its path; "" before the first use."""
        return self._made

    def dropped(self) -> tuple[str, ...]:
        """The paths of entries that were deleted, to make room or for their age, since the last call of this method."""
        with self._lock:
            dropped, self._dropped = tuple(self._dropped), []
        return dropped

    def exists(self) -> bool:
        """Whether one of its possible directories is there."""
        return any(map(os.path.isdir, self._places()))

    def expire(self) -> None:
        """Delete entries that are too old, if the quarantine exists. Raises OSError."""
        for place in self._places():
            if os.path.isdir(place) and (self._directory is not None or _is_private(place)):
                there = Quarantine(place)
                there._made = os.path.realpath(place)
                there._read()
                self._dropped += there.dropped()

    def take(self, root: Root, path: str, inode: tuple[int, int], copies: Copies) -> str:
        """Move the file at `path` of a tree into the quarantine, if it has that device and inode. Returns its new path,
        or "" if it is another file or gone.

        A file that cannot be moved is renamed, in its directory, to a name that nothing reads. That is a file that is
        larger than the quarantine, or that cannot be copied to its file system, and any file if the disk is full (which
        a call can cause). Raises OSError if it cannot be renamed either.
        """
        with self._lock:
            return self._take(root, path, inode, copies)

    def _take(self, root: Root, path: str, inode: tuple[int, int], copies: Copies) -> str:
        name = os.path.basename(path)
        try:
            parent = root.parent(path)
        except FileNotFoundError:
            return ""
        shelf = ""
        try:
            shelf = self._shelf(root.path)
            beside = f"toolcell-quarantined-{os.urandom(8).hex()}"
            try:
                walker.move(name, parent, beside, parent)
                info = os.stat(beside, dir_fd=parent, follow_symlinks=False)
                if (info.st_dev, info.st_ino) == inode:
                    aside = os.path.join(os.path.dirname(path), beside)
                    size = BLOCK_BYTES + _size(root, aside, self._most_bytes)  # with its shelf
                    if shelf and self._make_room(size, shelf) and self._shelved(shelf, name, beside, parent, copies):
                        self._add(_Shelf(os.path.basename(shelf), time.time(), size))
                        place, shelf = f"{shelf}/{name}", ""
                        return place
                    return os.path.join(root.path, aside)  # which nothing reads
                with suppress(FileExistsError):  # then it keeps the name that nothing reads
                    walker.move(beside, parent, name, parent)  # it is another file, which the next look judges
            except FileNotFoundError:
                pass  # it was removed meanwhile
            return ""
        finally:
            os.close(parent)
            if shelf:  # it stayed empty
                with suppress(FileNotFoundError):
                    os.rmdir(shelf)

    def _shelved(self, shelf: str, name: str, beside: str, parent: int, copies: Copies) -> bool:
        """Move the file `beside` into a shelf, under its own name. Returns whether it is there."""
        try:
            fd = os.open(shelf, walker.PATH)
        except FileNotFoundError:  # another supervisor has made room
            return False
        try:
            walker.move(beside, parent, name, fd)
        except FileNotFoundError:
            raise
        except OSError:  # for example another file system, so it is copied
            copied = copies.copy(beside, parent, name, fd)
            if copied is None:
                return False
            copied.remove(parent)  # entries that are new since the copy stay
        finally:
            os.close(fd)
        return True

    def _shelf(self, root: str) -> str:
        """A new directory in the quarantine for one file, so that names never clash; "" if the disk is full, or if no
        default place can be used."""
        try:
            try:
                return tempfile.mkdtemp(prefix="toolcell-", dir=self._place(root))
            except FileNotFoundError:  # somebody removed the quarantine
                self._made = ""
                return tempfile.mkdtemp(prefix="toolcell-", dir=self._place(root))
        except OSError as error:
            if error.errno not in _NO_ROOM and self._directory is not None:
                raise
            return ""

    # -- its bounds ---------------------------------------------------------------------------------------------------

    def _make_room(self, size: int, shelf: str) -> bool:
        """Delete the oldest entries until there is room for `size` bytes in a new shelf. Returns whether there is."""
        if size > self._most_bytes:
            return False
        if time.monotonic() - self._read_at > _FRESH_S or self._held_bytes + size > self._most_bytes:
            self._read(os.path.basename(shelf))
        while self._held_bytes + size > self._most_bytes:
            if not self._shelves or not self._drop(self._shelves[0]):
                return False
        return True

    def _read(self, but: str = "") -> None:
        """Read what the quarantine holds, without the new entry `but`, and delete entries that are too old."""
        known = {shelf.name: shelf for shelf in self._shelves}
        self._shelves.clear()
        self._held_bytes, self._read_at = 0, time.monotonic()
        try:
            fd = os.open(self._made, _OPEN)
        except FileNotFoundError:  # somebody removed it
            return
        try:
            found: list[_Shelf] = []
            with Root(self._made) as root:
                for name in filter(_SHELF.fullmatch, set(os.listdir(fd)) - {but}):
                    try:
                        made_at = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mtime
                        found.append(known.get(name) or _Shelf(name, made_at, _size(root, name, self._most_bytes)))
                    except FileNotFoundError:
                        continue  # another supervisor has deleted it
        finally:
            os.close(fd)
        for shelf in sorted(found, key=lambda each: each.made_at):
            self._add(shelf)
        while self._shelves and time.time() - self._shelves[0].made_at > MOST_AGE_S:
            if not self._drop(self._shelves[0]):
                return

    def _add(self, shelf: _Shelf) -> None:
        self._shelves.append(shelf)
        self._held_bytes += shelf.size

    def _drop(self, shelf: _Shelf) -> bool:
        """Delete the oldest entry. Returns whether it is gone."""
        try:
            fd = os.open(self._made, _OPEN)
            try:
                walker.remove(shelf.name, fd)
            finally:
                os.close(fd)
        except FileNotFoundError:
            pass  # another supervisor, or a person, was first
        except OSError:
            return False
        else:
            self._dropped.append(f"{self._made}/{shelf.name}")
        self._shelves.popleft()
        self._held_bytes -= shelf.size
        return True

    # -- its place ----------------------------------------------------------------------------------------------------

    def _place(self, root: str) -> str:
        """The directory of the quarantine, made at first use. Raises OSError if it would lie in `root`."""
        stays = self._made and not (self._directory is None and _is_in(self._made, root))
        for place in (self._made,) if stays else self._places():
            place = self._real(place)
            if not _is_in(place, root) and (place == self._made or self._is_made(place)):
                if place != self._made:
                    self._made, self._read_at = place, -_FRESH_S
                return place
        raise OSError(errno.EINVAL, "the quarantine lies in the workspace")

    def _places(self) -> Iterable[str]:
        """The places that it may have, in order: on a disk first."""
        return sorted(_default_places(), key=_is_in_memory) if self._directory is None else (self._directory,)

    def _real(self, place: str) -> str:
        """The path without symbolic links. The last name of a default place is none: anyone may put a link there, to a
        directory of this user or to where one would be made."""
        if self._directory is not None:
            return os.path.realpath(place)
        return os.path.join(os.path.realpath(os.path.dirname(place)), os.path.basename(place))

    def _is_made(self, place: str) -> bool:
        """Make the directory, if it is not there. Returns whether it can be used; raises OSError for one that was
        asked for."""
        try:
            os.makedirs(place, 0o700, exist_ok=True)
        except OSError:
            if self._directory is not None:
                raise
            return False
        return self._directory is not None or _is_private(place)


def _default_places() -> Iterator[str]:
    me = os.geteuid()
    named = os.environ.get("XDG_CACHE_HOME", "")  # a relative one is ignored, by the XDG Base Directory Specification
    cache = named if os.path.isabs(named) else os.path.expanduser("~/.cache")
    if _is_private(_nearest(cache), 0o022):  # else others could put another directory in its place
        yield f"{cache}/toolcell/quarantine"
    for shared in dict.fromkeys(("/var/tmp", tempfile.gettempdir())):
        yield f"{shared}/toolcell-quarantine-{me}"


def _nearest(path: str) -> str:
    """The path, or the nearest directory above it that exists."""
    while not os.path.isdir(path) and path != "/":
        path = os.path.dirname(path)
    return path


def _is_private(path: str, others: int = 0o077) -> bool:
    """Whether it is a directory of this user to which others have none of these rights."""
    info = os.lstat(path)
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & others


def _is_in(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _is_in_memory(path: str) -> bool:
    """Whether the file system of a path keeps its files in memory (proc_pid_mountinfo(5))."""
    device = os.stat(_nearest(path)).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            mount, _, kind = line.decode(errors="replace").partition(" - ")
            if mount.split()[2] == number:
                return kind.split()[0] in ("tmpfs", "ramfs")
    return False


def _size(root: Root, path: str, most: int) -> int:
    """The bytes that an entry and all below it take on a disk, at least a block for each. Above `most`, counting stops.
    The size is above `most` if a part cannot be read."""
    size, waiting = 0, [path]
    while waiting and size <= most:
        path = waiting.pop()
        try:
            held = root.open(path, walker.ENTRY)
        except FileNotFoundError:
            continue  # it was removed meanwhile
        try:
            info = os.fstat(held)
            size += max(BLOCK_BYTES, info.st_blocks * 512)
            if stat.S_ISDIR(info.st_mode):
                if walker.is_closed(info):
                    walker.allow(held)
                with os.scandir(f"/proc/self/fd/{held}") as entries:
                    waiting += (f"{path}/{each.name}" for each in entries)
        except OSError:
            return most + 1
        finally:
            os.close(held)
    return size
