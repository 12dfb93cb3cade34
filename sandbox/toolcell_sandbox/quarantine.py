"""Moving things out of a tree that hostile processes may write to: by directory descriptors, following no link."""

import errno
import os
import shutil
import stat
import tempfile
from types import TracebackType

from .errors import SandboxError
from .kernel.syscalls import AT_FDCWD
from .mechanisms.mounts import open_beneath

COPY_BYTES = 64 * 1024 * 1024
COPY_ENTRIES = 10_000
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMLINK)
_WALK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Tree:
    """A tree's root, held open. Paths are relative to it."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._fd = -1

    def __enter__(self) -> "Tree":
        self._fd = open_beneath(AT_FDCWD, self.root, in_root=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def parent(self, path: str, *, make: bool = False) -> int:
        """A descriptor of the directory that `path` is in, which is made if asked to. The caller closes it."""
        fd = os.dup(self._fd)
        for part in path.split("/")[:-1]:
            try:
                below = os.open(part, _WALK, dir_fd=fd)
            except FileNotFoundError:
                if not make:
                    os.close(fd)
                    raise
                below = self._make(part, fd)
            except OSError:
                os.close(fd)
                raise
            os.close(fd)
            fd = below
        return fd

    def _make(self, name: str, parent: int) -> int:
        owner = os.fstat(self._fd)
        os.mkdir(name, 0o755, dir_fd=parent)
        below = os.open(name, _WALK, dir_fd=parent)
        if owner.st_uid != os.geteuid():
            os.chown(f"/proc/self/fd/{below}", owner.st_uid, owner.st_gid)
        return below

    def put_back(self, path: str, home: str) -> bool:
        """Move `path` to where it belongs, unless something is there. Says whether it was."""
        source = self.parent(path)
        try:
            try:
                target = self.parent(home, make=True)
            except NotADirectoryError:
                return False
            try:
                if _exists(os.path.basename(home), target):
                    return False
                move(os.path.basename(path), source, os.path.basename(home), target)
                return True
            except OSError as error:
                if error.errno != errno.EINVAL:  # its home is below it now
                    raise
                return False
            finally:
                os.close(target)
        finally:
            os.close(source)


class Quarantine:
    """A directory for what was taken out of workspaces, made at the first need, readable by its owner alone.

    `directory` is where; without it, a new one among the temporary files. Nothing in it is ever deleted by us.
    """

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory
        self._made = ""
        self._taken = 0

    @property
    def made(self) -> str:
        """The directory that it has made for itself; "" where there is none, or it was given one."""
        return self._made if self._directory is None else ""

    def take(self, tree: Tree, path: str) -> str:
        """Move `path` of a tree here; returns its new place.

        Where that cannot be (no room, which a call can see to; or another file system, and it is too large or too odd
        to be copied), it stays beside its place under a name that nothing reads, which is returned.
        """
        name, parent = os.path.basename(path), -1
        try:
            parent = tree.parent(path)
            place = self._shelved(tree.root, name, parent)
            if place:
                return place
            beside = f"toolcell-quarantined-{os.urandom(8).hex()}"
            move(name, parent, beside, parent)
            return os.path.join(tree.root, os.path.dirname(path), beside)
        except FileNotFoundError:
            return ""  # it has gone by itself
        except OSError as error:
            raise SandboxError(
                f"A protected name could not be moved out of the workspace: {tree.root}/{path}",
                step="quarantine",
                mechanism="protected_names",
                errno=error.errno or 0,
                cure="Look at it and remove it.",
            ) from error
        finally:
            if parent >= 0:
                os.close(parent)

    def _shelved(self, root: str, name: str, parent: int) -> str:
        """Move it to a shelf of its own and say where that is; "" where that cannot be."""
        try:
            shelf, fd = self._new_shelf(root)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            return ""
        place = f"{shelf}/{name}"
        try:
            move(name, parent, name, fd)
            return place
        except OSError as error:
            if error.errno not in (errno.EXDEV, *_NO_ROOM):
                raise
        finally:
            os.close(fd)
        return place if _copied(name, parent, place) else ""

    def _new_shelf(self, root: str) -> tuple[str, int]:
        """A new directory in here for one thing, so that no two names meet."""
        if not self._made:
            if self._directory is None:
                self._made = os.path.realpath(tempfile.mkdtemp(prefix="toolcell-quarantine-"))
            else:
                os.makedirs(self._directory, 0o700, exist_ok=True)
                self._made = os.path.realpath(self._directory)
        if self._made == root or self._made.startswith(root.rstrip("/") + "/"):
            raise OSError(errno.EINVAL, "the quarantine lies in the workspace")
        shelf = tempfile.mkdtemp(prefix="", dir=self._made)
        return shelf, os.open(shelf, _WALK)


def move(name: str, parent: int, new_name: str, new_parent: int) -> None:
    """rename(2) between open directories, also where the call took its own rights to them away."""
    try:
        os.rename(name, new_name, src_dir_fd=parent, dst_dir_fd=new_parent)
        return
    except PermissionError:
        _allow(parent)
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            moved = os.open(name, _WALK, dir_fd=parent)  # to rename a directory is to write its ".."
            try:
                _allow(moved)
            finally:
                os.close(moved)
    os.rename(name, new_name, src_dir_fd=parent, dst_dir_fd=new_parent)


def _allow(directory: int) -> None:
    info = os.fstat(directory)
    if info.st_uid == os.geteuid():
        os.chmod(f"/proc/self/fd/{directory}", stat.S_IMODE(info.st_mode) | 0o700)


def _exists(name: str, parent: int) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _copied(name: str, parent: int, place: str) -> bool:
    """Copy to another file system, then unlink; False, with nothing moved, for what is too large or too odd."""
    source = f"/proc/self/fd/{parent}/{name}"
    if not _is_small(source):
        return False
    try:
        if os.path.isdir(source) and not os.path.islink(source):
            shutil.copytree(source, place, symlinks=True)
        else:
            shutil.copy2(source, place, follow_symlinks=False)
    except (OSError, shutil.Error):  # the disk is full, or the tree changes under our hands
        shutil.rmtree(place, ignore_errors=True)
        return False
    if os.path.isdir(source) and not os.path.islink(source):
        shutil.rmtree(name, dir_fd=parent)
    else:
        os.unlink(name, dir_fd=parent)
    return True


def _is_small(path: str) -> bool:
    """Whether it is regular files, directories and links, within the bounds of a copy."""
    left_bytes, left_entries = COPY_BYTES, COPY_ENTRIES
    todo = [path]
    while todo:
        each = todo.pop()
        info = os.lstat(each)
        left_bytes -= info.st_size
        left_entries -= 1
        if left_bytes < 0 or left_entries < 0:
            return False
        if stat.S_ISDIR(info.st_mode):
            todo += [entry.path for entry in os.scandir(each)]
        elif not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
            return False
    return True
