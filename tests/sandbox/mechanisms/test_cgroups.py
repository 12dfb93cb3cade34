"""Limits of a whole cell, on this machine's cgroups, and reading both layouts from files."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from toolcell_sandbox import CellProfile, Cgroup, CgroupTree, Limits, SandboxError
from toolcell_sandbox.mechanisms.cgroup_tree import _v1_bases, group_prefix, remove_stale
from toolcell_sandbox.mechanisms.cgroups import join


@pytest.fixture
def group(tree: Any) -> Any:
    made = tree.create("test", Limits(memory_bytes=64 << 20, processes=8))
    yield made
    made.kill()
    made.remove()
    assert not any(os.path.exists(path) for path in made.paths)


def test_memory_that_no_rlimit_sees_is_bounded_and_counted(cell: Any, group: Any) -> None:
    code = """
import os, mmap
for index in range(8):
    if os.fork() == 0:
        block = mmap.mmap(-1, 20 << 20)
        for at in range(0, 20 << 20, 4096): block[at] = 1
        import time; time.sleep(30)
while True:
    os.wait()
    os._exit(7)
"""
    profile = CellProfile.for_kind("main").replace(limits=Limits(memory_bytes=64 << 20, wall_s=20))
    before = group.oom_kills()
    result = cell(code, profile=profile, cgroups=group.paths)
    assert result.status in (7, -9)
    assert group.oom_kills() > before
    assert 32 << 20 < group.memory_peak() <= 68 << 20
    assert group.reset_peak() and group.memory_peak() < 32 << 20


def test_scratch_files_count_as_memory(cell: Any, group: Any) -> None:
    code = "open('/tmp/x', 'wb').write(bytes(30 << 20)); open('/tmp/y', 'wb').write(bytes(60 << 20))"
    profile = CellProfile.for_kind("main").replace(limits=Limits(scratch_bytes=1 << 30, file_bytes=1 << 30))
    assert cell(code, profile=profile, cgroups=group.paths).status != 0
    assert group.memory_peak() <= 68 << 20  # with what the next call's process may take


def test_processes_are_bounded_and_refusals_counted(cell: Any, group: Any) -> None:
    code = """
import os, time
made = 0
try:
    for _ in range(50):
        if os.fork() == 0: time.sleep(30); os._exit(0)
        made += 1
except BlockingIOError:
    pass
print(made)
"""
    result = cell(code, cgroups=group.paths)
    assert result.value == 11  # 8, the init's own and its standby's, the one's after that and its maker's place
    assert group.pids_refused() >= 1


def test_cpu_time_of_the_dead_is_counted(cell: Any, group: Any) -> None:
    code = """
import os, time
for _ in range(2):
    if os.fork() == 0:
        while time.process_time() < 0.2: pass
        os._exit(0)
    os.wait()
"""
    before = group.cpu_s()
    assert cell(code, cgroups=group.paths).status == 0
    assert group.cpu_s() - before >= 0.4


def test_a_process_joins_a_v1_group_as_a_thread_which_waits_for_nobody(tmp_path: Path) -> None:
    for version, names in {"v1": ("tasks", "cgroup.procs"), "v2": ("cgroup.procs", "cgroup.threads")}.items():
        for name in names:
            (tmp_path / version).mkdir(exist_ok=True)
            (tmp_path / version / name).write_text("")
    join([str(tmp_path / "v1"), str(tmp_path / "v2")])
    written = sorted(
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file() and path.read_text()
    )
    assert written == ["v1/tasks", "v2/cgroup.procs"]


def test_limits_can_be_raised_and_lowered(group: Any) -> None:
    for megabytes in (256, 32, 1024, 64):
        group.set_limits(Limits(memory_bytes=megabytes << 20))


def test_kill_ends_everything_in_the_group(group: Any) -> None:
    code = (
        "import os, sys, time\nfor path in sys.argv[1:]: open(path + '/cgroup.procs', 'w').write('0')\n"
        "os.fork(); os.fork(); print(1, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, *group.paths], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(4):
            process.stdout.readline()
        assert len(group.processes()) == 4
        group.kill()
        assert group.processes() == []
    assert process.returncode == -9


def test_a_group_in_use_is_not_removed(tree: Any) -> None:
    made = tree.create("busy", Limits())
    with subprocess.Popen(["sleep", "60"]) as process:
        for path in made.paths:
            Path(path, "cgroup.procs").write_text(str(process.pid))
        with pytest.raises(SandboxError, match="cannot be removed"):
            made.remove(timeout_s=0.05)
        made.kill()
    made.remove()


def test_groups_of_dead_supervisors_are_swept_and_others_are_not(tree: Any) -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    mine = tree.create("mine", Limits())
    bases = [os.path.dirname(path) for path in mine.paths]
    stale = [os.path.join(base, f"{group_prefix(process.pid)}old") for base in bases]
    foreign = [os.path.join(base, f"toolcell-{process.pid}-1-of-another-pid-namespace") for base in bases]
    for path in stale + foreign:
        os.mkdir(path)
    assert {*stale} <= {*tree.sweep_stale()}
    assert all(os.path.isdir(path) for path in (*mine.paths, *foreign))
    assert not any(os.path.exists(path) for path in stale)
    mine.remove()
    for path in foreign:
        os.rmdir(path)


def test_a_group_that_cannot_be_made_leaves_nothing(tree: Any) -> None:
    made = tree.create("twice", Limits())
    with pytest.raises(FileExistsError):
        tree.create("twice", Limits())
    assert all(os.path.isdir(path) for path in made.paths)
    made.remove()


def test_the_unified_layout_is_read_from_its_files(tmp_path: Path) -> None:
    for name, text in {
        "memory.max": "max\n",
        "memory.swap.max": "max\n",
        "pids.max": "max\n",
        "memory.events": "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n",
        "pids.events": "max 5\n",
        "memory.peak": "4096\n",
        "cpu.stat": "usage_usec 1500000\nuser_usec 1\n",
        "cgroup.procs": "12\n3\n",
        "cgroup.kill": "",
    }.items():
        (tmp_path / name).write_text(text)
    group = Cgroup({"unified": str(tmp_path)})
    group.set_limits(Limits(memory_bytes=1 << 20, processes=4))
    # Kernel files take a whole write as the value; a plain file keeps what was longer.
    assert (tmp_path / "memory.max").read_text() == str(5 << 20)
    assert (tmp_path / "memory.swap.max").read_text().startswith("0")
    assert (tmp_path / "pids.max").read_text().startswith("8")
    assert (group.oom_kills(), group.pids_refused(), group.memory_peak(), group.cpu_s()) == (2, 5, 4096, 1.5)
    assert group.processes() == [3, 12]
    (tmp_path / "cgroup.subtree_control").write_text("memory pids\n")
    assert CgroupTree({"unified": str(tmp_path)}).controllers == {"memory", "pids", "cpuacct"}
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids\n")
    assert CgroupTree({"unified": str(tmp_path)}).controllers == {"memory", "pids", "cpuacct", "cpu"}
    (tmp_path / "cgroup.subtree_control").write_text("cpu cpuset io memory pids\n")
    assert CgroupTree({"unified": str(tmp_path)}).controllers == {"memory", "pids", "cpuacct", "cpu"}


def test_a_group_has_a_cpu_weight(group: Any) -> None:
    """On v1, as on this machine."""
    assert group.can_weigh
    (shares,) = [path / "cpu.shares" for path in map(Path, group.paths) if (path / "cpu.shares").exists()]
    for calls, weight in ((4, "256\n"), (5000, "2\n"), (1, "1024\n")):  # 2 is the least that the kernel takes
        group.weigh(calls)
        assert shares.read_text() == weight


def test_a_share_that_could_not_be_set_is_set_the_next_time(group: Any) -> None:
    (directory,) = [path for path in map(Path, group.paths) if (path / "cpu.shares").exists()]
    directory.rmdir()
    with pytest.raises(SandboxError, match=r"cpu\.shares"):
        group.weigh(4)
    directory.mkdir()
    group.weigh(4)
    assert (directory / "cpu.shares").read_text() == "256\n"


def test_the_weight_of_a_unified_group_is_written_as_v2_has_it(tmp_path: Path) -> None:
    group = Cgroup({"unified": str(tmp_path)})
    assert not group.can_weigh
    (tmp_path / "cpu.weight").write_text("")
    group = Cgroup({"unified": str(tmp_path)})
    assert group.can_weigh
    group.weigh(4)
    assert (tmp_path / "cpu.weight").read_text() == "25"
    group.close()


def test_a_v1_cpuset_has_the_cores_and_memory_nodes_of_its_parent(tmp_path: Path) -> None:
    """It shares its hierarchy with another controller, and takes no process without them."""
    group = tmp_path / "group"
    group.mkdir()
    for name, text in (("cpuset.effective_cpus", "2-4,9\n"), ("cpuset.effective_mems", "0-1\n")):
        (tmp_path / name).write_text(text)
    for name in ("cpuset.cpus", "cpuset.mems"):
        (group / name).write_text("")
    Cgroup({"cpuset": str(group)}).inherit_cores()
    assert [(group / name).read_text() for name in ("cpuset.cpus", "cpuset.mems")] == ["2-4,9", "0-1"]


def test_a_controller_that_is_mounted_with_cpuset_brings_it(tmp_path: Path) -> None:
    """Else the group would have no cores, and could not take a process."""
    mounts = [("cgroup", str(tmp_path), "/", ["rw", "memory", "pids", "cpuset"])]
    assert _v1_bases(mounts, frozenset({"memory", "pids"})) == dict.fromkeys(
        ("memory", "pids", "cpuset"), str(tmp_path)
    )


def test_what_a_group_does_not_count_is_told_apart_from_nothing(tmp_path: Path) -> None:
    bare = Cgroup({"devices": str(tmp_path)})
    assert (bare.memory_peak(), bare.cpu_s(), bare.reset_peak()) == (None, None, False)
    assert (bare.oom_kills(), bare.pids_refused(), bare.tasks()) == (0, 0, 0)


def _pid_of_a_dead_process() -> int:
    with subprocess.Popen(["true"]) as process:
        return process.pid


def test_a_group_of_a_dead_supervisor_that_is_in_use_is_left_to_the_next_sweep(tree: Any) -> None:
    mine = tree.create("mine", Limits())
    stale = [f"{os.path.dirname(path)}/{group_prefix(_pid_of_a_dead_process())}busy" for path in mine.paths]
    for path in stale:
        os.mkdir(path)
    for path in stale:
        if Path(path, "cpuset.cpus").exists():
            Cgroup({"cpuset": path}).inherit_cores()
    with subprocess.Popen(["sleep", "60"]) as process:
        for path in stale:
            Path(path, "cgroup.procs").write_text(str(process.pid))
        assert not {*stale} & {*tree.sweep_stale()} and all(os.path.isdir(path) for path in stale)
        process.kill()
    mine.remove()
    deadline = time.monotonic() + 10
    while any(os.path.exists(path) for path in stale) and time.monotonic() < deadline:
        tree.sweep_stale()
    assert not any(os.path.exists(path) for path in stale)


def test_a_sweep_that_fails_for_another_reason_than_use_says_so(tmp_path: Path) -> None:
    (tmp_path / f"{group_prefix(_pid_of_a_dead_process())}file").touch()
    with pytest.raises(NotADirectoryError):
        CgroupTree({"unified": str(tmp_path)}).sweep_stale()


def test_a_group_of_the_same_name_that_was_made_since_is_let_be(tree: Any) -> None:
    mine = tree.create("mine", Limits())
    path = f"{os.path.dirname(mine.paths[0])}/{group_prefix(_pid_of_a_dead_process())}old"
    os.mkdir(path)
    info, pid = os.stat(path), int(os.path.basename(path).split("-")[1])
    assert not remove_stale(path, (info.st_dev, info.st_ino + 1), pid) and os.path.isdir(path)
    assert remove_stale(path, (info.st_dev, info.st_ino), pid) and not os.path.exists(path)
    assert not remove_stale(path, (info.st_dev, info.st_ino), pid), "it is gone"
    mine.remove()


def test_a_group_that_another_supervisor_removes_meanwhile_is_no_error(
    tree: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tree.create("mine", Limits())
    path = f"{os.path.dirname(mine.paths[0])}/{group_prefix(_pid_of_a_dead_process())}raced"
    os.mkdir(path)
    info, pid, kill = os.stat(path), int(os.path.basename(path).split("-")[1]), Cgroup.kill

    def kill_late(group: Cgroup) -> None:
        os.rmdir(path)
        kill(group)

    with monkeypatch.context() as patched:
        patched.setattr(Cgroup, "kill", kill_late)
        assert not remove_stale(path, (info.st_dev, info.st_ino), pid)
    mine.remove()
