"""`transfer_to`: hand the conversation over to another agent."""

from typing import Annotated

from toolcell_tools.context import ToolContext
from toolcell_tools.definition import tool
from toolcell_tools.options import Annotations
from toolcell_tools.returned import Answer
from toolcell_tools.signature import LazyField

__all__ = ["transfer_to"]


@tool(
    signals={"transfer"},
    annotations=Annotations(title="Transfer to another agent", read_only=True, idempotent=True),
    instructions="If another agent can answer better than you, call transfer_to with its name, and say nothing else.",
)
def transfer_to(
    ctx: ToolContext,
    agent: Annotated[str, LazyField("The name of the agent.", min_length=1, max_length=200)],
    reason: Annotated[str, LazyField("Why that agent, in one sentence.", max_length=1000)] = "",
) -> Answer:
    """Hand the conversation over to another agent."""
    ctx.signal("transfer", to=agent, reason=reason)
    return Answer(output={"transferred_to": agent}, display=f"Transferred to {agent}")
