"""Resource limits of each process, the second layer beside the cgroups."""

import os
import resource
import time
from resource import RLIM_INFINITY

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.syscalls import syscall, write_file
from toolcell_sandbox.limits import MIB, Limits

OWN_PROCESSES = 3  # the cell's init, a standby, and the one after that
BEHIND_CGROUP = 8  # where a pids cgroup counts, it is to refuse first: it keeps count of what it refused
CELL_OOM_SCORE = 200  # die before host services
CALL_OOM_SCORE = 1000  # die before the cell's init
PR_SET_DUMPABLE = 4


def address_space_in_use() -> int:
    """Bytes of address space that this process has mapped."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


def most_processes(limits: Limits, pids_cgroup: bool) -> int:
    """RLIMIT_NPROC of a cell: behind a pids cgroup it is a little looser."""
    return limits.processes + OWN_PROCESSES + (BEHIND_CGROUP if pids_cgroup else 0)


def bind_processes() -> bool:
    """Whether RLIMIT_NPROC binds this user. The kernel's uid 0 is exempt, whatever namespaces it is in (kernel/fork.c);
    the uid 0 of a user namespace is so only where it is uid 0 outside. Tried, in a child.
    """
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        try:
            grandchild = os.fork()
        except BlockingIOError:
            os._exit(1)
        if grandchild:
            os.waitpid(grandchild, 0)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def apply(limits: Limits, *, in_use: int, address_space: bool, processes: int) -> None:
    """Limit this process and its children. `in_use` is what the interpreter maps already, on top of `memory_bytes`.

    There is no RLIMIT_CPU here: the init lives through many calls; each call process sets its own (`limit_cpu`).
    """
    # 1, not 0: a core_pattern that is a pipe starts its host program at 0, and not at 1 (fs/coredump.c). A file needs
    # at least a page, so 1 makes none.
    _set("RLIMIT_CORE", 1)
    _set("RLIMIT_NOFILE", limits.open_files)
    _set("RLIMIT_FSIZE", limits.file_bytes)
    _set("RLIMIT_NPROC", processes)
    _set("RLIMIT_MEMLOCK", 0)
    _set("RLIMIT_MSGQUEUE", 0)
    _set("RLIMIT_SIGPENDING", limits.processes + 64)
    _set("RLIMIT_STACK", 8 * MIB)
    if address_space:
        _set("RLIMIT_AS", limits.memory_bytes + in_use)


def limit_cpu(seconds: float, *, again: bool, now: int = 0) -> int:
    """CPU time of this process from now on: SIGXCPU at the limit, rounded up to whole seconds, SIGKILL one later.

    A limit that is to be set `again` has no SIGKILL, for the hard limit can never be raised (setrlimit(2)). Nothing is
    set where the limit is what it is `now`, which the last time returned.
    """
    soft = int(time.process_time() + seconds) + 1
    if soft == now:
        return now
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if hard != RLIM_INFINITY:
        soft = min(soft, hard - 1)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard if again else soft + 1))
    return soft


def set_oom_score(score: int) -> None:
    """Let the kernel prefer this process when memory runs out (0 to 1000)."""
    write_file("/proc/self/oom_score_adj", str(score), step="set oom_score_adj")


def can_raise_oom_score() -> bool:
    """Whether this cell has a /proc of its own: else it has none at all, or the host's behind Landlock."""
    try:
        os.close(os.open("/proc/self/oom_score_adj", os.O_RDONLY))
    except OSError:
        return False
    return True


def raise_oom_score() -> None:
    """Make a call process the first to go when memory runs out, where `can_raise_oom_score`.

    The files of a process that is not dumpable belong to root, so it is dumpable while it writes.
    """
    syscall("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0, step="prctl PR_SET_DUMPABLE")
    try:
        set_oom_score(CALL_OOM_SCORE)
    finally:
        syscall("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0, step="prctl PR_SET_DUMPABLE")


def _set(name: str, value: int) -> None:
    which: int = getattr(resource, name) if hasattr(resource, name) else _NUMBERS[name]
    hard = resource.getrlimit(which)[1]
    if hard != RLIM_INFINITY:
        value = min(value, hard)
    try:
        resource.setrlimit(which, (value, value))
    except OSError as error:
        raise SandboxError(
            f"{name} could not be set to {value}", step=f"set {name}", mechanism="rlimits", errno=error.errno or 0
        ) from error


_NUMBERS = {"RLIMIT_SIGPENDING": 11, "RLIMIT_MSGQUEUE": 12}  # asm-generic/resource.h; Python may not name them
