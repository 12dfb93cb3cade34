"""`memory_store`: remember something."""

from typing import Annotated

from pydantic import Field

from toolcell_tools.annotations import Annotations
from toolcell_tools.artifact import Artifact
from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext, require
from toolcell_tools.function import tool
from toolcell_tools.preview import DETAILS_CHARS, Preview, shortened
from toolcell_tools.result import ToolResult

__all__ = ["memory_store"]


def preview_memory_store(text: str, kind: str, tags: list[str] | None) -> Preview:
    """The record that would be kept."""
    tagged = f", tagged {', '.join(tags)}" if tags else ""
    return Preview(f"Remember a {kind}{tagged}", shortened(text, DETAILS_CHARS))


@tool(
    needs={Capability.MEMORY_WRITE},
    preview=preview_memory_store,
    annotations=Annotations(title="Remember", sequential=True),
)
def memory_store(
    ctx: ToolContext,
    text: Annotated[str, Field(min_length=1, description="What to remember, complete in itself.")],
    kind: Annotated[str, Field(min_length=1, description="What it is: decision, fact, identity, preference.")] = "fact",
    tags: Annotated[list[str] | None, Field(description="Words to find it by.")] = None,
) -> ToolResult:
    """Store a record in the agent's memory, for later sessions too."""
    identifier = require(ctx.memory_writer, Capability.MEMORY_WRITE).store(text, kind, tags or [])
    brief = text if len(text) <= 200 else text[:199] + "…"
    artifact = Artifact(identifier, "memory", size=len(text.encode()))
    return ToolResult(output={"id": identifier, "kind": kind}, display=f"Remembered: {brief}", artifacts=[artifact])
