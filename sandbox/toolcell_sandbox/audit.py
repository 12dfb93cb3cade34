"""The audit of a writable tree: which protected names are there, and what a call made of them.

No mount can protect a name that is not there without leaving a file of its own behind. So whoever makes cells looks
before a call and after it, from outside of the sandbox, and what is new or changed goes into quarantine: nothing is
deleted, because it might be somebody else's edit at that very moment.

A look costs one lstat for each directory. Those whose inode and change time are as they were are not listed again; a
change time that was fresh when they were listed proves nothing, as in git's index (racy-git in git's documentation).
"""

import errno
import os
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from .errors import SandboxError
from .kernel.birth import born_ns
from .profile import is_below
from .protected import GIT_POINTER, matcher
from .quarantine import Quarantine, Tree
from .view import Bound

MAX_DIRECTORIES = 200_000
MAX_ENTRIES = 2_000_000
MAX_BOUND, MAX_BOUND_BYTES = 512, 64 * 1024
"""Mounts that a cell gets for the protected names of a root, and the length of their paths in sum: those nearest to the
root first. The audit holds the others alone."""
RACY_NS = 20_000_000  # the kernel's coarse clock ticks every 1 to 10 ms
ROUNDS = 5  # looks after a call, until nothing is left to move
_POINTER_BYTES = 4096
_OF_A_REPOSITORY = ("hooks", "config", "config.worktree", "commondir")


@dataclass(frozen=True, slots=True)
class Seen:
    """What was at a protected path: the name that protects it, and lstat's facts."""

    name: str
    device: int
    inode: int
    mode: int
    changed_ns: int


Found = dict[str, Seen]
"""Every protected path of a tree, relative to its root, with all that is below a protected directory."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A protected path that a call made, changed or moved away, and where it is now.

    `path` is absolute; `place` is its place in the quarantine, or again `path` where it was put back.
    """

    path: str
    name: str
    what: str  # "made", "changed" or "moved"
    place: str


@dataclass(slots=True)
class _Directory:
    name: str  # what protects it and all below it
    device: int
    inode: int
    changed_ns: int
    racy: bool
    directories: list[str] = field(default_factory=list[str])
    protected: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])  # path and name, directories aside
    entries: int = 0


class ProtectedTree:
    """One writable root. `apart` are roots below it, which are trees of their own: naming one lifts the names above it.

    Not for use by two threads at a time.
    """

    def __init__(self, root: str, names: Iterable[str], apart: Iterable[str] = ()) -> None:
        self.root = root
        self.names = tuple(names)
        self._matcher = matcher(self.names)
        self._prefix = root.rstrip("/") + "/"
        self._apart = frozenset(path[len(self._prefix) :] for path in apart if path != root and is_below(path, [root]))
        self._cache: dict[str, _Directory] = {}  # as of the last look
        self._listing: dict[str, _Directory] = {}  # as of the one that is under way
        self._leading: dict[str, tuple[str, ...]] = {}  # of the paths that were bound last
        self._met: dict[int, str] = {}  # inodes that were asked for, and where they turned up

    def __repr__(self) -> str:
        return f"<ProtectedTree {self.root} · {self.directories} directories · {len(self.names)} names>"

    @property
    def directories(self) -> int:
        """How many there were at the last look."""
        return len(self._cache)

    def refresh(self) -> Found:
        """Look. SandboxError where the tree is larger or deeper than can be looked at."""
        return self._refresh(None)

    def bound(self, found: Found) -> tuple[Bound, ...]:
        """What of that the kernel can hold: files, directories, and pins for the directories that names begin with."""
        tops = [path for path in found if os.path.dirname(path) not in found]
        tops = [path for path in tops if stat.S_IFMT(found[path].mode) in (stat.S_IFREG, stat.S_IFDIR)]
        wanted: dict[str, Bound] = {}
        leading: dict[str, tuple[str, ...]] = {}
        size = 0
        for path in sorted(tops, key=lambda each: (each.count("/"), each)):
            seen = found[path]
            leading[path] = self._leading.get(path) or self._matcher.leading(path, directory=stat.S_ISDIR(seen.mode))
            size += (len(self._prefix) + len(path)) * (1 + len(leading[path]))
            if len(wanted) + len(leading[path]) >= MAX_BOUND or size > MAX_BOUND_BYTES:
                break
            for above in leading[path]:
                known = self._cache.get(above)
                if known is not None:
                    whole = self._prefix + above
                    wanted.setdefault(above, Bound(whole, True, (known.device, known.inode), born_ns(whole)))
            whole = self._prefix + path
            wanted[path] = Bound(whole, False, (seen.device, seen.inode), born_ns(whole))
        self._leading = leading
        return tuple(wanted.values())

    def settle(self, before: Found, quarantine: Quarantine) -> list[Finding]:
        """Look again, and move to quarantine what is new or changed since `before`; put back what was moved away.

        Its new change time is entered into `before`. SandboxError where all that cannot be done: the tree has grown too
        large, or somebody keeps changing it.
        """
        done: dict[str, Finding] = {}
        stuck: set[str] = set()
        for _ in range(ROUNDS):
            found = self._refresh(before)
            wrong = {path: seen for path, seen in found.items() if not _as_before(seen, before.get(path))}
            back = {path: at for path, at in self._moved_away(before, found).items() if path not in stuck}
            if not wrong and not back:
                return list(done.values())
            with Tree(self.root) as tree:
                for path, seen in wrong.items():
                    if os.path.dirname(path) not in wrong and path not in back.values():
                        place = quarantine.take(tree, path)
                        what = "changed" if path in before else "made"
                        done[path] = Finding(self._prefix + path, seen.name, what, place)
                for path, elsewhere in back.items():
                    if tree.put_back(elsewhere, path):
                        home = self._prefix + path
                        before[path] = self._look_at(path, before[path].name) or before[path]
                        done.setdefault(path, Finding(home, before[path].name, "moved", home))
                    else:
                        stuck.add(path)
        raise SandboxError(
            f"Protected names in {self.root} keep changing, whatever is done about it",
            step="audit",
            mechanism="protected_names",
            cure="End the processes that write there.",
        )

    def _moved_away(self, before: Found, found: Found) -> dict[str, str]:
        """What is no longer at its place but elsewhere in this tree, unchanged: its place, and where it is."""
        lost = {
            path: seen
            for path, seen in before.items()
            if os.path.dirname(path) not in before and not _is_same_inode(seen, found.get(path))
        }
        if not lost:
            return {}
        at = self._met | {seen.inode: path for path, seen in found.items() if path not in before}
        back: dict[str, str] = {}
        for path, seen in lost.items():
            elsewhere = at.get(seen.inode)
            if elsewhere is not None and elsewhere != path:
                now = self._look_at(elsewhere, seen.name)
                if now is not None and _as_before(now, seen):
                    back[path] = elsewhere
        return back

    # -- looking ------------------------------------------------------------------------------------------------------

    def _refresh(self, before: Found | None) -> Found:
        """Look; after a call, with what was there before it, on whose inodes to keep an eye."""
        wanted = frozenset(seen.inode for seen in before.values()) if before is not None else frozenset[int]()
        old = self._cache
        new = self._listing = dict[str, _Directory]()
        found: Found = {}
        self._met = {}
        entries, device = 0, -1
        todo = [""]
        while todo:
            path = todo.pop()
            try:
                info = os.lstat(self._prefix + path if path else self.root)
            except OSError as error:
                if error.errno == errno.ENOENT or (error.errno in (errno.ENOTDIR, errno.EACCES) and path):
                    continue  # it has gone, or is behind a directory that nobody here can read
                raise self._unreachable(error) from error
            if device < 0:
                device = info.st_dev
            if info.st_dev != device or not stat.S_ISDIR(info.st_mode):
                continue
            known = old.get(path)
            if (
                known is None
                or known.changed_ns != info.st_ctime_ns
                or known.inode != info.st_ino
                or known.device != device
                or known.racy
            ):
                known = self._list(path, info, wanted, repair=before is not None)
            if known.name:
                found[path] = Seen(known.name, info.st_dev, info.st_ino, info.st_mode, info.st_ctime_ns)
            new[path] = known
            entries += known.entries
            if len(new) > MAX_DIRECTORIES or entries > MAX_ENTRIES:
                raise self._too_large()
            todo += known.directories
            for inner, inner_name in known.protected:
                seen = self._look_at(inner, inner_name)
                if seen is not None:
                    found[inner] = seen
        self._cache = new
        self._add_targets(found, before)
        return found

    def _name(self, path: str, name: str, *, directory: bool) -> str:
        """The name that protects a path, of which `name` is the last component."""
        return self._matcher.name_of(path, directory=directory) if self._matcher.may_end_in(name) else ""

    def _list(self, path: str, info: os.stat_result, wanted: frozenset[int], *, repair: bool) -> _Directory:
        """List a directory. `info` is its lstat; `repair` says that it is made readable if it is not."""
        racy = info.st_ctime_ns > time.time_ns() - RACY_NS
        above, _, own = path.rpartition("/")
        listing = self._listing.get(above)
        name = (listing.name if listing is not None else "") or (path and self._name(path, own, directory=True))
        listed = _Directory(name, info.st_dev, info.st_ino, info.st_ctime_ns, racy)
        try:
            fd = self._open(path, info if repair else None)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG or not path:
                raise self._unreachable(error) from error
            return listed  # gone, or not ours to read, and so not the cell's
        prefix = path + "/" if path else ""
        try:
            with os.scandir(fd) as scan:
                for entry in scan:
                    listed.entries += 1
                    if listed.entries > MAX_ENTRIES:
                        raise self._too_large()
                    inner = prefix + entry.name
                    if wanted and entry.inode() in wanted:
                        self._met[entry.inode()] = inner
                    if entry.is_dir(follow_symlinks=False):
                        if inner not in self._apart:
                            listed.directories.append(inner)
                        continue
                    inner_name = name or (
                        self._matcher.name_of_link(inner)
                        if entry.is_symlink()
                        else self._name(inner, entry.name, directory=False)
                    )
                    if inner_name:
                        listed.protected.append((inner, inner_name))
        finally:
            os.close(fd)
        return listed

    def _open(self, path: str, repair: os.stat_result | None) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(self._prefix + path, flags)
        except PermissionError:
            if repair is None or repair.st_uid != os.geteuid():
                raise
        # The call closed its own directory; what it has in there must be seen all the same.
        at = os.open(self._prefix + path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.chmod(f"/proc/self/fd/{at}", stat.S_IMODE(repair.st_mode) | 0o700)
            return os.open(f"/proc/self/fd/{at}", flags & ~os.O_NOFOLLOW)
        finally:
            os.close(at)

    def _look_at(self, path: str, name: str) -> Seen | None:
        try:
            info = os.lstat(self._prefix + path)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise self._unreachable(error) from error
            return None
        return Seen(name, info.st_dev, info.st_ino, info.st_mode, info.st_ctime_ns)

    # -- what protected names lead to ----------------------------------------------------------------------------------

    def _add_targets(self, found: Found, before: Found | None) -> None:
        """Add what a protected link points to, and the repository that a `.git` file names, where they are in here.

        After a call, only of those that it found: what it made points where it likes.
        """
        targets: dict[str, str] = {}
        for path, seen in found.items():
            if before is not None and not _as_before(seen, before.get(path)):
                continue
            if stat.S_ISLNK(seen.mode):
                targets[os.path.realpath(self._prefix + path)] = seen.name
            elif seen.name == GIT_POINTER and stat.S_ISREG(seen.mode):
                for repository in self._repositories(self._prefix + path):
                    targets |= {f"{repository}/{part}": f"{GIT_POINTER}/{part}" for part in _OF_A_REPOSITORY}
        for target, name in targets.items():
            if target.startswith(self._prefix):
                self._add_all(target[len(self._prefix) :], name, found)

    def _add_all(self, path: str, name: str, found: Found) -> None:
        todo = [path]
        while todo:
            each = todo.pop()
            seen = self._look_at(each, name)
            if seen is None:
                continue
            found.setdefault(each, seen)
            known = self._cache.get(each)
            if known is not None:
                todo += known.directories
                if stat.S_ISDIR(seen.mode):
                    todo += [f"{each}/{inner}" for inner in _names_in(self._prefix + each)]

    def _repositories(self, pointer: str) -> list[str]:
        """Where a `.git` file leads: its repository, and the one that that shares (gitrepository-layout(5))."""
        said = _first_bytes(pointer)
        if not said.startswith(b"gitdir:"):
            return []
        own = os.path.realpath(os.path.join(os.path.dirname(pointer), _path_of(said[7:])))
        common = _path_of(_first_bytes(f"{own}/commondir"))
        return [own, os.path.realpath(os.path.join(own, common))] if common else [own]

    def _too_large(self) -> SandboxError:
        return SandboxError(
            f"The workspace is too large to be looked at for protected names: {self.root} has more than "
            f"{MAX_DIRECTORIES:,} directories or {MAX_ENTRIES:,} entries",
            step="audit",
            mechanism="protected_names",
            cure="Use a smaller directory as the workspace, or lift the names: profile.replace(protected=()).",
        )

    def _unreachable(self, error: OSError) -> SandboxError:
        return SandboxError(
            f"The workspace cannot be looked at for protected names: {self.root}",
            step="audit",
            mechanism="protected_names",
            errno=error.errno or 0,
            cure="Remove what is nested too deeply in it, make it readable, or lift the names.",
        )


class ProtectedTrees:
    """The writable roots of a profile, each a tree of its own."""

    def __init__(self, writable: Iterable[str], names: Iterable[str]) -> None:
        roots = list(dict.fromkeys(os.path.realpath(path) for path in writable))
        names = tuple(names)
        self._trees = [ProtectedTree(root, names, apart=roots) for root in roots] if names else []

    @property
    def directories(self) -> int:
        """How many there were at the last look, in all."""
        return sum(tree.directories for tree in self._trees)

    def refresh(self) -> tuple[Found, ...]:
        """See `ProtectedTree.refresh`."""
        return tuple(tree.refresh() for tree in self._trees)

    def bound(self, found: tuple[Found, ...]) -> tuple[Bound, ...]:
        """See `ProtectedTree.bound`."""
        return tuple(bound for tree, each in zip(self._trees, found, strict=True) for bound in tree.bound(each))

    def settle(self, before: tuple[Found, ...], quarantine: Quarantine) -> list[Finding]:
        """See `ProtectedTree.settle`."""
        return [each for tree, was in zip(self._trees, before, strict=True) for each in tree.settle(was, quarantine)]


def _is_same_inode(seen: Seen, other: Seen | None) -> bool:
    return other is not None and (seen.device, seen.inode) == (other.device, other.inode)


def _as_before(seen: Seen, before: Seen | None) -> bool:
    """Whether nothing has happened to it. Of a directory, what is in it counts by itself."""
    if before is None or not _is_same_inode(seen, before):
        return False
    return stat.S_ISDIR(seen.mode) or seen.changed_ns == before.changed_ns


def _names_in(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as scan:
            return [entry.name for entry in scan if not entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []  # it has gone, or cannot be read


def _path_of(said: bytes) -> str:
    """A path as git reads it from a file: up to a NUL, as C strings go."""
    return os.fsdecode(said.partition(b"\0")[0].strip())


def _first_bytes(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""  # gone, unreadable, or something that git would not read either
    try:
        return os.read(fd, _POINTER_BYTES) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)
