"""Anthropic's Messages API, with and without strict tool use.

Sources: "Define tools", "Strict tool use" and "Structured outputs: JSON Schema limitations" of the Claude docs; the
rules for the root and for property names are from the API's error messages.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from toolcell_tools.content import ImageBlock
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.result import ToolResult

from .calls import ModelCall, RawCall, text_of
from .canonical import Schema, keywords
from .codec import Codec
from .dialect import Dialect, NameRule, Subset
from .export import Declared, Export, Parameters, ProviderDefined, Written, assemble, plain, within
from .report import Difference, Inexpressible
from .results import blocks_of, in_text, output_text

__all__ = ["MESSAGES", "STRICT", "anthropic"]

STRICT = Subset(
    keywords=frozenset({"pattern", "minItems"}),
    formats=keywords("date-time time date duration email hostname uri ipv4 ipv6 uuid"),
    const=True,
    default=True,
    recursion=False,
    closed=True,
    most_min_items=1,
)
MAX_STRICT_TOOLS = 20  # this bound and the next two are for all strict tools of one request
MAX_OPTIONAL = 24
MAX_UNIONS = 16
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


def anthropic(
    tools: Iterable[ToolDeclaration | Declared | ProviderDefined],
    strict: bool = False,
    examples: Mapping[str, Sequence[dict[str, Any]]] | None = None,
) -> Export:
    """Tools for the Messages API. `strict` is set on tools that allow it, up to the limits of one request.

    `examples` maps tool names to arguments of calls, which are sent as `input_examples`. An example that does not fit
    the schema is left out, because the API would refuse the request.
    """
    room = _StrictRoom()

    def write(declaration: ToolDeclaration, name: str) -> Written:
        parameters, is_strict = (
            within(declaration, MESSAGES, STRICT, _plain, room.take) if strict else (_plain(declaration), False)
        )
        tool: dict[str, Any] = {
            "name": name,
            "description": declaration.description,
            "input_schema": parameters.schema,
        }
        if is_strict:
            tool["strict"] = True
        shown = _examples(declaration, parameters, (examples or {}).get(declaration.name, ()))
        if shown:
            tool["input_examples"] = shown
        return Written(tool, parameters)

    return assemble(MESSAGES, tools, write)


class _StrictRoom:
    """How much of one request's limits for strict tools is left."""

    def __init__(self) -> None:
        self.tools, self.optional, self.unions = MAX_STRICT_TOOLS, MAX_OPTIONAL, MAX_UNIONS

    def take(self, schema: Schema) -> None:
        optional, unions = _counts(schema)
        for what, count, left in (
            ("tools", 1, self.tools),
            ("optional properties", optional, self.optional),
            ("properties of several types", unions, self.unions),
        ):
            if count > left:
                raise Inexpressible("", "limits", f"{count} more strict {what}, and this request has room for {left}")
        self.tools, self.optional, self.unions = self.tools - 1, self.optional - optional, self.unions - unions


def _counts(schema: object) -> tuple[int, int]:
    """The number of optional properties, and of schemas that allow several types, in `schema`."""
    if isinstance(schema, list):
        each = [_counts(one) for one in cast("list[object]", schema)]
        return sum(one for one, _ in each), sum(one for _, one in each)
    if not isinstance(schema, dict):
        return 0, 0
    node = cast("Schema", schema)
    properties = cast("Schema", node.get("properties", {}))
    below = [*properties.values(), *cast("Schema", node.get("$defs", {})).values(), *node.get("anyOf", [])]
    optional, unions = _counts([*below, node.get("items")])
    several = "anyOf" in node or isinstance(node.get("type"), list)
    return optional + len(properties.keys() - set(node.get("required", []))), unions + several


def _plain(declaration: ToolDeclaration) -> Parameters:
    return plain(declaration, MESSAGES)


def _examples(
    declaration: ToolDeclaration, parameters: Parameters, examples: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    if not examples:
        return []
    import jsonschema_rs

    validator = jsonschema_rs.Draft202012Validator(parameters.schema, pattern_options=jsonschema_rs.RegexOptions())
    codec = Codec(parameters.marked, parameters.renamed)
    shown = [codec.encode(one) for one in examples]
    for index, one in enumerate(shown):
        if not validator.is_valid(one):
            detail = f"the example {index} does not fit the schema"
            parameters.findings.append(Difference(declaration.name, "", "input_examples", "dropped", detail))
    return [one for one in shown if validator.is_valid(one)]


def _parse(payload: Mapping[str, Any]) -> RawCall:
    return RawCall(text_of(payload, "name"), payload.get("input"), text_of(payload, "id"))


def _render(call: ModelCall, result: ToolResult, wrapped: bool) -> dict[str, Any]:
    """A tool_result block. Its text blocks are never empty, because the API refuses empty ones."""
    content: list[dict[str, Any]] = []
    text = output_text(result)
    if text:
        content.append({"type": "text", "text": text})
    for block in blocks_of(result):
        if isinstance(block, ImageBlock) and block.mime_type in _IMAGES:
            source = {"type": "base64", "media_type": block.mime_type, "data": block.data}
            content.append({"type": "image", "source": source})
        elif said := in_text(block):
            content.append({"type": "text", "text": said})
    rendered: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.call_id, "content": content}
    return {**rendered, "is_error": True} if result.is_error else rendered


MESSAGES = Dialect(
    "anthropic",
    frozenset({"anthropic"}),
    NameRule("a-zA-Z0-9_-", "a-zA-Z0-9_-", 64),
    _parse,
    _render,
    parameters=NameRule("a-zA-Z0-9_.-", "a-zA-Z0-9_.-", 64),
)
