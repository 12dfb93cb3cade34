"""Save outputs that are too long for a model to a file, as an artifact that `for_model` names: of a result, and of a
stream while its call runs.

If the session may read and write its workspace, the file is in `.toolcell/outputs/` there, so that the model can read
the rest with the `read` tool: text unchanged, other data as JSON in lines. Otherwise the file is in the supervisor's
own store, a directory that is removed when the supervisor ends. `artifact.read()` reads both.
"""

import errno
import logging
import os
import re
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path

import anyio
from pydantic_core import to_json

from toolcell.backends.threads import FILES, STREAMS, NoThread
from toolcell.wire.budget import Charge
from toolcell.workplaces.record import OUTPUTS, RunRecord
from toolcell_sandbox.trees import walker
from toolcell_sandbox.trees.walker import Root
from toolcell_tools.artifact import Artifact, digest_of
from toolcell_tools.result import ToolResult

_log = logging.getLogger("toolcell")
FOLDER = ".toolcell"
_OUTPUT = re.compile(rf"\{FOLDER}/outputs/[0-9a-f]{{16}}\.(?:txt|json)")
_IGNORING, _IGNORED = f"{FOLDER}/.gitignore", b"*\n"
MOST_JSON = 8
"""The most bytes of JSON for one byte of msgpack: a control character takes 6, a short number with its comma 5."""
PIECE_BYTES = 256  # memory of a waiting piece of a stream besides its data
KEEP_BYTES = 512 * 1024 * 1024  # 32 results of the largest size that the limits allow by default


class NoRoom(OSError):
    """The files of running calls take all the space that may be used."""


class Overflow:
    """Saves outputs over `model_bytes` bytes. It keeps at most `keep_bytes` bytes: the oldest files are removed
    first."""

    def __init__(self, model_bytes: int, *, keep_bytes: int = KEEP_BYTES, record: RunRecord | None = None) -> None:
        self._model_bytes = model_bytes
        self.sure_bytes = model_bytes // MOST_JSON
        """A result whose frame has at most so many bytes is surely short enough for a model."""
        self._room = keep_bytes
        self._lock = threading.Lock()
        self._kept: deque[tuple[Path, str, int]] = deque()
        self._names: set[str] = set()  # of the files in workspaces
        self._store: Path | None = None
        self._record = record or RunRecord()
        self.on_saved: Callable[[Path, str], None] | None = None
        """Called in a thread with each workspace and the path of a complete file in it."""

    def is_own(self, path: str, size: int | None) -> bool:
        """Whether a path in a workspace, with this size or None if it is gone, is a file of this class. A call that
        puts other files there must not hide them."""
        if not path.startswith(f"{FOLDER}/"):
            return False
        if size is None:
            return _OUTPUT.fullmatch(path) is not None  # removed to make room, maybe by another supervisor
        return path in self._names or (path == _IGNORING and size == len(_IGNORED))

    async def spilled(self, result: ToolResult, workspace: Path | None) -> ToolResult:
        """`result`, with an artifact of its full output if that is too long for a model.

        `workspace` is None unless the session may both read and write it. If the file cannot be written there, because
        a tool put a link or a file in the way, it goes to the store. If no file can be written, `result` is unchanged.
        """
        if result.error is not None or not _is_longer(result, self._model_bytes):
            return result
        try:
            artifact = await FILES.run(partial(self._write, result, workspace))
        except (OSError, NoThread):
            _log.exception("the output of call %s could not be written to a file", result.call_id)
            return result
        return result.model_copy(update={"artifacts": [*result.artifacts, artifact]})

    def new_file(self, workspace: Path | None) -> "NewFile":
        """A file for a stream that grows while its call runs, in the same place as long outputs. Call this in a thread.
        Raises OSError."""
        name = os.urandom(8).hex() + ".txt"
        with self._lock:
            path, root = f"{FOLDER}/outputs/{name}", workspace
            self._names.add(path)
            if workspace is None or not _is_written(workspace, path, b""):
                path, root = name, self._own_store()
                _write_new(root, path, b"")
        assert root is not None
        with Root(str(root)) as held:
            return NewFile(self, root, path, root == workspace, held.open(path, os.O_WRONLY | os.O_APPEND))

    def reserve(self, size: int) -> None:
        """Reserve so many more bytes for a growing file. Raises NoRoom if no older file is left to remove."""
        with self._lock:
            self._make_room(size)
            if self._room < 0:
                self._room += size
                raise NoRoom(errno.ENOSPC, "no room is left for the streams of calls")

    def give_back(self, size: int) -> None:
        """Return so many reserved bytes that were not used."""
        with self._lock:
            self._room += size

    def keep(self, root: Path, path: str, size: int) -> None:
        """Add a complete file to those that may be removed to make room."""
        with self._lock:
            self._kept.append((root, path, size))
        self._tell_saved(root, path)

    def _tell_saved(self, root: Path, path: str) -> None:
        if self.on_saved is not None and root != self._store:
            self.on_saved(root, path)

    def close(self) -> None:
        """Remove the store."""
        if self._store is not None:
            with Root(str(self._store.parent)) as root:
                walker.remove(self._store.name, root.fd)
            self._store = None

    def _write(self, result: ToolResult, workspace: Path | None) -> Artifact:
        raw, media_type = _lines_of(result)
        name = os.urandom(8).hex() + (".json" if media_type == "application/json" else ".txt")
        with self._lock:
            self._make_room(len(raw))
            path, kind, root = f"{FOLDER}/outputs/{name}", "output", workspace
            self._names.add(path)
            try:
                if workspace is None or not _is_written(workspace, path, raw):
                    path, kind, root = name, "stored", self._own_store()
                    _write_new(root, path, raw)
            except BaseException:
                self._room += len(raw)
                raise
            assert root is not None
            self._kept.append((root, path, len(raw)))
        self._tell_saved(root, path)
        return Artifact(path, kind, digest_of(raw), len(raw), media_type, uri=(root / path).as_uri())

    def _make_room(self, size: int) -> None:
        self._room -= size
        while self._room < 0 and self._kept:
            oldest, path, freed = self._kept.popleft()
            self._room += freed
            self._names.discard(path)
            try:
                with Root(str(oldest)) as root:
                    root.unlink(path)
            except OSError:
                pass  # in a workspace, a tool may have removed it before

    def _own_store(self) -> Path:
        if self._store is None:
            self._store = Path(os.path.realpath(tempfile.mkdtemp(prefix="toolcell-outputs-")))
            self._record.directory(OUTPUTS, str(self._store))
        return self._store


class NewFile:
    """A file that threads write, one at a time, while data arrives. Raises OSError."""

    def __init__(self, overflow: Overflow, root: Path, path: str, in_workspace: bool, fd: int) -> None:
        self.path = path
        self.in_workspace = in_workspace
        self.size = 0
        self._overflow = overflow
        self._root = root
        self._file = os.fdopen(fd, "ab", buffering=0)
        self._digest = sha256()

    def write(self, data: bytes) -> None:
        self._overflow.reserve(len(data))
        rest = memoryview(data)
        try:
            while rest:
                written = self._file.write(rest)
                self._digest.update(rest[:written])
                self.size += written
                rest = rest[written:]
        finally:
            self._overflow.give_back(len(rest))

    def discard(self) -> None:
        """Remove the file, because nothing could be written to it."""
        self._file.close()
        with Root(str(self._root)) as root:
            root.unlink(self.path)

    def closed(self, kind: str) -> Artifact:
        """Close the file and return its artifact."""
        self._file.close()
        self._overflow.keep(self._root, self.path, self.size)
        uri = (self._root / self.path).as_uri()
        return Artifact(self.path, kind, f"sha256:{self._digest.hexdigest()}", self.size, "text/plain", uri=uri)


def _is_longer(result: ToolResult, model_bytes: int) -> bool:
    """Whether `result.encoded()` is longer than that. It is not computed if the output alone is longer."""
    output: object = result.output
    if isinstance(output, str) and len(output) > model_bytes:
        return True
    return len(result.encoded()) > model_bytes


def _lines_of(result: ToolResult) -> tuple[bytes, str]:
    """The output in lines, which the `read` tool needs, and its media type."""
    output: object = result.output
    if result.content:
        return result.given_text(), "text/plain"
    if isinstance(output, str):
        return output.encode(), "text/plain"
    return to_json(output, indent=1, inf_nan_mode="strings"), "application/json"


def _is_written(workspace: Path, path: str, raw: bytes) -> bool:
    """Write the file. Returns False if a tool has put something in its way in the workspace."""
    try:
        try:
            _write_new(workspace, _IGNORING, _IGNORED)
        except FileExistsError:
            pass
        _write_new(workspace, path, raw)
        return True
    except OSError:
        return False


def _write_new(directory: Path, path: str, raw: bytes) -> None:
    with Root(str(directory)) as root:
        root.write_new(path, raw)


class StreamFile:
    """One stream in a file, from its first byte, without gaps. Threads write it, batch by batch."""

    def __init__(
        self,
        overflow: Overflow,
        in_background: Callable[..., None],
        workspace: Path | None,
        most_bytes: int,
        charged: Callable[[int], Charge],
    ) -> None:
        self._overflow = overflow
        self._in_background = in_background
        self._workspace = workspace
        self._room = most_bytes
        self._charged = charged
        self._waiting: list[tuple[bytes, Charge]] = []
        self._file: NewFile | None = None  # made with the first bytes
        self.in_workspace = False
        self._at_rest = anyio.Event()
        self._at_rest.set()

    def feed(self, data: bytes, skipped: int) -> None:
        if skipped:
            self._room = 0
        data = data[: self._room]
        if not data:
            return
        self._room -= len(data)
        self._waiting.append((data, self._charged(len(data) + PIECE_BYTES)))
        if self._at_rest.is_set():
            self._at_rest = anyio.Event()
            self._in_background(self._write_all)

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                try:
                    await STREAMS.run(partial(self._write, [data for data, _charge in batch]))
                finally:
                    for _data, charge in batch:
                        charge.release()
        except (OSError, NoThread) as error:
            _log.warning("what a call printed could not be written to a file: %s", error)
            self._room = 0
        finally:
            for _data, charge in self._waiting:
                charge.release()
            self._waiting.clear()
            self._at_rest.set()

    def _write(self, batch: list[bytes]) -> None:
        file = self._file or self._overflow.new_file(self._workspace)
        try:
            for data in batch:
                file.write(data)
        finally:
            if file.size:
                self._file, self.in_workspace = file, file.in_workspace
            else:
                file.discard()

    async def closed(self, kind: str) -> Artifact | None:
        """Close the file. Returns its artifact, or None if nothing could be written or it was closed before."""
        self._room = 0
        await self._at_rest.wait()
        file, self._file = self._file, None
        return None if file is None else file.closed(kind)
