"""Prespawned cells: the zygote begins the next session's cell, and nothing outlives its owner.

Without standby, no cell is complete before its session is known (`pool/test_ahead.py`).
"""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import psutil
import pytest
from tests.helpers import PATIENCE_S
from tests.pool.found import find

from toolcell import Profile, Supervisor, base_tools
from toolcell.supervisor import runtime_of

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.trick]


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    async with Supervisor(tools=base_tools(), standby=False) as supervisor:
        yield supervisor


async def called(supervisor: Supervisor, workspace: Path, profile: Profile | None = None) -> int:
    """The pid of the cell that served the first call of a new session."""
    (workspace / "note.txt").write_text("a line")
    session = await supervisor.open_session("main", workspace=workspace, profile=profile)
    result = await session.call("read", {"path": "note.txt"})
    assert "a line" in str(result.unwrap())
    return max(
        cell.pid for cell in runtime_of(supervisor).pool.cells.values() if cell.spec.key.session_id == session.id
    )


def children(supervisor: Supervisor) -> set[int]:
    return {
        child.pid
        for zygote in runtime_of(supervisor).pool.fleet.zygotes
        for child in psutil.Process(zygote.pid).children()
    }


async def prespawned_of(supervisor: Supervisor) -> int:
    """The pid of the prespawned cell. For an ordinary user, another process precedes it, which ends at once."""
    before: set[int] = set()
    with anyio.fail_after(PATIENCE_S):
        while True:
            begun = children(supervisor) - {cell.pid for cell in runtime_of(supervisor).pool.cells.values()}
            if begun and begun == before:
                (pid,) = begun
                return pid
            before = begun
            await anyio.sleep(0.02)


async def test_the_next_session_gets_the_cell_that_was_begun_ahead(supervisor: Supervisor, tmp_path: Path) -> None:
    await called(supervisor, tmp_path)
    prespawned = await prespawned_of(supervisor)
    assert await called(supervisor, tmp_path) == prespawned
    assert await prespawned_of(supervisor) != prespawned


async def test_a_session_of_another_kind_gets_a_cell_of_its_own(supervisor: Supervisor, tmp_path: Path) -> None:
    await called(supervisor, tmp_path)
    prespawned = await prespawned_of(supervisor)
    other = Profile.for_kind("main").replace(proc=False)
    assert await called(supervisor, tmp_path, other) != prespawned
    with anyio.fail_after(PATIENCE_S):
        while prespawned in children(supervisor):
            await anyio.sleep(0.01)
    assert await called(supervisor, tmp_path, other) != prespawned, "the one that did not fit has made room"


async def test_a_spare_that_dies_is_reaped_and_missed_by_nobody(supervisor: Supervisor, tmp_path: Path) -> None:
    await called(supervisor, tmp_path)
    prespawned = await prespawned_of(supervisor)
    os.kill(prespawned, signal.SIGKILL)
    with anyio.fail_after(PATIENCE_S):
        while psutil.pid_exists(prespawned):
            await anyio.sleep(0.01)
    assert await called(supervisor, tmp_path) != prespawned


async def test_a_spare_dies_with_its_zygote(supervisor: Supervisor, tmp_path: Path) -> None:
    await called(supervisor, tmp_path)
    prespawned = await prespawned_of(supervisor)
    os.kill(runtime_of(supervisor).pool.fleet.zygotes[0].pid, signal.SIGKILL)
    with anyio.fail_after(PATIENCE_S):
        while psutil.pid_exists(prespawned):
            await anyio.sleep(0.01)
    await called(supervisor, tmp_path)


async def test_a_spare_is_gone_when_the_supervisor_is_left(tmp_path: Path) -> None:
    async with Supervisor(tools=base_tools(), standby=False) as supervisor:
        await called(supervisor, tmp_path)
        prespawned = await prespawned_of(supervisor)
    assert not psutil.pid_exists(prespawned)


async def test_nothing_of_an_earlier_session_is_in_a_cell(tmp_path: Path) -> None:
    """Neither the environment nor the workspace of a session is in a cell that was begun afterwards."""
    async with Supervisor(tools=[find, *base_tools()], standby=False) as supervisor:
        profile = Profile.for_kind("main").replace(env={"TOKEN": "sesame-of-the-first"})
        first = await supervisor.open_session("main", workspace=tmp_path, profile=profile)
        sought = {"backwards": "sesame-of-the-first"[::-1]}
        assert (await first.call("find", sought)).unwrap(), "it is in the cell whose it is"
        prespawned = await prespawned_of(supervisor)
        second = await supervisor.open_session("main", workspace=tmp_path)
        assert (await second.call("find", sought)).unwrap() == 0
        assert prespawned in {cell.pid for cell in runtime_of(supervisor).pool.cells.values()}
