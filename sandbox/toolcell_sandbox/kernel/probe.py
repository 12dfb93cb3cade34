"""Which mechanisms this kernel and this user have. Tried for real, in a child that exits."""

import errno
import os
from collections.abc import Callable, Iterator

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.identity import (
    FIRST_UID,
    Identity,
    detect_mode,
    enter_user_namespace,
    idmap_fd,
    user_namespace_cure,
)
from toolcell_sandbox.mechanisms import capabilities, landlock, mounts, namespaces, seccomp
from toolcell_sandbox.mechanisms.bpf import ALLOW, Return, assemble
from toolcell_sandbox.mechanisms.cgroup_tree import CgroupTree
from toolcell_sandbox.report import NAMES, Mechanism, SandboxReport

from .syscalls import attempt, syscall

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
_SUBSTITUTED = {"proc": "cells have no /proc"}


def probe(mode: "Mode | None" = None) -> SandboxReport:
    """Try every mechanism for an identity mode (default: the one this process can use).

    The caller must be single-threaded: it forks, and a user namespace needs a single thread. Takes about 10 ms.
    """
    mode = mode or detect_mode()
    id_map: int | SandboxError | None = None
    if mode == "root":
        try:
            id_map = idmap_fd(0, 0, FIRST_UID, FIRST_UID)
        except SandboxError as error:
            id_map = error
    found = {name: (number, detail) for name, number, detail in _in_child(mode, id_map)}
    mechanisms = [_judge(name, *found[name]) for name in NAMES if name in found]
    return SandboxReport((*mechanisms, _cgroup()), mode)


def _judge(name: str, number: int, detail: str) -> Mechanism:
    if number == 0:
        return Mechanism(name, "on", detail)
    if name in _SUBSTITUTED:
        return Mechanism(name, "substituted", f"{_SUBSTITUTED[name]}: {os.strerror(number)}", number, _CURES[name])
    cure = user_namespace_cure() if name == "user_namespace" else _CURES[name]
    return Mechanism(name, "missing", detail or os.strerror(number), number, cure)


def _cgroup() -> Mechanism:
    tree = CgroupTree.detect()
    if tree is not None:
        return Mechanism("cgroup", "on", " ".join(sorted(tree.controllers)))
    detail = "limits of each process, and the supervisor watches the whole cell"
    cure = "Start under `systemd-run --user --scope -p Delegate=yes`, or make memory and pids cgroups writable."
    return Mechanism("cgroup", "substituted", detail, 0, cure)


Finding = tuple[str, int, str]


def _in_child(mode: "Mode", id_map: "int | SandboxError | None") -> list[Finding]:
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
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
    with open(read_end) as pipe:
        text = pipe.read()
    _pid, status = os.waitpid(child, 0)
    if status or text.startswith("!"):
        raise SandboxError(f"Probing the kernel failed: {text or status}", step="probe", cure="Report this.")
    findings = [line.split("\t") for line in text.split("\n")]
    return [(name, int(number), detail) for name, number, detail in findings]


def _findings(mode: "Mode", id_map: "int | SandboxError | None") -> Iterator[Finding]:
    syscall("prctl", 4, 1, 0, 0, 0, step="set dumpable")
    if mode != "root":
        yield "user_namespace", *_tried(lambda: enter_user_namespace(Identity.for_slot(0, mode)))
    off: set[str] = set()
    for name, flag in namespaces.FLAGS.items():
        refused = -attempt("unshare", flag)
        if refused:
            off.add(name)
        yield name, refused, ""
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
    seccomp.program(allow_exec=False)  # raises where no table fits the machine
    seccomp.load(assemble([Return(ALLOW)]))


def _mount_findings(id_map: "int | SandboxError | None", *, pid_namespace: bool) -> Iterator[Finding]:
    mounts.make_private()
    number, detail, tree = 0, "", -1
    try:
        tree = mounts.clone_tree("/dev/null")
        mounts.set_attributes(tree, mounts.ATTR_RDONLY | mounts.ATTR_NOSUID)
    except SandboxError as error:
        number, detail = error.errno or errno.EINVAL, error.what
    yield "mount_setattr", number, detail
    if id_map is not None:
        yield "idmapped_mounts", *_idmapped(id_map)
    root = mounts.new_root(0)
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
    """On when the root's file system or a tmpfs can be id-mapped: any other is tried when a cell binds it."""
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
