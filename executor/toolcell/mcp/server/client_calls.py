"""tools/call: one call of a client, in as many rounds as it takes to ask for answers and approval."""

import secrets
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolcell.backends.threads import in_thread
from toolcell.dispatch.call_context import OnLog, OnProgress
from toolcell.errors import UsageError
from toolcell.session import Session
from toolcell.store.approvals import Approvals, Denied
from toolcell_tools.errors import Cancelled
from toolcell_tools.result import ToolResult

from .artifacts import Artifacts
from .bounds import ServerBounds
from .client_approval import (
    APPROVAL,
    ASKER,
    Asker,
    ClientChannel,
    LiveAsker,
    SuspendingAsker,
    answered,
    can_elicit,
    question,
)
from .input_required import Answers
from .notifications import Reports, reporting
from .questions import BadQuestion, Declined, Questions, RoundState, Unanswerable, asked, put_to_client, wire
from .tool_list import ListedTool, ToolList, failed

__all__ = ["ClientCalls", "is_modern"]

Context = ServerRequestContext[Any, Any]


def is_modern(ctx: Context) -> bool:
    """Whether the client speaks a protocol without sessions (2026-07-28), in which it is asked in results."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


class ClientCalls:
    """Makes the calls of the clients of one principal, in its session."""

    def __init__(
        self,
        session: Session,
        tools: ToolList,
        artifacts: Artifacts,
        channel: ClientChannel,
        approvals: Approvals,
        *,
        is_durable: bool,
        bounds: ServerBounds,
    ) -> None:
        self._session = session
        self._tools = tools
        self._artifacts = artifacts
        self._channel = channel
        self._approvals = approvals
        self._is_durable = is_durable
        self._bounds = bounds
        self._run = secrets.token_hex(4)  # a session of the same id, after a restart, has other calls
        self._numbers = count(1)

    async def run(
        self, ctx: Context, tool: ListedTool, params: types.CallToolRequestParams, level: str
    ) -> dict[str, Any] | types.InputRequiredResult:
        """Make the call, and ask the client what the tool or the engine wants to know. `level` is the least severe log
        message that the client wants."""
        reports = Reports(ctx, tool.entry.name, level, self._bounds.reports)
        if is_modern(ctx):
            return await self._one_round(ctx, tool, params, reports)
        async with _polled(ctx, tool.poll_after_s):
            return await self._rounds(ctx, tool, params, reports, level)

    async def _rounds(
        self, ctx: Context, tool: ListedTool, params: types.CallToolRequestParams, reports: Reports, level: str
    ) -> dict[str, Any]:
        """All rounds of a client of the handshake protocol, which is asked while its request waits."""
        asker = LiveAsker(ctx, self._bounds.answer_s, self._is_durable)
        answers: Answers = {}
        for _ in range(self._bounds.rounds + 1):
            result = await self.attempt(tool, params.arguments, answers, asker, reports)
            try:
                questions = asked(result, self._bounds.answers_bytes)
                if questions is None:
                    return self.written(tool, params.arguments, result)
                able = questions.for_client(ctx.session.client_capabilities, answers)
            except (BadQuestion, Declined, Unanswerable) as error:
                return failed(str(error))
            reports = Reports(ctx, tool.entry.name, level, self._bounds.reports)
            try:
                answers = {**answers, **await put_to_client(ctx, able, self._bounds.answer_s)}
            except MCPError as error:
                return failed(f"The client did not answer: {error.message[:500]}")
        return failed(f"The tool asked the client in {self._bounds.rounds} rounds, and needs more.")

    async def _one_round(
        self, ctx: Context, tool: ListedTool, params: types.CallToolRequestParams, reports: Reports
    ) -> dict[str, Any] | types.InputRequiredResult:
        """One round of the protocol in which the client makes the call again, with answers and the sealed state."""
        state = RoundState.read(params.request_state)
        if state.rounds > self._bounds.rounds:
            return failed(f"The tool asked the client in {self._bounds.rounds} rounds, and needs more.")
        answers = state.told(params.input_responses)
        responses = params.input_responses or {}
        if state.approval:
            if APPROVAL not in responses:
                raise MCPError(types.INVALID_PARAMS, f"The answer {APPROVAL!r} is missing.")
            said = responses[APPROVAL]
            answer = wire(said) if isinstance(said, types.ElicitResult) else {}
            await in_thread(partial(self._keep_answer, state.approval, answer))
        scope = anyio.CancelScope()
        asker = SuspendingAsker(scope.cancel, state.approval, can_elicit(ctx), self._is_durable)
        result: ToolResult | None = None
        with scope:
            result = await self.attempt(tool, params.arguments, answers, asker, reports)
        if asker.request is not None:
            return self._required(question(asker.request), ctx, state, answers, asker.request.id)
        assert result is not None
        try:
            questions = asked(result, self._bounds.answers_bytes)
        except BadQuestion as error:
            return failed(str(error))
        if questions is None:
            return self.written(tool, params.arguments, result)
        if params.request_state is None and params.input_responses:  # the client has answered before it was asked
            first = RoundState(asked={name: wire(each) for name, each in questions.requests.items()}, rounds=1)
            if first.told(params.input_responses):
                return await self._one_round(
                    ctx, tool, params.model_copy(update={"request_state": first.text()}), reports
                )
        try:
            return self._required(questions, ctx, state, answers)
        except Declined as error:
            return failed(str(error))

    def _required(
        self, questions: Questions, ctx: Context, state: RoundState, answers: Answers, approval: str = ""
    ) -> types.InputRequiredResult:
        try:
            able = questions.for_client(ctx.session.client_capabilities, answers)
        except Unanswerable as error:
            data = {"requiredCapabilities": wire(error.missing)}
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, str(error), data) from None
        put = {} if approval else {name: wire(each) for name, each in able.items()}
        text = RoundState(answers, put, approval, state.rounds + 1).text()
        if len(text) > self._bounds.answers_bytes:
            most = self._bounds.answers_bytes
            raise MCPError(
                types.INVALID_PARAMS, f"The questions and answers of the call are too large: over {most:,} bytes."
            )
        return types.InputRequiredResult(input_requests=able, request_state=text)

    def _keep_answer(self, id: str, answer: Mapping[str, Any]) -> None:
        """Keep the client's answer to a request for approval. An answer that comes too late changes nothing: the call
        asks again, or is denied."""
        try:
            request = self._approvals.get(id).request
            said = Denied() if request is None else answered(request, answer)
            if isinstance(said, Denied):
                self._approvals.deny(id, said.message, by="the MCP client")
            else:
                self._approvals.approve(id, by="the MCP client")
        except UsageError:
            pass

    async def attempt(
        self,
        tool: ListedTool,
        arguments: Mapping[str, Any] | None,
        answers: Answers,
        asker: Asker,
        reports: Reports | None,
        on_progress: OnProgress | None = None,
        call_id: str = "",
    ) -> ToolResult:
        """Make the call once, in a process. Without `reports`, its progress goes to `on_progress`. In a closed session,
        the call is Cancelled."""
        given = dict(arguments or {})  # `PrincipalServer` has refused answers among them
        if tool.answers and answers:
            given[tool.answers] = dict(answers)
        call_id = call_id or f"{self._session.id}-mcp-{self._run}-{next(self._numbers)}"
        with self._asking(asker, reports):
            if reports is None:
                return await self._called(tool.name, given, call_id, on_progress, None)
            async with reporting(reports):
                result = await self._called(tool.name, given, call_id, reports.progress, reports.log)
            return result

    async def _called(
        self, name: str, given: dict[str, Any], call_id: str, on_progress: OnProgress | None, on_log: OnLog | None
    ) -> ToolResult:
        try:
            return await self._session.call(name, given, call_id=call_id, on_progress=on_progress, on_log=on_log)
        except UsageError:
            error = Cancelled(message="The call was cancelled: the session of this client has ended.")
            return ToolResult.build(error=error, call_id=call_id, tool=name, session_id=self._session.id)

    @contextmanager
    def _asking(self, asker: Asker, reports: Reports | None) -> Generator[None]:
        token = ASKER.set(asker)
        if reports is not None:
            self._channel.reports.add(reports)
        try:
            yield
        finally:
            ASKER.reset(token)
            if reports is not None:
                self._channel.reports.discard(reports)

    def written(self, tool: ListedTool, arguments: Mapping[str, Any] | None, result: ToolResult) -> dict[str, Any]:
        """The result as the client gets it."""
        return self._tools.written(tool, dict(arguments or {}), result, self._artifacts.links(result))


@asynccontextmanager
async def _polled(ctx: Context, after_s: float | None) -> AsyncGenerator[None]:
    """Close the request's event stream after a while, if the client can resume it. The block must not raise."""
    if after_s is None or ctx.close_sse_stream is None:
        yield
        return
    close = ctx.close_sse_stream

    async def later() -> None:
        await anyio.sleep(after_s)
        await close()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(later)
        yield
        tasks.cancel_scope.cancel()
