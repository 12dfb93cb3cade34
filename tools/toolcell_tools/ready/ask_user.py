"""`ask_user`: put a question to the people of the session, and end the turn. Their next message is the answer."""

from typing import Annotated

from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext, require
from toolcell_tools.definition import tool
from toolcell_tools.options import Annotations
from toolcell_tools.preview import Preview, fitted
from toolcell_tools.returned import Answer
from toolcell_tools.signature import LazyField

__all__ = ["ask_user"]


def preview_ask_user(question: str) -> Preview:
    """The question that would be asked."""
    return Preview(f"Ask the user {fitted(repr(question), 150)}", question)


@tool(
    needs={Capability.CHANNEL},
    signals={"end_turn"},
    preview=preview_ask_user,
    annotations=Annotations(title="Ask the user", open_world=True, sequential=True),
)
def ask_user(
    ctx: ToolContext,
    question: Annotated[str, LazyField("The question, with what the user must know to answer it.", min_length=1)],
    choices: Annotated[list[str] | None, LazyField("Answers to choose from, if there are only a few.")] = None,
) -> Answer:
    """Ask the user a question that only they can answer. Your turn ends; their next message is the answer."""
    text = "\n".join([question, *(f"- {choice}" for choice in choices or ())])
    require(ctx.channel, Capability.CHANNEL).send(text)
    ctx.signal("end_turn", reason="waits for the user's answer")
    return Answer(output={"asked": question, "status": "waits for the user's next message"}, display=text)
