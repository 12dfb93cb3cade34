"""Tools that the tests of all adapters call, and what they expect of them."""

import asyncio
from base64 import b64decode
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import sleep
from typing import Any, TypeVar
from uuid import uuid4

import anyio
from tests.helpers import PATIENCE_S

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

T = TypeVar("T")
PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


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


@tool(tier=PermissionTier.WORKSPACE, needs={"read", "write"}, timeout=60, annotations=Annotations(sequential=False))
def meet(ctx: ToolContext) -> str:
    """Wait until another call of this tool runs in the workspace."""
    ctx.require.writer.write_text(f"here-{uuid4()}", "")
    while len(list(ctx.workspace_root.glob("here-*"))) < 2:
        sleep(0.01)
    return "met"


KIT: list[Tool[..., object]] = [*base_tools(), pay, fail, crash, steps, picture, hang, call_id, meet]


async def elsewhere(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work` on an event loop of its own in another thread, as `run_sync` of a framework does."""
    with anyio.fail_after(PATIENCE_S):
        return await anyio.to_thread.run_sync(lambda: asyncio.run(work()))


def started(workspace: Path) -> bool:
    """Whether `hang` runs in this workspace."""
    return (workspace / "running").exists()
