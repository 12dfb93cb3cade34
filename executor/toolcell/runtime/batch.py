"""Many calls at once: each has its own result, and the results go back to the model in one piece."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, overload

from toolcell.errors import UsageError
from toolcell.runtime.core import SessionCore
from toolcell_tools.errors import Cancelled, ValidationError
from toolcell_tools.exports import Export, InvalidCall, ModelCall
from toolcell_tools.result import ToolResult

__all__ = ["BatchResult"]

AnyCall = ModelCall | tuple[str, Mapping[str, Any]] | Mapping[str, Any]
"""A call of a batch: parsed, as a name with arguments, or a provider's payload."""


@dataclass(frozen=True, slots=True)
class BatchResult(Sequence[ToolResult]):
    """The results of a batch, in the order of its calls."""

    results: tuple[ToolResult, ...]
    calls: tuple[ModelCall, ...]
    export: Export | None = None

    def __len__(self) -> int:
        return len(self.results)

    @overload
    def __getitem__(self, index: int) -> ToolResult: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ToolResult, ...]: ...
    def __getitem__(self, index: int | slice) -> ToolResult | tuple[ToolResult, ...]:
        return self.results[index]

    def __iter__(self) -> Iterator[ToolResult]:
        return iter(self.results)

    def messages(self) -> list[dict[str, Any]]:
        """The messages or items with which a program extends the conversation, in the provider's format.

        OpenAI: a message or an item for each call. Anthropic and Gemini: one message of the user, with a block or a
        part for each call. MCP: a `CallToolResult` for each call. Raises UsageError if the batch has no export.
        """
        if self.export is None:
            raise UsageError(
                "The batch has no export, so the provider's format is not known. Pass export= to call_many."
            )
        pairs = zip(self.calls, self.results, strict=True)
        rendered = [self.export.result_for(call, result) for call, result in pairs]
        match self.export.dialect:
            case "anthropic":
                return [{"role": "user", "content": rendered}]
            case "gemini":
                return [{"role": "user", "parts": rendered}]
            case _:
                return rendered


def parsed(calls: Iterable[AnyCall], export: Export | None) -> list[ModelCall | InvalidCall]:
    """The calls of a batch. A payload that is no call, or has the id of an earlier call, is an InvalidCall. Raises
    UsageError for an object that can be no call."""
    found = [_parsed(call, export) for call in calls]
    seen: set[str] = set()
    for index, call in enumerate(found):
        if call.call_id and call.call_id in seen:
            found[index] = InvalidCall(
                f"The call id {call.call_id!r} stands twice in this batch.", call.name, call.call_id
            )
        seen.add(call.call_id)
    return found


def _parsed(call: object, export: Export | None) -> ModelCall | InvalidCall:
    if isinstance(call, ModelCall):
        return call
    if isinstance(call, tuple) and len(cast("tuple[object, ...]", call)) == 2:
        name, arguments = cast("tuple[object, object]", call)
        if isinstance(name, str) and isinstance(arguments, Mapping):
            return ModelCall(name, dict(cast("Mapping[str, Any]", arguments)))
    if isinstance(call, Mapping) and export is not None:
        try:
            return export.parse_call(cast("Mapping[str, Any]", call))
        except InvalidCall as wrong:
            return wrong
    raise UsageError(
        f"This is no call: {call!r}. Pass (name, arguments), a ModelCall, or with export= the payload of a provider."
    )


def refused(call: InvalidCall, session_id: str) -> ToolResult:
    """The result of a payload that is no call."""
    return ToolResult.build(
        error=ValidationError(message=str(call)), tool=call.name, call_id=call.call_id, session_id=session_id
    )


def counted_as_malformed(result: ToolResult, core: SessionCore, export: Export | None) -> ToolResult:
    """The result of a payload that is no call. It counts as a malformed call of its tool."""
    caller, name = core.caller, result.tool if export is None else export.names.original(result.tool)
    if caller.toolbox.found(name) is None:
        return result
    malformed = caller.malformed
    error = malformed.judged(name, result.error, malformed.begun(), core.services.in_background)
    if error is not None:
        caller.tally.failed(result.call_id, name, error)
    return result.model_copy(update={"error": error})


def lost(call: ModelCall | InvalidCall, session_id: str) -> ToolResult:
    """The result of a call whose own task was cancelled, for example by its host tool. The batch goes on."""
    error = Cancelled(message="The task of the call was cancelled.", delivered=True, effect=True)  # as far as is known
    return ToolResult.build(error=error, tool=call.name, call_id=call.call_id, session_id=session_id)


def placeholder(call: ModelCall | InvalidCall) -> ModelCall:
    """The call, or what could be read of it, for the provider's format of its result."""
    return call if isinstance(call, ModelCall) else ModelCall(call.name, {}, call.call_id, exported_name=call.name)
