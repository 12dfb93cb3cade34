"""Gemini's function declarations, as JSON Schema (`parametersJsonSchema`) or as the OpenAPI subset (`parameters`).

Sources: `FunctionDeclaration`, `Schema` and `FunctionResponse` in the Gemini API's reference. JSON Schema: the list of
keywords that `responseJsonSchema` supports. Objects, arrays and formats of the subset, "enum[0]: cannot be empty" and
"required[0]: property is not defined": the API's error messages.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

from toolcell_tools.content import ImageBlock
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.result import ToolResult

from .calls import ModelCall, RawCall, text_of
from .canonical import Schema, keywords
from .dialect import Dialect, NameRule, Subset
from .export import Declared, Export, Parameters, ProviderDefined, Written, assemble, enforced, within
from .merge import types_of
from .report import Inexpressible, Unexportable
from .results import blocks_of, in_text, output_in, output_text, structured_output

__all__ = ["FUNCTIONS", "JSON_SCHEMA", "OPENAPI", "gemini"]

JSON_SCHEMA = Subset(
    keywords=frozenset({"minimum", "maximum", "minItems", "maxItems"}),
    formats=frozenset({"date-time", "date", "time"}),
    enum_types=frozenset({"string", "integer", "number"}),
    empty_text=False,
    required_recursion=False,
    untyped=True,
    additional=True,
    tuples=True,
)
OPENAPI = Subset(
    keywords=keywords("minimum maximum minItems maxItems minLength maxLength pattern minProperties maxProperties"),
    formats=frozenset({"date-time"}),
    enum_types=frozenset({"string", "null"}),
    empty_text=False,
    default=True,
    references=False,
    recursion=False,
    one_type=True,
    empty_objects=False,
)
_IMAGES = frozenset({"image/png", "image/jpeg", "image/webp"})


def gemini(
    tools: Iterable[ToolDeclaration | Declared | ProviderDefined],
    mode: Literal["json_schema", "openapi"] = "json_schema",
) -> Export:
    """Tools for Gemini: one entry with all function declarations, then the provider's own tools.

    A tool that `mode="openapi"` cannot express is declared by JSON Schema instead, and the report says so.
    """

    def write(declaration: ToolDeclaration, name: str) -> Written:
        function: dict[str, Any] = {"name": name, "description": declaration.description}
        if mode == "json_schema":
            parameters = _by_json_schema(declaration)
            function |= {"parametersJsonSchema": parameters.schema, **_output_by_json_schema(declaration, parameters)}
            return Written(function, parameters)
        parameters, is_openapi = within(declaration, FUNCTIONS, OPENAPI, _by_json_schema, mode="the OpenAPI subset")
        function |= _openapi_parameters(parameters) if is_openapi else {"parametersJsonSchema": parameters.schema}
        return Written({**function, **_openapi_output(declaration, parameters)}, parameters)

    return assemble(FUNCTIONS, tools, write, _arranged)


def _by_json_schema(declaration: ToolDeclaration) -> Parameters:
    try:
        return enforced(declaration, FUNCTIONS, JSON_SCHEMA)
    except Inexpressible as problem:  # the last mode has no fallback
        raise Unexportable(problem.pointer, problem.keyword, problem.detail) from problem


def _arranged(own: list[dict[str, Any]], passed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"functionDeclarations": own}, *passed] if own else passed


def _output_by_json_schema(declaration: ToolDeclaration, parameters: Parameters) -> dict[str, Any]:
    """The entry `responseJsonSchema`, or nothing for a tool without an output schema that the API takes."""
    schema = output_in(declaration, JSON_SCHEMA, parameters.findings)
    return {} if schema is None else {"responseJsonSchema": schema}


def _openapi_output(declaration: ToolDeclaration, parameters: Parameters) -> dict[str, Any]:
    """The entry `response`; or `responseJsonSchema` if the subset cannot express the output schema."""
    schema = output_in(declaration, OPENAPI, parameters.findings, "goes out by JSON Schema")
    if schema is None:
        return _output_by_json_schema(declaration, parameters)
    return {"response": _openapi(schema)}


def _openapi_parameters(parameters: Parameters) -> dict[str, Any]:
    """The entry `parameters`, or nothing for a function without parameters: the API refuses an empty object."""
    schema = parameters.schema
    return {"parameters": _openapi(schema)} if schema["properties"] else {}


def _openapi(schema: Schema) -> Schema:
    """The API's `Schema` for a JSON Schema of the subset: types in capitals, null as a property of the schema."""
    result: Schema = {}
    kinds = types_of(schema) or []
    variants = cast("list[Schema]", schema.get("anyOf", []))
    several = [one for one in variants if types_of(one) != ["null"]]
    if len(several) == 1 and len(variants) > 1:
        beside = {key: value for key, value in schema.items() if key != "anyOf"}
        return {**_openapi({**several[0], **beside}), "nullable": True}
    if variants:
        result["anyOf"] = [_openapi(one) for one in several or variants]
        if len(several) < len(variants) and several:
            result["nullable"] = True
    named = [one for one in kinds if one != "null"]
    if named or kinds:
        result["type"] = (named or kinds)[0].upper()
        if named and len(kinds) > len(named):
            result["nullable"] = True
    for key, value in schema.items():
        if key == "properties":
            result[key] = {name: _openapi(one) for name, one in cast("dict[str, Schema]", value).items()}
            if not value:
                del result[key]
        elif key == "items":
            result[key] = _openapi(cast("Schema", value))
        elif key == "enum":
            values = [one for one in cast("list[Any]", value) if one is not None]
            if values:
                result |= {"enum": values, "format": "enum"}
        elif key not in ("type", "anyOf", "format") or (key == "format" and "enum" not in schema):
            result[key] = value
    return result


def _parse(payload: Mapping[str, Any]) -> RawCall:
    """A part with a `functionCall`, or the `functionCall` itself. Older models give no id."""
    inner: object = payload.get("functionCall", payload)
    found: Mapping[str, Any] = cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else {}
    call_id: object = found.get("id")
    return RawCall(text_of(found, "name"), found.get("args"), call_id if isinstance(call_id, str) else "")


def _render(call: ModelCall, result: ToolResult, wrapped: bool) -> dict[str, Any]:
    """A part with a functionResponse: `output` or `error`, the content's texts, and images as inline data. Maps and
    lists stay what they are, and notices stand beside them; any other output is text.
    """
    response: dict[str, Any] = {"name": call.exported_name or call.name}
    if call.call_id:
        response["id"] = call.call_id
    if result.error is not None:
        notices = result.told_notices()
        response["response"] = result.told_error() | ({"notices": notices} if notices else {})
        return {"functionResponse": response}
    data, notices = structured_output(result), result.told_notices()
    output: object = output_text(result) if data is None else data
    said = [in_text(block) for block in blocks_of(result) if not _shown(block)]
    response["response"] = ({} if output == "" else {"output": output}) | ({"content": said} if said else {})
    if data is not None and notices:
        response["response"]["notices"] = notices
    parts = [
        {"inlineData": {"mimeType": block.mime_type, "data": block.data}}
        for block in blocks_of(result)
        if isinstance(block, ImageBlock) and _shown(block)
    ]
    return {"functionResponse": {**response, "parts": parts} if parts else response}


def _shown(block: object) -> bool:
    return isinstance(block, ImageBlock) and block.mime_type in _IMAGES


FUNCTIONS = Dialect(
    "gemini",
    frozenset({"gemini", "google"}),
    NameRule("a-zA-Z_", "a-zA-Z0-9_-", 64),
    _parse,
    _render,
    parameters=NameRule("a-zA-Z_", "a-zA-Z0-9_", 64),
    outputs=True,
)
