"""What a tool gives back, in a dialect: output schemas, structured outputs, and the parts of a result as text and
blocks, for providers that do not take all of them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, cast

from pydantic_core import from_json

from toolcell_tools.content import AudioBlock, Content, ImageBlock, ResourceBlock, TextBlock
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.result import FOR_MODEL_BYTES, ToolResult, quoted

from .canonical import Schema, canonical
from .codec import unmarked
from .dialect import Subset
from .merge import types_of
from .report import Action, Difference, Inexpressible, Unexportable
from .rewrite import rewritten

__all__ = ["OUTPUT", "blocks_of", "in_text", "lost_output", "output_in", "output_text", "structured_output"]

OUTPUT: Final = "outputSchema"
"""The keyword of findings about an output schema, and the first part of their pointers."""
EXACT: Final = 2**53
"""Beyond this integer, a double is not exact. Gemini's maps are protobuf structs, whose numbers are doubles."""


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


def output_in(
    declaration: ToolDeclaration, subset: Subset, findings: list[Difference], fallback: str = ""
) -> Schema | None:
    """The tool's output schema in a subset, with its findings added; None if there is none, or none in this subset.
    `fallback` says what is done about the latter. No arguments depend on it, so no finding loosens or tightens them.
    """
    if not declaration.output_schema:  # {} says nothing
        return None
    name = declaration.name
    action: Action = "fallback" if fallback else "dropped"
    try:
        schema, found = rewritten(name, canonical(declaration.output_schema), subset)
        if not subset.empty_objects and types_of(schema) == ["object"] and not schema.get("properties"):
            raise Inexpressible("", "properties", "an object without properties")
    except (Inexpressible, Unexportable) as problem:
        detail = f"{fallback}: {problem.detail}" if fallback else problem.detail
        findings.append(Difference(name, f"/{OUTPUT}{problem.pointer}", problem.keyword, action, detail))
        return None
    findings += [replace(each, pointer=f"/{OUTPUT}{each.pointer}", loosens=False, tightens=False) for each in found]
    return cast("Schema", unmarked(schema))


def lost_output(declaration: ToolDeclaration, dialect: str) -> Difference:
    """The finding about an output schema for which a dialect has no place."""
    return Difference(declaration.name, f"/{OUTPUT}", OUTPUT, "dropped", f"{dialect} has no place for it")


def structured_output(result: ToolResult) -> dict[str, Any] | list[Any] | None:
    """The output as data if it is a map or a list that a provider's map can hold whole, else None: text is more exact
    for an output with a text (`text_member`), for a long one, of which a model is shown both ends, and for integers
    that a double does not hold.
    """
    if result.text_member or not isinstance(result.output, (dict, list)):
        return None
    encoded = result.model_copy(update={"content": []}).encoded()
    if len(encoded) > FOR_MODEL_BYTES:
        return None
    data = from_json(encoded)  # NaN is a string in it
    return data if _is_exact(data) else None


def _is_exact(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_exact, cast("dict[str, object]", value).values()))
    if isinstance(value, list):
        return all(map(_is_exact, cast("list[object]", value)))
    return not isinstance(value, int) or -EXACT <= value <= EXACT
