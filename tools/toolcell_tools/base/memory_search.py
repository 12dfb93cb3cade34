"""`memory_search`: search the memory of the agent."""

from typing import Annotated

from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext, require
from toolcell_tools.definition import tool
from toolcell_tools.options import Annotations
from toolcell_tools.returned import Answer
from toolcell_tools.signature import LazyField

__all__ = ["memory_search"]


@tool(needs={Capability.MEMORY_READ}, annotations=Annotations(title="Search memory", idempotent=True))
def memory_search(
    ctx: ToolContext,
    query: Annotated[str, LazyField("Words to look for.", min_length=1)],
    limit: Annotated[int, LazyField("How many records to give at most.", ge=1, le=50)] = 5,
) -> Answer:
    """Search the agent's memory. Gives records, the best fitting first."""
    records = require(ctx.memory, Capability.MEMORY_READ).search(query, limit)
    found = [{**record.to_dict(), "tags": list(record.tags)} for record in records]
    count = "1 record" if len(found) == 1 else f"{len(found)} records"
    return Answer(output={"records": found}, display=f"Found {count} for {query!r}")
