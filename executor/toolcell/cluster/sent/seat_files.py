"""The sent workspaces of one driver on a node: receive their contents, make their copies, send their diffs.

A request is `[op, *arguments]`. A reply is `["ok", *values]`, or `[status, why]` with a status of `REFUSALS`.
"""

import errno
import logging
import os
import stat
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import anyio

from toolcell.backends.threads import NoThread, Threads
from toolcell.cluster.link import pack, unpack
from toolcell.workplaces.exclusions import Exclusions
from toolcell.workplaces.runtime import try_lock
from toolcell_sandbox.trees import walker
from toolcell_sandbox.trees.walker import Root

from .blobs import BlobRoom, BlobStore, StoreTooSmall, WrongBlob
from .copies import CopyRoom, WorkingCopy
from .manifest import TreeManifest

__all__ = ["DONE", "FAILED", "LACKS", "NO_COPY", "NO_ROOM", "PIECE_BYTES", "NodeDirectory", "NodeFiles", "SeatFiles"]

_log = logging.getLogger("toolcell.cluster")
T = TypeVar("T")
DONE: Final = "ok"
LACKS: Final = "lacks"
"""The node lacks the contents that the reply lists."""
NO_ROOM: Final = "no room"
NO_COPY: Final = "no copy"
FAILED: Final = "failed"
PIECE_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of contents in one message."""
REMOVE_S: Final = 30.0
"""How long the removal of a copy waits for the processes that use it, in seconds."""
_WORK: Final = Threads(8)
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


class NodeFiles:
    """The contents and copies of a node, for all its drivers. The directory is made at first use."""

    def __init__(self, directory: str | None, store_bytes: int) -> None:
        self._above, self._store_bytes = directory, store_bytes
        self._lock = threading.Lock()
        self._directory: NodeDirectory | None = None
        self._store: BlobStore | None = None

    @property
    def is_open(self) -> bool:
        return self._store is not None

    def opened(self) -> tuple[NodeDirectory, BlobStore]:
        """The directory and the store. Raises OSError. Blocks."""
        with self._lock:
            if self._directory is None or self._store is None:
                self._directory = NodeDirectory(self._above)
                self._store = BlobStore(self._directory.store, self._store_bytes)
            return self._directory, self._store

    def close(self) -> None:
        """Remove the copies, and release the directory. Contents stay for the next process. Blocks."""
        with self._lock:
            if self._store is not None:
                self._store.close()
            if self._directory is not None:
                self._directory.close()
            self._directory = self._store = None


class SeatFiles:
    """The copies of one driver. `quiet` ends the calls of sessions, and waits until their processes have gone."""

    def __init__(
        self,
        files: NodeFiles,
        driver: str,
        quiet: Callable[[Sequence[str]], Awaitable[None]],
    ) -> None:
        self._files = files
        self._driver = driver
        self._quiet = quiet
        self._copies: dict[str, WorkingCopy] = {}
        self._pinned: dict[str, set[bytes]] = {}
        self._turns: dict[str, anyio.Lock] = {}
        self.is_over = False

    def __repr__(self) -> str:
        return f"<SeatFiles of {self._driver} · {len(self._copies)} copies>"

    def path_of(self, id: str) -> str:
        """The directory of a copy. Raises KeyError."""
        return self._copies[id].path

    async def handle(self, request: Sequence[Any], payload: bytes) -> list[Any]:
        """Answer a request of the driver."""
        op, *arguments = request
        try:
            directory, store = await _WORK.run(self._files.opened)
            match op:
                case "put":
                    return await self._put(store, unpack(payload))
                case "open":
                    return await self._open(directory, store, *arguments)
                case "changes":
                    return await self._changes(store, *arguments)
                case "get":
                    return await self._get(store, *arguments)
                case "add":
                    return await self._add(unpack(payload), *arguments)
                case "settle":
                    return await self._settle(store, *arguments)
                case "drop":
                    return await self._drop(*arguments)
                case _:
                    return [FAILED, f"the node knows no {op!r}"]
        except (BlobRoom, CopyRoom) as error:
            return [NO_ROOM, str(error.strerror)]
        except StoreTooSmall as error:
            return [FAILED, str(error.strerror)]
        except (OSError, NoThread, WrongBlob, ValueError) as error:
            _log.warning("the request %s of %s failed: %s", op, self._driver, error)
            return [FAILED, str(error)]

    # -- contents -----------------------------------------------------------------------------------------------------

    async def _put(self, store: BlobStore, pieces: Sequence[Any]) -> list[Any]:
        def put() -> int:
            return sum(store.put(self._driver, digest, at, total, data) for digest, at, total, data in pieces)

        return [DONE, await _WORK.run(put)]

    async def _get(self, store: BlobStore, wanted: Sequence[Any]) -> list[Any]:
        def get() -> list[bytes]:
            return [store.read(digest, at, min(length, PIECE_BYTES)) for digest, at, length in wanted]

        try:
            return [DONE, *await _WORK.run(get)]
        except KeyError:
            return [FAILED, "a content is not in the node's store any more"]

    # -- copies -------------------------------------------------------------------------------------------------------

    async def _open(
        self,
        directory: NodeDirectory,
        store: BlobStore,
        id: str,
        name: str,
        trees: Sequence[bytes],
        rules: Sequence[Any],
        bounds: Sequence[int],
    ) -> list[Any]:
        """Make a copy of the trees, each laid over the one before it. If contents are lacking, reply with their
        digests, and pin the contents that are there until the copy is open or dropped."""
        async with self._turn_of(id):
            if id in self._copies:
                return [DONE, self._copies[id].path]
            path = f"{directory.copies}/{os.urandom(8).hex()}/{name}"
            made = partial(self._made, store, id, path, trees, rules, bounds)
            copy, lacking = await _WORK.run(made)
            if copy is None:
                return [LACKS, lacking]
            self._unpin(store, id)
            if self.is_over:
                await _WORK.run(copy.remove)
                return [NO_COPY, "the driver's lease is over"]
            self._copies[id] = copy
            return [DONE, copy.path]

    def _made(
        self,
        store: BlobStore,
        id: str,
        path: str,
        trees: Sequence[bytes],
        rules: Sequence[Any],
        bounds: Sequence[int],
    ) -> tuple[WorkingCopy | None, list[bytes]]:
        self._pin(store, id, trees)
        lacking = store.lacking(trees)
        if lacking:
            return None, lacking
        digests: set[bytes] = set()
        try:
            tree = TreeManifest([])
            for digest in trees:
                tree = TreeManifest.unpacked(_whole(store, digest)).over(tree)
            sizes = {each.content: each.size for each in tree.entries.values() if each.kind == "file" and each.size}
            store.require_room(sum(sizes.values()))
            digests = set(sizes)
            self._pin(store, id, digests)
            lacking = store.lacking(digests)
            if lacking:
                return None, lacking
            copy = WorkingCopy(path, tree, Exclusions.from_wire(rules), *bounds)
            copy.make(store)
        except KeyError:  # a content was damaged and has been removed
            return None, store.lacking([*trees, *digests])
        return copy, []

    def _pin(self, store: BlobStore, id: str, digests: "Sequence[bytes] | set[bytes]") -> None:
        pinned = self._pinned.setdefault(id, set())
        new = set(digests) - pinned
        pinned |= new
        store.pin(new)

    def _unpin(self, store: BlobStore, id: str) -> None:
        store.unpin(self._pinned.pop(id, ()))

    async def _changes(self, store: BlobStore, id: str, sessions: Sequence[str]) -> list[Any]:
        """The changes of a copy, after the calls of these sessions have ended."""
        copy = self._copies.get(id)
        if copy is None:
            return [NO_COPY, "the copy is not on this node any more"]
        async with self._turn_of(id):
            if sessions:
                await self._quiet(sessions)
            return [DONE, await _WORK.run(lambda: pack(copy.changes(store).to_wire()))]

    async def _settle(self, store: BlobStore, id: str, paths: Sequence[str]) -> list[Any]:
        copy = self._copies.get(id)
        if copy is not None:
            async with self._turn_of(id):
                await _WORK.run(partial(copy.settle, paths))
                copy.release(store)
        return [DONE]

    async def _add(self, files: Sequence[Any], id: str) -> list[Any]:
        """Write files of the driver into a copy."""
        copy = self._copies.get(id)
        if copy is None:
            return [NO_COPY, "the copy is not on this node any more"]
        async with self._turn_of(id):
            await _WORK.run(partial(copy.add, files))
        return [DONE]

    async def _drop(self, id: str) -> list[Any]:
        copy = self._copies.pop(id, None)
        _directory, store = await _WORK.run(self._files.opened)
        self._unpin(store, id)
        self._turns.pop(id, None)
        if copy is not None:
            copy.release(store)
            await self._remove(copy)
        return [DONE]

    async def _remove(self, copy: WorkingCopy) -> None:
        """Remove a copy. Try again while processes write to it."""
        with anyio.move_on_after(REMOVE_S):
            while True:
                try:
                    await _WORK.run(copy.remove)
                    return
                except FileNotFoundError:
                    return
                except OSError as error:
                    _log.info("the copy %s cannot be removed yet: %s", copy.path, error)
                await anyio.sleep(0.2)
        _log.warning("the copy %s stays until the node restarts", copy.path)

    async def end(self) -> None:
        """Drop everything, because the driver has left."""
        self.is_over = True
        for id in [*{*self._copies, *self._pinned}]:
            await self._drop(id)
        if self._files.is_open:
            self._files.opened()[1].forget(self._driver)

    def _turn_of(self, id: str) -> anyio.Lock:
        return self._turns.setdefault(id, anyio.Lock())


def _whole(store: BlobStore, digest: bytes) -> bytes:
    """A whole content. Raises KeyError."""
    fd = store.open(digest)
    with os.fdopen(fd, "rb") as file:
        return file.read()


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
