"""The dialects' published rules, as checkers of exported tools. Written from the documents, not from our exporters.

OpenAI: guides "Function calling" and "Structured Outputs" (supported schemas), and the API's errors "schema must have
type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level", "array schema missing items".
Anthropic: "Define tools", "JSON Schema limitations", and the errors "input_schema does not support oneOf, allOf,
or anyOf at the top level", "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'".
Gemini: reference of FunctionDeclaration, Schema and responseJsonSchema; errors "properties: should be non-empty
for OBJECT type", "items: missing field", "only 'enum' and 'date-time' are supported for STRING type", "enum[0]: cannot
be empty", "required[0]: property is not defined".
MCP: schema of the specification, 2025-11-25.
"""

import json
import re
from collections.abc import Iterator
from typing import Any


def keywords(text: str) -> frozenset[str]:
    """A set of keywords, written with spaces between them."""
    return frozenset(text.split())


_SUBSCHEMAS = keywords("not if then else contains propertyNames items additionalProperties unevaluatedProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs")

OPENAI_STRICT = keywords(
    "type title description properties required additionalProperties items anyOf $ref $defs enum const pattern format "
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minItems maxItems"
)
OPENAI_FORMATS = keywords("date-time time date duration email hostname ipv4 ipv6 uuid")
ANTHROPIC_STRICT = keywords(
    "type title description default properties required additionalProperties items anyOf $ref $defs enum const pattern "
    "format minItems"
)
ANTHROPIC_FORMATS = keywords("date-time time date duration email hostname uri ipv4 ipv6 uuid")
GEMINI_JSON = keywords(
    "$id $defs $ref $anchor type format title description enum items prefixItems minItems maxItems minimum maximum "
    "anyOf oneOf properties additionalProperties required propertyOrdering"
)
GEMINI_OPENAPI = keywords(
    "type format title description nullable enum maxItems minItems properties required minProperties maxProperties "
    "minLength maxLength pattern example anyOf propertyOrdering default items minimum maximum"
)


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema in a schema."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key in _SUBSCHEMAS:
        yield from nodes(schema.get(key))
    for key in _LISTS:
        for one in schema.get(key, []):
            yield from nodes(one)
    for key in _MAPS:
        for one in schema.get(key, {}).values():
            yield from nodes(one)


def check(mode: str, tool: dict[str, Any]) -> None:
    """Raise AssertionError where a tool breaks a rule of its dialect."""
    dialect = mode.partition(" ")[0]
    assert isinstance(tool, dict)
    json.dumps(tool, allow_nan=False)
    {"openai_chat": chat, "openai_responses": responses, "anthropic": anthropic, "gemini": gemini, "mcp": mcp}[dialect](
        tool
    )


def chat(tool: dict[str, Any]) -> None:
    assert tool.keys() == {"type", "function"} and tool["type"] == "function"
    function = tool["function"]
    assert function.keys() <= {"name", "description", "parameters", "strict"}
    _openai(function)


def responses(tool: dict[str, Any]) -> None:
    assert tool.keys() == {"type", "name", "description", "parameters", "strict"} and tool["type"] == "function"
    _openai(tool)


def _openai(function: dict[str, Any]) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", function["name"])
    assert len(function["description"]) <= 1_024
    root = function["parameters"]
    assert root["type"] == "object" and isinstance(root["properties"], dict)
    assert not root.keys() & {"oneOf", "anyOf", "allOf", "enum", "const", "not"}
    for node in nodes(root):
        assert "array" not in _types(node) or "items" in node
        _valid(node)
    if function.get("strict"):
        _openai_strict(root)


def _openai_strict(root: dict[str, Any]) -> None:
    names, values, chars = 0, 0, sum(map(len, root.get("$defs", {})))
    for node in nodes(root):
        assert node.keys() <= OPENAI_STRICT, node
        assert node.keys() & {"type", "anyOf", "$ref"}, node
        assert "$ref" not in node or node.keys() == {"$ref"} or node is root
        if "object" in _types(node):
            assert node["additionalProperties"] is False
            assert node["required"] == list(node["properties"])
        assert node.get("format", "date") in OPENAI_FORMATS
        names += len(node.get("properties", {}))
        listed = node.get("enum", [])
        values += len(listed)
        strings = sum(len(one) for one in [*listed, node.get("const")] if isinstance(one, str))
        assert len(listed) <= 250 or strings <= 15_000
        chars += strings + sum(map(len, node.get("properties", {})))
        assert all(not isinstance(one, dict | list) for one in listed)
    assert names <= 5_000 and values <= 1_000 and chars <= 120_000
    assert _levels(root, root.get("$defs", {}), ()) <= 10


def _levels(node: dict[str, Any], definitions: dict[str, Any], inside: tuple[str, ...]) -> int:
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        return 0 if name in inside else _levels(definitions[name], definitions, (*inside, name))
    below = [*node.get("properties", {}).values(), *([node["items"]] if "items" in node else [])]
    deepest = max((_levels(one, definitions, inside) for one in below), default=-1) + 1
    return max([deepest, *(_levels(one, definitions, inside) for one in node.get("anyOf", []))])


def anthropic(tool: dict[str, Any]) -> None:
    assert tool.keys() <= {"name", "description", "input_schema", "strict", "input_examples"}
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool["name"])
    root = tool["input_schema"]
    assert root["type"] == "object"
    assert not root.keys() & {"oneOf", "anyOf", "allOf"}
    assert all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name) for name in root["properties"])
    for node in nodes(root):
        _valid(node)
    if not tool.get("strict"):
        return
    for node in nodes(root):
        assert node.keys() <= ANTHROPIC_STRICT, node
        if "object" in _types(node):
            assert node["additionalProperties"] is False
        assert node.get("format", "date") in ANTHROPIC_FORMATS
        assert node.get("minItems", 0) in (0, 1)
        assert all(not isinstance(one, dict | list) for one in node.get("enum", []))
        assert "$ref" not in node or node["$ref"].startswith("#/$defs/")
    for name in root.get("$defs", {}):
        assert not _recursive(name, root["$defs"], ())


def _recursive(name: str, definitions: dict[str, Any], inside: tuple[str, ...]) -> bool:
    below = {node["$ref"].rpartition("/")[2] for node in nodes(definitions[name]) if "$ref" in node}
    return name in inside or any(_recursive(one, definitions, (*inside, name)) for one in below)


def gemini(function: dict[str, Any]) -> None:
    assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}", function["name"])
    assert not {"parameters", "parametersJsonSchema"} <= function.keys()
    assert not {"response", "responseJsonSchema"} <= function.keys()
    for node in nodes(function.get("responseJsonSchema", {})):
        assert node.keys() <= GEMINI_JSON, node
        _gemini(node)
    for node in nodes(function["response"]) if "response" in function else ():
        _openapi(node)
    if "parametersJsonSchema" in function:
        root = function["parametersJsonSchema"]
        assert root["type"] == "object"
        for node in nodes(root):
            assert node.keys() <= GEMINI_JSON, node
            assert "$ref" not in node or all(key.startswith("$") for key in node)
            assert all(isinstance(one, str | int | float) for one in node.get("enum", []))
            _gemini(node)
    elif "parameters" in function:
        root = function["parameters"]
        assert root["type"] == "OBJECT"
        for node in nodes(root):
            _openapi(node)
    else:
        return
    assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}", name) for name in root["properties"])


def _gemini(node: dict[str, Any]) -> None:
    assert "enum" not in node or (node["enum"] and "" not in node["enum"]), node
    assert set(node.get("required", [])) <= node.get("properties", {}).keys(), node


def _valid(node: dict[str, Any]) -> None:
    """As the meta-schema of draft 2020-12 says, and OpenAI's, where an enum has a value."""
    assert node.get("enum", ["one"]), node
    assert not any(isinstance(node.get(key), bool) for key in ("exclusiveMinimum", "exclusiveMaximum")), node


def _openapi(node: dict[str, Any]) -> None:
    assert node.keys() <= GEMINI_OPENAPI, node
    _gemini(node)
    assert "anyOf" in node or node["type"] in ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")
    if node.get("type") == "OBJECT":
        assert node["properties"]
        assert set(node.get("required", [])) <= node["properties"].keys()
    if node.get("type") == "ARRAY":
        assert "items" in node
    if "enum" in node:
        assert (
            node["type"] == "STRING" and node["format"] == "enum" and all(isinstance(one, str) for one in node["enum"])
        )
    elif node.get("type") == "STRING":
        assert node.get("format", "date-time") == "date-time"


def mcp(tool: dict[str, Any]) -> None:
    assert tool.keys() <= {"name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta"}
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", tool["name"])
    assert tool["inputSchema"]["type"] == "object"
    assert tool.get("outputSchema", {"type": "object"})["type"] == "object"
    hints = {"readOnlyHint": bool, "destructiveHint": bool, "idempotentHint": bool, "openWorldHint": bool, "title": str}
    assert all(isinstance(value, hints[key]) for key, value in tool["annotations"].items())
    assert all(re.fullmatch(r"[a-z]+/[a-z]+", key) for key in tool["_meta"])


def _types(node: dict[str, Any]) -> list[str]:
    given = node.get("type", [])
    return [given] if isinstance(given, str) else given
