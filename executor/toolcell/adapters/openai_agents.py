"""OpenAI Agents SDK: a session's tools as FunctionTools, and a FunctionTool as a tool that runs in a cell.

    agent = Agent("helper", tools=await toolcell_function_tools(session))

Needs the extra `[openai-agents]`.
"""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Unpack, cast

from agents import FunctionTool, RunContextWrapper, ToolOutputFileContent, ToolOutputImage, ToolOutputText
from agents.exceptions import UserError
from agents.function_schema import function_schema
from agents.strict_schema import ensure_strict_json_schema
from agents.tool_context import ToolContext
from pydantic_core import from_json

from toolcell.adapters.result_forms import blocks_of, in_text, object_of, text_of
from toolcell.dispatch.call_context import OnProgress
from toolcell.errors import UsageError
from toolcell.session import Session
from toolcell.store.approvals import Approved
from toolcell_tools.content import AudioBlock, Content, ImageBlock
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.definition import Tool
from toolcell_tools.options import DynamicOptions
from toolcell_tools.result import ToolResult

from .foreign import cell_function, found
from .session_calls import ApprovalNeeded, SessionCalls

__all__ = ["from_openai_agents", "toolcell_function_tool", "toolcell_function_tools"]

_NO_CALL = "toolcell: no call has this id"


async def toolcell_function_tools(
    session: Session, *, on_progress: OnProgress | None = None, output_schemas: bool = False
) -> list[FunctionTool]:
    """The tools that the session may use now, as FunctionTools. Raises ToolsetError.

    - A call that needs approval is in `result.interruptions`; approve or reject it in `result.to_state()`. What runs
      are the arguments of the item. `approve(item, always_approve=True)` approves later calls of the tool too.
    - Errors are text for the model. Pictures and sound are structured outputs.
    - `on_progress(message, fraction)` gets the progress of the calls; the SDK has no place for it.
    - With `output_schemas`, tools whose results are strict objects have an `output_json_schema`, which only models of
      OpenAI's Responses API take. Their outputs are objects, so pictures and sound in them are lines of text.
    """
    calls = SessionCalls(session)
    return [_function_tool(calls, one, on_progress, output_schemas) for one in await calls.declarations()]


async def toolcell_function_tool(
    session: Session, name: str, *, on_progress: OnProgress | None = None, output_schemas: bool = False
) -> FunctionTool:
    """One tool of the session, as `toolcell_function_tools` makes it. Raises UsageError if there is none."""
    calls = SessionCalls(session)
    return _function_tool(calls, await calls.declaration(name), on_progress, output_schemas)


def _function_tool(
    calls: SessionCalls, declaration: ToolDeclaration, on_progress: OnProgress | None, output_schemas: bool
) -> FunctionTool:
    name = declaration.name
    schema = _strict(declaration.output_schema) if output_schemas else None

    async def needs_approval(ctx: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        return await calls.question(name, arguments, call_id=call_id) is not None

    async def invoke(ctx: ToolContext[Any], raw: str) -> Any:
        try:
            arguments = from_json(raw or "{}", allow_inf_nan=False)
        except ValueError as error:
            return _text("validation", f"The arguments are not JSON: {error}")
        if not isinstance(arguments, dict):
            return _text("validation", "The arguments are no JSON object.")
        given = cast("dict[str, Any]", arguments)
        answer = Approved() if ctx.is_tool_approved(name, ctx.tool_call_id) else None
        if answer is not None and ctx.is_tool_approved(name, _NO_CALL):  # approved for all calls of the tool
            await calls.question(name, given, call_id=ctx.tool_call_id)
        try:
            result = await calls.call(name, given, call_id=ctx.tool_call_id, answer=answer, on_progress=on_progress)
        except ApprovalNeeded as needed:
            return _text("permission_denied", str(needed))
        return _output(result) if schema is None else json.dumps(_object(result), ensure_ascii=False)

    return FunctionTool(
        name=name,
        description=declaration.description,
        params_json_schema=declaration.parameters_schema,
        on_invoke_tool=invoke,
        strict_json_schema=False,  # strict mode refuses open objects; the supervisor validates
        needs_approval=needs_approval,
        output_json_schema=schema,
    )


def _strict(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    """The schema in the SDK's strict form; None if it has none, because it is no object or an open one."""
    if schema is None or schema.get("type") != "object":
        return None
    try:
        return ensure_strict_json_schema(deepcopy(schema))
    except UserError:
        return None


def _object(result: ToolResult) -> dict[str, Any]:
    blocks = [] if result.is_error else [in_text(block) for block in blocks_of(result)]
    return object_of(result) | ({"content": blocks} if blocks else {})


def _text(kind: str, message: str) -> str:
    return json.dumps({"error": {"kind": kind, "message": message}})


def _output(result: ToolResult) -> Any:
    """The result as the SDK's output: a text, or a list with pictures and files."""
    text, blocks = text_of(result), list(blocks_of(result))
    if not blocks:
        return text
    return [*([ToolOutputText(text=text)] if text else []), *map(_block, blocks)]


def _block(block: Content) -> ToolOutputText | ToolOutputImage | ToolOutputFileContent:
    if isinstance(block, ImageBlock):
        return ToolOutputImage(image_url=f"data:{block.mime_type};base64,{block.data}")
    if isinstance(block, AudioBlock):
        kind = block.mime_type.partition("/")[2].partition(";")[0]
        return ToolOutputFileContent(file_data=block.data, filename=f"audio.{kind}")
    return ToolOutputText(text=in_text(block))


def from_openai_agents(tool: FunctionTool | str, **options: Unpack[DynamicOptions]) -> Tool[..., Any]:
    """A FunctionTool, or its import path, as a tool that runs in a cell, with its schema, name and description. The
    cell runs the function that `function_tool` decorates.

    Raises UsageError for a FunctionTool without such a function (made by hand, or of an agent), and for a function that
    takes the SDK's context, because the context stays in the agent's process. A tool with `needs_approval=True` needs
    the supervisor's approval. Results are held against the tool's output schema. `options` are those of `dynamic_tool`.
    """
    given = found(tool)
    if not isinstance(given, FunctionTool):
        raise UsageError(f"{given!r} is no FunctionTool. Hosted tools run at the provider; pass functions to toolcell.")
    fn = _decorated(given)
    if fn is None:
        raise UsageError(
            f"The FunctionTool {given.name!r} has no function that a cell could run: it was made by hand, or of an "
            "agent. Decorate the function with function_tool, or pass it to toolcell.tool."
        )
    if function_schema(fn, strict_json_schema=False).takes_context:
        raise UsageError(
            f"The FunctionTool {given.name!r} takes the SDK's context, which no cell has. Make a toolcell tool of it: "
            "ctx.config and ctx.values of ToolContext hold what a session gives its tools."
        )
    if callable(given.needs_approval):
        raise UsageError(
            f"The FunctionTool {given.name!r} decides about approval by a function of the SDK's context. Pass "
            "requires_approval=…, a function of the arguments."
        )
    if given.needs_approval:
        options.setdefault("requires_approval", True)
    return cell_function(
        fn,
        name=given.name,
        description=given.description,
        parameters=given.params_json_schema,
        results=given.output_json_schema,
        **options,
    )


def _decorated(tool: FunctionTool) -> Callable[..., Any] | None:
    """The function that `function_tool` has wrapped. The SDK keeps it on the function in its invoker, and has no public
    way to it."""
    invoke = getattr(tool.on_invoke_tool, "_invoke_tool_impl", tool.on_invoke_tool)
    found: object = getattr(invoke, "__agents_function_tool_wrapped_callable__", None)
    return found if callable(found) else None
