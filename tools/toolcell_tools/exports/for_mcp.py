"""Model Context Protocol: entries of `tools/list`, params of `tools/call`, and results (specification 2025-11-25)."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from toolcell_tools.content import AudioBlock, Content, ImageBlock, ResourceBlock
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.options import answers_parameter
from toolcell_tools.result import ToolResult

from .calls import ModelCall, RawCall, text_of
from .canonical import Schema, canonical
from .dialect import Dialect, NameRule
from .export import Declared, Export, Parameters, ProviderDefined, Written, assemble
from .merge import types_of
from .report import Difference, Unexportable
from .results import OUTPUT, blocks_of, output_text

__all__ = ["TOOLS", "mcp", "refused_arguments"]


def mcp(tools: Iterable[ToolDeclaration | Declared | ProviderDefined]) -> Export:
    """Tools as a server lists them. Schemas are unchanged, except that a root without a type gets "object", and the
    parameter for the user's answers is left out."""

    def write(declaration: ToolDeclaration, name: str) -> Written:
        parameters = _parameters(declaration)
        tool: dict[str, Any] = {
            "name": name,
            "description": declaration.description,
            "inputSchema": parameters.schema,
            "annotations": _annotations(declaration),
            "_meta": _meta(declaration),
        }
        if declaration.annotations.title is not None:
            tool["title"] = declaration.annotations.title
        if declaration.output_schema is None:
            return Written(tool, parameters)
        tool["outputSchema"], wrapped = _output(declaration, parameters.findings)
        return Written(tool, parameters, wrapped)

    return assemble(TOOLS, tools, write)


def refused_arguments(declaration: ToolDeclaration, arguments: Mapping[str, Any]) -> str:
    """Why a client's arguments are refused: it gives its user's answers itself. "" if they are not refused.

    The parameter for answers may have further names, such as a pydantic alias. So a tool that has this parameter takes
    only the listed arguments."""
    hidden = answers_parameter(declaration.metadata)
    if not hidden:
        return ""
    listed = declaration.parameters_schema.get("properties")
    strange = [name for name in arguments if name == hidden or (listed is not None and name not in listed)]
    if not strange:
        return ""
    return (
        f"The tool {declaration.name!r} takes no argument {strange[0][:80]!r} from a client. It asks a person by "
        "itself. Leave the argument out."
    )


def _parameters(declaration: ToolDeclaration) -> Parameters:
    schema = deepcopy(declaration.parameters_schema)
    hidden = answers_parameter(declaration.metadata)
    if hidden:
        schema.get("properties", {}).pop(hidden, None)
        if "required" in schema:
            schema["required"] = [name for name in schema["required"] if name != hidden]
    kinds = types_of(schema)
    if kinds == ["object"]:
        return Parameters(schema)
    if kinds is not None and "object" not in kinds:
        raise Unexportable("/type", "type", f"arguments are an object, and the schema wants {' or '.join(kinds)}")
    finding = Difference(declaration.name, "/type", "type", "rewritten", '"object", which the root must say')
    return Parameters({**schema, "type": "object"}, [finding])


def _annotations(declaration: ToolDeclaration) -> dict[str, Any]:
    given = declaration.annotations
    hints = {
        "title": given.title,
        "readOnlyHint": given.read_only,
        "destructiveHint": given.destructive,
        "idempotentHint": given.idempotent,
        "openWorldHint": given.open_world,
    }
    return {key: value for key, value in hints.items() if value is not None}


def _meta(declaration: ToolDeclaration) -> dict[str, Any]:
    """The properties for which MCP has no field."""
    return {
        "toolcell/version": declaration.version,
        "toolcell/tier": declaration.tier.value,
        "toolcell/fingerprint": declaration.fingerprint,
        "toolcell/edit": declaration.annotations.edit,
        "toolcell/sequential": bool(declaration.annotations.sequential),
        "toolcell/placement": declaration.placement,
    }


def _output(declaration: ToolDeclaration, findings: list[Difference]) -> tuple[Schema, bool]:
    """An output schema whose root is an object. Any other output is wrapped in `{"result": …}`."""
    given = declaration.output_schema or {}
    if types_of(given) == ["object"]:
        return deepcopy(given), False
    schema = canonical(given)
    definitions = schema.pop("$defs", None)
    findings.append(Difference(declaration.name, f"/{OUTPUT}", OUTPUT, "rewritten", 'wrapped as {"result": …}'))
    wrapped: Schema = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    return ({**wrapped, "$defs": definitions} if definitions else wrapped), True


def _parse(payload: Mapping[str, Any]) -> RawCall:
    """The params of tools/call. They contain no id: the id is in the JSON-RPC request."""
    return RawCall(text_of(payload, "name"), payload.get("arguments"), "")


def _render(call: ModelCall, result: ToolResult, wrapped: bool) -> dict[str, Any]:
    """A CallToolResult. Structured content is the output of a tool with an output schema, and any other output that is
    no text, wrapped in `{"result": …}` if it is no object."""
    text = output_text(result)
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    content.extend(map(_block, blocks_of(result)))
    rendered: dict[str, Any] = {"content": content, "isError": result.is_error}
    output: object = result.output
    is_text = not wrapped and isinstance(output, str | None)  # without an output schema; the content has it
    if not result.is_error and not is_text:
        rendered["structuredContent"] = output if isinstance(output, dict) and not wrapped else {"result": output}
    return rendered


def _block(block: Content) -> dict[str, Any]:
    if isinstance(block, ImageBlock | AudioBlock):
        return {"type": block.type, "data": block.data, "mimeType": block.mime_type}
    if isinstance(block, ResourceBlock):
        kind = {} if block.mime_type is None else {"mimeType": block.mime_type}
        if block.text is None:
            return {"type": "resource_link", "uri": block.uri, "name": block.uri, **kind}
        return {"type": "resource", "resource": {"uri": block.uri, "text": block.text, **kind}}
    return {"type": "text", "text": block.text}


TOOLS = Dialect("mcp", frozenset(), NameRule("A-Za-z0-9_.-", "A-Za-z0-9_.-", 128), _parse, _render, outputs=True)
