"""Kill and reap the processes that a call leaves behind. Orphans become children of the init.

If the init is pid 1 of its own pid namespace, the kernel gives it every orphan, and kill(-1) reaches all processes of
the cell. Without a pid namespace (`allow_missing`), the init is a child subreaper (PR_SET_CHILD_SUBREAPER, prctl(2)),
and kill(-1) would reach the user's own processes. Then the init kills its children, generation by generation: each
death makes the next generation its children.
"""

import os
import signal
import time
from collections.abc import Container

_LOOK_AGAIN_S = 0.001


def children(fd: int) -> list[int]:
    """The pids that are listed now. The kernel may omit some while others die, so callers repeat this until none is
    left."""
    size = 4096
    while len(listed := os.pread(fd, size, 0)) == size:
        size *= 2
    return [int(pid) for pid in listed.split()]


def open_children() -> int:
    """A descriptor of the list of this process's children, or -1 without /proc."""
    try:
        return os.open("/proc/thread-self/children", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def kill_namespace() -> None:
    """Kill and reap every process of the pid namespace except this one, pid 1. Forks under way are killed too
    (kernel/signal.c)."""
    while True:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            pass  # no process is left to kill, but there may be zombies to reap
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def kill_children(fd: int, spared: Container[int] = (), rounds: int | None = None) -> bool:
    """Kill the children that `fd` lists, and the orphans that become children by their deaths, until only `spared` are
    left. Returns False if that takes more than `rounds` rounds.

    None is reaped before all are dead. A zombie counts in the process limit, so a fork bomb comes to an end. Its pid
    cannot be reused. And the list only grows, so it omits none.
    """
    killed: set[int] = set()
    while True:
        found = [pid for pid in children(fd) if pid not in killed and pid not in spared]
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        for pid in found:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # when this returns, its children are ours
        killed.update(found)
        if not found:
            break
        if rounds is not None:
            rounds -= 1
            if rounds <= 0:
                return False
    for pid in killed:
        os.waitpid(pid, 0)
    if not spared and _any_child():
        time.sleep(_LOOK_AGAIN_S)  # the list has omitted a child
        kill_children(fd)
    return True


def _any_child() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
