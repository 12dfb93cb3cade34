"""What the limits of a cell are computed from."""

import os

import psutil

from toolcell_sandbox import Limits
from toolcell_sandbox.mechanisms.rlimits import BEHIND_CGROUP, OTHERS_MAY_START, OWN_PROCESSES, most_processes


def test_what_the_user_runs_already_is_added_if_the_limit_is_shared_with_it() -> None:
    limits = Limits(processes=10)
    own = most_processes(limits, pids_cgroup=False, shared=False)
    assert own == 10 + OWN_PROCESSES
    assert most_processes(limits, pids_cgroup=True, shared=False) == own + BEHIND_CGROUP
    running = 0
    for process in psutil.process_iter(["uids", "num_threads"]):
        if process.info["uids"] is not None and process.info["uids"].effective == os.geteuid():
            running += process.info["num_threads"] or 0
    found = most_processes(limits, pids_cgroup=False, shared=True) - own - OTHERS_MAY_START
    assert running / 2 < found < running * 2  # other processes come and go meanwhile
