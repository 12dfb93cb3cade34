"""The filter's bytes, evaluated for every number on every machine; the real filter runs in test_enter.py."""

import errno

import pytest
from tests.bpf_evaluator import evaluate

from toolcell_sandbox.kernel.syscalls import AUDIT_ARCH, TABLES
from toolcell_sandbox.mechanisms.bpf import (
    ALLOW,
    KILL_PROCESS,
    refuse,
)
from toolcell_sandbox.mechanisms.seccomp import CHECKS, EXEC_REFUSED, REFUSED, WATCH_REFUSED, program

MACHINES = sorted(TABLES)
HIGH = 0x1_0000_0000


def _answer(machine: str, name: str, *arguments: int, allow_exec: bool = True) -> int:
    return evaluate(program(machine, allow_exec=allow_exec), TABLES[machine][name], AUDIT_ARCH[machine], arguments)


@pytest.mark.parametrize("machine", MACHINES)
def test_every_number_has_the_answer_of_its_entry(machine: str) -> None:
    every = (*REFUSED, EXEC_REFUSED, WATCH_REFUSED)
    refused = {name: refuse(error) for names, error, _reason in every for name in names.split()}
    checked = {name for check in CHECKS for name in check.names.split()}
    names = {number: name for name, number in TABLES[machine].items()}
    filter_bytes = program(machine, allow_exec=False)
    for number in range(1200):
        name = names.get(number)
        if name in checked:
            continue
        wanted = refuse(errno.ENOSYS) if name is None else refused.get(name, ALLOW)
        assert evaluate(filter_bytes, number, AUDIT_ARCH[machine]) == wanted, (number, name)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_foreign_instruction_set_is_killed_whatever_the_number(machine: str) -> None:
    for arch in {0x40000003, 0xC000003E, 0xC00000B7, 0x40000028, 0} - {AUDIT_ARCH[machine]}:
        for number in (*range(500), 0x40000000, 0xFFFFFFFF):
            assert evaluate(program(machine, allow_exec=True), number, arch) == KILL_PROCESS


def test_x32_numbers_are_killed() -> None:
    for number in (0x40000000, 0x40000000 | 41, 0x7FFFFFFF, 0xFFFFFFFF):
        assert evaluate(program("x86_64", allow_exec=True), number, AUDIT_ARCH["x86_64"]) == KILL_PROCESS


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_that_no_kernel_has_yet_do_not_exist(machine: str) -> None:
    for number in (470, 500, 1000, 100_000, 0x3FFFFFFF):
        assert evaluate(program(machine, allow_exec=True), number, AUDIT_ARCH[machine]) == refuse(errno.ENOSYS)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("high", [0, HIGH, 0xFFFFFFFF << 32])
def test_high_bits_that_the_kernel_ignores_change_no_answer(machine: str, high: int) -> None:
    no = refuse(errno.EPERM)
    assert _answer(machine, "clone", high | 0x10000000 | 17) == no
    assert _answer(machine, "clone", high | 0x00020000) == no
    assert _answer(machine, "clone", high | 0x3D0F00) == ALLOW  # what pthread_create passes
    assert _answer(machine, "ioctl", 0, high | 0x5412) == no
    assert _answer(machine, "ioctl", 0, high | 0x541C) == no
    assert _answer(machine, "ioctl", 0, high | 0x5401) == ALLOW
    assert _answer(machine, "fcntl", 0, high | 1024) == no
    assert _answer(machine, "fcntl", 0, high | 1026) == no
    for owner in (8, 10, 15):  # F_SETOWN, F_SETSIG, F_SETOWN_EX
        assert _answer(machine, "fcntl", 0, high | owner) == no
    for question in (9, 11, 16):  # F_GETOWN, F_GETSIG, F_GETOWN_EX
        assert _answer(machine, "fcntl", 0, high | question) == ALLOW
    for owner in (0x8901, 0x8902):  # FIOSETOWN, SIOCSPGRP
        assert _answer(machine, "ioctl", 0, high | owner) == no
    assert _answer(machine, "fcntl", 0, high | 6) == ALLOW  # F_SETLK: sqlite in the workspace
    assert _answer(machine, "socketpair", high | 1, high | 1) == ALLOW
    assert _answer(machine, "socketpair", high | 2, high | 1) == refuse(errno.EAFNOSUPPORT)
    assert _answer(machine, "socketpair", high | 1, high | 0o2000002) == refuse(errno.EAFNOSUPPORT)
    assert _answer(machine, "socket", high | 2) == refuse(errno.EAFNOSUPPORT)
    assert _answer(machine, "prlimit64", high | 0) == ALLOW
    assert _answer(machine, "prlimit64", high | 7) == no
    assert _answer(machine, "personality", high | 0xFFFFFFFF) == ALLOW
    assert _answer(machine, "personality", high | 0x0040000) == no
    assert _answer(machine, "seccomp", high | 1, high | 8) == no
    assert _answer(machine, "seccomp", high | 1, high | 9) == no
    assert _answer(machine, "seccomp", high | 1, high | 1) == ALLOW
    assert _answer(machine, "fchmod", 3, high | 0o4755) == no
    assert _answer(machine, "fchmodat", 3, 0, high | 0o2755) == no
    assert _answer(machine, "fchmodat2", 3, 0, high | 0o6755, 0) == no
    assert _answer(machine, "fchmod", 3, high | 0o1777) == ALLOW
    assert _answer(machine, "mkdirat", 3, 0, high | 0o4755) == no
    assert _answer(machine, "mknodat", 3, 0, high | 0o104755) == no
    assert _answer(machine, "openat", 3, 0, high | 0o101, high | 0o4755) == no
    assert _answer(machine, "openat", 3, 0, high | 0o20200001, high | 0o4755) == no
    assert _answer(machine, "openat", 3, 0, high | 0, high | 0o7777) == ALLOW  # no file is made: the mode is not read
    assert _answer(machine, "openat", 3, 0, high | 0o101, high | 0o1666) == ALLOW


def test_the_old_calls_of_x86_64_are_checked_too() -> None:
    for name, arguments in (
        ("chmod", (0, 0o4755)),
        ("creat", (0, 0o4755)),
        ("open", (0, 0o101, 0o4755)),
        ("mkdir", (0, 0o2755)),
        ("mknod", (0, 0o104755)),
    ):
        assert _answer("x86_64", name, *arguments) == refuse(errno.EPERM), name


@pytest.mark.parametrize("machine", MACHINES)
def test_what_the_call_layer_needs_stays_allowed(machine: str) -> None:
    for name in (
        "landlock_create_ruleset",
        "landlock_add_rule",
        "landlock_restrict_self",
        "signalfd4",
        "kill",
        "wait4",
    ):
        assert _answer(machine, name) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_execve_depends_on_the_grant_alone(machine: str) -> None:
    for name in ("execve", "execveat"):
        assert _answer(machine, name) == ALLOW
        assert _answer(machine, name, allow_exec=False) == refuse(errno.EACCES)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_cell_watches_files_where_it_may_be_granted_to_write(machine: str) -> None:
    number, arch = TABLES[machine]["inotify_add_watch"], AUDIT_ARCH[machine]
    for allow_exec in (True, False):
        assert evaluate(program(machine, allow_exec=allow_exec), number, arch) == refuse(errno.EPERM)
        assert evaluate(program(machine, allow_exec=allow_exec, allow_watch=True), number, arch) == ALLOW
    assert _answer(machine, "inotify_init1") == ALLOW  # which tells nothing by itself


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("high", [0, HIGH, 0xFFFFFFFF << 32])
def test_the_core_limit_can_be_read_and_not_changed_and_others_can(machine: str, high: int) -> None:
    no, core = refuse(errno.EINVAL), 4
    for pointer in (1, 0x1000, HIGH, 0x7F00 << 32, (1 << 63), 0xFFFFFFFF, HIGH | 0x1000):
        assert _answer(machine, "prlimit64", 0, high | core, pointer, 0) == no, hex(pointer)
        for other in (*range(4), *range(5, 16)):
            assert _answer(machine, "prlimit64", 0, high | other, pointer, 0) == ALLOW
    assert _answer(machine, "prlimit64", 0, high | core, 0, 0x1000) == ALLOW
    assert _answer(machine, "setrlimit", high | core, 0x1000) == no
    assert all(_answer(machine, "setrlimit", high | other, 0x1000) == ALLOW for other in (*range(4), *range(5, 16)))
    assert _answer(machine, "getrlimit", core, 0x1000) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("high", [0, HIGH, 0xFFFFFFFF << 32])
def test_no_process_becomes_dumpable_takes_pages_of_the_pool_or_connects_by_sending(machine: str, high: int) -> None:
    no = refuse(errno.EPERM)
    assert _answer(machine, "prctl", high | 4, 1) == _answer(machine, "prctl", high | 4, high | 1) == no
    assert _answer(machine, "prctl", high | 4, 2) == no
    assert _answer(machine, "prctl", high | 4, 0) == ALLOW
    assert all(_answer(machine, "prctl", high | option, 1) == ALLOW for option in (1, 3, 8, 15, 36, 38))
    for size in (0, 21 << 26, 30 << 26):  # MAP_HUGE_2MB, MAP_HUGE_1GB
        assert _answer(machine, "mmap", 0, 4096, 3, high | 0x40022 | size, -1, 0) == no
        assert _answer(machine, "mmap", 0, 4096, 3, high | 0x22 | size, -1, 0) == ALLOW
    assert _answer(machine, "mmap", 0, 4096, 3, 0x100022 | 0x20000 | 0x8000, -1, 0) == ALLOW  # the flags around it
    for advice in (14, 15, 25):  # MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLLAPSE: pages that a memory cgroup counts
        assert _answer(machine, "madvise", 0, 4096, advice) == ALLOW
    for name in ("memfd_create", "shmget"):  # MFD_HUGETLB and SHM_HUGETLB with all the rest
        assert _answer(machine, name) == no
    connects = refuse(errno.EOPNOTSUPP)
    for name, before in (("sendto", 3), ("sendmmsg", 3), ("sendmsg", 2)):
        arguments = (0,) * before
        for flags in (0x20000000, 0x20004000, 0x20000040):
            assert _answer(machine, name, *arguments, high | flags) == connects
        for flags in (0, 0x4000, 0x4040, 0x4000000, 0x40000000):  # MSG_NOSIGNAL, MSG_DONTWAIT, MSG_ZEROCOPY
            assert _answer(machine, name, *arguments, high | flags) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_a_process_schedules_itself_and_no_other(machine: str) -> None:
    for name in ("sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr", "get_robust_list"):
        assert _answer(machine, name, 0) == _answer(machine, name, HIGH) == ALLOW  # a pid is an int
        for pid in (1, 2, 0xFFFFFFFF, HIGH | 1):
            assert _answer(machine, name, pid) == refuse(errno.EPERM)
    for name, process in (("setpriority", 0), ("ioprio_set", 1)):
        assert _answer(machine, name, process, 0) == ALLOW
        for which, who in ((process, 1), (process, HIGH | 1), (1 - process, 0), (2, 0), (3, 0), (process, 0xFFFFFFFF)):
            assert _answer(machine, name, which, who) == refuse(errno.EPERM)
    for name in ("sched_getaffinity", "sched_getscheduler", "getpriority", "ioprio_get"):
        assert _answer(machine, name, 1) == ALLOW


def test_every_entry_names_a_call_of_some_machine_and_a_reason() -> None:
    known = {name for table in TABLES.values() for name in table}
    for names, _error, reason in (*REFUSED, EXEC_REFUSED, WATCH_REFUSED):
        assert reason and set(names.split()) <= known | {"create_module", "get_kernel_syms", "query_module"}
    for check in CHECKS:
        assert check.reason and set(check.names.split()) <= known


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("high", [0, HIGH, 0xFFFFFFFF << 32])
def test_a_socket_keeps_its_buffers_and_a_lock_belongs_to_a_process(machine: str, high: int) -> None:
    for option in range(64):  # 7 and 8: SO_SNDBUF and SO_RCVBUF. Success, and nothing is done
        wanted = refuse(0) if option in (7, 8) else ALLOW
        assert _answer(machine, "setsockopt", 3, high | 1, high | option) == wanted
        assert _answer(machine, "setsockopt", 3, high | 41, high | option) == ALLOW
    for command, wanted in ((5, ALLOW), (6, ALLOW), (7, ALLOW), (36, ALLOW), (37, refuse(22)), (38, refuse(22))):
        assert _answer(machine, "fcntl", 3, high | command) == wanted


def test_the_filter_is_short_for_every_call() -> None:
    for machine in MACHINES:
        assert len(program(machine, allow_exec=False)) // 8 < 550


@pytest.mark.parametrize("machine", MACHINES)
def test_only_threads_share_descriptors(machine: str) -> None:
    """POSIX locks belong to the table of descriptors, and /proc/locks counts them for the process that took them: locks
    of one that has ended would count for nobody."""
    files, thread, vm, vfork = 0x400, 0x10000, 0x100, 0x4000
    assert _answer(machine, "clone", files) == refuse(errno.EPERM)
    assert _answer(machine, "clone", files | vm | vfork) == refuse(errno.EPERM)
    assert _answer(machine, "clone", files | vm | thread | 0x800) == ALLOW
    assert _answer(machine, "clone", vm | vfork) == ALLOW
    assert _answer(machine, "clone", 17) == ALLOW
