"""What the export tests share: every dialect in every mode, its schemas as JSON Schema again, real tools."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema_rs

from toolcell_tools import PermissionTier, ToolDeclaration, exports
from toolcell_tools.exports import Export

REAL = Path(__file__).parent.parent.parent / "behaviour" / "schemas" / "real"


def declared(
    schema: dict[str, Any], name: str = "probe", description: str = "Probe.", output: dict[str, Any] | None = None
) -> ToolDeclaration:
    """A declaration with this parameters schema."""
    return ToolDeclaration(
        name=name,
        description=description,
        tier=PermissionTier.SYSTEM,
        parameters_schema=schema,
        output_schema=output,
        fingerprint="sha256:0",
    )


def real_tools() -> list[ToolDeclaration]:
    """The tools of public MCP servers, each named after its server."""
    found: list[ToolDeclaration] = []
    for path in sorted(REAL.glob("*.json")):
        for tool in json.loads(path.read_text())["tools"]:
            name, said = f"{path.stem}.{tool['name']}", tool.get("description", "")
            found.append(declared(tool["inputSchema"], name, said, tool.get("outputSchema")))
    return found


@dataclass(frozen=True)
class Mode:
    """A dialect in one of its modes: how to export, and where a tool's schema is."""

    name: str
    export: Callable[[Iterable[ToolDeclaration]], Export]
    schema: Callable[[dict[str, Any]], dict[str, Any]]

    def schema_of(self, export: Export, index: int = 0) -> dict[str, Any]:
        """The schema of an exported tool, as JSON Schema."""
        return self.schema(self.tool_of(export, index))

    def tool_of(self, export: Export, index: int = 0) -> dict[str, Any]:
        """An exported tool."""
        tools = export.tools
        tool: dict[str, Any] = tools[0]["functionDeclarations"][index] if export.dialect == "gemini" else tools[index]
        return tool


def _gemini_schema(function: dict[str, Any]) -> dict[str, Any]:
    if "parametersJsonSchema" in function:
        schema: dict[str, Any] = function["parametersJsonSchema"]
        return schema
    return from_openapi(function["parameters"]) if "parameters" in function else {"type": "object"}


def from_openapi(schema: dict[str, Any]) -> dict[str, Any]:
    """The API's `Schema` as JSON Schema: what its fields mean."""
    result = {key: value for key, value in schema.items() if key not in ("type", "nullable", "properties", "items")}
    if "type" in schema:
        result["type"] = schema["type"].lower()
    if "properties" in schema:
        result["properties"] = {name: from_openapi(one) for name, one in schema["properties"].items()}
    if "items" in schema:
        result["items"] = from_openapi(schema["items"])
    if "anyOf" in schema:
        result["anyOf"] = [from_openapi(one) for one in schema["anyOf"]]
    return {"anyOf": [result, {"type": "null"}]} if schema.get("nullable") else result


MODES = [
    Mode("openai_chat", exports.openai_chat, lambda tool: tool["function"]["parameters"]),
    Mode(
        "openai_chat strict", lambda t: exports.openai_chat(t, strict=True), lambda tool: tool["function"]["parameters"]
    ),
    Mode("openai_responses", exports.openai_responses, lambda tool: tool["parameters"]),
    Mode(
        "openai_responses strict", lambda t: exports.openai_responses(t, strict=True), lambda tool: tool["parameters"]
    ),
    Mode("anthropic", exports.anthropic, lambda tool: tool["input_schema"]),
    Mode("anthropic strict", lambda t: exports.anthropic(t, strict=True), lambda tool: tool["input_schema"]),
    Mode("gemini json_schema", exports.gemini, _gemini_schema),
    Mode("gemini openapi", lambda t: exports.gemini(t, mode="openapi"), _gemini_schema),
    Mode("mcp", exports.mcp, lambda tool: tool["inputSchema"]),
]


def accepts(schema: dict[str, Any]) -> Callable[[Any], bool]:
    """Whether a value fits a schema, by jsonschema-rs."""
    validator: Any = jsonschema_rs.validator_for(schema)
    return lambda value: bool(validator.is_valid(value))
