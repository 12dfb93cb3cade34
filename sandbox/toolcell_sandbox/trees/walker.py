"""Work in a tree that hostile processes may change: by descriptors, below one root, without following links.

All work in such a tree from outside of a cell uses this module: looks, repairs, moves and writes. Paths are resolved by
openat2(2) with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, in pieces, so that a path may be longer than PATH_MAX. Every
walk has a `Budget`. A path beyond the budget is unknown, never absent.
"""

import errno
import math
import os
import stat
import struct
import time
from collections.abc import Container, Iterator
from dataclasses import dataclass
from itertools import islice
from types import TracebackType

from toolcell_sandbox.kernel.syscalls import AT_FDCWD, attempt

MIB = 1024 * 1024
PIECE_BYTES = 3 * 1024  # of a path, below PATH_MAX
MOST_LINKS = 40  # that the kernel follows in one path (path_resolution(7))
COPY_BYTES, COPY_ENTRIES, COPY_DEPTH = 64 * MIB, 10_000, 40
"""The most that one audit copies to another file system. Each level of a tree holds two descriptors open."""
_RESOLVE = 0x02 | 0x04  # RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS
_BENEATH = 0x08  # RESOLVE_BENEATH
_NOREPLACE = 1  # RENAME_NOREPLACE
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PATH, LIST = os.O_PATH | _DIRECTORY, os.O_RDONLY | _DIRECTORY
ENTRY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_how = struct.Struct("=3Q").pack  # struct open_how: flags, mode, resolve
_CHECK_EVERY = 256  # entries between two readings of the clock


class Cut(Exception):
    """A bound of a budget was reached. The message names the bound."""


class Budget:
    """What a walk may still use: directories, entries, protected names, bytes of paths and of content, seconds.

    `until` (time.monotonic) takes the place of `seconds`. `busy` (0 to 1) is the share of time spent working; the rest
    is sleep. Raises Cut at a bound.
    """

    __slots__ = ("_busy", "_clock", "_content", "_end", "_entries", "_left", "_most_entries")

    def __init__(
        self,
        *,
        directories: int = 100_000,
        entries: int = 1_000_000,
        names: int = 50_000,
        path_bytes: int = 16 * MIB,
        content_bytes: int = 64 * MIB,
        seconds: float = 10.0,
        until: float | None = None,
        busy: float = 1.0,
    ) -> None:
        self._left = {"directories": directories, "protected names": names, "bytes of paths": path_bytes}
        self._entries, self._most_entries = 0, entries
        self._content = content_bytes
        self._clock = time.monotonic()
        self._end = self._clock + seconds if until is None else until
        self._busy = busy

    def spend(self, what: str, count: int = 1) -> None:
        """Take `count` of "directories", "protected names" or "bytes of paths"."""
        self._left[what] -= count
        if self._left[what] < 0:
            raise Cut(f"it has too many {what}")
        self.check()

    def entry(self) -> None:
        """Take one entry of a directory."""
        self._entries += 1
        if self._entries % _CHECK_EVERY == 0:
            if self._entries > self._most_entries:
                raise Cut("it has too many entries")
            self.check()

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self._end

    def extend(self, seconds: float) -> None:
        """Give more time, for work that is not the walk's own."""
        self._end += seconds

    def end(self) -> None:
        """Cut the walk short at its next step, from another thread."""
        self._end = -math.inf

    def may_read(self, info: os.stat_result) -> bool:
        """Charge a file's size to the content budget. Return False, and charge nothing, if it does not fit."""
        size = info.st_size if stat.S_ISREG(info.st_mode) else 0
        if size > self._content:
            return False
        self._content -= size
        return True

    def check(self) -> None:
        """Raise Cut if the time is over, and sleep as `busy` demands."""
        now = time.monotonic()
        if now > self._end:
            raise Cut("the look was ended" if self._end < 0 else "the look took too long")
        worked = now - self._clock
        if self._busy < 1 and worked > 0.005:
            time.sleep(worked * (1 - self._busy) / self._busy)
            self._clock = time.monotonic()


class Root:
    """A directory that is held open. Paths are relative to it; "" is the directory itself. Raises OSError.

    Every descriptor that a method returns is the caller's to close.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = -1

    def __enter__(self) -> "Root":
        self.fd = _openat2(AT_FDCWD, self.path, PATH, _RESOLVE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.fd)

    def open(self, path: str, flags: int) -> int:
        """Open what is at `path`."""
        *above, last = _pieces(path)
        fd = os.dup(self.fd)
        try:
            for piece in above:
                below = _openat2(fd, piece, PATH, _RESOLVE | _BENEATH)
                os.close(fd)
                fd = below
            return _openat2(fd, last or ".", flags, _RESOLVE | _BENEATH)
        finally:
            os.close(fd)

    def parent(self, path: str, *, make: bool = False, owned: bool = False) -> int:
        """Open the parent of `path`. `make` creates it; `owned` gives it the root's owner."""
        above = os.path.dirname(path)
        try:
            return self.open(above, PATH)
        except FileNotFoundError:
            if not make:
                raise
        fd = os.dup(self.fd)
        try:
            for name in above.split("/"):
                below = self._made(name, fd, owned=owned)
                os.close(fd)
                fd = below
            return os.dup(fd)
        finally:
            os.close(fd)

    def _made(self, name: str, parent: int, *, owned: bool) -> int:
        try:
            os.mkdir(name, 0o755, dir_fd=parent)
        except FileExistsError:
            return os.open(name, PATH, dir_fd=parent)
        fd = os.open(name, PATH, dir_fd=parent)
        owner = os.fstat(self.fd)
        if owned and owner.st_uid != os.geteuid() == os.fstat(fd).st_uid:
            os.chown(_proc(fd), owner.st_uid, owner.st_gid)
        return fd

    def stat(self, path: str) -> os.stat_result:
        """lstat(2) of `path`."""
        fd = self.open(path, ENTRY)
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def write_new(self, path: str, raw: bytes, mode: int = 0o644) -> None:
        """Make a file, whole or not at all, and the directories above it. Raises FileExistsError if the path exists."""
        parent, name = self.parent(path, make=True), os.path.basename(path)
        try:
            with os.fdopen(os.open(name, _NEW_FILE, mode, dir_fd=parent), "wb") as file:
                try:
                    file.write(raw)
                    file.flush()
                except OSError:
                    os.unlink(name, dir_fd=parent)
                    raise
        finally:
            os.close(parent)

    def unlink(self, path: str) -> None:
        """Remove the file at `path`, which is not a directory."""
        parent = self.parent(path)
        try:
            os.unlink(os.path.basename(path), dir_fd=parent)
        finally:
            os.close(parent)


def entry(name: str, parent: int) -> int:
    """A descriptor (O_PATH) of an entry of an open directory, whatever its type."""
    return os.open(name, ENTRY, dir_fd=parent)


def content(held: int, most: int) -> bytes:
    """The first `most` bytes of a held regular file. Raises OSError with errno EINVAL for any other type."""
    if not stat.S_ISREG(os.fstat(held).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    with os.fdopen(readable(held), "rb", buffering=0) as file:
        raw = bytearray()
        while len(raw) < most and (more := file.read(most - len(raw))):
            raw += more
        return bytes(raw)


def readable(held: int) -> int:
    """Open a held regular file for reading. Fails with EAGAIN, without waiting, if it is leased (fcntl(2))."""
    return os.open(_proc(held), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def target(held: int) -> bytes:
    """The target of a held symbolic link."""
    return os.readlink(b"", dir_fd=held)


def is_closed(info: os.stat_result) -> bool:
    """Whether the directory is ours and its mode denies us reading or searching it."""
    return info.st_uid == os.geteuid() != 0 and stat.S_IMODE(info.st_mode) & 0o500 != 0o500


def open_up(name: str, parent: int) -> None:
    """Give ourselves all permissions on the directory, if it is ours."""
    fd = os.open(name, PATH, dir_fd=parent)
    try:
        allow(fd)
    finally:
        os.close(fd)


def move(name: str, parent: int, new_name: str, new_parent: int) -> None:
    """Rename between open directories. Gives ourselves the permissions that this needs.

    Raises FileExistsError if the new name exists: nothing is ever replaced.
    """
    try:
        _rename(name, parent, new_name, new_parent)
        return
    except PermissionError:
        allow(parent)
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            open_up(name, parent)  # to rename a directory is to write its ".."
    _rename(name, parent, new_name, new_parent)


def moved(root: Root, path: str, new_path: str) -> bool:
    """Rename below one root. Returns False if that failed, for example because the new path exists."""
    parents: list[int] = []
    try:
        parents += [root.parent(path)]
        parents += [root.parent(new_path)]
        move(os.path.basename(path), parents[0], os.path.basename(new_path), parents[1])
    except OSError:
        return False
    finally:
        for fd in parents:
            os.close(fd)
    return True


def _rename(name: str, parent: int, new_name: str, new_parent: int) -> None:
    result = attempt("renameat2", parent, name, new_parent, new_name, _NOREPLACE)
    if result == -errno.EINVAL and not _is_there(new_name, new_parent):
        os.rename(name, new_name, src_dir_fd=parent, dst_dir_fd=new_parent)  # the file system lacks that flag
    elif result < 0:
        raise _error(-result, name)


def _is_there(name: str, parent: int) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Copied:
    """A copied entry: its name, its inode and change time at the copy, and the copied entries of a directory."""

    name: str
    inode: tuple[int, int]
    changed_ns: int
    inside: "tuple[Copied, ...] | None"  # None if it is not a directory

    def remove(self, parent: int) -> None:
        """Remove the original, entry by entry. Entries that are new or changed since the copy stay."""
        try:
            held = entry(self.name, parent)
        except OSError:
            return
        try:
            info = os.fstat(held)
            if (info.st_dev, info.st_ino) != self.inode:
                return
            if self.inside is not None:
                for each in self.inside:
                    each.remove(held)
                os.rmdir(self.name, dir_fd=parent)
            elif info.st_ctime_ns == self.changed_ns:
                os.unlink(self.name, dir_fd=parent)
        except OSError:
            pass  # it stays
        finally:
            os.close(held)


class Copies:
    """How much one audit may still copy to another file system."""

    def __init__(self, bytes_left: int = COPY_BYTES, entries_left: int = COPY_ENTRIES) -> None:
        self._bytes, self._entries = bytes_left, entries_left

    def copy(self, name: str, parent: int, new_name: str, new_parent: int) -> Copied | None:
        """Copy a tree, keeping holes. If it is too large or holds a device, remove the copy and return None.

        It follows no link and opens nothing but regular files and directories.
        """
        try:
            return self._copy(name, parent, new_name, new_parent, COPY_DEPTH)
        except (OSError, Cut):  # the disk is full, it is larger than the bounds, or it changes under our hands
            remove(new_name, new_parent)
            return None

    def _copy(self, name: str, parent: int, new_name: str, new_parent: int, depth: int) -> Copied:
        self._entries -= 1
        if self._entries < 0 or depth < 0:
            raise Cut("too many entries to copy")
        held = entry(name, parent)
        try:
            info, inside = os.fstat(held), None
            if stat.S_ISLNK(info.st_mode):
                os.symlink(target(held), os.fsencode(new_name), dir_fd=new_parent)
            elif stat.S_ISREG(info.st_mode):
                self._copy_file(held, info, new_name, new_parent)
            elif stat.S_ISDIR(info.st_mode):
                inside = self._copy_directory(held, info, new_name, new_parent, depth)
            else:
                raise OSError(errno.EINVAL, "neither a file, a directory nor a link")
        finally:
            os.close(held)
        return Copied(name, (info.st_dev, info.st_ino), info.st_ctime_ns, inside)

    def _copy_directory(
        self, held: int, info: os.stat_result, new_name: str, new_parent: int, depth: int
    ) -> tuple[Copied, ...]:
        os.mkdir(new_name, 0o700, dir_fd=new_parent)
        new = os.open(new_name, PATH, dir_fd=new_parent)
        try:
            if is_closed(info):
                allow(held)
            with os.scandir(_proc(held)) as scan:
                names = [each.name for _, each in zip(range(self._entries + 1), scan, strict=False)]
            inside = tuple([self._copy(each, held, each, new, depth - 1) for each in names])
            os.chmod(_proc(new), stat.S_IMODE(info.st_mode) | 0o700)
            return inside
        finally:
            os.close(new)

    def _copy_file(self, held: int, info: os.stat_result, new_name: str, new_parent: int) -> None:
        source = readable(held)
        try:
            new = os.open(new_name, _NEW_FILE, 0o600, dir_fd=new_parent)
            try:
                self._copy_data(source, new, info.st_size)
                os.fchmod(new, stat.S_IMODE(info.st_mode) & 0o777)
                os.utime(new, ns=(info.st_atime_ns, info.st_mtime_ns))
            finally:
                os.close(new)
        finally:
            os.close(source)

    def _copy_data(self, source: int, new: int, size: int) -> None:
        at = 0
        while at < size:
            try:
                at = os.lseek(source, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # no more data: the rest is a hole
                    raise
                break
            end = min(os.lseek(source, at, os.SEEK_HOLE), size)
            while at < end:
                chunk = os.pread(source, min(MIB, end - at), at)
                if not chunk:
                    break
                self._bytes -= len(chunk)
                if self._bytes < 0:
                    raise Cut("too many bytes to copy")
                at += os.pwrite(new, chunk, at)
            if at < end:
                break  # the file was truncated during the copy
        os.ftruncate(new, size)


def real_path(path: str) -> str:
    """The absolute path without symbolic links, as `os.path.realpath`, also if nothing is there. Raises OSError with
    errno ELOOP after `MOST_LINKS` links. `os.path.realpath` follows any number since Python 3.13.
    """
    real, links, rest = "", 0, os.path.join(os.getcwd(), path).split("/")[::-1]
    while rest:
        name = rest.pop()
        if name in ("", "."):
            continue
        if name == "..":
            real = real.rpartition("/")[0]
            continue
        try:
            target = os.readlink(f"{real}/{name}")
        except OSError:  # no link, or nothing is there
            real = f"{real}/{name}"
            continue
        links += 1
        if links > MOST_LINKS:
            raise _error(errno.ELOOP, path)
        if target.startswith("/"):
            real = ""
        rest.extend(target.split("/")[::-1])
    return real or "/"


def remove(name: str, parent: int, budget: Budget | None = None) -> None:
    """Remove an entry of an open directory, and everything below it. A missing entry is no error.

    Raises OSError: with errno E2BIG at a bound of the budget (by default ten million entries and a minute).
    """
    if _is_removed(name, parent):
        return
    top = os.open(name, PATH, dir_fd=parent)
    try:
        clear(top, (), budget)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def clear(top: int, kept: Container[str], budget: Budget | None = None) -> None:
    """Remove the entries of an open directory but those in `kept`. Raises as `remove` does.

    Directories below are moved up into it, one level at a time, so the depth of a tree costs no stack and no
    descriptors.
    """
    try:
        _clear(top, kept, budget or Budget(entries=10_000_000, seconds=60.0))
    except Cut as cut:
        raise OSError(errno.E2BIG, str(cut)) from None


def _clear(top: int, kept: Container[str], budget: Budget) -> None:
    for name in _names_until_none(top, kept, budget):
        if _is_removed(name, top):
            continue
        held = os.open(name, PATH, dir_fd=top)
        try:
            for each in _names_until_none(held, (), budget):
                if not _is_removed(each, held):
                    move(each, held, f"{os.urandom(8).hex()}.up", top)
        finally:
            os.close(held)


def _names_until_none(held: int, kept: Container[str], budget: Budget) -> Iterator[str]:
    """The names in an open directory that are not kept, until none is left: the caller removes each."""
    info = os.fstat(held)
    if info.st_mode & 0o700 != 0o700:
        allow(held)
    while True:
        with os.scandir(_proc(held)) as scan:
            names = [entry.name for entry in islice((each for each in scan if each.name not in kept), _CHECK_EVERY)]
        if not names:
            return
        for name in names:
            budget.entry()
            budget.check()
            yield name


def _is_removed(name: str, parent: int) -> bool:
    """Remove a file or an empty directory. Returns False for a directory that is not empty."""
    try:
        try:
            os.unlink(name, dir_fd=parent)
        except IsADirectoryError:
            os.rmdir(name, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise
        return error.errno == errno.ENOENT
    return True


def allow(fd: int) -> None:
    info = os.fstat(fd)
    if info.st_uid == os.geteuid():
        os.chmod(_proc(fd), stat.S_IMODE(info.st_mode) | 0o700)


def _proc(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


def _openat2(at: int, path: str, flags: int, resolve: int) -> int:
    how = _how(flags, 0, resolve)
    result = attempt("openat2", at, path, how, len(how))
    if result < 0:
        raise _error(-result, path)
    return result


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _pieces(path: str) -> list[str]:
    """The path in pieces of whole components, each short enough for one system call."""
    if len(path) * 4 <= PIECE_BYTES:
        return [path]
    pieces, piece, size = list[str](), list[str](), 0
    for name in path.split("/"):
        length = len(os.fsencode(name)) + 1
        if size + length > PIECE_BYTES:
            pieces.append("/".join(piece))
            piece, size = [], 0
        piece.append(name)
        size += length
    return [*pieces, "/".join(piece)]
