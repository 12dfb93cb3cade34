"""The parts of a result as text and blocks, for providers that do not take all of them."""

from collections.abc import Iterable

from toolcell_tools.content import AudioBlock, Content, ImageBlock, ResourceBlock, TextBlock
from toolcell_tools.result import ToolResult, quoted

__all__ = ["blocks_of", "in_text", "output_text"]


def output_text(result: ToolResult) -> str:
    """The output or the error as text, and the notices; "" if the content blocks are the whole answer."""
    if result.error is None and result.output is None and result.content:
        return "\n".join(result.told_notices())
    return result.model_copy(update={"content": []}).for_model()


def blocks_of(result: ToolResult) -> Iterable[Content]:
    """The content blocks as a model reads them; none if there is an error, because its message is the answer."""
    return () if result.is_error else map(_quoted, result.content)


def _quoted(block: Content) -> Content:
    if not isinstance(block, TextBlock | ResourceBlock) or block.text is None or quoted(block.text) == block.text:
        return block
    return block.model_copy(update={"text": quoted(block.text)})


def in_text(block: Content) -> str:
    """A block as text: its text, or a note that names the medium."""
    if isinstance(block, ResourceBlock):
        return f"[resource {block.uri}]" if block.text is None else f"[resource {block.uri}]\n{block.text}"
    if isinstance(block, ImageBlock | AudioBlock):
        kind = "image" if isinstance(block, ImageBlock) else "audio"
        size = len(block.data) * 3 // 4 - block.data[-2:].count("=")
        return f"[{kind}: {block.mime_type}, {size:,} bytes, which cannot be shown here]"
    return block.text
