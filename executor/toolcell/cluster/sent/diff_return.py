"""Bring the changes of a copy back into the workspace here: fetch the diff and the contents, and have them written."""

import logging
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import anyio

from toolcell.cluster.link import unpack
from toolcell.cluster.peer import NodeGone
from toolcell.workplaces.diff import ReceivedDiff
from toolcell.workplaces.listing import TreeEntry
from toolcell.workplaces.workspace_return import ConflictPolicy, WorkspaceReturn
from toolcell.workplaces.writer import ApplyReport, apply
from toolcell_sandbox.trees.quarantine import Quarantine

from .blobs import BlobStore, WrongBlob
from .seat_files import DONE, PIECE_BYTES
from .sender import WORK, FilesPeer, OpenCopy

__all__ = ["brought_back"]

_NO_BOUND = 2**62
_log = logging.getLogger("toolcell.cluster")


async def brought_back(
    copy: OpenCopy,
    root: str,
    turn: anyio.Lock,
    *,
    ending: Sequence[str],
    protected: Sequence[str],
    policy: ConflictPolicy,
    quarantine: Quarantine,
) -> WorkspaceReturn:
    """Fetch all changes of a copy, then write them below `root`. The lock `turn` excludes other returns to `root`. The
    calls of the sessions `ending` end first. Raises NodeGone if the node is lost before everything is fetched,
    and OSError. Then nothing was written, or, if the file system here has failed, a part of it."""
    answer = await copy.peer.ask(["changes", copy.id, list(ending)])
    if answer[0] != DONE:
        raise OSError(str(answer[1]))
    diff = await WORK.run(partial(_received, answer[1], copy))
    with tempfile.TemporaryDirectory(prefix="toolcell-returned-") as spool:
        contents = await WORK.run(partial(BlobStore, spool, _NO_BOUND))
        await _fetched(copy.peer, diff, contents)
        async with turn:
            work = partial(_applied, root, diff, contents, copy, protected, policy, quarantine)
            applied = await WORK.run(work)
    copy.settle(applied.settled, diff.made)
    try:
        await copy.peer.ask(["settle", copy.id, list(applied.settled)])
    except (NodeGone, OSError) as error:  # the next return compares these files again
        _log.warning("the node of the copy %s was not told what is written: %s", copy.id, error)
    return applied.report


def _received(raw: bytes, copy: OpenCopy) -> ReceivedDiff:
    try:
        return ReceivedDiff.from_wire(unpack(raw), copy.expected, copy.base)
    except (ValueError, TypeError) as error:
        raise OSError(f"the node's answer is no diff: {error}") from error


async def _fetched(peer: FilesPeer, diff: ReceivedDiff, contents: BlobStore) -> None:
    """Fetch the contents of all files of a diff, each once, and verify them. Raises OSError."""
    wanted: list[list[Any]] = []
    sizes: dict[bytes, int] = {}
    room = PIECE_BYTES
    for entry in diff.made.values():
        if entry.kind != "file" or not entry.size or entry.content in sizes:
            continue
        sizes[entry.content] = entry.size
        for at in range(0, entry.size, PIECE_BYTES):
            length = min(PIECE_BYTES, entry.size - at)
            if length > room:
                await _fetch(peer, wanted, sizes, contents)
                wanted, room = [], PIECE_BYTES
            wanted.append([entry.content, at, length])
            room -= length
    if wanted:
        await _fetch(peer, wanted, sizes, contents)


async def _fetch(peer: FilesPeer, wanted: Sequence[list[Any]], sizes: Mapping[bytes, int], contents: BlobStore) -> None:
    answer = await peer.ask(["get", wanted])
    if answer[0] != DONE:
        raise OSError(str(answer[1]))
    await WORK.run(partial(_keep, contents, wanted, sizes, answer[1:]))


def _keep(
    contents: BlobStore, wanted: Sequence[list[Any]], sizes: Mapping[bytes, int], pieces: Sequence[bytes]
) -> None:
    try:
        for (digest, at, _length), data in zip(wanted, pieces, strict=True):
            contents.put("", digest, at, sizes[digest], data)
    except (WrongBlob, ValueError) as error:
        raise OSError(f"the node sent another content: {error}") from error


def _applied(
    root: str,
    diff: ReceivedDiff,
    contents: BlobStore,
    copy: OpenCopy,
    protected: Sequence[str],
    policy: ConflictPolicy,
    quarantine: Quarantine,
) -> ApplyReport:
    def fill(entry: TreeEntry, fd: int) -> None:
        if entry.size:
            contents.copy(entry.content, fd)

    return apply(root, diff, fill, protected=protected, exclusions=copy.rules, policy=policy, quarantine=quarantine)
