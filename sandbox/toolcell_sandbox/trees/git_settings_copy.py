"""Private copies of git settings for cells to edit. A copy is judged before the host's git reads its content.

Git replaces its settings by renaming `config.lock` over `config`, and resolves a symbolic link at `config` first. So a
cell gets a symbolic link mounted over the settings of a repository. The link leads to a directory of ours with a copy
of the settings. After the call, the harmless settings of the copy replace the original.
"""

import errno
import os
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from . import walker
from .facts import Seen, digest_of, facts_of
from .git_allowed import content
from .git_settings import (
    MAX_BYTES,
    NotRead,
    change_objection,
    harmless_part,
    in_words,
    objection,
    parse,
)
from .walker import Budget, Root

_TEMPORARY = "/var/tmp"  # on a disk; /tmp may be in memory
_LOCKED = "git was at work on it, or has left its lock"
TIDIED, TIDY_S = 10_000, 1.0  # bounds of the removal beside a copy; beyond them, the copy is abandoned
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class Draft:
    """One copy: `place` is its directory, which cells may write to; `link` is the symbolic link to the copy."""

    place: str
    link: str
    original: bytes
    inode: tuple[int, int]  # of the original
    mode: int
    owner: tuple[int, int]


class Drafts:
    """The copies of one tree, by the paths of the originals. `made` is called with the directory of the copies."""

    def __init__(self, made: Callable[[str], None]) -> None:
        self._made = made
        self._directory = ""
        self._of: dict[str, Draft] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the originals that have a copy."""
        return tuple(self._of)

    def offer(self, root: Root, path: str, seen: Seen) -> Draft | None:
        """An up-to-date copy, or the one that a cell has changed; None if no copy can be made."""
        try:
            raw = _settings(root, path, seen)
            draft = self._of.get(path)
            if raw is None or (draft is not None and draft.original != raw and self.changed(path) is not None):
                return None if raw is None else draft
            if draft is None:
                draft = self._new(root, raw)
                if draft is None:
                    return None
                self._of[path] = draft
            if draft.original != raw or _content(draft.place) is None:
                _write(draft.place, raw)
            info = root.stat(path)
            draft.original, draft.inode = raw, (seen.device, seen.inode)
            draft.mode, draft.owner = stat.S_IMODE(info.st_mode), (info.st_uid, info.st_gid)
        except OSError:
            self._of.pop(path, None)
            return None
        return draft

    def original(self, path: str) -> bytes:
        """The content of the original at the last `offer` or `settle`."""
        return self._of[path].original

    def original_of(self, link: str) -> bytes | None:
        """The original's content, by the target of a link to a copy: a call may copy a repository with its link."""
        return next((draft.original for draft in self._of.values() if link == f"{draft.place}/config"), None)

    def follow(self, path: str, place: str) -> None:
        """Note that the original was moved with its repository, from `path` to `place`."""
        self._of[place] = self._of.pop(path)

    def changed(self, path: str) -> tuple[bytes, int] | None:
        """The changed content of a copy and its change time; None if it is unchanged, or not a file any more."""
        draft = self._of[path]
        found = _content(draft.place)
        return None if found is None or found[0] == draft.original else found

    def tidy(self, path: str, *, in_use: bool) -> None:
        """Remove other files from the directory of an unchanged copy, because the directory is on the host. If the copy
        is `in_use`, the lock of a running git stays. A copy that cannot be tidied is abandoned.
        """
        try:
            parent = os.open(self._of[path].place, walker.PATH)
            try:
                walker.clear(parent, {"config", "config.lock"} if in_use else {"config"}, _tidying())
            finally:
                os.close(parent)
        except OSError:
            del self._of[path]  # the next cell has another one

    def settle(self, root: Root, path: str, raw: bytes, was: Seen, *, in_place: bool) -> tuple[Seen | None, str]:
        """Replace the original by the harmless settings of the copy. Returns the original's new facts and a text about
        the settings that were left out; or None and the reason if nothing was written.

        A rename would remove the mounts over the original in running cells. If there may be such cells, the file is
        rewritten `in_place`. In each case the copy equals the original afterwards.
        """
        draft = self._of[path]
        try:
            raw, without, why = _accepted(draft.original, raw)
            now = why or _replace(root, path, draft, raw, was, in_place=in_place)
        except OSError as error:
            del self._of[path]
            return None, f"it could not be written: {error.strerror}"
        if not isinstance(now, str):
            draft.original, draft.inode = raw, (now.device, now.inode)
        try:
            _write(draft.place, draft.original)
        except OSError:
            del self._of[path]  # the next cell has another one
        return (None, now) if isinstance(now, str) else (now, without)

    def close(self) -> None:
        """Remove all copies. To be called when no cell is left."""
        self._of.clear()
        if self._directory:
            above, name = os.path.split(self._directory)
            try:
                with Root(above) as root:
                    walker.remove(name, root.fd)
            except OSError:
                pass  # the next start removes the rest
            self._directory = ""

    def _new(self, root: Root, raw: bytes) -> Draft | None:
        if not self._directory:
            above = _TEMPORARY if os.access(_TEMPORARY, os.W_OK | os.X_OK) else None
            self._directory = os.path.realpath(tempfile.mkdtemp(prefix="toolcell-drafts-", dir=above))
            self._made(self._directory)
        if self._directory.startswith(root.path.rstrip("/") + "/"):
            return None  # the cell could change the link
        own = tempfile.mkdtemp(prefix="", dir=self._directory)
        place, link = f"{own}/settings", f"{own}/link"
        os.mkdir(place)
        os.chmod(place, 0o777)  # cells have other users; the directory above is closed to everybody else
        os.symlink(f"{place}/config", link)
        _write(place, raw)
        return Draft(place, link, raw, (0, 0), 0o644, (os.geteuid(), os.getegid()))


def _accepted(original: bytes, raw: bytes) -> tuple[bytes, str, str]:
    """The accepted content, a text about the settings that were left out, and the reason if nothing is accepted."""

    def nowhere(path: str) -> bool:  # a call may not set core.worktree
        return False

    why = change_objection(original, raw, inside=nowhere)
    if not why:
        return raw, "", ""
    try:
        before = [entry for entry in parse(original) if objection([entry], inside=nowhere)]
        rest, keys = harmless_part(raw, inside=nowhere, kept=before)
    except NotRead:
        return raw, "", why
    if not keys or parse(rest) == parse(original) or change_objection(original, rest, inside=nowhere):
        return raw, "", why
    return rest, in_words(keys), ""


def _settings(root: Root, path: str, seen: Seen) -> bytes | None:
    """The content of the settings; None if they are not those that were seen, or the grammar does not cover them."""
    raw = content(root, path, seen)
    try:
        parse(raw or b"")
    except NotRead:
        return None
    return raw


def _content(place: str) -> tuple[bytes, int] | None:
    """The content of the copy and its change time. The directory is hostile: cells may write to it."""
    parent = os.open(place, walker.PATH)
    try:
        held = walker.entry("config", parent)
    except OSError:
        return None
    finally:
        os.close(parent)
    try:
        return walker.content(held, MAX_BYTES + 1), os.fstat(held).st_ctime_ns
    except OSError:
        return None
    finally:
        os.close(held)


def _write(place: str, raw: bytes) -> None:
    """Write the copy anew, and remove all other files beside it."""
    parent = os.open(place, walker.PATH)
    try:
        new = f"{os.urandom(8).hex()}.new"
        with os.fdopen(os.open(new, _NEW, 0o666, dir_fd=parent), "wb") as file:
            file.write(raw)
            os.fchmod(file.fileno(), 0o666)
        walker.clear(parent, {new}, _tidying())
        os.rename(new, "config", src_dir_fd=parent, dst_dir_fd=parent)
    finally:
        os.close(parent)


def _tidying() -> Budget:
    return Budget(entries=TIDIED, seconds=TIDY_S)


def _replace(root: Root, path: str, draft: Draft, raw: bytes, was: Seen, *, in_place: bool) -> Seen | str:
    """Rename a new file over the original, or rewrite the original; both under git's lock, as git does it."""
    parent, name = root.parent(path), os.path.basename(path)
    lock = f"{name}.lock"
    try:
        try:
            fd = os.open(lock, _NEW, 0o600, dir_fd=parent)
        except FileExistsError:
            return _LOCKED
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(raw)
                if os.geteuid() == 0:
                    os.fchown(file.fileno(), *draft.owner)
                os.fchmod(file.fileno(), draft.mode)
            info = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if (info.st_dev, info.st_ino) != draft.inode or info.st_ctime_ns != was.changed_ns:
                os.unlink(lock, dir_fd=parent)
                return "somebody else has changed it meanwhile"
            if in_place:
                _write_into(name, parent, draft, raw)
                os.unlink(lock, dir_fd=parent)
            else:
                os.rename(lock, name, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError:
            walker.remove(lock, parent)
            raise
        info = os.stat(name, dir_fd=parent, follow_symlinks=False)
        return Seen(was.names, *facts_of(info), racy=True, digest=digest_of(name, parent, info))
    finally:
        os.close(parent)


def _write_into(name: str, parent: int, draft: Draft, raw: bytes) -> None:
    """Empty the file, then write it: so a reader never sees a rest of the old text behind the new one. If the disk is
    full, the old text is written back."""
    fd = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    try:
        info = os.fstat(fd)
        if (info.st_dev, info.st_ino) != draft.inode or info.st_nlink != 1:
            raise OSError(errno.ESTALE, "another file has taken its place")
        os.ftruncate(fd, 0)
        if os.pwrite(fd, raw, 0) != len(raw):
            os.ftruncate(fd, 0)
            os.pwrite(fd, draft.original, 0)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(fd)
