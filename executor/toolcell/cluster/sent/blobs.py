"""A content-addressed store in a directory: bounded, with LRU eviction, verified on arrival. Thread-safe."""

import errno
import fcntl
import os
import stat
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from typing import Final

__all__ = ["BlobRoom", "BlobStore", "StoreTooSmall", "WrongBlob"]

MIB: Final = 1024 * 1024
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_FICLONE: Final = 0x40049409  # ioctl_ficlone(2)
_INCOMING: Final = "incoming"


class BlobRoom(OSError):
    """Pinned contents leave no room in the store."""


class StoreTooSmall(OSError):
    """The store can never hold contents of so many bytes."""


class WrongBlob(Exception):
    """A received content does not have its digest, or its pieces came out of order."""


class _Incoming:
    """A content that arrives in pieces, in order."""

    def __init__(self, path: str, total: int) -> None:
        self.path, self.total, self.at = path, total, 0
        self.digest = sha256()
        self.fd = os.open(path, _NEW, 0o600)

    def feed(self, data: bytes) -> None:
        _write_all(self.fd, data)
        self.digest.update(data)
        self.at += len(data)

    def drop(self) -> None:
        """Discard the pieces that have arrived."""
        os.close(self.fd)
        with suppress(OSError):
            os.unlink(self.path)


class BlobStore:
    """At most `most_bytes` bytes of contents in a directory of this process alone, which is made with mode 0700.

    Contents of an earlier process are taken over, and each is verified at its first use.
    """

    def __init__(self, directory: str, most_bytes: int) -> None:
        self._directory = directory
        self._most = most_bytes
        self._lock = threading.RLock()
        self._sizes: OrderedDict[bytes, int] = OrderedDict()  # the least recently used first
        self._verified: set[bytes] = set()
        self._pins: Counter[bytes] = Counter()
        self._incoming: dict[tuple[str, bytes], _Incoming] = {}
        self._numbers = 0
        self.bytes = 0
        os.makedirs(directory, 0o700, exist_ok=True)
        os.chmod(directory, 0o700)
        self._take_over()

    def __repr__(self) -> str:
        return f"<BlobStore {len(self._sizes)} contents · {self.bytes:,} of {self._most:,} bytes>"

    def __contains__(self, digest: bytes) -> bool:
        with self._lock:
            return digest in self._sizes

    def _take_over(self) -> None:
        found: list[tuple[float, bytes, int]] = []
        incoming = f"{self._directory}/{_INCOMING}"
        os.makedirs(incoming, 0o700, exist_ok=True)
        for name in os.listdir(incoming):
            os.unlink(f"{incoming}/{name}")
        for shelf in os.listdir(self._directory):
            if shelf == _INCOMING:
                continue
            with os.scandir(f"{self._directory}/{shelf}") as scan:
                for each in scan:
                    info = each.stat(follow_symlinks=False)
                    try:
                        digest = bytes.fromhex(shelf + each.name)
                    except ValueError:
                        digest = b""
                    if len(digest) != 32 or not stat.S_ISREG(info.st_mode):
                        os.unlink(each.path)
                        continue
                    found.append((info.st_mtime, digest, info.st_size))
        for _used, digest, size in sorted(found):
            self._sizes[digest] = size
            self.bytes += size
        with self._lock:
            self._make_room(0)

    # -- contents -----------------------------------------------------------------------------------------------------

    def require_room(self, size: int) -> None:
        """Raise StoreTooSmall if the store can never hold contents of so many bytes."""
        if size > self._most:
            raise StoreTooSmall(
                errno.ENOSPC,
                f"it has {size:,} bytes, and the store of the node holds at most {self._most:,}. Raise store_bytes",
            )

    def lacking(self, digests: Iterable[bytes]) -> list[bytes]:
        """The digests whose contents are not in the store. The other contents count as used."""
        with self._lock:
            missing: list[bytes] = []
            for digest in digests:
                if digest in self._sizes:
                    self._sizes.move_to_end(digest)
                else:
                    missing.append(digest)
            return missing

    def pin(self, digests: Iterable[bytes]) -> None:
        """Do not evict these contents until `unpin`. They may arrive later."""
        with self._lock:
            self._pins.update(digests)

    def unpin(self, digests: Iterable[bytes]) -> None:
        """Undo one `pin` of each content."""
        with self._lock:
            self._pins.subtract(digests)
            self._pins = +self._pins

    def _make_room(self, size: int) -> None:
        """Evict until there is room for so many bytes. Raises BlobRoom."""
        if self.bytes + size <= self._most:
            return
        for digest in [each for each in self._sizes if each not in self._pins]:
            self._evict(digest)
            if self.bytes + size <= self._most:
                return
        if self.bytes + size > self._most:
            raise BlobRoom(
                errno.ENOSPC,
                f"the store of the node holds at most {self._most:,} bytes, of which {self.bytes:,} are in use, and "
                f"{size:,} more are asked for. Raise store_bytes",
            )

    def _evict(self, digest: bytes) -> None:
        self.bytes -= self._sizes.pop(digest)
        self._verified.discard(digest)
        with suppress(FileNotFoundError):
            os.unlink(self._path(digest))

    # -- incoming contents --------------------------------------------------------------------------------------------

    def put(self, owner: str, digest: bytes, at: int, total: int, data: bytes) -> bool:
        """Add a piece of a content, at offset `at` of `total` bytes, in order. Returns whether the content is complete.
        A stored content is not changed. Raises WrongBlob, BlobRoom and OSError; then all pieces must be sent again."""
        key = (owner, digest)
        with self._lock:
            if digest in self._sizes:
                self._drop(key)
                return True
            coming = self._incoming.get(key)
            if at == 0:
                self._drop(key)
                self._make_room(total)
                coming = self._incoming[key] = _Incoming(self._new_path(), total)
            if coming is None or coming.at != at or coming.total != total or at + len(data) > total:
                self._drop(key)
                raise WrongBlob("a piece of a content came out of turn")
            try:
                coming.feed(data)
                if coming.at < total:
                    return False
                if coming.digest.digest() != digest:
                    raise WrongBlob("a content does not have its digest")
                self._keep(digest, total, coming.path)
                os.close(coming.fd)
                del self._incoming[key]
            except BaseException:
                self._drop(key)
                raise
            return True

    def take(self, size: int, read: Callable[[Callable[[bytes], object]], bytes]) -> bytes:
        """Store a content of `size` bytes, pinned once. `read` passes the content to its argument in pieces, and
        returns the digest. Raises BlobRoom, OSError, and the exceptions of `read`."""
        with self._lock:
            self._make_room(size)
            path = self._new_path()
        fd = os.open(path, _NEW, 0o600)
        try:
            digest = read(lambda piece: _write_all(fd, piece))
            with self._lock:
                self._pins[digest] += 1
                if digest not in self._sizes:
                    self._keep(digest, size, path)
                    return digest
        except BaseException:
            with suppress(OSError):
                os.unlink(path)
            raise
        finally:
            os.close(fd)
        os.unlink(path)
        return digest

    def forget(self, owner: str) -> None:
        """Discard the incomplete contents of this owner."""
        with self._lock:
            for key in [key for key in self._incoming if key[0] == owner]:
                self._drop(key)

    def _keep(self, digest: bytes, size: int, path: str) -> None:
        self._make_room(size)
        place = self._path(digest)
        os.makedirs(os.path.dirname(place), 0o700, exist_ok=True)
        os.rename(path, place)
        self._sizes[digest] = size
        self._verified.add(digest)
        self.bytes += size

    def _drop(self, key: tuple[str, bytes]) -> None:
        coming = self._incoming.pop(key, None)
        if coming is not None:
            coming.drop()

    # -- outgoing contents --------------------------------------------------------------------------------------------

    def open(self, digest: bytes) -> int:
        """Open a content. The caller closes the descriptor. Raises KeyError if the store lacks the content."""
        with self._lock:
            size = self._sizes[digest]
            self._sizes.move_to_end(digest)
            is_verified = digest in self._verified
        path = self._path(digest)
        try:
            fd = os.open(path, _READ)
        except FileNotFoundError:
            self._lose(digest)
            raise KeyError(digest) from None
        os.utime(path)  # the order of use, for a later process
        if not is_verified and not _is(fd, digest, size):
            os.close(fd)
            self._lose(digest)
            raise KeyError(digest)
        with self._lock:
            self._verified.add(digest)
        return fd

    def read(self, digest: bytes, at: int, length: int) -> bytes:
        """At most `length` bytes of a content, from offset `at`. Raises KeyError if the store lacks the content."""
        fd = self.open(digest)
        try:
            return os.pread(fd, length, at)
        finally:
            os.close(fd)

    def copy(self, digest: bytes, to: int) -> None:
        """Copy a content into an empty open file, as a reflink if the file system can. Raises KeyError."""
        fd = self.open(digest)
        try:
            try:
                fcntl.ioctl(to, _FICLONE, fd)
                return
            except OSError:
                pass  # this file system has no reflinks
            try:
                while os.copy_file_range(fd, to, 64 * MIB):
                    pass
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                    raise
                while piece := os.read(fd, MIB):  # to another file system
                    _write_all(to, piece)
        finally:
            os.close(fd)

    def _lose(self, digest: bytes) -> None:
        """Forget a content that is deleted or damaged."""
        with self._lock:
            if digest in self._sizes:
                self._evict(digest)

    def _path(self, digest: bytes) -> str:
        name = digest.hex()
        return f"{self._directory}/{name[:2]}/{name[2:]}"

    def _new_path(self) -> str:
        self._numbers += 1
        return f"{self._directory}/{_INCOMING}/{self._numbers}"

    def close(self) -> None:
        """Discard the incomplete contents. The other contents stay."""
        with self._lock:
            for key in list(self._incoming):
                self._drop(key)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _is(fd: int, digest: bytes, size: int) -> bool:
    """Whether an open file has this digest and size."""
    found, at = sha256(), 0
    while piece := os.pread(fd, MIB, at):
        found.update(piece)
        at += len(piece)
    return at == size and found.digest() == digest
