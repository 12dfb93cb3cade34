"""`toolcell status`: what it shows of a supervisor that runs, has problems, is blocked or has ended."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import misbehaving, programs
from tests.helpers import PATIENCE_S, until

from toolcell import Supervisor, tool
from toolcell.store.directory import StateDirectory

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.usefixtures("warm")]
TOOLS: list[Any] = [misbehaving.echo, misbehaving.sleep_for_ever, tool(os.abort, name="die", description="Die.")]


def status(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-m", "toolcell.cli", "status", "--state", str(state), *words]
    return programs.run(command, timeout=120)


async def shown(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The status that the supervisor writes from now on."""
    path, now = StateDirectory(state).status, time.time()
    await until(lambda: path.exists() and json.loads(path.read_text())["at"] > now)
    return await anyio.to_thread.run_sync(status, state, *words)


async def test_it_shows_sessions_calls_and_errors_and_the_end(workspace: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with Supervisor(TOOLS, state=state, max_cells=2) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, session_id="top", agent_id="ann")
        child = await main.open_child("worker", session_id="below")
        await child.call("echo", {"value": 1})
        await child.call("none", {})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: child.call("sleep_for_ever", call_id="long"))
            with anyio.fail_after(PATIENCE_S):
                while "1 running" not in (done := await shown(state)).stdout:
                    pass
            assert done.returncode == 0, done.stdout + done.stderr
            for part in (
                "running",
                "1 running, 0 waiting, 2 ended",
                "1 unknown_tool",
                "below  worker of top  agent ann",
            ):
                assert part in done.stdout
            assert "sleep_for_ever  long  session below" in done.stdout and "problems     none" in done.stdout
            tasks.cancel_scope.cancel()
    ended = status(state)
    assert ended.returncode == 1 and "No supervisor is running" in ended.stdout


async def test_a_supervisor_whose_directory_was_moved_writes_no_status_into_the_one_in_its_place(
    workspace: Path, tmp_path: Path
) -> None:
    state, moved = tmp_path / "state", tmp_path / "moved"
    async with Supervisor(TOOLS, state=state) as first:
        await first.open_session("main", workspace=workspace, session_id="first")
        await until(StateDirectory(state).status.exists)
        state.rename(moved)
        async with Supervisor(TOOLS, state=state) as second:
            await second.open_session("main", workspace=workspace, session_id="second")
            for _ in range(2):
                assert "first" not in (await shown(state)).stdout
                await shown(moved)


async def test_a_blocked_event_loop_is_noticed(workspace: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with Supervisor(TOOLS, state=state):
        await shown(state)
        path = StateDirectory(state).status
        old = json.loads(path.read_text())
        while True:  # no await: at most one status is on its way to the file
            late = {**old, "at": time.time() - 9}
            path.write_text(json.dumps(late))
            done = status(state)
            if json.loads(path.read_text()) == late:
                break
    assert done.returncode == 1 and "event loop" in done.stdout


def test_without_a_supervisor_it_says_so(tmp_path: Path) -> None:
    done = status(tmp_path)
    assert done.returncode == 2 and "no supervisor has run there" in done.stderr


@pytest.mark.parametrize("text", ["[1]", "{}", "[" * 100_000, '{"at": "\x1b[2J"}', "\x1b]0;x\x07", ""])
def test_a_status_that_somebody_else_has_written_is_damaged(tmp_path: Path, text: str) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    StateDirectory(state).status.write_text(text)
    if not text:
        os.truncate(StateDirectory(state).status, 50 * 2**30)
    done = status(state)
    assert done.returncode == 2 and "status.json is damaged" in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.rstrip("\n").isprintable()
