"""What a server offers besides tools: prompts, resources and completions.

A program implements the protocols `Prompts`, `Resources` and `Completions`. Their methods run in the program's own
process, on the event loop, and must not block. `principal` is the name of the authenticated client, or "" if there is
no authentication. Arguments come from the client: treat them as hostile. The artifacts of calls are resources too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from toolcell_tools.schemas.keywords import is_index

from .artifacts import Artifacts, Unreadable
from .bounds import ServerBounds
from .client_calls import is_modern
from .input_required import Answers, InputRequired
from .questions import BadQuestion, Declined, RoundState, Unanswerable, put_to_client, read_questions, wire

__all__ = [
    "CompletionRequests",
    "Completions",
    "Offers",
    "PromptRequests",
    "Prompts",
    "ResourceRequests",
    "Resources",
    "page",
]


T = TypeVar("T")
Context = ServerRequestContext[Any, Any]
MAX_VALUES = 100
"""The most values of a completion, by the protocol."""


@runtime_checkable
class Prompts(Protocol):
    """Offers prompts."""

    async def list_prompts(self, principal: str) -> Sequence[types.Prompt]:
        """Return the prompts that the client may get."""
        ...

    async def get_prompt(
        self, principal: str, name: str, arguments: Mapping[str, str], answers: Answers
    ) -> types.GetPromptResult | None:
        """Return the messages of a prompt, or None if there is no such prompt. May raise `InputRequired`; then it is
        called again, with the answers."""
        ...


@runtime_checkable
class Resources(Protocol):
    """Offers resources. Artifacts of calls are offered besides, without it."""

    async def list_resources(self, principal: str) -> Sequence[types.Resource]:
        """Return the resources that are listed."""
        ...

    async def list_templates(self, principal: str) -> Sequence[types.ResourceTemplate]:
        """Return the templates of further resources."""
        ...

    async def read_resource(
        self, principal: str, uri: str
    ) -> Sequence[types.TextResourceContents | types.BlobResourceContents] | None:
        """Return the contents of a resource, or None if there is no such resource."""
        ...


@runtime_checkable
class Completions(Protocol):
    """Completes the arguments of prompts and resource templates."""

    async def complete(
        self,
        principal: str,
        ref: types.PromptReference | types.ResourceTemplateReference,
        name: str,
        value: str,
        context: Mapping[str, str],
    ) -> Sequence[str]:
        """Return the values of the argument `name` that begin with `value`, the best first; 100 of them are sent.
        `context` has the arguments that are known already."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """What a program offers besides tools."""

    prompts: Prompts | None = None
    resources: Resources | None = None
    completions: Completions | None = None


class PromptRequests:
    """prompts/list and prompts/get."""

    def __init__(self, principal: str, prompts: Prompts, bounds: ServerBounds) -> None:
        self._principal = principal
        self._prompts = prompts
        self._bounds = bounds

    async def list(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        found = await self._prompts.list_prompts(self._principal)
        entries, cursor = page(found, params, self._bounds.page)
        return types.ListPromptsResult(prompts=entries, next_cursor=cursor)

    async def get(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        state = RoundState.read(params.request_state)
        answers = state.told(params.input_responses)
        for number in range(state.rounds, self._bounds.rounds + 1):
            try:
                return await self._got(params, answers)
            except InputRequired as needed:
                try:
                    questions = read_questions(needed.asked, self._bounds.answers_bytes)
                    able = questions.for_client(ctx.session.client_capabilities, answers)
                except (BadQuestion, Declined, Unanswerable) as error:
                    raise MCPError(types.INVALID_PARAMS, str(error)) from None
            if is_modern(ctx):
                text = RoundState(answers, {name: wire(each) for name, each in able.items()}, "", number + 1).text()
                return types.InputRequiredResult(input_requests=able, request_state=text)
            answers = {**answers, **await put_to_client(ctx, able, self._bounds.answer_s)}
        raise MCPError(types.INVALID_PARAMS, f"The prompt asked the client in {self._bounds.rounds} rounds.")

    async def _got(self, params: types.GetPromptRequestParams, answers: Answers) -> types.GetPromptResult:
        found = await self._prompts.get_prompt(self._principal, params.name, params.arguments or {}, answers)
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name[:128]!r}.")
        return found


class ResourceRequests:
    """resources/list, resources/templates/list and resources/read."""

    def __init__(self, principal: str, resources: Resources | None, artifacts: Artifacts, bounds: ServerBounds) -> None:
        self._principal = principal
        self._resources = resources
        self._artifacts = artifacts
        self._bounds = bounds

    async def list(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        own: Sequence[types.Resource] = ()
        if self._resources is not None:
            own = await self._resources.list_resources(self._principal)
        entries, cursor = page([*own, *self._artifacts.resources], params, self._bounds.page)
        return types.ListResourcesResult(resources=entries, next_cursor=cursor)

    async def templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        found: Sequence[types.ResourceTemplate] = ()
        if self._resources is not None:
            found = await self._resources.list_templates(self._principal)
        entries, cursor = page(found, params, self._bounds.page)
        return types.ListResourceTemplatesResult(resource_templates=entries, next_cursor=cursor)

    async def read(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        try:
            artifact = await self._artifacts.read(uri)
        except Unreadable as error:
            raise MCPError(types.INVALID_PARAMS, str(error), {"uri": uri[:1000]}) from None
        if artifact is not None:
            return types.ReadResourceResult(contents=[artifact])
        found = None if self._resources is None else await self._resources.read_resource(self._principal, uri)
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown resource: {uri[:1000]}", {"uri": uri[:1000]})
        return types.ReadResourceResult(contents=list(found))


class CompletionRequests:
    """completion/complete."""

    def __init__(self, principal: str, completions: Completions) -> None:
        self._principal = principal
        self._completions = completions

    async def complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        context = {} if params.context is None else params.context.arguments or {}
        argument = params.argument
        found = await self._completions.complete(self._principal, params.ref, argument.name, argument.value, context)
        values = list(found[:MAX_VALUES])
        return types.CompleteResult(
            completion=types.Completion(values=values, total=len(found), has_more=len(found) > len(values))
        )


def page(entries: Sequence[T], params: types.PaginatedRequestParams | None, size: int) -> tuple[list[T], str | None]:
    """The entries of the page that the request asks for, and the cursor of the next one: the place where it begins.
    Raises MCPError."""
    cursor = None if params is None else params.cursor
    if cursor is not None and not is_index(cursor):
        raise MCPError(types.INVALID_PARAMS, "The cursor is none that this server made.")
    start = int(cursor or 0)
    if start > len(entries):
        raise MCPError(types.INVALID_PARAMS, "The cursor is beyond the end of the list.")
    end = start + size
    return list(entries[start:end]), str(end) if end < len(entries) else None
