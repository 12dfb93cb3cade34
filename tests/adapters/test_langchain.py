"""LangChain's own agent loop and LangGraph's interrupts, with a scripted model, over real cells."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import InjectedState
from langgraph.types import Command
from pydantic import BaseModel, Field
from tests.adapters.kit import KIT, PNG, elsewhere, started
from tests.conftest import Supervise
from tests.helpers import PATIENCE_S

from toolcell import Hook, Session, ToolCall, ToolResult, UsageError
from toolcell.adapters.langchain import from_langchain, to_langchain_tool, to_langchain_tools

pytestmark = pytest.mark.anyio


class Words(BaseModel):
    """Words to say."""

    text: str = Field(description="What to say.")
    times: int = 1


def shout(text: str, times: int = 1) -> dict[str, str]:
    """Say it loudly."""
    if not text:
        raise ToolException("there is nothing to say")
    return {"said": text.upper() * times}


@langchain_tool
async def whisper(text: str) -> str:
    """Say it quietly."""
    return text.lower()


@langchain_tool
def peek(state: Annotated[dict[str, Any], InjectedState]) -> str:
    """Look at the graph's state."""
    return str(state)


class Mirror(BaseTool):
    """A tool that wraps no function."""

    name: str = "mirror"
    description: str = "Turn a text around."
    step: int = -1

    def _run(self, text: str) -> str:
        return text[:: self.step]


SHOUT = StructuredTool.from_function(shout, args_schema=Words, handle_tool_error=True)
TOOLS = KIT
THREAD: Any = {"configurable": {"thread_id": "t1"}}
Turn = str | Sequence[tuple[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


class Scripted(BaseChatModel):
    """A model that says these turns, one a request."""

    turns: list[Any]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> "Scripted":
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        turn = self.turns.pop(0) if self.turns else "done"
        if isinstance(turn, str):
            return ChatResult(generations=[ChatGeneration(message=AIMessage(turn))])
        calls = [{"name": name, "args": args, "id": f"c{number}"} for number, (name, args) in enumerate(turn, 1)]
        return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=calls))])


def told(state: Any) -> dict[str, ToolMessage]:
    return {one.tool_call_id: one for one in state["messages"] if isinstance(one, ToolMessage)}


async def agent_of(session: Session, *turns: Turn, **options: Any) -> Any:
    return create_agent(Scripted(turns=list(turns)), tools=await to_langchain_tools(session), **options)


async def told_of(session: Session, *calls: tuple[str, dict[str, Any]]) -> dict[str, ToolMessage]:
    return told(await (await agent_of(session, calls)).ainvoke({"messages": [("user", "go")]}))


async def test_a_tool_runs_in_a_cell_and_its_result_is_the_artifact(main: Session) -> None:
    message = (await told_of(main, ("pay", {"amount": 5})))["c1"]
    assert (message.status, message.content) == ("success", '{"paid":5}')
    assert isinstance(message.artifact, ToolResult)
    assert (message.artifact.call_id, message.artifact.output) == ("c1", {"paid": 5})


async def test_one_tool_by_its_name_has_the_session_s_schema(main: Session) -> None:
    pay = await to_langchain_tool(main, "pay")
    assert pay.args["amount"]["description"] == "How much."
    assert await pay.ainvoke({"amount": 3}) == '{"paid":3}'
    with pytest.raises(UsageError, match="Did you mean 'pay'"):
        await to_langchain_tool(main, "payy")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (("fail", {"why": "rain"}), "it failed: rain"),
        (("crash", {}), "crashed"),
        (("pay", {"amount": "much"}), "amount"),
    ],
    ids=["failure", "crash", "arguments that do not fit"],
)
async def test_an_error_is_a_message_of_status_error_and_the_run_goes_on(
    main: Session, call: tuple[str, dict[str, Any]], says: str
) -> None:
    messages = await told_of(main, call, ("pay", {"amount": 1}))
    assert messages["c1"].status == "error" and says in str(messages["c1"].content)
    assert messages["c2"].status == "success"


async def test_a_picture_is_a_content_block(main: Session) -> None:
    message = (await told_of(main, ("picture", {})))["c1"]
    text, image = message.content_blocks
    assert text == {"type": "text", "text": '{"drawn":true}'}
    assert image["type"] == "image" and image["mime_type"] == "image/png"
    assert message.artifact.content[0].to_bytes() == PNG


async def test_no_name_of_an_argument_means_anything_to_python(main: Session) -> None:
    tool = await to_langchain_tool(main, "pay")
    message = await tool.ainvoke(
        {"type": "tool_call", "id": "c1", "name": "pay", "args": {"amount": 1, "self": 2, "config": 3}}
    )
    assert message.status == "error" and "self" in message.content


async def test_the_call_id_is_the_framework_s(main: Session) -> None:
    assert (await told_of(main, ("call_id", {})))["c1"].content == "c1"


async def test_calls_of_one_turn_run_side_by_side(main: Session) -> None:
    messages = await told_of(main, ("meet", {}), ("meet", {}))
    assert messages["c1"].artifact.output == messages["c2"].artifact.output == "met"


async def test_progress_is_in_the_custom_stream_and_in_custom_events(main: Session) -> None:
    agent = await agent_of(main, [("steps", {"number": 2})], [("steps", {"number": 1})])
    streamed = [one async for one in agent.astream({"messages": [("user", "go")]}, stream_mode="custom")]
    told = [one["toolcell_progress"] for one in streamed]
    assert told[:2] == [
        {"tool": "steps", "call_id": "c1", "message": "step 0", "fraction": 0.0},
        {"tool": "steps", "call_id": "c1", "message": "step 1", "fraction": 0.5},
    ]
    tool = await to_langchain_tool(main, "steps")
    events: list[Any] = [one async for one in tool.astream_events({"number": 1}, version="v2")]
    assert [one["data"]["message"] for one in events if one["name"] == "toolcell_progress"] == ["step 0"]


async def test_a_cancelled_run_ends_the_call_in_its_cell(main: Session) -> None:
    agent = await agent_of(main, [("hang", {})])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.ainvoke, {"messages": [("user", "go")]})
        with anyio.fail_after(PATIENCE_S):
            while not started(main.workspace):
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()
    with anyio.fail_after(PATIENCE_S):
        assert (await main.call("pay", {"amount": 1})).output == {"paid": 1}


async def test_on_the_loop_of_the_session_the_tool_says_what_to_use(main: Session) -> None:
    with pytest.raises(UsageError, match="ainvoke"):
        (await to_langchain_tool(main, "pay")).invoke({"amount": 1})


async def test_an_agent_on_a_loop_of_its_own_is_interrupted_and_reports_progress(main: Session) -> None:
    agent = await agent_of(main, [("pay", {"amount": 50})], [("steps", {"number": 2})], checkpointer=InMemorySaver())
    pay = await to_langchain_tool(main, "pay")

    async def go() -> None:
        assert "paid" in str(await pay.ainvoke({"amount": 1}))
        state = await agent.ainvoke({"messages": [("user", "go")]}, THREAD)
        assert state["__interrupt__"][0].value["action_requests"][0]["name"] == "pay"
        resumed: Command[Any] = Command(resume={"decisions": [{"type": "approve"}]})
        said = [one async for one in agent.astream(resumed, THREAD, stream_mode="custom")]
        assert [one["toolcell_progress"]["message"] for one in said] == ["step 0", "step 1"]

    await elsewhere(go)


async def test_an_agent_without_await_works_in_another_thread_and_is_interrupted(main: Session) -> None:
    agent = await agent_of(main, [("pay", {"amount": 50}), ("pay", {"amount": 5})], checkpointer=InMemorySaver())
    pay = await to_langchain_tool(main, "pay")
    with anyio.fail_after(60):
        state = await anyio.to_thread.run_sync(lambda: agent.invoke({"messages": [("user", "go")]}, THREAD))
        assert state["__interrupt__"][0].value["action_requests"][0]["name"] == "pay"
        answer: Command[Any] = Command(resume={"decisions": [{"type": "approve"}]})
        state = await anyio.to_thread.run_sync(lambda: agent.invoke(answer, THREAD))
        assert [each.status for each in state["messages"] if isinstance(each, ToolMessage)] == ["success", "success"]
        assert "paid" in await anyio.to_thread.run_sync(lambda: str(pay.invoke({"amount": 1})))


class TestApproval:
    """A call that needs approval interrupts the graph, and resumes with the answer."""

    async def asked(self, session: Session, **options: Any) -> tuple[Any, Any]:
        turn = [("pay", {"amount": 50}), ("pay", {"amount": 5})]
        agent = await agent_of(session, turn, checkpointer=InMemorySaver(), **options)
        return agent, await agent.ainvoke({"messages": [("user", "go")]}, THREAD)

    async def test_the_interrupt_has_the_format_of_the_middleware_and_the_supervisor_s_preview(
        self, main: Session
    ) -> None:
        _agent, state = await self.asked(main)
        (pause,) = state["__interrupt__"]
        (action,) = pause.value["action_requests"]
        assert (action["name"], action["args"]) == ("pay", {"amount": 50}) and "Spend 50" in action["description"]
        assert pause.value["review_configs"][0]["allowed_decisions"] == ["approve", "edit", "reject"]
        assert pause.value["toolcell"]["preview"]["summary"] == "Spend 50"

    async def test_the_arguments_that_a_person_sees_are_those_that_run(
        self, supervise: Supervise, workspace: Path
    ) -> None:
        class Double(Hook):
            async def before_call(self, call: ToolCall) -> ToolCall:
                return call.with_arguments({"amount": call.arguments["amount"] * 2})

        async with supervise(KIT, hooks=[Double()]) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace)
            agent, state = await self.asked(session)
            for amount in (50, 100):  # hooks are called after the first question
                (action,) = state["__interrupt__"][0].value["action_requests"]
                assert action["args"] == {"amount": amount} and f"amount = {amount}" in action["description"]
                state = await agent.ainvoke(Command(resume={"type": "approve"}), THREAD)
            assert told(state)["c1"].content == '{"paid":100}'

    @pytest.mark.parametrize(
        ("decision", "status", "content"),
        [
            ({"type": "approve"}, "success", '{"paid":50}'),
            ({"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 20}}}, "success", '{"paid":20}'),
            ({"type": "edit", "edited_action": {"name": "shell", "args": {"command": "ls"}}}, "error", "not approved"),
            ({"type": "reject", "message": "too much"}, "error", "too much"),
            ("yes", "error", "not approved"),
        ],
        ids=["approve", "edit", "edit to another tool", "reject", "neither"],
    )
    @pytest.mark.parametrize("alone", [True, False], ids=["one decision", "a HITLResponse"])
    async def test_what_was_decided_is_what_happens(
        self, main: Session, decision: Any, status: str, content: str, alone: bool
    ) -> None:
        agent, _state = await self.asked(main)
        state = await agent.ainvoke(Command(resume=decision if alone else {"decisions": [decision]}), THREAD)
        message = told(state)["c1"]
        assert message.status == status and content in str(message.content)
        assert told(state)["c2"].content == '{"paid":5}' and state["messages"][-1].content == "done"

    async def test_two_calls_of_one_turn_are_two_interrupts(self, main: Session) -> None:
        turn = [("pay", {"amount": 50}), ("pay", {"amount": 60})]
        agent = await agent_of(main, turn, checkpointer=InMemorySaver())
        state = await agent.ainvoke({"messages": [("user", "go")]}, THREAD)
        answers = {
            one.id: {"type": "approve" if one.value["toolcell"]["arguments"]["amount"] == 60 else "reject"}
            for one in state["__interrupt__"]
        }
        state = await agent.ainvoke(Command(resume=answers), THREAD)
        assert (told(state)["c1"].status, told(state)["c2"].content) == ("error", '{"paid":60}')

    async def test_beside_the_middleware_each_asks_about_its_own_tools(self, main: Session) -> None:
        middleware = HumanInTheLoopMiddleware(interrupt_on={"call_id": True})
        turn = [("call_id", {}), ("pay", {"amount": 50})]
        agent = await agent_of(main, turn, checkpointer=InMemorySaver(), middleware=[middleware])
        await agent.ainvoke({"messages": [("user", "go")]}, THREAD)
        approve = {"decisions": [{"type": "approve"}]}
        state = await agent.ainvoke(Command(resume=approve), THREAD)
        assert "toolcell" in state["__interrupt__"][0].value
        state = await agent.ainvoke(Command(resume=approve), THREAD)
        assert [told(state)[id].status for id in ("c1", "c2")] == ["success", "success"]

    async def test_outside_a_graph_the_call_is_an_error_that_says_why(self, main: Session) -> None:
        tool = await to_langchain_tool(main, "pay")
        message = await tool.ainvoke({"type": "tool_call", "id": "c1", "name": "pay", "args": {"amount": 50}})
        assert message.status == "error" and "does not run in a graph" in message.content


class TestFromLangChain:
    """LangChain's tools run in cells."""

    async def test_they_keep_their_schemas_run_and_fail_as_tools_do(
        self, supervise: Supervise, workspace: Path
    ) -> None:
        given: list[BaseTool] = [SHOUT, whisper, Mirror()]
        async with supervise([from_langchain(one) for one in given]) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace)
            shouting = {one.name: one for one in await session.tools()}["shout"]
            assert shouting.parameters_schema["properties"]["text"]["description"] == "What to say."
            assert (await session.call("shout", {"text": "a", "times": 2})).output == {"said": "AA"}
            assert (await session.call("whisper", {"text": "A"})).output == "a"
            assert (await session.call("mirror", {"text": "ab"})).output == "ba"
            error = (await session.call("shout", {"text": ""})).error
            assert error is not None and error.kind == "execution" and "nothing to say" in error.message

    def test_a_tool_with_injected_state_is_refused(self) -> None:
        with pytest.raises(UsageError, match=r"injects \(state\)"):
            from_langchain(peek)

    def test_something_else_is_refused(self) -> None:
        with pytest.raises(UsageError, match="no LangChain tool"):
            from_langchain("textwrap:dedent")
