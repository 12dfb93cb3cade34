"""What a process leaves of its parent, at its start."""

import subprocess
import sys

import pytest

LEAVE = """
import os, sys
from toolcell_sandbox.mechanisms.lifetime import leave_priority
policy, priority, nice = map(int, sys.argv[1:])
os.setpriority(os.PRIO_PROCESS, 0, nice)
os.sched_setscheduler(0, policy, os.sched_param(priority))
leave_priority()
print(os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, os.getpriority(os.PRIO_PROCESS, 0))
"""


@pytest.mark.root
@pytest.mark.parametrize(
    ("before", "after"),
    [("1 5 0", "0 0 0"), ("2 1 -7", "0 0 0"), ("3 0 0", "3 0 0"), ("0 0 -1", "0 0 0"), ("0 0 4", "0 0 4")],
    ids=["FIFO", "RR", "BATCH", "before others", "after others"],
)
def test_a_process_leaves_a_priority_over_others_and_keeps_a_lower_one(before: str, after: str) -> None:
    ended = subprocess.run([sys.executable, "-c", LEAVE, *before.split()], capture_output=True, text=True, check=True)
    assert ended.stdout == f"{after}\n"
