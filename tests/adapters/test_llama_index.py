"""LlamaIndex: its FunctionAgent and a scripted model, with real cells."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.base.llms.types import ImageBlock as LlamaImage
from llama_index.core.base.llms.types import TextBlock as LlamaText
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.tools import FunctionTool, ToolMetadata, ToolOutput
from llama_index.core.tools.calling import acall_tool, call_tool
from llama_index.core.tools.types import AsyncBaseTool
from llama_index.core.workflow import Context
from pydantic import BaseModel
from tests.adapters.kit import KIT, PNG, elsewhere, pay, started
from tests.conftest import Supervise
from tests.helpers import until
from workflows.events import HumanResponseEvent, InputRequiredEvent
from workflows.handler import WorkflowHandler

from toolcell import Capability, Session, Supervisor, ToolFailed, UsageError, tool
from toolcell.adapters.llama_index import CellProgressEvent, LlamaIndexTool, from_llama_index, to_llama_index_tools
from toolcell_tools import ImageBlock

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),  # LlamaIndex looks at them
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # LlamaIndex needs asyncio


class Owl(BaseModel):
    name: str
    friends: list["Owl"] = []


@tool(return_direct=True)
def greet(owl: Owl) -> str:
    """Greet."""
    return f"hello {owl.name}"


def where(owl: Owl, times: int = 1) -> list[str]:
    """The directories that the tool sees, and whether it has loaded LlamaIndex."""
    import os
    import sys

    return [*os.listdir("/"), owl.name * times, f"LlamaIndex: {'llama_index.core' in sys.modules}"]


def repeat(text: str, times: int) -> str:
    """Repeat."""
    return text * times


def draw(text: str) -> Any:
    """Draw."""
    return [LlamaText(text=text), LlamaImage(image=PNG, image_mimetype="image/png")]


def needs_context(ctx: Context, text: str) -> str:
    """Uses the workflow."""
    return text


class Shout(AsyncBaseTool):
    """A tool of LlamaIndex that is a class."""

    @property
    def metadata(self) -> ToolMetadata:
        return ToolMetadata("Shout.", name="Shout!")

    def call(self, input: Any) -> ToolOutput:
        raise NotImplementedError

    async def acall(self, input: Any) -> ToolOutput:
        text = str(input).upper()
        return ToolOutput(
            content=text or "too quiet", tool_name="Shout!", raw_input={}, raw_output=text, is_error=not text
        )


READ = {Capability.READ}  # so that LlamaIndex is loaded in cells of these tools only
TOOLS = [
    *KIT,
    greet,
    from_llama_index(FunctionTool.from_defaults(where)),
    from_llama_index(FunctionTool.from_defaults(repeat, partial_params={"times": 3}), needs=READ),
    from_llama_index(FunctionTool.from_defaults(draw), needs=READ),
    from_llama_index(Shout(), needs=READ),
]


@pytest.fixture(scope="module")
def options() -> dict[str, Any]:
    return {"profiles": None}  # LlamaIndex in a cell needs more memory than the small limits of other tests


class Model:
    """Makes the given calls in its first turn, and keeps the messages of each turn."""

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        self.calls = calls
        self.turns: list[Sequence[ChatMessage]] = []

    def __call__(self, messages: Sequence[ChatMessage], **options: Any) -> ChatMessage:
        self.turns.append(messages)
        if len(self.turns) > 1:
            return ChatMessage(role="assistant", content="done")
        blocks = [
            ToolCallBlock(tool_call_id=f"id-{number}", tool_name=name, tool_kwargs=arguments)
            for number, (name, arguments) in enumerate(self.calls)
        ]
        return ChatMessage(role="assistant", blocks=blocks)


def response(**data: Any) -> HumanResponseEvent:
    return HumanResponseEvent(**data)


async def tools_of(session: Session) -> dict[str, LlamaIndexTool]:
    tools = await to_llama_index_tools(session)
    return {one.metadata.get_name(): one for one in tools if isinstance(one, LlamaIndexTool)}


async def start(session: Session, *calls: tuple[str, dict[str, Any]]) -> tuple[WorkflowHandler, Model]:
    model = Model(*calls)
    agent = FunctionAgent(
        tools=await to_llama_index_tools(session),
        llm=MockFunctionCallingLLM(response_generator=model),
        streaming=False,
    )
    return agent.run(user_msg="go"), model


async def outputs(session: Session, *calls: tuple[str, dict[str, Any]]) -> list[ToolOutput]:
    """The outputs of the calls, as they are in the agent's event stream, in the order of the calls."""
    handler, model = await start(session, *calls)
    found = [one async for one in handler.stream_events() if isinstance(one, ToolCallResult)]
    assert str(await handler) == "done"
    assert [one.content for one in model.turns[1] if one.role == "tool"]
    return [one.tool_output for one in sorted(found, key=lambda one: one.tool_id)]


async def test_an_agent_calls_tools_and_the_model_gets_their_results(main: Session) -> None:
    paid, id = await outputs(main, ("pay", {"amount": 5}), ("call_id", {}))
    assert (paid.content, paid.raw_output, paid.is_error) == ('{"paid":5}', {"paid": 5}, False)
    assert id.raw_output == "id-1"  # the model's call id


async def test_the_model_sees_the_whole_schemas(main: Session) -> None:
    tools = await tools_of(main)
    declared = greet.declaration.parameters_schema
    assert "$defs" in declared
    assert tools["greet"].metadata.to_openai_tool()["function"]["parameters"] == declared
    assert '"$defs"' in tools["greet"].metadata.fn_schema_str


@pytest.mark.parametrize(
    ("call", "kind", "word"),
    [
        (("fail", {"why": "no reason"}), "execution", "it failed: no reason"),
        (("crash", {}), "crashed", "SIGKILL"),
        (("pay", {"amount": "x"}), "validation", "amount"),
    ],
)
async def test_an_error_is_an_output_that_says_so(
    main: Session, call: tuple[str, dict[str, Any]], kind: str, word: str
) -> None:
    (output,) = await outputs(main, call)
    assert output.is_error and output.raw_output["error"]["kind"] == kind and word in output.content
    assert isinstance(output.exception, ToolFailed)


async def test_an_image_arrives_as_a_block(main: Session) -> None:
    (output,) = await outputs(main, ("picture", {}))
    text, image = output.blocks
    assert isinstance(text, LlamaText) and text.text == '{"drawn":true}'
    assert isinstance(image, LlamaImage) and image.resolve_image().read() == PNG
    assert image.image_mimetype == "image/png"


async def test_parallel_calls_run_side_by_side_and_one_may_fail(main: Session) -> None:
    first, second, failed = await outputs(main, ("meet", {}), ("meet", {}), ("fail", {"why": "alone"}))
    assert first.raw_output == second.raw_output == "met" and failed.is_error


async def test_a_tool_that_returns_directly_is_the_agent_s_answer(main: Session) -> None:
    handler, model = await start(main, ("greet", {"owl": {"name": "Ann"}}))
    assert str(await handler) == "hello Ann" and len(model.turns) == 1


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"response": "Yes"}, '{"paid":50}'),
        ({"response": "yes", "arguments": {"amount": 20}}, '{"paid":20}'),
        ({"response": "no"}, "not approved"),
        ({"response": "ask me tomorrow"}, "ask me tomorrow"),
    ],
)
async def test_a_person_is_asked_in_the_event_stream(main: Session, answer: dict[str, Any], expected: str) -> None:
    handler, model = await start(main, ("pay", {"amount": 50}), ("call_id", {}))
    asked: list[InputRequiredEvent] = []
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            asked.append(event)
            assert len(model.turns) == 1
            handler.ctx.send_event(response(**answer, request_id=event.request_id))
    await handler
    (question,) = asked
    assert (
        question.prefix.startswith("Spend 50")
        and "    amount = 50\n" in question.prefix
        and question.request["arguments"] == {"amount": 50}
    )
    (paid,) = [str(one.content) for one in model.turns[1] if "id-" not in str(one.content) and one.role == "tool"]
    assert expected in paid


async def test_two_equal_calls_take_an_approval_each(main: Session) -> None:
    handler, model = await start(main, ("pay", {"amount": 50}), ("pay", {"amount": 50}))
    asked = 0
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            asked += 1
            handler.ctx.send_event(response(response="yes", request_id=event.request_id))
    await handler
    assert [one.content for one in model.turns[1] if one.role == "tool"] == ['{"paid":50}'] * 2 and asked >= 2


async def test_a_question_that_nobody_answers_is_a_denial(supervise: Supervise, workspace: Path) -> None:
    async with supervise([pay], approval_timeout_s=1) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        (output,) = await outputs(session, ("pay", {"amount": 50}))
        assert output.is_error and "Nobody approved" in output.content


async def test_outside_of_an_agent_nobody_is_asked(main: Session) -> None:
    tools = await tools_of(main)
    output = await tools["pay"].acall(amount=50)
    assert output.is_error and output.raw_output["error"]["kind"] == "permission_denied"


async def test_progress_is_in_the_event_stream(main: Session) -> None:
    handler, _ = await start(main, ("steps", {"number": 2}))
    told = [one async for one in handler.stream_events() if isinstance(one, CellProgressEvent)]
    assert [(one.tool_name, one.tool_id, one.message, one.fraction) for one in told] == [
        ("steps", "id-0", "step 0", 0.0),
        ("steps", "id-0", "step 1", 0.5),
    ]


async def test_an_agent_on_a_loop_of_its_own_asks_and_reports_progress(main: Session) -> None:
    async def go() -> list[str]:
        handler, model = await start(main, ("steps", {"number": 2}), ("pay", {"amount": 50}))
        told: list[str] = []
        async for event in handler.stream_events():
            if isinstance(event, CellProgressEvent):
                told.append(event.message)
            if isinstance(event, InputRequiredEvent):
                handler.ctx.send_event(response(response="yes", request_id=event.request_id))
        await handler
        assert '{"paid":50}' in [one.content for one in model.turns[1] if one.role == "tool"]
        return told

    assert await elsewhere(go) == ["step 0", "step 1"]


async def test_a_cancelled_run_ends_the_call_in_its_cell(main: Session, shared: Supervisor, workspace: Path) -> None:
    handler, _ = await start(main, ("hang", {}))
    await until(lambda: started(workspace))
    await handler.cancel_run()
    await until(lambda: "busy" not in repr(shared))


async def test_a_tool_works_without_an_agent_by_name_by_place_and_from_a_thread(main: Session) -> None:
    tools = await tools_of(main)
    assert (await acall_tool(tools["pay"], {"amount": 1})).raw_output == {"paid": 1}
    assert (await tools["pay"].acall(4)).raw_output == {"paid": 4}
    assert (await anyio.to_thread.run_sync(call_tool, tools["pay"], {"amount": 5})).raw_output == {"paid": 5}
    with pytest.raises(UsageError, match="acall"):
        tools["pay"](amount=1)


async def test_tools_of_llama_index_run_in_cells(main: Session) -> None:
    listed = (await main.call("where", {"owl": {"name": "Ann"}})).unwrap()
    assert "Ann" in listed and "boot" not in listed
    assert "LlamaIndex: False" in listed  # only what the function itself needs is loaded in its cell
    assert (await main.call("repeat", {"text": "Ann"})).output == "AnnAnnAnn"
    error = (await main.call("where", {})).error
    assert error and error.kind == "validation"


async def test_blocks_and_errors_of_tools_of_llama_index_are_results(main: Session) -> None:
    result = await main.call("draw", {"text": "owl"})
    assert [one.type for one in result.content] == ["text", "image"]
    assert result.content[1] == ImageBlock.from_bytes(PNG, "image/png")
    assert (await main.call("shout", {"input": "hi"})).output == "HI"
    error = (await main.call("shout", {"input": ""})).error
    assert error and error.message == "too quiet"


@pytest.mark.parametrize(
    ("given", "said"),
    [(FunctionTool.from_defaults(needs_context), "Context"), ("os.path:join", "no tool of LlamaIndex")],
)
def test_a_tool_of_llama_index_that_cannot_run_in_a_cell_is_refused(given: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        from_llama_index(given)
