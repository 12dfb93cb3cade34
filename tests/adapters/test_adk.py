"""Google ADK: its Runner and a scripted model, with real cells."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext as AdkContext
from google.genai import types
from pydantic import BaseModel
from tests.adapters.kit import KIT, PNG, elsewhere, pay, started
from tests.helpers import until

from toolcell import Capability, Session, Supervisor, UsageError, tool
from toolcell.adapters.adk import AdkToolset, from_adk
from toolcell_tools import ImageBlock

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # ADK needs asyncio


class Shout(BaseTool):
    """A tool of ADK that is a class."""

    def __init__(self) -> None:
        super().__init__(name="Shout", description="Shout.")

    def _get_declaration(self) -> types.FunctionDeclaration:
        schema = types.Schema(type=types.Type.OBJECT, properties={"text": types.Schema(type=types.Type.STRING)})
        return types.FunctionDeclaration(name=self.name, description=self.description, parameters=schema)

    async def run_async(self, *, args: dict[str, Any], tool_context: AdkContext) -> Any:
        if args["text"] == "state":
            return tool_context.state["a"]
        if args["text"] == "picture":
            return {"text": "here", "picture": types.Part.from_bytes(data=PNG, mime_type="image/png")}
        return {"error": "too quiet"} if not args["text"] else args["text"].upper()


@tool(return_direct=True)
def decide() -> str:
    """Decide."""
    return "decided"


class Depth(BaseModel):
    levels: int


def where(depth: Depth) -> list[str]:
    """The directories that the tool sees, and whether it has loaded ADK.

    Args:
        depth: How deep.
    """
    import os
    import sys

    return [*os.listdir("/"), f"{depth.levels} levels", f"ADK: {'google.adk' in sys.modules}"]


async def draw(text: str) -> Any:
    """Draw."""
    if not text:
        return {"error": "nothing to draw"}
    return [text, types.Part.from_bytes(data=PNG, mime_type="image/png")]


def remember(key: str, tool_context: AdkContext) -> str:
    """Remember."""
    return key


def stream(to: int) -> Any:
    """Stream."""
    yield from range(to)


class Measured(Shout):
    """Declares what it responds, as OpenAPI has it."""

    def _get_declaration(self) -> types.FunctionDeclaration:
        response = types.Schema(type=types.Type.OBJECT, properties={"size": types.Schema(type=types.Type.INTEGER)})
        return super()._get_declaration().model_copy(update={"response": response})


def count(text: str) -> int:
    """Count."""
    return len(text) if text else "none"  # type: ignore[return-value]


def portrait() -> list[types.Part]:
    """Draw a portrait."""
    return [types.Part.from_bytes(data=PNG, mime_type="image/png")]


ASK = from_adk("google.adk.tools._request_input_tool:request_input", name="ask", needs={Capability.READ})
TOOLS = [
    *KIT,
    decide,
    ASK,
    from_adk(Shout(), needs={Capability.READ}),  # so that ADK is loaded in cells of these tools only
    from_adk(FunctionTool(draw), needs={Capability.READ}),
    from_adk(FunctionTool(portrait), needs={Capability.READ}),
    from_adk(FunctionTool(where)),
    from_adk(FunctionTool(count)),
    from_adk(FunctionTool(where, require_confirmation=True), name="asked_where", needs={Capability.READ}),
]  # fmt: skip


@pytest.fixture(scope="module")
def options() -> dict[str, Any]:
    return {"profiles": None}  # ADK in a cell needs more memory than the small limits of other tests


class ScriptedLlm(BaseLlm):
    """Makes the given calls in its first turn, and keeps what it is asked."""

    calls: list[tuple[str, dict[str, Any]]]
    requests: list[LlmRequest]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.requests.append(llm_request)
        if len(self.requests) == 1:
            parts = [types.Part.from_function_call(name=name, args=args) for name, args in self.calls]
        else:
            parts = [types.Part.from_text(text="done")]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


class Agent:
    """An ADK agent with a session's tools, a runner and a model that makes the given calls."""

    def __init__(self, toolset: AdkToolset, *calls: tuple[str, dict[str, Any]]) -> None:
        self.model = ScriptedLlm(model="scripted", calls=list(calls), requests=[])
        agent = LlmAgent(name="agent", model=self.model, tools=[toolset])
        self.runner = InMemoryRunner(agent, app_name="test")

    async def run(self, *parts: types.Part) -> list[Event]:
        service = self.runner.session_service
        if await service.get_session(app_name="test", user_id="u", session_id="s") is None:
            await service.create_session(app_name="test", user_id="u", session_id="s")
        content = types.Content(role="user", parts=list(parts) or [types.Part.from_text(text="go")])
        return [one async for one in self.runner.run_async(user_id="u", session_id="s", new_message=content)]


def responses(events: list[Event]) -> list[types.FunctionResponse]:
    return [one for event in events for one in event.get_function_responses()]


async def answers(main: Session, *calls: tuple[str, dict[str, Any]], **options: Any) -> list[types.FunctionResponse]:
    return responses(await Agent(AdkToolset(main, **options), *calls).run())


async def test_an_agent_calls_tools_and_the_model_gets_their_results(main: Session) -> None:
    agent = Agent(AdkToolset(main), ("pay", {"amount": 5}), ("call_id", {}))
    events = await agent.run()
    paid, id = responses(events)
    assert (paid.name, paid.response) == ("pay", {"paid": 5})
    assert id.response == {"result": id.id}
    assert events[-1].content and events[-1].content.parts and events[-1].content.parts[0].text == "done"


async def test_the_model_sees_the_whole_schemas(main: Session) -> None:
    agent = Agent(AdkToolset(main), ("call_id", {}))
    await agent.run()
    (offered,) = agent.model.requests[0].config.tools or []
    assert isinstance(offered, types.Tool)
    declared = {one.name: one for one in offered.function_declarations or []}
    assert declared["pay"].parameters_json_schema == pay.declaration.parameters_schema
    assert declared["pay"].response_json_schema == pay.declaration.output_schema


@pytest.mark.parametrize(
    ("call", "kind", "word"),
    [
        (("fail", {"why": "no reason"}), "execution", "it failed: no reason"),
        (("crash", {}), "crashed", "SIGKILL"),
        (("pay", {"amount": "x"}), "validation", "amount"),
    ],
)
async def test_an_error_is_an_error_dict(main: Session, call: tuple[str, dict[str, Any]], kind: str, word: str) -> None:
    (answer,) = await answers(main, call)
    assert answer.response and answer.response["error"]["kind"] == kind and word in str(answer.response)


async def test_an_image_arrives_as_a_part_of_the_response(main: Session) -> None:
    (answer,) = await answers(main, ("picture", {}))
    assert answer.response == {"drawn": True}
    (part,) = answer.parts or []
    assert part.inline_data and (part.inline_data.data, part.inline_data.mime_type) == (PNG, "image/png")


async def test_parallel_calls_run_side_by_side(main: Session) -> None:
    first, second, failed = await answers(main, ("meet", {}), ("meet", {}), ("fail", {"why": "alone"}))
    assert first.response and second.response and failed.response
    assert first.response["result"] == second.response["result"] == "met" and "error" in failed.response


@pytest.mark.parametrize(
    ("confirmation", "expected"),
    [
        ({"confirmed": True}, "'paid': 50"),
        ({"confirmed": True, "payload": {"arguments": {"amount": 20}}}, "'paid': 20"),
        ({"confirmed": False}, "rejected"),
        ({"confirmed": False, "payload": {"message": "ask me tomorrow"}}, "ask me tomorrow"),
    ],
)
async def test_a_confirmation_shows_the_preview_and_decides(
    main: Session, confirmation: dict[str, Any], expected: str
) -> None:
    agent = Agent(AdkToolset(main), ("pay", {"amount": 50}), ("call_id", {}))
    events = await agent.run()
    assert len(agent.model.requests) == 1  # the model waits for the person
    (asked,) = [one for event in events for one in event.get_function_calls() if "confirmation" in (one.name or "")]
    said = (asked.args or {})["toolConfirmation"]
    assert (
        said["hint"].startswith("Spend 50")
        and "    amount = 50" in said["hint"]
        and said["payload"]["arguments"] == {"amount": 50}
    )
    response = types.FunctionResponse(id=asked.id, name=asked.name, response=confirmation)
    (answer,) = responses(await agent.run(types.Part(function_response=response)))
    assert answer.name == "pay" and expected in str(answer.response)


async def test_a_confirmation_of_a_call_runs_it_once(main: Session) -> None:
    agent = Agent(AdkToolset(main), ("pay", {"amount": 50}))
    (asked,) = [one for event in await agent.run() for one in event.get_function_calls() if one.name != "pay"]
    response = types.FunctionResponse(id=asked.id, name=asked.name, response={"confirmed": True})
    part = types.Part(function_response=response)
    assert [one.response for one in responses(await agent.run(part))] == [{"paid": 50}]
    assert not responses(await agent.run(part))


async def test_progress_is_told_with_adk_s_context(main: Session) -> None:
    told: list[tuple[str | None, str, float | None]] = []
    toolset = AdkToolset(main, on_progress=lambda ctx, *said: told.append((ctx.function_call_id, *said)))
    (answer,) = responses(await Agent(toolset, ("steps", {"number": 2})).run())
    assert answer.id and told == [(answer.id, "step 0", 0.0), (answer.id, "step 1", 0.5)]


async def test_a_runner_on_a_loop_of_its_own_calls_tools(main: Session) -> None:
    (answer,) = await elsewhere(lambda: answers(main, ("steps", {"number": 2})))
    assert answer.response == {"result": 2}


async def test_a_cancelled_run_ends_the_call_in_its_cell(main: Session, shared: Supervisor, workspace: Path) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Agent(AdkToolset(main), ("hang", {})).run)
        await until(lambda: started(workspace))
        tasks.cancel_scope.cancel()
    await until(lambda: "busy" not in repr(shared))


async def test_a_tool_that_returns_directly_ends_the_turn(main: Session) -> None:
    agent = Agent(AdkToolset(main), ("decide", {}))
    assert responses(await agent.run())[0].response == {"result": "decided"}
    assert len(agent.model.requests) == 1


async def test_a_toolset_takes_a_filter_and_a_prefix(main: Session) -> None:
    toolset = AdkToolset(main, tool_filter=["call_id", "pay"], tool_name_prefix="cell")
    assert {one.name for one in await toolset.get_tools_with_prefix()} == {"cell_call_id", "cell_pay"}
    (answer,) = responses(await Agent(toolset, ("cell_pay", {"amount": 1})).run())
    assert answer.response == {"paid": 1}


@pytest.mark.parametrize("closes", [True, False])
async def test_the_runner_closes_the_session_only_if_told(shared: Supervisor, workspace: Path, closes: bool) -> None:
    session = await shared.open_session("main", workspace=workspace)
    await Agent(AdkToolset(session, closes_session=closes)).runner.close()
    assert session.closed is closes
    await session.close()


async def test_tools_of_adk_run_in_cells(main: Session) -> None:
    assert (await main.call("shout", {"text": "hi"})).output == "HI"
    listed = (await main.call("where", {"depth": {"levels": 2}})).unwrap()
    assert "2 levels" in listed and "boot" not in listed
    assert "ADK: False" in listed  # only what the function itself needs is loaded in its cell
    error = (await main.call("where", {})).error
    assert error and error.kind == "validation"


async def test_errors_and_media_of_tools_of_adk_are_results(main: Session) -> None:
    error = (await main.call("shout", {"text": ""})).error
    assert error and error.message == "too quiet"
    error = (await main.call("shout", {"text": "state"})).error
    assert error and "tool_context.state" in error.message
    result = await main.call("shout", {"text": "picture"})
    assert result.output == {"text": "here"} and result.content[0].type == "image"
    result = await main.call("draw", {"text": "owl"})
    assert result.output == ["owl"] and result.content == [ImageBlock.from_bytes(PNG, "image/png")]
    error = (await main.call("draw", {"text": ""})).error
    assert error and error.message == "nothing to draw"


async def test_results_of_tools_of_adk_are_held_against_their_schemas(main: Session) -> None:
    declared = {one.name: one.output_schema for one in await main.tools()}
    assert declared["count"] == {"type": "integer"} and declared["portrait"] is None  # its result is content
    assert (await main.call("count", {"text": "owl"})).output == 3
    error = (await main.call("count", {"text": ""})).error
    assert error and "output schema" in error.message
    assert (await main.call("portrait", {})).content == [ImageBlock.from_bytes(PNG, "image/png")]


def test_the_declared_response_of_a_tool_of_adk_is_its_output_schema() -> None:
    assert from_adk(Measured()).declaration.output_schema == {
        "type": "object",
        "properties": {"size": {"type": "integer"}},
    }


async def test_an_import_path_of_a_tool_of_adk_is_imported_in_the_cell(main: Session) -> None:
    result = await main.call(ASK, {"message": "which one?"})
    assert result.error is None and result.output is None and ASK.declaration.long_running


async def test_a_tool_of_adk_that_requires_confirmation_requires_approval(main: Session) -> None:
    error = (await main.call("asked_where", {"depth": {"levels": 1}})).error
    assert error and error.kind == "permission_denied"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (FunctionTool(remember), "tool_context"),
        (FunctionTool(stream), "generator"),
        (FunctionTool(where, require_confirmation=lambda depth: depth > 1), "requires_approval"),
        (BaseTool(name="search", description=""), "provider"),
        ("os.path:join", "no tool of ADK"),
        ("google.adk.tools.get_user_choice_tool:get_user_choice_tool", "tool_context"),
    ],
)
def test_a_tool_of_adk_that_cannot_run_in_a_cell_is_refused(given: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        from_adk(given)
