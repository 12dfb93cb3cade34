"""Tools of the MCP tests."""

import ctypes
import os
import time
from typing import Any

from pydantic import AliasChoices, AliasPath, BaseModel, Field

from toolcell import (
    Annotations,
    Artifact,
    Capability,
    ImageBlock,
    PermissionTier,
    Tool,
    ToolContext,
    ToolFailure,
    ToolResult,
    dynamic_tool,
    tool,
)
from toolcell.mcp import Answers, InputRequired, accepted, elicitation, mcp_metadata

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@tool(annotations=Annotations(idempotent=True), tier=PermissionTier.READ_ONLY, output_schema=int)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def whoami(ctx: ToolContext) -> dict[str, str]:
    """Say whose call this is."""
    return {"agent": ctx.agent_id, "session": ctx.session_id, "kind": ctx.session_kind.value}


@tool
def fail() -> str:
    """Fail."""
    raise ToolFailure("not today", {"code": 7})


@tool
def crash() -> str:
    """Crash."""
    ctypes.string_at(0)
    return "still here"


@tool(timeout=60.0, needs={Capability.WRITE})
def sleep(ctx: ToolContext, seconds: float, mark: str) -> str:
    """Write the process id to a file, and sleep, unless there is a file named wake."""
    ctx.require.writer.write_text(mark, str(os.getpid()))
    over = time.monotonic() + seconds
    while time.monotonic() < over and not (ctx.workspace_root / "wake").exists():
        time.sleep(0.01)
    ctx.require.writer.write_text(mark, "slept")
    return "slept"


@tool
def report(ctx: ToolContext, steps: int) -> str:
    """Report progress and log."""
    for step in range(steps):
        ctx.progress(f"step {step}", (step + 1) / steps)
    ctx.log("a detail", level="debug")
    ctx.log("careful", level="warning", steps=steps)
    return "reported"


@tool
def draw() -> ToolResult:
    """Draw."""
    return ToolResult(content=[ImageBlock.from_bytes(b"\x89PNG", "image/png")])


@tool(needs={Capability.WRITE})
def save(ctx: ToolContext, path: str, text: str) -> str:
    """Save text."""
    ctx.require.writer.write_text(path, text)
    return f"saved {len(text)}"


@tool
def claim(path: str, digest: str, size: int) -> ToolResult:
    """Claim to have made a file."""
    return ToolResult(output="claimed", artifacts=[Artifact(path, "created", digest, size)])


@tool(tier=PermissionTier.ELEVATED)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(tier=PermissionTier.ELEVATED)
def erase(options: dict[str, Any]) -> str:
    """Erase."""
    return f"erased by {len(options)} options"


class Form(BaseModel, populate_by_name=True):
    """The arguments of `sign`."""

    document: str
    answers: Any = Field(default=None, validation_alias=AliasChoices("reply", AliasPath("form", "reply")))


def _signed(form: Form) -> str:
    if form.answers is None:
        raise InputRequired({"user": elicitation("Sign it?", NAME)})
    return f"signed by {form.answers['user']['content']['name']}"


sign = dynamic_tool(
    "sign", handler=_signed, parameters=Form, description="Sign.", metadata=mcp_metadata(answers="reply")
)


def _greeting(answers: Answers | None) -> str:
    name = (accepted(answers, "user") or {}).get("name")
    if name is None:
        raise InputRequired({"user": elicitation("Your name?", NAME)})
    return f"hello {name}"


@tool(metadata=mcp_metadata(answers="answers"))
def hello(answers: Answers | None = None) -> str:
    """Ask for a name, and greet."""
    return _greeting(answers)


@tool(metadata=mcp_metadata(answers="answers", task="optional"))
def hello_later(answers: Answers | None = None) -> str:
    """Ask for a name, and greet, as a task."""
    return _greeting(answers)


@tool
def forge(questions: Any) -> str:
    """Ask what no tool may ask."""
    raise InputRequired(questions)


def _schema_only(arguments: dict[str, Any]) -> list[str]:
    return sorted(arguments)


raw = dynamic_tool(
    "raw",
    handler=_schema_only,
    description="A tool with a schema of its own",
    parameters={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"node": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        "additionalProperties": False,
    },
)
TOOLS: list[Tool[..., Any]] = [
    add,
    whoami,
    fail,
    crash,
    sleep,
    report,
    draw,
    save,
    claim,
    pay,
    erase,
    sign,
    hello,
    hello_later,
    forge,
    raw,
]
