"""Find the places where control groups can be made (v1 hierarchies, delegated v2 groups), and make groups there."""

import errno
import os
import time
from collections.abc import Iterable

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.syscalls import write_file
from toolcell_sandbox.limits import Limits

from .cgroups import Cgroup, read_file

CONTROLLERS = frozenset({"memory", "pids"})
"""The controllers that a tree must have."""
OPTIONAL = ("cpuacct", "cpu")
"""Controllers that are used if they are there. Each needs those before it. Groups of v2 always count their CPU time."""
DIVIDE_TRIES = 8  # a child may be forked between the reading of a group's members and their move
_PREFIX = "toolcell-"


class CgroupTree:
    """The groups below which this process may make groups: its own in each v1 hierarchy, or a delegated v2 group."""

    def __init__(self, bases: dict[str, str]) -> None:
        self._bases = bases

    def __repr__(self) -> str:
        return f"<CgroupTree {self._bases}>"

    @property
    def controllers(self) -> frozenset[str]:
        """The controllers of a group of this tree: `CONTROLLERS`, and those of `OPTIONAL` that it has."""
        if "unified" not in self._bases:
            return frozenset(self._bases)
        return CONTROLLERS | {"cpuacct"} | (_passed_on(self._bases["unified"]) & set(OPTIONAL))

    @classmethod
    def detect(cls) -> "CgroupTree | None":
        """The tree if groups with memory and process limits can be made here, else None. Tries by making one.

        In a v2 group that was delegated to this process alone (`systemd-run --user --scope -p Delegate=yes`), the
        process and its children move to a group `toolcell-supervisor` below it: a group that has processes cannot
        pass controllers on (cgroups(7), "no internal processes").
        """
        mounts = list(_mounts())
        v1 = [_v1_bases(mounts, CONTROLLERS.union(OPTIONAL[:number])) for number in range(len(OPTIONAL), -1, -1)]
        for bases in (_v2_bases(mounts), *v1):
            if not bases:
                continue
            tree = cls(bases)
            try:
                group = tree.create(f"probe-{time.monotonic_ns()}", Limits())
            except (SandboxError, OSError):
                continue  # it is not writable
            group.remove()
            return tree
        return None

    def create(self, name: str, limits: Limits) -> Cgroup:
        """A new group `toolcell-<pid>-<pid namespace>-<name>` with these limits."""
        full = f"{group_prefix(os.getpid())}{name}"
        directories = {controller: os.path.join(base, full) for controller, base in self._bases.items()}
        group = Cgroup(directories)
        made: list[str] = []
        try:
            for path in group.paths:
                os.mkdir(path)
                made.append(path)
            group.inherit_cores()
            group.set_limits(limits)
        except (OSError, SandboxError):
            for path in made:
                os.rmdir(path)
            raise
        return group

    def sweep_stale(self) -> list[str]:
        """Remove the empty groups of dead supervisors of this pid namespace; returns their paths. Supervisors of other
        pid namespaces (containers on the same hierarchy) are left alone, because they may live."""
        removed: list[str] = []
        for base in set(self._bases.values()):
            _sweep(base, removed)
        return removed


def _sweep(base: str, removed: list[str]) -> None:
    """Remove the empty groups of dead supervisors in `base`, and append their paths to `removed`."""
    namespace = str(_pid_namespace())
    for entry in os.listdir(base):
        owner, _, rest = entry.removeprefix(_PREFIX).partition("-")
        ours = entry.startswith(_PREFIX) and owner.isdecimal() and rest.partition("-")[0] == namespace
        if not ours or _is_alive(int(owner)):
            continue
        try:
            os.rmdir(os.path.join(base, entry))
        except OSError as error:
            if error.errno in (errno.EBUSY, errno.ENOENT, errno.ENOTEMPTY):
                continue  # still in use, or another supervisor swept it
            raise
        removed.append(os.path.join(base, entry))


def remove_stale(path: str, inode: tuple[int, int], pid: int) -> bool:
    """Kill the processes of a group that a dead supervisor with this pid made, and remove it. Returns whether it was
    there.

    `inode` is its device and inode number. Raises SandboxError or OSError if it cannot be emptied or removed, and
    PermissionError if the path is not a cgroup of that supervisor.
    """
    base, name = os.path.split(path)
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return False
    if (info.st_dev, info.st_ino) != inode:
        return False  # a newer group with the same name
    is_cgroup = any(os.stat(mount_point).st_dev == info.st_dev for _kind, mount_point, _root, _options in _mounts())
    if not is_cgroup or not name.startswith(f"{_PREFIX}{pid}-") or os.path.realpath(base) != base:
        raise PermissionError(errno.EPERM, "it is no cgroup of that supervisor", path)
    group = Cgroup({"unified": path})
    try:
        group.kill()
        group.remove()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):  # another supervisor has removed it meanwhile
            return False
        raise
    return True


def group_prefix(pid: int) -> str:
    """The prefix of the names of groups made by `pid` of this pid namespace."""
    return f"{_PREFIX}{pid}-{_pid_namespace()}-"


def _pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it belongs to another user
    return True


Mount = tuple[str, str, str, list[str]]


def _mounts() -> Iterable[Mount]:
    """The cgroup mounts: kind, mount point, root within the hierarchy, options (v1: the controllers)."""
    for line in read_file("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        kind, _source, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            fields = left.split(" ")
            yield kind, fields[4], fields[3], options.split(",")


def _own(controller: str) -> str | None:
    for line in read_file("/proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if (number == "0") if controller == "unified" else (controller in controllers.split(",")):
            return path
    return None


def _below(mount_point: str, root: str, own: str | None) -> str | None:
    """The directory of this process's own group, if the mount shows it (a container sees only its own root)."""
    if own is None:
        return None
    relative = own.removeprefix(root.rstrip("/")) if own.startswith(root) else "/"
    path = os.path.normpath(mount_point + "/" + relative)
    return path if os.path.isdir(path) else mount_point


def _v1_bases(mounts: Iterable[Mount], controllers: frozenset[str]) -> dict[str, str] | None:
    bases: dict[str, str] = {}
    for kind, mount_point, root, options in mounts:
        used = controllers.intersection(options) if kind == "cgroup" else set[str]()
        for controller in used | {"cpuset"}.intersection(options if used else ()):  # else the group takes no process
            path = _below(mount_point, root, _own(controller))
            if path is not None:
                bases[controller] = path
    return bases if bases.keys() >= CONTROLLERS else None


def _v2_bases(mounts: Iterable[Mount]) -> dict[str, str] | None:
    for kind, mount_point, root, _options in mounts:
        own = _below(mount_point, root, _own("unified")) if kind == "cgroup2" else None
        if own is None or not os.path.exists(f"{own}/cgroup.subtree_control"):
            continue  # not cgroup v2, or another mount hides it
        base = _to_divide(own, mount_point)
        if base is not None:
            return {"unified": base}
    return None


def _to_divide(own: str, mount_point: str) -> str | None:
    """The group in which a process with the group `own` may make groups for cells.

    It is `own` or its parent, if that is delegated. Groups above have another manager, which may withdraw controllers
    (systemd's single-writer rule, https://systemd.io/CGROUP_DELEGATION). If nothing is delegated, root uses the nearest
    ancestor that passes the controllers on.
    """
    above = os.path.dirname(own) if own != mount_point else own
    for path in dict.fromkeys((own, above)):
        if is_delegated(path, mount_point) and (_passed_on(path) >= CONTROLLERS or divide(path, CONTROLLERS)):
            if "cpu" not in _passed_on(path):
                divide(path, frozenset({"cpu"}))  # if its manager has delegated that too
            return path
    while os.geteuid() == 0 and own.startswith(mount_point):
        if _passed_on(own) >= CONTROLLERS:
            return own
        own = os.path.dirname(own)
    return None


def _passed_on(path: str) -> set[str]:
    return set(read_file(f"{path}/cgroup.subtree_control").split())


def is_delegated(path: str, mount_point: str) -> bool:
    """Whether a v2 group is delegated: its manager says so, it is the top of the visible tree, or it belongs to this
    user and its parent does not.
    """
    for name in ("user.delegate", "trusted.delegate"):  # systemd from 251, and before
        try:
            if os.getxattr(path, name) == b"1":
                return True
        except OSError as error:
            if error.errno not in (errno.ENODATA, errno.ENOTSUP, errno.EPERM):
                raise
    if path == mount_point:
        return os.stat(path).st_uid == os.geteuid()
    me = os.geteuid()
    return me != 0 and os.stat(path).st_uid == me != os.stat(os.path.dirname(path)).st_uid


def divide(path: str, controllers: frozenset[str]) -> bool:
    """Make a v2 group pass `controllers` on to the groups below it. Returns whether it does.

    Its processes are moved to the group `toolcell-supervisor` below it, if all of them are this process or its
    descendants. Otherwise nothing is moved.
    """
    if not controllers <= set(read_file(f"{path}/cgroup.controllers").split()):
        return False
    wanted = " ".join(f"+{name}" for name in sorted(controllers))
    for _ in range(DIVIDE_TRIES):
        try:
            write_file(f"{path}/cgroup.subtree_control", wanted, step="pass controllers on", mechanism="cgroup")
            return True
        except SandboxError as error:
            if error.errno != errno.EBUSY:
                return False  # it is not writable
        pids = [int(pid) for pid in read_file(f"{path}/cgroup.procs").split()]
        if not all(_descends_from(os.getpid(), pid) for pid in pids):
            return False
        leaf = f"{path}/{_PREFIX}supervisor"
        os.makedirs(leaf, exist_ok=True)
        for pid in pids:
            try:
                write_file(f"{leaf}/cgroup.procs", str(pid), step="move to a group of our own", mechanism="cgroup")
            except SandboxError as error:
                if error.errno != errno.ESRCH:  # it has ended meanwhile
                    raise
    return False


def _descends_from(ancestor: int, pid: int) -> bool:
    while pid > 1 and pid != ancestor:
        try:
            stat = read_file(f"/proc/{pid}/stat")
        except (FileNotFoundError, ProcessLookupError):
            return True  # it has ended
        pid = int(stat.rpartition(")")[2].split()[1])
    return pid == ancestor
