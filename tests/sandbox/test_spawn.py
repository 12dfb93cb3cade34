"""Forking a cell: whose child it is, when it dies, what is left behind."""

import json
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import PATIENCE_S

from toolcell_sandbox import Limits

MAKER = """
import json, os, signal, sys, time
from toolcell_sandbox import CellProfile, Identity, SandboxError, probe, spawn
from toolcell_sandbox.identity import unused_slots
from toolcell_sandbox.spawn import terminate
report, identity, profile = probe(), Identity.for_slot(unused_slots()), CellProfile.for_kind("worker")
def sleep(entered):
    while True:
        time.sleep(60)
def make(main=sleep, failed=lambda error: None, **options):
    return spawn(profile, main, failed, identity=identity, report=report, **options)
def say(value):
    print(json.dumps(value), flush=True)
"""


@contextmanager
def _start(code: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that makes cells. It is killed at the end, also of a test that failed while it hung."""
    with subprocess.Popen([sys.executable, "-I", "-c", MAKER + code], stdout=subprocess.PIPE, text=True) as maker:
        try:
            yield maker
        finally:
            maker.kill()


def _run(code: str) -> Any:
    with _start(code) as maker:
        out = maker.communicate(timeout=120)[0]
    assert maker.returncode == 0
    return json.loads(out.splitlines()[-1])


def _is_gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _wait_gone(pid: int) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if _is_gone(pid):
            return True
        time.sleep(0.01)
    return False


def test_a_cell_dies_with_its_maker() -> None:
    with _start("say(make().pid); time.sleep(60)") as maker:
        assert maker.stdout is not None
        pid = json.loads(maker.stdout.readline())
        time.sleep(0.2)
        assert not _is_gone(pid)
        maker.kill()
        assert _wait_gone(pid)


def test_a_cell_whose_maker_dies_during_the_hand_over_never_starts() -> None:
    code = """
module = sys.modules["toolcell_sandbox.spawn"]
opened = os.pidfd_open
def die(pid):
    if pid == os.getpid():
        return opened(pid)
    say(pid)
    os._exit(0)
module.os.pidfd_open = die
make(lambda entered: open("/dev/stdout", "w").write("started"))
"""
    with _start(code) as maker:
        out = maker.communicate(timeout=120)[0]
    assert "started" not in out
    assert _wait_gone(json.loads(out))


def test_a_cell_dies_with_its_maker_even_though_setresuid_clears_the_signal_and_the_tool_is_busy() -> None:
    with _start("say(make(lambda entered: [None for _ in iter(int, 1)]).pid); time.sleep(60)") as maker:
        assert maker.stdout is not None
        pid = json.loads(maker.stdout.readline())
        time.sleep(0.3)
        maker.kill()
        assert _wait_gone(pid)


def test_the_cell_is_a_child_of_its_maker_and_its_pidfd_is_right() -> None:
    code = """
child = make()
parent = int(open(f"/proc/{child.pid}/stat").read().rsplit(")", 1)[1].split()[1])
info = open(f"/proc/self/fdinfo/{child.pidfd}").read()
say([parent == os.getpid(), f"Pid:\\t{child.pid}\\n" in info, terminate(child)])
"""
    assert _run(code) == [True, True, -9]


def test_making_cells_leaks_no_descriptor_and_no_child() -> None:
    code = """
def fds(): return len(os.listdir("/proc/self/fd"))
terminate(make()); before = fds()
for _ in range(10):
    terminate(make())
try:
    os.waitpid(-1, os.WNOHANG); left = True
except ChildProcessError:
    left = False
say([fds() - before, left])
"""
    assert _run(code) == [0, False]


def test_a_failure_before_the_init_exists_is_raised_and_told() -> None:
    code = """
import toolcell_sandbox.enter
read, write = os.pipe()
module = sys.modules["toolcell_sandbox.enter"]
unshare = module.namespaces.unshare
def refuse(names):
    if "net_namespace" not in names:
        return unshare(names)
    raise SandboxError("no namespace", step="unshare", mechanism="net_namespace", errno=1)
module.namespaces.unshare = refuse
try:
    make(failed=lambda error: os.write(write, error.step.encode()))
except SandboxError as error:
    say([error.step, error.errno, error.mechanism, os.read(read, 100).decode()])
"""
    assert _run(code) == ["unshare", 1, "net_namespace", "unshare"]


def test_a_cgroup_that_cannot_be_joined_is_told_by_name() -> None:
    code = """
read, write = os.pipe()
child = make(failed=lambda error: os.write(write, str(error).encode()), cgroups=("/nonexistent",), keep_fds=(write,))
say([os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]), os.read(read, 1000).decode()])
"""
    status, told = _run(code)
    assert status == 1 and told.startswith("join /nonexistent failed: No such file") and "still there?" in told


def test_a_failure_inside_the_init_is_told_and_the_cell_exits_with_1() -> None:
    code = """
import toolcell_sandbox.enter
read, write = os.pipe()
module = sys.modules["toolcell_sandbox.enter"]
module.landlock.restrict = lambda *rules, **rest: 1 / 0
tell = lambda error: os.write(write, error.what.encode())
child = make(lambda entered: os.write(write, b"ran"), tell, keep_fds=(write,))
status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
say([status, os.read(read, 1000).decode()])
"""
    status, told = _run(code)
    assert status == 1 and "ZeroDivisionError" in told


def test_a_main_that_returns_or_raises_ends_the_cell_with_1() -> None:
    code = """
def broken(entered): raise RuntimeError("oops")
read, write = os.pipe()
ends = []
for main in (lambda entered: None, broken):
    child = make(main, lambda error: os.write(write, error.what.encode()), keep_fds=(write,))
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]))
    ends.append(os.read(read, 1000).decode())
say(ends)
"""
    assert _run(code) == [1, "The cell's main returned", 1, "The cell's main raised: RuntimeError('oops')"]


FORKS = """
forks = []
there = lambda: os.path.exists("/proc/self/ns/pid_for_children")  # a namespace without a first process is not shown
os.register_at_fork(before=lambda: forks.append(there()))
"""


@pytest.mark.root
def test_as_root_a_cell_takes_one_fork_and_the_makers_next_child_is_in_the_makers_namespace() -> None:
    code = """
own = os.readlink("/proc/self/ns/pid")
child = make()
after = os.readlink("/proc/self/ns/pid_for_children")
mine = os.fork()
if mine == 0:
    os._exit(0 if os.readlink("/proc/self/ns/pid") == own else 1)
status = os.waitstatus_to_exitcode(os.waitpid(mine, 0)[1])
terminate(child)
say([forks, after == own, status])
"""
    assert _run(FORKS + code) == [[False, True], True, 0], "one for the cell, one of our own"


@pytest.mark.root
def test_a_maker_that_cannot_come_back_from_a_pid_namespace_forks_twice() -> None:
    code = """
module = sys.modules["toolcell_sandbox.mechanisms.namespaces"]
module.can_come_back = lambda: False
child = make()
say([forks, os.readlink("/proc/self/ns/pid_for_children") == os.readlink("/proc/self/ns/pid")])
terminate(child)
"""
    assert _run(FORKS + code) == [[True], True], "the second is in the process between"


@pytest.mark.root
def test_a_fork_that_is_refused_leaves_the_maker_in_its_namespace() -> None:
    code = """
module = sys.modules["toolcell_sandbox.mechanisms.namespaces"]
def refuse(step):
    raise SandboxError("no room", step=step)
module.fork = refuse
try:
    make()
except SandboxError as error:
    say([error.step, os.readlink("/proc/self/ns/pid_for_children") == os.readlink("/proc/self/ns/pid")])
"""
    assert _run(code) == ["fork the cell", True]


def test_every_descendant_dies_with_the_init() -> None:
    code = """
read, write = os.pipe()
def main(entered):
    for _ in range(5):
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(write, b"x")
            time.sleep(60)
    time.sleep(60)
child = make(main, keep_fds=(write,))
os.close(write)
ready = b""
while len(ready) < 5: ready += os.read(read, 5)
terminate(child)
say(os.read(read, 1).decode())  # end of file: nobody holds the other end
"""
    assert _run(code) == ""


def test_an_undumpable_maker_can_make_cells(any_cell: Any) -> None:
    before = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)"
    assert any_cell("print(1)", before=before).value == 1


def test_importing_is_cheap_and_functions_are_not_hidden_by_modules_of_their_name() -> None:
    code = """
import sys
import toolcell_sandbox.spawn, toolcell_sandbox.enter, toolcell_sandbox.kernel.probe
from toolcell_sandbox import spawn, enter, CellProfile, CgroupTree
from toolcell_sandbox.spawn import spawn as again
assert callable(spawn) and callable(enter) and spawn is again
heavy = {"typing", "subprocess", "json", "asyncio", "socket", "threading", "pathlib", "tempfile", "logging"}
print(sorted(heavy & set(sys.modules)))
from toolcell_sandbox import run
assert callable(run)
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {_source()!r})\n{code}"],
                          capture_output=True, text=True, check=True, timeout=120)  # fmt: skip
    assert done.stdout.strip() == "[]"


def _source() -> str:
    import toolcell_sandbox

    return str(Path(toolcell_sandbox.__file__).parent.parent)


@pytest.mark.parametrize("round_", range(3))
def test_cells_are_made_in_a_row_in_a_reused_cgroup(tree: Any, round_: int) -> None:
    group = tree.create(f"row{round_}", Limits())
    try:
        code = f"""
for _ in range(5):
    child = make(cgroups={group.paths!r})
    terminate(child)
say(0)
"""
        assert _run(code) == 0
        assert group.processes() == []
    finally:
        group.remove()


def test_signals_reach_only_the_cell() -> None:
    code = """
child = make()
time.sleep(0.1)
os.kill(child.pid, signal.SIGTERM)   # pid 1 ignores what it has no handler for
time.sleep(0.1)
alive = os.waitpid(child.pid, os.WNOHANG)[0] == 0
say([alive, terminate(child)])
"""
    assert _run(code)[1] == -signal.SIGKILL


@pytest.mark.root
def test_a_maker_that_is_kept_from_coming_back_kills_what_it_forked() -> None:
    code = """
from toolcell_sandbox.kernel.syscalls import NUMBERS
from toolcell_sandbox.mechanisms import capabilities, namespaces, seccomp
from toolcell_sandbox.mechanisms.bpf import ALLOW, NUMBER, BpfLoad, Jump, Label, Return, assemble, refuse
refused = [BpfLoad(NUMBER), Jump("==", NUMBERS["setns"], no="other"), Return(refuse(1)), Label("other"), Return(ALLOW)]
capabilities.no_new_privileges()
seccomp.load(assemble(refused))
try:
    if namespaces.fork_first("fork it") == 0:
        time.sleep(3600)
        os._exit(0)
except SandboxError as error:
    told = [error.step, error.errno]
try:
    os.waitpid(-1, os.WNOHANG); told.append("a child is left")
except ChildProcessError:
    told.append("none is left")
say(told)
"""
    assert _run(code) == ["come back from the pid namespace", 1, "none is left"]


def test_a_descriptor_that_cannot_be_moved_is_closed_and_told_with_the_limit_to_raise() -> None:
    code = """
import errno, resource
from toolcell_sandbox.kernel import descriptors
fd = os.open("/dev/null", os.O_RDONLY)
_soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors.LOWEST_OWN, hard))
try:
    descriptors.raised(fd)
except SandboxError as error:
    say([error.step, error.errno == errno.EINVAL, "ulimit -n" in error.cure, fd in descriptors.open_fds(32)])
"""
    assert _run(code) == ["move a descriptor", True, True, False]


def test_a_call_gets_its_cpu_time_in_whole_seconds_rounded_up_and_one_more() -> None:
    code = """
import resource
from toolcell_sandbox.mechanisms import rlimits
def limits_of(*steps):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        for step in steps:
            step()
        os.write(write, json.dumps(resource.getrlimit(resource.RLIMIT_CPU)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return json.loads(os.read(read, 100))
lower = lambda: resource.setrlimit(resource.RLIMIT_CPU, (40, 40))
again = lambda: rlimits.limit_cpu_again(100, 0)
say([
    limits_of(rlimits.call_cpu_limit(5)), limits_of(rlimits.call_cpu_limit(0.2)),
    limits_of(lower, lambda: rlimits.call_cpu_limit(100)()), limits_of(lower, again),
])
"""
    assert _run(code) == [[6, 7], [1, 2], [39, 40], [39, 40]]


def test_whether_a_process_limit_binds_is_tried_and_told() -> None:
    code = """
from toolcell_sandbox.mechanisms import rlimits
outside = [line.split() for line in open("/proc/self/uid_map")][0][1]
say([rlimits.bind_processes(), os.geteuid() != 0 or outside != "0"])
"""
    found, expected = _run(code)
    assert found == expected


@pytest.mark.parametrize(
    ("missing", "has_proc"), [(("mount_namespace",), False), (("mount_namespace", "landlock"), True)]
)
def test_without_a_root_of_its_own_an_init_sets_scores_where_nothing_keeps_it_from_proc(
    missing: tuple[str, ...], has_proc: bool
) -> None:
    code = f"""
from dataclasses import replace
parts = [each for each in report.mechanisms if each.name.startswith({missing!r}) or each.name == "mount_setattr"]
report = report.changed(*(replace(each, state="missing") for each in parts))
read, write = os.pipe()
def tell(entered):
    os.write(write, str(entered.score_fd >= 0).encode())
    sleep(entered)
missing = frozenset(each.name for each in parts)
child = make(tell, lambda error: os.write(write, str(error).encode()), allow_missing=missing, keep_fds=(write,))
os.close(write)
say(os.read(read, 100).decode())
terminate(child)
"""
    found = _run(code)
    if "landlock" in missing or _others_can_enter(sys.base_prefix):
        assert found == str(has_proc)
    else:  # Landlock's rules are made by the cell's own user, who has no root to find the interpreter in
        assert found.startswith("A path of the profile cannot be reached from inside the cell: ")


def _others_can_enter(path: str) -> bool:
    return all(each.stat().st_mode & stat.S_IXOTH for each in (Path(path), *Path(path).parents))
