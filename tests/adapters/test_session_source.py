"""Sessions for frameworks that make their tools themselves."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcell import ToolContext, ToolResult, UsageError, tool
from toolcell.adapters.session_source import SessionSource, answered, source_of
from toolcell.rollouts import InfrastructureFailure
from toolcell_tools.errors import Cancelled, Crashed, ExecutionError, Overloaded

pytestmark = pytest.mark.anyio


@tool(needs={"read"})
def look(ctx: ToolContext) -> str:
    """Read what was prepared."""
    return ctx.require.workspace.read_text("task")


def prepare(task: Any, directory: Path) -> None:
    (directory / "task").write_text(str(task))


async def test_the_first_session_starts_the_supervisor_and_each_has_a_workspace(tmp_path: Path) -> None:
    source = SessionSource([look], workspace=tmp_path, prepare=prepare)
    assert list(source.declarations) == ["look"] and source_of(source) is source
    seen: dict[str, str] = {}

    async def one(name: str) -> None:
        session = await source.open(name, name.upper())
        seen[session.id] = (await session.call("look")).unwrap()

    try:
        async with anyio.create_task_group() as tasks:
            for name in ("a", "b"):
                tasks.start_soon(one, name)
        assert seen == {"a": "A", "b": "B"}
    finally:
        await source.aclose()
    try:
        await one("c")  # and starts another one after the end
    finally:
        await source.aclose()
    assert seen["c"] == "C"


def test_a_source_belongs_to_one_event_loop(tmp_path: Path) -> None:
    source = SessionSource([look], workspace=tmp_path, prepare=prepare)

    async def twice() -> None:
        await source.open("a")
        with pytest.raises(UsageError, match="another event loop"):
            await anyio.to_thread.run_sync(lambda: anyio.run(source.open, "b"))
        await source.aclose()

    anyio.run(twice)


def test_only_infrastructure_errors_are_raised() -> None:
    for error in (ExecutionError(message="no"), Crashed(message="it crashes")):
        result = ToolResult.build(error=error, tool="look")
        assert answered(result) is result
    for other in (Overloaded(message="no room"), Cancelled(message="gone")):
        with pytest.raises(InfrastructureFailure, match=f"look: {other.message}"):
            answered(ToolResult.build(error=other, tool="look"))
    with pytest.raises(UsageError, match="not a SessionSource"):
        source_of("textwrap:dedent")
