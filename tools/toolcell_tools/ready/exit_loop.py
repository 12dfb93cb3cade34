"""`exit_loop`: leave the loop in which the agent runs."""

from typing import Annotated

from toolcell_tools.context import ToolContext
from toolcell_tools.definition import tool
from toolcell_tools.options import Annotations
from toolcell_tools.returned import Answer
from toolcell_tools.signature import LazyField

__all__ = ["exit_loop"]


@tool(
    signals={"leave_loop", "skip_summarization"},
    annotations=Annotations(title="Leave the loop", read_only=True, idempotent=True),
)
def exit_loop(
    ctx: ToolContext,
    reason: Annotated[str, LazyField("Why the loop is done, in one sentence.", max_length=1000)] = "",
) -> Answer:
    """Leave the loop, because its task is done. Call this only when you are told to, or when nothing is left to do."""
    ctx.signal("leave_loop", reason=reason)
    ctx.signal("skip_summarization")
    return Answer(output={}, display=f"Left the loop: {reason}" if reason else "Left the loop")
