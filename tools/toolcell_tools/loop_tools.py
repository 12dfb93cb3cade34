"""Tools beside the base tools that speak to the loop that runs the agent and to its people, or load what the model asks
for. Each uses only handles. A program passes those that its loop understands: `Supervisor([*base_tools(), exit_loop])`.
"""

from typing import TYPE_CHECKING, Annotated

from .base.images import IMAGE_SIDE, flaw_of, media_type_of
from .capability import Capability
from .context import ToolContext, require
from .definition import tool
from .failures import ToolFailure
from .options import Annotations
from .preview import Preview, counted, fitted
from .returned import Answer
from .signature import LazyField

if TYPE_CHECKING:
    from .content import Content
    from .result import ToolResult

__all__ = ["ask_user", "exit_loop", "load_artifacts", "load_memory", "transfer_to"]

MOST_BYTES = 1_000_000
"""The most bytes of all files of one call."""


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
    display = f"Loaded {counted(len(memories), 'memory', 'memories')} for {query!r}"
    return Answer(output={"memories": memories}, display=display)


@tool(
    needs={Capability.READ},
    annotations=Annotations(title="Load artifacts", idempotent=True),
    instructions="Earlier calls may have made files. To look into one, call load_artifacts with its path.",
)
def load_artifacts(
    ctx: ToolContext,
    paths: Annotated[list[str], LazyField("The files, relative to the workspace.", min_length=1, max_length=20)],
) -> "ToolResult[dict[str, object]]":
    """Load files that earlier calls made, such as reports and images, so that you can see their content."""
    from .result import ToolResult

    room = MOST_BYTES
    blocks: list[Content] = []
    for path in paths:
        with ctx.workspace.open(path) as file:
            raw = file.read(room + 1)
        room -= len(raw)
        if room < 0:
            raise ToolFailure(f"the files have more than {MOST_BYTES:,} bytes together; load fewer of them")
        blocks.append(_block(path, raw))
    return ToolResult(output={"loaded": paths}, content=blocks, display=f"Loaded {', '.join(paths)}")


def _block(path: str, raw: bytes) -> "Content":
    from .content import ImageBlock, TextBlock

    kind = media_type_of(raw)
    if kind:
        flaw = flaw_of(raw, kind)
        if flaw:
            raise ToolFailure(
                f"{path!r} is an image that {flaw}; whole images of at most {IMAGE_SIDE:,} pixels can be loaded"
            )
        return ImageBlock.from_bytes(raw, kind)
    try:
        return TextBlock(text=f"{path}:\n{raw.decode()}")
    except UnicodeDecodeError:
        raise ToolFailure(f"{path!r} is neither text nor an image; use another tool to look into it") from None
