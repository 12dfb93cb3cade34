"""Tests of tools with the fixtures of toolcell's pytest plugin: `pytest examples/test_tools.py`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from toolcell import Capability, Supervisor, ToolContext, tool


@tool(needs={Capability.WRITE})
def save(ctx: ToolContext, path: str, text: str) -> str:
    """Save text to a file in the workspace."""
    ctx.require.writer.write_text(path, text)
    return f"saved {len(text)} characters"


def test_the_function_by_itself(toolcell_context: Callable[..., ToolContext], toolcell_workspace: Path) -> None:
    assert save(toolcell_context(), "a.txt", "hello") == "saved 5 characters"
    assert (toolcell_workspace / "a.txt").read_text() == "hello"


def test_one_call_in_a_real_cell(toolcell_run: Callable[..., Any]) -> None:
    assert toolcell_run(save, {"path": "a.txt", "text": "hello"}).unwrap() == "saved 5 characters"


def test_a_session_of_a_worker_that_may_not_write(toolcell_session: Callable[..., Any]) -> None:
    session = toolcell_session([save], "worker")
    assert session.call("save", {"path": "a.txt", "text": "hello"}).error.kind == "permission_denied"


def test_the_runtime_around_it(toolcell_supervisor: Callable[..., Supervisor], toolcell_workspace: Path) -> None:
    async def main() -> str:  # with pytest-asyncio or anyio, the test itself may be async
        async with toolcell_supervisor([save]) as supervisor:
            session = await supervisor.open_session("main", workspace=toolcell_workspace)
            return (await session.call("save", {"path": "a.txt", "text": "hello"})).display

    assert anyio.run(main) == "saved 5 characters"
