"""Find the files that calls create, modify and delete in their workspaces, by a handle or in any other way.

The supervisor looks at the workspace before a call, and after the call's last process has ended. The kernel does not
say which process wrote a file, so a change is attributed to every call that ran there between two looks. Calls that
overlap report each other's changes, and also changes by other programs, such as an editor. A change by a kept process
between its calls is attributed to no call.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import anyio

from toolcell.backends.threads import LOOKS, NoThread
from toolcell.pool.run import Run
from toolcell_sandbox.trees.changes import LOOK_S, MAX_CHANGES, ChangedFile, WatchedTree
from toolcell_tools.artifact import Artifact

T = TypeVar("T")
Identity = tuple[int, int, int]

MAX_QUEUES = 32
"""The most workspaces that are watched at the same time. Further ones take the place of idle ones, which are listed
again at their next call."""
WAIT_S: Final = LOOK_S + 3.0
"""How many seconds a call waits for a look. A look ends itself after LOOK_S, unless its file system does not answer."""
MAX_HUNG: Final = 4
"""The most looks that hang, each of which holds a thread. While there are so many, no other workspace is looked at."""
REST = 10.0  # after a first look that failed, the pause before the next one, as a multiple of its duration


class ListedChanges(NamedTuple):
    """What a result says of the changes of a call. `found` is their number, which may be larger than the list."""

    artifacts: list[Artifact]
    found: int
    unknown: str


class HungLook(Exception):
    """A file system has not answered in time."""


@dataclass(eq=False, slots=True)
class CallChanges:
    """The changes of one call, by path. `unknown` is the reason why some may be missing, "" if none is.

    `listed` is set if a node of a cluster has looked. Then `found` is empty."""

    most: int
    texts: bool = True
    found: dict[str, ChangedFile] = field(default_factory=dict[str, ChangedFile])
    unknown: str = ""
    run: Run | None = None
    listed: ListedChanges | None = None
    own: Callable[[str, int | None], bool] | None = None
    """Of a node's list, what the supervisor has written itself, which the node cannot know."""

    def hear(self, listed: ListedChanges) -> None:
        """Take the list of a node, without the files that the supervisor has written meanwhile."""
        made = listed.artifacts
        if self.own is not None:
            made = [each for each in made if not self.own(each.path, None if each.kind == "deleted" else each.size)]
        found = listed.found - len(listed.artifacts) + len(made)
        self.listed = ListedChanges(made, found, listed.unknown) if found or listed.unknown else None

    @property
    def tells(self) -> bool:
        """Whether there is anything to list or to notice."""
        return bool(self.found or self.unknown or self.listed)

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


@dataclass(eq=False, slots=True)
class LookInThread:
    """One look at a workspace, in a thread. If it hangs, it keeps its `root` alive, so that no other look begins."""

    root: "TrackedRoot"
    work: Callable[[], object]
    has_begun: bool = False
    is_over: bool = False

    def __call__(self) -> object:
        self.has_begun = True
        try:
            return self.work()
        finally:
            self.is_over = True


class TrackedRoot:
    """One workspace, and the running calls that may write there."""

    def __init__(self, root: str, changes: "WorkspaceChanges", *, texts: bool) -> None:
        self._new_tree = partial(WatchedTree, root, texts=texts, own=changes.own)
        self._tree = self._new_tree()
        self._texts = texts
        self._changes = changes
        self._lock = anyio.Lock(fast_acquire=True)
        self._calls: set[CallChanges] = set()
        self._unknown = ""
        self._again_at = 0.0

    async def enter(self, most: int) -> CallChanges:
        """Look before a call, whose result will list at most `most` files. Waits for no thread if nothing has
        changed."""
        call = CallChanges(most, self._texts)
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
        dropped = self._changes.make_room(self)
        tree = self._tree

        def begin() -> str:
            for each in dropped:
                each.close()  # here, because it takes milliseconds for a large one
            return tree.begin()

        try:
            self._unknown = await self._in_thread(begin)
        except (NoThread, HungLook) as error:
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
            changes = await self._in_thread(partial(self._tree.look, most))
        except (NoThread, HungLook) as error:  # without a thread, the events stay in their queue
            for each in running:
                each.unknown = each.unknown or str(error)
            return
        for each in running:
            each.add(changes.found)
            each.unknown = each.unknown or changes.unknown

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Look in a thread. Raises NoThread, or HungLook after WAIT_S. Then the thread keeps the tree, and the next
        look is a first one of another tree."""
        self._changes.require_answers(self)
        found: list[T] = []
        look = LookInThread(self, lambda: found.append(work()))
        with anyio.move_on_after(WAIT_S, shield=True):  # the tree is not left to a thread for a cancelled caller's sake
            await LOOKS.run(look, abandon=True)
            return found[0]
        self._tree = self._new_tree()
        if look.has_begun:
            self._changes.hung.append(look)
        raise HungLook("its file system did not answer in time")

    @property
    def is_idle(self) -> bool:
        return not self._calls and not self._lock.locked()

    def let_go(self) -> WatchedTree:
        """The tree, to close. The next look is a first one of another tree."""
        dropped, self._tree = self._tree, self._new_tree()
        return dropped


class RemoteRoot:
    """A workspace at which a node of a cluster looks. Nothing is looked at here."""

    def __init__(self, own: Callable[[str, int | None], bool], *, texts: bool) -> None:
        self._own = own
        self._texts = texts

    async def enter(self, most: int) -> CallChanges:
        """The changes of a call, which its node fills in."""
        return CallChanges(most, self._texts, own=self._own)

    async def leave(self, call: CallChanges) -> None:
        """Nothing: the node sends the changes with the outcome."""

    def forget(self, call: CallChanges) -> None:
        """Nothing."""


class WorkspaceChanges:
    """The workspaces of a supervisor whose files are tracked."""

    def __init__(
        self, own: Callable[[str, int | None], bool] = lambda _path, _size: False, *, elsewhere: bool = False
    ) -> None:
        """`own` says of a path and its size whether the supervisor has written it (`WatchedTree`). `elsewhere`: the
        nodes of a cluster look, because the kernel here tells nothing of their writes."""
        self.own = own
        self._elsewhere = elsewhere
        self._roots: WeakValueDictionary[tuple[str, Identity, bool], TrackedRoot] = WeakValueDictionary()
        self._open: OrderedDict[int, TrackedRoot] = OrderedDict()  # the least recently used first
        self.hung: list[LookInThread] = []

    def of(self, root: str, identity: Identity, *, texts: bool) -> TrackedRoot | RemoteRoot:
        """The tracked workspace at a real path. `texts`: keep the texts of small files, for diffs."""
        if self._elsewhere:
            return RemoteRoot(self.own, texts=texts)
        key = (root, identity, texts)
        tracked = self._roots.get(key)
        if tracked is None:
            tracked = self._roots[key] = TrackedRoot(root, self, texts=texts)
        return tracked

    def require_answers(self, tracked: TrackedRoot) -> None:
        """Raise HungLook if a look at this workspace hangs, or too many others do."""
        if self.hung:
            self.hung = [look for look in self.hung if not look.is_over]
            if any(look.root is tracked for look in self.hung):
                raise HungLook("its file system does not answer")
            if len(self.hung) >= MAX_HUNG:
                raise HungLook("the file systems of other workspaces do not answer, and hold all threads for looks")

    def use(self, tracked: TrackedRoot) -> None:
        if id(tracked) in self._open:
            self._open.move_to_end(id(tracked))

    def make_room(self, tracked: TrackedRoot) -> list[WatchedTree]:
        """Make room for a workspace that is listed next. Returns the trees of dropped idle workspaces, to close."""
        dropped: list[WatchedTree] = []
        self._open[id(tracked)] = tracked
        self._open.move_to_end(id(tracked))
        for key, each in [*self._open.items()]:
            if len(self._open) <= MAX_QUEUES:
                break
            if each.is_idle and each is not tracked:
                dropped.append(each.let_go())
                del self._open[key]
        return dropped

    def close(self) -> None:
        """Close all watches. No call may be running."""
        for each in self._open.values():
            each.let_go().close()
        self._open.clear()
