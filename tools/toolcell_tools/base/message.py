"""`message`: send a message to the people on the session's channel."""

from typing import Annotated

from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext, require
from toolcell_tools.definition import tool
from toolcell_tools.options import Annotations
from toolcell_tools.preview import DETAILS_CHARS, Preview, fitted
from toolcell_tools.returned import Answer
from toolcell_tools.signature import LazyField

__all__ = ["message"]

LOGGED = "No channel to a person is set up. The message was written to the log of the program, which nobody may read."


def preview_message(text: str) -> Preview:
    """The message that would be sent."""
    return Preview(f"Send the message {fitted(repr(text), 150)}", fitted(text, DETAILS_CHARS))


@tool(
    needs={Capability.CHANNEL},
    preview=preview_message,
    annotations=Annotations(title="Send a message", open_world=True, sequential=True),
)
def message(ctx: ToolContext, text: Annotated[str, LazyField("What to say.", min_length=1)]) -> Answer:
    """Send a message to the people this session talks with."""
    sent: object = require(ctx.channel, Capability.CHANNEL).send(text)
    if getattr(sent, "reached", True):  # a channel of a test may return nothing
        return Answer(output={"sent": True, "characters": len(text)}, display=text)
    return Answer(output={"sent": False, "logged": True, "characters": len(text), "note": LOGGED}, display=text)
