"""Find the changed files of a writable tree, with inotify(7).

The first look lists the tree and watches each of its directories. A later look takes the events since the last look,
and calls lstat(2) only for the entries that the events name. If the kernel has dropped events, or has no queue left for
this user, the look lists the whole tree again. An entry has changed if its facts from lstat(2) differ. Programs cannot
set the change time.

A file with several hard links is reported under the path by which it was written. In a network file system, writes of
another machine cause no events and are not found.
"""

import errno
import os
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from toolcell_sandbox.kernel.inotify import PLACED, Inotify, NoQueue

from . import walker
from .facts import said, tick_of
from .walker import Budget, Cut, Root

MIB = 1024 * 1024
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


class Facts(NamedTuple):
    """The facts of an entry from lstat(2). The entry is not a directory."""

    device: int
    inode: int
    mode: int
    size: int
    modified_ns: int
    changed_ns: int


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

    @property
    def path(self) -> str:
        parts, folder = list[str](), self
        while (above := folder.above) is not None:
            parts.append(folder.name)
            folder = above
        return "/".join(reversed(parts))

    @property
    def is_there(self) -> bool:
        """Whether it is still a part of the tree."""
        folder = self
        while (above := folder.above) is not None:
            if above.folders.get(folder.name) is not folder:
                return False
            folder = above
        return True


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

    `look` never raises for anything in the tree. `is_lost`: the tree must be listed by `begin` before the next look.
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

    @property
    def has_news(self) -> bool:
        """Whether a look may find anything. Costs one system call."""
        return self.events is None or self.events.has_events

    def begin(self, seconds: float = LOOK_S) -> str:
        """Look for the first time. Returns the reason why a part of the tree is unknown, "" if none is."""
        try:
            look = self._first_look(Inotify, seconds)
        except (Cut, OSError) as error:
            if not (isinstance(error, OSError) and error.errno in _NONE_LEFT):
                return self._lose(error)
            try:
                look = self._first_look(NoQueue, seconds)
            except (Cut, OSError) as again:
                return self._lose(again)
        self.is_lost = False
        return look.unknown

    def _first_look(self, queue: type[Inotify | NoQueue], seconds: float) -> "_TreeLook":
        self.close()
        look = _TreeLook(self, seconds)
        self.events = queue()
        with Root(self.root) as root:
            look.all_of(root)
        return look

    def _lose(self, error: Cut | OSError) -> str:
        """Close the watches. Returns the reason."""
        self.close()
        return said(error) if isinstance(error, OSError) else str(error)

    def look(self, most: int, seconds: float = LOOK_S) -> Changes:
        """Find the changes since the last look. Read the contents of the first `most` changed files."""
        if self.events is None:
            return Changes(unknown="it could not be looked at before")
        look = _TreeLook(self, seconds)
        events = self.events.events()
        try:
            with Root(self.root) as root:
                if not self._is_watched(root):
                    raise Cut("the directory was moved or replaced while the call ran")
                if events.lost:
                    look.all_of(root)
                else:
                    look.named(root, events.names)
                return Changes(look.read(root, most), look.unknown)
        except (Cut, OSError) as error:
            why = self._lose(error)
            return Changes(look.unread(), why)

    def _is_watched(self, root: Root) -> bool:
        """Whether this is the directory that was looked at before, and not a later one with its inode number."""
        assert self.events is not None
        fd = root.open("", walker.LIST)
        try:
            return self.events.watch(fd) == self.top.watch
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close the watches, and forget the tree."""
        if self.events is not None:
            self.events.close()
        self.events, self.top, self.is_lost = None, _Folder("", None), True
        self.by_watch.clear()
        self.texts = _Texts()
        self.directories = self.files = 0


class _TreeLook:
    """One look at a watched tree."""

    def __init__(self, tree: WatchedTree, seconds: float) -> None:
        self._tree = tree
        self._is_first = tree.is_lost
        self._budget = Budget(entries=MAX_FILES + MAX_DIRECTORIES, seconds=seconds)
        self._fresh_ns, tree.looked_ns = tree.looked_ns, time.time_ns()
        self._doubtful: set[str] = set()  # written so lately that a change may have left the change time as it was
        self._was: dict[str, Facts | None] = {}
        self._now: dict[str, Facts | None] = {}
        self._chars = 0
        self.unknown = ""

    # -- entries -----------------------------------------------------------------------------------------------------

    def all_of(self, root: Root) -> None:
        """List all directories."""
        self._tree.top.inode = os.fstat(root.fd).st_ino
        self._descend(root, [self._tree.top])

    def named(self, root: Root, names: dict[int, dict[str, int]]) -> None:
        """Look at the entries with events."""
        new: list[_Folder] = []
        for number, some in names.items():
            folder = self._tree.by_watch.get(number)
            if folder is not None and folder.is_there:
                new += self._entries(root, folder, some)
        self._descend(root, [each for each in new if each.is_there])

    def _entries(self, root: Root, folder: _Folder, names: dict[str, int]) -> list[_Folder]:
        """Look at some entries of a directory. Returns the directories to list."""
        try:
            fd = root.open(folder.path, walker.PATH)
        except OSError as error:
            if error.errno not in _ABSENT:  # an absent directory has an event in its parent
                self._miss(said(error, folder.path))
            return []
        new: list[_Folder] = []
        try:
            for name, events in names.items():
                self._budget.entry()
                try:
                    info = os.stat(name, dir_fd=fd, follow_symlinks=False)
                except OSError as error:
                    if error.errno in _ABSENT:
                        self._gone(folder, name)
                    else:
                        self._miss(said(error, folder.path))
                    continue
                if events & PLACED and name in folder.folders:
                    self._gone(folder, name)  # it may be another one, with the same inode number
                new += self._entry(folder, name, info)
        finally:
            os.close(fd)
        return new

    def _descend(self, root: Root, todo: list[_Folder]) -> None:
        """List directories, and the new directories in them, breadth first."""
        at = 0
        while at < len(todo):
            folder = todo[at]
            at += 1
            todo += self._list(root, folder)
            if at > 4_096:
                del todo[:at]
                at = 0

    def _list(self, root: Root, folder: _Folder) -> list[_Folder]:
        """Watch one directory, then list it. Returns the directories in it that must be listed."""
        path = folder.path
        self._budget.check()
        if len(path) > MAX_PATH_CHARS:
            self._miss(f"a path is longer than {MAX_PATH_CHARS:,} characters")
            return []
        try:
            fd = root.open(path, walker.LIST)
        except OSError as error:
            if not path:
                raise
            if not (self._is_first and isinstance(error, PermissionError)):  # cells cannot write there either
                self._miss(said(error, path))
            return []
        try:
            self._watch(folder, fd)
            below: list[_Folder] = []
            names: set[str] = set()
            with os.scandir(fd) as scan:
                for each in scan:
                    self._budget.entry()
                    try:
                        info = each.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    names.add(each.name)
                    new = self._entry(folder, each.name, info)
                    below += new or ([folder.folders[each.name]] if each.name in folder.folders else [])
                    if self._is_first:
                        self._first_text(each.name, fd, info)
        finally:
            os.close(fd)
        folder.is_listed = True
        for name in [*(folder.files.keys() - names), *(folder.folders.keys() - names)]:
            self._gone(folder, name)
        return below

    def _watch(self, folder: _Folder, fd: int) -> None:
        tree = self._tree
        assert tree.events is not None
        number = tree.events.watch(fd)
        if number != folder.watch:
            if tree.by_watch.get(folder.watch) is folder:
                del tree.by_watch[folder.watch]
                tree.events.forget(folder.watch)
            folder.watch = number
        tree.by_watch[number] = folder
        folder.inode = os.fstat(fd).st_ino

    def _entry(self, folder: _Folder, name: str, info: os.stat_result) -> list[_Folder]:
        """Compare one entry with the last look. Returns it if it is a directory that must be listed."""
        tree = self._tree
        if stat.S_ISDIR(info.st_mode):
            old = folder.folders.get(name)
            if old is not None and old.inode == info.st_ino:
                return [] if old.is_listed else [old]
            self._gone(folder, name)
            tree.directories += 1
            if tree.directories > MAX_DIRECTORIES:
                raise Cut(f"it has more than {MAX_DIRECTORIES:,} directories")
            new = folder.folders[name] = _Folder(name, folder, inode=info.st_ino)
            return [new]
        if name in folder.folders:
            self._gone(folder, name)
        facts = _facts(info)
        was = folder.files.get(name)
        if was == facts:
            if facts.changed_ns >= self._fresh_ns - tick_of(facts.changed_ns):
                self._note(folder, name, was, facts, doubtful=True)
            return []
        if was is None:
            tree.files += 1
            if tree.files > MAX_FILES:
                raise Cut(f"it has more than {MAX_FILES:,} files")
        folder.files[name] = facts
        self._note(folder, name, was, facts)
        return []

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
        if self._is_first:
            return
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

    def _first_text(self, name: str, parent: int, info: os.stat_result) -> None:
        texts = self._tree.texts
        if not (self._tree.keeps_texts and stat.S_ISREG(info.st_mode) and info.st_size <= TEXT_BYTES):
            return
        if len(texts) < FIRST_TEXTS and texts.bytes + info.st_size < FIRST_TEXTS_BYTES:
            try:
                held = walker.entry(name, parent)
            except OSError:
                return
            try:
                self._read(held, _facts(info))
            finally:
                os.close(held)

    # -- contents ----------------------------------------------------------------------------------------------------

    def unread(self) -> list[ChangedFile]:
        """The changes, without contents."""
        return [
            _change(path, was, self._now[path])
            for path, was in self._was.items()
            if was != self._now[path] or path in self._doubtful
        ]

    def read(self, root: Root, most: int) -> list[ChangedFile]:
        """The changes, with digests and contents of the first `most`. A file with unchanged content is left out."""
        left, found = READ_ALL_BYTES, list[ChangedFile]()
        for change in self.unread():
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
            if _facts(os.fstat(held)) != facts:
                return None
            raw = walker.content(held, facts.size + 1)
            if _facts(os.fstat(held)) != facts or len(raw) != facts.size:
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


def _facts(info: os.stat_result) -> Facts:
    return Facts(info.st_dev, info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _change(path: str, was: Facts | None, now: Facts | None) -> ChangedFile:
    facts = now or was
    assert facts is not None
    kind: ChangeKind = "deleted" if now is None else "created" if was is None else "modified"
    is_file = stat.S_ISREG(facts.mode)
    return ChangedFile(path, kind, is_file, None if now is None or not is_file else now.size)


def _digest(raw: bytes) -> str:
    from hashlib import sha256  # OpenSSL, which takes milliseconds to load

    return f"sha256:{sha256(raw).hexdigest()}"
