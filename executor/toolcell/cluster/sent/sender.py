"""Send a workspace to a node: ask it to open a copy, and send the contents that it lacks, each once."""

import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol

import anyio

from toolcell.backends.threads import NoThread, Threads
from toolcell.cluster.link import pack
from toolcell.cluster.peer import NodeGone
from toolcell.cluster.sent.source_tree import SourceTree
from toolcell.workplaces.exclusions import Exclusions
from toolcell.workplaces.listing import TreeEntry
from toolcell_sandbox.trees import walker
from toolcell_sandbox.trees.walker import Root

from .manifest import TreeManifest
from .options import SentWorkspaces
from .seat_files import DONE, LACKS, NO_ROOM, PIECE_BYTES

__all__ = ["WORK", "ContentPlace", "ContentSender", "FilesPeer", "OpenCopy", "SendFailed", "StaleSource", "packs_of"]

_log = logging.getLogger("toolcell.cluster")
ROUNDS: Final = 20
ROOM_S, ROOM_PAUSE_S = 10.0, 0.3
"""How long a node may have no room while other workspaces arrive, and the pause between requests, in seconds."""
WORK: Final = Threads(8)


class StaleSource(Exception):
    """A file has changed since the workspace was read."""


class ContentPlace(NamedTuple):
    """Where a content is: in memory, or in a file below a directory."""

    digest: bytes
    raw: bytes = b""
    root: str = ""
    path: str = ""


class SendFailed(Exception):
    """The workspace could not be sent."""


class FilesPeer(Protocol):
    """A node, as far as files are concerned. `losses` counts how often it was lost."""

    losses: int

    @property
    def id(self) -> str: ...
    async def ask(self, request: Sequence[object], payload: bytes = b"") -> list[Any]:
        """The node's answer to a request about files. Raises NodeGone if the node is lost meanwhile."""
        ...


@dataclass(slots=True)
class OpenCopy:
    """A copy on a node. `expected` has the entries of the directory here as they were last sent or brought back, by
    path. `base` also has the entries of `SentWorkspaces.base`. `contents` and `bytes` count what was sent."""

    id: str
    peer: FilesPeer
    rules: Exclusions
    expected: dict[str, TreeEntry]
    base: dict[str, TreeEntry]
    contents: int = 0
    bytes: int = 0
    facts: Mapping[str, object] = field(default_factory=dict[str, object])

    def settle(self, paths: Sequence[str], made: Mapping[str, TreeEntry]) -> None:
        """Note the paths that have the same state here and in the copy now."""
        for entries in (self.expected, self.base):
            for path in paths:
                if path in made:
                    entries[path] = made[path]
                else:
                    entries.pop(path, None)


class ContentSender:
    """Sends for one driver. Only one workspace at a time goes to a node, so that no content is sent twice."""

    def __init__(self, options: SentWorkspaces) -> None:
        self._options = options
        self._turns: dict[str, anyio.Lock] = {}
        self.sent_contents: Counter[str] = Counter()
        """By node: the number of contents that were sent there."""
        self.sent_bytes: Counter[str] = Counter()

    async def open(self, peer: FilesPeer, session_id: str, sources: Sequence[SourceTree]) -> OpenCopy:
        """Open a copy of these trees, each laid over the one before it. Raises StaleSource, SendFailed, NodeGone, and
        OSError."""
        manifest, rules = await WORK.run(partial(_merged, sources))
        losses = peer.losses
        id = f"{session_id}-{os.urandom(6).hex()}"
        copy = OpenCopy(id, peer, rules, dict(sources[-1].manifest.entries), dict(manifest.entries))
        name = os.path.basename(sources[-1].root) or "workspace"
        trees = [each.manifest.digest for each in sources]
        bounds = [self._options.max_bytes, self._options.max_files]
        request = ["open", id, name, trees, rules.to_wire(), bounds]
        try:
            await self._opened(copy, request, sources)
        except NodeGone:
            raise
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.drop(copy)
            raise
        if peer.losses != losses:
            raise NodeGone("it was lost")
        copy.facts = {"entries": len(manifest.entries), "bytes": manifest.total_bytes}
        return copy

    async def drop(self, copy: OpenCopy) -> None:
        """Remove a copy, and let its contents be evicted."""
        try:
            await copy.peer.ask(["drop", copy.id])
        except NodeGone:
            pass  # the copy is lost with its node
        except (OSError, NoThread) as error:  # the node removes the copy with this driver's seat
            _log.warning("the copy %s could not be removed: %s", copy.id, error)

    async def _opened(self, copy: OpenCopy, request: Sequence[object], sources: Sequence[SourceTree]) -> None:
        began = time.monotonic()
        while True:
            answer = await copy.peer.ask(request)
            if answer[0] == LACKS:
                async with self._turns.setdefault(copy.peer.id, anyio.Lock()):
                    answer = await self._filled(copy, request, sources)
            if answer[0] == DONE:
                return
            if answer[0] != NO_ROOM or time.monotonic() - began > ROOM_S:
                raise SendFailed(f"{answer[1]}.")
            await anyio.sleep(ROOM_PAUSE_S)

    async def _filled(self, copy: OpenCopy, request: Sequence[object], sources: Sequence[SourceTree]) -> list[Any]:
        """Send what is lacking, until the node has it all. Returns the node's last answer."""
        for _ in range(ROUNDS):
            answer = await copy.peer.ask(request)
            if answer[0] != LACKS:
                return answer
            packs = packs_of(_places(answer[1], sources))
            while (packed := await WORK.run(lambda: next(packs, None))) is not None:  # noqa: B023 - run at once
                payload, ended, size = packed
                answer = await copy.peer.ask(["put"], payload)
                if answer[0] != DONE:
                    return answer
                copy.contents += ended
                copy.bytes += size
                self.sent_contents[copy.peer.id] += ended
                self.sent_bytes[copy.peer.id] += size
        raise SendFailed("the node loses contents that it was sent.")


def _merged(sources: Sequence[SourceTree]) -> tuple[TreeManifest, Exclusions]:
    """The trees, each laid over the one before it, and the rules of all."""
    manifest, rules = sources[0].manifest, sources[0].exclusions
    for source in sources[1:]:
        manifest, rules = source.manifest.over(manifest), source.exclusions.after(rules.groups)
    return manifest, rules


def _places(digests: Sequence[bytes], sources: Sequence[SourceTree]) -> list[ContentPlace]:
    """The places of contents here: a manifest, or a file. Raises SendFailed for a content that is in no tree."""
    manifests = {each.manifest.digest: each.manifest for each in sources}
    places: list[ContentPlace] = []
    for digest in digests:
        source = next((each for each in reversed(sources) if digest in each.places), None)
        if digest in manifests:
            places.append(ContentPlace(digest, manifests[digest].packed()))
        elif source is not None:
            places.append(ContentPlace(digest, b"", source.root, source.places[digest]))
        else:
            raise SendFailed("the node asks for a content that is not in the workspace.")
    return places


def packs_of(places: Iterable[ContentPlace]) -> Iterator[tuple[bytes, int, int]]:
    """Encode contents into messages of about `PIECE_BYTES` at most. Yields each message with the number of contents
    that it completes and its bytes of contents. Raises StaleSource if a file has changed since it was read. Blocks."""
    pieces: list[list[object]] = []
    size = ended = 0
    for place in places:
        for at, total, data in _pieces(place):
            if pieces and size + len(data) > PIECE_BYTES:
                yield pack(pieces), ended, size
                pieces, size, ended = [], 0, 0
            pieces.append([place.digest, at, total, data])
            size += len(data)
            ended += at + len(data) == total
    if pieces:
        yield pack(pieces), ended, size


def _pieces(place: ContentPlace) -> Iterator[tuple[int, int, bytes]]:
    """The pieces of a content: their offset, the size of the whole, and their bytes."""
    if not place.root:
        for at in range(0, len(place.raw), PIECE_BYTES):
            yield at, len(place.raw), place.raw[at : at + PIECE_BYTES]
        return
    try:
        fd = _opened(place)
    except OSError as error:
        raise StaleSource(place.path) from error
    try:
        total, at, digest = os.fstat(fd).st_size, 0, sha256()
        while at < total:
            data = os.read(fd, min(PIECE_BYTES, total - at))
            digest.update(data)
            if not data or (at + len(data) == total and digest.digest() != place.digest):
                raise StaleSource(place.path)
            yield at, total, data
            at += len(data)
        if not total:
            raise StaleSource(place.path)  # an empty content is not sent
    except BlockingIOError as error:  # another process has a lease on it
        raise StaleSource(place.path) from error
    finally:
        os.close(fd)


def _opened(place: ContentPlace) -> int:
    with Root(place.root) as root:
        held = root.open(place.path, walker.ENTRY)
        try:
            walker.content(held, 0)  # refuses what is no regular file
            return walker.readable(held)
        finally:
            os.close(held)
