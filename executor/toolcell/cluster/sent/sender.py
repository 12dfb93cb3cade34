"""The sent workspaces of a driver: read, sent to the nodes of their sessions, and brought back."""

import logging
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import anyio

from toolcell.backends.threads import NoThread, Threads
from toolcell.cluster.peer import NodeGone
from toolcell.errors import UsageError
from toolcell.journal import Record
from toolcell.pool.calling import PoolHost
from toolcell.workspace_return import WorkspaceReturn
from toolcell_sandbox.seen import said, shown

from .applying import Applied, ReceivedDiff, apply
from .blobs import BlobStore
from .manifest import SentEntry
from .options import SentWorkspaces
from .packing import ContentPlace, StaleSource, packs_of
from .reading import DigestCache
from .receiving import Received, fetched
from .seat_files import DONE, LACKS
from .source import SourceTree, read_source

__all__ = ["FilesPeer", "SentTrees"]

_log = logging.getLogger("toolcell.cluster")
T = TypeVar("T")
READS: Final = 3
"""How often a workspace that changes while it is sent is read again."""
ROUNDS: Final = 20
MOST_NAMED: Final = 20
_WORK: Final = Threads(8)


class SendFailed(Exception):
    """The workspace could not be sent."""


class FilesPeer(Protocol):
    """A node, as the sender sees it."""

    @property
    def id(self) -> str: ...
    async def ask(self, request: Sequence[object], payload: bytes = b"") -> list[Any]:
        """The node's answer to a request about files. Raises NodeGone if the node is lost meanwhile."""
        ...


@dataclass(eq=False, slots=True)
class _SentTree:
    """The workspace of a session, and of those below it that work in it. `peer` is the node that has the copy."""

    id: str
    root: str
    protected: tuple[str, ...]
    sessions: set[str]
    source: SourceTree | None = None
    expected: dict[str, SentEntry] = field(default_factory=dict[str, SentEntry])
    base: dict[str, SentEntry] = field(default_factory=dict[str, SentEntry])
    peer: FilesPeer | None = None
    copy: str = ""
    is_sending: bool = False
    is_ended: bool = False
    calls: int = 0
    """The calls that may have changed the copy since it was made or last brought back."""
    loss: str = ""
    note: str = ""
    """The loss, until a result has told it."""
    lock: anyio.Lock = field(default_factory=anyio.Lock)


class SentTrees:
    """All of them. `on_ready` is called when a copy is open, `on_failed` with the sessions of one that cannot be."""

    def __init__(
        self,
        options: SentWorkspaces,
        host: PoolHost,
        on_ready: Callable[[], None],
        on_failed: Callable[[Sequence[str], str], None],
    ) -> None:
        self._options = options
        self._host = host
        self._on_ready = on_ready
        self._on_failed = on_failed
        self._cache = DigestCache()
        self._reading = anyio.Lock()
        self._base: SourceTree | None = None
        self._trees: dict[str, _SentTree] = {}
        self._of: dict[str, _SentTree] = {}
        self._turns: dict[str, anyio.Lock] = {}
        self._applying: dict[str, anyio.Lock] = {}
        self.sent_contents: Counter[str] = Counter()
        """By node: the contents that were sent there. One that the node has is not sent again."""
        self.sent_bytes: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<SentTrees {len(self._trees)} workspaces · {sum(self.sent_bytes.values()):,} bytes sent>"

    # -- sessions -----------------------------------------------------------------------------------------------------

    def opened(self, id: str, parent: str | None, root: str, protected: tuple[str, ...]) -> None:
        """Note a new session. It shares its parent's copy if it works in the same directory or below."""
        above = self._of.get(parent or "")
        if above is not None and f"{root}/".startswith(f"{above.root}/"):
            above.sessions.add(id)
            self._of[id] = above
            return
        tree = self._trees[id] = self._of[id] = _SentTree(id, root, protected, {id})
        _log.debug("the workspace %s is sent for %s", tree.root, id)

    def anchor_of(self, id: str) -> str:
        """The session whose copy this session works in."""
        tree = self._of.get(id)
        return id if tree is None else tree.id

    def preparing(self, id: str) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """Reads the workspace of a new session; None if that is its parent's. Raises WorkspaceTooLarge and
        UsageError."""
        tree = self._trees.get(id)
        return None if tree is None else partial(self._prepare, tree)

    async def _prepare(self, tree: _SentTree) -> None:
        try:
            await self._read(tree)
        except OSError as error:
            raise UsageError(f"The workspace {tree.root!r} cannot be read: {said(error)}.") from error

    def ended(self, id: str) -> None:
        """Forget a session that has ended."""
        tree = self._of.pop(id, None)
        if tree is not None:
            tree.sessions.discard(id)
            if tree.id == id:
                tree.is_ended = True
                self._trees.pop(id, None)

    # -- sending ------------------------------------------------------------------------------------------------------

    def is_open(self, id: str, peer: FilesPeer) -> bool:
        """Whether the node has the session's copy. Otherwise its sending begins, unless it is under way."""
        tree = self._of[id]
        if tree.peer is peer:
            return True
        if not tree.is_sending:
            tree.is_sending = True
            self._host.in_background(self._send, tree, peer)
        return False

    def where(self, id: str) -> tuple[str, str]:
        """The copy of an open tree, and the directory here that it stands for."""
        tree = self._of[id]
        return tree.copy, tree.root

    def is_sending(self, id: str) -> bool:
        tree = self._of.get(id)
        return tree is not None and tree.is_sending

    def ran(self, id: str, *, writes: bool) -> str:
        """Note a call. Returns what it must be told of an earlier loss, once."""
        tree = self._of[id]
        tree.calls += writes
        note, tree.note = tree.note, ""
        return note

    async def _send(self, tree: _SentTree, peer: FilesPeer) -> None:
        try:
            for _ in range(READS):
                try:
                    await self._send_once(tree, peer)
                    break
                except StaleSource as stale:
                    _log.info("%s has changed while %s was sent", stale, tree.root)
                    tree.source = None
            else:
                raise SendFailed("its files change while they are sent. Call again when nothing writes there.")
        except NodeGone as gone:
            _log.info("the workspace %s was not sent: %s", tree.root, gone)
        except (SendFailed, UsageError, OSError, NoThread) as error:
            self._on_failed(sorted(tree.sessions), f"The workspace could not be sent to its node: {error}")
        finally:
            tree.is_sending = False
        self._on_ready()

    async def _send_once(self, tree: _SentTree, peer: FilesPeer) -> None:
        """Send what the node lacks, and open the copy there."""
        sources = await self._read(tree)
        source, options = sources[-1], self._options
        manifest = source.manifest if len(sources) == 1 else source.manifest.over(sources[0].manifest)
        copy = f"{tree.id}-{os.urandom(6).hex()}"
        trees = [each.manifest.digest for each in sources]
        bounds = [options.max_bytes, options.max_files]
        name = os.path.basename(tree.root) or "workspace"
        request = ["open", copy, name, trees, source.exclusions.to_wire(), bounds]
        before = self.sent_contents[peer.id], self.sent_bytes[peer.id]
        answer = await peer.ask(request)
        if answer[0] == LACKS:
            async with self._turns.setdefault(peer.id, anyio.Lock()):  # so that each content is sent once
                for _ in range(ROUNDS):
                    answer = await peer.ask(request)
                    if answer[0] != LACKS:
                        break
                    await self._send_contents(peer, answer[1], sources)
        if answer[0] != DONE:
            raise SendFailed(str(answer[1]) if answer[0] != LACKS else "the node loses contents that it was sent")
        tree.peer, tree.copy, tree.calls = peer, copy, 0
        tree.expected, tree.base = dict(source.manifest.entries), dict(manifest.entries)
        data = {
            "event": "sent",
            "node": peer.id,
            "entries": len(manifest.entries),
            "bytes": manifest.total_bytes,
            "sent_contents": self.sent_contents[peer.id] - before[0],
            "sent_bytes": self.sent_bytes[peer.id] - before[1],
            "left_out": [[shown(path), why] for path, why in source.left_out[:MOST_NAMED]],
        }
        self._host.write(Record("session", tree.id, data=data))
        if tree.is_ended:
            await peer.ask(["drop", copy])

    async def _send_contents(self, peer: FilesPeer, digests: Sequence[bytes], sources: Sequence[SourceTree]) -> None:
        trees = {each.manifest.digest: each.manifest.packed() for each in sources}
        places: list[ContentPlace] = []
        for digest in digests:
            source = next((each for each in reversed(sources) if digest in each.places), None)
            if digest in trees:
                places.append(ContentPlace(digest, trees[digest]))
            elif source is not None:
                places.append(ContentPlace(digest, b"", source.root, source.places[digest]))
            else:
                raise SendFailed("the node asks for a content that is not in the workspace")
        packs = packs_of(places)
        while (packed := await _WORK.run(lambda: next(packs, None))) is not None:
            payload, ended, size = packed
            answer = await peer.ask(["put"], payload)
            if answer[0] != DONE:
                raise SendFailed(str(answer[1]))
            self.sent_contents[peer.id] += ended
            self.sent_bytes[peer.id] += size

    async def _read(self, tree: _SentTree) -> list[SourceTree]:
        """The trees of a copy, each laid over the one before it. Raises WorkspaceTooLarge and OSError."""
        async with self._reading:
            if self._options.base is not None and self._base is None:
                base = os.path.realpath(self._options.base)
                self._base = await _WORK.run(partial(read_source, base, self._options, self._cache))
            if tree.source is None:
                tree.source = await _WORK.run(partial(read_source, tree.root, self._options, self._cache))
        return [tree.source] if self._base is None else [self._base, tree.source]

    # -- losses -------------------------------------------------------------------------------------------------------

    def lost(self, peer: FilesPeer, why: str) -> None:
        """Forget the copies on a lost node. They are made again, of the files that are here then, at the next call."""
        for tree in self._trees.values():
            if tree.peer is not peer:
                continue
            tree.peer, tree.copy, tree.source = None, "", None
            if tree.calls:
                tree.loss = tree.note = (
                    f"The node of the session was lost: {why}. What {tree.calls} calls may have changed in the "
                    "workspace since its files were last sent or brought back is lost. The workspace is again as it "
                    "is where the program runs."
                )
                self._host.write(Record("session", tree.id, data={"event": "files_lost", "calls": tree.calls}))
            tree.calls = 0

    # -- bringing back ------------------------------------------------------------------------------------------------

    def returning(self, id: str, *, last: bool) -> Callable[[], Coroutine[Any, Any, WorkspaceReturn]] | None:
        """Brings the changes of a session's workspace back. With `last`, after the calls there have ended, and the copy
        is removed; then only for the session whose workspace it is. None if there is nothing to bring."""
        tree = self._of.get(id)
        if tree is None or (last and tree.id != id) or not (tree.peer or tree.loss):
            return None
        return partial(self._return_in_background, tree, last)

    async def _return_in_background(self, tree: _SentTree, last: bool) -> WorkspaceReturn:
        """Bring the changes back, also if the caller is cancelled meanwhile."""
        reports: list[WorkspaceReturn] = []
        is_over = anyio.Event()

        async def work() -> None:
            try:
                reports.append(await self._return(tree, last))
            finally:
                is_over.set()

        self._host.in_background(work)
        await is_over.wait()
        return reports[0] if reports else WorkspaceReturn(unknown="The supervisor has ended first.")

    async def _return(self, tree: _SentTree, last: bool) -> WorkspaceReturn:
        async with tree.lock:
            peer, copy = tree.peer, tree.copy
            if peer is None:
                return WorkspaceReturn(unknown=tree.loss)
            tree.calls, calls = 0, tree.calls
            try:
                report = await self._returned(tree, peer, copy, last)
                if last:
                    await peer.ask(["drop", copy])
                    tree.peer = None
            except NodeGone as gone:
                tree.calls += calls
                report = WorkspaceReturn(unknown=f"The node of the session was lost: {gone}.")
            except (OSError, NoThread, SendFailed) as error:
                tree.calls += calls
                report = WorkspaceReturn(unknown=f"The files could not be brought back: {error}.")
        if tree.loss:
            report = report.model_copy(update={"unknown": f"{tree.loss} {report.unknown}".rstrip()})
        self._record(tree, report)
        return report

    async def _returned(self, tree: _SentTree, peer: FilesPeer, copy: str, last: bool) -> WorkspaceReturn:
        answer = await peer.ask(["changes", copy, sorted(tree.sessions) if last else []])
        if answer[0] != DONE:
            raise SendFailed(str(answer[1]))
        received = Received.of(answer[1:])
        diff = ReceivedDiff(
            received.made,
            received.gone,
            tree.expected,
            tree.base,
            received.left_out,
            received.left_count,
            received.unknown,
        )
        with tempfile.TemporaryDirectory(prefix="toolcell-returned-") as spool:
            contents = await _WORK.run(partial(BlobStore, spool, 2**62))
            await fetched(peer, received, contents, _WORK)
            async with self._applying.setdefault(tree.root, anyio.Lock()):
                applied = await _WORK.run(partial(self._apply, tree, diff, contents))
        await peer.ask(["settle", copy, list(applied.settled)])
        _update(tree.expected, applied.settled, received.made)
        _update(tree.base, applied.settled, received.made)
        return applied.report

    def _apply(self, tree: _SentTree, diff: ReceivedDiff, contents: BlobStore) -> Applied:
        def fill(entry: SentEntry, fd: int) -> None:
            if entry.size:
                contents.copy(entry.content, fd)

        assert tree.source is not None
        return apply(
            tree.root,
            diff,
            fill,
            protected=tree.protected,
            exclusions=tree.source.exclusions,
            policy=self._options.conflicts,
        )

    def _record(self, tree: _SentTree, report: WorkspaceReturn) -> None:
        data = {
            "event": "returned",
            "created": len(report.created),
            "changed": len(report.changed),
            "deleted": len(report.deleted),
            "conflicts": [each.path for each in report.conflicts[:MOST_NAMED]],
            "left_out": report.left_out_count,
            "unknown": report.unknown,
        }
        self._host.write(Record("session", tree.id, data=data))


def _update(entries: dict[str, SentEntry], settled: Sequence[str], made: Mapping[str, SentEntry]) -> None:
    """Note what is now the same here and in the copy."""
    for path in settled:
        if path in made:
            entries[path] = made[path]
        else:
            entries.pop(path, None)
