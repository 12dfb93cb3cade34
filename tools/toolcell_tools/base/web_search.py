"""`web_search`: find pages on the public web."""

from typing import Annotated

from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext, require
from toolcell_tools.definition import tool
from toolcell_tools.options import Annotations
from toolcell_tools.returned import Answer
from toolcell_tools.signature import LazyField

__all__ = ["web_search"]


@tool(
    needs={Capability.WEB},
    annotations=Annotations(title="Search the web", open_world=True),
    metadata={"searches": True},  # without a search engine, the session's description of this tool says so
)
def web_search(
    ctx: ToolContext,
    query: Annotated[str, LazyField("Words to search for.", min_length=1)],
    limit: Annotated[int, LazyField("How many hits to give at most.", ge=1, le=50)] = 5,
) -> Answer:
    """Search the web. Gives title, address and a snippet of each hit; read a page with web_fetch."""
    hits = require(ctx.web, Capability.WEB).search(query, limit)
    count = "1 hit" if len(hits) == 1 else f"{len(hits)} hits"
    return Answer(output={"hits": [hit.to_dict() for hit in hits]}, display=f"Found {count} for {query!r}")
