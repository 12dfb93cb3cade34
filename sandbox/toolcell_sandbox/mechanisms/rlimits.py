"""The resource limits of each process (rlimits), as a second layer beside the cgroups."""

import os
import resource
import time
from collections.abc import Callable
from functools import partial
from resource import RLIM_INFINITY

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.syscalls import syscall, write_file
from toolcell_sandbox.limits import MIB, Limits

OWN_PROCESSES = 3  # the cell's init, a standby, and the one after that
OTHERS_MAY_START = 256  # processes and threads of the user, other cells included, while a cell lives
BEHIND_CGROUP = 8  # beyond a pids cgroup, which must refuse first because it counts its refusals
RESERVED_BYTES = 2048 * MIB
"""Bytes that a program may reserve but not use, beyond `memory_bytes`: RLIMIT_DATA counts reserved memory, the watch
used memory. V8 in node 24 reserves 512 MiB for code in each isolate, so this is enough for the main one and three
workers.
"""
MAPPED_STEP = 4 * MIB
CELL_OOM_SCORE = 200  # die before host services
CALL_OOM_SCORE = 1000  # call processes die before the cell's init
PR_SET_DUMPABLE = 4
_OOM_SCORE = "/proc/self/oom_score_adj"


def address_space_in_use() -> int:
    """The mapped address space of this process in bytes, rounded up to `MAPPED_STEP`, so that cells that differ by a
    few pages have the same limit."""
    with open("/proc/self/statm") as statm:
        return -(-int(statm.read().split()[0]) * resource.getpagesize() // MAPPED_STEP) * MAPPED_STEP


def most_processes(limits: Limits, *, pids_cgroup: bool, shared: bool) -> int:
    """RLIMIT_NPROC of a cell. With a pids cgroup, it is a little looser. If it is `shared` with all processes of the
    user (no user namespace, no uid of its own), the user's present processes are added, and the watch counts the
    cell's.
    """
    slack = BEHIND_CGROUP if pids_cgroup else 0
    return limits.processes + OWN_PROCESSES + slack + (_tasks_of_user() + OTHERS_MAY_START if shared else 0)


def _tasks_of_user() -> int:
    """The number of threads of all processes of this user that /proc shows."""
    found, uid = 0, os.getuid()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}").st_uid == uid:
                found += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            pass  # it has ended
    return found


def bind_processes() -> bool:
    """Whether RLIMIT_NPROC limits this user; tried in a child. The kernel's uid 0 is exempt in all namespaces
    (kernel/fork.c). The uid 0 of a user namespace is exempt only if it is uid 0 outside.
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


def apply(limits: Limits, *, in_use: int, memory: str, processes: int) -> None:
    """Limit this process and its children. `memory` names the limit that stands in for a cgroup, "" where there is one;
    `in_use` is what the interpreter maps already, on top of `memory_bytes`.

    There is no RLIMIT_CPU here: the init lives through many calls; each call process sets its own (`limit_cpu`).
    """
    # 1, not 0: a core_pattern that is a pipe starts its host program at 0, and not at 1 (fs/coredump.c). A file needs
    # at least a page, so 1 makes none. The filter refuses to change it.
    _set("RLIMIT_CORE", 1)
    _set("RLIMIT_NOFILE", limits.open_files)
    _set("RLIMIT_FSIZE", limits.file_bytes)
    _set("RLIMIT_NPROC", processes)
    _set("RLIMIT_MEMLOCK", 0)
    _set("RLIMIT_MSGQUEUE", 0)
    _set("RLIMIT_SIGPENDING", limits.processes + 64)
    _set("RLIMIT_RTPRIO", 0)
    _set("RLIMIT_NICE", 0)
    _set("RLIMIT_STACK", 8 * MIB)
    if memory:
        _set(memory, limits.memory_bytes + in_use + (RESERVED_BYTES if memory == "RLIMIT_DATA" else 0))


def call_cpu_limit(seconds: float) -> Callable[[], None]:
    """What limits the CPU time of a call process, which is forked later and counts from 0: SIGXCPU at the limit,
    rounded up to whole seconds, SIGKILL one later.
    """
    soft, _hard = _cpu_limit(seconds)
    return partial(resource.setrlimit, resource.RLIMIT_CPU, (soft, soft + 1))


def limit_cpu_again(seconds: float, now: int) -> int:
    """CPU time of this process from now on, for one more call of it: SIGXCPU at the limit, and no SIGKILL, for the hard
    limit can never be raised (setrlimit(2)). Nothing is set where the limit is what it is `now`, which the last time
    returned, and 0 the first time.
    """
    if int(time.process_time() + seconds) + 1 == now:
        return now
    limit = _cpu_limit(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, limit)
    return limit[0]


def _cpu_limit(seconds: float) -> tuple[int, int]:
    soft, hard = int(seconds) + 1, resource.getrlimit(resource.RLIMIT_CPU)[1]
    return (soft if hard == RLIM_INFINITY else min(soft, hard - 1)), hard


def set_oom_score(score: int) -> None:
    """Let the kernel prefer this process when memory runs out (0 to 1000)."""
    write_file(_OOM_SCORE, str(score), step="set oom_score_adj")


def open_oom_score() -> int:
    """A descriptor that a cell's init writes its score to, so that a fork hands on another one: the first to go when
    memory runs out is to be a call process. -1 where there is no /proc.

    The files of a process that is not dumpable belong to root, so it is dumpable while it opens this one: before the
    filter, which refuses that, and before anybody's code.
    """
    try:
        os.close(os.open(_OOM_SCORE, os.O_RDONLY))
    except OSError:
        return -1
    _set_dumpable(1)
    try:
        return os.open(_OOM_SCORE, os.O_WRONLY | os.O_CLOEXEC)
    finally:
        _set_dumpable(0)


def _set_dumpable(value: int) -> None:
    syscall("prctl", PR_SET_DUMPABLE, value, 0, 0, 0, step="prctl PR_SET_DUMPABLE")


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
