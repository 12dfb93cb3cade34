"""Raw system calls, and the numbers of the two machines. Every raw system call of this package uses `syscall` or
`attempt`.

The tables are those of the kernel up to Linux 6.18. The seccomp filter answers other numbers with ENOSYS, because they
were not reviewed. Source: arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h,
scripts/syscall.tbl.
"""

import ctypes
import errno
import os
import signal
import struct
from collections.abc import Callable
from functools import partial

from toolcell_sandbox.errors import SandboxError

# x86_64, numbers 0 to 334
_X86_64 = """
read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn
ioctl pread64 pwrite64 readv writev access pipe select sched_yield mremap msync mincore madvise shmget shmat shmctl
dup dup2 pause nanosleep getitimer alarm setitimer getpid sendfile socket connect accept sendto recvfrom sendmsg
recvmsg shutdown bind listen getsockname getpeername socketpair setsockopt getsockopt clone fork vfork execve exit
wait4 kill uname semget semop semctl shmdt msgget msgsnd msgrcv msgctl fcntl flock fsync fdatasync truncate ftruncate
getdents getcwd chdir fchdir rename mkdir rmdir creat link unlink symlink readlink chmod fchmod chown fchown lchown
umask gettimeofday getrlimit getrusage sysinfo times ptrace getuid syslog getgid setuid setgid geteuid getegid setpgid
getppid getpgrp setsid setreuid setregid getgroups setgroups setresuid getresuid setresgid getresgid getpgid setfsuid
setfsgid getsid capget capset rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend sigaltstack utime mknod
uselib personality ustat statfs fstatfs sysfs getpriority setpriority sched_setparam sched_getparam sched_setscheduler
sched_getscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval mlock munlock mlockall
munlockall vhangup modify_ldt pivot_root _sysctl prctl arch_prctl adjtimex setrlimit chroot sync acct settimeofday
mount umount2 swapon swapoff reboot sethostname setdomainname iopl ioperm create_module init_module delete_module
get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg afs_syscall tuxcall security gettid readahead
setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr
fremovexattr tkill time futex sched_setaffinity sched_getaffinity set_thread_area io_setup io_destroy io_getevents
io_submit io_cancel get_thread_area lookup_dcookie epoll_create epoll_ctl_old epoll_wait_old remap_file_pages
getdents64 set_tid_address restart_syscall semtimedop fadvise64 timer_create timer_settime timer_gettime
timer_getoverrun timer_delete clock_settime clock_gettime clock_getres clock_nanosleep exit_group epoll_wait epoll_ctl
tgkill utimes vserver mbind set_mempolicy get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify
mq_getsetattr kexec_load waitid add_key request_key keyctl ioprio_set ioprio_get inotify_init inotify_add_watch
inotify_rm_watch migrate_pages openat mkdirat mknodat fchownat futimesat newfstatat unlinkat renameat linkat symlinkat
readlinkat fchmodat faccessat pselect6 ppoll unshare set_robust_list get_robust_list splice tee sync_file_range
vmsplice move_pages utimensat epoll_pwait signalfd timerfd_create eventfd fallocate timerfd_settime timerfd_gettime
accept4 signalfd4 eventfd2 epoll_create1 dup3 pipe2 inotify_init1 preadv pwritev rt_tgsigqueueinfo perf_event_open
recvmmsg fanotify_init fanotify_mark prlimit64 name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg setns
getcpu process_vm_readv process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 seccomp getrandom
memfd_create kexec_file_load bpf execveat userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect
pkey_alloc pkey_free statx io_pgetevents rseq
"""
# aarch64, numbers 0 to 243, then 260 to 294
_AARCH64 = """
io_setup io_destroy io_submit io_cancel io_getevents setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr
listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr getcwd lookup_dcookie eventfd2 epoll_create1
epoll_ctl epoll_pwait dup dup3 fcntl inotify_init1 inotify_add_watch inotify_rm_watch ioctl ioprio_set ioprio_get
flock mknodat mkdirat unlinkat symlinkat linkat renameat umount2 mount pivot_root nfsservctl statfs fstatfs truncate
ftruncate fallocate faccessat chdir fchdir chroot fchmod fchmodat fchownat fchown openat close vhangup pipe2 quotactl
getdents64 lseek read write readv writev pread64 pwrite64 preadv pwritev sendfile pselect6 ppoll signalfd4 vmsplice
splice tee readlinkat newfstatat fstat sync fsync fdatasync sync_file_range timerfd_create timerfd_settime
timerfd_gettime utimensat acct capget capset personality exit exit_group waitid set_tid_address unshare futex
set_robust_list get_robust_list nanosleep getitimer setitimer kexec_load init_module delete_module timer_create
timer_gettime timer_getoverrun timer_settime timer_delete clock_settime clock_gettime clock_getres clock_nanosleep
syslog ptrace sched_setparam sched_setscheduler sched_getscheduler sched_getparam sched_setaffinity sched_getaffinity
sched_yield sched_get_priority_max sched_get_priority_min sched_rr_get_interval restart_syscall kill tkill tgkill
sigaltstack rt_sigsuspend rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigreturn
setpriority getpriority reboot setregid setgid setreuid setuid setresuid getresuid setresgid getresgid setfsuid
setfsgid times setpgid getpgid getsid setsid getgroups setgroups uname sethostname setdomainname getrlimit setrlimit
getrusage umask prctl getcpu gettimeofday settimeofday adjtimex getpid getppid getuid geteuid getgid getegid gettid
sysinfo mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr msgget msgctl msgrcv msgsnd semget
semctl semtimedop semop shmget shmctl shmat shmdt socket socketpair bind listen accept connect getsockname getpeername
sendto recvfrom setsockopt getsockopt shutdown sendmsg recvmsg readahead brk munmap mremap add_key request_key keyctl
clone execve mmap fadvise64 swapon swapoff mprotect msync mlock munlock mlockall munlockall mincore madvise
remap_file_pages mbind get_mempolicy set_mempolicy migrate_pages move_pages rt_tgsigqueueinfo perf_event_open accept4
recvmmsg
"""
_AARCH64_260 = """
wait4 prlimit64 fanotify_init fanotify_mark name_to_handle_at open_by_handle_at clock_adjtime syncfs setns sendmmsg
process_vm_readv process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 seccomp getrandom
memfd_create bpf execveat userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc
pkey_free statx io_pgetevents rseq kexec_file_load
"""
# every machine since Linux 5.1, numbers 424 to 469
_COMMON_424 = """
pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig fsmount fspick
pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2 process_madvise epoll_pwait2 mount_setattr quotactl_fd
landlock_create_ruleset landlock_add_rule landlock_restrict_self memfd_secret process_mrelease futex_waitv
set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount
lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat listxattrat removexattrat
open_tree_attr file_getattr file_setattr
"""


def _numbered(start: int, names: str) -> dict[str, int]:
    return {name: number for number, name in enumerate(names.split(), start)}


TABLES: dict[str, dict[str, int]] = {
    "x86_64": _numbered(0, _X86_64) | _numbered(424, _COMMON_424),
    "aarch64": _numbered(0, _AARCH64) | _numbered(260, _AARCH64_260) | _numbered(424, _COMMON_424),
}
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINE = os.uname().machine
NUMBERS = TABLES.get(MACHINE, {})

Argument = int | bytes | str | None | ctypes.Array[ctypes.c_char] | ctypes.Structure

_libc = ctypes.CDLL(None, use_errno=True)
_clone, _sleep = _libc.clone, _libc.sleep
_HOLDER_S = 5
_CLONE_VM = 0x100

AT_FDCWD = -100
_WRITE_ONLY = os.O_WRONLY | os.O_CLOEXEC
_EXHAUSTED = {
    errno.EAGAIN: "Raise the limit on processes (ulimit -u, or pids.max of the cgroup that this runs in).",
    errno.EMFILE: "Raise the limit on open files (ulimit -n): making a cell takes about 60.",
    errno.ENFILE: "The whole machine is out of open files: raise sysctl fs.file-max.",
}


def _taking(arguments: int) -> Callable[..., int]:
    """syscall(2) with this number of 64-bit arguments, so that flags and negative descriptors are not cut to 32
    bits."""
    function = _libc["syscall"]
    function.restype = ctypes.c_long
    function.argtypes = (ctypes.c_long, *(ctypes.c_void_p,) * arguments)
    return function


_calls = [_taking(arguments) for arguments in range(7)]
_brief = ctypes.CDLL(None)["syscall"]  # it converts integers to 32 bits, and does not save errno
_AS_IT_IS = frozenset((int, bytes, type(None)))


def _convert(argument: Argument) -> object:
    if isinstance(argument, str):
        return os.fsencode(argument)
    return ctypes.byref(argument) if isinstance(argument, ctypes.Structure) else argument


def _number(name: str) -> int:
    number = NUMBERS.get(name)
    if number is None:
        raise SandboxError(
            f"The system call {name} has no known number on this machine: {MACHINE}",
            step=name,
            cure="Use an x86_64 or aarch64 machine.",
        )
    return number


def _converted(arguments: tuple[Argument, ...]) -> tuple[object, ...]:
    return arguments if _AS_IT_IS.issuperset(map(type, arguments)) else tuple(map(_convert, arguments))


def attempt(name: str, *arguments: Argument) -> int:
    """The system call's result, or minus its errno. Raises for no error of the kernel."""
    result = _calls[len(arguments)](_number(name), *_converted(arguments))
    return -ctypes.get_errno() if result == -1 else result


def syscall(name: str, *arguments: Argument, step: str, mechanism: str = "", cure: str = "") -> int:
    """The system call's result. Raises SandboxError, which names `step`, if the kernel refuses."""
    result = attempt(name, *arguments)
    if result < 0:
        raise _refused(-result, step, mechanism, cure)
    return result


def _refused(number: int, step: str, mechanism: str, cure: str) -> SandboxError:
    cure = _EXHAUSTED.get(number, cure)
    return SandboxError(f"{step} failed", step=step, mechanism=mechanism, errno=number, cure=cure)


def prepared(
    name: str,
    *arguments: "int | ctypes.Array[ctypes.c_char] | None",
    step: str,
    mechanism: str = "",
    cure: str = "",
) -> Callable[[], None]:
    """A function that makes this system call, as `syscall` does, but in fewer steps. It takes 32-bit integers and
    buffers. It is for frequent calls, and for forked processes, which must copy each page that they write to.
    """
    call = partial(_brief, _number(name), *arguments)

    def make() -> None:
        if call() == -1:  # errno was not saved: call again for the error
            syscall(name, *arguments, step=step, mechanism=mechanism, cure=cure)

    return make


def fork(step: str) -> int:
    """os.fork. Raises SandboxError, which names `step`, if no more processes are allowed."""
    try:
        return os.fork()
    except OSError as error:
        number = error.errno or 0
        raise SandboxError(f"{step} failed", step=step, errno=number, cure=_EXHAUSTED.get(number, "")) from error


def start_holder(flags: int, stack: "ctypes.Array[ctypes.c_char]", *, step: str, mechanism: str, cure: str) -> int:
    """Start a child in new namespaces by `flags` (clone(2)). It waits to be killed. Returns its pid.

    It runs no Python code: it shares all memory with this process, so nothing is copied, and only calls sleep(3), on
    `stack`, which must be kept until the child was waited for. If this process dies first, the child ends after 5 s.
    """
    top = (ctypes.addressof(stack) + len(stack)) & ~15
    ctypes.set_errno(0)
    pid = int(_clone(_sleep, ctypes.c_void_p(top), ctypes.c_int(flags | _CLONE_VM | signal.SIGCHLD), _HOLDER_S))
    if pid < 0:
        number = ctypes.get_errno()
        raise SandboxError(
            f"{step} failed", step=step, mechanism=mechanism, errno=number, cure=_EXHAUSTED.get(number, cure)
        )
    return pid


def write_file(path: str, text: str, *, step: str, mechanism: str = "", cure: str = "") -> None:
    """Write `text` in one write(2), as kernel files need. Raises SandboxError, which names `step`."""
    try:
        fd = os.open(path, _WRITE_ONLY)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise SandboxError(
            f"{step} failed", step=step, mechanism=mechanism, errno=error.errno or 0, cure=cure
        ) from error


_AT_SYMLINK_NOFOLLOW, _STATX_BTIME = 0x100, 0x800
_BYTES, _MASK_AT, _BIRTH_AT = 256, 0, 80  # of struct statx (linux/stat.h)


def born_ns(path: str) -> int:
    """The birth time of a file (statx(2)), which distinguishes it from a later one with the same inode number.

    In nanoseconds since 1970, without following a link; 0 if the path is missing or the file system has none.
    """
    found = ctypes.create_string_buffer(_BYTES)
    if attempt("statx", AT_FDCWD, path, _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, found) < 0:
        return 0
    (mask,) = struct.unpack_from("=I", found, _MASK_AT)
    if not mask & _STATX_BTIME:
        return 0
    seconds, nanoseconds = struct.unpack_from("=qI", found, _BIRTH_AT)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)
