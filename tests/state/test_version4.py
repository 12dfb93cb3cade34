"""A state directory of version 4, whose supervisor was killed, is migrated, and a kill in the middle loses nothing."""

import shutil
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from tests import programs
from tests.helpers import DIES_AT_A_STEP

from toolcell import Approvals
from toolcell.mcp.server.kept_tasks import TaskStore
from toolcell.store.database import Database
from toolcell.store.directory import StateDirectory
from toolcell.store.migrations import VERSION
from toolcell.store.results import ResultStore
from toolcell.store.schema import STATE
from toolcell.store.sessions import SessionStore

MADE = Path(__file__).with_name("version4.tar.xz")
"""Made by a supervisor of version 4, which was killed while a call with the key "asked" waited for approval. So the
databases have rows in their WAL files only."""
OLD = {f"{name}.sqlite" for name in ("approvals", "results", "sessions", "tasks")}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    state = tmp_path / "state"
    with tarfile.open(MADE) as made:
        made.extractall(state, filter="data")
    state.chmod(0o700)
    return state


def migrated(state: Path) -> None:
    directory = StateDirectory(state)
    directory.open_to_write()
    directory.close()


def check(state: Path) -> None:
    directory = StateDirectory(state)
    assert directory.version() == VERSION
    assert not any(path.name.startswith(tuple(OLD)) for path in state.iterdir()), "the old files are gone"
    assert [path.name for path in state.iterdir() if path.name.startswith("state.sqlite")] == ["state.sqlite"]
    with closing(Database(directory.database, directory.key(), STATE)) as database:
        results, sessions = ResultStore(database, lambda _record: 1), SessionStore(database)
        key, task = results.find("key", "s", "k"), results.find("task", "s", "nightly")
        assert key is not None and key.result is not None and key.result.output == "built x"
        assert task is not None and task.result is not None and task.result.output == "built y"
        assert [call.id for call in results.begun()] == ["asked"]
        session = sessions.find("w")
        assert session is not None and session.data["config"] == {"n": 1}
        assert database.now() > 1_700_000_000
    with Approvals.open(state) as approvals:
        found = {entry.request.arguments["amount"]: entry.state for entry in approvals.all() if entry.request}
        assert found == {1: "approved", 2: "denied", 3: "withdrawn", 4: "approved", 5: "pending", 6: "pending"}
        (standing,) = approvals.standing()
        assert standing.pattern == {"amount": "[49]"} and standing.agent_id == "ann"
    with closing(TaskStore(directory.database, directory.key())) as tasks:
        (kept,) = tasks.of("me")
        assert (kept.id, kept.outcome, kept.is_valid) == ("t1", '{"result": {"x": 1}}', True)
        assert 3500 < kept.left_s <= 3600


def test_every_row_is_in_one_database_after_it(old: Path) -> None:
    migrated(old)
    check(old)
    migrated(old)
    check(old)


KILLED = f"""
from toolcell.store.directory import StateDirectory
{DIES_AT_A_STEP}
StateDirectory(sys.argv[1]).open_to_write()
"""


@pytest.mark.usefixtures("warm")
def test_a_kill_before_any_step_of_the_migration_loses_nothing(old: Path, tmp_path: Path) -> None:
    for steps in range(1_000):
        state = tmp_path / f"killed-{steps}"
        shutil.copytree(old, state)
        state.chmod(0o700)
        done = programs.run([sys.executable, "-I", "-c", KILLED, str(state), str(steps)])
        assert done.returncode in (0, 9), done.stderr
        migrated(state)
        check(state)
        shutil.rmtree(state)
        if done.returncode == 0:
            break
    else:
        pytest.fail("it never ended")
    assert steps > 20, "and there were steps"


def test_a_row_that_did_not_fit_its_signature_is_not_signed_anew(old: Path) -> None:
    from toolcell.store.database import connect

    with closing(connect(old / "approvals.sqlite")) as database:
        database.execute("""UPDATE requests SET request = replace(request, '"amount":5', '"amount":500')""")
        database.execute("UPDATE standing SET approval = replace(approval, '[49]', '*')")
    with closing(connect(old / "sessions.sqlite")) as database:
        database.execute("UPDATE sessions SET data = replace(data, 'worker', 'main')")
    migrated(old)
    directory = StateDirectory(old)
    with Approvals.open(old) as approvals:
        assert sorted(entry.state for entry in approvals.all())[2:4] == ["denied", "invalid"]
        assert approvals.standing() == []
    with closing(Database(directory.database, directory.key(), STATE)) as database:
        assert not database.rows(STATE.tables[3])[0].is_valid
