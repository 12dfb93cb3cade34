"""Bring the changes of a copy back into the workspace here."""

import logging
import tempfile
from collections.abc import Sequence
from functools import partial

import anyio

from toolcell.cluster.peer import NodeGone
from toolcell.workplaces.workspace_return import ConflictPolicy, WorkspaceReturn
from toolcell_sandbox.trees.quarantine import Quarantine

from .blobs import BlobStore
from .diff_fetch import DiffReceipt, fetched
from .diff_writer import ApplyReport, ReceivedDiff, apply
from .manifest import SentEntry
from .seat_files import DONE
from .sender import WORK, OpenCopy

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
    received = await WORK.run(partial(DiffReceipt.unpacked, answer[1]))
    diff = ReceivedDiff(
        received.made,
        received.gone,
        copy.expected,
        copy.base,
        received.left_out,
        received.left_count,
        received.unknown,
    )
    with tempfile.TemporaryDirectory(prefix="toolcell-returned-") as spool:
        contents = await WORK.run(partial(BlobStore, spool, _NO_BOUND))
        await fetched(copy.peer, received, contents, WORK)
        async with turn:
            work = partial(_applied, root, diff, contents, copy, protected, policy, quarantine)
            applied = await WORK.run(work)
    copy.settle(applied.settled, received.made)
    try:
        await copy.peer.ask(["settle", copy.id, list(applied.settled)])
    except (NodeGone, OSError) as error:  # the next return compares these files again
        _log.warning("the node of the copy %s was not told what is written: %s", copy.id, error)
    return applied.report


def _applied(
    root: str,
    diff: ReceivedDiff,
    contents: BlobStore,
    copy: OpenCopy,
    protected: Sequence[str],
    policy: ConflictPolicy,
    quarantine: Quarantine,
) -> ApplyReport:
    def fill(entry: SentEntry, fd: int) -> None:
        if entry.size:
            contents.copy(entry.content, fd)

    return apply(root, diff, fill, protected=protected, exclusions=copy.rules, policy=policy, quarantine=quarantine)
