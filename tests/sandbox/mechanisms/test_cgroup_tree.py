"""Where groups can be made in cgroup v2, on the real hierarchy.

What needs the memory and pids controllers in v2 is left out where v1 holds them; what is about processes and groups
only runs with whatever controller v2 has here.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import PATIENCE_S
from tests.ordinary import AS_USER, USER
from tests.sandbox.conftest import SOURCE, unified_controllers, unified_mount

from toolcell_sandbox import Cgroup
from toolcell_sandbox.mechanisms.cgroup_tree import _v2_bases, is_delegated
from toolcell_sandbox.mechanisms.cgroups import join
from toolcell_sandbox.profile import python_paths

pytestmark = pytest.mark.root

MIB = 1024 * 1024
DELEGATED_FILES = ("", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads")  # systemd gives these to the user

IN_A_GROUP = """
import json, os, subprocess, sys
group = sys.argv[1]
child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
def group_of(pid):
    return [line[3:].strip() for line in open(f"/proc/{pid}/cgroup") if line.startswith("0::")][0]
answer = {}
"""
THE_END = """
answer |= {"self": group_of("self"), "child": group_of(child.pid)}
answer["passed_on"] = open(group + "/cgroup.subtree_control").read().split()
child.kill()
child.wait()
print(json.dumps(answer))
"""
DIVIDE = """
from toolcell_sandbox.mechanisms.cgroup_tree import divide
answer["done"] = divide(group, frozenset(sys.argv[2:]))
"""
DETECT = """
from toolcell_sandbox import CgroupTree, Limits
tree = CgroupTree.detect()
answer["tree"] = repr(tree)
"""
LIMIT = """
from toolcell_sandbox.mechanisms.cgroups import join
answer["again"] = repr(CgroupTree.detect())
made = tree.create("test", Limits(memory_bytes=64 << 20, processes=8))
def inside(code):
    done = subprocess.run([sys.executable, "-c", code], preexec_fn=lambda: join(made.paths), capture_output=True)
    return done.returncode
answer["reset"] = made.reset_peak()
before = made.cpu_s()
answer["eats"] = inside("x = bytearray(200 << 20)")
answer["oom_kills"], answer["peak"] = made.oom_kills(), made.memory_peak()
forks = "import os, time\\nfor _ in range(20):\\n    if os.fork() == 0: time.sleep(60)"
answer["forks"] = inside(forks)
answer["refused"], answer["tasks"] = made.pids_refused(), made.tasks()
made.kill()
answer["left"] = made.processes()
inside("import time\\nwhile time.process_time() < 0.3: pass")
answer["cpu_s"] = made.cpu_s() - before
made.remove()
"""


@pytest.fixture
def controllers() -> list[str]:
    """What a group of v2 can pass on here: memory and pids, or what else there is."""
    found = unified_controllers()
    assert found, "no cgroup v2 with a controller on this machine"
    return sorted(found & {"memory", "pids"} or list(found)[:1])


@pytest.fixture
def group(controllers: list[str]) -> Iterator[Path]:
    """A v2 group that has these controllers, at the top of the hierarchy."""
    top = unified_mount()
    before = set((top / "cgroup.subtree_control").read_text().split())
    (top / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))
    path = top / f"test-{os.getpid()}"
    path.mkdir()
    yield path
    for directory in sorted((each for each in [path, *path.rglob("*")] if each.is_dir()), reverse=True):
        made = Cgroup({"unified": str(directory)})
        made.kill()
        made.remove()
    for name in set(controllers) - before:
        (top / "cgroup.subtree_control").write_text(f"-{name}")


def give_to_the_user(group: Path) -> None:
    for name in DELEGATED_FILES:
        os.chown(group / name, USER, USER)


def run_in(group: Path, *code: str, uid: int = 0, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a process in the group prints, as an ordinary user if `uid` says so."""
    command = [sys.executable, "-I", "-c", IN_A_GROUP + "".join(code) + THE_END, str(group), *arguments]
    if uid:
        paths = [*python_paths(), SOURCE]
        command = [sys.executable, "-I", str(AS_USER), str(uid), *paths, "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, preexec_fn=lambda: join([str(group)]))
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture
def another_process(group: Path) -> Iterator[int]:
    """The pid of a process of somebody else, in the group."""
    with subprocess.Popen(["sleep", "60"]) as process:
        (group / "cgroup.procs").write_text(str(process.pid))
        yield process.pid
        process.kill()


def test_a_process_that_is_alone_in_a_group_leaves_it_with_its_children_and_divides_it(
    group: Path, controllers: list[str]
) -> None:
    answer = run_in(group, DIVIDE, arguments=tuple(controllers))
    leaf = f"/{group.name}/toolcell-supervisor"
    assert answer == {"done": True, "self": leaf, "child": leaf, "passed_on": controllers}


def test_nothing_is_moved_where_another_process_is_in_the_group(
    group: Path, controllers: list[str], another_process: int
) -> None:
    answer = run_in(group, DIVIDE, arguments=tuple(controllers))
    own = f"/{group.name}"
    assert answer == {"done": False, "self": own, "child": own, "passed_on": []}
    assert str(another_process) in (group / "cgroup.procs").read_text().split()
    assert not (group / "toolcell-supervisor").exists()


def test_a_group_without_the_controllers_is_not_divided(group: Path) -> None:
    answer = run_in(group, DIVIDE, arguments=("no-such-controller",))
    assert answer["done"] is False and answer["self"] == f"/{group.name}"


def test_a_group_is_delegated_when_its_manager_says_so_or_its_owner_changes_there(group: Path) -> None:
    top = str(unified_mount())
    assert not is_delegated(str(group), top), "root owns all of them, which says nothing"
    os.setxattr(group, "user.delegate", b"1")
    assert is_delegated(str(group), top)
    os.setxattr(group, "user.delegate", b"0")
    assert not is_delegated(str(group), top)
    assert is_delegated(top, top)


AS_OWNER = """
from toolcell_sandbox.mechanisms.cgroup_tree import is_delegated
answer["delegated"] = [is_delegated(path, sys.argv[2]) for path in (group, group + "/scope")]
"""


def test_what_lies_below_another_group_of_the_same_user_is_not_delegated_by_its_owner_alone(group: Path) -> None:
    scope = group / "scope"
    scope.mkdir()
    give_to_the_user(group)
    give_to_the_user(scope)
    answer = run_in(group, AS_OWNER, uid=USER, arguments=(str(unified_mount()),))
    assert answer["delegated"] == [True, False], "systemd's user manager owns each scope and has delegated none"


def test_kill_ends_all_that_is_in_a_group_at_once(group: Path, start_in: Callable[[Path], list[int]]) -> None:
    made = Cgroup({"unified": str(group)})
    pids = start_in(group)
    assert made.processes() == sorted(pids)
    assert made.kill_now() == sorted(pids)
    made.kill()
    assert made.processes() == [] and made.kill_now() == []


@pytest.fixture
def start_in() -> Iterator[Callable[[Path], list[int]]]:
    """Start four processes that ignore SIGTERM in a group."""
    started: list[subprocess.Popen[bytes]] = []

    def start(group: Path) -> list[int]:
        for _ in range(4):
            started.append(subprocess.Popen(["sh", "-c", "trap '' TERM; exec sleep 60"]))
            (group / "cgroup.procs").write_text(str(started[-1].pid))
        return [process.pid for process in started]

    yield start
    assert [process.wait(PATIENCE_S) for process in started] == [-9] * len(started)


@pytest.mark.unified
@pytest.mark.parametrize("uid", [0, USER], ids=["root", "user"])
def test_a_delegated_group_limits_and_counts_what_runs_below_it(group: Path, uid: int) -> None:
    if uid:
        give_to_the_user(group)
    else:
        os.setxattr(group, "user.delegate", b"1")
    answer = run_in(group, DETECT, LIMIT, uid=uid)
    assert answer["tree"] == answer["again"] == f"<CgroupTree {{'unified': '{group}'}}>"
    assert answer["self"] == answer["child"] == f"/{group.name}/toolcell-supervisor"
    assert answer["reset"] == ((group / "memory.peak").stat().st_mode & 0o200 != 0), "Linux 6.12 and above"
    assert answer["eats"] == -9 and answer["oom_kills"] == 1
    assert 32 * MIB < answer["peak"] <= 65 * MIB
    assert answer["forks"] != 0 and answer["refused"] >= 1 and answer["tasks"] >= 8 and answer["left"] == []
    assert answer["cpu_s"] >= 0.3


@pytest.mark.unified
def test_an_ordinary_user_in_a_scope_that_nobody_delegated_has_none(group: Path) -> None:
    scope = group / "app.slice" / "some.scope"  # as below user@1000.service, whose manager divides it
    scope.mkdir(parents=True)
    for each in (group, scope.parent, scope):
        give_to_the_user(each)
    answer = run_in(scope, DETECT, uid=USER)
    assert answer["tree"] == "None" and answer["self"] == f"/{group.name}/app.slice/some.scope"


def test_a_mount_that_another_one_hides_is_passed_over(tmp_path: Path) -> None:
    """Docker's mount of cgroup v2 may lie below a tmpfs."""
    hidden, seen = tmp_path / "hidden", tmp_path / "seen"
    hidden.mkdir()
    seen.mkdir()
    for name in ("cgroup.controllers", "cgroup.subtree_control"):
        (seen / name).write_text("cpu memory pids\n")
    mounts = [("cgroup2", str(each), "/", ["rw"]) for each in (hidden, seen)]
    assert _v2_bases(mounts) == {"unified": str(seen)}
    assert _v2_bases(mounts[:1]) is None


@pytest.mark.parametrize("is_passed_on", [False, True])
@pytest.mark.parametrize("controller", ["cpu"])
def test_an_optional_controller_is_passed_on_if_it_is_there(
    tmp_path: Path, controller: str, is_passed_on: bool
) -> None:
    (tmp_path / "cgroup.controllers").write_text(f"{controller} memory pids\n")
    passed_on = f"{controller} memory pids" if is_passed_on else "memory pids"
    (tmp_path / "cgroup.subtree_control").write_text(f"{passed_on}\n")
    assert _v2_bases([("cgroup2", str(tmp_path), "/", ["rw"])]) == {"unified": str(tmp_path)}
    written = (tmp_path / "cgroup.subtree_control").read_text()
    assert written.startswith(passed_on if is_passed_on else f"+{controller}")  # a plain file keeps what was longer
