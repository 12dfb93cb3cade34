"""`memory_store`: remember something."""

from typing import Annotated, Literal

from toolcell_tools.artifact import Artifact
from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext, require
from toolcell_tools.definition import tool
from toolcell_tools.options import Annotations
from toolcell_tools.preview import DETAILS_CHARS, Preview, fitted
from toolcell_tools.returned import Answer
from toolcell_tools.signature import LazyField

__all__ = ["memory_store"]


def preview_memory_store(text: str, kind: str, tags: list[str] | None) -> Preview:
    """The record that would be stored."""
    tagged = f", tagged {', '.join(tags)}" if tags else ""
    return Preview(f"Remember a {kind}{tagged}: {fitted(repr(text), 100)}", fitted(text, DETAILS_CHARS))


@tool(
    needs={Capability.MEMORY_WRITE},
    preview=preview_memory_store,
    annotations=Annotations(title="Remember", sequential=True),
    metadata={"remembers": True},  # the session's description of this tool says how long
)
def memory_store(
    ctx: ToolContext,
    text: Annotated[str, LazyField("What to remember, complete in itself.", min_length=1)],
    kind: Annotated[Literal["decision", "fact", "identity", "preference"], LazyField("What it is.")] = "fact",
    tags: Annotated[list[str] | None, LazyField("Words to find it by.")] = None,
) -> Answer:
    """Store a record in the agent's memory, which its other sessions share."""
    identifier = require(ctx.memory_writer, Capability.MEMORY_WRITE).store(text, kind, tags or [])
    brief = text if len(text) <= 200 else text[:199] + "…"
    artifact = Artifact(identifier, "memory", size=len(text.encode()))
    return Answer(output={"id": identifier, "kind": kind}, display=f"Remembered: {brief}", artifacts=[artifact])
