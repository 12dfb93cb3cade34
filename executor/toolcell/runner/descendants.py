"""What a call leaves behind: orphans come to the init, which reaps them while the call runs and kills them after it.

In a pid namespace of its own, where the init is pid 1, the kernel hands over every orphan, and kill(-1) takes all there
is. Elsewhere (`allow_missing`) the init is a child subreaper (prctl(2)), and kill(-1) would take the user's own
processes: it kills its children, one generation after the other, as each death hands it the next.
"""

import os
import signal
import time
from collections.abc import Container

_LOOK_AGAIN_S = 0.001


def children(fd: int) -> list[int]:
    """The pids listed now. The kernel may leave some out while others die, so a caller looks until none is left."""
    size = 4096
    while len(listed := os.pread(fd, size, 0)) == size:
        size *= 2
    return [int(pid) for pid in listed.split()]


def open_children() -> int:
    """A descriptor that lists the children of this process, -1 where there is no /proc."""
    try:
        return os.open("/proc/thread-self/children", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def kill_namespace() -> None:
    """Kill and reap every process of the pid namespace but this one, its pid 1. Forks that are under way die with it
    (kernel/signal.c)."""
    while True:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            pass  # nobody is left to kill, though there may be zombies to reap
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def kill_children(fd: int, spared: Container[int] = (), rounds: int | None = None) -> bool:
    """Kill the children that `fd` lists, and those that their deaths hand over, until only `spared` are left. False
    where that takes more than so many rounds.

    None is reaped before all are dead: a zombie keeps its place under the process limit, so that a fork bomb comes to
    its end, and its number, so that no other process can get it; and the list, to which is only added, leaves none out.
    """
    killed: set[int] = set()
    while True:
        found = [pid for pid in children(fd) if pid not in killed and pid not in spared]
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        for pid in found:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # by then, its children are ours
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
        time.sleep(_LOOK_AGAIN_S)  # there is one that the list left out
        kill_children(fd)
    return True


def _any_child() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
