"""`write`: make or replace a file."""

from typing import Annotated

from pydantic import Field

from toolcell_tools.annotations import Annotations
from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext, require
from toolcell_tools.function import tool
from toolcell_tools.result import ToolResult

__all__ = ["write"]


@tool(
    needs={Capability.WRITE},
    annotations=Annotations(title="Write a file", destructive=True, idempotent=True, edit=True, sequential=True),
)
def write(
    ctx: ToolContext,
    path: Annotated[str, Field(description="The file, relative to the workspace. Missing directories are made.")],
    content: Annotated[str, Field(description="All that the file shall contain.")],
) -> ToolResult:
    """Write a text file, replacing it if it exists. To change a part of a file, use edit."""
    artifact = require(ctx.writer, Capability.WRITE).write_text(path, content)
    lines = content.count("\n") + (not content.endswith("\n") and content != "")
    output = {"path": artifact.path, "action": artifact.kind, "bytes": artifact.size, "lines": lines}
    verb = "Created" if artifact.kind == "created" else "Replaced"
    return ToolResult(output=output, display=f"{verb} {artifact.path} ({lines:,} lines)", artifacts=[artifact])
