"""Probe the mechanisms of this kernel for this user. Each is tried in a child process."""

import errno
import os
from collections.abc import Callable, Iterator
from functools import partial

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.identity import (
    FIRST_UID,
    Identity,
    detect_mode,
    enter_user_namespace,
    idmap_fd,
    restriction,
    user_namespace_cure,
)
from toolcell_sandbox.mechanisms import capabilities, landlock, lifetime, mounts, namespaces, rlimits, seccomp
from toolcell_sandbox.mechanisms.bpf import ALLOW, Return, assemble
from toolcell_sandbox.mechanisms.cgroup_tree import CgroupTree
from toolcell_sandbox.report import NAMES, Mechanism, SandboxReport

from .syscalls import attempt, fork, syscall

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from toolcell_sandbox.identity import Mode

_CURES = {
    **dict.fromkeys(namespaces.FLAGS, namespaces.CURE),
    "mount_setattr": "Use a kernel from 5.12; in Docker allow the mount system calls in the seccomp profile.",
    "idmapped_mounts": "Use a kernel from 5.12 and a file system with id-mapped mounts, not overlayfs.",
    "pivot_root": namespaces.CURE,
    "proc": "Unmask /proc of the container, or do without.",
    "landlock": "Boot a kernel from 5.13 with Landlock in the lsm= list.",
    "landlock_net": "Use a kernel from 6.7.",
    "landlock_scope": "Use a kernel from 6.12.",
    "seccomp": "Use a kernel with CONFIG_SECCOMP_FILTER on x86_64 or aarch64.",
    "no_new_privs": "Use a kernel from 3.5.",
    "close_range": "Use a kernel from 5.9.",
    "pidfd": "Use a kernel from 5.3.",
}
_MAY_MOUNT = "AppArmor must let it mount, and an outer Landlock sandbox does not."
_DEPENDENTS = {
    "pid_namespace": ("proc",),
    "mount_namespace": ("mount_setattr", "idmapped_mounts", "pivot_root", "proc"),
    "user_namespace": (*namespaces.FLAGS, "mount_setattr", "pivot_root", "proc"),
}
_SUBSTITUTED = {"proc": "cells have no /proc"}


def probe(mode: "Mode | None" = None) -> SandboxReport:
    """Try every mechanism for an identity mode (default: the one this process can use).

    The caller must be single-threaded: it forks, and a user namespace needs a single thread. It takes about 10 ms.
    Raises SandboxError without /proc, which the probe needs.
    """
    return start_probe(mode)()


def start_probe(mode: "Mode | None" = None) -> Callable[[], SandboxReport]:
    """Start `probe` in a child. Returns a function that waits for the child and returns the report."""
    mode = mode or detect_mode()
    lifetime.collect_children()
    id_map: int | SandboxError | None = None
    if mode == "root":
        try:
            id_map = idmap_fd(0, 0, FIRST_UID, FIRST_UID)
        except SandboxError as error:
            id_map = error
    findings = _in_child(mode, id_map)
    return lambda: _reported(mode, id_map, findings())


def _reported(mode: "Mode", id_map: "int | SandboxError | None", findings: "list[Finding]") -> SandboxReport:
    found = {name: (number, detail) for name, number, detail in findings}
    cures = {**_CURES, "user_namespace": user_namespace_cure(found.get("user_namespace", (0, ""))[0])}
    if found["mount_namespace"][1]:  # it can be made, but mounts in it are refused
        cures.update(dict.fromkeys(namespaces.FLAGS, f"{namespaces.CURE} {_MAY_MOUNT}"))
    if mode != "root" and (known := restriction()):
        cures.update(dict.fromkeys(namespaces.FLAGS, known))
    if isinstance(id_map, SandboxError):
        cures["idmapped_mounts"] = id_map.cure
    for cause, dependents in _DEPENDENTS.items():  # the most general cause last: its cure is that of all
        if found.get(cause, (0, ""))[0]:
            cures.update(dict.fromkeys(dependents, cures[cause]))
    mechanisms = [_judge(name, *found[name], cures[name]) for name in NAMES if name in found]
    return SandboxReport((*mechanisms, _cgroup(mode)), mode)


def _judge(name: str, number: int, detail: str, cure: str) -> Mechanism:
    if number == 0:
        return Mechanism(name, "on", detail)
    if name in _SUBSTITUTED:
        return Mechanism(name, "substituted", f"{_SUBSTITUTED[name]}: {os.strerror(number)}", number, cure)
    return Mechanism(name, "missing", detail or os.strerror(number), number, cure)


def _cgroup(mode: "Mode") -> Mechanism:
    tree = CgroupTree.detect()
    if tree is not None:
        return Mechanism("cgroup", "on", " ".join(sorted(tree.controllers)))
    if mode == "userns-root" and not rlimits.bind_processes():
        detail = "the limit of processes does not bind uid 0, so there is no substitute for a pids cgroup"
        cure = "Make memory and pids cgroups writable in the container, or run in it as an ordinary user."
        return Mechanism("cgroup", "missing", detail, 0, cure)
    detail = "limits of each process, and the supervisor watches the whole cell"
    cure = "Start under `systemd-run --user --scope -p Delegate=yes`, or make memory and pids cgroups writable."
    return Mechanism("cgroup", "substituted", detail, 0, cure)


Finding = tuple[str, int, str]


def _in_child(mode: "Mode", id_map: "int | SandboxError | None") -> Callable[[], list[Finding]]:
    """Start the child. Returns a function that waits for its findings."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    child = fork("fork the probe")
    if child == 0:
        try:
            os.close(read_end)
            lines = [f"{name}\t{number}\t{detail}" for name, number, detail in _findings(mode, id_map)]
            os.write(write_end, "\n".join(lines).encode())
            os._exit(0)
        except BaseException as error:
            os.write(write_end, f"!{error!r}".encode())
        finally:
            os._exit(1)
    os.close(write_end)
    return lambda: _findings_of(child, read_end)


def _findings_of(child: int, read_end: int) -> list[Finding]:
    with open(read_end) as pipe:
        text = pipe.read()
    _pid, status = os.waitpid(child, 0)
    if status or text.startswith("!"):
        raise SandboxError(f"Probing the kernel failed: {text or status}", step="probe", cure="Report this.")
    findings = [line.split("\t") for line in text.split("\n")]
    return [(name, int(number), detail) for name, number, detail in findings]


def _findings(mode: "Mode", id_map: "int | SandboxError | None") -> Iterator[Finding]:
    attempt("prctl", 4, 1, 0, 0, 0)  # PR_SET_DUMPABLE; the filter refuses it in a cell
    entered = 0
    if mode != "root":
        identity = Identity.for_slot(0, mode)
        entered, detail = _tried(partial(enter_user_namespace, identity.uid, identity.gid))
        yield "user_namespace", entered, detail
    off: set[str] = set()
    for name, flag in namespaces.FLAGS.items():
        refused, detail = (errno.EPERM, "needs the user namespace") if entered else _namespace(name, flag)
        if refused:
            off.add(name)
        yield name, refused, detail
    if "mount_namespace" in off:
        for name in ("mount_setattr", "pivot_root", "proc", *(("idmapped_mounts",) if mode == "root" else ())):
            yield name, errno.EPERM, "needs the mount namespace"
    else:
        yield from _mount_findings(id_map, pid_namespace="pid_namespace" not in off)
    version = landlock.abi()
    yield "landlock", max(0, -version), f"ABI {version}" if version > 0 else ""
    yield "landlock_net", 0 if version >= 4 else errno.EOPNOTSUPP, "" if version >= 4 else "needs ABI 4"
    yield "landlock_scope", 0 if version >= 6 else errno.EOPNOTSUPP, "" if version >= 6 else "needs ABI 6"
    yield "close_range", max(0, -attempt("close_range", 0xFFFFFFF0, 0xFFFFFFFF, 0)), ""
    yield "pidfd", max(0, -attempt("pidfd_open", os.getpid(), 0)), ""
    yield "no_new_privs", *_tried(capabilities.no_new_privileges)
    yield "seccomp", *_tried(_load_a_filter)


def _load_a_filter() -> None:
    seccomp.program(allow_exec=False)  # raises if there is no table for this machine
    seccomp.load(assemble([Return(ALLOW)]))


def _namespace(name: str, flag: int) -> tuple[int, str]:
    """Whether the namespace can be made and used: AppArmor and Landlock may allow it and refuse mounts in it."""
    refused = -attempt("unshare", flag)
    if refused:
        return refused, ""
    if name == "mount_namespace":
        return _tried(_mount_and_unmount)
    return _tried(lambda: namespaces.name_host("toolcell")) if name == "uts_namespace" else (0, "")


def _mount_and_unmount() -> None:
    mounts.make_private()
    place = mounts.new_root()
    syscall("umount2", place, mounts.MNT_DETACH, step=f"unmount {place}")


def _mount_findings(id_map: "int | SandboxError | None", *, pid_namespace: bool) -> Iterator[Finding]:
    number, detail, tree = 0, "", -1
    try:
        tree = mounts.clone_tree("/dev/null")
        mounts.set_attributes(tree, mounts.ATTR_RDONLY | mounts.ATTR_NOSUID)
    except SandboxError as error:
        number, detail = error.errno or errno.EINVAL, error.what
    yield "mount_setattr", number, detail
    if id_map is not None:
        yield "idmapped_mounts", *_idmapped(id_map)
    root = mounts.new_root()
    yield (
        "proc",
        _fresh_proc(root) if pid_namespace else errno.EPERM,
        "" if pid_namespace else "needs the pid namespace",
    )
    os.chdir(root)
    refused = -attempt("pivot_root", ".", ".")
    yield "pivot_root", refused, ""
    if not refused:
        syscall("umount2", ".", mounts.MNT_DETACH, step="detach the old root")
        os.chdir("/")


def _idmapped(id_map: "int | SandboxError") -> tuple[int, str]:
    """On if the root file system or a tmpfs can be id-mapped. Other file systems are tried when a cell binds them."""
    if isinstance(id_map, SandboxError):
        return id_map.errno or errno.EINVAL, id_map.what
    refused = 0
    for path in ("/", "/dev/shm", "/run", "/tmp"):
        fd = attempt("open_tree", -100, path, mounts.OPEN_TREE_CLONE | mounts.OPEN_TREE_CLOEXEC)
        if fd < 0:
            refused = -fd
            continue
        refused = -mounts.set_id_map(fd, id_map)
        os.close(fd)
        if not refused:
            return 0, f"tried on {path}"
    return refused, ""


def _fresh_proc(root: str) -> int:
    child = os.fork()  # the first process of the pid namespace
    if child == 0:
        os._exit(-mounts.mount_proc(root) & 0xFF)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _tried(step: Callable[[], None]) -> tuple[int, str]:
    try:
        step()
    except SandboxError as error:
        return error.errno or errno.EINVAL, error.what
    return 0, ""
