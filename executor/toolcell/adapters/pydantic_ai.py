"""pydantic-ai: a session's tools as a toolset, and a pydantic-ai tool or function as a tool that runs in a cell.

    agent = Agent(model, toolsets=[toolcell_toolset(session)], output_type=[str, DeferredToolRequests])

Needs the extra `[pydantic-ai]`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Unpack, cast

from pydantic_ai import ApprovalRequired, CustomEvent, ModelRetry, RunContext, Tool, ToolFailed
from pydantic_ai.messages import BinaryContent, ToolReturn
from pydantic_ai.tools import AgentDepsT, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema
from typing_extensions import TypeIs

from toolcell.adapters.result_forms import blocks_of, in_text, value_of
from toolcell.errors import UsageError
from toolcell.session import Session
from toolcell.store.approvals import Approved
from toolcell_tools.content import AudioBlock, ImageBlock
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.definition import Tool as CellTool
from toolcell_tools.errors import ValidationError
from toolcell_tools.options import DynamicOptions
from toolcell_tools.result import ToolResult

from .foreign import cell_function, found
from .session_calls import ApprovalNeeded, SessionCalls, question_data

__all__ = ["PydanticAIToolset", "ToolProgressEvent", "from_pydantic_ai", "toolcell_toolset"]

_ANY_ARGUMENTS = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
"""The supervisor validates arguments against the tool's schema."""


@dataclass(kw_only=True)
class ToolProgressEvent(CustomEvent, name="toolcell_progress"):
    """Progress of a tool, in the run's event stream. `fraction` is from 0 to 1."""

    message: str = ""
    fraction: float | None = None


def toolcell_toolset(session: Session, *, id: str = "toolcell") -> "PydanticAIToolset[Any]":
    """The tools of a session as a toolset. Each run step asks the session for its tools anew.

    An agent whose tools may need approval has `DeferredToolRequests` among its output types.
    """
    return PydanticAIToolset(session, id=id)


class PydanticAIToolset(AbstractToolset[AgentDepsT], Generic[AgentDepsT]):
    """A session's tools. Made by `toolcell_toolset`.

    - Invalid arguments are a ModelRetry, which counts against the tool's retries. Any other error is a ToolFailed.
    - A call that needs approval is an ApprovalRequired. Its metadata is the supervisor's request, with a preview. What
      runs are the approved arguments: the call's own, or `ToolApproved(override_args=…)`.
    - Progress is a ToolProgressEvent in the run's event stream.
    - The metadata of a ToolReturnPart is the ToolResult without the parts that the model gets.
    """

    def __init__(self, session: Session, *, id: str = "toolcell") -> None:
        self._id = id
        self._calls = SessionCalls(session)

    @property
    def id(self) -> str:
        """The name by which durable execution knows the toolset; other toolsets of the agent have other names."""
        return self._id

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """The tools that the session may use now."""
        return {
            one.name: ToolsetTool(
                toolset=self,
                tool_def=_definition(one),
                max_retries=ctx.max_retries,
                args_validator=_ANY_ARGUMENTS,
            )
            for one in await self._calls.declarations()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Make the call in a cell of the session."""
        call_id = ctx.tool_call_id or ""
        answer = Approved() if ctx.tool_call_approved else None
        if answer is None:
            request = await self._calls.question(name, tool_args, call_id=call_id)
            if request is not None:
                raise ApprovalRequired(question_data(request))

        async def report(message: str, fraction: float | None) -> None:
            await ctx.emit(ToolProgressEvent(message=message, fraction=fraction))

        try:
            result = await self._calls.call(name, tool_args, call_id=call_id or None, answer=answer, on_progress=report)
        except ApprovalNeeded as needed:
            raise ApprovalRequired(question_data(needed.request)) from None
        return _returned(result)


def _definition(declaration: ToolDeclaration) -> ToolDefinition:
    return ToolDefinition(
        name=declaration.name,
        description=declaration.description,
        parameters_json_schema=declaration.parameters_schema,
        return_schema=declaration.output_schema,
        sequential=bool(declaration.annotations.sequential),
        metadata={
            "toolcell": declaration.model_dump(
                mode="json", include={"version", "tier", "annotations", "fingerprint", "requires_approval", "metadata"}
            )
        },
    )


def _returned(result: ToolResult) -> Any:
    """The result as a tool's return value. Raises ModelRetry or ToolFailed."""
    if result.error is not None:
        if isinstance(result.error, ValidationError) and result.error.retryable:
            raise ModelRetry(result.for_model())
        raise ToolFailed(result.for_model())
    blocks: list[Any] = [
        BinaryContent(block.to_bytes(), media_type=block.mime_type)
        if isinstance(block, ImageBlock | AudioBlock)
        else in_text(block)
        for block in blocks_of(result)
    ]
    value = value_of(result)
    kept = result.model_copy(update={"output": None, "content": []})
    if not blocks:
        return ToolReturn(value, metadata=kept)
    return ToolReturn(blocks if value is None else [value, *blocks], metadata=kept)


def from_pydantic_ai(
    tool: Tool[Any] | Callable[..., Any] | str, **options: Unpack[DynamicOptions]
) -> CellTool[..., Any]:
    """A pydantic-ai tool, a function for `Agent(tools=[…])`, or the import path of either, as a tool that runs in a
    cell, with the schemas, name and description that pydantic-ai derives. The cell runs its function, and the result is
    held against its schema.

    Raises UsageError if the function takes a RunContext, because the agent's dependencies stay in its process. A tool
    with `requires_approval=True` needs the supervisor's approval. `options` are those of `dynamic_tool`.
    """
    given = found(tool)
    made = given if _is_tool(given) else Tool[Any](cast("Callable[..., Any]", given))
    if made.takes_ctx:
        raise UsageError(
            f"The pydantic-ai tool {made.name!r} takes a RunContext, which no cell has. Make a toolcell tool of it: "
            "ctx.config and ctx.values of ToolContext hold what a session gives its tools."
        )
    definition = made.tool_def
    if made.requires_approval:
        options.setdefault("requires_approval", True)
    return cell_function(
        made.function,
        name=made.name,
        description=definition.description or "",
        parameters=definition.parameters_json_schema,
        results=definition.return_schema,
        **options,
    )


def _is_tool(given: object) -> TypeIs[Tool[Any]]:
    return isinstance(given, Tool)
