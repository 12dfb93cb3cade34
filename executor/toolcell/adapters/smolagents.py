"""smolagents: a session's tools for an agent, and a smolagents tool as a tool that runs in a cell.

    agent = ToolCallingAgent(tools=to_smolagents_tools(session), model=model)

smolagents is synchronous: the session is one of `toolcell.blocking`. `smolagents_executor` runs a CodeAgent's code in a
cell. Needs the extra `[smolagents]`.
"""

import mimetypes
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from inspect import unwrap
from pathlib import Path
from typing import Any, Unpack, cast

from smolagents import Tool
from smolagents.agent_types import AgentImage

from toolcell.adapters.result_forms import blocks_of, in_text, text_of, value_of
from toolcell.blocking import Session
from toolcell.errors import UsageError
from toolcell_tools.content import Content, ImageBlock
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.dynamic import DynamicTool
from toolcell_tools.exports.canonical import canonical, target
from toolcell_tools.exports.merge import Definitions, types_of
from toolcell_tools.exports.report import Unexportable
from toolcell_tools.for_programs.python_code import INTERPRETER
from toolcell_tools.options import DynamicOptions
from toolcell_tools.result import ToolResult

from .foreign import cell_tool, function_runner, located
from .smolagents_in_cell import returned, run

__all__ = [
    "OnCallProgress",
    "SmolagentsTool",
    "SmolagentsToolError",
    "from_smolagents",
    "to_smolagents_tools",
]

_RUN_FUNCTION = function_runner("forward", "smolagents", f"{returned.__module__}:{returned.__name__}")
_ANY = ["string", "boolean", "integer", "number", "array", "object", "null"]
_KNOWN = {*_ANY, "image", "audio", "any"}
_NAMES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    type(None): "null",
}
OnCallProgress = Callable[[str, str, float | None], None]
"""Called with the tool's name, its message, and the fraction done (0 to 1) or None, on the session's loop."""


def to_smolagents_tools(session: Session, *, on_progress: OnCallProgress | None = None) -> list[Tool]:
    """The tools that the session may use now. Raises ToolsetError.

    - An error of a call is an exception, which the agent tells its model. smolagents has no approvals: a
      `Supervisor(approver=…)` or the session's channel is asked, and without one the call is denied.
    - A result that is one picture is an AgentImage, which an agent keeps in its state. A result of several parts is a
      list. Pillow decodes a picture in your program, when the agent first uses it.
    - `on_progress` gets the progress of the calls, for which smolagents has no place.
    - `agent.interrupt()` waits for the call to end. Ctrl-C and the close of the session end it.
    """
    if not isinstance(cast("object", session), Session):
        raise UsageError(
            f"{session!r} is no blocking session, and smolagents is synchronous. Use toolcell.blocking.Supervisor."
        )
    pictures = _Pictures()
    offered = [one for one in session.tools() if one.kind != "provider" and not one.metadata.get(INTERPRETER)]
    return [SmolagentsTool(session, one, pictures, on_progress) for one in offered]


class SmolagentsToolError(RuntimeError):
    """A call failed. The text is what a model is told; `result` is the whole result."""

    def __init__(self, result: ToolResult) -> None:
        super().__init__(text_of(result))
        self.result = result


class SmolagentsTool(Tool):
    """One tool of a session. Made by `to_smolagents_tools`. Call it by name or by place, as code does."""

    skip_forward_signature_validation = True  # the parameters of `forward` are those of the declaration

    def __init__(
        self, session: Session, declaration: ToolDeclaration, pictures: "_Pictures", on_progress: OnCallProgress | None
    ) -> None:
        self.name = declaration.name
        self.description = declaration.description
        self.inputs = _inputs_of(declaration.parameters_schema)
        output = declaration.output_schema
        self.output_type = "object" if output is not None and output.get("type") == "object" else "any"
        self.output_schema = output if self.output_type == "object" else None
        super().__init__()
        self._session = session
        self._pictures = pictures
        self._on_progress = on_progress

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Make the call in a cell, and wait for it. Raises SmolagentsToolError."""
        named = dict(zip(self.inputs, args, strict=False)) | kwargs
        given = {key: value for key, value in named.items() if value is not None or not self._may_leave_out(key)}
        told = None if self._on_progress is None else partial(self._on_progress, self.name)
        result = self._session.call(self.name, given, on_progress=told)
        if result.is_error:
            raise SmolagentsToolError(result)
        parts = [self._pictures.part(block) for block in blocks_of(result)]
        if not parts:
            return value_of(result)
        if result.output is not None or result.notices:
            parts.insert(0, value_of(result))
        return parts[0] if len(parts) == 1 else parts

    def _may_leave_out(self, key: str) -> bool:
        """Whether None means that the argument is left out: smolagents calls every optional argument nullable."""
        return "null" not in self.inputs.get(key, {}).get("type", [])


class _Pictures:
    """The pictures of results, as files that last as long as the tools."""

    def __init__(self) -> None:
        self._directory: Path | None = None

    def part(self, block: Content) -> Any:
        """The block as smolagents takes it: an AgentImage, which is decoded at its first use, or text."""
        if not isinstance(block, ImageBlock):
            return in_text(block)
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="toolcell-pictures-"))
            weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        path = self._directory / f"{uuid.uuid4().hex}{mimetypes.guess_extension(block.mime_type) or '.img'}"
        path.write_bytes(block.to_bytes())
        return AgentImage(str(path))


def from_smolagents(
    tool: Tool | str, *, name: str | None = None, description: str | None = None, **options: Unpack[DynamicOptions]
) -> DynamicTool:
    """A smolagents tool, or its import path "module:name", as a tool that runs in a cell.

    Of a function with the decorator `tool` the cell runs the function, and loads smolagents only if the function does.
    Any other tool is sent whole, and `setup` runs in the cell. `options` are those of `dynamic_tool`; without `needs`,
    the tool gets no capability. Raises UsageError for a tool with pictures or sound among its inputs.
    """
    one, by_path = located(tool)
    if not isinstance(one, Tool):
        raise UsageError(
            f"{tool!r} is no tool of smolagents but a {type(one).__name__}. Decorate it with smolagents.tool."
        )
    media = [key for key, given in one.inputs.items() if given["type"] in ("image", "audio")]
    if media:
        raise UsageError(
            f"The tool {one.name!r} takes {media[0]!r} as an object, and arguments go to a cell as JSON. Take the "
            "path of a file in the workspace instead."
        )
    is_function = type(one).__name__ == "SimpleTool"
    fn = unwrap(type(one).forward) if is_function else None
    return cell_tool(
        tool if by_path else one if fn is None else fn,
        run if fn is None else _RUN_FUNCTION,
        name=name or one.name,
        description=one.description if description is None else description,
        parameters=_parameters_of(one.inputs),
        results=one.output_schema,
        **options,
    )


def _inputs_of(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """smolagents' inputs: for each parameter its whole schema, with the type and description that smolagents wants.

    References are written out. A type that smolagents cannot say is a list of types. `anyOf` goes into an `allOf`,
    because smolagents would replace it by its types.
    """
    whole = canonical(schema)
    definitions, required = Definitions(whole.get("$defs", {})), set(whole.get("required", ()))
    inputs: dict[str, dict[str, Any]] = {}
    for key, given in whole.get("properties", {}).items():
        try:
            one = _inlined(given, definitions, frozenset())
        except Unexportable:  # it unfolds to too much; the supervisor validates with the schema itself
            one = {"description": given.get("description", "")}
        if "anyOf" in one:
            one["allOf"] = [*one.get("allOf", []), {"anyOf": one.pop("anyOf")}]
        one = {**one, "type": _type(one), "description": one.get("description", "")}
        inputs[key] = one if key in required else {**one, "nullable": True}
    return inputs


def _inlined(schema: Any, definitions: Definitions, above: frozenset[str]) -> Any:
    """The schema with each reference replaced by what it refers to; a reference to itself by anything."""
    definitions.step()
    if isinstance(cast("object", schema), list):
        return [_inlined(one, definitions, above) for one in schema]
    if not isinstance(cast("object", schema), dict):
        return schema
    given: dict[str, Any] = schema
    if "$ref" in given:
        name = target(given)
        beside = {key: value for key, value in given.items() if key != "$ref"}
        if name in above:
            return beside
        return _inlined(cast("dict[str, Any]", definitions.named[name]) | beside, definitions, above | {name})
    return {key: _inlined(value, definitions, above) for key, value in given.items()}


def _type(schema: Mapping[str, Any]) -> str | list[str]:
    """The types of a schema's values: one, or a list."""
    types = types_of(schema)
    if types is None and "const" in schema:
        schema = {"enum": [schema["const"]]}
    if types is None and "enum" in schema:
        types = [_NAMES.get(type(value), "object") for value in cast("list[object]", schema["enum"])]
    if types is None:
        of_parts = [_type(one) for key in ("anyOf", "oneOf") for one in schema.get(key, [])]
        for part in cast("list[dict[str, Any]]", schema.get("allOf", [])):
            of_parts += [_type(one) for one in part.get("anyOf", [])]
        types = [name for one in of_parts for name in ([one] if isinstance(one, str) else one)] or _ANY
    unique = list(dict.fromkeys(name for name in types if name in _KNOWN))
    if "number" in unique and "integer" not in unique and len(unique) > 1:
        unique.append("integer")  # in a list, smolagents takes no integer for a number
    return unique[0] if len(unique) == 1 else unique


def _parameters_of(inputs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The JSON Schema of smolagents' inputs."""
    properties = {
        key: {name: value for name, value in given.items() if name != "nullable" and (name, value) != ("type", "any")}
        for key, given in inputs.items()
    }
    for key, given in inputs.items():
        types = types_of(properties[key])
        if given.get("nullable") and types is not None:
            properties[key]["type"] = [*types, "null"]
    required = [key for key, given in inputs.items() if not given.get("nullable")]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
