"""What runs of a LlamaIndex tool inside a cell: the tool, and the conversion of its value."""

from typing import Any, cast

from llama_index.core.base.llms.types import AudioBlock as LlamaAudio
from llama_index.core.base.llms.types import BaseContentBlock
from llama_index.core.base.llms.types import ImageBlock as LlamaImage
from llama_index.core.base.llms.types import TextBlock as LlamaText
from llama_index.core.schema import BaseNode
from llama_index.core.tools import AsyncBaseTool, ToolOutput
from llama_index.core.tools.types import adapt_to_async_tool

from toolcell_tools.content import AudioBlock, Content, ImageBlock, TextBlock
from toolcell_tools.encode import encode_json
from toolcell_tools.failures import ToolFailure, Unencodable
from toolcell_tools.result import ToolResult

__all__ = ["returned", "run"]


async def run(tool: AsyncBaseTool, arguments: dict[str, Any]) -> Any:
    """Run a tool in a cell."""
    return returned(await adapt_to_async_tool(tool).acall(**arguments))


def returned(value: Any) -> Any:
    """The value of a LlamaIndex tool as that of a toolcell tool: blocks as content, nodes as their text."""
    if isinstance(value, ToolOutput):
        return _of_output(value)
    parts: list[object] = value if isinstance(cast("object", value), list) else [value]
    if parts and all(isinstance(one, BaseContentBlock | BaseNode) for one in parts):
        return ToolResult(content=[_block(one) for one in parts])
    return value


def _of_output(output: ToolOutput) -> Any:
    if output.is_error:
        raise ToolFailure(output.content)
    if not all(isinstance(block, LlamaText) for block in output.blocks):
        return ToolResult(content=[_block(block) for block in output.blocks])
    try:
        return encode_json(returned(output.raw_output))
    except Unencodable:  # an object, such as a query engine's response, whose text is the answer
        return output.content


def _block(block: Any) -> Content:
    if isinstance(block, BaseNode):
        return TextBlock(text=block.get_content())
    if isinstance(block, LlamaText):
        return TextBlock(text=block.text)
    if isinstance(block, LlamaImage) and block.image is not None:
        return ImageBlock.from_bytes(block.resolve_image().read(), block.image_mimetype or "image/png")
    if isinstance(block, LlamaAudio) and block.audio is not None:
        return AudioBlock.from_bytes(block.resolve_audio().read(), f"audio/{block.format or 'wav'}")
    raise ToolFailure(
        f"The tool returned a {type(block).__name__} that no cell can send. Return text, or a picture or sound "
        "with its bytes."
    )
