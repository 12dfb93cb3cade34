"""Reach the process that is forked for the next call while this one runs: by signals, its files, its scheduling.

The pids of a cell are few: all are tried but the init's and one's own. What must not be told apart is a number that
nobody has from one that somebody has.

Source: own
"""

import ctypes
import os
import signal
import struct
import time

from tests.escape.kit import NO_NAMESPACES, Scene, asked, tried

NOBODY, SOMEBODY = ["ESRCH"], ["EPERM", "ESRCH"]
EXPECT = [(SOMEBODY, NOBODY), ["ENOENT"], ["EPERM"], ["EPERM"], NOBODY, ["EPERM"]]
VARIES = {NO_NAMESPACES: "not tried: the numbers are those of the host"}
NEARBY = 40


def attack(scene: Scene) -> object:
    if os.getppid() != 1:
        return VARIES[NO_NAMESPACES]
    time.sleep(0.3)  # until it has been forked and is warm
    me = os.getpid()
    others = [pid for pid in range(max(2, me - NEARBY), me + NEARBY) if pid != me and pid != os.getppid()]
    signals, files, memory, scheduling, groups, joined = answers = [set[str]() for _ in EXPECT]
    word = ctypes.create_string_buffer(8)
    vector = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(word), 8))
    idle = ctypes.create_string_buffer(struct.pack("i", 0))
    mask = ctypes.create_string_buffer(struct.pack("Q", 1))
    for pid in others:
        for number in (0, signal.SIGSTOP, signal.SIGKILL):
            signals |= {asked("kill", pid, number), asked("tkill", pid, number)}
            signals.add(asked("tgkill", pid, pid, number))
        for name in ("mem", "environ", "maps", "oom_score_adj", "comm", "stat", "fd", "cwd", "ns/pid", "autogroup"):
            files.add(tried(os.open, f"/proc/{pid}/{name}", os.O_RDONLY))
        files.add(tried(open, f"/proc/{pid}/oom_score_adj", "w"))
        memory |= {
            asked("ptrace", 16, pid, 0, 0),
            asked("process_vm_readv", pid, vector, 1, vector, 1, 0),
            asked("process_vm_writev", pid, vector, 1, vector, 1, 0),
            asked("kcmp", me, pid, 0, 0, 0),
            asked("migrate_pages", pid, 8, mask, mask),
            asked("move_pages", pid, 0, None, None, None, 0),
            asked("perf_event_open", word, pid, -1, -1, 0),
            asked("get_robust_list", pid, word, word),
            asked("prlimit64", pid, 7, None, word),
        }
        scheduling |= {
            asked("sched_setaffinity", pid, 8, mask),
            asked("sched_setscheduler", pid, 5, idle),
            asked("sched_setparam", pid, idle),
            asked("setpriority", 0, pid, 19),
            asked("ioprio_set", 1, pid, 3 << 13),
        }
        groups.add(asked("setpgid", pid, me))
    child = os.fork()  # for who leads a session cannot join a group anyway
    if child == 0:
        own = os.getpid()
        os._exit(sum(asked("setpgid", 0, pid) != "EPERM" for pid in others if pid != own))
    joined.add("EPERM" if os.waitpid(child, 0)[1] == 0 else "joined one")
    return [sorted(said) for said in answers]
