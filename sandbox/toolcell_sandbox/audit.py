"""The audit of a writable tree: which protected names are there, and what a call made of them.

No mount can protect a name that is not there without leaving a file of its own behind. So whoever makes cells looks
before a call and after it, from outside of the sandbox, and what is new or changed goes into quarantine: nothing is
deleted, because it might be somebody else's edit at that very moment.

A look costs one stat(2) for each directory. Those whose inode and change time are as they were are not listed again; a
change time that was fresh when they were listed proves nothing, as in git's index (racy-git in git's documentation).
What a look could not see is unknown, never absent: `Look.unknown` says why, and who asks must act on it.
"""

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from . import walker
from .kernel.birth import born_ns
from .profile import is_below
from .protected import GIT_POINTER, Matcher, matcher
from .quarantine import Quarantine
from .view import Bound
from .walker import Budget, Copies, Cut, Root

MAX_BOUND, MAX_BOUND_BYTES = 512, 64 * 1024
"""Mounts that a cell gets for the protected names of a root, and the length of their paths in sum: those nearest to the
root first. The audit holds the others alone."""
RACY_NS = 20_000_000  # the kernel's coarse clock ticks every 1 to 10 ms
COARSE_NS = 2_100_000_000  # ext4 with inodes of 128 bytes keeps seconds, FAT two of them
ROUNDS = 5  # looks after a call, until nothing is left to move
BEFORE_S, AFTER_S = 10.0, 3.0
DIGEST_BYTES = 1024 * 1024  # a larger file is not put back, since nobody could tell that it is what it was
MAX_OPEN = 24  # descriptors of one look
_POINTER_BYTES = 4096
_OF_A_REPOSITORY = ("hooks", "config", "config.worktree", "commondir")

Names = tuple[str | None, ...]
"""For each vocabulary of a tree, the name that protects a path: "" for none, None where it does not hold."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was at a protected path: the names that protect it, and lstat's facts."""

    names: Names
    device: int
    inode: int
    mode: int
    size: int
    changed_ns: int
    racy: bool  # it was so fresh that another change may not have changed the change time
    digest: bytes  # of a file's content or a link's target; b"" where it is not known

    @property
    def name(self) -> str:
        """The first of the names."""
        return next(name for name in self.names if name)


Found = dict[str, Seen]
"""Every protected path of a tree, relative to its root, with all that is below a protected directory."""


@dataclass(slots=True)
class Look:
    """What one look at a tree has found. `unknown` says what kept it from seeing all; "" where it has."""

    taken_ns: int
    vocabularies: int = 0  # how many it looked for
    found: Found = field(default_factory=dict[str, Seen])
    unknown: str = ""
    doubt: str = ""  # why a change of what was found may not show
    root: tuple[int, int] | None = None  # device and inode of the root; None where there was none
    closed: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])  # others' directories, not to be read

    @property
    def since_ns(self) -> int:
        """What has changed since has at least this change time, on any file system."""
        return self.taken_ns - COARSE_NS


@dataclass(frozen=True, slots=True)
class Finding:
    """A protected path that a call made, changed or moved away, and where it is now.

    `path` is absolute; `place` is its place in the quarantine, again `path` where it was put back, and "" where it
    could not be moved. `names` are as in `Seen`.
    """

    path: str
    name: str
    what: str  # "made", "changed" or "moved"
    place: str
    names: Names = ()


@dataclass(frozen=True, slots=True)
class Settled:
    """What an audit has done. `unknown` says what it could not see, `stuck` what it could not move, and why."""

    findings: tuple[Finding, ...]
    unknown: str = ""
    stuck: str = ""
    replaced: bool = False  # the root is another directory now, in which nothing was done


@dataclass(slots=True)
class _Directory:
    names: Names = ()
    device: int = -1
    inode: int = -1
    changed_ns: int = -1
    racy: bool = True
    children: "dict[str, _Directory] | None" = None
    files: "dict[str, tuple[Names, Seen | None]] | None" = None  # protected, and as they were seen last


@dataclass(slots=True)
class _Frame:
    name: str
    node: _Directory
    fd: int  # -1 where it was closed, to be opened again
    todo: list[str]


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    matcher: Matcher
    apart: frozenset[str]

    def name_of(self, above: str | None, path: str, name: str, kind: str) -> str | None:
        """The name that protects a path below a directory that `above` protects; see `Names`."""
        if above is None or (kind == "directory" and path in self.apart):
            return None
        if above:
            return above
        if kind == "link":
            return self.matcher.name_of_link(path)
        if not self.matcher.may_end_in(name):
            return ""
        return self.matcher.name_of(path, directory=kind == "directory")


@dataclass(frozen=True, slots=True)
class _Vocabularies:
    """What is protected in a tree, by whom. A walk keeps those that it began with."""

    all_of: tuple[_Vocabulary, ...] = ()

    @property
    def nothing(self) -> Names:
        """The names of a path that has none."""
        return ("",) * len(self.all_of)

    def may_matter(self, name: str) -> bool:
        """Whether a path that ends in this component may have names of its own. Quick, for walks."""
        return any(each.apart or each.matcher.may_end_in(name) for each in self.all_of)

    def names_of(self, above: Names, path: str, name: str, kind: str) -> Names:
        """The names of a path of which `name` is the last component; `kind` is "directory", "link" or "other"."""
        return tuple(each.name_of(own, path, name, kind) for each, own in zip(self.all_of, above, strict=True))


class ProtectedTree:
    """One writable root, and the vocabularies of names that are protected in it. Not for two threads at a time."""

    def __init__(self, root: str, names: Iterable[str] = (), apart: Iterable[str] = ()) -> None:
        self.root = root
        self._prefix = root.rstrip("/") + "/"
        self.vocabularies = _Vocabularies()
        self._known: dict[tuple[tuple[str, ...], frozenset[str]], int] = {}
        self.top = _Directory()
        self._leading: dict[tuple[int, str], tuple[str, ...]] = {}  # of the paths that were bound last
        self.directories = 0
        """How many there were at the last look."""
        if names := tuple(names):
            self.learn(names, apart)

    def __repr__(self) -> str:
        return f"<ProtectedTree {self.root} · {self.directories} directories>"

    def learn(self, names: tuple[str, ...], apart: Iterable[str] = ()) -> int:
        """Protect these names as well; returns the index of this vocabulary.

        `apart` are roots below, which are trees of their own: naming one lifts the names above it.
        """
        below = frozenset(
            path[len(self._prefix) :] for path in apart if path != self.root and is_below(path, [self.root])
        )
        index = self._known.setdefault((names, below), len(self._known))
        if index == len(self.vocabularies.all_of):
            self.vocabularies = _Vocabularies((*self.vocabularies.all_of, _Vocabulary(matcher(names), below)))
            self.top = _Directory()  # every directory is listed again, for these names
        return index

    def copy(self) -> "ProtectedTree":
        """The same root and names, for another thread; nothing is known of the tree."""
        other = ProtectedTree(self.root)
        other.vocabularies = self.vocabularies
        return other

    def look(self, budget: Budget | None = None) -> Look:
        """Look, before a call."""
        return _Walk(self, budget or Budget(seconds=BEFORE_S), None).taken()

    def bound(self, look: Look, vocabulary: int = 0) -> tuple[Bound, ...]:
        """What of that the kernel can hold: files, directories, and pins for the directories that names begin with."""
        found = {path: seen for path, seen in look.found.items() if _protect(seen.names, (vocabulary,))}
        tops = [path for path in found if os.path.dirname(path) not in found]
        tops = [path for path in tops if stat.S_IFMT(found[path].mode) in (stat.S_IFREG, stat.S_IFDIR)]
        wanted: dict[str, Bound] = {}
        leading: dict[str, tuple[str, ...]] = {}
        matching, size = self.vocabularies.all_of[vocabulary].matcher, 0
        for path in sorted(tops, key=lambda each: (each.count("/"), each)):
            seen = found[path]
            leading[path] = self._leading.get((vocabulary, path)) or matching.leading(
                path, directory=stat.S_ISDIR(seen.mode)
            )
            size += (len(self._prefix) + len(path)) * (1 + len(leading[path]))
            if len(wanted) + len(leading[path]) >= MAX_BOUND or size > MAX_BOUND_BYTES:
                break
            if len(os.fsencode(self._prefix + path)) > walker.PIECE_BYTES:
                continue  # no mount has so long a path
            for above in leading[path]:
                node = self._node(above)
                if node is not None:
                    whole = self._prefix + above
                    wanted.setdefault(above, Bound(whole, True, (node.device, node.inode), born_ns(whole)))
            whole = self._prefix + path
            wanted[path] = Bound(whole, False, (seen.device, seen.inode), born_ns(whole))
        self._leading = {(vocabulary, path): above for path, above in leading.items()}
        return tuple(wanted.values())

    def settle(self, before: Look, quarantine: Quarantine, active: Collection[int] = (0,)) -> Settled:
        """Look again, and move to quarantine what is new or changed since `before`; put back what was moved away.

        Only names of the `active` vocabularies count. The new change time of what was put back is entered into
        `before`. It ends in time, and never raises for what is in the tree.
        """
        return _Audit(self, before, quarantine, active).settled()

    def sweep(
        self, since: Callable[[int], bool], quarantine: Quarantine, budget: Budget, active: Collection[int] = (0,)
    ) -> Settled:
        """Move to quarantine what is protected and was changed at a time, in nanoseconds, for which `since` holds.

        For when nothing is known of the time before: a change time cannot be set by a program.
        """
        wrong: dict[str, Seen] = {}

        def met(path: str, seen: Seen) -> None:
            if since(seen.changed_ns) and _protect(seen.names, active):
                wrong[path] = seen

        look = _Walk(self, budget, Look(0), met, keep=False).taken()
        moved = _Moved(self, quarantine)
        with moved.root():
            for path, seen in wrong.items():
                if os.path.dirname(path) not in wrong:
                    moved.take(path, seen, "made")
        return Settled(tuple(moved.findings.values()), look.unknown or moved.unknown, moved.stuck)

    def _node(self, path: str) -> _Directory | None:
        node: _Directory | None = self.top
        for name in path.split("/") if path else ():
            node = (node.children or {}).get(name) if node is not None else None
        return node


class _Walk:
    """One look at a tree. With `before`, it is one after a call: directories that the call closed are opened up."""

    def __init__(
        self,
        tree: ProtectedTree,
        budget: Budget,
        before: Look | None,
        met: Callable[[str, Seen], None] | None = None,
        *,
        keep: bool = True,
    ) -> None:
        self._tree = tree
        self._budget = budget
        self._before = before
        self._words = tree.vocabularies
        self._top = tree.top if keep else _Directory()
        self._look = Look(time.time_ns(), len(self._words.all_of))
        self._met = met
        self._keep = keep
        self._wanted = (
            frozenset(seen.inode for seen in before.found.values()) if before is not None else frozenset[int]()
        )
        self.elsewhere: dict[int, str] = {}
        """Inodes of what was there before, and where they turned up."""
        self._frames: list[_Frame] = []
        self._directories = 0

    def taken(self) -> Look:
        """Look, and close every descriptor."""
        try:
            with Root(self._tree.root) as root:
                info = os.fstat(root.fd)
                self._look.root = info.st_dev, info.st_ino
                self._top.names = self._top.names or self._words.nothing
                try:
                    self._visit(root, "", self._top, info, root.fd)
                    self._descend(root)
                    if self._met is None:
                        _Targets(self._tree, root, self._look, self._before, self._budget).add()
                finally:
                    for frame in self._frames:
                        if frame.fd >= 0:
                            os.close(frame.fd)
        except Cut as cut:
            self._unknown(str(cut))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR) or self._look.root is not None:
                self._unknown(_said(error))
        self._tree.directories = self._directories
        return self._look

    def _descend(self, root: Root) -> None:
        while self._frames:
            frame = self._frames[-1]
            if not frame.todo:
                self._frames.pop()
                if frame.fd >= 0:
                    os.close(frame.fd)
                if not self._keep:
                    frame.node.children = None
                continue
            name = frame.todo.pop()
            children = frame.node.children
            assert children is not None
            try:
                fd = self._opened(root, frame)
                info = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    self._visit(root, name, children[name], info, fd)
                    continue
            except FileNotFoundError:
                pass
            except OSError as error:  # whoever writes there swaps it meanwhile, or the file system fails
                self._unknown(_said(error, self._path(name)))
            del children[name]  # it is no directory any more, which its parent's change time tells as well
            frame.node.racy = True

    def _visit(self, root: Root, name: str, node: _Directory, info: os.stat_result, parent: int) -> None:
        """See one directory: itself, then the protected files in it; what is below is left to do."""
        self._budget.spend("directories")
        self._directories += 1
        same = (node.device, node.inode, node.changed_ns) == (info.st_dev, info.st_ino, info.st_ctime_ns)
        if any(node.names):
            self._note(self._path(name), Seen(node.names, *_facts(info), racy=False, digest=b""))
        if same and not node.racy and not node.children and not node.files:
            return
        if walker.is_closed(info):
            if self._before is None:
                self._unknown(f"a directory is closed to its owner: {_shown(self._path(name))}")
                return
            walker.open_up(name or ".", parent)  # the call closed it: what it has in there must be seen all the same
        try:
            fd = os.open(name or ".", walker.LIST if node.racy or not same else walker.PATH, dir_fd=parent)
        except PermissionError as error:
            self._look.closed.add((info.st_dev, info.st_ino))
            if not name or (self._before is not None and (info.st_dev, info.st_ino) not in self._before.closed):
                self._unknown(_said(error, self._path(name)))
            return
        frame = _Frame(name, node, fd, [])
        self._frames.append(frame)
        info = os.fstat(fd)
        if node.racy or (node.device, node.inode, node.changed_ns) != (info.st_dev, info.st_ino, info.st_ctime_ns):
            self._list(frame, info)
        self._see_files(frame)
        frame.todo = list(node.children or ())
        self._spare_descriptors()

    def _list(self, frame: _Frame, info: os.stat_result) -> None:
        node = frame.node
        racy = _is_racy(info)
        node.changed_ns = -1  # until it is listed to its end
        old, prefix = node.children or {}, ""
        children: dict[str, _Directory] = {}
        files: dict[str, tuple[Names, Seen | None]] = {}
        inherits = node.names != self._words.nothing
        with os.scandir(frame.fd) as scan:
            for each in scan:
                self._budget.entry()
                if self._wanted and each.inode() in self._wanted:
                    self.elsewhere[each.inode()] = self._path_in(each.name)
                directory = each.is_dir(follow_symlinks=False)
                link = not directory and each.is_symlink()
                names = self._words.nothing
                if inherits or link or self._words.may_matter(each.name):
                    prefix = prefix or self._path_in("")
                    kind = "directory" if directory else "link" if link else "other"
                    names = self._words.names_of(node.names, prefix + each.name, each.name, kind)
                if directory:
                    child = old.get(each.name)
                    children[each.name] = child if child is not None and child.names == names else _Directory(names)
                elif any(names):
                    files[each.name] = names, None
        if node.files:
            files = {name: (names, node.files.get(name, (names, None))[1]) for name, (names, _) in files.items()}
        node.children, node.files = children or None, files or None
        node.device, node.inode, node.changed_ns, node.racy = info.st_dev, info.st_ino, info.st_ctime_ns, racy

    def _see_files(self, frame: _Frame) -> None:
        files = frame.node.files or {}
        for name, (names, known) in files.items():
            try:
                seen = self._seen(name, frame.fd, names, known)
            except FileNotFoundError:
                continue
            files[name] = names, seen
            self._note(self._path_in(name), seen)

    def _seen(self, name: str, parent: int, names: Names, known: Seen | None) -> Seen:
        info = os.stat(name, dir_fd=parent, follow_symlinks=False)
        facts = _facts(info)
        if known is not None and not known.racy and facts == (
            known.device, known.inode, known.mode, known.size, known.changed_ns
        ):  # fmt: skip
            return known
        racy, digest = _is_racy(info), b""
        if (racy or info.st_size <= DIGEST_BYTES) and self._budget.may_read(info):
            digest = _digest(name, parent, info)
        if racy and not digest:
            self._look.doubt = (
                f"a file is so fresh, and too large or closed, that a change may not show: {_shown(name)}"
            )
        return Seen(names, *facts, racy=racy, digest=digest)

    def _note(self, path: str, seen: Seen) -> None:
        self._budget.spend("bytes of paths", len(path))
        if self._met is None:
            self._look.found[path] = seen
        else:
            self._met(path, seen)

    def _path(self, name: str) -> str:
        return "/".join([*(frame.name for frame in self._frames[1:]), name]) if self._frames else name

    def _path_in(self, name: str) -> str:
        """A path in the directory that is looked at now."""
        return self._path(name)

    def _unknown(self, why: str) -> None:
        self._look.unknown = self._look.unknown or why

    def _opened(self, root: Root, frame: _Frame) -> int:
        if frame.fd < 0:
            frame.fd = root.open("/".join(each.name for each in self._frames[1:]), walker.PATH)
            info = os.fstat(frame.fd)
            if (info.st_dev, info.st_ino) != (frame.node.device, frame.node.inode):
                raise OSError(errno.ESTALE, "it was moved while it was looked at")
        return frame.fd

    def _spare_descriptors(self) -> None:
        if len(self._frames) > MAX_OPEN:
            spare = self._frames[-MAX_OPEN]
            if spare.fd >= 0:
                os.close(spare.fd)
                spare.fd = -1


class _Moved:
    """What an audit moves out of a tree, and what it could not move."""

    def __init__(self, tree: ProtectedTree, quarantine: Quarantine) -> None:
        self.findings: dict[str, Finding] = {}
        self.stuck = self.unknown = ""
        self._tree = tree
        self._quarantine = quarantine
        self._copies = Copies()
        self._root = Root(tree.root)

    @contextmanager
    def root(self) -> Iterator[Root]:
        """Hold the root open. Where that cannot be, nothing is moved, and `unknown` says why."""
        try:
            self._root.__enter__()
        except OSError as error:
            self.unknown = _said(error)
            yield self._root
            return
        try:
            yield self._root
        finally:
            os.close(self._root.fd)
            self._root.fd = -1

    def take(self, path: str, seen: Seen, what: str) -> None:
        """Move it to quarantine."""
        whole = os.path.join(self._tree.root, path)
        if self.unknown:
            return
        try:
            place = self._quarantine.take(self._root, path, (seen.device, seen.inode), self._copies)
            if not place:
                return
        except OSError as error:
            place = ""
            self.stuck = f"{_shown(path)} could not be moved: {error.strerror}"
        self.findings[path] = Finding(whole, seen.name, what, place, seen.names)

    def put_back(self, at: str, home: str, was: Seen) -> Seen | None:
        """Move it to where it was, unless something is there. What it is then, if it is what it was; else None."""
        try:
            return self._put_back(at, home, was)
        except OSError:  # its home is below it now, there is a file in the way, or somebody swaps it meanwhile
            return None

    def _put_back(self, at: str, home: str, was: Seen) -> Seen | None:
        source, target = self._root.parent(at), -1
        held = -1
        try:
            held = walker.entry(os.path.basename(at), source)
            if not _is_as(os.fstat(held), was):
                return None
            target = self._root.parent(home, make=True, owned=True)
            walker.move(os.path.basename(at), source, os.path.basename(home), target)
            now = self._root.stat(home)
            if (now.st_dev, now.st_ino) != (was.device, was.inode):
                return None
            info = os.fstat(held)
            if not stat.S_ISDIR(info.st_mode):
                digest = _digest(os.path.basename(home), target, info)
                if digest != was.digest or os.fstat(held).st_ctime_ns != info.st_ctime_ns:
                    return None
            return Seen(was.names, *_facts(info), racy=True, digest=was.digest)
        finally:
            for fd in (source, target, held):
                if fd >= 0:
                    os.close(fd)


class _Audit:
    """The looks after a call, until nothing is left to move."""

    def __init__(self, tree: ProtectedTree, before: Look, quarantine: Quarantine, active: Collection[int]) -> None:
        self._tree = tree
        self._before = before
        self._active = tuple(active)
        self._moved = _Moved(tree, quarantine)
        self._end = time.monotonic() + AFTER_S
        self._left: set[str] = set()  # what could not be put back, or moved

    def settled(self) -> Settled:
        unknown = self._before.doubt
        for _ in range(ROUNDS):
            walk = _Walk(self._tree, Budget(seconds=self._end - time.monotonic()), self._before)
            look = walk.taken()
            if look.root != self._before.root:
                return Settled((), "it was moved away or replaced while the call ran", replaced=True)
            unknown = look.unknown or self._before.doubt
            wrong = {path: seen for path, seen in look.found.items() if self._is_wrong(path, seen)}
            back = self._moved_away(look, walk.elsewhere)
            if not wrong and not back:
                break
            with self._moved.root():
                if not self._move(wrong, back):
                    unknown = f"moving what was made took more than {AFTER_S:g} s"
                    break
        else:
            unknown = unknown or "its protected names keep changing, whatever is done about it"
        findings = tuple(self._moved.findings.values())
        return Settled(findings, unknown or self._moved.unknown, self._moved.stuck)

    def _move(self, wrong: Found, back: dict[str, str]) -> bool:
        """Whether it was done in time."""
        for path, seen in wrong.items():
            if time.monotonic() > self._end:
                return False
            if os.path.dirname(path) not in wrong and path not in back.values():
                self._moved.take(path, seen, "changed" if path in self._before.found else "made")
                found = self._moved.findings.get(path)
                if found is not None and not found.place:
                    self._left.add(path)
        for home, at in back.items():
            was = self._before.found[home]
            now = self._moved.put_back(at, home, was)
            if now is None:
                self._left.add(f"{home}\0")  # not tried again; what is at its place is looked at as anything else
                continue
            self._before.found[home] = now
            whole = os.path.join(self._tree.root, home)
            self._moved.findings.setdefault(home, Finding(whole, was.name, "moved", whole, was.names))
        return True

    def _is_wrong(self, path: str, seen: Seen) -> bool:
        if path in self._left or not _protect(seen.names, self._active):
            return False
        before = self._before
        was = before.found.get(path)
        if was is not None:
            return not _as_before(seen, was)
        if not before.unknown and _protect(seen.names[: before.vocabularies], self._active):
            return True
        # The look before has not looked for it, or not there: then its change time tells.
        return seen.changed_ns >= before.since_ns

    def _moved_away(self, look: Look, elsewhere: dict[int, str]) -> dict[str, str]:
        """What is no longer at its place but elsewhere in this tree, unchanged: its place, and where it is."""
        before = self._before.found
        lost = {
            path: seen
            for path, seen in before.items()
            if os.path.dirname(path) not in before
            and f"{path}\0" not in self._left
            and not _is_same_inode(seen, look.found.get(path))
        }
        if not lost:
            return {}
        at = elsewhere | {seen.inode: path for path, seen in look.found.items() if path not in before}
        back: dict[str, str] = {}
        with self._moved.root() as root:
            for path, seen in lost.items():
                place = at.get(seen.inode)
                if place is None or self._moved.unknown or _is_same_inode(seen, before.get(place)):
                    continue  # it is nowhere, or another link to it was there before
                if _is_at(root, place, seen):
                    back[path] = place
        return back


class ProtectedTrees:
    """The writable roots of one profile, each a tree of its own."""

    def __init__(self, writable: Iterable[str], names: Iterable[str]) -> None:
        roots = list(dict.fromkeys(os.path.realpath(path) for path in writable))
        names = tuple(names)
        self._trees = [ProtectedTree(root, names, apart=roots) for root in roots] if names else []

    def look(self) -> tuple[Look, ...]:
        """See `ProtectedTree.look`."""
        return tuple(tree.look() for tree in self._trees)

    def bound(self, looks: tuple[Look, ...]) -> tuple[Bound, ...]:
        """See `ProtectedTree.bound`."""
        return tuple(bound for tree, look in zip(self._trees, looks, strict=True) for bound in tree.bound(look))

    def settle(self, before: tuple[Look, ...], quarantine: Quarantine) -> Settled:
        """See `ProtectedTree.settle`."""
        return together(tree.settle(was, quarantine) for tree, was in zip(self._trees, before, strict=True))


def together(settled: Iterable[Settled]) -> Settled:
    """What several audits have done."""
    all_of = list(settled)
    return Settled(
        tuple(finding for each in all_of for finding in each.findings),
        next((each.unknown for each in all_of if each.unknown), ""),
        next((each.stuck for each in all_of if each.stuck), ""),
    )


# -- what protected names lead to --------------------------------------------------------------------------------------


class _Targets:
    """What protected links point to, and the repositories that `.git` files name, where they are in the tree.

    After a call, only of those that it found: what it made points where it likes.
    """

    def __init__(self, tree: ProtectedTree, root: Root, look: Look, before: Look | None, budget: Budget) -> None:
        self._prefix = tree.root.rstrip("/") + "/"
        self._root, self._look, self._before, self._budget = root, look, before, budget

    def add(self) -> None:
        """Add them to what was found."""
        targets: dict[str, Names] = {}
        for path, seen in self._look.found.items():
            if self._before is not None and not _was_there(path, seen, self._before.found):
                continue
            if stat.S_ISLNK(seen.mode):
                targets[os.path.realpath(self._prefix + path)] = seen.names
            elif GIT_POINTER in seen.names and stat.S_ISREG(seen.mode):
                for repository in _repositories(self._root, path, self._prefix):
                    for part in _OF_A_REPOSITORY:
                        owner = (f"{GIT_POINTER}/{part}" if name == GIT_POINTER else "" for name in seen.names)
                        targets[f"{repository}/{part}"] = tuple(owner)
        for target, names in targets.items():
            if target.startswith(self._prefix):
                self._add_all(target[len(self._prefix) :], names)

    def _add_all(self, path: str, names: Names) -> None:
        todo = [path]
        while todo:
            each = todo.pop()
            try:
                todo += [f"{each}/{name}" for name in self._add_one(each, names)]
            except (FileNotFoundError, NotADirectoryError):
                pass  # a link may lead nowhere
            except OSError as error:
                self._look.unknown = self._look.unknown or _said(error, each)

    def _add_one(self, path: str, names: Names) -> list[str]:
        """The names that are in it, where it is a directory."""
        self._budget.entry()
        parent, name = self._root.parent(path), os.path.basename(path)
        try:
            info = os.stat(name, dir_fd=parent, follow_symlinks=False)
            directory = stat.S_ISDIR(info.st_mode)
            racy = not directory and _is_racy(info)
            digest = _digest(name, parent, info) if racy and self._budget.may_read(info) else b""
            self._look.found.setdefault(path, Seen(names, *_facts(info), racy=racy, digest=digest))
            return _names_in(name, parent) if directory else []
        finally:
            os.close(parent)


def _was_there(path: str, seen: Seen, before: Found) -> bool:
    was = before.get(path)
    return was is not None and _as_before(seen, was)


def _names_in(name: str, parent: int) -> list[str]:
    fd = os.open(name, walker.LIST, dir_fd=parent)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def _repositories(root: Root, pointer: str, prefix: str) -> list[str]:
    """Where a `.git` file leads: its repository, and the one that that shares (gitrepository-layout(5))."""
    said = _first_bytes(root, pointer)
    if not said.startswith(b"gitdir:"):
        return []
    own = os.path.realpath(os.path.join(os.path.dirname(prefix + pointer), _path_of(said[7:])))
    try:
        with Root(own) as repository:
            common = _path_of(_first_bytes(repository, "commondir"))
    except OSError:
        return [own]
    return [own, os.path.realpath(os.path.join(own, common))] if common else [own]


def _path_of(said: bytes) -> str:
    """A path as git reads it from a file: up to a NUL, as C strings go."""
    return os.fsdecode(said.partition(b"\0")[0].strip())


def _first_bytes(root: Root, path: str) -> bytes:
    try:
        held = root.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""  # gone, unreadable, or something that git would not read either
    try:
        return walker.content(held, _POINTER_BYTES)
    except OSError:
        return b""
    finally:
        os.close(held)


# -- facts of one path -------------------------------------------------------------------------------------------------


def _facts(info: os.stat_result) -> tuple[int, int, int, int, int]:
    return info.st_dev, info.st_ino, info.st_mode, info.st_size, info.st_ctime_ns


def _tick(changed_ns: int) -> int:
    """How old a change time must be to prove anything: it may be one of a file system that keeps whole seconds."""
    return RACY_NS if changed_ns % 1_000_000_000 else COARSE_NS


def _is_racy(info: os.stat_result) -> bool:
    """Whether another change may leave the change time as it is."""
    return info.st_ctime_ns > time.time_ns() - _tick(info.st_ctime_ns)


def _digest(name: str, parent: int, info: os.stat_result) -> bytes:
    """Of a file's content or a link's target, of anything else its kind; b"" where it is gone or closed to us."""
    try:
        held = walker.entry(name, parent)
    except OSError:
        return b""
    try:
        if stat.S_ISREG(info.st_mode):
            raw = walker.content(held, info.st_size + 1)
        elif stat.S_ISLNK(info.st_mode):
            raw = walker.target(held)
        else:
            raw = b"%d" % info.st_mode
    except OSError:
        return b""
    finally:
        os.close(held)
    return hashlib.blake2b(raw, digest_size=16).digest()


def _protect(names: Names, active: Collection[int]) -> bool:
    """Whether one of the active vocabularies has a name for it."""
    return any(names[index] for index in active if index < len(names))


def _is_same_inode(seen: Seen, other: Seen | None) -> bool:
    return other is not None and (seen.device, seen.inode) == (other.device, other.inode)


def _as_before(seen: Seen, was: Seen) -> bool:
    """Whether nothing has happened to it. Of a directory, what is in it counts by itself."""
    if not _is_same_inode(seen, was):
        return False
    if stat.S_ISDIR(seen.mode) and stat.S_ISDIR(was.mode):
        return True
    facts = seen.mode, seen.size, seen.changed_ns
    return facts == (was.mode, was.size, was.changed_ns) and (not was.racy or seen.digest == was.digest)


def _is_as(info: os.stat_result, was: Seen) -> bool:
    """Whether this is what it was, as far as its inode tells; of a directory, whether it is the same one."""
    if (info.st_dev, info.st_ino) != (was.device, was.inode):
        return False
    return stat.S_ISDIR(info.st_mode) or _facts(info) == (was.device, was.inode, was.mode, was.size, was.changed_ns)


def _is_at(root: Root, path: str, was: Seen) -> bool:
    try:
        return _is_as(root.stat(path), was)
    except OSError:
        return False


def _said(error: OSError, path: str = "") -> str:
    where = f": {_shown(path)}" if path else ""
    return f"{error.strerror or 'it cannot be read'}{where}"


def _shown(path: str) -> str:
    return ascii(path if len(path) <= 200 else f"{path[:100]}…{path[-100:]}")
