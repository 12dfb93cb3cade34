"""The sent workspaces of a driver's sessions: read at the opening, sent at the first call, fetched at the close."""

import logging
import os
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from toolcell.backends.threads import NoThread
from toolcell.cluster.link import pack
from toolcell.cluster.peer import NodeGone
from toolcell.cluster.sent.sender import StaleSource
from toolcell.cluster.sent.source_tree import SourceTree, read_source
from toolcell.errors import UsageError
from toolcell.pool.interface import PoolHost
from toolcell.store.journal import Record
from toolcell.workplaces.listing import DigestCache
from toolcell.workplaces.workspace_return import WorkspaceReturn
from toolcell_sandbox.trees import walker
from toolcell_sandbox.trees.facts import said, shown
from toolcell_sandbox.trees.quarantine import Quarantine
from toolcell_sandbox.trees.walker import Root

from .diff_return import brought_back
from .options import SentWorkspaces
from .sender import WORK, ContentSender, FilesPeer, OpenCopy, SendFailed

__all__ = ["SentTrees"]

_log = logging.getLogger("toolcell.cluster")
READS: Final = 3
"""How often a workspace that changes while it is sent is read again."""
GONE_PAUSE_S: Final = 0.2
"""The pause before a workspace is sent again, because its node was lost."""
MOST_NAMED: Final = 20
MOST_OUTPUT: Final = 64 * 1024 * 1024
"""The most bytes of a saved output that are added to a copy."""


@dataclass(eq=False, slots=True)
class _SentTree:
    """The workspace of a session and of its children that work in it. `copy` is None while no node has a copy."""

    id: str
    root: str
    protected: tuple[str, ...]
    sessions: set[str]
    source: SourceTree | None = None
    copy: OpenCopy | None = None
    is_sending: bool = False
    is_ended: bool = False
    calls: int = 0
    """The calls that may have changed the copy since it was made or last brought back."""
    loss: str = ""
    note: str = ""
    """The loss, until a result has reported it."""
    outputs: deque[str] = field(default_factory=deque[str])
    """The outputs that were saved here and are not in the copy, by path."""
    lock: anyio.Lock = field(default_factory=anyio.Lock)

    def is_on(self, peer: FilesPeer) -> bool:
        """Whether the node has the copy."""
        return self.copy is not None and self.copy.peer is peer


class SentTrees:
    """The sent workspaces of all sessions. `on_ready` is called when a copy is open. `on_failed` is called with the
    sessions whose workspace could not be sent, and the reason."""

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
        self._quarantine = Quarantine(host.quarantine)
        self._base: SourceTree | None = None
        self._trees: dict[str, _SentTree] = {}
        self._of: dict[str, _SentTree] = {}
        self._applying: dict[str, anyio.Lock] = {}
        self.sender = ContentSender(options)
        host.tell_saved(self._on_saved)

    def __repr__(self) -> str:
        return f"<SentTrees {len(self._trees)} workspaces · {sum(self.sender.sent_bytes.values()):,} bytes sent>"

    # -- sessions -----------------------------------------------------------------------------------------------------

    def opened(self, id: str, parent: str | None, root: str, protected: tuple[str, ...]) -> None:
        """Note a new session. It shares its parent's copy if it works in the same directory or below."""
        above = self._of.get(parent or "")
        if above is not None and f"{root}/".startswith(f"{above.root}/"):
            above.sessions.add(id)
            self._of[id] = above
            return
        self._trees[id] = self._of[id] = _SentTree(id, root, protected, {id})

    def anchor_of(self, id: str) -> str:
        """The session whose copy this session works in."""
        tree = self._of.get(id)
        return id if tree is None else tree.id

    def preparing(self, id: str) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """A function that reads the workspace of a new session; None if the session works in its parent's copy. The
        function raises WorkspaceTooLarge and UsageError."""
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
        """Whether the node has the session's copy. If not, send it, unless that is under way."""
        tree = self._of[id]
        is_there = tree.is_on(peer)
        if is_there and not tree.outputs and not tree.is_sending:
            return True
        if not tree.is_sending:
            tree.is_sending = True
            if is_there:
                self._host.in_background(self._send_outputs, tree)
            else:
                self._host.in_background(self._send, tree, peer)
        return False

    def _on_saved(self, workspace: Path, path: str) -> None:
        """Note a saved output that a model may want to read. Called in threads."""
        for tree in list(self._trees.values()):
            if tree.copy is not None and f"{workspace}/".startswith(f"{tree.root}/"):
                tree.outputs.append(os.path.relpath(workspace / path, tree.root))

    async def _send_outputs(self, tree: _SentTree) -> None:
        """Add saved outputs to the copy. What cannot be read or sent is left out."""
        try:
            while tree.outputs and (copy := tree.copy) is not None:
                path = tree.outputs.popleft()
                raw = await WORK.run(partial(_content, tree.root, path))
                await copy.peer.ask(["add", copy.id], pack([[path, raw]]))
        except NodeGone as gone:
            _log.info("the outputs of %s were not sent: %s", tree.id, gone)
        except (OSError, NoThread) as error:
            _log.warning("an output of %s is not on its node: %s", tree.id, error)
        finally:
            tree.is_sending = False
        self._on_ready()

    def where(self, id: str) -> tuple[str, str]:
        """The id of a session's copy, and the directory here that was copied."""
        tree = self._of[id]
        return "" if tree.copy is None else tree.copy.id, tree.root

    def is_sending(self, id: str) -> bool:
        tree = self._of.get(id)
        return tree is not None and tree.is_sending

    def ran(self, id: str, *, writes: bool) -> str:
        """Note a call. Returns the notice of an earlier loss once, otherwise ""."""
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
                    tree.source = self._base = None
            else:
                raise SendFailed("its files change while they are sent. Call again when nothing writes there.")
        except NodeGone as gone:
            _log.info("the workspace %s was not sent: %s", tree.root, gone)
            await anyio.sleep(GONE_PAUSE_S)
        except (SendFailed, UsageError, OSError, NoThread) as error:
            self._on_failed(sorted(tree.sessions), f"The workspace could not be sent to its node: {error}")
        except Exception as error:  # a bug, or a node with another version, must not end the supervisor
            _log.exception("the workspace %s could not be sent", tree.root)
            self._on_failed(sorted(tree.sessions), f"The workspace could not be sent to its node: {error!r}.")
        finally:
            tree.is_sending = False
        self._on_ready()

    async def _send_once(self, tree: _SentTree, peer: FilesPeer) -> None:
        """Send what the node lacks, and open the copy there."""
        sources = await self._read(tree)
        copy = await self.sender.open(peer, tree.id, sources)
        if tree.is_ended:
            await self.sender.drop(copy)
            return
        tree.copy, tree.calls = copy, 0
        tree.outputs.clear()
        data = {
            "event": "sent",
            "node": peer.id,
            **copy.facts,
            "sent_contents": copy.contents,
            "sent_bytes": copy.bytes,
            "left_out": [[shown(path), why] for each in sources for path, why in each.left_out[:MOST_NAMED]],
        }
        self._host.write(Record("session", tree.id, data=data))

    async def _read(self, tree: _SentTree) -> list[SourceTree]:
        """The trees of a copy, each laid over the one before it. Raises WorkspaceTooLarge and OSError."""
        async with self._reading:
            if self._options.base is not None and self._base is None:
                place = os.path.realpath(self._options.base)
                self._base = await WORK.run(partial(read_source, place, self._options, self._cache))
            base, source = self._base, tree.source
            if source is None:
                source = await WORK.run(partial(read_source, tree.root, self._options, self._cache))
                tree.source = source
        return [source] if base is None else [base, source]

    # -- losses -------------------------------------------------------------------------------------------------------

    def lost(self, peer: FilesPeer, why: str) -> None:
        """Forget the copies on a lost node. The next call makes new copies, from the files that are here then."""
        for tree in self._trees.values():
            if not tree.is_on(peer):
                continue
            tree.copy = tree.source = None
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
        """A function that brings the changes of a session's workspace back; None if there is nothing to bring. With
        `last`, the calls there end first, and the copy is removed afterwards. Then it is also None for a session that
        works in its parent's copy."""
        tree = self._of.get(id)
        if tree is None or (last and tree.id != id) or not (tree.copy or tree.loss):
            return None
        return partial(self._return_in_background, tree, last)

    async def _return_in_background(self, tree: _SentTree, last: bool) -> WorkspaceReturn:
        """Bring the changes back, even if the caller is cancelled meanwhile."""
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
            copy = tree.copy
            if copy is None:
                return WorkspaceReturn(unknown=tree.loss)
            calls = tree.calls
            try:
                report = await brought_back(
                    copy,
                    tree.root,
                    self._applying.setdefault(tree.root, anyio.Lock()),
                    ending=sorted(tree.sessions) if last else (),
                    protected=tree.protected,
                    policy=self._options.conflicts,
                    quarantine=self._quarantine,
                )
                tree.calls = max(0, tree.calls - calls)
            except NodeGone as gone:
                report = WorkspaceReturn(unknown=f"The node of the session was lost: {gone}.")
            except (OSError, NoThread) as error:
                report = WorkspaceReturn(unknown=f"The files could not be brought back: {error}.")
            except Exception as error:  # a bug, or a node with another version, must not end the supervisor
                _log.exception("the files of %s could not be brought back", tree.id)
                report = WorkspaceReturn(unknown=f"The files could not be brought back: {error!r}.")
            if last:
                tree.copy = None
                await self.sender.drop(copy)
                if not any(other.root == tree.root for other in self._trees.values() if other is not tree):
                    self._applying.pop(tree.root, None)
        if tree.loss:
            report = report.model_copy(update={"unknown": f"{tree.loss} {report.unknown}".rstrip()})
        self._record(tree, report)
        return report

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


def _content(root: str, path: str) -> bytes:
    """The content of a file below a directory. Raises OSError."""
    with Root(root) as top:
        held = top.open(path, walker.ENTRY)
        try:
            return walker.content(held, MOST_OUTPUT)
        finally:
            os.close(held)
