"""Audit a writable tree: find protected names, and undo what a call did to them.

A mount can protect a path only if the path exists: otherwise it leaves a file of its own behind. So the caller looks at
the tree before and after each call, from outside of the sandbox, and moves new and changed protected paths into
quarantine. They are not deleted, because a person may be editing them at that moment.

The order of an audit matters. First it writes the calls' copies of git's settings back, so that what is judged is what
the host's git will read. Then it looks, moves and looks again until a look finds nothing to move: moving one path can
make another one a repository, and processes of other calls may be at work. A repository goes back as a whole before its
parts are judged, and a moved path goes back only if its inode and its content are those of before. What is left of a
removed repository goes last. Each of these looks may feed the list of changed files too (`changes.Feed`).

A path that a look could not see is unknown, not absent. `Look.unknown` gives the reason, and callers must handle it.
"""

import os
import stat
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from toolcell_sandbox.kernel.syscalls import born_ns
from toolcell_sandbox.profile import is_below
from toolcell_sandbox.view import Bound

from . import repositories, walker
from .facts import (
    Found,
    Look,
    Names,
    Seen,
    as_before,
    digest_of,
    facts_of,
    is_as,
    is_same_inode,
    protect,
    said,
    shown,
)
from .git_allowed import (
    JUDGED,
    SETTINGS,
    STATES,
    content,
    harmless_of,
    harmless_settings,
    is_settings,
    objection_to,
)
from .git_settings import keys_in_words
from .git_settings_copy import Drafts
from .look import Audience, Directory, Vocabularies, Vocabulary, Walk
from .protected import GIT_ODD, GIT_PARTS, GIT_POINTER, Matcher, folded, matcher, reason_of
from .quarantine import Quarantine
from .walker import Budget, Copies, Cut, Root

MAX_BOUND, MAX_BOUND_BYTES = 512, 64 * 1024
"""The most mounts that a cell gets for the protected names of one root, and the most bytes of their paths in sum. The
paths nearest to the root come first. The other paths are protected by the audit alone."""
ROUNDS = 5  # the most looks after a call; an audit ends earlier if nothing is left to move
BEFORE_S, AFTER_S = 10.0, 3.0
MAX_JUDGED = 10_000
MAX_SETTINGS_BYTES = 1024 * 1024  # of repositories that calls made, kept to find changed remotes
_NO_SETTINGS = frozenset(SETTINGS).isdisjoint
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_SWEPT, SWEPT_BYTES = 10_000, 4 * 1024 * 1024
"""The most findings that a sweep keeps, and the most bytes of their paths in sum."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A protected path that a call made, changed, moved or tried to change, and where it is now.

    `path` is absolute. `place` is the path in the quarantine; it equals `path` if the file was put back, and is "" if
    the file could not be moved. `names` are as in `Seen`. `why` is the reason of the refusal. `changed_ns` is the
    change time in nanoseconds.
    """

    path: str
    name: str
    what: str
    """One of "made", "changed", "moved", "refused", "removed", "cut" (only the harmless settings were kept) and
    "redirected" (the settings were kept, and a fetch or a push may go elsewhere)."""
    place: str
    names: Names = ()
    why: str = ""
    changed_ns: int = 0
    dropped: tuple[str, ...] = ()
    """Paths of older entries of the quarantine that were deleted to make room, or for their age."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of an audit. `unknown` gives the reason if it could not see everything, `stuck` if it could not move
    something."""

    findings: tuple[Finding, ...]
    unknown: str = ""
    stuck: str = ""
    replaced: bool = False  # the root is another directory now; the audit changed nothing in it


class ProtectedTree:
    """One writable root and the vocabularies of names that are protected in it. Not thread-safe."""

    def __init__(
        self, root: str, names: Iterable[str] = (), apart: Iterable[str] = (), drafts: Drafts | None = None
    ) -> None:
        self.root = root
        self.drafts = drafts  # None: cells cannot change the git settings of an existing repository
        self._prefix = root.rstrip("/") + "/"
        self.vocabularies = Vocabularies()
        self._known: dict[tuple[tuple[str, ...], frozenset[str]], int] = {}
        self.top = Directory()
        self._leading: dict[tuple[int, str], tuple[str, ...]] = {}  # for the paths of the last `bound`
        self.directories = 0
        """The number of directories at the last look."""
        self._made: dict[tuple[int, int], int] = {}  # repositories and .git files made by calls: inode to birth time
        self._judged: dict[tuple[str, Seen, tuple[int, ...]], str] = {}
        if names := tuple(names):
            self.learn(names, apart)

    def __repr__(self) -> str:
        return f"<ProtectedTree {self.root} · {self.directories} directories>"

    def learn(self, names: tuple[str, ...], apart: Iterable[str] = ()) -> int:
        """Protect these names too. Returns the index of this vocabulary.

        `apart` are writable roots below this one. Each is a tree of its own, so the names of this tree end there.
        """
        below = frozenset(
            path[len(self._prefix) :] for path in apart if path != self.root and is_below(path, [self.root])
        )
        index = self._known.setdefault((names, below), len(self._known))
        if index == len(self.vocabularies.all_of):
            self.vocabularies = Vocabularies((*self.vocabularies.all_of, Vocabulary(matcher(names), below)))
            self.top = Directory()  # list every directory again, because the names are new
        return index

    def copy(self) -> "ProtectedTree":
        """A copy with the same root and names and an empty cache, for another thread."""
        other = ProtectedTree(self.root)
        other.vocabularies, other._made = self.vocabularies, self._made  # pyright: ignore[reportPrivateUsage]
        return other

    def look(self, budget: Budget | None = None, held: Look | None = None, audience: Audience | None = None) -> Look:
        """Look, before a call. `held` is the look before the calls that run already. `audience` hears of the walk."""
        budget = budget or Budget(seconds=BEFORE_S)
        walk = Walk(self.root, self.vocabularies, self.top, budget, None, held=held, audience=audience)
        look, self.directories = walk.taken(), walk.directories
        if self._made:
            self._forget_reused(look)
            self._judge_made(look)
        return look

    def _judge_made(self, look: Look) -> None:
        """Note the state of the repositories that calls made: a person may have changed them since."""
        made = {path: seen for path, seen in look.found.items() if self.is_made(path, seen, look)}
        look.harmful.update(path for path, seen in made.items() if self.objection(path, seen, range(len(seen.names))))
        room, settings = MAX_SETTINGS_BYTES, [path for path, seen in made.items() if not _NO_SETTINGS(seen.names)]
        if not settings:
            return
        try:
            with Root(self.root) as root:
                for path in settings:
                    raw = content(root, path, made[path], room)
                    if raw is not None:
                        room -= len(raw)
                        look.settings[path] = raw
        except OSError as error:
            look.unknown = look.unknown or said(error)

    def bound(self, look: Look, vocabulary: int = 0) -> tuple[Bound, ...]:
        """The paths of a look that mounts can protect: files, directories, and pins of the directories above them."""
        found = {path: seen for path, seen in look.found.items() if protect(seen.names, (vocabulary,))}
        tops = [path for path in found if os.path.dirname(path) not in found]
        tops = [path for path in tops if stat.S_IFMT(found[path].mode) in (stat.S_IFREG, stat.S_IFDIR)]
        passing = self._made or any(found[path].names[vocabulary] in STATES for path in tops)
        below = _by_top(found) if passing else {}
        wanted: dict[str, Bound] = {}
        leading: dict[str, tuple[str, ...]] = {}
        matching, size = self.vocabularies.all_of[vocabulary].matcher, 0
        for path in sorted(tops, key=lambda each: (each.count("/"), each)):
            seen = found[path]
            name = seen.names[vocabulary] or ""
            leading[path] = self._leading.get((vocabulary, path)) or leading_of(matching, name, path, seen)
            if self._is_free(path, seen, look, below.get(path, ()), vocabulary):
                continue  # calls may change it
            size += (len(self._prefix) + len(path)) * (1 + len(leading[path]))
            if len(wanted) + len(leading[path]) >= MAX_BOUND or size > MAX_BOUND_BYTES:
                break
            if len(os.fsencode(self._prefix + path)) > walker.PIECE_BYTES:
                continue  # mount(2) takes no path of this length
            for above in leading[path]:
                node = self._node(above)
                if node is not None:
                    whole = self._prefix + above
                    wanted.setdefault(above, Bound(whole, True, (node.device, node.inode), born_ns(whole)))
            whole = self._prefix + path
            source, place = self._draft(path, seen) if name in SETTINGS else ("", None)
            if place is not None:
                wanted[place.path] = place
            wanted[path] = Bound(whole, False, (seen.device, seen.inode), born_ns(whole), source)
        self._leading = {(vocabulary, path): above for path, above in leading.items()}
        return tuple(wanted.values())

    def settle(
        self,
        before: Look,
        quarantine: Quarantine,
        active: Collection[int] = (0,),
        others: bool = False,
        audience: Audience | None = None,
    ) -> Settled:
        """Look again. Move paths that are new or changed since `before` into quarantine, and put back moved paths.

        Only names of the `active` vocabularies count. `before` gets the new change times of paths that were put back.
        The audit ends after `AFTER_S` seconds and never raises for anything in the tree. `others` says that other cells
        may still write here. `audience` hears of each walk.
        """
        return _Audit(self, before, quarantine, active, others, audience).settled()

    def sweep(
        self,
        is_wrong: Callable[[str, Seen], bool],
        quarantine: Quarantine,
        budget: Budget,
        active: Collection[int] = (0,),
    ) -> Settled:
        """Move protected paths for which `is_wrong` holds into quarantine. Keeps the first `MAX_SWEPT` findings."""
        moved = _Moved(self, quarantine)
        with moved.root():

            def met(path: str, seen: Seen) -> None:
                if protect(seen.names, active) and is_wrong(path, seen):
                    why = self.objection(path, seen, active)
                    if why:
                        moved.take(path, seen, "made", why, most=MAX_SWEPT)

            look = Walk(self.root, self.vocabularies, None, budget, Look(0), met).taken()
        return Settled(tuple(moved.findings.values()), look.unknown or moved.unknown, moved.stuck)

    def _draft(self, path: str, seen: Seen) -> tuple[str, Bound | None]:
        """The link to a copy that a cell may write to, and the bind mount of the copy; ("", None) without one."""
        if self.drafts is None:
            return "", None
        try:
            with Root(self.root) as root:
                draft = self.drafts.offer(root, path, seen)
            if draft is None:
                return "", None
            info = os.lstat(draft.place)
        except OSError:
            return "", None
        return draft.link, Bound(draft.place, True, (info.st_dev, info.st_ino), source=draft.place)

    def objection(self, path: str, seen: Seen, active: Collection[int]) -> str:
        """The reason why the path may not stay, for the names of the active vocabularies; "" if it may stay."""
        names = dict.fromkeys(name for index in active if index < len(seen.names) if (name := seen.names[index]))
        other = next((name for name in names if name not in JUDGED), "")
        if other:
            return reason_of(other)
        key = path, seen, tuple(active)
        why = self._judged.get(key)
        if why is None:
            try:
                with Root(self.root) as root:
                    why = next((no for name in names if (no := objection_to(root, path, seen, name))), "")
            except OSError as error:
                return said(error)
            if GIT_PARTS["hooks"] in names:  # other answers also depend on the targets of links
                if len(self._judged) >= MAX_JUDGED:
                    self._judged.clear()
                self._judged[key] = why
        return why

    def is_made(self, path: str, seen: Seen, look: Look) -> bool:
        """Whether a call made this `.git` file, or the repository that this path is a part of."""
        above = os.path.dirname(path)
        inode, whole = look.repositories.get(above), self._prefix + above
        if GIT_POINTER in seen.names:
            inode, whole = (seen.device, seen.inode), self._prefix + path
        return inode in self._made and born_ns(whole) in (0, self._made[inode])  # 0: it was moved since

    def learn_made(self, before: Look, now: Look) -> None:
        """Record the repositories and `.git` files that are new since `before` as made by calls."""
        there = _repositories_and_pointers(now)
        were = {*before.repositories.values(), *((seen.device, seen.inode) for seen in before.found.values())}
        self._made = {inode: born for inode, born in self._made.items() if inode in there.values()}
        for path, inode in there.items():
            if inode not in were:
                self._made[inode] = born_ns(self._prefix + path)

    def _forget_reused(self, look: Look) -> None:
        """Forget repositories whose inode number another repository has now. The birth times differ."""
        made = dict(self._made)
        for path, inode in _repositories_and_pointers(look).items():
            if inode in made and born_ns(self._prefix + path) not in (0, made[inode]):
                del made[inode]
        self._made = made

    def _is_free(self, path: str, seen: Seen, look: Look, below: Collection[str], vocabulary: int) -> bool:
        """Whether calls may change it: a call made it, or git makes and removes it. Nothing in it runs by itself."""
        if seen.names[vocabulary] not in STATES and not (self._made and self.is_made(path, seen, look)):
            return False
        return not any(self.objection(each, look.found[each], (vocabulary,)) for each in (path, *below))

    def _node(self, path: str) -> Directory | None:
        node: Directory | None = self.top
        for name in path.split("/") if path else ():
            node = (node.children or {}).get(name) if node is not None else None
        return node


def _repositories_and_pointers(look: Look) -> dict[str, tuple[int, int]]:
    pointers = {path: (seen.device, seen.inode) for path, seen in look.found.items() if GIT_POINTER in seen.names}
    return {**look.repositories, **pointers}


def leading_of(matching: Matcher, name: str, path: str, seen: Seen) -> tuple[str, ...]:
    """The directories above a protected path that must not be replaced, outermost first."""
    if name.startswith("/"):
        parts, count = path.split("/"), name.count("/") - 1
        return tuple("/".join(parts[:end]) for end in range(len(parts) - count, len(parts)))
    if name == GIT_ODD:
        parts = path.split("/")
        return tuple("/".join(parts[:end]) for end in range(1, len(parts)) if GIT_POINTER in map(folded, parts[:end]))
    above = matching.leading(path, directory=stat.S_ISDIR(seen.mode))
    repository = os.path.dirname(path)
    return above or ((repository,) if repository and name in GIT_PARTS.values() else ())


def _tops(paths: Iterable[str]) -> list[str]:
    """The paths that are not below another one, sorted, each with a trailing slash."""
    tops: list[str] = []
    for path in sorted(f"{path}/" for path in paths):
        if not tops or not path.startswith(tops[-1]):
            tops.append(path)
    return tops


def _is_below(path: str, tops: Sequence[str]) -> bool:
    """Whether the path is one of the tops or below one."""
    index = bisect_right(tops, f"{path}/")
    return index > 0 and f"{path}/".startswith(tops[index - 1])


def _by_top(found: Found) -> dict[str, list[str]]:
    """For each path that is protected by its own name, the found paths below it."""
    tops: dict[str, str] = {}
    below: dict[str, list[str]] = {}
    for path in sorted(found):  # a directory before what is in it
        top = tops[path] = tops.get(os.path.dirname(path), path)
        if top != path:
            below.setdefault(top, []).append(path)
    return below


class _Moved:
    """The paths that an audit moved out of a tree, and those that it could not move."""

    def __init__(self, tree: ProtectedTree, quarantine: Quarantine) -> None:
        self.findings: dict[str, Finding] = {}
        self.stuck = self.unknown = ""
        self._tree = tree
        self._quarantine = quarantine
        self._copies = Copies()
        self._told_bytes = 0
        self._root = Root(tree.root)

    @contextmanager
    def root(self) -> Generator[Root]:
        """Hold the root open. If it cannot be opened, nothing is moved, and `unknown` gives the reason."""
        try:
            self._root.__enter__()
        except OSError as error:
            self.unknown = said(error)
            yield self._root
            return
        try:
            yield self._root
        finally:
            os.close(self._root.fd)
            self._root.fd = -1

    def take(self, path: str, seen: Seen, what: str, why: str, *, most: int | None = None) -> None:
        """Move the path into quarantine and add it to the findings, unless there are `most` of them."""
        whole = os.path.join(self._tree.root, path)
        if self.unknown:
            return
        rest = harmless_settings(self._root, path, seen) or self._copied(path, seen)
        try:
            place = self._quarantine.take(self._root, path, (seen.device, seen.inode), self._copies)
            if not place:
                return
        except OSError as error:
            place = ""
            self.stuck = f"{shown(path)} could not be moved: {error.strerror}"
        if rest is not None and place and self._write_rest(path, rest[0], seen, place):
            what, why = "cut", rest[1]
            if not why:
                return  # the harmless settings are all that there were
        self._told_bytes += len(path)
        if most is None or (len(self.findings) < most and self._told_bytes < SWEPT_BYTES):
            self.findings[path] = Finding(
                whole, seen.name, what, place, seen.names, why, seen.changed_ns, self._quarantine.dropped()
            )

    def _copied(self, path: str, seen: Seen) -> tuple[bytes, str] | None:
        """The harmless settings of the original, if a call copied the link to its own copy of git's settings."""
        drafts = self._tree.drafts
        if drafts is None or not stat.S_ISLNK(seen.mode) or not is_settings(seen):
            return None
        try:
            held = self._root.open(path, walker.ENTRY)
        except OSError:
            return None
        try:
            raw = drafts.original_of(os.fsdecode(walker.target(held)))
        except OSError:  # it is not a link any more
            return None
        finally:
            os.close(held)
        return None if raw is None else harmless_of(self._root, path, raw)

    def _write_rest(self, path: str, rest: bytes, was: Seen, place: str) -> bool:
        """Write the harmless settings of the file at `place` back to `path`. Returns whether they were written."""
        name, fd = os.path.basename(path), -1
        try:
            owner = os.lstat(place)
            parent = self._root.parent(path)
        except OSError:
            return False  # the directory is gone
        try:
            fd = os.open(name, _NEW, 0o600, dir_fd=parent)
            with os.fdopen(fd, "wb") as file:
                file.write(rest)
                if os.geteuid() == 0:
                    os.fchown(fd, owner.st_uid, owner.st_gid)
                os.fchmod(fd, 0o644 if stat.S_ISLNK(was.mode) else stat.S_IMODE(was.mode) & 0o666)
        except OSError:  # another file took the place, which the next look judges; or the disk is full
            if fd >= 0:
                walker.remove(name, parent)
            return False
        finally:
            os.close(parent)
        return True

    def put_back(self, at: str, home: str, was: Seen) -> Seen | None:
        """Move it back to `home` if nothing is there. Returns its new facts, or None if it is another file now."""
        try:
            return self._put_back(at, home, was)
        except OSError:  # `home` is below it now, a file is in the way, or somebody swapped it meanwhile
            return None

    def _put_back(self, at: str, home: str, was: Seen) -> Seen | None:
        source, target = self._root.parent(at), -1
        held = -1
        try:
            held = walker.entry(os.path.basename(at), source)
            info = os.fstat(held)
            if not is_as(info, was):
                return None
            if not stat.S_ISDIR(info.st_mode) and digest_of(os.path.basename(at), source, info) != was.digest:
                return None
            target = self._root.parent(home, make=True, owned=True)
            walker.move(os.path.basename(at), source, os.path.basename(home), target)
            now = self._root.stat(home)
            if (now.st_dev, now.st_ino) != (was.device, was.inode):
                return None
            info = os.fstat(held)
            if not stat.S_ISDIR(info.st_mode):
                digest = digest_of(os.path.basename(home), target, info)
                if not was.digest or digest != was.digest or os.fstat(held).st_ctime_ns != info.st_ctime_ns:
                    return None
            return Seen(was.names, *facts_of(info), racy=True, digest=was.digest)
        finally:
            for fd in (source, target, held):
                if fd >= 0:
                    os.close(fd)


class _Audit:
    """One audit after a call: it looks and moves until nothing is left to move."""

    def __init__(
        self,
        tree: ProtectedTree,
        before: Look,
        quarantine: Quarantine,
        active: Collection[int],
        others: bool,
        audience: Audience | None,
    ) -> None:
        self._others = others
        self._audience = audience
        self._tree = tree
        self._before = before
        self._active = tuple(active)
        self._moved = _Moved(tree, quarantine)
        self._until = time.monotonic() + AFTER_S
        self._left: set[str] = set()  # paths that could not be put back or moved

    @property
    def _end(self) -> float:
        """When the audit ends. What its audience takes is not taken from it."""
        return self._until + (self._audience.spent_s if self._audience is not None else 0.0)

    def settled(self) -> Settled:
        before = self._before.unknown or self._before.doubt
        unknown = before
        self._follow_drafts()
        settings = self._settings()
        self._settle_drafts()
        tree, look = self._tree, self._before
        for _ in range(ROUNDS):
            look = self._look()
            if look.root != self._before.root:
                why = look.unknown or "the directory was moved or replaced while the call ran"
                return Settled(tuple(self._moved.findings.values()), why, self._moved.stuck, replaced=True)
            unknown = look.unknown or before
            with self._moved.root() as root:
                repositories.follow(root, self._before, look)
            try:
                wrong, whys = self._wrong(look)
            except Cut:
                unknown = unknown or f"judging protected names took more than {AFTER_S:g} s"
                break
            if self._move_repositories_back(look, wrong, whys):
                continue
            back = self._moved_away(look, wrong)
            if not wrong and not back:
                if not unknown:
                    tree.learn_made(self._before, look)
                    self._finish_removing(look)
                break
            with self._moved.root():
                if not self._move(wrong, whys, back):
                    unknown = unknown or f"moving protected names away took more than {AFTER_S:g} s"
                    break
        else:
            unknown = unknown or f"its protected names still changed after {ROUNDS} rounds of moving them away"
        self._tell_redirected(settings, look)
        findings = tuple(self._moved.findings.values())
        return Settled(findings, unknown or self._moved.unknown, self._moved.stuck)

    def _settings(self) -> dict[str, tuple[Seen, bytes]]:
        """The git settings of repositories that were there, as they were before the call."""
        drafts, found = self._tree.drafts, self._before.found
        originals = {path: drafts.original(path) for path in drafts.paths} if drafts is not None else {}
        return {
            path: (found[path], raw) for path, raw in {**originals, **self._before.settings}.items() if path in found
        }

    def _tell_redirected(self, settings: dict[str, tuple[Seen, bytes]], look: Look) -> None:
        """Add a finding for each repository with changed remotes."""
        with self._moved.root() as root:
            for path, keys in repositories.redirected(root, settings, self._before, look).items():
                seen, whole = look.found[path], os.path.join(self._tree.root, path)
                if protect(seen.names, self._active):
                    self._moved.findings[f"{path}\0"] = Finding(  # beside a finding about the file itself
                        whole, seen.name, "redirected", whole, seen.names, keys_in_words(keys), seen.changed_ns
                    )

    def _look(self) -> Look:
        tree = self._tree
        budget = Budget(until=self._end)
        return Walk(tree.root, tree.vocabularies, tree.top, budget, self._before, audience=self._audience).taken()

    def _follow_drafts(self) -> None:
        """Find the originals of copies whose repositories were moved. The copies are judged afterwards."""
        drafts, before = self._tree.drafts, self._before
        gone = [path for path in (drafts.paths if drafts is not None else ()) if path in before.found]
        gone = [path for path in gone if not os.path.lexists(os.path.join(self._tree.root, path))]
        if not gone or drafts is None:
            return
        look = self._look()
        with self._moved.root() as root:
            repositories.follow(root, before, look)
        for old, new in repositories.moved(before, look).items():
            for path in gone:
                place = f"{new}/{os.path.basename(path)}"
                if os.path.dirname(path) == old and place in before.found:
                    drafts.follow(path, place)

    def _finish_removing(self, look: Look) -> None:
        """Remove the rest of a repository that a call removed. The call could not remove mount points (EBUSY)."""
        with self._moved.root() as root:
            for path, part in repositories.removed(root, self._before, look).items():
                if not protect(part.names, self._active):
                    continue
                device, inode = look.repositories[path]
                whole = Seen(part.names, device, inode, stat.S_IFDIR, 0, part.changed_ns, racy=False, digest=b"")
                self._moved.take(path, whole, "removed", "its settings and hooks are held while a call runs")
                repositories.remove_if_empty(root, os.path.dirname(path))

    def _settle_drafts(self) -> None:
        """Write the changes of cells to their copies of git's settings back, if they are harmless."""
        drafts = self._tree.drafts
        for path in drafts.paths if drafts is not None else ():
            assert drafts is not None
            was, changed = self._before.found.get(path), drafts.changed(path)
            if changed is None:
                drafts.tidy(path, in_use=self._others)
            if was is None or changed is None or not protect(was.names, self._active):
                continue
            with self._moved.root() as root:
                if self._moved.unknown:
                    return
                now, why = drafts.settle(root, path, changed[0], was, in_place=self._others)
            if now is not None:
                self._before.found[path] = now
            if why:
                whole, what = os.path.join(self._tree.root, path), "refused" if now is None else "cut"
                self._moved.findings[path] = Finding(whole, was.name, what, whole, was.names, why, changed[1])

    def _wrong(self, look: Look) -> tuple[Found, dict[str, str]]:
        """The paths that may not stay, and the reason for each."""
        wrong: Found = {}
        whys: dict[str, str] = {}
        for path, seen in look.found.items():
            if not self._is_wrong(path, seen):
                continue
            if time.monotonic() > self._end:
                raise Cut("the look took too long")
            why = self._tree.objection(path, seen, self._active)
            if not why and GIT_POINTER in seen.names and path in self._before.found:
                why = "" if self._tree.is_made(path, self._before.found[path], self._before) else reason_of(GIT_POINTER)
            if why:
                wrong[path], whys[path] = seen, why
        return wrong, whys

    def _move_repositories_back(self, look: Look, wrong: Found, whys: dict[str, str]) -> bool:
        """Move a repository back as a whole if its settings may not stay at the new place. Without its settings, it
        would be in two parts. Returns whether one was moved back."""
        done = False
        for old, new in repositories.moved(self._before, look).items():
            settings = next((path for path in wrong if os.path.dirname(path) == new), "")
            was = self._before.found.get(f"{old}/{os.path.basename(settings)}") if settings else None
            if was is None or not as_before(wrong[settings], was):
                continue
            places = [each for each in (repositories.work_trees(old, new), (old, new)) if each is not None]
            with self._moved.root() as root:
                home = next((home for home, at in places if walker.moved(root, at, home)), "")
            if home:
                done, whole = True, os.path.join(self._tree.root, home)
                self._moved.findings[home] = Finding(
                    whole, was.name, "moved", whole, was.names, whys[settings], was.changed_ns
                )
        return done

    def _move(self, wrong: Found, whys: dict[str, str], back: dict[str, str]) -> bool:
        """Returns False if the time ran out."""
        goes_back = _tops(back.values())
        for path, seen in wrong.items():
            if time.monotonic() > self._end:
                return False
            if os.path.dirname(path) not in wrong and not _is_below(path, goes_back):
                self._moved.take(path, seen, "changed" if path in self._before.found else "made", whys[path])
                found = self._moved.findings.get(path)
                if found is not None and not found.place:
                    self._left.add(path)
        for home, at in back.items():
            was = self._before.found[home]
            now = self._moved.put_back(at, home, was)
            if now is None:
                self._left.add(f"{home}\0")  # not tried again; the file that took its place is judged like any other
                continue
            self._before.found[home] = now
            whole = os.path.join(self._tree.root, home)
            why = reason_of(was.name)
            self._moved.findings.setdefault(
                home, Finding(whole, was.name, "moved", whole, was.names, why, now.changed_ns)
            )
        return True

    def _is_wrong(self, path: str, seen: Seen) -> bool:
        if path in self._left or not protect(seen.names, self._active):
            return False
        before = self._before
        was = before.found.get(path)
        if was is not None and as_before(seen, was):
            # A repository that a call made is judged again, because the answer may depend on other paths.
            return path not in before.harmful and self._tree.is_made(path, seen, before)
        if was is not None:
            return True
        if not before.unknown and protect(seen.names[: before.vocabularies], self._active):
            return True
        # The earlier look did not cover this path: decide by its change time.
        return before.is_before(seen.changed_ns)

    def _moved_away(self, look: Look, wrong: Found) -> dict[str, str]:
        """Protected paths that were moved within this tree, unchanged: the old path, and the new one.

        Paths that may be at their new place, such as settings of a repository that was moved as a whole, are left out.
        """
        before = self._before.found
        lost = {
            path: seen
            for path, seen in before.items()
            if os.path.dirname(path) not in before
            and STATES.isdisjoint(seen.names)  # git removes these, and another directory may get the inode number
            and f"{path}\0" not in self._left
            and not is_same_inode(seen, look.found.get(path))
            and not self._tree.is_made(path, seen, self._before)
        }
        if not lost:
            return {}
        at = self._before.elsewhere | {seen.inode: path for path, seen in look.found.items() if path not in before}
        back: dict[str, str] = {}
        tops = sorted(f"{each}/" for each in wrong)
        with self._moved.root() as root:
            for path, seen in lost.items():
                place = at.get(seen.inode)
                if place is None or self._moved.unknown or is_same_inode(seen, before.get(place)):
                    continue  # it is gone, a hard link to it was there before, or its repository was moved as a whole
                index = bisect_left(tops, f"{place}/")
                if place in look.found and not any(each.startswith(f"{place}/") for each in tops[index : index + 1]):
                    continue
                if _is_at(root, place, seen):
                    back[path] = place
        return back


class ProtectedTrees:
    """The writable roots of one profile. Each is a `ProtectedTree`."""

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
    """The outcomes of several audits as one."""
    all_of = list(settled)
    return Settled(
        tuple(finding for each in all_of for finding in each.findings),
        next((each.unknown for each in all_of if each.unknown), ""),
        next((each.stuck for each in all_of if each.stuck), ""),
    )


def _is_at(root: Root, path: str, was: Seen) -> bool:
    try:
        return is_as(root.stat(path), was)
    except OSError:
        return False
