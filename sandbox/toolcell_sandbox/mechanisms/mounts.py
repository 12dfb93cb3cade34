"""Make a new root directory that has the paths of a view and nothing else.

The new root is empty and entered at once. The old root stays reachable by one descriptor. Through it, sources are
opened as detached mounts, get their flags and id maps before any process can reach them, and are attached in the new
root, outermost first. Then the old root is dropped.
"""

import errno
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.identity import Identity
from toolcell_sandbox.kernel import descriptors
from toolcell_sandbox.kernel.syscalls import AT_FDCWD, attempt, syscall, write_file
from toolcell_sandbox.limits import Limits
from toolcell_sandbox.view import Bind

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
_ROOT_INODES = 65536  # mount points and links; protected names may need thousands
_IDMAP_CURE = (
    "Put the workspace on a file system with id-mapped mounts (ext4, xfs, btrfs; tmpfs from 6.3), not overlayfs."
)


_mount_attr = struct.Struct("=4Q").pack  # set, clear, propagation, userns_fd
_open_how = struct.Struct("=3Q").pack  # flags, mode, resolve


@dataclass(frozen=True, slots=True)
class Tree:
    """A detached mount and its place in the new root."""

    fd: int
    path: str
    directory: bool
    link: bool = False  # it is a symbolic link, mounted over a file


def make_private() -> None:
    """Stop the propagation of mounts to the host: on most machines / is shared. Call it before any other mount."""
    syscall(
        "mount", "none", "/", None, MS_REC | MS_PRIVATE, None, step="make mounts private", mechanism="mount_namespace"
    )


def open_trees(binds: Iterable[Bind], id_maps: Mapping[tuple[int, int], int], root: int) -> list[Tree]:
    """Detached copies of the binds' sources, opened below the descriptor `root`."""
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
    """Detached copies of the devices of this machine."""
    trees: list[Tree] = []
    for name in DEVICES:
        try:
            fd = clone_tree(f"/dev/{name}", root)
        except SandboxError as error:
            if error.errno != errno.ENOENT:
                raise
            continue  # a container's /dev may have fewer
        set_attributes(fd, ATTR_NOSUID | ATTR_NOEXEC | ATTR_RDONLY)  # a read-only mount still allows writes to a device
        trees.append(Tree(fd, f"/dev/{name}", directory=False))
    return trees


def devices() -> list[str]:
    """The `DEVICES` that exist in /dev. A container may have fewer."""
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
    """A detached copy of the mount at an absolute path without symbolic links, relative to `root`. If `recursive`, it
    has the mounts below too. With `link`, the last component may be a symbolic link."""
    at = open_beneath(root, path, in_root=root != AT_FDCWD, link=link)
    try:
        flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
        return syscall(
            "open_tree", at, "", flags, step=f"open tree {path}", mechanism="mount_setattr", cure=_NEW_API_CURE
        )
    finally:
        os.close(at)


def open_beneath(root: int, path: str, *, in_root: bool = True, link: bool = False) -> int:
    """An O_PATH descriptor of `path`. A symbolic link on the way is an error, because a process could plant one. With
    `link`, the last component may be one."""
    resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | (RESOLVE_IN_ROOT if in_root else 0)
    how = _open_how(os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if link else 0), 0, resolve)
    return syscall("openat2", root, path, how, len(how), step=f"open {path}", mechanism="mount_namespace")


def set_attributes(
    fd: int, attributes: int, path: str = "", flags: int = AT_EMPTY_PATH | AT_RECURSIVE, *, clear: int = 0
) -> None:
    """Set and clear mount attributes of a mount and all mounts below it."""
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
    """Id-map a detached mount. Returns 0 or minus the errno."""
    attr = _mount_attr(ATTR_IDMAP, 0, 0, userns_fd)
    return attempt("mount_setattr", fd, "", AT_EMPTY_PATH | AT_RECURSIVE, attr, len(attr))


def new_root() -> str:
    """Mount the new root, a small tmpfs, over a directory of the old root. Returns the directory."""
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
    """Mount the private /tmp of the new root, with limits of bytes and inodes."""
    flags = MS_NOSUID | MS_NODEV | (0 if allow_exec else MS_NOEXEC)
    options = (
        f"size={limits.scratch_bytes},nr_inodes={limits.scratch_inodes},mode=1777,uid={identity.uid},gid={identity.gid}"
    )
    syscall("mount", "tmpfs", "/tmp", "tmpfs", flags, options, step="mount /tmp", mechanism="mount_namespace")


def attach(trees: Sequence[Tree]) -> None:
    """Attach the mounts in the new root, in their order, and close their descriptors. Makes missing mount points."""
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        for tree in trees:
            _make_mount_point(tree, root)
            _mount(tree, root)
    finally:
        os.close(root)
        close(trees)


def attach_late(trees: Sequence[Tree]) -> None:
    """As `attach`, when the root is read-only and has its scratch directory. Mount points are made through a writable
    copy of the root mount that no process in the cell can reach. Keeps the descriptors of the mounts open."""
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
    """Attach one mount. If the kernel refuses to mount a symbolic link over a file, the file is made read-only
    instead."""
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
    """Make a missing mount point below this descriptor of the root. Follows no symbolic link."""
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
    """Create the host's symbolic links in the new root, with the same targets."""
    for path, text in links:
        if not os.path.lexists(path):
            os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
            os.symlink(text, path)


def forbid_executable_memfds() -> bool:
    """Forbid executable memfds in this pid namespace, as a second layer under the refusal of memfd_create(2). Returns
    False if only the host's root may set the sysctl (rootless). Call it before /proc is mounted with subset=pid."""
    try:
        write_file("/proc/sys/vm/memfd_noexec", "2", step="set memfd_noexec")
    except SandboxError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.ENOENT, errno.EROFS):
            return False
        raise
    return True


def mount_proc(root: str, *, in_group_0: bool = True) -> int:
    """Mount a /proc with the cell's own processes only; each process sees only those that it may trace. Returns 0 or
    minus the errno (EPERM in containers: "too revealing").

    hidepid=2 exempts processes in the kernel's group 0 (proc(5), gid=), so it is used only for cells outside of it.
    With it, other processes do not exist (ENOENT). hidepid=ptraceable would reveal a process that was looked up before.
    """
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    hide = "ptraceable" if in_group_0 else "2"
    return attempt("mount", "proc", f"{root}/proc", "proc", flags, f"hidepid={hide},subset=pid")


def enter_root(root: str) -> None:
    """Make the new root the root directory. The old root is stacked on top of it (pivot_root(2)), where no path leads;
    it is reachable only by a descriptor of `open_root`."""
    os.chdir(root)
    syscall("pivot_root", ".", ".", step="pivot_root", mechanism="pivot_root")
    os.chdir("/")


def open_root() -> int:
    """A descriptor of the present root directory."""
    return descriptors.raised(os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))


def drop_old_root(old: int) -> None:
    """Unmount the old root and everything below it, and make the new root read-only."""
    os.fchdir(old)
    syscall("umount2", ".", MNT_DETACH, step="detach the old root", mechanism="pivot_root")
    os.chdir("/")
    os.close(old)
    set_attributes(AT_FDCWD, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, "/", 0)
