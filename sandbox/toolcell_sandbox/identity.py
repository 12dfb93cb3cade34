"""The user and group ids of a cell, and the user namespaces for them."""

import ctypes
import errno
import os
import signal
from dataclasses import dataclass

from .errors import SandboxError
from .kernel.syscalls import start_holder, syscall, write_file

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Literal

    Mode = Literal["root", "rootless", "userns-root"]

CLONE_NEWUSER = 0x10000000
FIRST_UID = 0x70000000
"""Far above real accounts and the ranges of /etc/subuid, below the signed limit."""
SLOTS = 0x10000
"""The number of uids for the cells of one maker."""
_RANGES = 0x0FFF  # ranges of `SLOTS` uids below the signed limit
CAP_SYS_ADMIN = 21
_FULL_MAP = ["0", "0", "4294967295"]
INOTIFY_QUEUES, INOTIFY_WATCHES = 8, 8_192
"""The most inotify(7) queues and watches of a cell in a user namespace. A user has 128 queues by default."""
_MAX_IDMAPS = 256
_STACK_BYTES = 64 * 1024  # enough for pause(3) and a signal handler
_idmaps: dict[tuple[int, int, int, int], int] = {}


@dataclass(frozen=True)
class Identity:
    """The user id and group id that a cell has, as seen inside it.

    root: no user namespace; the cell becomes `uid`, unprivileged and its own, so RLIMIT_NPROC counts it alone.
    rootless: a user namespace in which the caller's own ids map to themselves.
    userns-root: a user namespace in which `uid` is the caller's uid 0; for roots that cannot use id-mapped mounts.
    """

    mode: "Mode"
    uid: int
    gid: int
    slot: int = 0

    @property
    def user_namespace(self) -> bool:
        """True when entering makes a user namespace."""
        return self.mode != "root"

    @classmethod
    def for_slot(cls, slot: int, mode: "Mode | None" = None) -> "Identity":
        """The identity of the cell with the number `slot`, in the mode that this process can use."""
        mode = mode or detect_mode()
        if mode == "rootless":
            return cls(mode, os.getuid(), os.getgid(), slot)
        return cls(mode, FIRST_UID + slot, FIRST_UID + slot, slot)

    def to_wire(self) -> list[object]:
        """The mode, and ints."""
        return [self.mode, self.uid, self.gid, self.slot]

    @classmethod
    def from_wire(cls, wire: "Sequence[Any]") -> "Identity":
        """The inverse of `to_wire`."""
        mode, uid, gid, slot = wire
        return cls(mode, uid, gid, slot)


def unused_slots(draw: "Callable[[], int]" = lambda: int.from_bytes(os.urandom(4), "big")) -> int:
    """The first of `SLOTS` slots whose uids no visible process has, because RLIMIT_NPROC counts the processes of a user
    on the whole machine. The range is random, so that supervisors in other containers get other ranges.
    """
    taken = {(uid - FIRST_UID) // SLOTS for uid in _uids_in_use()} if os.geteuid() == 0 else set[int]()
    while (drawn := draw() % _RANGES) in taken:
        pass
    return drawn * SLOTS


def _uids_in_use() -> set[int]:
    """The uids of all processes, from the owners of /proc/PID (task_dump_owner in fs/proc/base.c)."""
    found: set[int] = set()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            found.add(os.stat(f"/proc/{pid}").st_uid)
        except FileNotFoundError:
            continue  # it has ended
    return found


def detect_mode() -> "Mode":
    """root needs uid 0 with CAP_SYS_ADMIN in the initial user namespace; any other uid 0 is userns-root."""
    if not os.path.exists("/proc/self/uid_map"):
        raise SandboxError(
            "There is no /proc here, where id maps are written and processes are watched",
            step="detect the mode",
            mechanism="proc",
            cure="Mount it: mount -t proc proc /proc.",
        )
    if os.geteuid() != 0:
        return "rootless"
    with open("/proc/self/status") as status:
        effective = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff:"))
    with open("/proc/self/uid_map") as uid_map:
        initial = uid_map.read().split() == _FULL_MAP
    return "root" if initial and effective >> CAP_SYS_ADMIN & 1 else "userns-root"


def may_be_in_group_0() -> bool:
    """Whether this process is in the kernel's group 0, or in a user namespace, where it cannot know."""
    with open("/proc/self/gid_map") as gid_map:
        return 0 in (os.getegid(), *os.getgroups()) or gid_map.read().split() != _FULL_MAP


def enter_user_namespace(uid: int, gid: int) -> None:
    """Make a user namespace and map the caller's ids to these. The process must be single-threaded."""
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    what = {"mechanism": "user_namespace", "cure": user_namespace_cure()}
    syscall("unshare", CLONE_NEWUSER, step="unshare user namespace", **what)
    write_file("/proc/self/setgroups", "deny", step="deny setgroups", **what)
    write_file("/proc/self/uid_map", f"{uid} {outer_uid} 1", step="write uid_map", **what)
    write_file("/proc/self/gid_map", f"{gid} {outer_gid} 1", step="write gid_map", **what)
    _bound_inotify()


def _bound_inotify() -> None:
    """Bound the inotify queues and watches of this user namespace. The kernel charges them to the user who has made it
    too, so a cell could take all that the supervisor and this user's other programs may have."""
    for name, most in (("instances", INOTIFY_QUEUES), ("watches", INOTIFY_WATCHES)):
        try:
            with open(f"/proc/sys/user/max_inotify_{name}", "wb", buffering=0) as file:
                file.write(b"%d" % most)
        except OSError:  # the kernel has no inotify, or /proc/sys is read-only, as in most containers
            pass


def user_namespace_cure(refused: int = 0) -> str:
    """The remedy on this machine if user namespaces are refused, with this errno if it is known."""
    if known := restriction():
        return known
    if refused == errno.ENOSPC:  # user_namespaces(7): a limit here, or of a namespace above
        return "Raise sysctl user.max_user_namespaces, in a container that of its host."
    return "Run as root with CAP_SYS_ADMIN, or in Docker with a seccomp profile that allows unshare."


def restriction() -> str:
    """The remedy for the sysctl of this machine that restricts user namespaces; "" if none does."""
    if os.statvfs("/proc/self").f_flag & os.ST_RDONLY:
        return "Mount /proc writable: mount -o remount,rw /proc. The id maps of a user namespace are written there."
    for path, bad, cure in (
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "Ubuntu restricts user namespaces: install an AppArmor profile with `userns,` for this interpreter, "
            "or set sysctl kernel.apparmor_restrict_unprivileged_userns=0.",
        ),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "Set sysctl kernel.unprivileged_userns_clone=1."),
        ("/proc/sys/user/max_user_namespaces", "0", "Set sysctl user.max_user_namespaces above 0."),
    ):
        try:
            with open(path) as file:
                if file.read().strip() == bad:
                    return cure
        except OSError:
            continue  # this kernel does not have that sysctl
    return ""


def idmap_fd(owner_uid: int, owner_gid: int, uid: int, gid: int) -> int:
    """A user namespace for MOUNT_ATTR_IDMAP that maps the owner on disk to uid and gid.

    It is made once for each four ids, by a short-lived child, and cached (at most 256). The caller is root.
    """
    key = (owner_uid, owner_gid, uid, gid)
    if key in _idmaps:
        _idmaps[key] = _idmaps.pop(key)  # most recently used last
        return _idmaps[key]
    if len(_idmaps) >= _MAX_IDMAPS:
        os.close(_idmaps.pop(next(iter(_idmaps))))
    _idmaps[key] = fd = _make_idmap(*key)
    return fd


def _make_idmap(owner_uid: int, owner_gid: int, uid: int, gid: int) -> int:
    what = {"step": "make the id map of a mount", "mechanism": "idmapped_mounts", "cure": user_namespace_cure()}
    stack = ctypes.create_string_buffer(_STACK_BYTES)
    holder = start_holder(CLONE_NEWUSER, stack, **what)
    try:
        # The inside of the map is the id on disk, the outside is the id that the mount shows (idmappings.rst).
        write_file(f"/proc/{holder}/uid_map", f"{owner_uid} {uid} 1", **what)
        write_file(f"/proc/{holder}/gid_map", f"{owner_gid} {gid} 1", **what)
        return os.open(f"/proc/{holder}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
