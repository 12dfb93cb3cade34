"""LangChain and LangGraph: a session's tools as LangChain tools, and a LangChain tool as a tool that runs in a cell.

    agent = create_agent(model, tools=await to_langchain_tools(session), checkpointer=InMemorySaver())

Needs the extra `[langchain]`.
"""

from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Literal, Unpack, cast

from langchain_core.callbacks import adispatch_custom_event
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.config import get_stream_writer
from langgraph.types import interrupt
from pydantic import PrivateAttr

from toolcell.adapters.result_forms import blocks_of, in_text, text_of
from toolcell.dispatch.call_context import OnProgress
from toolcell.errors import UsageError
from toolcell.session import Session
from toolcell.store.approvals import ApprovalRequest, Approved, Denied
from toolcell_tools.content import AudioBlock, Content, ImageBlock
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.definition import Tool
from toolcell_tools.failures import ToolFailure
from toolcell_tools.options import DynamicOptions
from toolcell_tools.result import ToolResult

from .foreign import cell_function, cell_tool, found
from .session_calls import ApprovalNeeded, SessionCalls, question_data

__all__ = ["LangChainSessionTool", "from_langchain", "to_langchain_tool", "to_langchain_tools", "with_interrupts"]


async def to_langchain_tools(session: Session) -> "list[LangChainSessionTool]":
    """The tools that the session may use now, as LangChain tools. Raises ToolsetError."""
    calls = SessionCalls(session)
    return [LangChainSessionTool.of(calls, one) for one in await calls.declarations()]


async def to_langchain_tool(session: Session, name: str) -> "LangChainSessionTool":
    """One tool of the session, as `to_langchain_tools` makes it. Raises UsageError if there is none."""
    calls = SessionCalls(session)
    return LangChainSessionTool.of(calls, await calls.declaration(name))


class LangChainSessionTool(BaseTool):
    """A tool of a session. Made by `to_langchain_tool` and `to_langchain_tools`.

    - An error is a ToolMessage of status "error". Otherwise its content is the output, with pictures as content
      blocks, and its artifact is the ToolResult.
    - A call that needs approval is an interrupt of the graph, which therefore has a checkpointer. Its value is the
      HITLRequest of HumanInTheLoopMiddleware, with the supervisor's request under "toolcell". Resume with a
      HITLResponse or one decision: approve, edit or reject. Outside a graph, the call is an error.
    - Progress goes to the graph's custom stream, as `{"toolcell_progress": {"tool", "call_id", "message",
      "fraction"}}`, and to custom events of that name.
    - `ainvoke` works on any event loop. `invoke` works in any thread but that of the session's loop, which it would
      block: `await asyncio.to_thread(agent.invoke, …)`.
    """

    args_schema: Any = None
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True
    _calls: SessionCalls = PrivateAttr()

    @classmethod
    def of(cls, calls: SessionCalls, declaration: ToolDeclaration) -> "LangChainSessionTool":
        """The LangChain tool of this declaration."""
        made = cls(
            name=declaration.name,
            description=declaration.description,
            args_schema=declaration.parameters_schema,
            return_direct=declaration.return_direct,
            metadata={"toolcell_version": declaration.version, "toolcell_tier": declaration.tier.value},
        )
        made._calls = calls
        return made

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as one positional value, so that none of their names means anything to Python."""
        given = self._parse_input(tool_input, tool_call_id)
        return (given, tool_call_id), {}

    def _run(self, *args: Any, **kwargs: Any) -> tuple[Any, ToolResult]:
        instead = "Use ainvoke or astream, or another thread: await asyncio.to_thread(agent.invoke, …)."
        return self._calls.loop.wait(lambda _: self._arun(*args, **kwargs), instead=instead)

    async def _arun(self, *args: Any, **kwargs: Any) -> tuple[Any, ToolResult]:
        arguments, call_id = cast("tuple[dict[str, Any], str | None]", args)
        result = await with_interrupts(
            self._calls, self.name, arguments, call_id=call_id, on_progress=_reporter(self.name, call_id)
        )
        return _content(result), result


async def with_interrupts(
    calls: SessionCalls,
    name: str,
    arguments: dict[str, Any],
    *,
    call_id: str | None = None,
    on_progress: OnProgress | None = None,
    timeout: float | None = None,
) -> ToolResult:
    """Make a call; if it needs approval, interrupt the graph first. Raises ToolException outside a graph."""
    request = await calls.question(name, arguments, call_id=call_id or "")
    answer: Approved | Denied | None = None
    while True:
        if request is not None:
            answer = _decision_of_a_person(request)
        try:
            return await calls.call(
                name, arguments, call_id=call_id, answer=answer, on_progress=on_progress, timeout=timeout
            )
        except ApprovalNeeded as needed:
            request = needed.request


def _reporter(tool: str, call_id: str | None) -> OnProgress:
    """A function that reports progress to the stream and to the callbacks of the present context."""
    config, context = ensure_config(), copy_context()
    try:
        write = get_stream_writer()
    except (KeyError, RuntimeError):  # no graph runs
        write = None

    async def report(message: str, fraction: float | None) -> None:
        data = {"tool": tool, "call_id": call_id, "message": message, "fraction": fraction}
        if write is not None:
            context.run(write, {"toolcell_progress": data})
        await adispatch_custom_event("toolcell_progress", data, config=config)

    return report


def _decision_of_a_person(request: ApprovalRequest) -> Approved | Denied:
    """Interrupt the graph; when it goes on, the answer. Raises ToolException outside a graph."""
    value = {
        "action_requests": [{"name": request.tool, "args": dict(request.arguments), "description": request.text}],
        "review_configs": [{"action_name": request.tool, "allowed_decisions": ["approve", "edit", "reject"]}],
        "toolcell": question_data(request),
    }
    try:
        said: object = interrupt(value)
    except (KeyError, RuntimeError) as error:  # LangGraph has no error of its own for a call outside a graph
        raise ToolException(
            f"{ApprovalNeeded(request)} Nobody can be asked here: the tool does not run in a graph with a checkpointer."
        ) from error
    return _answer(said, request.tool)


def _answer(said: Any, tool: str) -> Approved | Denied:
    """The answer of a HITLResponse or of one decision. Anything else is a denial."""
    match said:
        case {"decisions": [decision]}:
            return _answer(decision, tool)
        case {"type": "approve"}:
            return Approved()
        case {"type": "edit", "edited_action": {"name": name, "args": dict()}} if name == tool:
            return Approved(said["edited_action"]["args"])
        case {"type": "reject"}:
            return Denied(said.get("message") or f"A person has rejected the call of {tool!r}. Do not repeat it.")
        case _:
            return Denied(f"The call of {tool!r} was not approved: the answer is neither approve, edit nor reject.")


def _content(result: ToolResult) -> Any:
    """The content of the ToolMessage: a text, or a list of content blocks. Raises ToolException for an error."""
    if result.is_error:
        raise ToolException(result.for_model())
    text, blocks = text_of(result), list(blocks_of(result))
    if not blocks:
        return text
    return [*([{"type": "text", "text": text}] if text else []), *map(_block, blocks)]


def _block(block: Content) -> dict[str, Any]:
    if isinstance(block, ImageBlock):
        return {"type": "image", "base64": block.data, "mime_type": block.mime_type}
    if isinstance(block, AudioBlock):  # a ToolMessage takes no block of type "audio"
        return {"type": "file", "base64": block.data, "mime_type": block.mime_type}
    return {"type": "text", "text": in_text(block)}


def from_langchain(tool: BaseTool | str, **options: Unpack[DynamicOptions]) -> Tool[..., Any]:
    """A LangChain tool, or its import path, as a tool that runs in a cell, with its schema, name and description.

    If the tool wraps a function, the cell runs the function without LangChain. Any other tool is sent by value: what it
    holds must pickle, a client or a key goes to the cell too, and each new cell imports LangChain, which takes about
    half a second. A ToolException is an ExecutionError. Raises UsageError if LangGraph injects arguments, because the
    graph's state stays in its process. `options` are those of `dynamic_tool`.
    """
    given = found(tool)
    if not isinstance(given, BaseTool):
        raise UsageError(f"{given!r} is no LangChain tool. Decorate a function with langchain_core.tools.tool.")
    parameters = _schema(given.tool_call_schema)
    injected = sorted(_names(_schema(given.get_input_schema())) - _names(parameters))
    if injected:
        raise UsageError(
            f"The LangChain tool {given.name!r} has arguments that the graph injects ({', '.join(injected)}), and no "
            "cell has them. Make a toolcell tool of it: ctx.values of ToolContext crosses calls."
        )
    fn = _function_of(given)
    if fn is not None:
        return cell_function(fn, name=given.name, description=given.description, parameters=parameters, **options)
    return cell_tool(tool, _invoke, name=given.name, description=given.description, parameters=parameters, **options)


def _function_of(tool: BaseTool) -> Callable[..., Any] | None:
    """The function that a tool only wraps, so that a cell need not import LangChain."""
    if type(tool) is not StructuredTool or tool.response_format != "content":
        return None
    return tool.func or tool.coroutine


def _schema(model: Any) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments, which LangChain has as one or as a pydantic model."""
    schema: Any = model.model_json_schema() if hasattr(model, "model_json_schema") else model
    return cast("dict[str, Any]", schema)


def _names(schema: dict[str, Any]) -> set[str]:
    return set(schema.get("properties", {}))


async def _invoke(tool: Any, arguments: dict[str, Any]) -> Any:
    """Invoke the tool in a cell."""
    tool.handle_tool_error = tool.handle_validation_error = False  # the supervisor tells the model
    try:
        return await tool.ainvoke(arguments)
    except ToolException as error:
        raise ToolFailure(str(error)) from error
