"""Suspended sessions of a durable supervisor: resumed by the next one, with everything that they had."""

import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests import programs

from toolcell import (
    Capability,
    ChannelPolicy,
    Profile,
    SessionState,
    Supervisor,
    ToolContext,
    ToolFailure,
    UsageError,
    UsageLimits,
    base_tools,
)
from toolcell.session import core_of
from toolcell.store.database import Database
from toolcell.store.directory import StateDirectory
from toolcell.store.schema import STATE
from toolcell.store.sessions import SessionStore
from toolcell.testing.backends import ListChannel, ListMemory

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.usefixtures("warm")]
Supervise = Callable[..., Supervisor]


def whoami(ctx: ToolContext) -> dict[str, Any]:
    """Return for whom the call runs."""
    names = ("agent_id", "user_id", "invocation_id", "context", "config", "values")
    return {"kind": ctx.session_kind.value, **{name: getattr(ctx, name) for name in names}}


def fail() -> None:
    """Fail."""
    raise ToolFailure("broken")


TOOLS = [*base_tools(), whoami, fail]


async def test_a_suspended_tree_is_resumed_after_a_restart_with_everything_that_it_had(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state, below = tmp_path / "state", workspace / "below"
    async with supervise(TOOLS, state=state) as supervisor:
        main = await supervisor.open_session(
            *("main",), workspace=workspace, agent_id="ada", user_id="bob", invocation_id="t7", session_id="m"
        )
        main.config, main.values = {"tone": "dry", "deep": [1, {"x": None}]}, {"seen": 3}
        child = await main.open_child("branch", workspace=below, context="the bug is in parse()", session_id="c")
        gone = await main.open_child("worker")
        await gone.call("fail")
        await gone.close(summary="found nothing")
        await child.call("write", {"path": "a.txt", "content": "x"})
        before = await main.call("whoami"), await child.call("whoami")
        used = main.usage
        await main.suspend()
        main.values = {**main.values, "late": True}
    assert main.state is SessionState.SUSPENDED
    async with supervise(TOOLS, state=state) as supervisor:
        assert set(supervisor.suspended_sessions()) == {"m", "c"}
        with pytest.raises(UsageError, match="Resume that session first"):
            await supervisor.resume_session("c")
        with pytest.raises(UsageError, match="suspended session of this id: 'm'"):
            await supervisor.open_session("main", workspace=workspace, session_id="m")
        main = await supervisor.resume_session("m")
        child = await supervisor.resume_session("c")
        after = await main.call("whoami"), await child.call("whoami")
        assert after[1].output == before[1].output
        assert after[0].output == {**before[0].output, "values": {"seen": 3, "late": True}}
        assert child.parent is main and child.workspace == below and child.context == "the bug is in parse()"
        assert main.results[0].summary == "found nothing" and main.reports[0].error.message == "broken"
        assert main.usage.calls == used.calls + 2
        assert [one.path for one in (await child.close()).artifacts] == ["a.txt"]
        assert supervisor.suspended_sessions() == []


async def test_a_session_that_was_resumed_is_not_resumed_again(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    async with supervise(TOOLS, state=tmp_path / "state") as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, session_id="m")
        await main.suspend()
    async with supervise(TOOLS, state=tmp_path / "state") as supervisor:
        await supervisor.resume_session("m")
        with pytest.raises(UsageError, match="not suspended"):
            await supervisor.resume_session("m")
    async with supervise(TOOLS, state=tmp_path / "state") as supervisor:
        with pytest.raises(UsageError, match="There is no suspended session 'm'"):
            await supervisor.resume_session("m")


async def test_the_close_of_a_suspended_session_drops_those_below_it(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    async with supervise(TOOLS, state=state) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, session_id="m")
        await (await main.open_child("branch", session_id="b")).open_child("worker", session_id="w")
        await main.suspend()
    async with supervise(TOOLS, state=state) as supervisor:
        main = await supervisor.resume_session("m")
        await main.close()
        assert supervisor.suspended_sessions() == []


async def test_rights_and_limits_are_no_wider_after_a_restart(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    narrow = Profile.for_kind("main").replace(
        grants=frozenset({Capability.READ}),
        http=("GET https://api.example.com",),
        env={"A": "1"},
        web=("seen",),
        channel=ChannelPolicy(level="ask", burst=3),
    )
    async with supervise(TOOLS, state=state) as supervisor:
        main = await supervisor.open_session(
            "main", workspace=workspace, session_id="m", profile=narrow, usage_limits=UsageLimits(calls=2)
        )
        await main.call("whoami")
        shown = main.profile
        await main.suspend()
    async with supervise(TOOLS, state=state) as supervisor:
        main = await supervisor.resume_session("m")
        assert main.profile == shown and main.grants == {Capability.READ}
        denied = await main.call("write", {"path": "a", "content": "b"})
        assert denied.error is not None and denied.error.kind == "permission_denied"
        assert (await main.call("whoami")).error is None
        over = await main.call("whoami")
        assert over.error is not None and "calls = 2" in over.error.message


async def test_what_no_file_can_hold_is_passed_again(supervise: Supervise, workspace: Path, tmp_path: Path) -> None:
    state, channel, memory = tmp_path / "state", ListChannel(), ListMemory()
    async with supervise(TOOLS, state=state) as supervisor:
        main = await supervisor.open_session(
            "main", workspace=workspace, session_id="m", channel=channel, memory=memory
        )
        await main.suspend()
    async with supervise(TOOLS, state=state) as supervisor:
        with pytest.raises(UsageError, match=r"its own channel, memory.*Pass channel=…, memory=…"):
            await supervisor.resume_session("m")
        main = await supervisor.resume_session("m", channel=channel, memory=memory)
        await main.call("message", {"text": "here again"})
    assert channel.sent == [("here again", "agent/m")]


async def test_a_config_that_no_file_can_hold_is_refused_before_anything_is_suspended(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    async with supervise(TOOLS, state=tmp_path / "state") as supervisor:
        main = await supervisor.open_session("main", workspace=workspace)
        child = await main.open_child("branch", config={"open": object()})
        with pytest.raises(UsageError, match="config is not JSON data"):
            await main.suspend()
        assert main.state is child.state is SessionState.ACTIVE


async def test_an_edited_row_is_not_resumed(supervise: Supervise, workspace: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with supervise(TOOLS, state=state) as supervisor:
        main = await supervisor.open_session("worker", workspace=workspace, session_id="w")
        await main.suspend()
    with closing(sqlite3.connect(state / "state.sqlite", isolation_level=None)) as database:
        database.execute("""UPDATE sessions SET data = replace(data, '"kind": "worker"', '"kind": "main"')""")
    async with supervise(TOOLS, state=state) as supervisor:
        with pytest.raises(UsageError, match="does not fit its signature"):
            await supervisor.resume_session("w")


async def test_a_suspended_session_survives_a_kill(supervise: Supervise, workspace: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    program = f"""
import anyio, os, signal
from toolcell import Supervisor
async def main():
    async with Supervisor(state={str(state)!r}, standby=0) as supervisor:
        session = await supervisor.open_session("main", workspace={str(workspace)!r}, session_id="m")
        session.values = {{"kept": True}}
        await session.suspend()
        os.kill(os.getpid(), signal.SIGKILL)
anyio.run(main)
"""
    done = programs.run([sys.executable, "-I", "-c", program])
    assert done.returncode == -signal.SIGKILL
    async with supervise(TOOLS, state=state) as supervisor:
        assert (await supervisor.resume_session("m")).values == {"kept": True}


async def test_without_a_state_directory_a_suspended_session_ends_with_its_supervisor(
    supervise: Supervise, workspace: Path
) -> None:
    async with supervise(TOOLS) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, session_id="m")
        await main.suspend()
    assert main.state is SessionState.COMPLETED
    async with supervise(TOOLS) as supervisor:
        with pytest.raises(UsageError, match="no state directory"):
            await supervisor.resume_session("m")


async def test_a_resumed_session_has_the_line_that_it_had(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    async with supervise(TOOLS, state=state) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, agent_id="bob", session_id="m")
        helper = await main.open_child("branch", agent_id="delegate", session_id="h")
        await helper.open_child("worker", session_id="w")
        await main.suspend()
    async with supervise(TOOLS, state=state) as supervisor:
        lines = [(await supervisor.resume_session(id)).line for id in ("m", "h", "w")]
        assert lines == [("bob",), ("bob", "delegate"), ("bob", "delegate")]


async def with_a_suspended_helper(supervise: Supervise, workspace: Path, tmp_path: Path) -> Path:
    """A state directory with the session "m" of bob and its child "h" of bob's delegate."""
    state = tmp_path / "state"
    async with supervise(TOOLS, state=state) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, agent_id="bob", session_id="m")
        await main.open_child("branch", agent_id="delegate", session_id="h")
        await main.suspend()
    return state


async def test_a_session_that_an_earlier_version_has_suspended_gets_its_line_from_its_parent(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = await with_a_suspended_helper(supervise, workspace, tmp_path)
    key = StateDirectory(state).key()
    with closing(Database(state / "state.sqlite", key, STATE)) as database:  # as that version wrote them
        store = SessionStore(database)
        for kept in [store.find("m"), store.find("h")]:
            assert kept is not None
            store.keep(kept._replace(data={name: each for name, each in kept.data.items() if name != "ancestors"}), 0)
    async with supervise(TOOLS, state=state) as supervisor:
        lines = [(await supervisor.resume_session(id)).line for id in ("m", "h")]
        assert lines == [("bob",), ("bob", "delegate")]


async def test_a_session_that_an_earlier_version_has_suspended_again_is_resumed_once(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    """Earlier versions kept no mark, so the log has a resumption that may be older than the row."""
    state = tmp_path / "state"
    async with supervise(TOOLS, state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        await session.suspend()
        await (await supervisor.resume_session("s")).suspend()
    with closing(Database(state / "state.sqlite", StateDirectory(state).key(), STATE)) as database:
        store = SessionStore(database)
        kept = store.find("s")
        assert kept is not None
        store.keep(kept, 0)
    copy = (state / "state.sqlite").read_bytes()
    async with supervise(TOOLS, state=state) as supervisor:
        await supervisor.resume_session("s")
    for path in state.glob("state.sqlite*"):
        path.unlink()
    (state / "state.sqlite").write_bytes(copy)
    async with supervise(TOOLS, state=state) as supervisor:
        with pytest.raises(UsageError, match="no suspended session"):
            await supervisor.resume_session("s")


async def test_a_helper_is_not_resumed_below_another_agent(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = await with_a_suspended_helper(supervise, workspace, tmp_path)
    with closing(sqlite3.connect(state / "state.sqlite", isolation_level=None)) as database:
        database.execute("DELETE FROM sessions WHERE id = 'm'")  # as after a kill of a supervisor that had resumed it
    async with supervise(TOOLS, state=state) as supervisor:
        other = await supervisor.open_session("main", workspace=workspace, agent_id="eve", session_id="m")
        with pytest.raises(UsageError, match="belongs to 'bob/delegate', and its parent is of 'eve'"):
            await supervisor.resume_session("h")
        assert supervisor.suspended_sessions() == ["h"] and not core_of(other).children
