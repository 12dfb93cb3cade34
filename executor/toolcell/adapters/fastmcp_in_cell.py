"""What runs of a FastMCP tool inside a cell: the tool, and the conversion of its value."""

from typing import Any, cast

import mcp_types
from fastmcp.tools.base import InputRequiredToolResult, Tool, ToolResult
from fastmcp.utilities.types import Audio, File, Image

from toolcell_tools.content import AudioBlock, Content, ImageBlock, ResourceBlock, TextBlock
from toolcell_tools.failures import ToolFailure
from toolcell_tools.result import ToolResult as CellResult

__all__ = ["returned", "run"]

_BLOCKS = (*mcp_types.ContentBlock.__args__, Image, Audio, File)


async def run(tool: Tool, arguments: dict[str, Any]) -> Any:
    """Run a tool in a cell."""
    return returned(await tool.run(arguments))


def returned(value: Any) -> Any:
    """The value of a FastMCP tool as that of a toolcell tool, with its blocks as content."""
    if isinstance(value, mcp_types.CallToolResult):
        value = ToolResult.from_mcp_result(value)
    if isinstance(value, ToolResult):
        return _of_result(value)
    parts: list[object] = value if isinstance(cast("object", value), list | tuple) else [value]
    if not any(isinstance(one, _BLOCKS) for one in parts):
        return value
    return CellResult(content=[_block(one) for one in ToolResult(content=list(parts)).content])


def _of_result(result: ToolResult) -> Any:
    if isinstance(result, InputRequiredToolResult):
        raise ToolFailure("The tool asks the client for input, and there is no client in a cell. Leave it in FastMCP.")
    content = [_block(one) for one in result.content]
    if result.is_error:
        raise ToolFailure("\n".join(one.text for one in content if isinstance(one, TextBlock)))
    output: Any = result.structured_content
    if output is None:
        return CellResult(content=content)
    notes: Any = (result.meta or {}).get("fastmcp")
    if notes and notes.get("wrap_result"):
        output = output["result"]
    media: list[Content] = [
        one for one in content if not isinstance(one, TextBlock)
    ]  # the text is the output once more
    return CellResult(output=output, content=media) if media else output


def _block(block: mcp_types.ContentBlock) -> Content:
    if isinstance(block, mcp_types.TextContent):
        return TextBlock(text=block.text)
    if isinstance(block, mcp_types.ImageContent):
        return ImageBlock(data=block.data, mime_type=block.mime_type)
    if isinstance(block, mcp_types.AudioContent):
        return AudioBlock(data=block.data, mime_type=block.mime_type)
    if isinstance(block, mcp_types.ResourceLink):
        return ResourceBlock(uri=str(block.uri), mime_type=block.mime_type)
    resource = block.resource
    if isinstance(resource, mcp_types.TextResourceContents):
        return ResourceBlock(uri=str(resource.uri), text=resource.text, mime_type=resource.mime_type)
    raise ToolFailure(
        "The tool returned a resource with bytes, which no cell can send. Return text, an image or sound."
    )
