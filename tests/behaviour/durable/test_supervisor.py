"""A supervisor with a state directory: what it refuses, what it records, and what it does if it cannot record."""

import os
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests import misbehaving

from toolcell import (
    ConfigError,
    Profile,
    Record,
    SandboxUnavailable,
    Supervisor,
    UsageError,
    host_tool,
    load_config,
    tool,
)
from toolcell.store.directory import StateDirectory
from toolcell.store.journal.reading import JournalReader
from toolcell.supervisor import runtime_of

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
Supervise = Callable[..., Supervisor]


def records(state: Path) -> list[Record]:
    directory = StateDirectory(state)
    return [each.record for each in JournalReader(directory.log, directory.index).entries()]


def of_call(state: Path, call_id: str) -> list[str]:
    return [record.kind for record in records(state) if record.call_id == call_id]


async def test_an_intent_comes_before_a_call_and_its_end_before_its_result(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    kept = tool(misbehaving.echo, name="kept", lifetime="session")
    async with supervise([misbehaving.echo, kept], state=tmp_path / "state") as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        await session.call("echo", {"value": 1}, call_id="waits for its cell")
        assert of_call(tmp_path / "state", "waits for its cell") == ["intent", "queued", "sent", "call"]
        await session.call("kept", {"value": 1})
        await session.call("kept", {"value": 1}, call_id="at once")
        assert of_call(tmp_path / "state", "at once") == ["intent", "call"]


async def test_a_call_that_is_refused_has_no_intent(supervise: Supervise, workspace: Path, tmp_path: Path) -> None:
    async with supervise([misbehaving.echo], state=tmp_path / "state") as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        await session.call("none", {}, call_id="unknown")
        assert of_call(tmp_path / "state", "unknown") == ["call"]


async def test_a_host_tool_whose_caller_goes_has_an_end(supervise: Supervise, workspace: Path, tmp_path: Path) -> None:
    @host_tool(harmless=True)
    async def wait() -> None:
        """Wait for ever."""
        await anyio.sleep_forever()

    async with supervise([wait], state=tmp_path / "state") as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        with anyio.move_on_after(0.2):
            await session.call("wait", {}, call_id="gone")
        assert of_call(tmp_path / "state", "gone") == ["intent", "call"]


async def test_a_queued_call_whose_caller_goes_has_an_end(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    async with supervise([misbehaving.sleep_for_ever], state=tmp_path / "state", max_cells=1) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "sleep_for_ever")
            await anyio.sleep(0.2)
            with anyio.move_on_after(0.2):
                await session.call("sleep_for_ever", {}, call_id="gone")
            tasks.cancel_scope.cancel()
        assert of_call(tmp_path / "state", "gone") == ["intent", "queued", "call"]


async def test_where_the_intent_cannot_be_written_the_call_is_not_run(
    supervise: Supervise, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcell.store.journal.log.SYNC_S", 100.0)  # /dev/full cannot be synchronised
    async with supervise([misbehaving.echo], state=tmp_path / "state") as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        assert (await session.call("echo", {"value": 1})).error is None
        log = runtime_of(supervisor).services.durable
        assert log is not None
        fd, log._log._fd = log._log._fd, os.open("/dev/full", os.O_WRONLY)
        refused = await session.call("echo", {"value": 1})
        os.close(log._log._fd)
        log._log._fd = fd
        assert isinstance(refused.error, SandboxUnavailable)
        assert "was not run, because it could not be recorded" in refused.error.message
        assert (await session.call("echo", {"value": 1})).error is None


async def test_a_second_supervisor_on_the_same_directory_is_refused(supervise: Supervise, tmp_path: Path) -> None:
    async with supervise([misbehaving.echo], state=tmp_path / "state"):
        with pytest.raises(UsageError, match="Another supervisor"):
            async with supervise([misbehaving.echo], state=tmp_path / "state"):
                pytest.fail("it started")
    async with supervise([misbehaving.echo], state=tmp_path / "state"):
        pass


@pytest.mark.parametrize("where", ["above", "the same", "below"])
async def test_a_session_that_could_see_it_is_refused(supervise: Supervise, tmp_path: Path, where: str) -> None:
    state = tmp_path / "project" / "state"
    state.parent.mkdir()
    places = {"above": state.parent, "the same": state, "below": state / "inner"}
    async with supervise([misbehaving.echo], state=state) as supervisor:
        if where == "below":
            places["below"].mkdir()
        with pytest.raises(UsageError, match="overlap"):
            await supervisor.open_session("worker", workspace=places[where])
        with pytest.raises(UsageError, match="overlap"):
            readable = Profile.for_kind("worker").replace(readable=(str(places[where]),))
            (tmp_path / "elsewhere").mkdir()
            await supervisor.open_session("worker", workspace=tmp_path / "elsewhere", profile=readable)


async def test_a_damaged_journal_is_refused_with_what_to_do(supervise: Supervise, tmp_path: Path) -> None:
    async with supervise([misbehaving.echo], state=tmp_path / "state"):
        pass
    log = tmp_path / "state" / "journal.log"
    changed = bytearray(log.read_bytes())
    changed[-1] ^= 1
    log.write_bytes(changed)
    for name in ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"):
        (tmp_path / "state" / name).unlink(missing_ok=True)
    with pytest.raises(UsageError, match=r"does not fit its digest.*toolcell audit verify"):
        async with supervise([misbehaving.echo], state=tmp_path / "state"):
            pytest.fail("it started")


def test_the_users_file_may_set_it_and_a_projects_may_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = '[supervisor]\nstate = "here"\n'
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    user = tmp_path / "config" / "toolcell" / "toolcell.toml"
    user.parent.mkdir(parents=True)
    user.write_text(settings)
    assert load_config().state == str(user.parent / "here")
    project = tmp_path / "project"
    project.mkdir()
    (project / "toolcell.toml").write_text(settings)
    with pytest.raises(ConfigError, match="a project's file can only narrow"):
        load_config(project)
