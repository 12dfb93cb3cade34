"""A file system in the workspace that does not answer the looks for protected names."""

import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from tests.helpers import PATIENCE_S
from tests.hung import hung_mount

from toolcell import Capability, Profile, SandboxUnavailable, Session, Supervisor, ToolContext, ToolResult, tool
from toolcell.sessions import protection

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
QUIET = Profile.for_kind("main").replace(changes="off")  # of looks for changed files, which have bounds of their own


@tool(needs={Capability.WRITE})
def plant(ctx: ToolContext) -> str:
    """Make a protected name, and wait until the program says so."""

    root = Path(ctx.workspace_root)
    (root / ".envrc").write_text("evil")
    (root / "planted").touch()
    while not (root / "go").exists():
        time.sleep(0.01)
    return "done"


@pytest.fixture
async def supervisor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Supervisor]:
    monkeypatch.setattr(protection, "ANSWER_S", 1.0)
    async with Supervisor([plant], quarantine=tmp_path / "quarantine") as made:
        yield made


async def opened(supervisor: Supervisor, workspace: Path) -> Session:
    workspace.mkdir(exist_ok=True)
    return await supervisor.open_session("main", workspace=workspace, profile=QUIET)


def assert_says_what_to_do(result: ToolResult) -> None:
    error = result.error
    assert isinstance(error, SandboxUnavailable) and not error.retryable
    assert error.mechanism == "protected_names" and (result.output, result.display) == (None, "")
    for words in ("does not answer", "umount -l", "open another session"):
        assert words in error.message


async def ended(session: Session) -> None:
    with anyio.fail_after(PATIENCE_S):
        while session.state == "active":
            await anyio.sleep(0.01)
    result = await session.close()
    assert result.outcome == "failed" and "does not answer" in result.summary


async def answered(supervisor: Supervisor, workspace: Path) -> ToolResult:
    """The first result of a session that may look. A thread that hung notices the unmount a moment later."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            result = await (await opened(supervisor, workspace)).call("plant", {})
            if not isinstance(result.error, SandboxUnavailable):
                return result
            await anyio.sleep(0.05)


@pytest.mark.root
async def test_a_call_beside_a_file_system_that_hangs_never_starts(supervisor: Supervisor, tmp_path: Path) -> None:
    other = await opened(supervisor, tmp_path / "other")
    session = await opened(supervisor, tmp_path / "work")
    (tmp_path / "other" / "go").touch()
    with hung_mount(tmp_path / "work" / "mount"):
        result = await session.call("plant", {})
        assert_says_what_to_do(result)
        await ended(session)
        second = await opened(supervisor, tmp_path / "work")
        assert_says_what_to_do(await second.call("plant", {}))
        await ended(second)
        assert (await other.call("plant", {})).error is None, "other workspaces go on"
    assert not (tmp_path / "work" / "planted").exists()
    (tmp_path / "work" / "go").touch()
    assert (await answered(supervisor, tmp_path / "work")).output == "done"


@pytest.mark.root
async def test_a_call_that_cannot_be_audited_is_an_error_and_what_it_made_is_moved_away_later(
    supervisor: Supervisor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    work = tmp_path / "work"
    session = await opened(supervisor, work)
    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await session.call("plant", {}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        while not (work / "planted").exists():
            await anyio.sleep(0.01)
        with hung_mount(work / "mount"):
            (work / "go").touch()
            while not results:
                await anyio.sleep(0.01)
            assert_says_what_to_do(results[0])
            await ended(session)
            assert (work / ".envrc").exists(), "nobody could look"
    with caplog.at_level(logging.WARNING, "toolcell"):
        assert (await answered(supervisor, work)).output == "done"
    assert any(".envrc" in record.getMessage() and "earlier call" in record.getMessage() for record in caplog.records)
    assert not (work / ".envrc").exists()
