"""What runs of an ADK tool inside a cell: the tool, without ADK's context, and the conversion of its value."""

import json
from collections.abc import Iterable
from typing import Any, cast

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.tools.tool_context import ToolContext as AdkContext
from google.genai import types

from toolcell_tools.content import AudioBlock, Content, ImageBlock
from toolcell_tools.failures import ToolFailure
from toolcell_tools.result import ToolResult

__all__ = ["returned", "run"]


class _NoAdkContext:
    """The `tool_context` of a tool in a cell: it has nothing."""

    _invocation_context = run_config = None
    tool_confirmation = ToolConfirmation(confirmed=True)  # the supervisor has asked already

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise ToolFailure(
            f"The tool uses tool_context.{name}, and there is no tool_context in a cell. Leave it in ADK."
        )


async def run(tool: BaseTool, arguments: dict[str, Any]) -> Any:
    """Run a tool in a cell that is no FunctionTool."""
    return returned(await tool.run_async(args=arguments, tool_context=cast("AdkContext", _NoAdkContext())))


def returned(value: Any) -> Any:
    """The value of an ADK tool as that of a toolcell tool, with ADK's media as content."""
    if isinstance(value, dict) and value.keys() == {"error"}:
        failure = cast("dict[str, object]", value)["error"]
        raise ToolFailure(failure if isinstance(failure, str) else json.dumps(failure, default=str))
    output, content = _split(value)
    return ToolResult(output=output, content=content) if content else output


def _split(value: Any, depth: int = 0) -> tuple[Any, list[Content]]:
    """The value without its media, which ADK looks for in the value and in containers one level below."""
    if isinstance(value, types.Part):
        return None, [_block(value)]
    if depth > 1 or not isinstance(cast("object", value), dict | list | tuple):
        return value, []
    is_named = isinstance(cast("object", value), dict)
    pairs: Iterable[tuple[Any, Any]] = value.items() if is_named else enumerate(cast("list[Any]", value))
    split = [(key, _split(one, depth + 1)) for key, one in pairs]
    content = [block for _, (_, blocks) in split for block in blocks]
    if not content:
        return value, []
    kept = [(key, rest) for key, (rest, blocks) in split if rest is not None or not blocks]
    return (dict(kept) if is_named else [rest for _, rest in kept]) or None, content


def _block(part: types.Part) -> Content:
    blob = part.inline_data
    if blob is None or blob.data is None or not blob.mime_type:
        raise ToolFailure("The tool returned a part without inline data, which no cell can send. Return its text.")
    family = ImageBlock if blob.mime_type.startswith("image/") else AudioBlock
    return family.from_bytes(blob.data, blob.mime_type)
