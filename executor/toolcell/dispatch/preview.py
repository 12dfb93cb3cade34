"""Previews: what a call would do, worked out in a cell that may read the workspace and nothing else."""

from typing import TYPE_CHECKING, Any

from toolcell.call import ToolCall
from toolcell_tools.definition import Tool
from toolcell_tools.preview import Preview

from .pool import in_pool
from .result import error_of

if TYPE_CHECKING:
    from toolcell.session import Session

WALL_S = 5.0


async def preview_of(session: "Session", tool: Tool[..., Any], call: ToolCall) -> Preview:
    """The tool's preview of this call, or its arguments where it has none. One that fails says so in its summary."""
    if not tool.has_preview or tool.placement != "cell":
        return Preview.of_call(tool.name, call.arguments)
    route = session.preview_route(tool)
    run = session.new_run(route, call, WALL_S, None, None, preview=True)
    outcome = await in_pool(session, run)
    if outcome.ending != "result":
        return Preview(f"(no preview: {error_of(outcome, tool.declaration, run.limits).message})")
    try:
        shown = outcome.payload["output"]
        return Preview.from_dict(shown) if isinstance(shown, dict) else Preview("(no preview: it is malformed)")
    except (TypeError, KeyError):
        return Preview("(no preview: it is malformed)")
