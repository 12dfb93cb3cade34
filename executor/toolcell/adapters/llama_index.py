"""LlamaIndex: a session's tools for an agent, and a LlamaIndex tool as a tool that runs in a cell.

    agent = FunctionAgent(tools=await to_llama_index_tools(session), llm=llm)

Needs the extra `[llama-index]`.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack, cast

from llama_index.core.agent.workflow import ToolCall
from llama_index.core.base.llms.types import AudioBlock as LlamaAudio
from llama_index.core.base.llms.types import ContentBlock
from llama_index.core.base.llms.types import ImageBlock as LlamaImage
from llama_index.core.base.llms.types import TextBlock as LlamaText
from llama_index.core.tools import BaseTool, FunctionTool, ToolMetadata, ToolOutput
from llama_index.core.workflow import Context
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent
from workflows.runtime.types.results import StepWorkerStateContextVar  # pyright: ignore[reportMissingTypeStubs]

from toolcell.adapters.result_forms import blocks_of, in_text, text_of
from toolcell.errors import UsageError
from toolcell.session import Session
from toolcell.store.approvals import ApprovalRequest, Approved, Denied
from toolcell_tools.content import AudioBlock, ImageBlock
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.dynamic import DynamicTool
from toolcell_tools.errors import ToolFailed
from toolcell_tools.options import DynamicOptions
from toolcell_tools.result import ToolResult

from .foreign import cell_tool, function_runner, located
from .llama_index_in_cell import returned, run
from .session_calls import ApprovalNeeded, SessionCalls, question_data

__all__ = ["CellProgressEvent", "LlamaIndexTool", "WholeSchema", "from_llama_index", "to_llama_index_tools"]

_CONTEXT = "toolcell_workflow_context"
_RUN_FUNCTION = function_runner("real_fn", "llama_index.core", f"{returned.__module__}:{returned.__name__}")


class CellProgressEvent(Event):
    """Progress of a tool, in the stream of the agent's events. `fraction` is from 0 to 1, or None."""

    tool_name: str
    tool_id: str | None
    message: str
    fraction: float | None


@dataclass
class WholeSchema(ToolMetadata):
    """A tool's metadata with its JSON Schema as it is: references, bounds and all."""

    schema: dict[str, Any] = field(default_factory=dict[str, Any])

    def get_parameters_dict(self) -> dict[str, Any]:
        """The schema of the tool's parameters."""
        return self.schema

    @property
    def fn_schema_str(self) -> str:
        """The schema as JSON, for agents that have it in their prompt."""
        return json.dumps(self.schema, ensure_ascii=False)


async def to_llama_index_tools(session: Session) -> list[BaseTool | Callable[..., Any]]:
    """The tools that the session may use now. Raises ToolsetError.

    - A call that needs approval is an InputRequiredEvent in the agent's event stream, with `prefix` (the question),
      `request_id` and `request` (the supervisor's request as data). Answer it with
      `HumanResponseEvent(response="yes", request_id=…)`. Any other response denies the call, and is told to the model.
      `arguments={…}` in the event replaces the call's arguments. Outside of an agent nobody is asked.
    - Errors are outputs with `is_error`. Pictures and sound are blocks. Progress is a CellProgressEvent.
    - `handler.cancel_run()` ends the calls in their cells.
    """
    calls = SessionCalls(session)
    return [LlamaIndexTool(calls, one) for one in await calls.declarations()]


class LlamaIndexTool(FunctionTool):
    """One tool of a session. Made by `to_llama_index_tools`.

    It is a FunctionTool because LlamaIndex gives the workflow's context to no other kind of tool.
    """

    def __init__(self, calls: SessionCalls, declaration: ToolDeclaration) -> None:
        async def called(toolcell_workflow_context: Context, **arguments: Any) -> ToolOutput:
            return await self.acall(**arguments, **{_CONTEXT: toolcell_workflow_context})

        metadata = WholeSchema(
            name=declaration.name,
            description=declaration.description,
            fn_schema=None,
            return_direct=declaration.return_direct,
            schema=declaration.parameters_schema,
        )
        super().__init__(async_fn=called, metadata=metadata)
        self._names: list[str] = list(declaration.parameters_schema.get("properties", {}))
        self._calls = calls

    def __call__(self, *args: Any, **kwargs: Any) -> ToolOutput:
        return self.call(*args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Make the call from another thread than that of the session's event loop. Raises UsageError in that one."""
        return self._calls.loop.wait(lambda _: self.acall(*args, **kwargs), instead="Use `await tool.acall(…)`.")

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Make the call in a cell of the session. A tool, a model or a sandbox never makes it raise."""
        context: Context | None = kwargs.pop(_CONTEXT, None)
        arguments = dict(zip(self._names, args, strict=False)) | kwargs
        return self._output(arguments, await self._result(context, arguments))

    async def _result(self, context: Context | None, arguments: Mapping[str, Any]) -> ToolResult:
        name = self.metadata.get_name()
        if context is None:
            return await self._calls.direct(name, arguments)
        call_id = _tool_id(name)

        def report(message: str, fraction: float | None) -> None:
            context.write_event_to_stream(
                CellProgressEvent(tool_name=name, tool_id=call_id, message=message, fraction=fraction)
            )

        request = await self._calls.question(name, arguments, call_id=call_id or "")
        while True:
            answer = None if request is None else await _answer(context, request)
            try:
                return await self._calls.call(name, arguments, call_id=call_id, answer=answer, on_progress=report)
            except ApprovalNeeded as needed:  # the answer was for an equal call, or a hook has changed the arguments
                request = needed.request

    def _output(self, arguments: dict[str, Any], result: ToolResult) -> ToolOutput:
        text = text_of(result)
        blocks: list[ContentBlock] = [LlamaText(text=text)] if text else []
        for block in blocks_of(result):
            if isinstance(block, ImageBlock):
                blocks.append(LlamaImage(image=block.data.encode(), image_mimetype=block.mime_type))
            elif isinstance(block, AudioBlock):
                kind = block.mime_type.partition("/")[2].partition(";")[0]
                blocks.append(LlamaAudio(audio=block.data.encode(), format=kind))
            else:
                blocks.append(LlamaText(text=in_text(block)))
        return ToolOutput(
            tool_name=self.metadata.get_name(),
            blocks=blocks,
            raw_input=arguments,
            raw_output=result.told_error() if result.is_error else result.output,
            is_error=result.is_error,
            exception=None if result.error is None else ToolFailed(result.error),
        )


def _tool_id(name: str) -> str | None:
    """The id of the call that the agent's current step makes. LlamaIndex does not pass it to tools."""
    step = StepWorkerStateContextVar.get(None)
    event = None if step is None else step.event
    return event.tool_id if isinstance(event, ToolCall) and event.tool_name == name else None


async def _answer(context: Context, request: ApprovalRequest) -> Approved | Denied:
    """Ask in the agent's event stream. The step is suspended, and runs again when the answer comes: then the request is
    still the same, which is why the wait ends a little before the request does."""
    wait_s = max(0.0, request.expires_at - time.time()) * 0.95
    asked = cast("Any", InputRequiredEvent)(  # an event takes any names
        prefix=f"{request.text}\nAnswer yes or no: ",
        request_id=request.id,
        request=question_data(request),
    )
    try:
        event = await context.wait_for_event(
            HumanResponseEvent, waiter_event=asked, requirements={"request_id": request.id}, timeout=wait_s
        )
    except TimeoutError:
        return Denied(f"Nobody approved the call within {wait_s:.4g} s.")
    response, arguments = event.get("response", ""), event.get("arguments")
    if str(response).strip().lower() != "yes":
        return Denied(str(response) if str(response).strip().lower() not in ("", "no") else "")
    return Approved(cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None)


def from_llama_index(
    tool: BaseTool | str, *, name: str | None = None, description: str | None = None, **options: Unpack[DynamicOptions]
) -> DynamicTool:
    """A LlamaIndex tool, or its import path "module:name", as a tool that runs in a cell.

    Of a FunctionTool the cell runs the function, and loads LlamaIndex only if the function does. Any other tool, and
    one with callbacks or partial parameters, is sent whole. `options` are those of `dynamic_tool`; without `needs`, the
    tool gets no capability. Raises UsageError for a function that takes the workflow's Context.
    """
    one, by_path = located(tool)
    if not isinstance(one, BaseTool):
        raise UsageError(
            f"{tool!r} is no tool of LlamaIndex but a {type(one).__name__}. Use FunctionTool.from_defaults."
        )
    named = one.metadata.name
    if isinstance(one, FunctionTool) and one.requires_context:
        raise UsageError(
            f"The tool {named!r} takes the workflow's Context, which is an object of your program and not in a cell. "
            "Write it as a toolcell tool with a `ctx: ToolContext`, or leave it in LlamaIndex."
        )
    is_whole = not isinstance(one, FunctionTool) or any(
        getattr(one, part) for part in ("_callback", "_async_callback", "partial_params", "_field_defaults")
    )
    options.setdefault("return_direct", one.metadata.return_direct)
    return cell_tool(
        tool if by_path else one if is_whole else cast("FunctionTool", one).real_fn,
        run if is_whole else _RUN_FUNCTION,
        name=name or named or "tool",
        description=one.metadata.description if description is None else description,
        parameters=cast("dict[str, Any]", one.metadata.get_parameters_dict()),  # pyright: ignore[reportUnknownMemberType]
        **options,
    )
