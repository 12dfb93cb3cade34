"""The system calls that a cell may make.

Each number up to the highest reviewed one is allowed, refused, or decided by its arguments. All other numbers, such as
those of future kernels, fail with ENOSYS. Calls of another instruction set kill the process, because their numbers mean
other calls. A refused call returns an error, so that a tool can report it.
"""

import ctypes
import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.syscalls import AUDIT_ARCH, MACHINE, TABLES, syscall

from .bpf import (
    ALLOW,
    ARCH,
    KILL_PROCESS,
    NUMBER,
    BpfLoad,
    Instruction,
    Jump,
    Label,
    Return,
    assemble,
    high_word,
    low_word,
    refuse,
)

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from typing import Literal

    Reach = Literal["none", "proxy", "host"]
    """The allowed sockets: none; TCP to the proxy in the cell's own namespace; TCP and UDP of the host."""

SET_MODE_FILTER = 1
FILTER_FLAG_TSYNC = 1
FILTER_FLAG_NEW_LISTENER = 8
X32_BIT = 0x40000000
NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
SHARED_FILES, THREAD = 0x400, 0x10000  # CLONE_FILES, CLONE_THREAD
SET_ID_BITS = 0o6000
MAKES_A_FILE = 0o100 | 0o20000000  # O_CREAT, __O_TMPFILE
MAP_HUGETLB = 0x40000
MSG_FASTOPEN = 0x20000000
PR_SET_DUMPABLE = 4
RLIMIT_CORE = 4
SOL_SOCKET = 1
EPERM, EACCES, ENOSYS, EAFNOSUPPORT = errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EAFNOSUPPORT
HIGH = 8
"""Added to the index of an argument, it means the argument's high word."""

Refusal = tuple[str, int, str]
"""Names of system calls, the errno they get, and the reason."""

REFUSED: tuple[Refusal, ...] = (
    ("ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd", EPERM,
     "reads, steers or takes descriptors of another process"),
    ("io_uring_setup io_uring_enter io_uring_register", EPERM, "does I/O that no filter sees"),
    ("io_setup", EPERM, "uses up fs.aio-max-nr, which the whole machine shares"),
    ("bpf perf_event_open userfaultfd lookup_dcookie", EPERM, "kernel attack surface; userfaultfd wins races"),
    ("add_key request_key keyctl", EPERM, "keyrings belong to no namespace (moby #10939)"),
    ("unshare setns", EPERM, "a new user namespace has every capability over the kernel's surface"),
    ("clone3", ENOSYS, "its flags are behind a pointer; with ENOSYS the C library uses clone, with EPERM threads fail"),
    ("openat2", ENOSYS, "its mode is behind a pointer; callers fall back to openat"),
    ("mount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr "
     "statmount listmount", EPERM, "rebuilds or maps the view (CVE-2021-41133)"),
    ("name_to_handle_at open_by_handle_at", EPERM, "opens files by inode, past every path (shocker)"),
    ("file_setattr quotactl quotactl_fd", EPERM, "changes quotas and file system attributes"),
    ("fanotify_init fanotify_mark", EPERM, "watches whole file systems"),
    ("cachestat", EPERM, "tells what others have read of shared files"),
    ("reboot kexec_load kexec_file_load init_module finit_module delete_module create_module get_kernel_syms "
     "query_module swapon swapoff acct syslog vhangup iopl ioperm", EPERM, "host state"),
    ("sethostname setdomainname settimeofday clock_settime clock_adjtime adjtimex", EPERM, "host state"),
    ("modify_ldt uselib ustat sysfs _sysctl nfsservctl", EPERM, "legacy; a history of bugs"),
    ("mbind set_mempolicy get_mempolicy migrate_pages move_pages set_mempolicy_home_node", EPERM,
     "places memory, of other processes too"),
    ("shmget shmat shmctl shmdt semget semop semctl semtimedop msgget msgsnd msgrcv msgctl mq_open mq_unlink "
     "mq_timedsend mq_timedreceive mq_notify mq_getsetattr", EPERM, "memory and names that outlive a process"),
    ("memfd_create", EPERM, "files without a path: neither Landlock nor a file size limit sees them"),
    ("memfd_secret", EPERM, "locked memory"),
    ("vmsplice", EPERM, "maps pages into pipes; nothing needs it"),
    ("lsm_set_self_attr lsm_get_self_attr lsm_list_modules", EPERM, "security modules are set before the tool runs"),
    ("socket", EAFNOSUPPORT, "no network, of any family; also for AF_ALG (CVE-2026-31431) and AF_VSOCK"),
    ("connect bind listen", EPERM, "a socket that was inherited or paired must not find a new peer"),
)  # fmt: skip

EXEC_REFUSED: Refusal = ("execve execveat", EACCES, "the profile does not grant exec")
WATCH_REFUSED: Refusal = (
    "inotify_add_watch", EPERM, "tells what others do with shared files; only cells that write may watch",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Check:
    """Decides a system call by the low words of its arguments; a test with `HIGH` reads the high word.

    The call is refused if every test holds. A test is (argument, operator, value); "!=" and "!&" (no bit set) are
    allowed. With `error` 0 it returns success and does nothing.
    """

    names: str
    tests: tuple[tuple[int, str, int], ...]
    error: int
    reason: str


CHECKS: tuple[Check, ...] = (
    Check("clone", ((0, "&", NEW_NAMESPACES),), EPERM, "makes a namespace"),
    # Such a process ends, and its POSIX locks stay with those who share its descriptors. Threads and vfork do not.
    Check(
        "clone", ((0, "&", SHARED_FILES), (0, "!&", THREAD)), EPERM, "leaves locks that /proc/locks counts for nobody"
    ),
    Check("ioctl", ((1, "==", 0x5412),), EPERM, "TIOCSTI types into a terminal (CVE-2017-5226)"),
    Check("ioctl", ((1, "==", 0x541C),), EPERM, "TIOCLINUX pastes into a console"),
    Check("ioctl", ((1, "==", 0x5423),), EPERM, "TIOCSETD loads line disciplines"),
    Check("ioctl", ((1, "==", 0x401C5820),), EPERM, "FS_IOC_FSSETXATTR moves files to another quota"),
    Check(
        "ioctl", ((1, "==", 0x40086602),), EPERM, "FS_IOC_SETFLAGS: flags of the scratch that stay, and are inherited"
    ),
    Check("fcntl", ((1, "==", 1036),), EPERM, "F_SET_RW_HINT stays with a shared pipe"),
    Check("fcntl", ((1, "==", 1038),), EPERM, "F_SET_FILE_RW_HINT stays with a shared open file"),
    Check("fcntl", ((1, "==", 1024),), EPERM, "F_SETLEASE holds up others who open a shared file"),
    Check("fcntl", ((1, "==", 1026),), EPERM, "F_NOTIFY watches directories"),
    # EINVAL, as on a kernel before 3.15: callers then take flock or POSIX locks.
    Check("fcntl", ((1, "==", 37),), errno.EINVAL, "F_OFD_SETLK: /proc/locks names no process for the lock's memory"),
    Check("fcntl", ((1, "==", 38),), errno.EINVAL, "F_OFD_SETLKW: as F_OFD_SETLK"),
    # Only a cgroup counts the memory of a larger buffer. The call succeeds and changes nothing: no program insists on a
    # size, because the kernel clamps it anyway (socket(7)).
    Check("setsockopt", ((1, "==", SOL_SOCKET), (2, "==", 7)), 0, "SO_SNDBUF: the buffer keeps its default size"),
    Check("setsockopt", ((1, "==", SOL_SOCKET), (2, "==", 8)), 0, "SO_RCVBUF: the buffer keeps its default size"),
    # The kernel sends the owner of a file SIGIO, or the signal of its choice, which is checked as kill(2) is: with the
    # same uid, of a cell's init and its next call process too. Without an owner, O_ASYNC and FIOASYNC do nothing.
    Check("fcntl", ((1, "==", 8),), EPERM, "F_SETOWN has the kernel signal another process"),
    Check("fcntl", ((1, "==", 15),), EPERM, "F_SETOWN_EX has the kernel signal another process"),
    Check("fcntl", ((1, "==", 10),), EPERM, "F_SETSIG chooses that signal"),
    Check("ioctl", ((1, "==", 0x8901),), EPERM, "FIOSETOWN has the kernel signal another process"),
    Check("ioctl", ((1, "==", 0x8902),), EPERM, "SIOCSPGRP has the kernel signal another process"),
    Check("prlimit64", ((0, "!=", 0),), EPERM, "limits of another process"),
    # At 1, and at no other value, a core_pattern that is a pipe starts no program of the host (fs/coredump.c). EINVAL,
    # for gpg takes every other error but ENOSYS for its end. A limit is read with a null pointer as the new one.
    Check("setrlimit", ((0, "==", RLIMIT_CORE),), errno.EINVAL, "a core limit of 0 starts the host's crash handler"),
    *(
        Check(
            "prlimit64",
            ((1, "==", RLIMIT_CORE), (new_limit, "!=", 0)),
            errno.EINVAL,
            "a core limit of 0 starts the host's crash handler",
        )
        for new_limit in (2, 2 + HIGH)
    ),
    Check("prctl", ((0, "==", PR_SET_DUMPABLE), (1, "!=", 0)), EPERM, "what may be dumped can be handed to the host"),
    Check("mmap", ((3, "&", MAP_HUGETLB),), EPERM, "huge pages of the pool count in no memory cgroup"),
    # As where net.ipv4.tcp_fastopen turns it off (tcp(7)): callers go on with connect.
    Check("sendto sendmmsg", ((3, "&", MSG_FASTOPEN),), errno.EOPNOTSUPP, "connects, past Landlock's rule about ports"),
    Check("sendmsg", ((2, "&", MSG_FASTOPEN),), errno.EOPNOTSUPP, "connects, past Landlock's rule about ports"),
    # 0 is the caller. The kernel allows the rest to whoever has the uid: the init, and a call process that waits.
    Check(
        "sched_setaffinity sched_setparam sched_setscheduler sched_setattr",
        ((0, "!=", 0),),
        EPERM,
        "schedules another process",
    ),
    Check("setpriority", ((0, "!=", 0),), EPERM, "priority of a group or of all processes of a user"),
    Check("setpriority", ((1, "!=", 0),), EPERM, "priority of another process"),
    Check("ioprio_set", ((0, "!=", 1),), EPERM, "I/O priority of a group or of all processes of a user"),
    Check("ioprio_set", ((1, "!=", 0),), EPERM, "I/O priority of another process"),
    Check("get_robust_list", ((0, "!=", 0),), EPERM, "addresses of another process"),
    Check("personality", ((0, "!=", 0xFFFFFFFF),), EPERM, "turns off address randomisation; reading it is fine"),
    Check("socketpair", ((0, "!=", 1),), EAFNOSUPPORT, "only AF_UNIX pairs"),
    Check("socketpair", ((1, "&", 2),), EAFNOSUPPORT, "a datagram socket can send to any path, connected or not"),
    Check(
        "seccomp", ((0, "==", SET_MODE_FILTER), (1, "&", FILTER_FLAG_NEW_LISTENER)), EPERM, "a supervisor of its own"
    ),
    # Through an id-mapped mount a file that the cell makes belongs to the workspace's owner, who may be root.
    Check("chmod fchmod", ((1, "&", SET_ID_BITS),), EPERM, "set-id files"),
    Check("fchmodat fchmodat2", ((2, "&", SET_ID_BITS),), EPERM, "set-id files"),
    Check("mkdir mknod creat", ((1, "&", SET_ID_BITS),), EPERM, "set-id files"),
    Check("mkdirat mknodat", ((2, "&", SET_ID_BITS),), EPERM, "set-id files"),
    Check("open", ((1, "&", MAKES_A_FILE), (2, "&", SET_ID_BITS)), EPERM, "set-id files"),
    Check("openat", ((2, "&", MAKES_A_FILE), (3, "&", SET_ID_BITS)), EPERM, "set-id files"),
)

AF_INET, AF_INET6, SOCK_STREAM, SOCK_DGRAM, TCP, UDP = 2, 10, 1, 2, 6, 17


def _types(*kinds: int) -> tuple[tuple[int, str, int], ...]:
    """Tests that hold for every socket type but these, with or without SOCK_NONBLOCK and SOCK_CLOEXEC."""
    return tuple((1, "!=", kind | flags) for kind in kinds for flags in (0, 0o4000, 0o2000000, 0o2004000))


_FAMILIES = Check("socket", ((0, "!=", AF_INET), (0, "!=", AF_INET6)), EAFNOSUPPORT, "only the two internet families")
_NO_KTLS = Check("setsockopt", ((1, "==", TCP), (2, "==", 31)), EPERM, "TCP_ULP: kernel TLS, a history of bugs")
NETWORK_ALLOWED: "Mapping[Reach, str]" = {"none": "", "proxy": "socket connect", "host": "socket connect bind listen"}
"""The calls of `REFUSED` that a network policy allows, within `NETWORK_CHECKS`."""
NETWORK_CHECKS: "Mapping[Reach, tuple[Check, ...]]" = {
    "none": (),
    "proxy": (
        _FAMILIES,
        Check("socket", _types(SOCK_STREAM), EAFNOSUPPORT, "only streams: no datagrams, no raw packets"),
        Check("socket", ((2, "!=", 0), (2, "!=", TCP)), EAFNOSUPPORT, "MPTCP and SCTP pass Landlock by"),
        _NO_KTLS,
    ),
    "host": (
        _FAMILIES,
        Check("socket", _types(SOCK_STREAM, SOCK_DGRAM), EAFNOSUPPORT, "no raw packets"),
        Check("socket", ((2, "!=", 0), (2, "!=", TCP), (2, "!=", UDP)), EAFNOSUPPORT, "TCP and UDP only"),
        _NO_KTLS,
    ),
}

_cache: "dict[tuple[str, bool, Reach, bool], bytes]" = {}


def program(machine: str = MACHINE, *, allow_exec: bool, reach: "Reach" = "none", allow_watch: bool = False) -> bytes:
    """The filter for a machine ("x86_64", "aarch64"), cached for each set of arguments."""
    if machine not in TABLES:
        raise SandboxError(
            f"There is no seccomp filter for this machine: {machine}",
            step="seccomp",
            mechanism="seccomp",
            cure="Use an x86_64 or aarch64 machine.",
        )
    key = (machine, allow_exec, reach, allow_watch)
    if key not in _cache:
        _cache[key] = assemble(list(_instructions(*key)))
    return _cache[key]


def _instructions(machine: str, allow_exec: bool, reach: "Reach", allow_watch: bool) -> Iterator[Instruction]:
    table = TABLES[machine]
    yield BpfLoad(ARCH)
    yield Jump("==", AUDIT_ARCH[machine], yes="native")
    yield Return(KILL_PROCESS)
    yield Label("native")
    yield BpfLoad(NUMBER)
    if machine == "x86_64":
        yield Jump(">=", X32_BIT, no="not x32")
        yield Return(KILL_PROCESS)
        yield Label("not x32")
    checks: dict[int, list[Check]] = {}
    for check in (*CHECKS, *NETWORK_CHECKS[reach]):
        for number in _numbers(table, check.names):
            checks.setdefault(number, []).append(check)
    answers = dict.fromkeys(table.values(), ALLOW)
    by_grant = ((allow_exec, EXEC_REFUSED), (allow_watch, WATCH_REFUSED))
    for names, error, _reason in (*REFUSED, *(row for allowed, row in by_grant if not allowed)):
        answers.update(dict.fromkeys(_numbers(table, names), refuse(error)))
    answers.update(dict.fromkeys(_numbers(table, NETWORK_ALLOWED[reach]), ALLOW))
    targets: list[int | str] = []
    for number in range(max(answers) + 2):
        targets.append(f"check {number}" if number in checks else answers.get(number, refuse(ENOSYS)))
    starts = [number for number in range(len(targets)) if number == 0 or targets[number] != targets[number - 1]]
    yield from _search([(start, targets[start]) for start in starts])
    for number, tests in checks.items():
        yield from _check(f"check {number}", tests)


def _numbers(table: dict[str, int], names: str) -> list[int]:
    return [table[name] for name in names.split() if name in table]


def _search(ranges: list[tuple[int, int | str]]) -> Iterator[Instruction]:
    """A balanced search tree over the numbers: about eight comparisons for each call. Since Linux 5.11, the kernel
    caches the answers that need no argument in a bitmap, so an order by frequency would not be faster."""
    if len(ranges) == 1:
        target = ranges[0][1]
        if isinstance(target, int):
            yield Return(target)
        else:
            yield Jump(">=", 0, yes=target)
        return
    middle = len(ranges) // 2
    label = f"from {ranges[middle][0]}"
    yield Jump(">=", ranges[middle][0], yes=label)
    yield from _search(ranges[:middle])
    yield Label(label)
    yield from _search(ranges[middle:])


def _check(label: str, checks: list[Check]) -> Iterator[Instruction]:
    yield Label(label)
    for index, check in enumerate(checks):
        after = f"{label}.{index}"
        for argument, operator, value in check.tests:
            yield BpfLoad(low_word(argument) if argument < HIGH else high_word(argument - HIGH))
            if operator[0] == "!":
                yield Jump("==" if operator == "!=" else "&", value, yes=after)
            else:
                yield Jump(operator, value, no=after)
        yield Return(refuse(check.error))
        yield Label(after)
    yield Return(ALLOW)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def load(filter_bytes: bytes) -> None:
    """Apply the filter to every thread of this process; no_new_privs must be set. It cannot be undone."""
    buffer = ctypes.create_string_buffer(filter_bytes, len(filter_bytes))
    header = _Program(len(filter_bytes) // 8, ctypes.addressof(buffer))
    refused = syscall(
        "seccomp", SET_MODE_FILTER, FILTER_FLAG_TSYNC, header, step="load seccomp filter", mechanism="seccomp"
    )
    if refused:
        raise SandboxError(
            f"A thread could not take the seccomp filter: {refused}", step="load seccomp filter", mechanism="seccomp"
        )
