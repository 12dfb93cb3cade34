"""FastMCP: a session's tools in a server, and a FastMCP tool as a tool that runs in a cell.

    server = FastMCP("workshop", providers=[SessionProvider(session)])

Needs the extra `[fastmcp]`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from inspect import signature
from typing import Any, Unpack

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream
from fastmcp.server.context import Context
from fastmcp.server.dependencies import get_context, without_injected_parameters
from fastmcp.server.elicitation import AcceptedElicitation, parse_elicit_response_type
from fastmcp.server.providers import Provider
from fastmcp.tools.base import InputRequiredToolResult, Tool, ToolResult
from fastmcp.tools.function_tool import FunctionTool
from fastmcp.utilities.versions import VersionSpec
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, Field, PrivateAttr

from toolcell.errors import UsageError
from toolcell.session import Session
from toolcell.store.approvals import ApprovalRequest, Approved, Denied
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.dynamic import DynamicTool
from toolcell_tools.exports import Export, ModelCall, mcp
from toolcell_tools.exports.for_mcp import refused_arguments
from toolcell_tools.options import Annotations, DynamicOptions
from toolcell_tools.preview import printable
from toolcell_tools.result import ToolResult as CellResult

from .fastmcp_in_cell import returned, run
from .foreign import cell_tool, function_runner, located, read_only_claim
from .session_calls import ApprovalNeeded, SessionCalls

__all__ = ["FastMCPTool", "SessionProvider", "from_fastmcp"]

_RUN_FUNCTION = function_runner("fn", "fastmcp", f"{returned.__module__}:{returned.__name__}")
_APPROVAL = "toolcell_approval"
WORDS_CHARS = 500
MAX_QUEUED = 64
"""Progress messages of a call that wait for the client."""
Told = tuple[str, float | None]


class ElicitedApproval(BaseModel):
    """What a client's user answers."""

    approve: bool = Field(description="Whether the call may run.")
    reason: str = Field(default="", max_length=WORDS_CHARS, description="If not: what to tell the agent.")


class SessionProvider(Provider):
    """All tools of a session, for `FastMCP(…, providers=[…])` or `server.add_provider(…)`.

    All clients of the server share the session. With `elicit_approvals=True`, the client that makes a call is asked for
    its approval, by elicitation or an input-required result. Say so only if you trust the client as an approver.
    Otherwise the supervisor's approver or the session's channel is asked, and without one the call is denied.
    """

    def __init__(self, session: Session, *, elicit_approvals: bool = False) -> None:
        super().__init__()
        self._calls = SessionCalls(session)
        self._elicits = elicit_approvals
        self._tools: dict[str, FastMCPTool] = {}

    async def _list_tools(self) -> Sequence[Tool]:
        declared = await self._calls.declarations()
        self._tools = {one.name: FastMCPTool.of(self._calls, one, elicits=self._elicits) for one in declared}
        return list(self._tools.values())

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Tool | None:
        if name not in self._tools:
            await self._list_tools()
        return self._tools.get(name)


class FastMCPTool(Tool):
    """One tool of a session. Made by `SessionProvider`."""

    _calls: SessionCalls = PrivateAttr()
    _declaration: ToolDeclaration = PrivateAttr()
    _export: Export = PrivateAttr()
    _elicits: bool = PrivateAttr()

    @classmethod
    def of(cls, calls: SessionCalls, declaration: ToolDeclaration, *, elicits: bool) -> "FastMCPTool":
        """The tool with this declaration. With `elicits`, a call that needs approval asks its client."""
        export = mcp([declaration])
        (entry,) = export.tools
        made = cls(
            name=declaration.name,
            title=declaration.annotations.title,
            description=declaration.description,
            parameters=entry["inputSchema"],
            output_schema=entry.get("outputSchema"),
            annotations=mcp_types.ToolAnnotations.model_validate(entry["annotations"]),
            meta=entry["_meta"],
        )
        made._calls, made._declaration, made._export, made._elicits = calls, declaration, export, elicits
        return made

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Make the call in a cell of the session. A tool, a model or a sandbox never makes it raise."""
        refused = refused_arguments(self._declaration, arguments)
        if refused:
            return ToolResult(content=refused, is_error=True)
        context = get_context()
        call_id = f"{context.session_id}/{context.request_id}"
        answer = _answered(context) if self._elicits else None
        request: ApprovalRequest | None = None
        if self._elicits and answer is None:
            request = await self._calls.question(self.name, arguments, call_id=call_id)
        while True:
            if request is not None:
                if _asks_by_result(context):
                    return InputRequiredToolResult(_input_required(request))
                answer = await _elicited(context, request)
            result = await self._call(context, arguments, call_id, answer)
            if isinstance(result, CellResult):
                return self._result(result)
            request = result  # the answer was for another call, or a hook has changed the arguments

    async def _call(
        self, context: Context, arguments: dict[str, Any], call_id: str, answer: Approved | Denied | None
    ) -> CellResult | ApprovalRequest:
        """Make the call, and send its progress from a task of the request, which knows the client."""
        send, receive = anyio.create_memory_object_stream[Told](MAX_QUEUED)

        def told(message: str, fraction: float | None) -> None:
            with suppress(anyio.WouldBlock):  # the client is slower than the tool, and later progress supersedes it
                send.send_nowait((message, fraction))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_report, context, receive)
            with send:
                if not self._elicits:
                    return await self._calls.direct(self.name, arguments, call_id=call_id, on_progress=told)
                try:
                    return await self._calls.call(
                        self.name, arguments, call_id=call_id, answer=answer, by_form=True, on_progress=told
                    )
                except ApprovalNeeded as needed:
                    return needed.request
        raise AssertionError("the task group raises, or the call has returned")

    def _result(self, result: CellResult) -> ToolResult:
        """The result for the client. FastMCP's clients read their `data` from structured content, so every output is
        in it; any that is no object is wrapped, as the meta says."""
        rendered = self._export.result_for(ModelCall(self.name, {}, result.call_id), result)
        output: object = result.output
        if not result.is_error and output is not None:
            structured = rendered.setdefault("structuredContent", output if isinstance(output, dict) else None)
            if structured is not output:
                rendered |= {"structuredContent": {"result": output}, "_meta": {"fastmcp": {"wrap_result": True}}}
        return ToolResult.from_mcp_result(mcp_types.CallToolResult.model_validate(rendered))


async def _report(context: Context, progress: MemoryObjectReceiveStream[Told]) -> None:
    """Send progress to the client. MCP wants numbers that grow: progress without a fraction counts messages."""
    async with progress:
        number = 0
        async for message, fraction in progress:
            number += 1
            if fraction is None:
                await context.report_progress(number, message=message)
            else:
                await context.report_progress(fraction, 1.0, message)


def _asks_by_result(context: Context) -> bool:
    """Whether the server cannot send requests: since the protocol of 2026-07-28, and in background tasks."""
    request = context.request_context
    return context.is_background_task or (request is not None and request.protocol_version in MODERN_PROTOCOL_VERSIONS)


def _input_required(request: ApprovalRequest) -> mcp_types.InputRequiredResult:
    schema = parse_elicit_response_type(ElicitedApproval).schema
    asked = mcp_types.ElicitRequestFormParams(message=request.for_form().text, requested_schema=schema)
    return mcp_types.InputRequiredResult(input_requests={_APPROVAL: mcp_types.ElicitRequest(params=asked)})


def _answered(context: Context) -> Approved | Denied | None:
    """The answer that a client has sent with its call, to an earlier input-required result."""
    given = (context.input_responses or {}).get(_APPROVAL)
    if not isinstance(given, mcp_types.ElicitResult):
        return None
    content = (given.content or {}) if given.action == "accept" else {}
    return Approved() if content.get("approve") is True else _denied(str(content.get("reason") or ""))


def _denied(reason: str) -> Denied:
    words = printable(reason.strip()[:WORDS_CHARS])
    return Denied(f"The client's user did not approve the call{f': {words}' if words else '.'}")


async def _elicited(context: Context, request: ApprovalRequest) -> Approved | Denied:
    try:
        answer = await context.elicit(request.for_form().text, ElicitedApproval)
    except MCPError:
        return Denied("The call needs approval, and the client cannot ask its user: it does not support elicitation.")
    if not isinstance(answer, AcceptedElicitation):
        return _denied("")
    return Approved() if answer.data.approve else _denied(answer.data.reason)


def from_fastmcp(
    tool: Tool | Callable[..., Any] | str,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[DynamicOptions],
) -> DynamicTool:
    """A FastMCP tool, a function with the decorator `tool`, or the import path of one, as a tool that runs in a cell.

    Of a function the cell runs the function, and loads FastMCP only if the function does. Any other tool, such as a
    transformed one, is sent whole. The tool's timeout and annotations hold. `options` are those of `dynamic_tool`;
    without `needs`, the tool gets no capability. Raises UsageError for a function that takes FastMCP's Context or
    another dependency.
    """
    given, by_path = located(tool)
    if not isinstance(given, Tool) and not callable(given):
        raise UsageError(f"{tool!r} is no tool of FastMCP but a {type(given).__name__}. Use Tool.from_function(fn).")
    one = given if isinstance(given, Tool) else Tool.from_function(given)
    if isinstance(one, FunctionTool):
        _refuse_dependencies(one)
    hints = one.annotations
    if hints is not None:
        options.setdefault(
            "annotations",
            Annotations(
                title=hints.title,
                read_only=read_only_claim(name or one.name, hints.read_only_hint, options),
                destructive=bool(hints.destructive_hint),
                idempotent=bool(hints.idempotent_hint),
                open_world=bool(hints.open_world_hint),
            ),
        )
    if one.timeout is not None:
        options.setdefault("timeout", one.timeout)
    schema = one.output_schema
    if schema is not None and schema.get("x-fastmcp-wrap-result"):
        schema = {**schema["properties"]["result"], **({"$defs": schema["$defs"]} if "$defs" in schema else {})}
    is_function = isinstance(one, FunctionTool)
    return cell_tool(
        tool if by_path else one.fn if isinstance(one, FunctionTool) else one,
        _RUN_FUNCTION if is_function else run,
        name=name or one.name,
        description=(one.description or "") if description is None else description,
        parameters=one.parameters,
        results=schema,
        **options,
    )


def _refuse_dependencies(tool: FunctionTool) -> None:
    injected = signature(tool.fn).parameters.keys() - signature(without_injected_parameters(tool.fn)).parameters.keys()
    if injected:
        raise UsageError(
            f"The tool {tool.name!r} takes {min(injected)!r}, which FastMCP injects from its request, and no cell has "
            "one. Write it as a toolcell tool with a `ctx: ToolContext`, or leave it in FastMCP."
        )
