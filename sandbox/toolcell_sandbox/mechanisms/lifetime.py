"""The cell dies with the process that made it, and starts with nothing of that one's signal handling."""

import os
import select
import signal
import struct

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.syscalls import syscall

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36


def become_subreaper() -> None:
    """Orphans of this process's descendants become its children, so that a cell's init stays its child."""
    syscall("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0, step="become child subreaper")


def adopt_descendants() -> int:
    """Become the subreaper of all below, and return a descriptor that lists the children (proc_pid_children(5))."""
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
    """A descriptor that can be read once a child has ended (signalfd(2)). For that, SIGCHLD is blocked in this process
    and in those that it forks; and not ignored, as by a module of a tool, for then children are not waited for.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    mask = struct.pack("Q", 1 << signal.SIGCHLD - 1)
    return syscall("signalfd4", -1, mask, len(mask), os.O_CLOEXEC | os.O_NONBLOCK, step="watch for children that end")


def collect_children() -> None:
    """Let children that end wait for this process, also where SIGCHLD is ignored, which execve hands on."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def start_session() -> None:
    """A session without a controlling terminal; files of /proc/self that are ours to write; a plain umask."""
    os.setsid()
    syscall("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0, step="set dumpable")  # the caller may be undumpable
    os.umask(0o022)


def die_with_parent(parent_fd: int) -> None:
    """SIGKILL for this process when the parent dies, and exit now if it is dead already.

    The setting belongs to this thread's parent thread, and setresuid clears it: call it again afterwards. `getppid`
    cannot tell across pid namespaces, so `parent_fd`, a pidfd, does; it is -1 where the kernel has none.
    """
    syscall("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0, step="set parent death signal")
    if parent_fd >= 0:
        poll = select.poll()
        poll.register(parent_fd, select.POLLIN)
        if poll.poll(0):
            os._exit(1)


def reset_signals() -> None:
    """Every handler back to its default (Python's SIGINT handler would run in the cell), nothing blocked.

    SIGPIPE and SIGXFSZ stay ignored, as Python relies on it; no other does, whatever the caller's caller ignored.
    """
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler) or (handler is signal.SIG_IGN and number not in (signal.SIGPIPE, signal.SIGXFSZ)):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.set_wakeup_fd(-1)
