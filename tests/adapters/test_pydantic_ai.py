"""pydantic-ai's own loop, with a scripted model, over real cells."""

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelMessage, ModelResponse, Tool
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessagesTypeAdapter,
    ModelRequest,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.tools import RunContext, ToolApproved, ToolDefinition, ToolDenied
from tests.adapters.kit import KIT, PNG, elsewhere, started
from tests.helpers import PATIENCE_S

from toolcell import ExecutionError, Session, Supervisor, UsageError
from toolcell.adapters.pydantic_ai import ToolProgressEvent, from_pydantic_ai, toolcell_toolset

pytestmark = pytest.mark.anyio


def shout(text: str, times: int = 1) -> str:
    """Say it loudly.

    Args:
        text: What to say.
        times: How often.
    """
    return text.upper() * times


def with_context(ctx: RunContext[None]) -> str:
    """Use the agent."""
    return str(ctx.retry)


def miscount() -> int:
    """Count wrongly."""
    return cast("int", "three")


TOOLS = [
    *KIT,
    from_pydantic_ai(miscount),
    from_pydantic_ai(shout),
    from_pydantic_ai(Tool(shout, name="careful", requires_approval=True)),
]
Turn = str | Sequence[ToolCallPart]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


def call(name: str, arguments: dict[str, Any] | str, id: str = "c1") -> ToolCallPart:
    return ToolCallPart(name, arguments, id)


class Script:
    """A model that says these turns, one a request, and keeps what it was given."""

    def __init__(self, *turns: Turn) -> None:
        self.turns = list(turns)
        self.seen: list[list[ModelMessage]] = []
        self.model = FunctionModel(self.answer, stream_function=self.stream)

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.seen.append(messages)
        turn = self.turns.pop(0) if self.turns else "done"
        return ModelResponse([TextPart(turn)] if isinstance(turn, str) else list(turn))

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        for part in self.answer(messages, info).parts:
            if isinstance(part, ToolCallPart):
                yield {0: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
            elif isinstance(part, TextPart):
                yield part.content

    def told(self) -> list[Any]:
        """What the last request told the model of its calls."""
        last = self.seen[-1][-1]
        assert isinstance(last, ModelRequest)
        return [part for part in last.parts if isinstance(part, ToolReturnPart)]


def agent_of(session: Session, script: Script, **options: Any) -> Agent[None, Any]:
    return Agent(script.model, toolsets=[toolcell_toolset(session)], output_type=[str, DeferredToolRequests], **options)


async def told_of(session: Session, *calls: ToolCallPart) -> list[Any]:
    script = Script(calls)
    await agent_of(session, script).run("go")
    return script.told()


async def test_a_tool_runs_in_a_cell_and_the_model_gets_its_value(main: Session) -> None:
    write, read = call("write", {"path": "a", "content": "b"}), call("read", {"path": "a"}, "c2")
    script = Script([write], [read])
    result = await agent_of(main, script).run("go")
    assert result.output == "done" and (main.workspace / "a").read_text() == "b"
    (told,) = script.told()
    assert told.content.endswith("\n1\tb") and told.metadata.call_id == "c2"


async def test_the_model_sees_schemas_descriptions_and_what_must_run_alone(main: Session) -> None:
    tools: dict[str, ToolDefinition] = {}

    def keep(_ctx: RunContext[None], one: ToolDefinition) -> bool:
        tools[one.name] = one
        return True

    await Agent(Script().model, toolsets=[toolcell_toolset(main).filtered(keep)]).run("go")
    assert tools["pay"].parameters_json_schema["properties"]["amount"]["description"] == "How much."
    assert tools["pay"].return_schema is not None and tools["pay"].return_schema["type"] == "object"
    assert tools["shell"].metadata is not None
    assert tools["write"].sequential and not tools["read"].sequential
    assert tools["shell"].metadata["toolcell"]["tier"] == "system"


async def test_a_failure_is_a_failed_tool_call_and_uses_no_retry(main: Session) -> None:
    for _ in range(3):
        (told,) = await told_of(main, call("fail", {"why": "rain"}))
        assert told.outcome == "failed" and "it failed: rain" in str(told.content)


async def test_a_crash_is_a_failed_tool_call_and_the_next_call_works(main: Session) -> None:
    crashed, fine = await told_of(main, call("crash", {}), call("pay", {"amount": 5}, "c2"))
    assert "crashed" in str(crashed.content) and fine.content == {"paid": 5}


async def test_arguments_that_do_not_fit_are_a_retry_with_the_reason(main: Session) -> None:
    script = Script([call("pay", {"amount": "much"})], [call("pay", {"amount": 3})])
    result = await agent_of(main, script).run("go")
    assert result.output == "done"
    retry = script.seen[1][-1].parts[0]
    assert isinstance(retry, ToolReturnPart) and retry.outcome == "retried" and "amount" in str(retry.content)
    assert script.told()[0].content == {"paid": 3}


async def test_arguments_that_never_fit_use_up_the_retries(main: Session) -> None:
    script = Script(*[[call("pay", {"amount": "much"})]] * 3)
    with pytest.raises(UnexpectedModelBehavior, match="pay"):
        await agent_of(main, script).run("go")


async def test_the_third_turn_of_arguments_that_do_not_fit_is_a_failure_whatever_the_agent_would_retry(
    main: Session,
) -> None:
    script = Script(*[[call("pay", {"amount": "much"}, f"c{turn}")] for turn in range(3)])
    assert (await agent_of(main, script, retries=9).run("go")).output == "done"
    told = [one for message in script.seen[-1] for one in message.parts if isinstance(one, ToolReturnPart)]
    assert [one.outcome for one in told] == ["retried", "retried", "failed"]


async def test_a_picture_is_binary_content(main: Session) -> None:
    (told,) = await told_of(main, call("picture", {}))
    drawn, image = told.content
    assert drawn == {"drawn": True} and isinstance(image, BinaryContent) and image.data == PNG


async def test_the_call_id_is_the_framework_s(main: Session) -> None:
    (told,) = await told_of(main, call("call_id", {}, "toolu_17"))
    assert told.content == "toolu_17"


async def test_calls_of_one_turn_run_side_by_side(main: Session) -> None:
    first, second = await told_of(main, call("meet", {}), call("meet", {}, "c2"))
    assert first.content == second.content == "met"


async def test_progress_is_in_the_event_stream(main: Session) -> None:
    seen: list[ToolProgressEvent] = []

    async def handle(_ctx: RunContext[None], events: AsyncIterable[Any]) -> None:
        seen.extend([event async for event in events if isinstance(event, ToolProgressEvent)])

    script = Script([call("steps", {"number": 2})])
    await agent_of(main, script).run("go", event_stream_handler=handle)
    assert [(one.message, one.fraction, one.tool_call_id) for one in seen] == [
        ("step 0", 0.0, "c1"),
        ("step 1", 0.5, "c1"),
    ]


async def test_an_agent_on_a_loop_of_its_own_works_and_reports_progress(main: Session) -> None:
    seen: list[str] = []

    async def handle(_ctx: RunContext[None], events: AsyncIterable[Any]) -> None:
        seen.extend([event.message async for event in events if isinstance(event, ToolProgressEvent)])

    script = Script([call("steps", {"number": 2})])
    await elsewhere(lambda: agent_of(main, script).run("go", event_stream_handler=handle))
    assert [one.content for one in script.told()] == [2] and seen == ["step 0", "step 1"]


async def test_a_cancelled_run_ends_the_call_in_its_cell(main: Session, shared: Supervisor) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent_of(main, Script([call("hang", {})])).run, "go")
        with anyio.fail_after(PATIENCE_S):
            while not started(main.workspace):
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()
    with anyio.fail_after(PATIENCE_S):
        assert (await main.call("pay", {"amount": 1})).output == {"paid": 1}


class TestApproval:
    """A call that needs approval ends the run with a request, and the next run has the answer."""

    async def asked(self, session: Session) -> tuple[Script, Any, DeferredToolRequests]:
        script = Script([call("pay", {"amount": 50}), call("pay", {"amount": 5}, "c2")])
        first = await agent_of(session, script).run("go")
        assert isinstance(first.output, DeferredToolRequests)
        return script, first, first.output

    async def test_the_request_has_the_supervisor_s_preview(self, main: Session) -> None:
        _script, _first, requests = await self.asked(main)
        assert [one.tool_call_id for one in requests.approvals] == ["c1"]
        told = requests.metadata["c1"]
        assert (told["preview"]["summary"], told["arguments"], told["tier"]) == (
            "Spend 50",
            {"amount": 50},
            "read_only",
        )

    @pytest.mark.parametrize(
        ("answer", "paid"),
        [(True, {"paid": 50}), (ToolApproved(override_args={"amount": 20}), {"paid": 20})],
        ids=["approved", "edited"],
    )
    async def test_what_was_approved_is_what_runs(self, main: Session, answer: Any, paid: Any) -> None:
        script, first, requests = await self.asked(main)
        results = requests.build_results(approvals={"c1": answer})
        done = await agent_of(main, script).run(message_history=first.all_messages(), deferred_tool_results=results)
        assert done.output == "done"
        assert {part.tool_call_id: part.content for part in script.told()} == {"c1": paid, "c2": {"paid": 5}}

    async def test_a_denied_call_does_not_run(self, main: Session) -> None:
        script, first, requests = await self.asked(main)
        results = requests.build_results(approvals={"c1": ToolDenied("too much")})
        await agent_of(main, script).run(message_history=first.all_messages(), deferred_tool_results=results)
        assert {part.tool_call_id: part.content for part in script.told()}["c1"] == "too much"

    async def test_an_approval_is_used_once_and_the_same_history_asks_again(self, main: Session) -> None:
        script, first, requests = await self.asked(main)
        agent = agent_of(main, script)
        history = ModelMessagesTypeAdapter.validate_json(first.all_messages_json())
        results = requests.build_results(approvals={"c1": True})
        assert (await agent.run(message_history=history, deferred_tool_results=results)).output == "done"
        history = ModelMessagesTypeAdapter.validate_json(first.all_messages_json())
        again = await agent.run(message_history=history, deferred_tool_results=results)
        assert isinstance(again.output, DeferredToolRequests)

    async def test_an_approval_that_was_never_asked_for_asks(self, main: Session) -> None:
        script = Script([call("pay", {"amount": 77})])
        history: list[ModelMessage] = [ModelResponse([call("pay", {"amount": 77})])]
        done = await agent_of(main, script).run(
            message_history=history, deferred_tool_results=DeferredToolResults(approvals={"c1": True})
        )
        assert isinstance(done.output, DeferredToolRequests)


class TestFromPydanticAI:
    """pydantic-ai's tools run in cells."""

    async def test_a_function_keeps_its_schema_and_words(self, main: Session) -> None:
        tools = {one.name: one for one in await main.tools()}
        assert tools["shout"].description == "Say it loudly."
        assert tools["shout"].parameters_schema["properties"]["times"]["description"] == "How often."
        assert (await main.call("shout", {"text": "a", "times": 2})).output == "AA"

    async def test_a_tool_that_requires_approval_needs_the_supervisor_s(self, main: Session) -> None:
        (asked,) = (await told_of_requests(main, call("careful", {"text": "a"}))).approvals
        assert asked.tool_name == "careful"

    @pytest.mark.parametrize("tool", [with_context, Tool(with_context)])
    def test_a_tool_with_a_run_context_is_refused(self, tool: Any) -> None:
        with pytest.raises(UsageError, match="RunContext, which no cell has"):
            from_pydantic_ai(tool)

    def test_the_schema_of_the_results_is_carried(self) -> None:
        assert from_pydantic_ai(shout).declaration.output_schema == {"type": "string"}
        assert from_pydantic_ai("textwrap:dedent").declaration.output_schema is None

    async def test_a_result_that_is_not_of_its_schema_is_an_error(self, main: Session) -> None:
        result = await main.call("miscount", {})
        assert isinstance(result.error, ExecutionError) and "output" in result.error.message

    async def test_an_import_path_leads_to_a_function(self, workspace: Path) -> None:
        made = from_pydantic_ai("textwrap:dedent")
        assert made.declaration.name == "dedent"


async def told_of_requests(session: Session, *calls: ToolCallPart) -> DeferredToolRequests:
    done = await agent_of(session, Script(calls)).run("go")
    assert isinstance(done.output, DeferredToolRequests)
    return done.output
