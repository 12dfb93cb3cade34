"""The sessions that the tests of frameworks for training name in their files, and their tools."""

import tempfile
from pathlib import Path
from typing import Any

from tests.adapters.kit import PNG, crash, fail, hang, picture

from toolcell import Annotations, Supervisor, Tool, ToolContext, base_tools, tool
from toolcell.adapters.session_source import SessionSource

__all__ = ["PNG", "SOURCE", "TOOLS", "count"]


@tool(needs={"read", "write"}, annotations=Annotations(sequential=True))
def count(ctx: ToolContext, by: int = 1, note: str | None = None) -> int:
    """Add to the number of this workspace.

    Args:
        by: How much.
        note: Why.
    """
    reader = ctx.require.workspace
    number = by + (int(reader.read_text("number")) if Path("number").exists() else 0)
    ctx.require.writer.write_text("number", str(number))
    return number


def prepare(task: Any, directory: Path) -> None:
    (directory / "number").write_text(str((task or {}).get("start", 0)))


TOOLS: list[Tool[..., Any]] = [*base_tools(), count, fail, crash, hang, picture]
SOURCE = SessionSource(TOOLS, workspace=Path(tempfile.gettempdir()) / "toolcell-training", prepare=prepare, ttl_s=60)


def supervisor_of(source: SessionSource) -> Supervisor | None:
    """The supervisor that has been started for a source."""
    return source._supervisor  # pyright: ignore[reportPrivateUsage]
