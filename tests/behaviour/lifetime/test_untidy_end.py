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
from tests.helpers import PATIENCE_S
from tests.ordinary import AS_USER, USER
from tests.workplaces.conftest import Place, place

import toolcell
from toolcell import Profile, RecentJournal, Supervisor
from toolcell.errors import UsageError
from toolcell.supervisor import runtime_of
from toolcell.testing.residue import cgroups_of
from toolcell.workplaces import runtime
from toolcell.workplaces.runtime import RuntimeDirectory
from toolcell_sandbox.profile import python_paths

__all__ = ["place"]
pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
VICTIM = Path(__file__).parent / "victim.py"
SOURCE = Path(toolcell.__file__).parent.parent


@dataclass
class Scene(Place):
    """A place with a workspace, and the running victims."""

    uid: int = 0
    victims: list[programs.Started] = field(default_factory=list[programs.Started])

    @property
    def workspace(self) -> Path:
        return self.path / "project"

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
        assert victim.wait(PATIENCE_S) == -by
        return made


@pytest.fixture
def scene(warm: None, place: Place) -> Iterator[Scene]:
    scene = Scene(place.path)
    scene.workspace.mkdir(mode=0o700)
    yield scene
    for victim in scene.victims:
        victim.kill()
        victim.wait()
    for path in (scene.path / "temporary").glob("*"):  # of victims that were alive until now
        path.unlink() if path.is_symlink() else shutil.rmtree(path)
    shutil.rmtree(f"/var/tmp/toolcell-quarantine-{USER}", ignore_errors=True)  # another user has no access to the cache


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
    made = scene.killed(by=by)
    assert Path(made["outputs"]).is_dir() and len(scene.records) == 1
    async with supervise() as supervisor:
        assert not os.path.exists(made["outputs"])
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
        assert {path.name for path in Path(made["quarantine"]).rglob("*")} >= before


async def test_what_a_living_supervisor_has_is_not_touched(scene: Scene, supervise: Callable[..., Supervisor]) -> None:
    victim, made = scene.start()
    async with supervise() as supervisor:
        assert findings_of(supervisor) == {}
        assert len(scene.records) == 2
        for path in (made["outputs"], made["record"], *made["cgroups"]):
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
    done = subprocess.run(
        [sys.executable, "-c", CUT_OFF], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
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
