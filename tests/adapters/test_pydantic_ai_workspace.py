"""pydantic-ai's own suite for workspace backends, over a session; and what else a session's workspace does."""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_ai.workspaces import Workspace, WorkspaceBackend, WorkspaceError, WorkspaceOutputLimitError, WorkspaceRef
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite
from tests.conftest import Supervise

from toolcell import Session, Supervisor, TierPolicy
from toolcell.adapters.pydantic_ai_workspace import SessionWorkspace, workspace_tools

pytestmark = pytest.mark.anyio
TOOLS = workspace_tools()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def options() -> dict[str, Any]:
    return {"profiles": {}}  # the suite writes files of 8 MiB


class TestOfPydanticAI(WorkspaceBackendSuite):
    """All rules of the suite hold but those about processes that live on, and an environment that begins at its first
    use; our own promises take their places."""

    @pytest.fixture
    async def backend(self, main: Session) -> SessionWorkspace:
        return SessionWorkspace(main)

    @pytest.fixture
    def destructive_backend(self, main: Session) -> Callable[[], WorkspaceBackend]:
        return lambda: SessionWorkspace(main)

    @pytest.fixture
    def attach_backend(self, main: Session) -> Callable[[WorkspaceRef], WorkspaceBackend]:
        return lambda _ref: SessionWorkspace(main)

    @pytest.fixture
    def destroy_environment(self, main: Session) -> Callable[[WorkspaceBackend], Awaitable[None]]:
        async def destroy(_backend: WorkspaceBackend) -> None:
            shutil.rmtree(main.workspace)

        return destroy

    async def test_concurrent_first_use_shares_one_environment(self, main: Session) -> None:  # type: ignore[override]
        """The suite wants an environment that begins at the first use. Ours is there before, and has its ref."""
        box = SessionWorkspace(main)
        before = box.ref
        async with anyio.create_task_group() as tasks:
            for name in ("a", "b"):
                tasks.start_soon(box.run, ["touch", name])
        assert box.ref == before == WorkspaceRef(provider="toolcell", id=main.id)
        assert {one.name for one in main.workspace.iterdir()} == {"a", "b"}

    async def test_background_child_does_not_hold_up_completed_command(  # type: ignore[override]
        self, main: Session
    ) -> None:
        """The suite then wants the child to work on. In a session, it ends with its command."""
        done = await SessionWorkspace(main).run("(sleep 3600; touch late) & printf done", shell=True)
        assert (done.exit_code, done.stdout) == (0, "done")

    async def test_native_realpath_keeps_the_working_dir_and_missing_names(  # type: ignore[override]
        self, main: Session
    ) -> None:
        """The backend has no realpath of its own: the shell's."""
        box = Workspace(SessionWorkspace(main))
        there = await box.working_dir()
        assert [await box.realpath(path) for path in (there, f"{there}/missing")] == [there, f"{there}/missing"]

    async def test_a_backend_attached_by_ref_reaches_a_detached_process(  # type: ignore[override]
        self, main: Session
    ) -> None:
        """The suite wants such a process to live on. In a session, nothing outlives its call."""
        box = SessionWorkspace(main)
        await box.run("setsid sh -c 'sleep 1; touch late' >/dev/null 2>&1 &", shell=True)
        await anyio.sleep(1.5)
        assert not (main.workspace / "late").exists()


async def test_more_output_than_is_kept_is_an_error_with_its_beginning(main: Session) -> None:
    with pytest.raises(WorkspaceOutputLimitError) as cut:
        await SessionWorkspace(main).run("head -c 2000000 /dev/zero | tr '\\0' x", shell=True)
    assert len(cut.value.stdout) == cut.value.limit


async def test_a_text_for_the_shell_is_bash_and_may_be_longer_than_an_argument(main: Session) -> None:
    done = await SessionWorkspace(main).run(f": {'x' * 2_000_000}; a=(1 2); echo ${{#a[@]}}", shell=True)
    assert (done.stdout, done.stderr, done.exit_code) == ("2\n", "", 0)


async def test_a_worker_s_workspace_runs_nothing(main: Session) -> None:
    with pytest.raises(PermissionError, match="exec"):
        await SessionWorkspace(await main.open_child("worker")).run(["ls"])


async def test_a_command_that_needs_approval_is_an_error_that_says_so(supervise: Supervise, workspace: Path) -> None:
    async with supervise(workspace_tools(), policy=TierPolicy(system="ask")) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        with pytest.raises(WorkspaceError, match="needs approval"):
            await Workspace(SessionWorkspace(session)).run(["ls"])


async def test_the_workspace_ends_with_its_session(shared: Supervisor, workspace: Path) -> None:
    session = await shared.open_session("main", workspace=workspace)
    box = SessionWorkspace(session)
    await session.close()
    with pytest.raises(WorkspaceError, match="closed"):
        await box.run(["ls"])
