"""Calls that are made again after infrastructure errors, from a real pool that is full."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcell import Concurrency, Session, Supervisor, ToolContext, ToolResult, tool
from toolcell.rollouts import Attempt, RolloutOutcome, is_infrastructure, rollout
from toolcell.rollouts.infrastructure import steady_call
from toolcell_tools.errors import Cancelled, Crashed, Overloaded, SandboxUnavailable, Timeout

pytestmark = pytest.mark.anyio


@tool(needs={"write"}, timeout=60)
def hold(ctx: ToolContext, wait: bool = False) -> str:
    """Take this tool's only place, until there is a file."""
    import time

    ctx.require.writer.write_text("held", "")
    while wait and not (ctx.workspace_root / "free").exists():
        time.sleep(0.01)
    return "held"


@tool
def crash() -> None:
    """Die."""
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


class Frees:
    """Calls of a session; the first one has little time, and makes a file when it has ended."""

    def __init__(self, session: Session, file: Path) -> None:
        self._session, self._file = session, file

    async def call(self, name: str, args: dict[str, Any], **options: Any) -> ToolResult:
        timeout = 25.0 if self._file.exists() else 0.1
        result = await self._session.call(name, args, timeout=timeout, **options)
        self._file.touch()
        return result


async def test_a_call_that_found_no_room_is_made_again_and_one_that_was_cut_short_is_not(tmp_path: Path) -> None:
    async with Supervisor([hold], concurrency=Concurrency(tools={"hold": 1})) as supervisor:
        first, second = [await supervisor.open_session("main", workspace=tmp_path / name) for name in "ab"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.call, "hold", {"wait": True})
            while not (tmp_path / "a/held").exists():
                await anyio.sleep(0.01)
            refused = await second.call("hold", {}, timeout=0.1)
            assert is_infrastructure(refused.error)
            frees: Any = Frees(second, tmp_path / "a/free")
            steady = await steady_call(frees, "hold", {}, call_id="mine")
            assert steady.output == "held" and steady.call_id == "mine~2"
        cut = await steady_call(second, "hold", {"wait": True}, timeout=5.0, call_id="short")
        assert isinstance(cut.error, Timeout) and cut.call_id == "short"


async def test_a_tool_that_keeps_crashing_is_no_failure_of_the_infrastructure(tmp_path: Path) -> None:
    async def agent(attempt: Attempt) -> list[str]:
        results = [await attempt.call("crash") for _ in range(4)]
        return [one.error.kind for one in results if one.error is not None]

    async with (
        Supervisor([crash]) as supervisor,
        rollout(["x"], agent, supervisor=supervisor, workspace=tmp_path / "runs") as trajectories,
    ):
        (one,) = [one async for one in trajectories]
    assert (one.outcome, one.tries) == (RolloutOutcome.FINISHED, 1)
    assert one.output == ["crashed"] * 4


def test_which_errors_are_the_infrastructure_s() -> None:
    theirs = [
        Overloaded(message=""), Cancelled(message=""), SandboxUnavailable(message="", mechanism="", cure=""),
    ]  # fmt: skip
    assert all(map(is_infrastructure, theirs))
    others = [None, Crashed(message=""), Timeout(message="", elapsed=1.0)]
    assert not any(map(is_infrastructure, others))
