"""Find the files that calls create, modify and delete in their workspaces, by a handle or in any other way.

The supervisor looks at the workspace before a call, and after the call's last process has ended. The kernel does not
say which process wrote a file, so a change is attributed to every call that ran there between two looks. Calls that
overlap report each other's changes, and also changes by other programs, such as an editor. A change by a kept process
between its calls is attributed to no call.

Where protected names are guarded, their guard walks through the same tree before and after the call, and this walk
finds the changes too (`TrackedRoot.fed`). A workspace without a guard, or below a guarded directory, has a walk of its
own.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import anyio

from toolcell.backends.threads import LOOKS, NoThread
from toolcell.pool.run import Run
from toolcell.sessions.hung_filesystem import HungFileSystem, WorkInThread
from toolcell_sandbox.trees.changes import LOOK_S, MAX_CHANGES, ChangedFile, Changes, Feed, WatchedTree
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
    """Whether the supervisor itself has written an entry of a node's list, which the node cannot know."""
    tracked: "TrackedRoot | None" = None

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


class TrackedRoot:
    """One workspace, and the running calls that may write there."""

    def __init__(self, root: str, changes: "WorkspaceChanges", *, texts: bool) -> None:
        self.root = root
        self._new_tree = partial(WatchedTree, root, texts=texts, own=changes.own)
        self._tree = self._new_tree()
        self._texts = texts
        self._changes = changes
        self._lock = anyio.Lock(fast_acquire=True)
        self._calls: set[CallChanges] = set()
        self._unknown = ""
        self._again_at = 0.0

    def call(self, most: int) -> CallChanges:
        """The changes of a new call, whose result will list at most `most` files."""
        return CallChanges(most, self._texts, tracked=self)

    async def enter(self, call: CallChanges) -> None:
        """Look before a call, unless a guard has. Waits for no thread if nothing has changed."""
        async with self._lock:
            if call in self._calls:
                return
            if not self._tree.is_lost:
                await self._look()
            if self._tree.is_lost:
                await self._begin()
            self._add(call)

    async def leave(self, call: CallChanges) -> None:
        """Look after the last process of a call has ended, unless a guard has. Adds the changes to `call`."""
        async with self._lock:
            if call in self._calls:
                try:
                    await self._look()
                finally:
                    self._calls.discard(call)

    async def fed(
        self,
        run: Callable[[Callable[[], T]], Awaitable[T]],
        walk: Callable[[Feed | None], T],
        *,
        entering: CallChanges | None = None,
        leaving: CallChanges | None = None,
    ) -> T:
        """Return `walk(feed)`, which `run` runs in a thread: a walk of a guard through this tree, before or after a
        call. It takes the place of a look of our own."""
        async with self._lock:
            tree, began = self._tree, time.monotonic()
            is_first = tree.is_lost
            if not self._may_find(entering, began):
                return await run(partial(walk, None))
            dropped = self._changes.make_room(self) if is_first else []
            running, most = self._running()

            feed = tree.feed()
            found: list[Changes] = []

            def work() -> T:
                for each in dropped:
                    each.close()  # here, because it takes milliseconds for a large one
                outcome = walk(feed)
                found.append(feed.changes(most))
                return outcome

            try:
                outcome = await run(work)
            except HungFileSystem:  # the thread keeps the tree
                self._tree = self._new_tree()
                raise
            (changes,) = found
            if is_first and not feed.needs_no_queue:  # else `enter` begins without a queue
                self._begun(changes.unknown, began)
            elif not is_first:
                self._tell(running, changes)
            if entering is not None and not self._tree.is_lost:
                self._add(entering)
            if leaving is not None:
                self._calls.discard(leaving)
            return outcome

    def _may_find(self, entering: CallChanges | None, now: float) -> bool:
        """Whether a walk may find anything for a call that enters, or that is here."""
        self._changes.use(self)
        if not self._tree.is_lost:
            return self._tree.has_news
        return entering is not None and now >= self._again_at and self._changes.why_not(self) == ""

    def forget(self, call: CallChanges) -> None:
        """Forget a call that will not be sent."""
        self._calls.discard(call)

    def _add(self, call: CallChanges) -> None:
        call.unknown = self._unknown
        self._calls.add(call)

    async def _begin(self) -> None:
        began = time.monotonic()
        if began < self._again_at:
            return
        dropped = self._changes.make_room(self)
        tree = self._tree

        def begin() -> str:
            for each in dropped:
                each.close()
            return tree.begin()

        try:
            unknown = await self._in_thread(begin)
        except (NoThread, HungLook) as error:
            unknown = str(error)
        self._begun(unknown, began)

    def _begun(self, unknown: str, began: float) -> None:
        """Note the outcome of a first look. After one that failed, rest."""
        self._unknown = unknown
        if self._tree.is_lost:
            now = time.monotonic()
            self._again_at = now + REST * (now - began)

    async def _look(self) -> None:
        """Look again, and attribute the changes to the running calls."""
        self._changes.use(self)
        if self._tree.is_lost or not self._tree.has_news:
            return
        running, most = self._running()
        try:
            changes = await self._in_thread(partial(self._tree.look, most))
        except (NoThread, HungLook) as error:  # without a thread, the events stay in their queue
            changes = Changes(unknown=str(error))
        self._tell(running, changes)

    def _running(self) -> tuple[list[CallChanges], int]:
        """The running calls, and the most files that one of their results lists."""
        running = [each for each in self._calls if each.run is not None and each.run.cell is not None]
        return running, max((each.most for each in running), default=0)

    @staticmethod
    def _tell(running: Iterable[CallChanges], changes: Changes) -> None:
        for each in running:
            each.add(changes.found)
            each.unknown = each.unknown or changes.unknown

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Look in a thread. Raises NoThread, or HungLook after WAIT_S. Then the thread keeps the tree, and the next
        look is a first one of another tree."""
        if why := self._changes.why_not(self):
            raise HungLook(why)
        found: list[T] = []
        look = WorkInThread(lambda: found.append(work()), found)
        with anyio.move_on_after(WAIT_S, shield=True):  # the tree is not left to a thread for a cancelled caller's sake
            await LOOKS.run(look, abandon=True)
            return found[0]
        self._tree = self._new_tree()
        if look.give_up():
            self._changes.hung.append((self, look))
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

    def call(self, most: int) -> CallChanges:
        """The changes of a new call, which its node fills in."""
        return CallChanges(most, self._texts, own=self._own)

    async def enter(self, call: CallChanges) -> None:
        """Nothing: the node looks."""

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
        self.hung: list[tuple[TrackedRoot, WorkInThread]] = []

    def of(self, root: str, identity: Identity, *, texts: bool) -> TrackedRoot | RemoteRoot:
        """The tracked workspace at a real path. `texts`: keep the texts of small files, for diffs."""
        if self._elsewhere:
            return RemoteRoot(self.own, texts=texts)
        key = (root, identity, texts)
        tracked = self._roots.get(key)
        if tracked is None:
            tracked = self._roots[key] = TrackedRoot(root, self, texts=texts)
        return tracked

    def why_not(self, tracked: TrackedRoot) -> str:
        """The reason why there is no look at this workspace: one hangs, or too many others do; "" if there is none."""
        if self.hung:
            self.hung = [(root, look) for root, look in self.hung if not look.is_over]
            if any(root is tracked for root, _ in self.hung):
                return "its file system does not answer"
            if len(self.hung) >= MAX_HUNG:
                return "the file systems of other workspaces do not answer, and hold all threads for looks"
        return ""

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
