"""The Agents SDK's own runner, with a scripted model, over real cells."""

import json
from typing import Any

import anyio
import pytest
from agents import Agent, FunctionTool, RunConfig, RunContextWrapper, Runner, RunState, function_tool
from agents.items import ToolCallOutputItem
from agents.testing import ScriptedModel, assistant_message, function_call
from pydantic import BaseModel
from tests.adapters.kit import KIT, elsewhere, started
from tests.helpers import PATIENCE_S

from toolcell import Session, ToolFailure, UsageError, tool
from toolcell.adapters.openai_agents import from_openai_agents, toolcell_function_tool, toolcell_function_tools

pytestmark = pytest.mark.anyio
QUIET = RunConfig(tracing_disabled=True)


@function_tool
def shout(text: str, times: int = 1) -> str:
    """Say it loudly.

    Args:
        text: What to say.
        times: How often.
    """
    return text.upper() * times


@function_tool(needs_approval=True)
def careful(text: str) -> str:
    """Say it with care."""
    return text


@function_tool
def with_context(ctx: RunContextWrapper[None], text: str) -> str:
    """Use the context."""
    return text


class Size(BaseModel):
    width: int
    unit: str = "cm"


@tool(output_schema=Size)
def measure(width: int) -> Size:
    """Measure."""
    if width < 0:
        raise ToolFailure("no width is negative")
    return Size(width=width)


@function_tool(output_json_schema=Size.model_json_schema(mode="serialization"))
def weigh(width: int) -> dict[str, Any]:
    """Weigh."""
    return {"width": width, "unit": "cm"} if width else {"width": "none"}


TOOLS = [*KIT, measure, from_openai_agents(shout), from_openai_agents(careful), from_openai_agents(weigh)]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


def call(name: str, arguments: dict[str, Any] | str, id: str = "c1") -> Any:
    given = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return function_call(name, given, call_id=id)


async def agent_of(session: Session, *turns: list[Any], **options: Any) -> Agent[Any]:
    model = ScriptedModel([*turns, *[[assistant_message("done")]] * 3])
    return Agent("helper", model=model, tools=list(await toolcell_function_tools(session, **options)))


def outputs(result: Any) -> dict[str, Any]:
    found: list[Any] = [one for one in result.new_items if isinstance(one, ToolCallOutputItem)]
    return {one.raw_item["call_id"]: one.output for one in found}


async def told_of(session: Session, *calls: Any) -> dict[str, Any]:
    return outputs(await Runner.run(await agent_of(session, list(calls)), "go", run_config=QUIET))


async def test_a_tool_runs_in_a_cell(main: Session) -> None:
    told = await told_of(main, call("write", {"path": "a", "content": "b"}), call("call_id", {}, "call_7"))
    assert (main.workspace / "a").read_text() == "b" and told["call_7"] == "call_7"


async def test_one_tool_by_its_name_has_the_session_s_schema(main: Session) -> None:
    pay = await toolcell_function_tool(main, "pay")
    assert pay.params_json_schema["properties"]["amount"]["description"] == "How much."
    with pytest.raises(UsageError, match="Did you mean 'pay'"):
        await toolcell_function_tool(main, "payy")


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("fail", {"why": "rain"}, "execution"),
        ("crash", {}, "crashed"),
        ("pay", {"amount": "much"}, "validation"),
        ("pay", "[1]", "validation"),
        ("fail", "{", "validation"),
    ],
)
async def test_an_error_is_text_for_the_model_and_the_run_goes_on(
    main: Session, name: str, arguments: Any, kind: str
) -> None:
    tool = await toolcell_function_tool(main, name)
    tool.needs_approval = False  # what the SDK cannot parse, it asks a person about
    agent = Agent("helper", model=ScriptedModel([[call(name, arguments)], [assistant_message("done")]]), tools=[tool])
    told = outputs(await Runner.run(agent, "go", run_config=QUIET))
    assert json.loads(told["c1"])["error"]["kind"] == kind


async def test_a_picture_is_a_structured_output(main: Session) -> None:
    text, image = (await told_of(main, call("picture", {})))["c1"]
    assert text.text == '{"drawn":true}' and image.image_url.startswith("data:image/png;base64,iVBOR")


async def test_output_schemas_are_offered_where_the_program_says_so(main: Session) -> None:
    assert all(one.output_json_schema is None for one in await toolcell_function_tools(main))
    tools = {one.name: one for one in await toolcell_function_tools(main, output_schemas=True)}
    offered = tools["measure"].output_json_schema
    assert offered and offered["required"] == ["width", "unit"] and offered["additionalProperties"] is False
    assert tools["pay"].output_json_schema is None  # the SDK takes no open object
    calls = [call("measure", {"width": 2}), call("measure", {"width": -1}, "c2"), call("picture", {}, "c3")]
    agent = await agent_of(main, calls, output_schemas=True)
    told = outputs(await Runner.run(agent, "go", run_config=QUIET))
    assert json.loads(told["c1"]) == {"width": 2, "unit": "cm"}
    assert json.loads(told["c2"])["error"]["message"] == "no width is negative"
    assert told["c3"][1].image_url.startswith("data:image/png")


async def test_calls_of_one_turn_run_side_by_side(main: Session) -> None:
    told = await told_of(main, call("meet", {}), call("meet", {}, "c2"))
    assert "met" in told["c1"] and "met" in told["c2"]


async def test_progress_goes_to_the_program(main: Session) -> None:
    seen: list[tuple[str, float | None]] = []
    agent = await agent_of(main, [call("steps", {"number": 2})], on_progress=lambda *one: seen.append(one))
    await Runner.run(agent, "go", run_config=QUIET)
    assert seen == [("step 0", 0.0), ("step 1", 0.5)]


async def test_an_agent_on_a_loop_of_its_own_works(main: Session) -> None:
    agent = await agent_of(main, [call("call_id", {}, "call_7")])
    result = await elsewhere(lambda: Runner.run(agent, "go", run_config=QUIET))
    assert outputs(result)["call_7"] == "call_7"


async def test_a_cancelled_run_ends_the_call_in_its_cell(main: Session) -> None:
    agent = await agent_of(main, [call("hang", {})])

    async def run() -> None:
        await Runner.run(agent, "go", run_config=QUIET)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.fail_after(PATIENCE_S):
            while not started(main.workspace):
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()
    with anyio.fail_after(PATIENCE_S):
        assert (await main.call("pay", {"amount": 1})).output == {"paid": 1}


class TestApproval:
    """A call that needs approval interrupts the run, whose state crosses processes as JSON."""

    async def asked(self, session: Session, *turns: list[Any]) -> tuple[Agent[Any], RunState[Any]]:
        agent = await agent_of(session, *(turns or ([call("pay", {"amount": 50}), call("pay", {"amount": 5}, "c2")],)))
        result = await Runner.run(agent, "go", run_config=QUIET)
        assert [one.raw_item.call_id for one in result.interruptions] == ["c1"]  # type: ignore[union-attr]
        return agent, await RunState.from_string(agent, result.to_state().to_string())

    async def test_an_approved_call_runs(self, main: Session) -> None:
        agent, state = await self.asked(main)
        state.approve(state.get_interruptions()[0])
        result = await Runner.run(agent, state, run_config=QUIET)
        assert result.final_output == "done"
        assert outputs(result) == {"c1": '{"paid":50}', "c2": '{"paid":5}'}

    async def test_a_rejected_call_does_not_run(self, main: Session) -> None:
        agent, state = await self.asked(main)
        state.reject(state.get_interruptions()[0], rejection_message="too much")
        assert outputs(await Runner.run(agent, state, run_config=QUIET))["c1"] == "too much"

    async def test_an_approval_is_used_once(self, main: Session) -> None:
        agent, state = await self.asked(main)
        text = state.to_string()
        state.approve(state.get_interruptions()[0])
        await Runner.run(agent, state, run_config=QUIET)
        again = await RunState.from_string(agent, text)
        again.approve(again.get_interruptions()[0])
        told = outputs(await Runner.run(agent, again, run_config=QUIET))["c1"]
        assert "has not run" in told and "ask anew" in told

    async def test_an_approval_of_all_calls_holds_for_later_ones(self, main: Session) -> None:
        agent, state = await self.asked(main, [call("pay", {"amount": 50})], [call("pay", {"amount": 70}, "c3")])
        state.approve(state.get_interruptions()[0], always_approve=True)
        result = await Runner.run(agent, state, run_config=QUIET)
        assert not result.interruptions and outputs(result)["c3"] == '{"paid":70}'


class TestFromOpenAIAgents:
    """The SDK's function tools run in cells."""

    async def test_a_function_keeps_its_schema_and_words(self, main: Session) -> None:
        tools = {one.name: one for one in await main.tools()}
        assert tools["shout"].description == "Say it loudly."
        assert tools["shout"].parameters_schema["properties"]["times"]["description"] == "How often."
        assert (await main.call("shout", {"text": "a", "times": 2})).output == "AA"

    async def test_results_are_held_against_the_output_schema(self, main: Session) -> None:
        assert (await main.call("weigh", {"width": 2})).output == {"width": 2, "unit": "cm"}
        error = (await main.call("weigh", {"width": 0})).error
        assert error and "output schema" in error.message

    async def test_a_tool_that_needs_approval_needs_the_supervisor_s(self, main: Session) -> None:
        assert (await main.explain("careful", {"text": "a"})).decision == "ask"

    def test_a_tool_with_the_sdk_s_context_is_refused(self) -> None:
        with pytest.raises(UsageError, match="SDK's context, which no cell has"):
            from_openai_agents(with_context)

    def test_a_tool_without_a_function_is_refused(self) -> None:
        async def invoke(_ctx: Any, _raw: str) -> str:
            return ""

        with pytest.raises(UsageError, match="no function that a cell could run"):
            from_openai_agents(FunctionTool("byhand", "", {"type": "object"}, invoke))
        with pytest.raises(UsageError, match="no function that a cell could run"):
            from_openai_agents(Agent("inner").as_tool("inner", "An agent."))
