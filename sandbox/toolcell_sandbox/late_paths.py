"""Bind the paths of a session into a cell that was made before the session was known.

A cell can be made ahead, complete but for the paths of its session. Its maker keeps a `Door` to the cell's mount
namespace. When the paths are known, a process from which no cell is forked mounts them (`bring`). A `Lock` has the
Landlock rules of the cell. Rules cannot be widened later, so they are enforced only when the paths are there. Before
that, no foreign code runs in the cell.

This works only for cells of the root path with a root directory of their own, if the maker may enter their mount
namespace (setns(2)).
"""

import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

from . import selftest
from .enter import common_rules, rules_of
from .identity import Identity, idmap_fd
from .kernel.syscalls import AT_FDCWD, attempt, syscall
from .mechanisms import landlock, mounts
from .mechanisms.namespaces import FLAGS
from .network import NoNetwork
from .profile import CellProfile
from .report import SandboxReport
from .view import Bind, View

ENTER = "enter the cell's mount namespace"
"""The step that fails in a container that lets nobody enter a mount namespace."""

_NEEDED = frozenset({"mount_namespace", "pid_namespace", "mount_setattr", "pivot_root", "idmapped_mounts", "pidfd"})


def is_possible(profile: CellProfile, identity: Identity, report: SandboxReport) -> bool:
    """Whether a cell of this kind can be made before its last paths are known."""
    return identity.mode == "root" and isinstance(profile.reach, NoNetwork) and report.on >= _NEEDED


class Door:
    """The maker's access to the mount namespace of an unbound cell (`spawn`). It is closed before a call runs.

    `mounts` is a descriptor that gets POLLPRI when the mounts of the host change (proc_pid_mounts(5)). The cell holds
    copies of the old mounts, so the maker must end it.
    """

    def __init__(self, pid: int, identity: Identity) -> None:
        """`pid` is the cell's init. Raises OSError if it has died."""
        self._identity = identity
        self.id_maps: dict[tuple[int, int], int] = {}
        self.mounts = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.inside = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.close(self.mounts)
            raise

    def prepare(self, owners: Iterable[tuple[int, int]]) -> None:
        """Make the user namespaces for id-mapped mounts of files with these owners. Raises SandboxError."""
        for owner in owners:
            self.id_maps[owner] = idmap_fd(*owner, self._identity.uid, self._identity.gid)

    def close(self) -> None:
        os.close(self.inside)
        os.close(self.mounts)


def bring(inside: int, id_maps: Mapping[tuple[int, int], int], binds: Sequence[Bind]) -> None:
    """Mount these, outermost first, in the cell with the door `inside`. Raises SandboxError, or OSError if a mount
    point cannot be made. Then the caller must end the cell."""
    trees = mounts.open_trees(binds, id_maps, AT_FDCWD)
    try:
        with _in_mounts_of(inside):
            mounts.attach_late(trees)
    finally:
        mounts.close(trees)


@contextmanager
def _in_mounts_of(namespace: int) -> Generator[None, None, None]:
    """Enter another mount namespace for a while. Entering changes the root and working directory; both are restored."""
    own = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    root, here = (os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for path in ("/", "."))
    flag = FLAGS["mount_namespace"]
    try:
        syscall("setns", namespace, flag, step=ENTER, mechanism="mount_namespace")
        try:
            yield
        finally:
            if attempt("setns", own, flag) < 0:
                os._exit(71)  # EX_OSERR, sysexits.h: the process cannot leave that namespace
            os.fchdir(root)
            os.chroot(".")
            os.fchdir(here)
    finally:
        for fd in (own, root, here):
            os.close(fd)


class Lock:
    """The Landlock rules of a cell, made before its first fork, and enforced when its last paths are there."""

    def __init__(self, profile: CellProfile, view: View) -> None:
        """Allow what every such cell may do, and the paths of `view`. Raises SandboxError."""
        self._profile = profile
        self._abi = landlock.abi()
        rules = [*rules_of(view.binds, profile), *common_rules(profile, own_root=True)]
        self._layer = landlock.FileLayer(rules, self._abi) if self._abi > 0 else None

    def allow(self, binds: Iterable[Bind]) -> None:
        """Allow new paths, for all processes that share this lock."""
        if self._layer is not None:
            self._layer.allow(rules_of(binds, self._profile))

    def close(self) -> None:
        """Enforce the rules in this process and its children."""
        if self._layer is not None:
            self._layer.enforce()

    def verify(self, binds: Iterable[Bind]) -> None:
        """Raise SandboxError (step "selftest") unless the rules are in force and the paths are mounted as ordered."""
        selftest.verify_files(binds, self._abi if self._layer is not None else 0)
