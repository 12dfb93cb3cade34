"""Find the files that calls create, modify and delete in their workspaces, by a handle or in any other way.

The supervisor looks at the workspace before a call, and after the call's last process has ended. The kernel does not
say which process wrote a file, so a change is attributed to every call that ran there between two looks. Calls that
overlap report each other's changes, and also changes by other programs, such as an editor. A change by a kept process
between its calls is attributed to no call.
"""

import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakValueDictionary

import anyio

from toolcell.backends.threads import FILES, NoThread
from toolcell.pool.run import Run
from toolcell_sandbox.changes import MAX_CHANGES, ChangedFile, WatchedTree

Identity = tuple[int, int, int]

OWN = ".toolcell"
"""The directory in a workspace where the supervisor saves long outputs. It is left out."""
MAX_QUEUES = 32
"""The most workspaces that are watched at the same time. Further ones take the place of idle ones, which are listed
again at their next call."""
REST = 10.0  # after a first look that failed, the pause before the next one, as a multiple of its duration


@dataclass(eq=False, slots=True)
class CallChanges:
    """The changes of one call, by path. `unknown` is the reason why some may be missing, "" if none is."""

    most: int
    found: dict[str, ChangedFile] = field(default_factory=dict[str, ChangedFile])
    unknown: str = ""
    run: Run | None = None

    def add(self, changes: Iterable[ChangedFile]) -> None:
        """Add later changes. Of several changes of one path, keep the net effect."""
        for change in changes:
            before = self.found.pop(change.path, None)
            net = change if before is None else _net(before, change)
            if net is not None and len(self.found) < MAX_CHANGES:
                self.found[change.path] = net


def _net(before: ChangedFile, change: ChangedFile) -> ChangedFile | None:
    """The net effect of two changes of one path. None if there is none."""
    if before.kind == "created":
        return None if change.kind == "deleted" else change._replace(kind="created", before=before.before)
    if before.kind == "deleted" and change.kind == "created":
        return change._replace(kind="modified", before=before.before)
    return change._replace(before=before.before)


class TrackedRoot:
    """One workspace, and the running calls that may write there."""

    def __init__(self, root: str, changes: "WorkspaceChanges", *, texts: bool) -> None:
        self._tree = WatchedTree(root, texts=texts, apart=OWN)
        self._changes = changes
        self._lock = anyio.Lock(fast_acquire=True)
        self._calls: set[CallChanges] = set()
        self._unknown = ""
        self._again_at = 0.0

    async def enter(self, most: int) -> CallChanges:
        """Look before a call, whose result will list at most `most` files. Waits for no thread if nothing has
        changed."""
        call = CallChanges(most)
        async with self._lock:
            if not self._tree.is_lost:
                await self._look()
            if self._tree.is_lost:
                await self._begin()
            call.unknown = self._unknown
            self._calls.add(call)
        return call

    async def leave(self, call: CallChanges) -> None:
        """Look after the last process of a call has ended. Adds the changes to `call`."""
        async with self._lock:
            if call in self._calls:
                try:
                    await self._look()
                finally:
                    self._calls.discard(call)

    def forget(self, call: CallChanges) -> None:
        """Forget a call that will not be sent."""
        self._calls.discard(call)

    async def _begin(self) -> None:
        began = time.monotonic()
        if began < self._again_at:
            return
        self._changes.make_room(self)
        try:
            self._unknown = await FILES.run(self._tree.begin)
        except NoThread as error:
            self._unknown = str(error)
        if self._tree.is_lost:
            now = time.monotonic()
            self._again_at = now + REST * (now - began)

    async def _look(self) -> None:
        """Look again, and attribute the changes to the running calls."""
        self._changes.use(self)
        if self._tree.is_lost or not self._tree.has_news:
            return
        running = [each for each in self._calls if each.run is not None and each.run.cell is not None]
        most = max((each.most for each in running), default=0)
        try:
            changes = await FILES.run(partial(self._tree.look, most))
        except NoThread as error:  # the events stay in their queue
            for each in running:
                each.unknown = each.unknown or str(error)
            return
        for each in running:
            each.add(changes.found)
            each.unknown = each.unknown or changes.unknown

    @property
    def is_idle(self) -> bool:
        return not self._calls and not self._lock.locked()

    def close(self) -> None:
        self._tree.close()


class WorkspaceChanges:
    """The workspaces of a supervisor whose files are tracked."""

    def __init__(self) -> None:
        self._roots: WeakValueDictionary[tuple[str, Identity, bool], TrackedRoot] = WeakValueDictionary()
        self._open: OrderedDict[int, TrackedRoot] = OrderedDict()  # the least recently used first

    def of(self, root: str, identity: Identity, *, texts: bool) -> TrackedRoot:
        """The tracked workspace at a real path. `texts`: keep the texts of small files, for diffs."""
        key = (root, identity, texts)
        tracked = self._roots.get(key)
        if tracked is None:
            tracked = self._roots[key] = TrackedRoot(root, self, texts=texts)
        return tracked

    def use(self, tracked: TrackedRoot) -> None:
        if id(tracked) in self._open:
            self._open.move_to_end(id(tracked))

    def make_room(self, tracked: TrackedRoot) -> None:
        """Make room for a workspace that is listed next: drop the idle ones that are too many."""
        self._open[id(tracked)] = tracked
        self._open.move_to_end(id(tracked))
        for key, each in [*self._open.items()]:
            if len(self._open) <= MAX_QUEUES:
                break
            if each.is_idle and each is not tracked:
                each.close()
                del self._open[key]

    def close(self) -> None:
        """Close all watches. No call may be running."""
        for each in self._open.values():
            each.close()
        self._open.clear()
