"""OpenAI's two dialects, Chat Completions and Responses, each with and without strict schemas.

Sources: "Function calling", "Structured Outputs: supported schemas", "Custom tools" and "Context-free grammars" of
OpenAI's API guides, as of 2026-02. The rules for the root are from the API's error message.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from toolcell_tools.content import ImageBlock
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.result import ToolResult

from .calls import InvalidCall, ModelCall, RawCall, text_of
from .canonical import MANY, NAMED, ONE, Schema, canonical, keywords, target
from .dialect import Dialect, NameRule, Subset
from .export import Declared, Export, Parameters, ProviderDefined, Written, assemble, plain, within
from .merge import types_of
from .report import Difference, Inexpressible
from .results import blocks_of, in_text, output_text

__all__ = ["CHAT", "RESPONSES", "STRICT", "Grammar", "openai_chat", "openai_responses"]

STRICT = Subset(
    keywords=keywords("pattern minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minItems maxItems"),
    formats=keywords("date-time time date duration email hostname ipv4 ipv6 uuid"),
    const=True,
    closed=True,
    all_required=True,
)
MAX_PROPERTIES = 5_000
MAX_LEVELS = 10
MAX_ENUM_VALUES = 1_000
MAX_CHARS = 120_000  # of names, enum and const values together
MANY_VALUES, MAX_MANY_CHARS = 250, 15_000  # an enum of more than 250 strings may have 15,000 characters
_SAYS_NOTHING = frozenset({"type", "title", "description", "default", "examples"})
_NAMES = NameRule("a-zA-Z0-9_-", "a-zA-Z0-9_-", 64)


@dataclass(frozen=True, slots=True)
class Grammar:
    """The texts that a model may write: a context-free grammar in Lark's syntax, or a regular expression in Rust's.

    The provider enforces it. toolcell validates the text against the tool's own schema, like any other argument.
    """

    syntax: Literal["lark", "regex"]
    definition: str


def openai_chat(tools: Iterable[ToolDeclaration | Declared | ProviderDefined], strict: bool = False) -> Export:
    """Tools for Chat Completions. `strict` is set on tools that allow it. For the others the report has the reason."""

    def write(declaration: ToolDeclaration, name: str) -> Written:
        parameters, is_strict = _parameters(declaration, CHAT, strict)
        function: dict[str, Any] = {
            "name": name,
            "description": declaration.description,
            "parameters": parameters.schema,
        }
        if is_strict:
            function["strict"] = True
        return Written({"type": "function", "function": function}, parameters)

    return assemble(CHAT, tools, write)


def openai_responses(
    tools: Iterable[ToolDeclaration | Declared | ProviderDefined],
    strict: bool = False,
    *,
    freeform: Mapping[str, Grammar | None] | None = None,
) -> Export:
    """Tools for the Responses API. `strict` is always given, because its default there is true.

    The tools that `freeform` names are exported as custom tools: the model writes their one text argument as plain
    text, not as JSON, and by the grammar if there is one. Raises ValueError for a name that is not among the tools, and
    for a tool with other arguments.
    """
    as_text = dict(freeform or {})

    def write(declaration: ToolDeclaration, name: str) -> Written:
        if declaration.name in as_text:
            return _custom_tool(declaration, name, as_text.pop(declaration.name))
        parameters, is_strict = _parameters(declaration, RESPONSES, strict)
        tool: dict[str, Any] = {
            "type": "function",
            "name": name,
            "description": declaration.description,
            "parameters": parameters.schema,
            "strict": is_strict,
        }
        return Written(tool, parameters)

    export = assemble(RESPONSES, tools, write)
    if as_text:
        raise ValueError(
            f"freeform names {', '.join(map(repr, as_text))}, which no tool here is called. Mend the name."
        )
    return export


def _custom_tool(declaration: ToolDeclaration, name: str, grammar: Grammar | None) -> Written:
    """Export a tool with one text argument as free text. Raises ValueError for a tool with other arguments."""
    tool: dict[str, Any] = {"type": "custom", "name": name, "description": declaration.description}
    parameter, schema = _one_text(declaration)
    findings = [Difference(declaration.name, "", "parameters", "rewritten", f"free text for {parameter!r}")]
    for keyword in schema.keys() - _SAYS_NOTHING:
        detail = "free text has no schema"
        findings.append(
            Difference(declaration.name, f"/properties/{parameter}", keyword, "dropped", detail, loosens=True)
        )
    if grammar is not None:
        tool["format"] = {"type": "grammar", "syntax": grammar.syntax, "definition": grammar.definition}
        detail = "the grammar of the export"
        findings.append(Difference(declaration.name, "", "format", "narrowed", detail, tightens=True))
    taken = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    return Written(tool, Parameters(taken, findings, {parameter: "input"}))


def _one_text(declaration: ToolDeclaration) -> tuple[str, dict[str, Any]]:
    """The name and the schema of the one parameter, which is a text. Raises ValueError for other parameters."""
    schema = canonical(declaration.parameters_schema)
    properties = cast("dict[str, dict[str, Any]]", schema.get("properties", {}))
    ((parameter, text),) = properties.items() if len(properties) == 1 else [("", {})]
    if text.get("type") != "string" or set(schema.get("required", [])) - {parameter}:
        raise ValueError(
            f"the tool {declaration.name!r} cannot go out as free text: it does not take one text and nothing else. "
            "Make it one of a single str parameter, or dynamic_tool(…, parameters=str)."
        )
    return parameter, text


def _parameters(declaration: ToolDeclaration, dialect: Dialect, strict: bool) -> tuple[Parameters, bool]:
    def lenient(declaration: ToolDeclaration) -> Parameters:
        return _lenient(declaration, dialect)

    return within(declaration, dialect, STRICT, lenient, _measure) if strict else (lenient(declaration), False)


def _lenient(declaration: ToolDeclaration, dialect: Dialect) -> Parameters:
    parameters = plain(declaration, dialect)
    findings = list(parameters.findings)
    return Parameters(_with_items(parameters.marked, "", declaration.name, findings), findings, parameters.renamed)


def _with_items(schema: Schema, at: str, tool: str, findings: list[Difference]) -> Schema:
    """Give every array `items`: the API answers "array schema missing items" even without strict."""
    result: Schema = {}
    for key, value in schema.items():
        below = f"{at}/{key}"
        if key in ONE and isinstance(value, dict):
            result[key] = _with_items(cast("Schema", value), below, tool, findings)
        elif key in MANY:
            result[key] = [
                _with_items(one, f"{below}/{index}", tool, findings)
                for index, one in enumerate(cast("list[Schema]", value))
            ]
        elif key in NAMED or key == "$defs":
            named = cast("dict[str, Schema]", value)
            result[key] = {name: _with_items(one, f"{below}/{name}", tool, findings) for name, one in named.items()}
        else:
            result[key] = value
    if "array" in (types_of(schema) or []) and "items" not in schema:
        result["items"] = {}
        findings.append(Difference(tool, at, "items", "rewritten", "{}, which an array must say"))
    return result


def _measure(schema: Schema) -> None:
    """Raise Inexpressible for a schema larger than strict mode allows."""
    size = _Size(cast("dict[str, Schema]", schema.get("$defs", {})))
    size.count({key: value for key, value in schema.items() if key != "$defs"})
    for name, definition in size.definitions.items():
        size.chars += len(name)
        size.count(definition)
    for what, count, most in (
        ("properties", size.properties, MAX_PROPERTIES),
        ("enum values", size.values, MAX_ENUM_VALUES),
        ("characters in names and enum values", size.chars, MAX_CHARS),
        ("levels of nesting", size.levels(schema, ()), MAX_LEVELS),
        ("characters in an enum of more than 250 values", size.long_enum, MAX_MANY_CHARS),
    ):
        if count > most:
            raise Inexpressible("", "limits", f"{count:,} {what}, and {most:,} is the most")


class _Size:
    def __init__(self, definitions: dict[str, Schema]) -> None:
        self.definitions = definitions
        self.properties = self.values = self.chars = self.long_enum = 0
        self.known: dict[str, int] = {}

    def count(self, schema: Schema) -> None:
        for name, one in cast("dict[str, Schema]", schema.get("properties", {})).items():
            self.properties += 1
            self.chars += len(name)
            self.count(one)
        values = cast("list[Any]", schema.get("enum", []))
        strings = sum(len(one) for one in [*values, schema.get("const")] if isinstance(one, str))
        self.values += len(values)
        self.chars += strings
        if len(values) > MANY_VALUES:
            self.long_enum = max(self.long_enum, strings)
        for one in (*cast("list[Schema]", schema.get("anyOf", [])), *_items(schema)):
            self.count(one)

    def levels(self, schema: Schema, inside: tuple[str, ...]) -> int:
        """The depth of nested objects and arrays. A reference to an enclosing schema adds none."""
        if "$ref" in schema:
            name = target(schema)
            if name in inside:
                return 0
            if name not in self.known:
                self.known[name] = self.levels(self.definitions[name], (*inside, name))
            return self.known[name]
        below = [*cast("dict[str, Schema]", schema.get("properties", {})).values(), *_items(schema)]
        own = 1 + max((self.levels(one, inside) for one in below), default=0) if below else 0
        return max(own, *(self.levels(one, inside) for one in schema.get("anyOf", [])), 0)


def _items(schema: Schema) -> list[Schema]:
    return [cast("Schema", schema["items"])] if isinstance(schema.get("items"), dict) else []


def _parse_chat(payload: Mapping[str, Any]) -> RawCall:
    function: object = payload.get("function")
    if not isinstance(function, Mapping):
        raise InvalidCall("The tool call has no function.", call_id=str(payload.get("id", "")))
    found = cast("Mapping[str, Any]", function)
    return RawCall(text_of(found, "name"), found.get("arguments"), text_of(payload, "id"))


def _parse_response(payload: Mapping[str, Any]) -> RawCall:
    name, call_id = text_of(payload, "name"), text_of(payload, "call_id")
    if payload.get("type") == "custom_tool_call":
        return RawCall(name, {"input": text_of(payload, "input")}, call_id, is_text=True)
    return RawCall(name, payload.get("arguments"), call_id)


def _render_chat(call: ModelCall, result: ToolResult, wrapped: bool) -> dict[str, Any]:
    """A tool message. It holds only text, so media are named and not shown."""
    parts = [output_text(result), *map(in_text, blocks_of(result))]
    return {"role": "tool", "tool_call_id": call.call_id, "content": "\n\n".join(part for part in parts if part)}


def _render_response(call: ModelCall, result: ToolResult, wrapped: bool) -> dict[str, Any]:
    """A function_call_output or custom_tool_call_output item: text, or parts if there are images."""
    parts: list[dict[str, Any]] = []
    text = output_text(result)
    if text:
        parts.append({"type": "input_text", "text": text})
    for block in blocks_of(result):
        if isinstance(block, ImageBlock):
            parts.append({"type": "input_image", "image_url": f"data:{block.mime_type};base64,{block.data}"})
        else:
            parts.append({"type": "input_text", "text": in_text(block)})
    output: object = text if len(parts) <= 1 and text else parts
    kind = "custom_tool_call_output" if call.is_text else "function_call_output"
    return {"type": kind, "call_id": call.call_id, "output": output}


CHAT = Dialect("openai_chat", frozenset({"openai"}), _NAMES, _parse_chat, _render_chat, None, description_chars=1_024)
RESPONSES = Dialect(
    "openai_responses", frozenset({"openai"}), _NAMES, _parse_response, _render_response, None, description_chars=1_024
)
