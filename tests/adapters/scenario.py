"""The tools that the tests of several adapters offer to a framework's agent."""

from toolcell import ToolContext, ToolFailure, tool
from toolcell_tools import ImageBlock, ToolResult

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@tool
def add(a: int, b: int = 1) -> dict[str, int]:
    """Add."""
    return {"sum": a + b}


@tool
def fail() -> str:
    """Fail."""
    raise ToolFailure("no such user; call list_users first")


@tool
def crash() -> str:
    """Crash."""
    import ctypes

    return ctypes.string_at(0).decode()


@tool
def draw() -> ToolResult:
    """Draw."""
    return ToolResult(output={"points": 3}, content=[ImageBlock.from_bytes(PNG, "image/png")])


@tool(requires_approval=True, preview=lambda amount: f"Spend {amount}")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
def who(ctx: ToolContext) -> str:
    """The call's id."""
    return ctx.call_id


@tool
def wait(ctx: ToolContext) -> None:
    """Wait."""
    import time

    ctx.progress("waiting", 0.5)
    time.sleep(60)


SCENARIO = [add, fail, crash, draw, pay, who, wait]
