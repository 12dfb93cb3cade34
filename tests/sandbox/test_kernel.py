"""Raw system calls, the probe, and the doctor; on this kernel and on one that refuses things."""

import ctypes
import errno
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from toolcell_sandbox import SandboxError
from toolcell_sandbox.kernel.syscalls import NUMBERS, TABLES, attempt, prepared, syscall, write_file
from toolcell_sandbox.mechanisms import landlock

REFUSING = """
import json, os, sys
from toolcell_sandbox import CellProfile, SandboxError, probe, run
from toolcell_sandbox.kernel.syscalls import NUMBERS
from toolcell_sandbox.mechanisms import capabilities, seccomp
from toolcell_sandbox.mechanisms.bpf import ALLOW, NUMBER, BpfLoad, Jump, Label, Return, assemble, refuse
names, error = sys.argv[1].split(","), int(sys.argv[2])
code = [BpfLoad(NUMBER), *(Jump("==", NUMBERS[name], yes="no") for name in names), Return(ALLOW), Label("no")]
capabilities.no_new_privileges()
seccomp.load(assemble([*code, Return(refuse(error))]))
report = probe()
def outcome(allow):
    try:
        profile = CellProfile.for_kind("worker")
        return run(lambda entered: 5, profile, report=report, allow_missing=frozenset(allow)).status
    except SandboxError as error:
        return str(error)
missing = [mechanism.name for mechanism in report.missing]
print(json.dumps([missing, outcome(()), outcome(sys.argv[3].split(",")), str(report)]))
"""


def _refusing(names: str, error: int, allow: str) -> Any:
    command = [sys.executable, "-I", "-c", REFUSING, names, str(error), allow]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)


def test_a_stale_errno_is_never_taken_for_the_kernels_answer() -> None:
    ctypes.set_errno(errno.EOWNERDEAD)
    assert attempt("getpid") == os.getpid()
    assert attempt("close", 99999) == -errno.EBADF


@pytest.mark.parametrize("when", ["now", "later"])
def test_a_refused_call_names_its_step_mechanism_and_errno(when: str) -> None:
    with pytest.raises(SandboxError) as caught:
        if when == "now":
            syscall("close", -1, step="close it", mechanism="close_range", cure="Do not.")
        else:
            prepared("close", -1, step="close it", mechanism="close_range", cure="Do not.")()
    assert (caught.value.step, caught.value.mechanism, caught.value.errno) == ("close it", "close_range", errno.EBADF)
    assert str(caught.value) == "close it failed: Bad file descriptor (errno 9). Do not."
    with pytest.raises(SandboxError, match="no known number"):
        attempt("no_such_call")
    with pytest.raises(SandboxError, match="write it failed: No such file"):
        write_file("/nonexistent/file", "x", step="write it")


def test_arguments_are_passed_in_full_width() -> None:
    fd = os.open("/dev/null", os.O_RDONLY)
    path = f"/proc/self/fd/{fd}"
    with open(sys.executable, "rb") as file:
        assert attempt("lseek", file.fileno(), 0x1_0000_0001, os.SEEK_SET) == 0x1_0000_0001
    assert attempt("readlinkat", -100, path, ctypes.create_string_buffer(64), 64) == len("/dev/null")
    os.close(fd)


def test_the_tables_agree_with_the_running_kernel() -> None:
    assert attempt("gettid") == os.getpid() and attempt("getppid") == os.getppid()
    assert NUMBERS["landlock_create_ruleset"] == 444 and NUMBERS["file_setattr"] == 469
    for machine, known in {
        "x86_64": {"openat": 257, "clone": 56, "seccomp": 317, "execveat": 322, "prlimit64": 302},
        "aarch64": {"openat": 56, "clone": 220, "seccomp": 277, "execveat": 281, "prlimit64": 261, "mmap": 222},
    }.items():
        assert {name: TABLES[machine][name] for name in known} == known
        assert len(set(TABLES[machine].values())) == len(TABLES[machine])


def test_the_doctor_prints_json_and_says_by_its_status_that_nothing_is_missing() -> None:
    command = [sys.executable, "-I", "-m", "toolcell_sandbox.doctor"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    report = json.loads(done.stdout)
    identity, states = ("root", {"on"}) if os.geteuid() == 0 else ("rootless", {"on", "substituted"})
    assert report["identity"] == identity and {row["state"] for row in report["mechanisms"]} <= states


def test_a_kernel_without_landlock_is_refused_until_it_is_allowed_by_name() -> None:
    names = "landlock_create_ruleset,landlock_add_rule,landlock_restrict_self"
    missing, refused, allowed, text = _refusing(names, errno.ENOSYS, "landlock")
    assert missing == ["landlock", "landlock_net", "landlock_scope"]
    assert "landlock is missing" in refused and "lsm=" in refused and "allow_missing={'landlock'}" in refused
    assert allowed == 5 and "Boot a kernel from 5.13" in text


@pytest.mark.root
def test_a_container_that_forbids_the_new_mount_calls_is_refused_by_name() -> None:
    missing, refused, _allowed, _text = _refusing("open_tree,mount_setattr", errno.EPERM, "mount_namespace")
    assert missing == ["mount_setattr", "idmapped_mounts"] and "mount_setattr is missing" in refused


@pytest.mark.root
def test_a_container_that_forbids_namespaces_is_refused_by_name() -> None:
    missing, refused, _allowed, _text = _refusing("unshare", errno.EPERM, "mount_namespace")
    assert (
        missing[0] == "mount_namespace"
        and "mechanisms mount_namespace, pid_namespace, " in refused
        and "unshare" in refused
    )


def test_what_a_landlock_abi_does_not_know_is_not_handled() -> None:
    assert landlock.handled(1) == (0x1FFF, 0, 0)
    assert landlock.handled(2) == (0x3FFF, 0, 0)
    assert landlock.handled(3) == (0x7FFF, 0, 0)
    assert landlock.handled(4) == (0x7FFF, 3, 0)
    assert landlock.handled(5) == (0xFFFF, 3, 0)
    assert landlock.handled(6) == landlock.handled(7) == landlock.handled(99) == (0xFFFF, 3, 3)
    assert landlock.WRITE & (landlock.MAKE_CHAR | landlock.MAKE_BLOCK | landlock.EXECUTE | landlock.IOCTL_DEV) == 0


TOO_MANY_LAYERS = """
from toolcell_sandbox import SandboxError
from toolcell_sandbox.mechanisms import capabilities, landlock
capabilities.no_new_privileges()
version, made = landlock.abi(), 0
try:
    while made < 20:
        landlock.restrict((), version)
        made += 1
except SandboxError as error:
    print(made, error.step, error.mechanism, error.errno, error.cure, sep="|")
"""


def test_one_layer_too_many_names_landlock_and_the_cure() -> None:
    command = [sys.executable, "-I", "-c", TOO_MANY_LAYERS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    made, step, mechanism, error, cure = done.stdout.strip().split("|")
    assert (step, mechanism, int(error)) == ("restrict with Landlock", "landlock", errno.E2BIG)
    assert int(made) <= 16 and "16 Landlock layers" in cure


KEEPS_A_GROUP = """
import os
from toolcell_sandbox import Identity, SandboxError
from toolcell_sandbox.kernel.syscalls import NUMBERS
from toolcell_sandbox.mechanisms import capabilities, seccomp
from toolcell_sandbox.mechanisms.bpf import ALLOW, NUMBER, BpfLoad, Jump, Label, Return, assemble, refuse
capabilities.no_new_privileges()
jump = Jump("==", NUMBERS["setresgid"], no="other")
pretends = [BpfLoad(NUMBER), jump, Return(refuse(0)), Label("other"), Return(ALLOW)]
seccomp.load(assemble(pretends))
try:
    capabilities.drop(Identity("root", 70000, 70000))
except SandboxError as error:
    print(error.step, error.what, sep="|")
"""


@pytest.mark.root
def test_a_group_that_stays_though_the_kernel_said_it_was_left_is_found() -> None:
    command = [sys.executable, "-I", "-c", KEEPS_A_GROUP]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.startswith("drop capabilities|Privileges are left")
