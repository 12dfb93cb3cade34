"""Tools whose one argument is exported as free text: OpenAI's custom tools, with or without a grammar.

Source: "Custom tools" and "Context-free grammars" of OpenAI's guide to function calling, as of 2026-02.
"""

from dataclasses import dataclass
from typing import Any, Literal, cast

from toolcell_tools.declaration import ToolDeclaration

from .canonical import canonical
from .export import Parameters, Written
from .report import Difference

__all__ = ["Grammar", "custom_tool"]

_SAYS_NOTHING = frozenset({"type", "title", "description", "default", "examples"})


@dataclass(frozen=True, slots=True)
class Grammar:
    """The texts that a model may write: a context-free grammar in Lark's syntax, or a regular expression in Rust's.

    The provider enforces it. toolcell validates the text against the tool's own schema, like any other argument.
    """

    syntax: Literal["lark", "regex"]
    definition: str


def custom_tool(declaration: ToolDeclaration, name: str, grammar: Grammar | None) -> Written:
    """Export a tool with one text argument as free text. Raises ValueError for a tool with other arguments."""
    tool: dict[str, Any] = {"type": "custom", "name": name, "description": declaration.description}
    parameter, schema = _text_of(declaration)
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


def _text_of(declaration: ToolDeclaration) -> tuple[str, dict[str, Any]]:
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
