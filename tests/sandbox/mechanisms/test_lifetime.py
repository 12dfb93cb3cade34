"""What a process leaves of its parent, at its start."""

import subprocess
import sys

import pytest

LEAVE = """
import os, sys
from toolcell_sandbox.mechanisms.lifetime import leave_realtime
os.sched_setscheduler(0, int(sys.argv[1]), os.sched_param(int(sys.argv[2])))
leave_realtime()
print(os.sched_getscheduler(0), os.sched_getparam(0).sched_priority)
"""


@pytest.mark.root
@pytest.mark.parametrize(
    ("before", "after"), [("1 5", "0 0"), ("2 1", "0 0"), ("3 0", "3 0")], ids=["FIFO", "RR", "BATCH"]
)
def test_a_process_leaves_a_real_time_class_and_no_other(before: str, after: str) -> None:
    ended = subprocess.run([sys.executable, "-c", LEAVE, *before.split()], capture_output=True, text=True, check=True)
    assert ended.stdout == f"{after}\n"
