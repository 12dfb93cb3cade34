"""The parts of a result in the forms that agent frameworks take."""

from typing import Any, cast

from pydantic_core import from_json

from toolcell_tools.exports.results import blocks_of, in_text, output_text
from toolcell_tools.result import FOR_MODEL_BYTES, ToolResult

__all__ = ["blocks_of", "in_text", "object_of", "text_of", "value_of"]


def text_of(result: ToolResult) -> str:
    """The output, a text or JSON, or the error as `{"error": …}`, and the notices; "" if content blocks are the whole
    answer.

    The blocks themselves come from `blocks_of`, and `in_text` has a line for a block that the framework cannot take.
    """
    return output_text(result)


def value_of(result: ToolResult) -> Any:
    """The output as a JSON value, for frameworks that write it themselves: as text if it holds one (`text_member`), if
    there are notices, or if it is too long for a model."""
    only = result.model_copy(update={"content": []})
    encoded = only.encoded()
    if result.text_member or result.notices or len(encoded) > FOR_MODEL_BYTES:
        return output_text(result)
    if encoded == only.given_text():
        return result.output
    return encoded.decode() if isinstance(result.output, str) else from_json(encoded)


def object_of(result: ToolResult) -> dict[str, Any]:
    """The output or the error as a JSON object, for frameworks that take no other value: `{"error": {…}}`, the output,
    or `{"result": …}` around one that is no object."""
    if result.is_error:
        return result.told_error() | ({"notices": result.told_notices()} if result.notices else {})
    value = value_of(result)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"result": value}
