"""Tools that the tests of all adapters call, and what they expect of them."""

from base64 import b64decode
from pathlib import Path
from time import sleep

from toolcell import (
    Annotations,
    ImageBlock,
    PermissionTier,
    Tool,
    ToolContext,
    ToolFailure,
    ToolResult,
    base_tools,
    tool,
)

PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")

NAP_S = 1.0
"""How long a call of `nap` lasts, and so the least time between the beginnings of two that wait for one another."""


@tool(
    requires_approval=lambda arguments: arguments["amount"] > 10,
    preview=lambda amount: f"Spend {amount}",
    output_schema=dict[str, int],
)
def pay(ctx: ToolContext, amount: int) -> dict[str, int]:
    """Pay an amount.

    Args:
        amount: How much.
    """
    return {"paid": amount}


@tool
def fail(why: str) -> None:
    """Fail."""
    raise ToolFailure(f"it failed: {why}")


@tool
def crash() -> None:
    """Die of a signal."""
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


@tool
def steps(ctx: ToolContext, number: int) -> int:
    """Report progress."""
    for one in range(number):
        ctx.progress(f"step {one}", one / number)
    return number


@tool
def picture() -> ToolResult:
    """Draw a picture."""
    return ToolResult(output={"drawn": True}, content=[ImageBlock.from_bytes(PNG, "image/png")])


@tool(tier=PermissionTier.WORKSPACE, needs={"write"}, timeout=60)
def hang(ctx: ToolContext) -> None:
    """Say that it runs, and never end."""
    ctx.require.writer.write_text("running", "")
    sleep(60)


@tool
def call_id(ctx: ToolContext) -> str:
    """Tell the id of the call."""
    return ctx.call_id


@tool(annotations=Annotations(sequential=False))
def nap() -> float:
    """Sleep for a moment, and tell when it began."""
    from time import monotonic

    began = monotonic()
    sleep(NAP_S)
    return began


KIT: list[Tool[..., object]] = [*base_tools(), pay, fail, crash, steps, picture, hang, call_id, nap]


def started(workspace: Path) -> bool:
    """Whether `hang` runs in this workspace."""
    return (workspace / "running").exists()
