"""A new root that holds what the view names and nothing else.

The root is made empty and entered at once; the old one stays within reach of one descriptor. Through that, sources are
opened as detached trees, with their flags and id maps set before anyone can reach them, and put in their places in the
new root, outermost first. Then the old root is dropped.
"""

import errno
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.identity import Identity
from toolcell_sandbox.kernel.syscalls import AT_FDCWD, attempt, syscall, write_file
from toolcell_sandbox.limits import Limits
from toolcell_sandbox.view import Bind

from . import fds

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 0x4000, 0x40000
MNT_DETACH = 2
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
AT_EMPTY_PATH, AT_RECURSIVE = 0x1000, 0x8000
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC, ATTR_IDMAP = 1, 2, 4, 8, 0x100000
MOVE_FROM_FD, MOVE_TO_FD = 0x04, 0x40
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_IN_ROOT = 0x02, 0x04, 0x10
DEVICES = ("null", "zero", "full", "urandom", "random")
_DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "shm": "/tmp"}
_NEW_API_CURE = "Use a kernel from 5.12 (mount_setattr); in Docker allow the mount system calls in the seccomp profile."
_ROOT_INODES = 65536  # mount points and links, of which protected names may need thousands
_IDMAP_CURE = (
    "Put the workspace on a file system with id-mapped mounts (ext4, xfs, btrfs; tmpfs from 6.3), not overlayfs."
)


_mount_attr = struct.Struct("=4Q").pack  # set, clear, propagation, userns_fd
_open_how = struct.Struct("=3Q").pack  # flags, mode, resolve


@dataclass(frozen=True, slots=True)
class Tree:
    """A detached mount and where it belongs."""

    fd: int
    path: str
    directory: bool
    link: bool = False  # it is a symbolic link, in place of a file


def make_private() -> None:
    """Stop mounts from spreading to the host: on most machines / is shared. Must come before any other mount."""
    syscall(
        "mount", "none", "/", None, MS_REC | MS_PRIVATE, None, step="make mounts private", mechanism="mount_namespace"
    )


def open_trees(binds: Iterable[Bind], id_maps: Mapping[tuple[int, int], int], root: int) -> list[Tree]:
    """Detached copies of what is to be bound, found below the descriptor `root`."""
    trees: list[Tree] = []
    try:
        for bind in binds:
            trees.append(_open_bind(bind, id_maps, root))
    except BaseException:
        close(trees)
        raise
    return trees


def close(trees: Iterable[Tree]) -> None:
    for tree in trees:
        os.close(tree.fd)


def open_devices(root: int) -> list[Tree]:
    """Detached copies of the devices that this machine has."""
    trees: list[Tree] = []
    for name in DEVICES:
        try:
            fd = clone_tree(f"/dev/{name}", root)
        except SandboxError as error:
            if error.errno != errno.ENOENT:
                raise
            continue  # a container's /dev may have fewer
        set_attributes(fd, ATTR_NOSUID | ATTR_NOEXEC | ATTR_RDONLY)  # read-only does not stop writing to a device
        trees.append(Tree(fd, f"/dev/{name}", directory=False))
    return trees


def devices() -> list[str]:
    """Those of `DEVICES` that /dev has; a container's may have fewer."""
    return [name for name in DEVICES if os.access(f"/dev/{name}", os.F_OK)]


def _open_bind(bind: Bind, id_maps: Mapping[tuple[int, int], int], root: int) -> Tree:
    fd = clone_tree(bind.source or bind.path, root, link=bool(bind.source))
    try:
        _prepare(fd, bind, id_maps)
    except BaseException:
        os.close(fd)
        raise
    return Tree(fd, bind.path, bind.directory, link=bool(bind.source) and not bind.directory)


def _prepare(fd: int, bind: Bind, id_maps: Mapping[tuple[int, int], int]) -> None:
    info = os.fstat(fd)
    if (info.st_dev, info.st_ino) != bind.inode:
        raise SandboxError(
            f"A path of the profile was replaced while the cell was made: {bind.path}",
            step="open trees",
            cure="Try again.",
        )
    attributes = ATTR_NOSUID | ATTR_NODEV | (0 if bind.writable else ATTR_RDONLY)
    set_attributes(fd, attributes)
    id_map = id_maps.get(bind.owner) if bind.owner else None
    if id_map is not None and set_id_map(fd, id_map) < 0:
        raise SandboxError(
            f"The file system does not support id-mapped mounts: {bind.path}",
            step="open trees",
            mechanism="idmapped_mounts",
            errno=errno.EINVAL,
            cure=_IDMAP_CURE,
        )


def clone_tree(path: str, root: int = AT_FDCWD, *, recursive: bool = True, link: bool = False) -> int:
    """A detached copy of the mounts at an absolute path without symbolic links, as seen from `root`; or, not
    `recursive`, of that one alone, without what is mounted below. With `link`, the path may itself be a link."""
    at = open_beneath(root, path, in_root=root != AT_FDCWD, link=link)
    try:
        flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
        return syscall(
            "open_tree", at, "", flags, step=f"open tree {path}", mechanism="mount_setattr", cure=_NEW_API_CURE
        )
    finally:
        os.close(at)


def open_beneath(root: int, path: str, *, in_root: bool = True, link: bool = False) -> int:
    """An O_PATH descriptor of `path`, refusing every symbolic link on the way, so that nobody can plant one. With
    `link`, the path may itself be one."""
    resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | (RESOLVE_IN_ROOT if in_root else 0)
    how = _open_how(os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if link else 0), 0, resolve)
    return syscall("openat2", root, path, how, len(how), step=f"open {path}", mechanism="mount_namespace")


def set_attributes(
    fd: int, attributes: int, path: str = "", flags: int = AT_EMPTY_PATH | AT_RECURSIVE, *, clear: int = 0
) -> None:
    """Set mount attributes on a tree and all mounts below it, and clear others."""
    attr = _mount_attr(attributes, clear, MS_PRIVATE, 0)
    step = "set mount attributes"
    syscall(
        "mount_setattr",
        fd,
        path,
        flags,
        attr,
        len(attr),
        step=step,
        mechanism="mount_setattr",
        cure=_NEW_API_CURE,
    )


def set_id_map(fd: int, userns_fd: int) -> int:
    """Id-map a detached tree; 0, or minus the errno."""
    attr = _mount_attr(ATTR_IDMAP, 0, 0, userns_fd)
    return attempt("mount_setattr", fd, "", AT_EMPTY_PATH | AT_RECURSIVE, attr, len(attr))


def new_root() -> str:
    """Mount the new root, a small tmpfs, over a directory of the old one; returns that directory."""
    place = next(path for path in ("/tmp", "/mnt", "/usr") if os.path.isdir(path))
    options = f"size=1m,nr_inodes={_ROOT_INODES},mode=755"
    syscall(
        "mount",
        "tmpfs",
        place,
        "tmpfs",
        MS_NOSUID | MS_NODEV,
        options,
        step="mount new root",
        mechanism="mount_namespace",
    )
    for name in ("dev", "proc", "tmp"):
        os.mkdir(f"{place}/{name}", 0o755)
    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, f"{place}/dev/{name}")
    return place


def mount_scratch(limits: Limits, identity: Identity, *, allow_exec: bool) -> None:
    """The private /tmp of the new root, bounded in bytes and inodes."""
    flags = MS_NOSUID | MS_NODEV | (0 if allow_exec else MS_NOEXEC)
    options = (
        f"size={limits.scratch_bytes},nr_inodes={limits.scratch_inodes},mode=1777,uid={identity.uid},gid={identity.gid}"
    )
    syscall("mount", "tmpfs", "/tmp", "tmpfs", flags, options, step="mount /tmp", mechanism="mount_namespace")


def attach(trees: Sequence[Tree]) -> None:
    """Put the trees in their places in the new root, in order, and close their descriptors. Missing mount points are
    made."""
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        for tree in trees:
            _make_mount_point(tree, root)
            _mount(tree, root)
    finally:
        os.close(root)
        close(trees)


def attach_late(trees: Sequence[Tree]) -> None:
    """As `attach`, in a root that is read-only by now and has its scratch: the root is written to through a copy of
    its mount that nobody in it can reach. Leaves the descriptors of the trees open."""
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    writable = -1
    try:
        writable = clone_tree("/", recursive=False)
        set_attributes(writable, 0, clear=ATTR_RDONLY)
        for tree in trees:
            _make_mount_point(tree, root if tree.path.startswith("/tmp/") else writable)
            _mount(tree, root)
    finally:
        os.close(root)
        if writable >= 0:
            os.close(writable)


def _mount(tree: Tree, root: int) -> None:
    """A link in place of a file is more than a kernel need do: where it refuses, the file is read-only instead."""
    at = open_beneath(root, tree.path)
    instead = -1
    try:
        flags = MOVE_FROM_FD | MOVE_TO_FD
        if tree.link:
            if attempt("move_mount", tree.fd, "", at, "", flags) >= 0:
                return
            clone = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH
            instead = syscall("open_tree", at, "", clone, step=f"open tree {tree.path}", mechanism="mount_setattr")
            set_attributes(instead, ATTR_NOSUID | ATTR_NODEV | ATTR_RDONLY)
        fd = tree.fd if instead < 0 else instead
        syscall("move_mount", fd, "", at, "", flags, step=f"mount {tree.path}", mechanism="mount_setattr")
    finally:
        os.close(at)
        if instead >= 0:
            os.close(instead)


def _make_mount_point(tree: Tree, root: int) -> None:
    """Make it below this descriptor of the root, where it is missing. Follows no symbolic link."""
    if os.path.lexists(tree.path):
        return
    *parents, name = tree.path.strip("/").split("/")
    at = os.open(".", _DIRECTORY, dir_fd=root)
    try:
        for parent in parents:
            try:
                os.mkdir(parent, 0o755, dir_fd=at)
            except FileExistsError:
                pass
            below = os.open(parent, _DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
        if tree.directory:
            os.mkdir(name, 0o755, dir_fd=at)
        else:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444, dir_fd=at))
    finally:
        os.close(at)


def make_links(links: Iterable[tuple[str, str]]) -> None:
    """Make symbolic links of the host again, with the same text."""
    for path, text in links:
        if not os.path.lexists(path):
            os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
            os.symlink(text, path)


def forbid_executable_memfds() -> bool:
    """Second layer under the refusal of memfd_create: no executable memfd in this pid namespace. False where only
    the host's root may write the switch (rootless). Must come before /proc is replaced by one with subset=pid."""
    try:
        write_file("/proc/sys/vm/memfd_noexec", "2", step="set memfd_noexec")
    except SandboxError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.ENOENT, errno.EROFS):
            return False
        raise
    return True


def mount_proc(root: str, *, in_group_0: bool = True) -> int:
    """A /proc with the cell's own processes only, and of those, for each process, what it may trace; 0, or minus the
    errno (EPERM in containers: "too revealing").

    hidepid=2 exempts whoever is in the kernel's group 0 (proc(5), gid=), so it is for cells that are not. There the
    others do not exist (ENOENT), whereas hidepid=ptraceable tells that a process is there, once one has looked at it.
    """
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    hide = "ptraceable" if in_group_0 else "2"
    return attempt("mount", "proc", f"{root}/proc", "proc", flags, f"hidepid={hide},subset=pid")


def enter_root(root: str) -> None:
    """Make the new root the root. The old one lies on top of it (pivot_root(2)), out of the way of every path, and is
    reached through a descriptor of it, such as `open_root` gave before."""
    os.chdir(root)
    syscall("pivot_root", ".", ".", step="pivot_root", mechanism="pivot_root")
    os.chdir("/")


def open_root() -> int:
    """A descriptor of the root that is in force now."""
    return fds.raised(os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))


def drop_old_root(old: int) -> None:
    """Drop the old root and everything on it, and make the new one itself read-only."""
    os.fchdir(old)
    syscall("umount2", ".", MNT_DETACH, step="detach the old root", mechanism="pivot_root")
    os.chdir("/")
    os.close(old)
    set_attributes(AT_FDCWD, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, "/", 0)
