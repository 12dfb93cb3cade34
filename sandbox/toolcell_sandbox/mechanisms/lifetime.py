"""The cell dies with its maker, and does not inherit the maker's signal handling."""

import os
import select
import signal
import struct

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.syscalls import attempt, syscall

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
_IOPRIO_WHO_PROCESS = 1  # linux/ioprio.h
_IOPRIO_HIGHEST = 1 << 13  # the real-time class, level 0
_IOPRIO_DEFAULT = 2 << 13 | 4  # best effort, level 4


def become_subreaper() -> None:
    """Make this process the subreaper of its descendants, so that a cell's init stays its child."""
    syscall("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0, step="become child subreaper")


def adopt_descendants() -> int:
    """Become the subreaper of all descendants. Returns a descriptor of the list of children (proc_pid_children(5))."""
    become_subreaper()
    path = "/proc/thread-self/children"
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise SandboxError(
            "Without a pid namespace, the processes of a call are found through /proc, and are not listed there",
            step=f"open {path}",
            mechanism="pid_namespace",
            errno=error.errno or 0,
            cure="Make pid namespaces available, or mount /proc on a kernel with CONFIG_PROC_CHILDREN.",
        ) from error


def watch_children() -> int:
    """A descriptor that is readable when a child has ended (signalfd(2)). SIGCHLD is blocked in this process and its
    later children. It is not ignored, even if a module of a tool did that: zombies would not be kept.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    mask = struct.pack("Q", 1 << signal.SIGCHLD - 1)
    return syscall("signalfd4", -1, mask, len(mask), os.O_CLOEXEC | os.O_NONBLOCK, step="watch for children that end")


def collect_children() -> None:
    """Keep ended children as zombies until they are waited for, even if SIGCHLD was ignored before execve(2)."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def leave_priority() -> None:
    """Leave an inherited real-time class, negative nice value or raised I/O priority. With one of these, a tool could
    starve other processes of CPU time (sched(7)) or of a disk (ioprio_set(2))."""
    if os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    priority = attempt("ioprio_get", _IOPRIO_WHO_PROCESS, 0)
    if _IOPRIO_HIGHEST <= priority < _IOPRIO_DEFAULT:
        attempt("ioprio_set", _IOPRIO_WHO_PROCESS, 0, 0)


def start_session() -> None:
    """Start a session without a controlling terminal, make /proc/self writable, set a plain umask, and leave an
    inherited priority over other processes."""
    os.setsid()
    leave_priority()
    syscall("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0, step="set dumpable")  # the caller may be undumpable
    os.umask(0o022)


def die_with_parent(parent_fd: int) -> None:
    """Have the kernel send SIGKILL to this process when its parent dies. Exits now if the parent is dead.

    The setting refers to the parent thread, and setresuid(2) clears it: call it again afterwards. `getppid` does not
    work across pid namespaces, so `parent_fd`, a pidfd, is polled; it is -1 if the kernel has none.
    """
    syscall("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0, step="set parent death signal")
    if parent_fd >= 0:
        poll = select.poll()
        poll.register(parent_fd, select.POLLIN)
        if poll.poll(0):
            os._exit(1)


def reset_signals() -> None:
    """Reset every handler to its default (Python's SIGINT handler would run in the cell), and unblock all signals.

    SIGPIPE and SIGXFSZ stay ignored, because Python relies on it. No other signal stays ignored.
    """
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler) or (handler is signal.SIG_IGN and number not in (signal.SIGPIPE, signal.SIGXFSZ)):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.set_wakeup_fd(-1)
