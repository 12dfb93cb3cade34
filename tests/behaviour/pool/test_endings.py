"""Endings of calls by outside events: kills at bad moments, a removed workspace, a supervisor's end."""

import os
import resource
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import misbehaving
from tests.helpers import PATIENCE_S
from tests.misbehaving import echo

from toolcell import (
    Capability,
    Crashed,
    SandboxUnavailable,
    Session,
    SessionInfo,
    Supervisor,
    ToolResult,
    tool,
    toolset,
)
from toolcell.pool.cell import State
from toolcell.supervisor import runtime_of
from toolcell.testing.residue import Residue
from toolcell_sandbox.errors import SandboxError

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


@tool
def die_within_a_frame() -> None:
    """Write the first half of a result, and die by SIGKILL."""
    data = misbehaving.frame_of(16, misbehaving.call_number(), {"output": "half", "display": "half"})
    misbehaving.write_frames(data[: len(data) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


async def test_a_call_that_is_killed_while_it_writes_its_result_has_crashed(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([die_within_a_frame, echo]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for number in range(2):
            error = (await session.call("die_within_a_frame")).error
            assert isinstance(error, Crashed) and error.signal == signal.SIGKILL, error
            assert (await session.call("echo", {"value": number})).unwrap() == number


async def killed_while_it_starts(supervisor: Supervisor, session: Session) -> ToolResult:
    """The result of a call whose cell is killed as soon as it has a pid."""
    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await session.call("echo", {"value": 1}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        cell = None
        with anyio.fail_after(PATIENCE_S):
            while cell is None or not cell.pid:
                await anyio.sleep(0)
                cells = runtime_of(supervisor).pool.cells.values()
                cell = next((cell for cell in cells if cell.spec.key.session_id == session.id), None)
        os.kill(cell.pid, signal.SIGKILL)
    return results[0]


async def test_a_cell_that_is_killed_while_it_starts_may_be_asked_for_again_and_says_so(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([echo]) as supervisor:
        error = None
        for _again in range(50):  # on a busy machine, the cell may have answered before it is killed
            session = await supervisor.open_session("main", workspace=workspace)
            error = (await killed_while_it_starts(supervisor, session)).error
            if isinstance(error, SandboxUnavailable):
                break
            await session.close()
        assert isinstance(error, SandboxUnavailable), error
        assert error.retryable and error.retry_after_s is not None
        assert error.message == "The cell ended while it started. Try again." and error.cure == "Try again."
        assert (await session.call("echo", {"value": 2})).unwrap() == 2


@tool(needs={Capability.READ})
def listed() -> list[str]:
    """Return the names of the files."""
    return os.listdir(".")


def a_file(path: Path) -> None:
    path.write_text("x")


PUT = {"a file": a_file, "a fifo": os.mkfifo}


@pytest.mark.parametrize("what", PUT)
@pytest.mark.parametrize("when", ["before the first call", "after one"])
async def test_a_workspace_in_whose_place_lies_something_else_is_said_to_be_gone_with_its_cure(
    what: str, when: str, supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([listed, echo]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        if when == "after one":
            assert (await session.call("listed")).unwrap() == []
        shutil.rmtree(workspace)
        PUT[what](workspace)
        error = (await session.call("listed")).error
        assert isinstance(error, SandboxUnavailable), error
        assert not error.retryable, "the same call fails in the same way until somebody puts it back"
        assert error.message.startswith("The workspace is not a directory: another kind of file")
        assert error.cure == "Put the directory back, or open a session on another one."
        assert (await session.call("echo", {"value": 1})).unwrap() == 1, "it needs no workspace"
        workspace.unlink()
        workspace.mkdir()
        assert (await session.call("listed")).unwrap() == []


@tool(lifetime="session", needs={Capability.WRITE})
def keep(name: str) -> None:
    """Make a file, and sleep."""
    Path(name).touch()


@pytest.mark.root
async def test_what_goes_wrong_at_the_end_of_a_supervisor_is_raised_and_nothing_hides_it(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    """A foreign directory in a cell's cgroup prevents its removal by the kernel."""
    before, strange, store = Residue.now(), Path(), Path()
    with pytest.raises(SandboxError, match="A cgroup cannot be removed"):
        async with supervise([keep]) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace)
            assert (await session.call("keep", {"name": "a"})).error is None
            (cell,) = runtime_of(supervisor).pool.cells.values()
            assert cell.cgroup is not None
            strange = Path(cell.cgroup.paths[0], "strange")
            strange.mkdir()
            store = runtime_of(supervisor).overflow._own_store()
    strange.rmdir()
    strange.parent.rmdir()
    assert not store.exists(), "the steps behind it were taken all the same"
    assert not Residue.now().beyond(before)


class Unsendable:
    """A tool that holds an object that cannot be pickled."""

    __name__ = "unsendable"

    def __init__(self) -> None:
        self.held = threading.Lock()

    def __call__(self) -> str:
        """Do nothing."""
        return ""


async def test_a_tool_of_a_toolset_that_cannot_be_sent_to_a_cell_fails_alone_and_typed(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    unsendable = Unsendable()

    @toolset
    def odd(session: SessionInfo) -> list[Any]:
        return [tool(unsendable, name="unsendable"), tool(echo, name="whole")]

    async with supervise(toolsets=[odd]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        error = (await session.call("unsendable")).error
        assert isinstance(error, SandboxUnavailable) and not error.retryable, error
        assert "cannot be sent to a cell by value" in error.message and "create that inside the function" in error.cure
        assert (await session.call("whole", {"value": 1})).unwrap() == 1
        unknown = (await session.call("unsent")).error
        assert unknown is not None and unknown.kind == "unknown_tool"


async def test_a_cgroup_that_somebody_has_removed_costs_no_further_call(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([echo], standby=0) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("echo", {"value": 1})).unwrap() == 1
        pool = runtime_of(supervisor).pool
        for cell in list(pool.cells.values()):
            cell.kill()
        with anyio.fail_after(PATIENCE_S):
            while pool.cells or pool.slots.vacating:
                await anyio.sleep(0.01)
        for cgroup in pool.slots.free_cgroups:
            for path in cgroup.paths:
                os.rmdir(path)
        assert (await session.call("echo", {"value": 2})).unwrap() == 2


@pytest.mark.root
async def test_a_cell_that_dies_while_no_descriptor_is_left_leaves_none_open(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    """The descriptors are of the cell's cgroup, which is read once more after the cell's death. `nothing_is_left`
    checks them.
    """
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with supervise([echo]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("echo", {"value": 1})).unwrap() == 1
        cells = list(runtime_of(supervisor).pool.cells.values())
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))  # below all that the cell's end sets free
        try:
            for cell in cells:
                cell.kill()
            with anyio.fail_after(PATIENCE_S):
                while any(cell.state is not State.DEAD for cell in cells):
                    await anyio.sleep(0.01)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert (await session.call("echo", {"value": 2})).unwrap() == 2
