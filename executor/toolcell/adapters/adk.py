"""Google ADK: a session's tools as a toolset, and an ADK tool as a tool that runs in a cell.

    agent = LlmAgent(name="helper", model=model, tools=[AdkToolset(session)])

Needs the extra `[adk]`.
"""

from collections.abc import Callable, Mapping
from inspect import isasyncgenfunction, isgeneratorfunction, signature
from typing import Any, Unpack, cast

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset, ToolPredicate
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.tools.tool_context import ToolContext as AdkContext
from google.adk.utils.context_utils import find_context_parameter
from google.genai import types

from toolcell.adapters.result_forms import blocks_of, in_text, object_of
from toolcell.errors import UsageError
from toolcell.session import Session
from toolcell.store.approvals import ApprovalRequest, Approved, Denied
from toolcell_tools.content import AudioBlock, Content, ImageBlock
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.dynamic import DynamicTool
from toolcell_tools.options import DynamicOptions
from toolcell_tools.result import ToolResult

from .adk_in_cell import returned, run
from .foreign import cell_tool, function_runner, located, returned_schema
from .session_calls import ApprovalNeeded, SessionCalls, question_data

__all__ = ["AdkTool", "AdkToolset", "OnAdkProgress", "from_adk"]

_RUN_FUNCTION = function_runner("func", "google.genai", f"{returned.__module__}:{returned.__name__}")
OnAdkProgress = Callable[[AdkContext, str, float | None], None]
"""Called with ADK's context of the call, the tool's message, and the fraction done (0 to 1) or None."""


class AdkToolset(BaseToolset):
    """All tools of a session, for `LlmAgent(tools=[AdkToolset(session)])`.

    A call that needs approval becomes ADK's `adk_request_confirmation`: its hint is `ApprovalRequest.text`, its
    payload the whole request. A confirmation's payload may be `{"arguments": {…}}`, with other arguments to run, or
    `{"message": "…"}`, with words for the model. `on_progress` gets the progress of every call, for which ADK has no
    place of its own. `closes_session`: the runner's `close` closes the session too.
    """

    def __init__(
        self,
        session: Session,
        *,
        tool_filter: ToolPredicate | list[str] | None = None,
        tool_name_prefix: str | None = None,
        on_progress: OnAdkProgress | None = None,
        closes_session: bool = False,
    ) -> None:
        super().__init__(tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)
        self._calls = SessionCalls(session)
        self._on_progress = on_progress
        self._closes_session = closes_session

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The tools that the session may use now. ADK asks once per invocation."""
        tools = [AdkTool(self._calls, one, self._on_progress) for one in await self._calls.declarations()]
        return [tool for tool in tools if self._is_tool_selected(tool, readonly_context)]

    async def close(self) -> None:
        """Close the session, if this toolset is to. The runner calls it."""
        if self._closes_session:
            await self._calls.loop.run(lambda _: self._calls.session.close())


class AdkTool(BaseTool):
    """One tool of a session. Made by `AdkToolset`."""

    def __init__(
        self, calls: SessionCalls, declaration: ToolDeclaration, on_progress: OnAdkProgress | None = None
    ) -> None:
        super().__init__(
            name=declaration.name, description=declaration.description, is_long_running=declaration.long_running
        )
        self._calls = calls
        self._declared = declaration
        self._on_progress = on_progress

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=self._declared.parameters_schema,
            response_json_schema=self._declared.output_schema,
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: AdkContext) -> dict[str, Any]:
        """Make the call, or request its confirmation. An error is `{"error": {…}}`, as the model gets it."""
        name, id, confirmation = self._declared.name, tool_context.function_call_id, tool_context.tool_confirmation
        if confirmation is None:
            request = await self._calls.question(name, args, call_id=id or "")
            if request is not None:
                return _confirmation_requested(tool_context, request)
        try:
            result = await self._calls.call(
                name,
                args,
                call_id=id,
                answer=None if confirmation is None else _answer(confirmation),
                on_progress=self._progress_of(tool_context),
            )
        except ApprovalNeeded as needed:
            return _confirmation_requested(tool_context, needed.request)
        if self._declared.return_direct and not result.is_error:
            tool_context.actions.skip_summarization = True
        return _response(result)

    def _progress_of(self, context: AdkContext) -> Callable[[str, float | None], None] | None:
        told = self._on_progress
        if told is None:
            return None
        return lambda message, fraction: told(context, message, fraction)

    def _detect_error_in_response(self, response: Any) -> str | None:
        """The kind of error, for ADK's telemetry."""
        error = cast("dict[str, Any]", response).get("error") if isinstance(response, dict) else None
        return str(cast("dict[str, Any]", error).get("kind")) if isinstance(error, dict) else None


def _confirmation_requested(context: AdkContext, request: ApprovalRequest) -> dict[str, Any]:
    context.request_confirmation(hint=request.text, payload=question_data(request))
    context.actions.skip_summarization = True  # otherwise ADK asks the model, which calls the tool again
    return {"error": "This tool call requires confirmation, please approve or reject."}


def _answer(confirmation: ToolConfirmation) -> Approved | Denied:
    given = confirmation.payload
    payload = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    if not confirmation.confirmed:
        return Denied(str(payload.get("message") or "The user rejected this tool call."))
    arguments = payload.get("arguments")
    return Approved(cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None)


def _response(result: ToolResult) -> dict[str, Any]:
    """The function response: the output, or `{"result": …}` around one that is no object, and media as ADK's parts."""
    response = object_of(result)
    parts = [] if result.is_error else [_part(block) for block in blocks_of(result)]
    if not parts:
        return response
    if response == {"result": None}:
        response = {}
    return {**response, "content": parts} if "content" not in response else {"result": response, "content": parts}


def _part(block: Content) -> "types.Part | str":
    if isinstance(block, ImageBlock | AudioBlock):
        return types.Part.from_bytes(data=block.to_bytes(), mime_type=block.mime_type)
    return in_text(block)


def from_adk(
    tool: BaseTool | str,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[DynamicOptions],
) -> DynamicTool:
    """An ADK tool that runs in cells: the object, or its import path "module:name".

    Of a FunctionTool the cell runs the function, and loads ADK only if the function does. `require_confirmation=True`
    becomes `requires_approval=True`. A result of `{"error": …}` and nothing else becomes a failure; any other is held
    against the declared response, or the function's annotation. `options` are those of `dynamic_tool`; without `needs`,
    the tool gets no capability. Raises UsageError for a tool that works on objects of ADK's process.
    """
    one, by_path = located(tool)
    if not isinstance(one, BaseTool):
        raise UsageError(
            f"{tool!r} is no tool of ADK but a {type(one).__name__}. Pass a BaseTool, or FunctionTool(fn)."
        )
    declared = one._get_declaration()  # pyright: ignore[reportPrivateUsage] - every tool of ADK overrides it
    if declared is None:
        raise UsageError(f"The tool {one.name!r} has no declaration: the model's provider runs it. Leave it in ADK.")
    if isinstance(one, FunctionTool) and _needs_approval(one, decided="requires_approval" in options):
        options.setdefault("requires_approval", True)
    options.setdefault("long_running", one.is_long_running)
    parameters = None if declared.parameters is None else _as_json_schema(declared.parameters)
    return cell_tool(
        tool if by_path else one.func if isinstance(one, FunctionTool) else one,
        _RUN_FUNCTION if isinstance(one, FunctionTool) else run,
        name=name or one.name,
        description=one.description if description is None else description,
        parameters=declared.parameters_json_schema or parameters or {"type": "object", "properties": {}},
        results=_of_results(one, declared),
        **options,
    )


def _as_json_schema(schema: types.Schema) -> dict[str, Any]:
    return schema.json_schema.model_dump(exclude_none=True, mode="json", by_alias=True)


def _of_results(tool: BaseTool, declared: types.FunctionDeclaration) -> Mapping[str, Any] | None:
    """The schema of the tool's results, if there is one. A function's is made of its annotation, because ADK leaves it
    out of the declaration for some models."""
    if isinstance(tool, FunctionTool):
        return returned_schema(tool.func, types.Part)
    if declared.response_json_schema is not None:
        return cast("Mapping[str, Any]", declared.response_json_schema)
    return None if declared.response is None else _as_json_schema(declared.response)


def _needs_approval(tool: FunctionTool, *, decided: bool) -> bool:
    """Whether the tool's own option asks for confirmation. Raises UsageError if the tool cannot run in a cell."""
    if find_context_parameter(tool.func) or "tool_context" in signature(tool.func).parameters:
        raise UsageError(
            f"The tool {tool.name!r} takes ADK's tool_context, which is an object of your program and not in a cell. "
            "Write it as a toolcell tool with a `ctx: ToolContext`, or leave it in ADK."
        )
    if isgeneratorfunction(tool.func) or isasyncgenfunction(tool.func):
        raise UsageError(f"The tool {tool.name!r} is a generator, and a cell sends one result. Return a list.")
    required: object = getattr(tool, "_require_confirmation", False)  # ADK has no public way to it
    if callable(required) and not decided:
        raise UsageError(
            f"A function decides whether the tool {tool.name!r} requires confirmation. Pass the function of the "
            "arguments as requires_approval=…, which runs in your program."
        )
    return required is True
