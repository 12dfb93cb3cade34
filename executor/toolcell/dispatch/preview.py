"""Previews: what a call would do, computed in a cell that may only read the workspace.

The tool's own code makes the preview, and may lie. The preview is bounded and has no control characters. The request's
arguments are authoritative.
"""

from collections.abc import Callable
from typing import Any

from toolcell.backends.threads import NoThread, in_thread
from toolcell.rules.call import ToolCall
from toolcell_tools.definition import Tool
from toolcell_tools.preview import Preview

from .context import CallContext
from .result import error_of
from .serving import SessionRun, in_pool

WALL_S = 5.0


async def preview_of(context: CallContext, tool: Tool[..., Any], call: ToolCall) -> Preview:
    """The tool's preview of this call; without one, the arguments. A failed preview says so in its summary."""
    if not is_previewed(tool):
        return await arguments_of(tool, call)
    return await _for_people((await _said(context, tool, call)).for_people)


async def arguments_of(tool: Tool[..., Any], call: ToolCall) -> Preview:
    """The preview of a tool that has none: the arguments."""
    return await _for_people(lambda: Preview.of_call(tool.name, call.arguments).for_people())


async def _for_people(written: Callable[[], Preview]) -> Preview:
    """A preview that is written in a thread: a long one takes a while."""
    try:
        return await in_thread(written)
    except NoThread:
        return Preview("(no preview: no thread can be started)")


def is_previewed(tool: Tool[..., Any]) -> bool:
    """Whether the tool has a preview function."""
    return tool.has_preview and tool.placement == "cell"


async def _said(context: CallContext, tool: Tool[..., Any], call: ToolCall) -> Preview:
    while True:
        run = SessionRun(context, context.routes.of_preview(context.routes.offer(tool)), call, WALL_S)
        run.preview = True
        outcome = await in_pool(context, run)
        if outcome.ending != "moved":  # otherwise the workspace is another directory now
            break
    if outcome.ending != "result":
        return Preview(f"(no preview: {error_of(outcome, tool.declaration, run.limits, run.elapsed_s).message})")
    try:
        shown = outcome.payload["output"]
        return Preview.from_dict(shown) if isinstance(shown, dict) else Preview("(no preview: it is malformed)")
    except (TypeError, KeyError):
        return Preview("(no preview: it is malformed)")
