"""Find the changed files of a writable tree, with inotify(7).

Each directory of the tree is watched. The walk of a later look is that of `look`, which visits every directory anyway:
in those that are listed, new names count; in the others, only the entries that events have named are looked at again.
An entry has changed if its facts from lstat(2) differ. Programs cannot set the change time. If the kernel has dropped
events, or has no queue left for this user, the whole tree is listed again.

So one walk serves the audit and the changed files: pass `WatchedTree.feed()` to the look of a `ProtectedTree`, then ask
the feed for the changes. `begin` and `look` walk alone. A feed that fails, because the tree is too large or its time is
over, loses the changes and leaves the audit's walk as it is.

A file with several hard links is reported under the path by which it was written. In a network file system, writes of
another machine cause no events and are not found.
"""

import errno
import math
import os
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from toolcell_sandbox.kernel.inotify import PLACED, Inotify, NoQueue

from . import walker
from .facts import Facts, said, tick_of
from .look import Audience, Directory, Vocabularies, Walk
from .walker import MIB, Budget, Cut, Root

LOOK_S = 2.0
MAX_DIRECTORIES, MAX_FILES, MAX_PATH_CHARS = 20_000, 100_000, 16 * 1024
"""The bounds of one tree: directories, other entries, and the characters of a path."""
MAX_CHANGES, MAX_CHANGES_CHARS = 10_000, MIB
"""The most changes that are kept between two looks, and the most characters of their paths in sum."""
READ_BYTES, READ_ALL_BYTES = 16 * MIB, 64 * MIB
"""The largest file that is read for its digest, and the most that one look reads."""
TEXT_BYTES, TEXTS_BYTES = 64 * 1024, 4 * MIB
"""The largest text that is kept for a diff, and the most bytes of all kept texts of one tree."""
FIRST_TEXTS, FIRST_TEXTS_BYTES = 500, 2 * MIB
"""The most texts that the first look keeps, and their bytes. Directories near the root come first."""

ChangeKind = Literal["created", "modified", "deleted"]


class ChangedFile(NamedTuple):
    """A file that has changed since the last look. `path` is relative to the root of the tree.

    `digest` is "sha256:<hex>" of a regular file, "" if it was not read. `before` and `after` are its contents: b"" if
    there was no file, None if the content is unknown or too large. `is_file` is False for links and special files.
    """

    path: str
    kind: ChangeKind
    is_file: bool = True
    size: int | None = None
    digest: str = ""
    before: bytes | None = None
    after: bytes | None = None


def order_of(change: ChangedFile) -> tuple[bool, str]:
    """The sort key of a change: files in `.git` come last."""
    return f"/{change.path}".find("/.git/") >= 0, change.path


@dataclass(slots=True)
class Changes:
    """The changes since the last look. `unknown` is the reason why some may be missing, "" if none is."""

    found: list[ChangedFile] = field(default_factory=list[ChangedFile])
    unknown: str = ""


@dataclass(slots=True, eq=False)
class _Folder:
    name: str
    above: "_Folder | None"
    watch: int = -1
    inode: int = -1
    files: dict[str, Facts] = field(default_factory=dict[str, Facts])
    folders: "dict[str, _Folder]" = field(default_factory=dict[str, "_Folder"])
    is_listed: bool = False
    is_denied: bool = False  # access was denied; it is tried again when an event names it
    depth: int = field(init=False)
    chars: int = field(init=False)  # of its path, with a slash

    def __post_init__(self) -> None:
        above = self.above
        self.depth, self.chars = (0, 0) if above is None else (above.depth + 1, above.chars + len(self.name) + 1)

    @property
    def path(self) -> str:
        parts, folder = list[str](), self
        while (above := folder.above) is not None:
            parts.append(folder.name)
            folder = above
        return "/".join(reversed(parts))


class _Texts:
    """Contents of small files, by their facts. The least recently used content is dropped first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Facts, bytes] = OrderedDict()
        self.bytes = 0

    def keep(self, facts: Facts, raw: bytes) -> None:
        if facts not in self._kept and len(raw) <= TEXT_BYTES:
            self._kept[facts] = raw
            self.bytes += len(raw) + 256
            while self.bytes > TEXTS_BYTES:
                self.bytes -= len(self._kept.popitem(last=False)[1]) + 256

    def of(self, facts: Facts) -> bytes | None:
        raw = self._kept.get(facts)
        if raw is not None:
            self._kept.move_to_end(facts)
        return raw

    def __len__(self) -> int:
        return len(self._kept)


class WatchedTree:
    """The files of one tree at the last look, and the watches of its directories. Not thread-safe. Must be closed.

    No look raises for anything in the tree. `is_lost`: the next look is a first one, which finds no changes.
    """

    def __init__(
        self, root: str, *, texts: bool = True, own: Callable[[str, int | None], bool] = lambda _path, _size: False
    ) -> None:
        """`own(path, size)` says whether to leave out a change; `size` is None if the file is gone. `texts`: keep the
        texts of small files for diffs."""
        self.root = root
        self.is_lost = True
        self.directories = self.files = 0
        self.keeps_texts = texts
        self.own = own
        self.texts = _Texts()
        self.events: Inotify | NoQueue | None = None
        self.top = _Folder("", None)
        self.by_watch: dict[int, _Folder] = {}
        self.looked_ns = 0
        self._listed = Directory()  # of the looks alone

    @property
    def has_news(self) -> bool:
        """Whether a look may find anything. Costs one system call."""
        return self.events is None or self.events.has_events

    def feed(self) -> "Feed":
        """What a walk of this tree must be given as its audience, so that it finds the changes too."""
        return Feed(self)

    def begin(self) -> str:
        """Look for the first time. Returns the reason why a part of the tree is unknown, "" if none is."""
        feed = self.walk(Feed(self, Inotify, alone=True))
        if feed.needs_no_queue:
            feed = self.walk(Feed(self, NoQueue, alone=True))
        return feed.changes(0).unknown

    def look(self, most: int) -> Changes:
        """Find the changes since the last look. Read the contents of the first `most` changed files."""
        if self.is_lost:
            return Changes(unknown="it could not be looked at before")
        return self.walk(Feed(self, alone=True)).changes(most)

    def walk(self, feed: "Feed") -> "Feed":
        """Walk for the feed alone."""
        budget = Budget(entries=MAX_FILES + MAX_DIRECTORIES, seconds=LOOK_S)
        Walk(self.root, Vocabularies(), self._listed, budget, None, audience=feed, lends=False).taken()
        return feed

    def close(self) -> None:
        """Close the watches, and forget the tree."""
        if self.events is not None:
            self.events.close()
        self.events, self.top, self.is_lost = None, _Folder("", None), True
        self.by_watch.clear()
        self.texts = _Texts()
        self.directories = self.files = 0
        self._listed = Directory()


class Feed(Audience):
    """One look at a watched tree, of one walk or of several after one another: those of an audit and its repairs."""

    def __init__(
        self,
        tree: WatchedTree,
        queue: type[Inotify | NoQueue] = Inotify,
        *,
        alone: bool = False,
    ) -> None:
        """`alone`: the walk serves nothing else, so it ends where the look ends."""
        self._tree = tree
        self._queue = queue
        self._alone = alone
        self._is_first = tree.is_lost
        self._budget = Budget(entries=MAX_FILES + MAX_DIRECTORIES, seconds=math.inf)  # see `spent_s`
        self._is_over = self._is_cut = False
        self._lists_all = self._compares_all = False
        self._names: dict[int, dict[str, int]] = {}
        self._met: set[str] = set()
        self._some: dict[str, int] = {}  # the entries of the open directory that have events
        self._fresh_ns = 0
        self._doubtful: set[str] = set()  # written so lately that a change may have left the change time as it was
        self._was: dict[str, Facts | None] = {}
        self._now: dict[str, Facts | None] = {}
        self._texts: dict[int, list[tuple[_Folder, str, Facts]]] = {}  # small files, by the depth of their directories
        self._chars = 0
        self.needs_no_queue = False
        self.unknown = ""

    # -- the walk ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        tree = self._tree
        if self._is_over:
            return
        self._fresh_ns, tree.looked_ns = tree.looked_ns, time.time_ns()
        try:
            if self._is_first:
                tree.close()
                tree.events = self._queue()
                return
            assert tree.events is not None
            events = tree.events.events()
            self._names, self._lists_all = events.names, events.lost or self._is_cut
        except OSError as error:
            self._lose(error)

    def visit(self, above: _Folder | None, name: str, info: os.stat_result) -> _Folder | None:
        """The directory as it was known, or as its listing has found it a moment ago."""
        if self._is_over:
            return None
        if above is None:
            return self._tree.top
        folder = above.folders.get(name)
        if folder is None or folder.inode != info.st_ino:
            return None  # it was swapped since; an event says so
        if folder.chars > MAX_PATH_CHARS:
            self._miss(f"a path is longer than {MAX_PATH_CHARS:,} characters")
            return None
        return folder

    def wants(self, place: _Folder) -> str:
        if self._lists_all or not (place.is_listed or place.is_denied):
            return "list"
        return "named" if place.watch in self._names or place.above is None else ""

    def opened(self, place: _Folder, fd: int) -> None:
        self._met.clear()
        if self._is_over:
            return
        try:
            is_watched = self._watch(place, fd)
        except (Cut, OSError) as error:
            self._lose(error)
            return
        self._compares_all = self._lists_all or not place.is_listed or not is_watched
        self._some = self._names.get(place.watch, {})

    def entry(self, place: _Folder, each: "os.DirEntry[str]") -> bool:
        """In a directory that was watched all the time, an entry without events is as it was."""
        name = each.name
        if self._is_over:
            return True
        try:
            self._take_entry()
            if (
                self._compares_all
                or name in self._some
                or name not in (place.folders if each.is_dir(follow_symlinks=False) else place.files)
            ):
                self._compare(place, name, each.stat(follow_symlinks=False))
            self._met.add(name)
        except OSError:
            pass  # it is gone
        except Cut as cut:
            self._lose(cut)
        return True

    def listed(self, place: _Folder) -> None:
        if self._is_over:
            return
        place.is_listed = True
        for name in [*(place.files.keys() - self._met), *(place.folders.keys() - self._met)]:
            self._gone(place, name)

    def named(self, place: _Folder, fd: int) -> None:
        """Look at the entries with events."""
        if self._is_over:
            return
        try:
            if place.above is None:
                self._watch(place, fd)
            self._some = self._names.get(place.watch, {})
            for name in self._some:
                self._take_entry()
                try:
                    info = os.stat(name, dir_fd=fd, follow_symlinks=False)
                except OSError as error:
                    if error.errno in _ABSENT:
                        self._gone(place, name)
                    else:
                        self._miss(said(error, place.path))
                else:
                    self._compare(place, name, info)
        except (Cut, OSError) as error:
            self._lose(error)

    def missed(self, place: _Folder | None, path: str, error: OSError) -> None:
        folder = None if place is None else place.folders.get(path.rpartition("/")[2])
        if not path:
            self._lose(error)
        elif folder is not None and isinstance(error, PermissionError):
            if not self._is_first and self.wants(folder):  # at first, cells cannot write there either
                self._miss(said(error, path))
            folder.is_denied = True
        elif error.errno not in _ABSENT:
            self._miss(said(error, path))

    def cut(self, error: Cut | OSError) -> None:
        if self._is_over:
            return
        if self._alone:
            self._end(_why(error))
        else:
            self._is_cut = True  # the audit's time is over, not ours

    def _take_entry(self) -> None:
        self._budget.entry()
        if self.spent_s > LOOK_S:
            raise Cut("the look took too long")

    def _lose(self, error: Cut | OSError) -> None:
        """End the look, but not the walk that it shares."""
        why = _why(error)
        self.needs_no_queue = isinstance(error, OSError) and error.errno in _NONE_LEFT
        self._end(why)
        if self._alone:
            raise Cut(why)

    def _end(self, why: str) -> None:
        self._is_over, self.unknown = True, why
        self._tree.close()

    def _watch(self, folder: _Folder, fd: int) -> bool:
        """Watch one directory. Returns whether it was watched before, and is no later one with its inode number."""
        tree = self._tree
        assert tree.events is not None
        number = tree.events.watch(fd)
        if number == folder.watch:
            return True
        if folder.above is None and not self._is_first:
            raise Cut("the directory was moved or replaced while the call ran")
        if tree.by_watch.get(folder.watch) is folder:
            del tree.by_watch[folder.watch]
            tree.events.forget(folder.watch)
        folder.watch = number
        tree.by_watch[number] = folder
        folder.inode = os.fstat(fd).st_ino
        return False

    # -- entries -----------------------------------------------------------------------------------------------------

    def _compare(self, folder: _Folder, name: str, info: os.stat_result) -> None:
        """Compare one entry with the last look."""
        tree = self._tree
        if name in folder.folders and self._some.get(name, 0) & PLACED:
            self._gone(folder, name)  # it may be another one, with the same inode number
        if stat.S_ISDIR(info.st_mode):
            old = folder.folders.get(name)
            if old is not None and old.inode == info.st_ino:
                old.is_denied = old.is_denied and name not in self._some
                return
            self._gone(folder, name)
            tree.directories += 1
            if tree.directories > MAX_DIRECTORIES:
                raise Cut(f"it has more than {MAX_DIRECTORIES:,} directories")
            folder.folders[name] = _Folder(name, folder, inode=info.st_ino)
            return
        if name in folder.folders:
            self._gone(folder, name)
        facts = Facts.of(info)
        was = folder.files.get(name)
        if was == facts:
            if facts.changed_ns >= self._fresh_ns - tick_of(facts.changed_ns):
                self._note(folder, name, was, facts, doubtful=True)
            return
        if was is None:
            tree.files += 1
            if tree.files > MAX_FILES:
                raise Cut(f"it has more than {MAX_FILES:,} files")
        folder.files[name] = facts
        if self._is_first:
            self._want_text(folder, name, facts)
        else:
            self._note(folder, name, was, facts)

    def _gone(self, folder: _Folder, name: str) -> None:
        """Note that an entry and everything below it are gone."""
        tree = self._tree
        was = folder.files.pop(name, None)
        if was is not None:
            tree.files -= 1
            self._note(folder, name, was, None)
        top = folder.folders.get(name)
        if top is None:
            return
        for each in [*_below(top)]:
            tree.directories -= 1
            tree.files -= len(each.files)
            for file, facts in each.files.items():
                self._note(each, file, facts, None)
            if tree.by_watch.get(each.watch) is each:
                del tree.by_watch[each.watch]
                assert tree.events is not None
                tree.events.forget(each.watch)
        del folder.folders[name]

    def _note(
        self, folder: _Folder, name: str, was: Facts | None, now: Facts | None, *, doubtful: bool = False
    ) -> None:
        path = f"{above}/{name}" if (above := folder.path) else name
        if self._tree.own(path, None if now is None else now.size):
            return
        if path not in self._was:
            self._chars += len(path)
            if len(self._was) >= MAX_CHANGES or self._chars > MAX_CHANGES_CHARS:
                self._miss("it changed too many files")
                return
            self._was[path] = was
        self._now[path] = now
        if doubtful:
            self._doubtful.add(path)

    def _miss(self, why: str) -> None:
        self.unknown = self.unknown or why

    # -- contents ----------------------------------------------------------------------------------------------------

    def _want_text(self, folder: _Folder, name: str, facts: Facts) -> None:
        """Remember a small file whose text the first look keeps, if there is none nearer to the root."""
        if self._tree.keeps_texts and stat.S_ISREG(facts.mode) and facts.size <= TEXT_BYTES:
            some = self._texts.setdefault(folder.depth, [])
            if len(some) < FIRST_TEXTS:
                some.append((folder, name, facts))

    def _read_first_texts(self, root: Root) -> None:
        texts = self._tree.texts
        for _, some in sorted(self._texts.items()):
            for folder, name, facts in some:
                if self._budget.is_over:
                    return
                if len(texts) < FIRST_TEXTS and texts.bytes + facts.size < FIRST_TEXTS_BYTES:
                    self._content(root, f"{above}/{name}" if (above := folder.path) else name, facts)

    def changes(self, most: int) -> Changes:
        """What the walks have found, with digests and contents of the first `most`. A file with unchanged content is
        left out. After a first look, nothing has changed."""
        tree = self._tree
        if self._is_cut:
            self._alone, self.spent_s = True, 0.0
            self._budget = Budget(entries=MAX_FILES + MAX_DIRECTORIES, seconds=math.inf)
            tree.walk(self)
        if self._is_over:
            return Changes(self._unread(), self.unknown)
        try:
            self._budget = Budget(seconds=LOOK_S - self.spent_s)  # to read in
            with Root(tree.root) as root:
                if self._is_first:
                    tree.is_lost = False
                    self._read_first_texts(root)
                    return Changes([], self.unknown)
                return Changes(self._read_changed(root, most), self.unknown)
        except OSError as error:
            self._end(said(error))
            return Changes(self._unread(), self.unknown)

    def _unread(self) -> list[ChangedFile]:
        """The changes, without contents, in the order in which they are told."""
        found = [
            _change(path, was, self._now[path])
            for path, was in self._was.items()
            if was != self._now[path] or path in self._doubtful
        ]
        return sorted(found, key=order_of)

    def _read_changed(self, root: Root, most: int) -> list[ChangedFile]:
        left, found = READ_ALL_BYTES, list[ChangedFile]()
        for change in self._unread():
            was, now = self._was[change.path], self._now[change.path]
            if len(found) >= most or not change.is_file:
                found.append(change)
                continue
            before: bytes | None = b"" if was is None else self._tree.texts.of(was)
            if now is None:
                found.append(self._with_texts(change, before, b""))
                continue
            raw: bytes | None = None
            if now.size <= min(READ_BYTES, left) and stat.S_ISREG(now.mode):
                left -= now.size
                raw = self._content(root, change.path, now)
            if raw is not None and raw == before and was is not None and now.mode == was.mode:
                continue  # touched, or written with the same content
            if raw is not None:
                change = change._replace(digest=_digest(raw))
            found.append(self._with_texts(change, before, raw if now.size <= TEXT_BYTES else None))
        return found

    def _with_texts(self, change: ChangedFile, before: bytes | None, after: bytes | None) -> ChangedFile:
        return change._replace(before=before, after=after) if self._tree.keeps_texts else change

    def _content(self, root: Root, path: str, facts: Facts) -> bytes | None:
        try:
            self._budget.check()
            held = root.open(path, walker.ENTRY)
        except (OSError, Cut) as error:
            if isinstance(error, Cut):
                self._miss("its changed files could not be read in time")
            return None
        try:
            return self._read(held, facts)
        finally:
            os.close(held)

    def _read(self, held: int, facts: Facts) -> bytes | None:
        """Read an open file, and keep a small content. None if the file cannot be read, or changes meanwhile."""
        try:
            if Facts.of(os.fstat(held)) != facts:
                return None
            raw = walker.content(held, facts.size + 1)
            if Facts.of(os.fstat(held)) != facts or len(raw) != facts.size:
                return None
        except OSError:
            return None
        if self._tree.keeps_texts:
            self._tree.texts.keep(facts, raw)
        return raw


_NONE_LEFT = frozenset((errno.EMFILE, errno.ENOSPC))  # of a user's queues or watches
_ABSENT = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV))


def _below(top: _Folder) -> Iterator[_Folder]:
    todo = [top]
    while todo:
        folder = todo.pop()
        todo += folder.folders.values()
        yield folder


def _why(error: Cut | OSError) -> str:
    return said(error) if isinstance(error, OSError) else str(error)


def _change(path: str, was: Facts | None, now: Facts | None) -> ChangedFile:
    facts = now or was
    assert facts is not None
    kind: ChangeKind = "deleted" if now is None else "created" if was is None else "modified"
    is_file = stat.S_ISREG(facts.mode)
    return ChangedFile(path, kind, is_file, None if now is None or not is_file else now.size)


def _digest(raw: bytes) -> str:
    from hashlib import sha256  # OpenSSL, which takes milliseconds to load

    return f"sha256:{sha256(raw).hexdigest()}"
