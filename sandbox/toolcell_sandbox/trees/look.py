"""One look at a hostile tree: the one walk that the audit, the list of changed files and sent workspaces share.

The walk visits every directory below a root, depth first, by descriptors, within the bounds of a budget. It costs one
stat(2) for each directory: a directory whose inode and change time are the same is not listed again. A change time that
was fresh at the last listing proves nothing, as in git's index (gitracy in git's documentation). From each listing it
takes the protected names and the repositories, for the audit, and hands every entry to an `Audience`, which may want
the other files. An audience can ask for more listings, never for fewer, and what goes wrong in it never ends the walk
of an audit. What the walk could not see is unknown, never absent: `Look.unknown` says why.
"""

import errno
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass

from . import walker
from .facts import (
    DIGEST_BYTES,
    Look,
    Names,
    Seen,
    digest_of,
    doubt_about,
    facts_of,
    is_racy,
    said,
    shown,
)
from .protected import (
    ANCHORED_PARTS,
    GIT_DIRECTORIES,
    GIT_ODD,
    GIT_PARTS,
    GIT_POINTER,
    REPOSITORY_MARKS,
    Matcher,
    folded,
    is_git_directory,
    is_repository,
    quick,
)
from .targets import Targets
from .walker import Budget, Cut, Root

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from typing import Any

MAX_OPEN = 24  # open descriptors of one look
MAX_PATH_CHARS = 64 * 1024  # sixteen times PATH_MAX


@dataclass(slots=True)
class Directory:
    names: Names = ()
    device: int = -1
    inode: int = -1
    changed_ns: int = -1
    racy: bool = True
    repository: bool = False  # git would use it as one
    complete: bool = False  # it has the content of a repository, not only the name
    work_tree: bool = False  # the root of a repository's work tree
    of_git: bool = False  # git's own directory, or below one
    children: "dict[str, Directory] | None" = None
    files: "dict[str, tuple[Names, Seen | None]] | None" = None  # protected files, with their facts at the last look


@dataclass(slots=True)
class _Frame:
    name: str
    node: Directory
    fd: int  # -1 if it was closed; it is opened again when needed
    todo: list[str]
    depth: int  # components of its path
    starts: tuple[int, ...]  # see `Matcher`: the starts that count for names in it
    place: "Any" = None  # what `Audience.visit` has returned for it


@dataclass(frozen=True, slots=True)
class Vocabulary:
    matcher: Matcher
    apart: frozenset[str]

    def name_of(self, above: str | None, path: str, name: str, kind: str, starts: tuple[int, ...]) -> str | None:
        """The name that protects a path, where the name `above` protects its directory; see `Names`."""
        if above is None or (kind == "directory" and path in self.apart):
            return None
        if above:
            return above
        if kind == "link":
            return self.matcher.name_of_link(path, starts)
        if not self.matcher.may_end_in(name):
            return ""
        return self.matcher.name_of(path, directory=kind == "directory", starts=starts)


@dataclass(frozen=True, slots=True)
class Vocabularies:
    """The vocabularies of a tree. A walk uses those that were there at its start."""

    all_of: tuple[Vocabulary, ...] = ()

    @property
    def nothing(self) -> Names:
        """The names of an unprotected path."""
        return ("",) * len(self.all_of)

    def may_matter(self, name: str) -> bool:
        """Whether a path that ends in this component may be protected by a name of its own. Fast, for walks."""
        return any(each.apart or each.matcher.may_end_in(name) for each in self.all_of)

    @property
    def odd(self) -> Names:
        """The names of an entry of a git directory that is neither a regular file nor a directory."""
        return tuple(GIT_ODD if each.matcher.has_pointer else "" for each in self.all_of)

    def names_of(self, above: Names, path: str, name: str, kind: str, starts: tuple[int, ...]) -> Names:
        """The names of a path with the last component `name`. `kind` is "directory", "link", "file" or "other"."""
        return tuple(each.name_of(own, path, name, kind, starts) for each, own in zip(self.all_of, above, strict=True))


class Audience:
    """Hears of every directory that a walk meets, and of every entry of those that it lists.

    A place is what `visit` returns for a directory. An audience hears no more of a directory without one, nor of what
    is below.
    """

    spent_s = 0.0
    """The seconds that walks have spent on it. A walk for somebody else takes this much longer, and misses nothing."""

    def begin(self) -> None:
        """The walk begins."""

    def visit(self, above: "Any", name: str, info: os.stat_result) -> "Any":
        """The place of a directory below the place `above`, which is None for the root; None to hear no more of it."""
        raise NotImplementedError

    def wants(self, place: "Any") -> str:
        """Why an unchanged directory must be opened: to "list" it, or only because some of its entries are "named" in
        events; "" if it need not be."""
        return "list"

    def opened(self, place: "Any", fd: int) -> None:
        """A directory is open, and will be listed."""

    def entry(self, place: "Any", each: "os.DirEntry[str]") -> bool:
        """An entry of the open directory. Returns whether the walk takes notice of it."""
        raise NotImplementedError

    def listed(self, place: "Any") -> None:
        """All entries of the directory were heard of."""

    def named(self, place: "Any", fd: int) -> None:
        """An unchanged directory is open because `wants` said so, or because the walk looks at files in it."""

    def missed(self, place: "Any", path: str, error: OSError) -> None:
        """A directory could not be looked at."""

    def cut(self, error: Cut | OSError) -> None:
        """The walk ended early."""


class Walk:
    """One look at a tree. With `before`, it is a look after a call, which gives itself access to closed directories.
    Where it meets paths of `before`, or of `held` (the look before the calls that run now), is added to that look.

    `top` is the cache of the tree, which the walk updates; without it, nothing is cached. `met` gets each found path in
    place of the look. `audience` hears of all entries; if the walk `lends`, the audience's time is not the budget's.
    """

    def __init__(
        self,
        root: str,
        vocabularies: Vocabularies,
        top: Directory | None,
        budget: Budget,
        before: Look | None,
        met: Callable[[str, Seen], None] | None = None,
        held: Look | None = None,
        audience: Audience | None = None,
        lends: bool = True,
    ) -> None:
        self._root = root
        self._budget = budget
        self._before = before
        self._words = vocabularies
        self._keep = top is not None
        self._top = top or Directory()
        self._look = Look(time.time_ns(), len(self._words.all_of))
        self._met = met
        self._audience = audience
        self._lends = lends
        self._held = held or before or Look(0)
        self._wanted = frozenset(seen.inode for seen in self._held.found.values())
        self._frames: list[_Frame] = []
        self._path_chars = 0  # of the current directory
        self.directories = 0

    def taken(self) -> Look:
        """Look, and close every descriptor."""
        try:
            with Root(self._root) as root:
                info = os.fstat(root.fd)
                self._look.root = info.st_dev, info.st_ino
                if self._audience is not None:
                    self._audience.begin()
                self._top.names = self._top.names or self._words.nothing
                try:
                    self._visit(root, "", self._top, info, root.fd)
                    self._descend(root)
                    if self._met is None:
                        Targets(root, self._look, self._before, self._budget).add()
                finally:
                    for frame in self._frames:
                        if frame.fd >= 0:
                            os.close(frame.fd)
        except Cut as cut:
            self._unknown(str(cut))
            if self._audience is not None:
                self._audience.cut(cut)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR) or self._look.root is not None:
                self._unknown(said(error))
            if self._audience is not None:
                self._audience.cut(error)
        return self._look

    def _descend(self, root: Root) -> None:
        while self._frames:
            frame = self._frames[-1]
            if not frame.todo:
                self._frames.pop()
                self._path_chars -= len(frame.name) + 1
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
            except OSError as error:  # a process swaps it meanwhile, or the file system fails
                self._unknown(said(error, self._path(name)))
                self._missed(frame.place, name, error)
            del children[name]  # it is not a directory any more; the parent's change time shows that too
            frame.node.racy = True

    def _visit(self, root: Root, name: str, node: Directory, info: os.stat_result, parent: int) -> None:
        """Look at one directory and the protected files in it. The directories below it come later."""
        self._budget.spend("directories")
        above = self._frames[-1].place if self._frames else None
        if self._path_chars + len(name) > MAX_PATH_CHARS:
            self._unknown(f"a path is longer than {MAX_PATH_CHARS:,} characters: {shown(self._path(name))}")
            self._missed(above, name, OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG)))
            return
        self.directories += 1
        same = (node.device, node.inode, node.changed_ns) == (info.st_dev, info.st_ino, info.st_ctime_ns)
        if any(node.names):
            self._note(self._path(name), Seen(node.names, *facts_of(info), racy=False, digest=b""))
        place, wants = None, ""
        if self._audience is not None and (above is not None or not self._frames):
            place = self._audience.visit(above, name, info)
            wants = self._audience.wants(place) if place is not None else ""
        lists = node.racy or not same or wants == "list"
        if not (lists or wants or node.children or node.files):
            return
        if walker.is_closed(info):
            if self._before is None:
                self._unknown(f"a directory denies access to its own owner: {shown(self._path(name))}")
                self._missed(above, name, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
                return
            walker.open_up(name or ".", parent)  # the call took its permissions away
        try:
            fd = os.open(name or ".", walker.LIST if lists else walker.PATH, dir_fd=parent)
        except PermissionError as error:
            self._look.closed.add((info.st_dev, info.st_ino))
            if not name or (self._before is not None and (info.st_dev, info.st_ino) not in self._before.closed):
                self._unknown(said(error, self._path(name)))
            self._missed(above, name, error)
            return
        depth = len(self._frames)
        starts = tuple(start for start in self._frames[-1].starts if start + ANCHORED_PARTS > depth) if depth else (0,)
        frame = _Frame(name, node, fd, [], depth, starts, place)
        self._frames.append(frame)
        self._path_chars += len(name) + 1
        info = os.fstat(fd)
        if lists or (node.device, node.inode, node.changed_ns) != (info.st_dev, info.st_ino, info.st_ctime_ns):
            is_for_audience, began = same and not node.racy, time.monotonic()
            charged = self._audience.spent_s if self._audience is not None else 0.0
            self._list(frame, info)
            if self._audience is not None and is_for_audience:
                self._charge(self._audience, began + self._audience.spent_s - charged)  # the rest of the time too
        else:
            if node.work_tree and depth:
                frame.starts = *starts, depth
            if self._audience is not None and place is not None:
                began = time.monotonic()
                self._audience.named(place, fd)
                self._charge(self._audience, began)
        if node.repository and self._met is None:
            path = self._path("")[:-1]
            self._look.repositories[path] = info.st_dev, info.st_ino
            if node.complete:
                self._look.complete.add(path)
        self._see_files(frame)
        frame.todo = list(node.children or ())
        self._spare_descriptors()

    def _charge(self, audience: Audience, began: float) -> None:
        """Note the time that the audience has taken since `began`, and do not count it here."""
        spent = time.monotonic() - began
        audience.spent_s += spent
        if self._lends:
            self._budget.extend(spent)

    def _missed(self, above: "Any", name: str, error: OSError) -> None:
        if self._audience is not None and (above is not None or not self._frames):
            self._audience.missed(above, self._path(name), error)

    def _list(self, frame: _Frame, info: os.stat_result) -> None:
        node = frame.node
        racy = is_racy(info)
        node.changed_ns = -1  # until it is listed to its end
        entries: list[tuple[str, str]] = []
        marks: set[str] = set()
        inherits = node.names != self._words.nothing
        audience, place = self._audience, frame.place
        if audience is not None and place is not None:
            began = time.monotonic()
            audience.opened(place, frame.fd)
            self._charge(audience, began)
        with os.scandir(frame.fd) as scan:
            for each in scan:
                self._budget.entry()
                if audience is not None and place is not None:
                    began = time.monotonic()
                    heard = audience.entry(place, each)
                    self._charge(audience, began)
                    if not heard:
                        continue
                if self._wanted and each.inode() in self._wanted:
                    self._held.elsewhere[each.inode()] = self._path(each.name)
                name = quick(each.name)
                if name in REPOSITORY_MARKS:
                    marks.add(name)
                if each.is_dir(follow_symlinks=False):
                    entries.append((each.name, "directory"))
                elif each.is_symlink():
                    entries.append((each.name, "link"))
                elif not each.is_file(follow_symlinks=False):
                    entries.append((each.name, "other"))
                elif inherits or name in GIT_PARTS or self._words.may_matter(each.name):
                    entries.append((each.name, "file"))
        if audience is not None and place is not None:
            began = time.monotonic()
            audience.listed(place)
            self._charge(audience, began)
        self._shape(frame, marks)
        self._name(node, frame, entries)
        node.device, node.inode, node.changed_ns, node.racy = info.st_dev, info.st_ino, info.st_ctime_ns, racy

    def _shape(self, frame: _Frame, marks: set[str]) -> None:
        """Detect a repository by its content, and the root of a work tree, where other names count than elsewhere."""
        node, work_tree = frame.node, GIT_POINTER in marks
        node.complete = is_repository(marks)
        node.repository = node.complete or folded(frame.name) == GIT_POINTER
        of_git = (frame.depth > 0 and self._frames[-2].node.of_git) or is_git_directory(frame.name, marks)
        if (work_tree, of_git) != (node.work_tree, node.of_git):
            node.children, node.work_tree, node.of_git = None, work_tree, of_git
        if work_tree and frame.depth:
            frame.starts = *frame.starts, frame.depth

    def _name(self, node: Directory, frame: _Frame, entries: list[tuple[str, str]]) -> None:
        """Find the names of entries. A part of a repository gets them as if its directory were called `.git`."""
        old, prefix = node.children or {}, ""
        children: dict[str, Directory] = {}
        files: dict[str, tuple[Names, Seen | None]] = {}
        inherits = node.names != self._words.nothing
        for name, kind in entries:
            names = self._words.nothing
            if inherits or kind == "link" or self._words.may_matter(name):
                self._budget.check()  # to match a long path takes milliseconds
                prefix = prefix or self._path("")
                names = self._words.names_of(node.names, prefix + name, name, kind, frame.starts)
            if (
                node.repository
                and (part := quick(name)) in GIT_PARTS
                and (kind != "directory" or part in GIT_DIRECTORIES)
            ):
                as_git = self._words.names_of(node.names, f"{GIT_POINTER}/{name}", name, kind, ())
                names = _or(names, as_git)
            if node.of_git and kind in ("link", "other"):
                names = _or(names, self._words.odd)
            if kind == "directory":
                child = old.get(name)
                children[name] = child if child is not None and child.names == names else Directory(names)
            elif any(names):
                files[name] = names, None
        for name, (names, known) in (node.files or {}).items():
            if files.get(name) == (names, None):
                files[name] = names, known
        node.children, node.files = children or None, files or None

    def _see_files(self, frame: _Frame) -> None:
        files = frame.node.files or {}
        for name, (names, known) in files.items():
            try:
                seen = self._seen(name, frame.fd, names, known)
            except FileNotFoundError:
                continue
            files[name] = names, seen
            self._note(self._path(name), seen)

    def _seen(self, name: str, parent: int, names: Names, known: Seen | None) -> Seen:
        info = os.stat(name, dir_fd=parent, follow_symlinks=False)
        facts = facts_of(info)
        if known is not None and not known.racy and facts == (
            known.device, known.inode, known.mode, known.size, known.changed_ns
        ):  # fmt: skip
            return known
        racy, digest = is_racy(info), b""
        if (racy or info.st_size <= DIGEST_BYTES) and self._budget.may_read(info):
            digest = digest_of(name, parent, info)
        if racy and not digest:
            self._look.doubt = doubt_about(self._path(name))
        return Seen(names, *facts, racy=racy, digest=digest)

    def _note(self, path: str, seen: Seen) -> None:
        self._budget.spend("protected names")
        self._budget.spend("bytes of paths", len(path))
        if self._met is None:
            self._look.found[path] = seen
        else:
            self._met(path, seen)

    def _path(self, name: str) -> str:
        """The path of a name in the current directory."""
        return "/".join([*(frame.name for frame in self._frames[1:]), name]) if self._frames else name

    def _unknown(self, why: str) -> None:
        self._look.unknown = self._look.unknown or why

    def _opened(self, root: Root, frame: _Frame) -> int:
        if frame.fd < 0:
            frame.fd = root.open("/".join(each.name for each in self._frames[1:]), walker.PATH)
            info = os.fstat(frame.fd)
            if (info.st_dev, info.st_ino) != (frame.node.device, frame.node.inode):
                raise OSError(errno.ESTALE, "the directory was moved during the look")
        return frame.fd

    def _spare_descriptors(self) -> None:
        if len(self._frames) > MAX_OPEN:
            oldest = self._frames[-MAX_OPEN]
            if oldest.fd >= 0:
                os.close(oldest.fd)
                oldest.fd = -1


def _or(names: Names, others: Names) -> Names:
    """For each vocabulary the name in `names`, or else the one in `others`."""
    return tuple(own if own != "" else other for own, other in zip(names, others, strict=True))
