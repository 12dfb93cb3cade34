"""What is known of a call's end: the limit that an exit shows, and the tasks of a cell."""

import signal
import subprocess
import sys
import time
from typing import cast

from toolcell.pool.cell.meter import SHORT_CALL_S, Evidence, limit_of_exit
from toolcell_sandbox import Limits
from toolcell_sandbox.mechanisms.cgroups import Cgroup


def test_an_exit_tells_of_a_limit_only_by_its_signal_and_its_account() -> None:
    limits = Limits(cpu_s=2.0)
    assert limit_of_exit(-signal.SIGXCPU, 2.1, limits) == "cpu"
    assert limit_of_exit(-signal.SIGKILL, 2.1, limits) == "cpu"
    assert limit_of_exit(-signal.SIGKILL, 0.1, limits) == ""
    assert limit_of_exit(-signal.SIGXFSZ, 0.1, limits) == "file_size"
    assert limit_of_exit(-signal.SIGSEGV, 0.1, limits) == "" and limit_of_exit(1, 9.0, limits) == ""


FAMILY = """
import os, sys, time
for _ in range(3):
    if os.fork() == 0:
        time.sleep(100)
print(flush=True)
sys.stdin.read()
os.killpg(0, 9)
"""


def test_tasks_are_counted_in_full_after_a_process_that_was_forked_ahead_has_taken_over() -> None:
    started = time.monotonic() - 10 * SHORT_CALL_S
    command = [sys.executable, "-I", "-S", "-c", FAMILY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as init:
        assert init.stdin is not None and init.stdout is not None
        init.stdout.readline()
        evidence = Evidence(None, Limits(), kept=False)
        evidence.new_cell(init.pid)
        evidence.new_process()
        evidence.new_call()
        evidence.forked_ahead()
        assert evidence.account(started).tasks == 2, "one of the three is for the next call"
        evidence.new_process()
        evidence.new_call()
        assert evidence.account(started).tasks == 3
        init.stdin.close()


class Counters:
    """The counters of a cgroup, as far as a call's use is read from them."""

    used_s, peak, processes = 1.0, 1_000, 1

    def cpu_s(self) -> float:
        return self.used_s

    def memory_peak(self) -> int:
        return self.peak

    def tasks(self) -> int:
        return self.processes

    def reset_peak(self) -> bool:
        return False

    def oom_kills(self) -> int:
        return 0

    def pids_refused(self) -> int:
        return 0


def test_the_use_of_a_cell_with_a_cgroup_is_that_of_its_counters() -> None:
    counters = Counters()
    evidence = Evidence(cast("Cgroup", counters), Limits(cpu_s=2.0), kept=False)
    evidence.new_process()
    evidence.new_call()
    counters.used_s, counters.peak, counters.processes = 2.5, 5_000, 4
    assert evidence.exceeded() == ""
    used = evidence.account(0.0)
    assert (used.cpu_s, used.memory_bytes, used.tasks) == (1.5, 5_000, 3), "the cell's init is none of the call's"
    counters.used_s = 3.5
    assert evidence.exceeded() == "cpu"
    evidence.new_process()
    evidence.new_call()
    assert evidence.exceeded() == "" and evidence.account(0.0).memory_bytes == 0, "the peak has not grown"
