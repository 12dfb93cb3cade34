"""`load_memory`: what the agent knows of earlier sessions, when the model asks for it."""

from typing import Annotated

from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext, require
from toolcell_tools.definition import tool
from toolcell_tools.options import Annotations
from toolcell_tools.returned import Answer
from toolcell_tools.signature import LazyField

__all__ = ["load_memory"]


@tool(
    needs={Capability.MEMORY_READ},
    annotations=Annotations(title="Load memory", idempotent=True),
    instructions="You have a memory of earlier sessions. If a question may be about them, call load_memory first.",
)
def load_memory(
    ctx: ToolContext,
    query: Annotated[str, LazyField("What to remember, in a few words.", min_length=1)],
    limit: Annotated[int, LazyField("How many memories to load at most.", ge=1, le=50)] = 10,
) -> Answer:
    """Load memories of earlier sessions that fit a query, the best fitting first."""
    records = require(ctx.memory, Capability.MEMORY_READ).search(query, limit)
    memories = [{"text": record.text, "kind": record.kind, "tags": list(record.tags)} for record in records]
    count = "1 memory" if len(memories) == 1 else f"{len(memories)} memories"
    return Answer(output={"memories": memories}, display=f"Loaded {count} for {query!r}")
