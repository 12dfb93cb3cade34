"""A database that is damaged, lost or put back from a copy, and a clock that jumps: nothing runs twice unnoticed."""

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from tests.behaviour.durable.test_results import append, killed, lines

from toolcell import PermissionTier, Supervisor, UsageError, tool
from toolcell.store.directory import StateDirectory
from toolcell.store.journal.reading import JournalReader
from toolcell.store.schema import STATE

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.usefixtures("warm")]
Supervise = Callable[..., Supervisor]
DAY_S = 86_400.0


@tool(tier=PermissionTier.ELEVATED)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


TOOLS = [append, pay]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def incidents(state: Path) -> list[str]:
    directory = StateDirectory(state)
    entries = JournalReader(directory.log, directory.index).entries()
    return [str(each.record.data["what"]) for each in entries if each.record.kind == "incident"]


async def fill(supervise: Supervise, workspace: Path, state: Path) -> None:
    """A key and a task that ran, a request that waits, an approval of later calls, and a suspended session."""
    async with supervise(TOOLS, state=state, approval_timeout_s=0.2) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        assert (await session.call("append", {"line": "a"}, idempotency_key="k")).output == 1
        await session.start("append", {"line": "b"}, task_id="t").result()
    async with supervise(TOOLS, state=state, approval_timeout_s=600) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        for amount in (1, 2):
            session.start("pay", {"amount": amount})
        while len(found := supervisor.approvals.pending()) < 2:
            await anyio.sleep(0.05)
        one = next(each for each in found if each.request is not None and each.request.arguments == {"amount": 1})
        supervisor.approvals.approve(one.id, pattern={"amount": "1"}, for_s=30 * DAY_S)
        other = await supervisor.open_session("worker", workspace=workspace, session_id="w")
        await other.suspend()


async def check(supervise: Supervise, workspace: Path, state: Path, *, lost: str = "") -> None:
    """The key and the task do not run again, and what is not in the table `lost` is there."""
    async with supervise(TOOLS, state=state, approval_timeout_s=0.2) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        again = await session.call("append", {"line": "a"}, idempotency_key="k")
        task = await supervisor.task("t").result()
        if lost == "calls":
            for result in (again, task):
                assert result.error is not None and result.error.outcome == "outcome unknown"
                assert "its result was lost" in result.error.message
        else:
            assert again.output == 1 and task.output == 2
        assert [entry.state for entry in supervisor.approvals.all()].count("pending") <= (lost != "requests")
        if lost not in ("standing", "all"):
            assert (await session.call("pay", {"amount": 1})).output == "paid 1"
        if lost not in ("sessions", "all"):
            await supervisor.resume_session("w")
    assert lines(workspace) == ["a", "b"]


def overwrite_table(path: Path, name: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        (size,) = database.execute("PRAGMA page_size").fetchone()
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xa5" * size)


@pytest.mark.parametrize("name", [table.name for table in STATE.tables])
async def test_damage_to_one_table_costs_no_other_and_is_named(
    supervise: Supervise, workspace: Path, state: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(supervise, workspace, state)
    overwrite_table(state / "state.sqlite", name)
    await check(supervise, workspace, state, lost=name)
    (said, *rest) = incidents(state)
    assert f"tables that have lost rows: {name}" in said and "The old file is state.sqlite.damaged" in said
    assert "state.sqlite: It was damaged" in caplog.text and len(rest) == (name == "calls")
    assert (state / "state.sqlite.damaged").exists()


@pytest.mark.parametrize("name", [table.name for table in STATE.tables])
async def test_a_table_that_was_dropped_is_noticed(
    supervise: Supervise, workspace: Path, state: Path, name: str
) -> None:
    await fill(supervise, workspace, state)
    with closing(sqlite3.connect(state / "state.sqlite")) as database:
        database.execute(f"DROP TABLE {name}")
    await check(supervise, workspace, state, lost=name)
    assert f"it lacks the table {name}" in incidents(state)[0]


async def test_keys_of_a_database_that_was_deleted_do_not_run_again(
    supervise: Supervise, workspace: Path, state: Path
) -> None:
    await fill(supervise, workspace, state)
    for path in state.glob("state.sqlite*"):
        path.unlink()
    async with supervise(TOOLS, state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        result = await session.call("append", {"line": "a"}, idempotency_key="k")
        assert result.error is not None and "its result was lost" in result.error.message
        with pytest.raises(UsageError, match="another call's"):
            await session.call("append", {"line": "z"}, idempotency_key="k")
        assert (await session.call("append", {"line": "c"}, idempotency_key="new")).output == 3
        with pytest.raises(UsageError, match="no suspended session"):
            await supervisor.resume_session("w")
    assert lines(workspace) == ["a", "b", "c"]
    older, healed = incidents(state)
    assert "state.sqlite: It is missing or an older copy" in older
    assert "2 keys and tasks of calls that ran were missing" in healed or "4 keys" in healed


@pytest.mark.parametrize("is_killed", [False, True])
async def test_keys_that_ran_after_a_copy_was_made_do_not_run_again_when_it_is_put_back(
    supervise: Supervise, workspace: Path, state: Path, is_killed: bool
) -> None:
    async with supervise(TOOLS, state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        assert (await session.call("append", {"line": "a"}, idempotency_key="first")).output == 1
    copy = (state / "state.sqlite").read_bytes()
    if is_killed:
        call = "await session.call('append', {'line': 'b'}, idempotency_key='k')"
        await anyio.to_thread.run_sync(killed, state, workspace, call)
    else:
        async with supervise(TOOLS, state=state) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace, session_id="s")
            assert (await session.call("append", {"line": "b"}, idempotency_key="k")).output == 2
            bad = await session.call("append", {"nothing": 1}, idempotency_key="free")
            assert bad.is_error
    for path in state.glob("state.sqlite*"):
        path.unlink()
    (state / "state.sqlite").write_bytes(copy)
    for _start in range(2):
        async with supervise(TOOLS, state=state) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace, session_id="s")
            assert (await session.call("append", {"line": "a"}, idempotency_key="first")).output == 1
            error = (await session.call("append", {"line": "b"}, idempotency_key="k")).error
            assert error is not None and error.outcome == "outcome unknown", "it does not run again"
    assert lines(workspace) == ["a", "b"]
    assert len([each for each in incidents(state) if "older copy" in each]) == 1, "noticed once"


async def test_a_suspended_session_that_is_put_back_after_it_was_closed_is_not_resumed(
    supervise: Supervise, workspace: Path, state: Path
) -> None:
    async with supervise(TOOLS, state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        await session.suspend()
    copy = (state / "state.sqlite").read_bytes()
    async with supervise(TOOLS, state=state) as supervisor:
        await (await supervisor.resume_session("s")).close()
    for path in state.glob("state.sqlite*"):
        path.unlink()
    (state / "state.sqlite").write_bytes(copy)
    async with supervise(TOOLS, state=state) as supervisor:
        with pytest.raises(UsageError, match="no suspended session"):
            await supervisor.resume_session("s")
    assert any("'s' was put back after it was resumed or closed" in each for each in incidents(state))


async def test_a_log_that_was_put_back_is_noticed(supervise: Supervise, workspace: Path, state: Path) -> None:
    async with supervise(TOOLS, state=state):
        pass
    copies = {path: path.read_bytes() for path in state.iterdir() if path.name.startswith("journal.")}
    async with supervise(TOOLS, state=state):
        pass
    for path in state.glob("journal.*"):
        path.unlink()
    for path, data in copies.items():
        path.write_bytes(data)
    async with supervise(TOOLS, state=state):
        pass
    assert "It goes further than the journal" in incidents(state)[0]


async def test_nothing_is_noticed_where_nothing_was_done(supervise: Supervise, workspace: Path, state: Path) -> None:
    await fill(supervise, workspace, state)
    call = "await session.call('append', {'line': 'c'}, idempotency_key='c')"
    await anyio.to_thread.run_sync(killed, state, workspace, call)
    await check_only(supervise, state)
    assert incidents(state) == []


async def check_only(supervise: Supervise, state: Path) -> None:
    for _start in range(2):
        async with supervise(TOOLS, state=state):
            pass


@pytest.mark.parametrize("jump_s", [-3650 * DAY_S, 3650 * DAY_S])
async def test_a_clock_that_jumps_ten_years_makes_no_key_run_again(
    supervise: Supervise, workspace: Path, state: Path, jump_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    await fill(supervise, workspace, state)
    for jump in (jump_s, 0.0, jump_s):
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", lambda jump=jump: real() + jump)
            async with supervise(TOOLS, state=state) as supervisor:
                session = await supervisor.open_session("main", workspace=workspace, session_id="s")
                assert (await session.call("append", {"line": "a"}, idempotency_key="k")).output == 1
                assert (await supervisor.task("t").result()).output == 2
                assert supervisor.suspended_sessions() == ["w"] and len(supervisor.approvals.all()) == 2
                key = f"at {jump} {os.urandom(4).hex()}"
                number = len(lines(workspace)) + 1
                assert (await session.call("append", {"line": key}, idempotency_key=key)).output == number
    async with supervise(TOOLS, state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        for line in lines(workspace)[2:]:
            again = await session.call("append", {"line": line}, idempotency_key=line)
            assert again.output == lines(workspace).index(line) + 1
    assert incidents(state) == []


async def test_a_directory_that_was_copied_while_the_supervisor_ran_is_whole(
    supervise: Supervise, workspace: Path, state: Path, tmp_path: Path
) -> None:
    async with supervise(TOOLS, state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        assert (await session.call("append", {"line": "a"}, idempotency_key="k")).output == 1
        shutil.copytree(state, tmp_path / "copy")
        (tmp_path / "copy").chmod(0o700)
    async with supervise(TOOLS, state=tmp_path / "copy") as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        assert (await session.call("append", {"line": "a"}, idempotency_key="k")).output == 1
    assert incidents(tmp_path / "copy") == []
