"""The audit of trees that hostile processes shape: other file systems, swaps during the walk, odd files, full disks."""

import os
import shutil
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import PATIENCE_S, nest
from tests.ordinary import AS_USER, USER

import toolcell_sandbox
from toolcell_sandbox import CellProfile
from toolcell_sandbox.profile import python_paths
from toolcell_sandbox.trees import audit, walker
from toolcell_sandbox.trees.audit import ProtectedTree, Settled
from toolcell_sandbox.trees.facts import RACY_NS
from toolcell_sandbox.trees.protected import DEFAULT_PROTECTED, PROJECT_CODE
from toolcell_sandbox.trees.quarantine import Quarantine

SOURCE = str(Path(toolcell_sandbox.__file__).parent.parent)
MIB = 1024 * 1024
EVERYWHERE = tuple(name.removeprefix("/") for name in (*DEFAULT_PROTECTED, *PROJECT_CODE))
"""All names of the table, with no regard to their reach."""
SECONDS = 2.0  # of a race


@pytest.fixture
def work(private_dir: Path) -> Path:
    root = private_dir / "work"
    root.mkdir()
    root.chmod(0o777)
    return root


@pytest.fixture
def quarantine(private_dir: Path) -> Quarantine:
    return Quarantine(str(private_dir / "quarantine"))


def have(program: str, package: str) -> None:
    """Install the package of a program if it is missing. Only root calls this."""
    if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
        subprocess.run(["apt-get", "update", "--quiet"], check=True, capture_output=True)
        subprocess.run(["apt-get", "install", "--yes", "--quiet", package], check=True, capture_output=True)


@contextmanager
def mounted(kind: str, place: Path, private_dir: Path) -> Iterator[None]:
    """Mount a file system of this kind at a place, and remove all of it afterwards."""
    image = private_dir / "image"
    if kind == "tmpfs":
        mount = ["mount", "-t", "tmpfs", "tmpfs", str(place)]
    elif kind == "overlay":
        for each in ("lower", "upper", "work-of-it"):
            (private_dir / each).mkdir()
        options = f"lowerdir={private_dir}/lower,upperdir={private_dir}/upper,workdir={private_dir}/work-of-it"
        mount = ["mount", "-t", "overlay", "-o", options, "overlay", str(place)]
    else:
        have(*(("mkfs.btrfs", "btrfs-progs") if kind == "btrfs" else ("mkfs.ext4", "e2fsprogs")))
        with image.open("wb") as file:
            file.truncate(128 * MIB)
        make = {"ext4 of whole seconds": ["mkfs.ext4", "-q", "-I", "128"], "btrfs": ["mkfs.btrfs", "-q"]}[kind]
        subprocess.run([*make, str(image)], check=True, capture_output=True)
        mount = ["mount", "-o", "loop", str(image), str(place)]
    subprocess.run(mount, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def profile_of(root: Path) -> CellProfile:
    return CellProfile.for_kind("main").replace(writable=(str(root),), cwd=str(root), protected=EVERYWHERE)


def tree_at(root: Path) -> ProtectedTree:
    return ProtectedTree(str(root), EVERYWHERE)


def told(root: Path, settled: Settled) -> dict[str, str]:
    assert not (settled.unknown or settled.stuck), settled
    return {os.path.relpath(finding.path, root): finding.what for finding in settled.findings}


FILE_SYSTEMS = [
    "tmpfs",
    "overlay",
    "ext4 of whole seconds",
    "btrfs",
]  # on overlayfs as a user: it has no id-mapped mounts
PLANT = """
import os
os.makedirs("sub/.vscode", exist_ok=True)
for path in ("sub/.envrc", "sub/.vscode/tasks.json", ".mcp.json"):
    open(path, "w").write("evil")
"""


@pytest.mark.root
@pytest.mark.parametrize("kind", FILE_SYSTEMS)
def test_what_is_planted_does_not_stay_on_any_file_system(cell: Any, work: Path, private_dir: Path, kind: str) -> None:
    with mounted(kind, work, private_dir):
        work.chmod(0o777)
        result = cell(PLANT, profile=profile_of(work), user=kind == "overlay")
        assert result.status == 0, result.err
        assert {os.path.relpath(each["path"], work) for each in result.findings} == {
            "sub/.envrc", "sub/.vscode", ".mcp.json",
        }  # fmt: skip
        assert sorted(os.listdir(work / "sub")) == [] and not (work / ".mcp.json").exists()


@pytest.mark.root
@pytest.mark.parametrize("kind", FILE_SYSTEMS)
def test_what_is_planted_in_a_file_system_below_does_not_stay(
    cell: Any, work: Path, private_dir: Path, kind: str
) -> None:
    (work / "sub").mkdir()
    with mounted(kind, work / "sub", private_dir):
        (work / "sub").chmod(0o777)
        result = cell(PLANT, profile=profile_of(work), user=kind == "overlay")
        assert result.status == 0, result.err
        assert len(result.findings) == 3, result.findings
        assert set(os.listdir(work / "sub")) <= {"lost+found"}


@pytest.mark.root
def test_what_is_planted_in_a_subvolume_that_the_cell_made_does_not_stay(
    cell: Any, work: Path, private_dir: Path
) -> None:
    make = """
    import fcntl, os, struct
    root = os.open(".", os.O_RDONLY)
    fcntl.ioctl(root, 0x5000940E, bytearray(struct.pack("=q4088s", 0, b"sub")))  # BTRFS_IOC_SUBVOL_CREATE
    """
    with mounted("btrfs", work, private_dir):
        work.chmod(0o777)
        result = cell(textwrap.dedent(make) + PLANT, profile=profile_of(work))
        assert result.status == 0, result.err
        assert {os.path.relpath(each["path"], work) for each in result.findings} == {
            "sub/.envrc", "sub/.vscode", ".mcp.json",
        }  # fmt: skip
        assert (work / "sub").stat().st_ino == 256 and os.listdir(work / "sub") == []
        subprocess.run(["btrfs", "subvolume", "delete", str(work / "sub")], check=True, capture_output=True)


@pytest.mark.root
def test_where_times_are_whole_seconds_a_second_change_is_found(
    work: Path, private_dir: Path, quarantine: Quarantine
) -> None:
    with mounted("ext4 of whole seconds", work, private_dir):
        tree = tree_at(work)
        (work / "conftest.py").write_text("mine")
        (work / "sub").mkdir()
        time.sleep(1 - time.time() % 1)  # what follows is within one second
        (work / "conftest.py").write_text("mine")
        (work / "sub" / "code.py").touch()
        before = tree.look()
        assert before.found["conftest.py"].changed_ns % 1_000_000_000 == 0
        (work / "conftest.py").write_text("evil")
        (work / "sub" / ".envrc").write_text("evil")
        assert told(work, tree.settle(before, quarantine)) == {"conftest.py": "changed", "sub/.envrc": "made"}


def test_a_fresh_file_that_nobody_touched_is_left_alone(work: Path, quarantine: Quarantine) -> None:
    tree = tree_at(work)
    while True:  # a slow machine looks at it when its time is past
        (work / "conftest.py").write_text("mine")
        before = tree.look()
        if before.found["conftest.py"].racy:
            break
    assert told(work, tree.settle(before, quarantine)) == {}


# -- races -------------------------------------------------------------------------------------------------------------


def as_user(program: str, *arguments: str) -> str:
    """Run a program of this package as an ordinary user. Return its output."""
    command = [sys.executable, "-I", "-c", textwrap.dedent(program), *arguments]
    if os.geteuid() == 0:
        paths = [*python_paths(), SOURCE, *arguments]
        command = [sys.executable, "-I", str(AS_USER), str(USER), *paths, "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_repair_of_a_closed_directory_reaches_nothing_outside(work: Path, private_dir: Path) -> None:
    program = """
    import os, sys, threading, time
    from toolcell_sandbox.trees.audit import ProtectedTree
    from toolcell_sandbox.trees.protected import DEFAULT_PROTECTED
    from toolcell_sandbox.trees.quarantine import Quarantine
    work, outside = sys.argv[1:]
    for top in (f"{work}/a", outside):
        for inner in range(8):
            os.makedirs(f"{top}/{inner}")
            os.chmod(f"{top}/{inner}", 0)
    tree = ProtectedTree(work, DEFAULT_PROTECTED)
    before, ends = tree.look(), time.monotonic() + 2.0
    def swap():
        while time.monotonic() < ends:
            os.rename(f"{work}/a", f"{work}/b")
            os.symlink(outside, f"{work}/a")
            os.unlink(f"{work}/a")
            os.rename(f"{work}/b", f"{work}/a")
            for inner in range(8):
                os.chmod(f"{work}/a/{inner}", 0)
    swapper = threading.Thread(target=swap)
    swapper.start()
    rounds = 0
    while time.monotonic() < ends:
        tree.settle(before, Quarantine(f"{work}/../quarantine"))
        rounds += 1
    swapper.join()
    assert rounds > 3
    print({oct(os.stat(f"{outside}/{inner}").st_mode & 0o777) for inner in range(8)})
    """
    outside = private_dir / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    assert as_user(program, str(work), str(outside)) == "{'0o0'}\n"


@pytest.fixture
def another_file_system(work: Path) -> Iterator[Path]:
    place = Path("/dev/shm" if work.stat().st_dev != os.stat("/dev/shm").st_dev else "/tmp")
    path = place / f"toolcell-test-{os.getpid()}"
    path.mkdir(mode=0o700)
    assert path.stat().st_dev != work.stat().st_dev
    yield path
    subprocess.run(["rm", "-rf", str(path)], check=True)


def racing(action: Callable[[], None]) -> threading.Thread:
    """Repeat the action until the race is over, and ignore its errors."""
    ends = time.monotonic() + SECONDS

    def run() -> None:
        while time.monotonic() < ends:
            try:
                action()
            except OSError:
                pass

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_no_file_of_the_host_is_copied_into_a_quarantine_on_another_file_system(
    work: Path, private_dir: Path, another_file_system: Path
) -> None:
    secrets = private_dir / "secrets"
    secrets.mkdir()
    secret = secrets / "x"
    secret.write_text("SECRET " * 1000)
    tree = tree_at(work)
    before = tree.look()
    program = """
    import os, shutil, sys, time
    folder, aside, secrets = sys.argv[1:]
    ends = time.monotonic() + 3.0
    while time.monotonic() < ends:
        try:
            shutil.rmtree(aside, ignore_errors=True)
            os.mkdir(aside)
            for name in ("x", "y"):
                open(f"{aside}/{name}", "w").write("evil")  # never below `folder`, which may be a link
            if os.path.islink(folder):
                os.unlink(folder)
            os.rename(aside, folder)
            for _ in range(1000):
                os.rename(folder, aside)
                os.symlink(secrets, folder)
                os.unlink(folder)
                os.rename(aside, folder)
        except OSError:
            pass
    """
    arguments = [str(work / ".vscode"), str(work / "aside"), str(secrets)]
    racer = subprocess.Popen([sys.executable, "-I", "-c", textwrap.dedent(program), *arguments])
    taken = 0
    while racer.poll() is None:
        taken += len(tree.settle(before, Quarantine(str(another_file_system))).findings)
    assert taken > 0
    for path in another_file_system.rglob("*"):
        assert path.is_symlink() or not path.is_file() or "SECRET" not in path.read_text()
    assert secret.read_text().startswith("SECRET")


def test_a_sparse_file_costs_the_quarantine_nothing_and_keeps_its_size(work: Path, another_file_system: Path) -> None:
    tree = tree_at(work)
    before = tree.look()
    with (work / ".envrc").open("wb") as file:
        file.truncate(4096 * MIB)
        file.seek(2048 * MIB)
        file.write(b"data")
    (finding,) = tree.settle(before, Quarantine(str(another_file_system))).findings
    info = os.stat(finding.place)
    assert finding.place.startswith(str(another_file_system))
    assert info.st_size == 4096 * MIB and info.st_blocks * 512 < MIB
    with open(finding.place, "rb") as copied:
        copied.seek(2048 * MIB)
        assert copied.read(4) == b"data"


def test_what_one_audit_copies_is_bounded_in_sum(
    work: Path, another_file_system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walker, "COPY_BYTES", 3 * MIB)
    monkeypatch.setattr(audit, "Copies", lambda: walker.Copies(bytes_left=3 * MIB))
    tree = tree_at(work)
    before = tree.look()
    for number in range(6):
        (work / f"{number}.pth").write_bytes(os.urandom(MIB))
    findings = tree.settle(before, Quarantine(str(another_file_system))).findings
    assert len(findings) == 6
    copied = [each.place for each in findings if each.place.startswith(str(another_file_system))]
    beside = [each.place for each in findings if "toolcell-quarantined-" in each.place]
    assert (len(copied), len(beside)) == (3, 3)
    assert sorted(os.listdir(work)) == sorted(map(os.path.basename, beside))


def test_what_is_moved_into_a_directory_as_it_is_copied_is_not_removed_with_it(
    work: Path, another_file_system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "proj" / "own").mkdir(parents=True)
    (work / "proj" / "own" / "settings.json").write_text("the user's")
    tree = tree_at(work)
    before = tree.look()
    (work / ".vscode" / "sub").mkdir(parents=True)
    (work / ".vscode" / "sub" / "x").write_text("evil")
    (work / ".vscode" / "y").write_text("evil")
    copy = walker.Copies.copy

    def copy_and_move(self: Any, name: str, *arguments: Any) -> Any:
        done = copy(self, name, *arguments)
        os.rename(work / "proj", work / name / "sub" / "proj")
        (work / name / "y").write_text("written since")
        return done

    monkeypatch.setattr(walker.Copies, "copy", copy_and_move)
    (finding,) = tree.settle(before, Quarantine(str(another_file_system))).findings
    assert (Path(finding.place) / "sub" / "x").read_text() == "evil"
    left = {path.name: path.read_text() for path in work.rglob("*") if path.is_file()}
    assert left == {"settings.json": "the user's", "y": "written since"} and not (work / ".vscode").exists()


def test_a_look_that_was_cut_before_a_call_is_told_after_it(work: Path, quarantine: Quarantine) -> None:
    """A file that moved with its directory has an old change time. Only an earlier look at its first place could reveal
    the move.
    """
    (work / "stash" / "workflows").mkdir(parents=True)
    (work / "stash" / "workflows" / "ci.yml").write_text("evil")
    for number in range(10):
        (work / f"{number}").mkdir()
    tree = tree_at(work)
    before = tree.look(walker.Budget(directories=3))
    (work / "stash").rename(work / ".github")
    settled = tree.settle(before, quarantine)
    assert settled.findings or "too many directories" in settled.unknown


def test_names_that_a_later_session_protects_are_held_as_they_were_when_it_came(
    work: Path, quarantine: Quarantine
) -> None:
    (work / "stash" / "workflows").mkdir(parents=True)
    (work / "stash" / "workflows" / "ci.yml").write_text("evil")
    (work / ".github").mkdir()
    (work / "there").mkdir()
    (work / "there" / "Makefile").write_text("mine")
    time.sleep(2 * RACY_NS / 1e9)
    tree = ProtectedTree(str(work), ("Jenkinsfile",))
    before = tree.look()
    strict = tree.learn(("Jenkinsfile", ".github/workflows", "Makefile"))
    before.learn(tree.look())
    (work / ".github").rmdir()
    (work / "stash").rename(work / ".github")
    settled = tree.settle(before, quarantine, {0, strict})
    assert told(work, settled) == {".github/workflows": "made"}
    assert (work / "there" / "Makefile").read_text() == "mine"


def test_a_path_of_any_length_takes_a_look_no_longer_than_its_bound(work: Path) -> None:
    fd = nest(work, 1_000, "d" * 250)
    for number in range(100):
        os.close(os.open(f"{number}.pth", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    look = tree_at(work).look(walker.Budget(seconds=2.0))
    assert "longer than 65,536 characters" in look.unknown
    subprocess.run(["rm", "-rf", str(work)], check=True)


def test_an_audit_raises_nothing_while_the_tree_is_moved_about(work: Path, quarantine: Quarantine) -> None:
    for number in range(6):
        (work / f"{number}" / "in" / "deep").mkdir(parents=True)
        (work / f"{number}" / "in" / "conftest.py").write_text("mine")
    tree = tree_at(work)
    before = tree.look()
    turn = iter(range(10**9))

    def move_about() -> None:
        number = next(turn)
        one, other = work / f"{number % 6}", work / f"{(number + 1) % 6}" / "in" / f"m{number % 3}"
        os.rename(one / "in", other)
        (other / ".envrc").write_text("evil")
        os.rename(other, one / "in")
        os.symlink("/", work / "link")
        os.rename(work / "link", one / ".vscode")

    racers = [racing(move_about) for _ in range(2)]
    while any(racer.is_alive() for racer in racers):
        assert tree.settle(before, quarantine).stuck == ""
    for racer in racers:
        racer.join()
    tree.settle(before, quarantine)
    left = [path for path in work.rglob("*") if path.name in {".envrc", ".vscode"}]
    assert left == []


def test_what_is_changed_as_it_is_put_back_is_not_taken_for_what_it_was(
    work: Path, quarantine: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "pkg").mkdir()
    (work / "pkg" / "conftest.py").write_text("mine")
    tree = tree_at(work)
    time.sleep(2 * RACY_NS / 1e9)
    before = tree.look()
    (work / "pkg").rename(work / "away")
    move = walker.move

    def move_just_after_a_write(name: str, parent: int, new_name: str, new_parent: int) -> None:
        file = work / "away" / "conftest.py"
        if name == "conftest.py" and file.exists():  # a process beside, in the moment before the rename
            info = file.stat()
            file.write_text("evil")
            os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))
        move(name, parent, new_name, new_parent)

    monkeypatch.setattr(walker, "move", move_just_after_a_write)
    settled = tree.settle(before, quarantine)
    assert not (work / "pkg" / "conftest.py").exists() and not (work / "away" / "conftest.py").exists()
    assert [Path(each.place).read_text() for each in settled.findings] == ["evil"]
    monkeypatch.undo()
    (work / "pkg" / "conftest.py").write_text("evil")
    assert told(work, tree.settle(before, quarantine)) == {"pkg/conftest.py": "changed"}


def test_what_takes_the_place_of_a_file_as_it_is_quarantined_stays(
    work: Path, quarantine: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "conftest.py").write_text("mine")
    tree = tree_at(work)
    time.sleep(2 * RACY_NS / 1e9)
    before = tree.look()
    (work / "conftest.py").rename(work / "kept")
    (work / "conftest.py").write_text("evil")
    move, swapped = walker.move, list[str]()

    def move_just_after_a_swap(name: str, parent: int, new_name: str, new_parent: int) -> None:
        if name == "conftest.py" and not swapped:
            swapped.append(name)
            os.rename(work / "kept", work / "conftest.py")
        move(name, parent, new_name, new_parent)

    monkeypatch.setattr(walker, "move", move_just_after_a_swap)
    tree.settle(before, quarantine)
    assert swapped and "mine" in [path.read_text() for path in work.iterdir()] + [
        Path(each).read_text() for each in Path(quarantine.made).rglob("conftest.py")
    ]


def test_a_name_that_is_taken_meanwhile_is_not_written_over(
    work: Path, quarantine: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two protected directories were swapped. Neither may overwrite the other when it is moved back."""
    for name in (".vscode", ".idea"):
        (work / name).mkdir()
        (work / name / "x").write_text(name)
    tree = tree_at(work)
    before = tree.look()
    os.rename(work / ".vscode", work / "t")
    os.rename(work / ".idea", work / ".vscode")
    os.rename(work / "t", work / ".idea")
    settled = tree.settle(before, quarantine)
    assert {os.path.relpath(each.path, work) for each in settled.findings} >= {".vscode", ".idea"}
    texts = [path.read_text() for path in (*work.rglob("x"), *Path(quarantine.made).rglob("x"))]
    assert sorted(texts) == [".idea", ".vscode"]
    for name in (".vscode", ".idea"):
        assert not (work / name).exists() or (work / name / "x").read_text() == name


def test_the_quarantine_is_the_owners_alone(work: Path, private_dir: Path) -> None:
    tree = tree_at(work)
    for where in (None, str(private_dir / "new" / "quarantine")):
        before = tree.look()
        (work / ".envrc").write_text("evil")
        quarantine = Quarantine(where)
        (finding,) = tree.settle(before, quarantine).findings
        for directory in (Path(quarantine.made), Path(finding.place).parent):
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        subprocess.run(["rm", "-rf", quarantine.made], check=True)


@pytest.mark.parametrize("part", ["config", "config.worktree", "commondir", "hooks/pre-commit"])
def test_each_part_of_a_repository_that_a_git_file_names_is_held(work: Path, quarantine: Quarantine, part: str) -> None:
    (work / "tree").mkdir()
    (work / "tree" / ".git").write_text("gitdir: ../bare\n")
    (work / "bare" / part).parent.mkdir(parents=True)
    (work / "bare" / part).write_text("mine")
    tree = tree_at(work)
    time.sleep(2 * RACY_NS / 1e9)
    before = tree.look()
    assert f"bare/{part}" in before.found
    (work / "bare" / part).write_text("/evil")
    assert told(work, tree.settle(before, quarantine)) == {f"bare/{part}": "changed"}


def test_a_directory_that_was_replaced_is_not_touched_and_told(work: Path, quarantine: Quarantine) -> None:
    tree = tree_at(work)
    before = tree.look()
    work.rename(work.parent / "old")
    work.mkdir()
    (work / ".envrc").write_text("mine")
    settled = tree.settle(before, quarantine)
    assert settled.replaced and "replaced" in settled.unknown and (work / ".envrc").read_text() == "mine"


def test_a_look_holds_few_descriptors_in_a_tree_of_any_depth(work: Path) -> None:
    fd = nest(work, 2_000, "d")
    os.mkdir(".vscode", dir_fd=fd)
    os.close(fd)
    most, scandir = 0, os.scandir

    def counted(path: Any) -> Any:
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")))
        return scandir(path)

    before = len(os.listdir("/proc/self/fd"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "scandir", counted)
        look = tree_at(work).look()
    assert not look.unknown and len(look.found) == 1
    assert most - before < 40 and len(os.listdir("/proc/self/fd")) == before
    subprocess.run(["rm", "-rf", str(work)], check=True)  # shutil.rmtree goes no deeper than Python's stack


@pytest.mark.root
def test_a_full_disk_leaves_no_name_in_its_place_and_no_part_of_a_copy(
    work: Path, private_dir: Path, another_file_system: Path
) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(another_file_system)], check=True)
    try:
        tree = tree_at(work)
        before = tree.look()
        (work / ".vscode").mkdir()
        (work / ".vscode" / "small").write_text("x")
        (work / ".vscode" / "large").write_bytes(os.urandom(MIB))
        (finding,) = tree.settle(before, Quarantine(str(another_file_system))).findings
        assert "toolcell-quarantined-" in finding.place and not (work / ".vscode").exists()
        assert os.listdir(another_file_system) == []
    finally:
        subprocess.run(["umount", str(another_file_system)], check=True)
