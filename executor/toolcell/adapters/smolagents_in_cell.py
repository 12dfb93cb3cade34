"""What runs of a smolagents tool inside a cell: the tool, and the conversion of its value."""

import io
from typing import Any

from PIL.Image import Image
from smolagents import Tool
from smolagents.agent_types import AgentImage, AgentText

from toolcell_tools.content import ImageBlock
from toolcell_tools.result import ToolResult

__all__ = ["returned", "run"]


def run(tool: Tool, arguments: dict[str, Any]) -> Any:
    """Run a tool in a cell."""
    return returned(tool(**arguments))


def returned(value: Any) -> Any:
    """The value of a smolagents tool as that of a toolcell tool: a picture as content, in PNG."""
    found: object = value
    if isinstance(found, AgentText):
        return str(found.to_raw())
    if isinstance(found, AgentImage):
        found = found.to_raw()
    if not isinstance(found, Image):
        return value
    with io.BytesIO() as file:
        found.save(file, "PNG")
        return ToolResult(content=[ImageBlock.from_bytes(file.getvalue(), "image/png")])
