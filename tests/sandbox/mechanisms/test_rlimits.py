"""The numbers of rlimits. `test_spawn.py` and `test_enter.py` have them in force."""

import mmap
import os

import psutil

from toolcell_sandbox import Limits
from toolcell_sandbox.mechanisms.rlimits import (
    BEHIND_CGROUP,
    MAPPED_STEP,
    OTHERS_MAY_START,
    OWN_PROCESSES,
    address_space_in_use,
    most_processes,
)


def test_a_pids_cgroup_refuses_before_the_rlimit_does() -> None:
    limits = Limits(processes=10)
    assert most_processes(limits, pids_cgroup=False, shared=False) == 10 + OWN_PROCESSES
    assert most_processes(limits, pids_cgroup=True, shared=False) == 10 + OWN_PROCESSES + BEHIND_CGROUP


def test_a_limit_that_is_shared_has_room_for_the_users_other_processes() -> None:
    limits = Limits(processes=10)
    own = most_processes(limits, pids_cgroup=False, shared=False)
    running = 0
    for process in psutil.process_iter(["uids", "num_threads"]):
        if process.info["uids"] is not None and process.info["uids"].effective == os.geteuid():
            running += process.info["num_threads"] or 0
    found = most_processes(limits, pids_cgroup=False, shared=True) - own - OTHERS_MAY_START
    assert running / 2 < found < running * 2  # other processes come and go meanwhile


def test_the_mapped_address_space_is_in_steps_and_has_all_that_is_mapped() -> None:
    before = address_space_in_use()
    with mmap.mmap(-1, 8 * MAPPED_STEP) as mapped:
        assert address_space_in_use() >= before + 7 * MAPPED_STEP
        assert len(mapped) == 8 * MAPPED_STEP
    assert before % MAPPED_STEP == 0
