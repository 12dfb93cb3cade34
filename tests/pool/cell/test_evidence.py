"""What is known of a call's end: the limit that an exit shows, and the tasks of a cell."""

import signal
import subprocess
import sys
import time

from toolcell.pool.cell.evidence import SHORT_CALL_S, Evidence, limit_of_exit
from toolcell_sandbox import Limits


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
