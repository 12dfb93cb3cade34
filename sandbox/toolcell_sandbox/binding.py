"""Paths that come into a cell that is locked down already, when it turns out whose it is.

A cell can be made whole before anybody needs it, all but the paths of the session that it will serve. Its maker keeps a
`Door` to its mount namespace, and puts them in place when they are known. The cell's processes have their rules about
files (Landlock) from a `Lock`: rules cannot be widened, so there are none until the paths are there, and nothing is run
in the cell by then that its owner has not run outside of it.

Only for cells of the root path with a root of their own, whose maker may enter what it has made (setns(2)).
"""

import os
from collections.abc import Generator, Iterable, Sequence
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
"""The step that fails where a container lets nobody enter a mount namespace."""

_NEEDED = frozenset({"mount_namespace", "pid_namespace", "mount_setattr", "pivot_root", "idmapped_mounts", "pidfd"})


def is_possible(profile: CellProfile, identity: Identity, report: SandboxReport) -> bool:
    """Whether a cell like this can be made before its last paths are known."""
    return identity.mode == "root" and isinstance(profile.reach, NoNetwork) and report.on >= _NEEDED


class Door:
    """The maker's way into the mounts of a cell that is unbound (`spawn`), and only there before a call has run.

    `mounts` is a descriptor that has POLLPRI once what is mounted here has changed (proc_pid_mounts(5)): the cell holds
    copies of what was, so it is to be ended.
    """

    def __init__(self, pid: int, identity: Identity) -> None:
        """`pid` is the cell's init. OSError where it has died."""
        self._identity = identity
        self.mounts = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._inside = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.close(self.mounts)
            raise

    def prepare(self, owners: Iterable[tuple[int, int]]) -> None:
        """Have ready what mounting files of these owners takes."""
        for owner in owners:
            self._id_map(owner)

    def bring(self, binds: Sequence[Bind]) -> None:
        """Put these in place, outermost first. Raises SandboxError, or OSError where a mount point cannot be made: the
        cell is to be ended then."""
        id_maps = {owner: self._id_map(owner) for bind in binds if (owner := bind.owner)}
        trees = mounts.open_trees(binds, id_maps, AT_FDCWD)
        try:
            with _in_mounts_of(self._inside):
                mounts.attach_late(trees)
        finally:
            mounts.close(trees)

    def close(self) -> None:
        os.close(self._inside)
        os.close(self.mounts)

    def _id_map(self, owner: tuple[int, int]) -> int:
        return idmap_fd(*owner, self._identity.uid, self._identity.gid)


@contextmanager
def _in_mounts_of(namespace: int) -> Generator[None, None, None]:
    """This process in another mount namespace. Entering it changes root and working directory: both are put back."""
    own = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    root, here = (os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for path in ("/", "."))
    flag = FLAGS["mount_namespace"]
    try:
        syscall("setns", namespace, flag, step=ENTER, mechanism="mount_namespace")
        try:
            yield
        finally:
            if attempt("setns", own, flag) < 0:
                os._exit(71)  # EX_OSERR, sysexits.h: there is no going on in there
            os.fchdir(root)
            os.chroot(".")
            os.fchdir(here)
    finally:
        for fd in (own, root, here):
            os.close(fd)


class Lock:
    """In the cell, made before anything is forked: the rules about files, for when its last paths have come."""

    def __init__(self, profile: CellProfile, view: View) -> None:
        """Allows what every such cell may do, with the paths of `view` among it. Raises SandboxError."""
        self._profile = profile
        self._abi = landlock.abi()
        rules = [*rules_of(view.binds, profile), *common_rules(profile, own_root=True)]
        self._layer = landlock.FileLayer(rules, self._abi) if self._abi > 0 else None

    def allow(self, binds: Iterable[Bind]) -> None:
        """Allow paths that have come, for all who share this."""
        if self._layer is not None:
            self._layer.allow(rules_of(binds, self._profile))

    def close(self) -> None:
        """Enforce the rules, in this process and its children."""
        if self._layer is not None:
            self._layer.enforce()

    def verify(self, binds: Iterable[Bind]) -> None:
        """Raise SandboxError (step "selftest") unless they are in force, and the paths as they are to be."""
        selftest.verify_files(binds, self._abi if self._layer is not None else 0)
