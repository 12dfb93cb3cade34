"""What a tool returns, as the parts of a result: output, display, artifacts and content. Runs inside the cell.

A cell does not load pydantic for it. `Answer` is a tool's way to give more than the output without a ToolResult, and a
ToolResult is told by its class only if that is loaded.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from .artifact import Artifact, merged
from .encode import compact, cut, encode_counted, encode_json
from .failures import Unencodable

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from .result import ToolResult

__all__ = ["DISPLAY_TEXT_CHARS", "Answer", "encode_return", "written"]

MAX_ITEMS = 10_000  # artifacts, or blocks of content: the supervisor looks at each one, on its event loop
DISPLAY_CHARS = 2_000
_PUNCTUATION = 3  # characters of punctuation per value in a display, about
DISPLAY_TEXT_CHARS = 64_000  # a str is its own display; beyond this length nobody reads it, and it would be sent twice


class Answer(NamedTuple):
    """A `ToolResult` with the same fields, whose parts are already checked. A block of content is the JSON of a content
    block."""

    output: object
    display: str
    artifacts: Sequence[Artifact] = ()
    content: Sequence[Mapping[str, Any]] = ()
    text_member: str = ""


def encode_return(value: object, recorded: Sequence[Artifact] = ()) -> dict[str, Any]:
    """`{"output", "display", "artifacts", "content"}` for what a tool returned, as plain JSON data.

    A ToolResult gives all four, and if it has them, "signals", as `Signal` objects, and "text_member". Any other value
    is the output, and the display is derived from it. `recorded` are the artifacts that handles recorded; each is added
    unless the tool names the same path. Raises Unencodable.
    """
    if type(value) is str:
        text = value if value.isascii() else _checked(value)
        display = text if len(text) <= DISPLAY_TEXT_CHARS else cut(text, DISPLAY_TEXT_CHARS)
        artifacts = _artifacts((), recorded) if recorded else []
        return {"output": text, "display": display, "artifacts": artifacts, "content": []}
    if type(value) is Answer:
        output = encode_json(value.output)
        artifacts = _artifacts(value.artifacts, recorded)
        content: list[Any] = encode_json(value.content) if value.content else []
        encoded = {"output": output, "display": _checked(value.display), "artifacts": artifacts, "content": content}
        return encoded | {"text_member": value.text_member} if value.text_member else encoded
    result_module = sys.modules.get("toolcell_tools.result")
    if result_module is not None and isinstance(value, result_module.ToolResult):
        return _encode_result(cast("ToolResult", value), recorded)
    output, values, chars = encode_counted(value)
    display = _display(output, values, chars)
    return {"output": output, "display": display, "artifacts": _artifacts((), recorded), "content": []}


def _encode_result(result: "ToolResult", recorded: Sequence[Artifact]) -> dict[str, Any]:
    if result.error is not None:
        raise Unencodable("$: a tool does not return an error; raise ToolFailure(message, data) instead")
    output, values, chars = encode_counted(result.output)
    display = result.display if "display" in result.model_fields_set else _display(output, values, chars)
    if len(result.content) > MAX_ITEMS:
        raise Unencodable(f"$: {len(result.content):,} blocks of content; at most {MAX_ITEMS:,} can be sent")
    content = [block.model_dump(mode="json") for block in result.content]
    artifacts = _artifacts(result.artifacts, recorded)
    encoded = {"output": output, "display": _checked(display), "artifacts": artifacts, "content": encode_json(content)}
    if result.signals:
        encoded["signals"] = [*result.signals]
    if result.text_member:
        encoded["text_member"] = result.text_member
    return encoded


def _artifacts(declared: Sequence[Artifact], recorded: Sequence[Artifact]) -> list[Any]:
    if not declared and not recorded:
        return []
    found = merged(declared, recorded)
    if len(found) > MAX_ITEMS:
        raise Unencodable(
            f"$: {len(found):,} artifacts; at most {MAX_ITEMS:,} can be sent. Name their directory instead"
        )
    return [_artifact(one) for one in found]


def _artifact(one: Artifact) -> dict[str, Any]:
    if one.uri is not None:
        raise Unencodable(f"$: the artifact {one.path!r} has a uri, which is the supervisor's to set; leave it out")
    said: dict[str, Any] = {
        "path": _checked(one.path),
        "kind": _checked(one.kind),
        "digest": one.digest,
        "size": one.size,
    }
    if one.media_type is not None:
        said["media_type"] = _checked(one.media_type)
    if one.data is not None:
        said["data"] = _checked(one.data)
    return said


def _checked(text: str) -> str:
    return text if type(text) is str and text.isascii() else cast("str", encode_json(text))


def _display(output: object, values: int, chars: int) -> str:
    """The display for people: a text as it is, other data as JSON. `values` and `chars` are from `encode_counted`."""
    if type(output) is str:
        return output if len(output) <= DISPLAY_TEXT_CHARS else cut(output, DISPLAY_TEXT_CHARS)
    if type(output) is int:
        return str(output)
    if _PUNCTUATION * values + chars > DISPLAY_CHARS:
        output = _clipped(output, [DISPLAY_CHARS])
    return cut(compact(output), DISPLAY_CHARS)


def _clipped(value: object, room: list[int]) -> object:
    """A copy with at most about `room` characters of JSON, so that a long output is never serialised in full."""
    kind = type(value)
    if kind is str:
        text = cast("str", value)
        room[0] -= len(text) + _PUNCTUATION
        return text if len(text) <= DISPLAY_CHARS else text[: DISPLAY_CHARS + 1]
    room[0] -= _PUNCTUATION
    if kind is not dict and kind is not list:
        return value
    if kind is dict:
        shown: dict[str, object] = {}
        for key, item in cast("dict[str, object]", value).items():
            if room[0] < 0:
                break
            room[0] -= len(key)
            shown[key if len(key) <= DISPLAY_CHARS else key[: DISPLAY_CHARS + 1]] = _clipped(item, room)
        return shown if len(shown) == len(cast("dict[str, object]", value)) else {**shown, "…": "…"}
    listed: list[object] = []
    for item in cast("list[object]", value):
        if room[0] < 0:
            listed.append("…")
            break
        listed.append(_clipped(item, room))
    return listed


def written(kind: "TypeAdapter[Any]", value: object) -> object:
    """`value`, or the output of a ToolResult, as the type `kind` serialises it to JSON. Raises Unencodable."""
    from pydantic import ValidationError
    from pydantic_core import PydanticSerializationError

    result_module = sys.modules.get("toolcell_tools.result")
    if result_module is not None and isinstance(value, result_module.ToolResult):
        result = cast("ToolResult", value)
        return result.model_copy(update={"output": written(kind, result.output)})
    try:
        return kind.dump_python(kind.validate_python(value), mode="json", by_alias=True)
    except ValidationError as failure:
        first = failure.errors(include_url=False, include_context=False, include_input=False)[0]
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
        raise Unencodable(f"${path}: the result is not what output_schema says: {first['msg']}") from failure
    except PydanticSerializationError as failure:
        raise Unencodable(f"$: the result could not be written as output_schema says: {failure}") from failure
