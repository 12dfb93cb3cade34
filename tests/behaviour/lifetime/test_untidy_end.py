"""What a killed supervisor leaves, and how the next supervisor cleans up."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests import programs
from tests.ordinary import AS_USER, USER

import toolcell
from toolcell import Profile, RecentJournal, Supervisor
from toolcell.errors import UsageError
from toolcell.supervisor import runtime_of
from toolcell.testing.residue import cgroups_of
from toolcell.workplaces import cleanup, runtime
from toolcell.workplaces.cleanup import clean
from toolcell.workplaces.record import REWRITE_BYTES, RunRecord
from toolcell.workplaces.runtime import RuntimeDirectory
from toolcell_sandbox.profile import python_paths
from toolcell_sandbox.quarantine import Quarantine

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
VICTIM = Path(__file__).parent / "victim.py"
SOURCE = Path(toolcell.__file__).parent.parent


@dataclass
class Scene:
    """A separate runtime directory, temporary directory and workspace, and the running victims."""

    path: Path
    uid: int = 0
    victims: list[programs.Started] = field(default_factory=list[programs.Started])

    @property
    def workspace(self) -> Path:
        return self.path / "project"

    @property
    def records(self) -> list[Path]:
        return sorted((self.path / "run" / "toolcell").glob("*.record"))

    def start(self, *words: str) -> tuple[programs.Started, dict[str, Any]]:
        """Start a victim, and wait until it has a call in flight. Return the victim, and what it has made."""
        command = [sys.executable, "-I", str(VICTIM), str(self.workspace), *words]
        if self.uid:
            shown = [*python_paths(), str(SOURCE.parent), str(self.path)]
            command = [sys.executable, "-I", str(AS_USER), str(self.uid), *shown, "--", *command]
        victim = programs.start(command)
        self.victims.append(victim)
        with victim.stdout as stdout:
            return victim, json.loads(stdout.readline())

    def killed(self, *words: str, by: signal.Signals = signal.SIGKILL) -> dict[str, Any]:
        """Start a victim and kill it. Return what it had made."""
        victim, made = self.start(*words)
        victim.send_signal(by)
        assert victim.wait(30) == -by
        return made


@pytest.fixture
def scene(warm: None, open_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    scene = Scene(Path(tempfile.mkdtemp(dir=open_directory)))
    scene.path.chmod(0o755)
    for name in ("run", "temporary", "project"):
        (scene.path / name).mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(scene.path / "run"))
    monkeypatch.setenv("TMPDIR", str(scene.path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", str(scene.path / "temporary"))
    yield scene
    for victim in scene.victims:
        victim.kill()
        victim.wait()
    for path in (scene.path / "temporary").iterdir():  # quarantines, which nobody else deletes
        path.unlink() if path.is_symlink() else shutil.rmtree(path)


def findings_of(supervisor: Supervisor) -> dict[str, str]:
    """The findings of protected names in the new supervisor's journal, by path."""
    journal = supervisor.journal
    assert isinstance(journal, RecentJournal)
    return {
        each["path"]: each["place"] for record in journal.of(kind="quarantined") for each in record.data["findings"]
    }


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
async def test_what_a_killed_supervisor_left_is_removed_by_the_next_one(
    scene: Scene, supervise: Callable[..., Supervisor], by: signal.Signals
) -> None:
    (scene.workspace / ".envrc").write_text("the user's own")
    time.sleep(0.05)
    made = scene.killed("empty", by=by)
    assert Path(made["outputs"]).is_dir() and Path(made["quarantine"]).is_dir() and len(scene.records) == 1
    async with supervise() as supervisor:
        assert not os.path.exists(made["outputs"]) and not os.path.exists(made["quarantine"])
        assert not os.path.exists(made["record"]) and len(scene.records) == 1
        assert [path for path in made["cgroups"] if os.path.exists(path)] == []
        found = findings_of(supervisor)
        assert found.keys() == {f"{scene.workspace}/.vscode", f"{scene.workspace}/.mcp.json"}
        assert (Path(found[f"{scene.workspace}/.vscode"]) / "tasks.json").read_text() == "evil"
    assert sorted(os.listdir(scene.workspace)) == [".envrc", "result.txt"]
    assert scene.records == []


async def test_a_protected_name_that_was_there_before_the_call_stays(
    scene: Scene, supervise: Callable[..., Supervisor]
) -> None:
    hooks = scene.workspace / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("the user's own")
    (scene.workspace / ".vscode").mkdir()
    time.sleep(0.05)
    victim, _made = scene.start("idle")
    time.sleep(0.05)
    (scene.workspace / ".mcp.json").write_text("the user's own, while no call was in flight")
    victim.kill()
    victim.wait()
    async with supervise() as supervisor:
        assert findings_of(supervisor) == {}
    assert (hooks / "pre-commit").exists() and (scene.workspace / ".mcp.json").exists()


async def test_an_old_directory_that_a_call_moved_to_where_names_begin_is_found(
    scene: Scene, supervise: Callable[..., Supervisor]
) -> None:
    hooks = scene.workspace / "other" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("evil, and old")
    time.sleep(0.05)
    scene.killed()
    async with supervise() as supervisor:
        assert f"{scene.workspace}/.git/hooks/pre-commit" in findings_of(supervisor)
    assert not (scene.workspace / ".git" / "hooks" / "pre-commit").exists()


async def test_a_quarantine_with_content_stays(scene: Scene, supervise: Callable[..., Supervisor]) -> None:
    made = scene.killed("quarantine")
    before = {path.name for path in Path(made["quarantine"]).rglob("*")}
    assert "tasks.json" in before
    async with supervise():
        assert {path.name for path in Path(made["quarantine"]).rglob("*")} == before


async def test_what_a_living_supervisor_has_is_not_touched(scene: Scene, supervise: Callable[..., Supervisor]) -> None:
    victim, made = scene.start("empty")
    async with supervise() as supervisor:
        assert findings_of(supervisor) == {}
        assert len(scene.records) == 2
        for path in (made["outputs"], made["quarantine"], made["record"], *made["cgroups"]):
            assert os.path.exists(path)
        assert (scene.workspace / ".vscode" / "tasks.json").exists()
    assert victim.poll() is None


async def test_a_fork_that_outlives_its_supervisor_keeps_nothing_from_being_removed(
    scene: Scene, supervise: Callable[..., Supervisor]
) -> None:
    made = scene.killed("fork")
    try:
        async with supervise() as supervisor:
            assert not os.path.exists(made["outputs"]) and len(findings_of(supervisor)) == 2
    finally:
        os.kill(made["forked"], signal.SIGKILL)


async def test_two_supervisors_of_one_process_leave_each_others_records_alone(
    scene: Scene, supervise: Callable[..., Supervisor]
) -> None:
    async with supervise():
        async with supervise():
            assert len(scene.records) == 2
        assert len(scene.records) == 1
        victim, made = scene.start()
        assert len(scene.records) == 2
        victim.kill()
        victim.wait()
    async with supervise():
        assert not os.path.exists(made["outputs"])


@pytest.mark.root
async def test_an_ordinary_users_supervisor_is_cleaned_up_after_by_the_next_one_of_this_user(scene: Scene) -> None:
    scene.uid = USER
    for name in ("run", "temporary", "project"):
        os.chown(scene.path / name, USER, USER)
    made = scene.killed()
    assert os.stat(made["outputs"]).st_uid == USER
    runtime = RuntimeDirectory  # as root: not its own, so it has another place
    victim, _made = scene.start("idle")
    assert not os.path.exists(made["outputs"]) and not os.path.exists(made["record"])
    assert sorted(os.listdir(scene.workspace)) == ["result.txt"]
    assert runtime is RuntimeDirectory and victim.poll() is None


@pytest.mark.root
async def test_cgroups_below_another_parent_group_are_removed(
    scene: Scene, supervise: Callable[..., Supervisor]
) -> None:
    made = scene.killed()
    (base,) = {os.path.dirname(path) for path in made["cgroups"] if "/memory" in path} or {None}
    assert base is not None and made["cgroups"], "this test needs cgroups"
    elsewhere = tempfile.mkdtemp(prefix="test-of-another-parent-", dir=base)
    try:
        victim_group = f"{elsewhere}/cgroup.procs"
        program = "import os,sys; open(sys.argv[1],'w').write(str(os.getpid())); os.execv(sys.argv[2], sys.argv[2:])"
        python = [sys.executable, "-I"]
        command = [*python, "-c", program, victim_group, *python, str(VICTIM), str(scene.workspace)]
        (scene.workspace / "result.txt").unlink()
        with programs.start(command) as victim:
            scene.victims.append(victim)
            below = json.loads(victim.stdout.readline())
            victim.kill()
        assert [path for path in below["cgroups"] if path.startswith(elsewhere)]
        time.sleep(0.2)
        async with supervise():
            assert [path for path in below["cgroups"] if os.path.exists(path)] == []
            assert list(cgroups_of(victim.pid)) == []
    finally:
        os.rmdir(elsewhere)


# -- records that are not what they say --------------------------------------------------------------------------------


def test_a_runtime_directory_that_is_made_under_any_umask_is_the_users(scene: Scene) -> None:
    code = "import os; os.umask(0o777); from toolcell.workplaces.runtime import RuntimeDirectory as R; print(R().path)"
    command = [sys.executable, "-c", code]
    if os.geteuid() == 0:
        os.chown(scene.path / "run", USER, USER)
        shown = [*python_paths(), str(SOURCE.parent), str(scene.path)]
        command = [sys.executable, str(AS_USER), str(USER), *shown, "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    made = scene.path / "run" / "toolcell"
    assert (done.stderr, done.stdout) == ("", f"{made}\n") and made.stat().st_mode & 0o777 == 0o700


def a_record(scene: Scene, *lines: list[object], pid: int = 0, boot: str = "", name: str = "1-forged") -> Path:
    """A record of a process that no longer exists."""
    first = ["toolcell", 1, pid or 2**22 + 5, 17, boot or Path("/proc/sys/kernel/random/boot_id").read_text().strip()]
    directory = scene.path / "run" / "toolcell"
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / f"{name}.record"
    words = [[*first, os.stat("/proc/self/ns/pid").st_ino], *lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in words))
    return path


def cleaned(scene: Scene, within_s: float = 10.0) -> list[Any]:
    directory = RuntimeDirectory()
    try:
        return list(clean(directory, Quarantine(str(scene.path / "quarantine")), within_s))
    finally:
        directory.close()


def as_noted(kind: str, path: Path) -> list[object]:
    info = os.stat(path, follow_symlinks=False)
    return ["directory", kind, str(path), info.st_dev, info.st_ino]


def test_a_record_that_grows_drops_what_is_over(scene: Scene) -> None:
    record, names = RunRecord(), ("a-name",)
    record.begin(RuntimeDirectory())
    try:
        record.enter((("/srv/in-flight",), names), 1, ())
        sizes = []
        for number in range(2_000):
            trees = ((f"/srv/{number:0200}",), names)
            record.enter(trees, 1, ())
            record.leave(trees)
            sizes.append(os.stat(record.path).st_size)
        assert max(sizes) < 3 * REWRITE_BYTES and sizes[-1] != max(sizes)
        text = Path(record.path).read_text()
        assert "/srv/in-flight" in text and text.count("/srv/0") < 1_000
    finally:
        record.end()


def test_a_directory_that_is_filled_while_it_is_removed_is_no_success(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = scene.path / "temporary" / "toolcell-outputs-aaaaaaaa"
    outputs.mkdir(mode=0o700)
    (outputs / "late").write_text("written behind the look")
    record = a_record(scene, as_noted("outputs", outputs))
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", lambda _fd: [])
        with pytest.raises(OSError, match="not empty"):
            cleanup._remove("outputs", str(outputs), (outputs.stat().st_dev, outputs.stat().st_ino))
    assert cleaned(scene) == [] and not outputs.exists() and not record.exists()


def test_a_forged_record_removes_nothing_that_no_supervisor_made(scene: Scene) -> None:
    temporary = scene.path / "temporary"
    precious, wide, link = (temporary / f"toolcell-outputs-{each * 8}" for each in "abc")
    named_otherwise = temporary / "precious"
    other_inode = temporary / "toolcell-outputs-dddddddd"
    for path in (precious, wide, named_otherwise, other_inode):
        path.mkdir(mode=0o700)
        (path / "file").write_text("precious")
    wide.chmod(0o755)
    link.symlink_to(precious)
    through = temporary / "through"
    through.symlink_to(temporary)
    others = temporary / "toolcell-outputs-eeeeeeee"
    others.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(others, USER, USER)
    forged = [
        ["directory", "outputs", "/etc", os.stat("/etc").st_dev, os.stat("/etc").st_ino],
        ["directory", "outputs", str(other_inode), 1, 2],
        ["directory", "outputs", str(through / precious.name), precious.stat().st_dev, precious.stat().st_ino],
        ["cgroup", str(named_otherwise), named_otherwise.stat().st_dev, named_otherwise.stat().st_ino],
        as_noted("outputs", wide),
        as_noted("outputs", named_otherwise),
        as_noted("outputs", link),
        *([as_noted("outputs", others)] if os.geteuid() == 0 else []),
    ]
    record = a_record(scene, *forged)
    assert cleaned(scene) == []
    assert not record.exists() and os.path.isdir("/etc") and link.is_symlink()
    for path in (precious, wide, named_otherwise, other_inode):
        assert (path / "file").read_text() == "precious"
    assert os.geteuid() or others.is_dir()


@pytest.mark.parametrize(
    "text",
    [b"", b"[]\n", b"{\n", b'["toolcell",2,1,1,"",1]\n', b"[" * 100_000 + b"\n", b"\xff\n", b"null\n[1]\n"],
    ids=["empty", "no header", "no JSON", "another version", "too deep", "no text", "not a header"],
)
def test_a_record_that_no_supervisor_has_written_is_put_aside(scene: Scene, text: bytes) -> None:
    record = a_record(scene)
    record.write_bytes(text)
    assert cleaned(scene) == []
    assert not record.exists() and record.with_suffix(".aside").read_bytes() == text


def test_of_the_records_put_aside_the_latest_eight_are_kept(scene: Scene) -> None:
    records = [a_record(scene, name=f"{number}-forged") for number in range(10)]
    for record in records:
        record.write_bytes(b"nonsense")
        assert cleaned(scene) == []
        time.sleep(0.01)  # a tick of the file system's clock
    assert [record.with_suffix(".aside").exists() for record in records] == [False] * 2 + [True] * 8


@pytest.mark.parametrize(
    "line",
    [
        ["directory", "outputs", "relative/path", 1, 2],
        ["directory", "outputs", "/tmp/../etc", 1, 2],
        ["directory", "home", "/root", 1, 2],
        ["enter", 7, 0],
        ["names", 0, [1]],
        ["something", 1],
    ],
    ids=str,
)
def test_a_record_with_one_odd_line_is_put_aside_whole(scene: Scene, line: list[object]) -> None:
    outputs = scene.path / "temporary" / "toolcell-outputs-abcdefgh"
    outputs.mkdir(mode=0o700)
    record = a_record(scene, as_noted("outputs", outputs), line)
    assert cleaned(scene) == []
    assert outputs.exists() and record.with_suffix(".aside").exists()


def test_a_record_whose_last_line_was_cut_off_is_good_for_the_others(scene: Scene) -> None:
    outputs = scene.path / "temporary" / "toolcell-outputs-abcdefgh"
    outputs.mkdir(mode=0o700)
    (outputs / "file").write_text("long")
    record = a_record(scene, as_noted("outputs", outputs))
    with record.open("a") as file:
        file.write('["direct')
    assert cleaned(scene) == []
    assert not outputs.exists() and not record.exists()


def test_a_record_of_a_pid_that_has_been_given_to_another_process_is_a_dead_ones(scene: Scene) -> None:
    outputs = scene.path / "temporary" / "toolcell-outputs-abcdefgh"
    outputs.mkdir(mode=0o700)
    record = a_record(scene, as_noted("outputs", outputs), ["process", os.getpid(), 17], pid=os.getpid())
    started = time.monotonic()
    cleaned(scene)
    assert not outputs.exists() and not record.exists()
    assert time.monotonic() - started < 1.5, "it waited for a process that is not the record's"


def test_a_hundred_dead_records_are_cleaned_up_at_once(scene: Scene) -> None:
    outputs = [scene.path / "temporary" / f"toolcell-outputs-{number:08}" for number in range(100)]
    for number, path in enumerate(outputs):
        path.mkdir(mode=0o700)
        a_record(scene, as_noted("outputs", path), name=f"{number}-dead")
    assert cleaned(scene) == []
    assert not any(path.exists() for path in outputs) and scene.records == []


def test_a_clean_up_that_has_no_time_leaves_the_records_to_the_next_one(scene: Scene) -> None:
    for number in range(3):
        a_record(scene, name=f"{number}-dead")
    cleaned(scene, within_s=-1.0)
    assert len(scene.records) == 3
    cleaned(scene)
    assert scene.records == []


def test_a_record_is_written_anew_when_it_has_grown(scene: Scene) -> None:
    record = RunRecord()
    record.begin(RuntimeDirectory())
    trees = (("/srv/project",), tuple(f".name-{number}" for number in range(50)))
    sizes: list[int] = []
    for number in range(40_000):
        record.enter(trees, number, ())
        record.leave(trees)
        if number % 1000 == 0:
            sizes.append(os.path.getsize(record.path))
    assert max(sizes) < 300_000 and len(scene.records) == 1
    record.enter(trees, 1, ())
    assert b".name-49" in Path(record.path).read_bytes()
    record.end()
    assert scene.records == []


def test_outputs_are_removed_with_the_directories_that_somebody_made_in_them(scene: Scene) -> None:
    outputs = scene.path / "temporary" / "toolcell-outputs-abcdefgh"
    (outputs / "directory" / "below").mkdir(parents=True)
    outputs.chmod(0o700)
    (outputs / "directory" / "file").write_text("long")
    record = a_record(scene, as_noted("outputs", outputs))
    assert cleaned(scene) == []
    assert not outputs.exists() and not record.exists()


def test_a_record_that_is_too_large_to_be_read_is_put_aside(scene: Scene) -> None:
    outputs = scene.path / "temporary" / "toolcell-outputs-abcdefgh"
    outputs.mkdir(mode=0o700)
    record = a_record(scene, as_noted("outputs", outputs))
    os.truncate(record, 64 * 1024 * 1024 + 1)
    assert cleaned(scene) == []
    assert outputs.exists() and record.with_suffix(".aside").exists() and not record.exists()


CUT_OFF = """
import os, resource
from toolcell.workplaces.record import REWRITE_BYTES, RunRecord
from toolcell.workplaces.runtime import RuntimeDirectory
record = RunRecord()
record.begin(RuntimeDirectory())
size = os.path.getsize(record.path)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, hard))
record.process(os.getpid())
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
print(os.path.getsize(record.path) - size)
record.process(os.getpid())
print(open(record.path, "rb").read().count(b'["process",'))
record.end()
"""


def test_a_line_for_which_there_is_no_room_is_taken_back_and_told(scene: Scene) -> None:
    done = subprocess.run([sys.executable, "-c", CUT_OFF], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["0", "1"]
    assert "a line could not be written to this supervisor's record" in done.stderr and "No space left" in done.stderr


# -- the runtime directory ---------------------------------------------------------------------------------------------


def test_a_runtime_directory_that_others_can_reach_is_refused_with_the_cure(scene: Scene) -> None:
    path = scene.path / "run" / "toolcell"
    path.mkdir()
    path.chmod(0o755)
    with pytest.raises(PermissionError, match=r"Its mode is 0755, not 0700\. Remove it, or make it this user's"):
        RuntimeDirectory()


@pytest.mark.root
def test_a_runtime_directory_of_another_user_is_refused_with_the_cure(scene: Scene) -> None:
    path = scene.path / "run" / "toolcell"
    path.mkdir(mode=0o700)
    os.chown(path, USER, USER)
    with pytest.raises(PermissionError, match=rf"It belongs to the user {USER}\. Remove it"):
        RuntimeDirectory()


def test_a_runtime_directory_that_is_a_link_is_refused(scene: Scene) -> None:
    (scene.path / "run" / "toolcell").symlink_to(scene.path / "temporary")
    with pytest.raises(PermissionError, match="not a directory that this user can open"):
        RuntimeDirectory()


async def test_no_cell_writes_where_the_supervisors_record_lies(
    scene: Scene, supervise: Callable[..., Supervisor]
) -> None:
    async with supervise() as supervisor:
        assert Path(runtime_of(supervisor).record.path).is_relative_to(scene.path / "run" / "toolcell")
        for around in (scene.path / "run", scene.path / "run" / "toolcell"):
            with pytest.raises(UsageError, match="contains the supervisor's record"):
                await supervisor.open_session("main", workspace=around)
        wide = Profile.for_kind("main").replace(writable=(str(scene.path / "run"),))
        with pytest.raises(UsageError, match="contains the supervisor's record"):
            await supervisor.open_session("main", workspace=scene.path / "temporary", profile=wide)
        await supervisor.open_session("main", workspace=scene.path / "temporary")


async def test_a_supervisor_without_a_runtime_directory_works_and_says_so(
    scene: Scene, supervise: Callable[..., Supervisor], caplog: pytest.LogCaptureFixture
) -> None:
    (scene.path / "run" / "toolcell").mkdir(mode=0o755)
    os.chmod(scene.path / "run" / "toolcell", 0o755)
    async with supervise() as supervisor:
        assert supervisor.status()
    (said,) = [each.getMessage() for each in caplog.records if each.name == "toolcell"]
    assert "No record is kept" in said and "mode 0700" in said and str(scene.path / "run" / "toolcell") in said


def test_a_runtime_directory_in_the_wide_open_is_not_used(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    (scene.path / "run").chmod(0o777)
    directory = RuntimeDirectory()
    try:
        assert not directory.path.startswith(str(scene.path / "run"))
        assert os.fstat(directory.fd).st_mode & 0o777 == 0o700
    finally:
        directory.close()


def test_root_has_one_in_run_and_no_other_user_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    info = os.stat("/run")
    is_roots = os.geteuid() == 0 == info.st_uid and not info.st_mode & 0o022
    assert ("/run" in list(runtime._bases())) == is_roots
