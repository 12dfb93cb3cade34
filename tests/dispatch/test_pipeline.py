"""The pipeline: a caller that goes while hooks have the result of a call that has run."""

from pathlib import Path

import anyio
import pytest
from tests.helpers import PATIENCE_S

from toolcell import Hook, Supervisor, ToolCall, ToolResult, host_tool, tool
from toolcell_tools.capability import Capability
from toolcell_tools.errors import Cancelled

pytestmark = pytest.mark.anyio
runs: list[str] = []


@host_tool
def pay_here() -> int:
    """Count a run in the supervisor's process."""
    runs.append("host")
    return len(runs)


@tool(needs={Capability.WRITE})
def pay() -> int:
    """Count a run in the workspace."""
    with Path("runs").open("a") as file:
        file.write("cell\n")
    return 1


class Slow(Hook):
    """Keeps each result until it is told to go on."""

    def __init__(self) -> None:
        self.has_it, self.go_on = anyio.Event(), anyio.Event()

    async def after_call(self, call: ToolCall, result: ToolResult) -> None:
        self.has_it.set()
        await self.go_on.wait()


@pytest.mark.parametrize("name", ["pay_here", "pay"])
async def test_a_call_whose_caller_goes_during_a_hook_does_not_run_again_under_its_key(
    name: str, tmp_path: Path
) -> None:
    runs.clear()
    hook = Slow()
    async with Supervisor([pay_here, pay], hooks=[hook], standby=0) as supervisor:
        session = await supervisor.open_session("main", workspace=tmp_path)
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:

                async def call() -> None:
                    await session.call(name, {}, idempotency_key="k")

                tasks.start_soon(call)
                await hook.has_it.wait()
                tasks.cancel_scope.cancel()
        hook.go_on.set()
        again = await session.call(name, {}, idempotency_key="k")
    written = tmp_path / "runs"
    assert len(runs) + (len(written.read_text().split()) if written.exists() else 0) == 1
    assert isinstance(again.error, Cancelled) and again.error.outcome == "outcome unknown"
