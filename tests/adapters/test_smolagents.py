"""smolagents: its ToolCallingAgent and CodeAgent with a scripted model, and real cells."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import smolagents
from PIL import Image
from pydantic import BaseModel, Field
from smolagents.agent_types import AgentImage
from smolagents.local_python_executor import InterpreterError
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
    Model,
    get_tool_json_schema,
)
from smolagents.monitoring import LogLevel
from tests.adapters.kit import KIT, pay
from tests.helpers import PATIENCE_S

from toolcell import ApprovalRequest, Approved, Capability, Denied, Supervisor, UsageError, blocking, tool
from toolcell.adapters.smolagents import SmolagentsToolError, from_smolagents, to_smolagents_tools
from toolcell.adapters.smolagents_executor import CellPythonExecutor, PythonCell


class Owl(BaseModel):
    name: str
    friends: list["Owl"] = []


@tool
def greet(
    owl: Owl,
    mood: int | str,
    scale: float | None = None,
    how: Annotated[str, Field(description="How.", max_length=9)] = "loud",
) -> dict[str, Any]:
    """Greet.

    Args:
        owl: Whom.
    """
    return {"said": f"hello {owl.name}", "mood": mood, "scale": scale, "how": how}


def where(depth: int, name: str | None = None) -> list:  # type: ignore[type-arg]
    """The directories that the tool sees, and whether it has loaded smolagents.

    Args:
        depth: How deep.
        name: A name.
    """
    import os
    import sys

    return [*os.listdir("/"), f"{name} {depth}", f"smolagents: {'smolagents' in sys.modules}"]


WHERE = smolagents.tool(where)


class Draw(smolagents.Tool):
    """A tool of smolagents that is a class."""

    name = "Draw"
    description = "Draw a square."
    inputs = {"size": {"type": "integer", "description": "Pixels."}}  # noqa: RUF012
    output_type = "image"

    def forward(self, size: int) -> Any:
        return Image.new("RGB", (size, size))


class Weigh(smolagents.Tool):
    """A tool of smolagents with an output schema."""

    name = "weigh"
    description = "Weigh."
    inputs = {"text": {"type": "string", "description": "What."}}  # noqa: RUF012
    output_type = "object"
    output_schema = {"type": "object", "properties": {"grams": {"type": "integer"}}, "required": ["grams"]}  # noqa: RUF012

    def forward(self, text: str) -> Any:
        return {"grams": len(text)} if text else {"grams": "none"}


class Look(smolagents.Tool):
    """A tool whose input is a picture."""

    name = "look"
    description = "Look."
    inputs = {"picture": {"type": "image", "description": "What."}}  # noqa: RUF012
    output_type = "string"

    def forward(self, picture: Any) -> str:
        return str(picture)


TOOLS: list[Any] = [
    *KIT,
    greet,
    PythonCell(),
    from_smolagents(Weigh(), needs={Capability.READ}),
    from_smolagents(WHERE),
    from_smolagents(Draw(), needs={Capability.READ}),  # so that smolagents is loaded in cells of this tool only
]


@pytest.fixture(scope="module")
def supervisor(nothing_is_left_of_the_module: None) -> Iterator[blocking.Supervisor]:
    with blocking.Supervisor(TOOLS) as supervisor:
        yield supervisor


@pytest.fixture
def session(supervisor: blocking.Supervisor, workspace: Path) -> Iterator[blocking.Session]:
    session = supervisor.open_session("main", workspace=workspace)
    yield session
    session.close()


class Scripted(Model):  # type: ignore[misc]
    """Says one thing a turn, and keeps the messages of each turn."""

    def __init__(self, *says: Any) -> None:
        super().__init__(model_id="scripted")
        self.says = list(says)
        self.turns: list[Any] = []

    def generate(self, messages: Any, **options: Any) -> Any:
        self.turns.append(messages)
        said = self.says.pop(0)
        if isinstance(said, str):
            return ChatMessage(role=MessageRole.ASSISTANT, content=said)
        calls = [
            ChatMessageToolCall(
                id=f"id-{at}", type="function", function=ChatMessageToolCallFunction(name=name, arguments=arguments)
            )
            for at, (name, arguments) in enumerate(said)
        ]
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=calls)


DONE = [("final_answer", {"answer": "done"})]
Step = Any


def run(session: blocking.Session, *calls: tuple[str, dict[str, Any]]) -> Step:
    """The step of a ToolCallingAgent that makes these calls."""
    agent = smolagents.ToolCallingAgent(
        tools=to_smolagents_tools(session), model=Scripted(calls, DONE), verbosity_level=LogLevel.OFF
    )
    assert agent.run("go") == "done"
    return agent.memory.steps[1]


def test_an_agent_calls_a_tool_and_the_model_gets_its_result(session: blocking.Session) -> None:
    step = run(session, ("pay", {"amount": 5}))
    assert step.error is None and step.observations == "{'paid': 5}"


def test_the_model_sees_the_whole_schemas(session: blocking.Session) -> None:
    tools = {one.name: one for one in to_smolagents_tools(session)}
    function = get_tool_json_schema(tools["greet"])["function"]
    properties = function["parameters"]["properties"]
    assert function["parameters"]["required"] == ["owl", "mood"]
    assert properties["owl"]["properties"]["name"]["type"] == "string" and "$ref" not in json.dumps(properties)
    assert properties["mood"]["type"] == ["integer", "string"]
    assert properties["how"] | {"nullable": True} == {
        "type": "string", "description": "How.", "maxLength": 9, "default": "loud", "nullable": True,
    }  # fmt: skip
    assert "run_python" not in tools


def test_nested_united_and_optional_arguments_arrive(session: blocking.Session) -> None:
    owl = {"name": "Ann", "friends": [{"name": "Bob"}]}
    step = run(session, ("greet", {"owl": owl, "mood": 3, "scale": 2, "how": None}))
    assert step.observations == "{'said': 'hello Ann', 'mood': 3, 'scale': 2.0, 'how': 'loud'}"


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (("fail", {"why": "no reason"}), "it failed: no reason"),
        (("crash", {}), "SIGKILL"),
        (("pay", {"amount": 50}), "nobody can be asked"),
        (("greet", {"owl": {"name": 1}, "mood": 1}), "validation"),
    ],
)
def test_an_error_is_the_step_s_error_and_the_agent_goes_on(
    session: blocking.Session, call: tuple[str, dict[str, Any]], word: str
) -> None:
    step = run(session, call)
    assert word in step.error.message


class Person:
    """The approver of a program, who says this."""

    def __init__(self, answer: Approved | Denied) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def approve(self, request: ApprovalRequest) -> Approved | Denied:
        self.asked.append(request.preview.summary)
        return self.answer


@pytest.mark.parametrize(
    ("answer", "word"),
    [(Approved(), "{'paid': 50}"), (Approved({"amount": 20}), "{'paid': 20}"), (Denied("too much"), "too much")],
)
def test_the_supervisor_s_approver_is_asked(workspace: Path, answer: Approved | Denied, word: str) -> None:
    person = Person(answer)
    with blocking.Supervisor([pay], approver=person) as supervisor:
        step = run(supervisor.open_session("main", workspace=workspace), ("pay", {"amount": 50}))
    assert word in (step.observations or "") + str(step.error or "") and person.asked == ["Spend 50"]


def test_a_picture_is_kept_in_the_agent_s_state(session: blocking.Session) -> None:
    tools = {one.name: one for one in to_smolagents_tools(session)}
    value, picture = tools["picture"]()
    assert (
        value == {"drawn": True}
        and isinstance(picture, AgentImage)
        and picture.to_raw().load()
        and picture.to_raw().size == (1, 1)
    )


def test_a_result_that_is_a_picture_is_an_agent_image(session: blocking.Session) -> None:
    agent = smolagents.ToolCallingAgent(
        tools=to_smolagents_tools(session), model=Scripted([("draw", {"size": 3})], DONE), verbosity_level=LogLevel.OFF
    )
    agent.run("go")
    assert agent.memory.steps[1].observations == "Stored 'image.png' in memory."
    picture = agent.state["image.png"].to_raw()
    picture.load()
    assert picture.size == (3, 3)


def test_parallel_calls_run_side_by_side(session: blocking.Session) -> None:
    step = run(session, ("meet", {}), ("meet", {}))
    assert step.observations.split() == ["met", "met"]


def test_progress_is_told(session: blocking.Session) -> None:
    told: list[tuple[str, str, float | None]] = []
    tools = {one.name: one for one in to_smolagents_tools(session, on_progress=lambda *one: told.append(one))}
    assert tools["steps"](2) == 2
    assert told == [("steps", "step 0", 0.0), ("steps", "step 1", 0.5)]


def test_tools_work_on_any_loop_and_thread_but_the_session_s_own(session: blocking.Session) -> None:
    tools = {one.name: one for one in to_smolagents_tools(session, on_progress=lambda *_: own.append(call()))}
    own: list[object] = []

    def call() -> object:
        try:
            return tools["pay"](2)
        except UsageError as error:
            return str(error)

    async def on_a_loop() -> list[object]:
        return [call(), await asyncio.to_thread(call)]

    assert asyncio.run(on_a_loop()) == [{"paid": 2}, {"paid": 2}]
    assert tools["steps"](1) == 1 and "asyncio.to_thread" in str(own)


def test_the_close_of_the_session_ends_the_call_of_a_running_agent(session: blocking.Session) -> None:
    tools = {one.name: one for one in to_smolagents_tools(session)}
    failed: list[Exception] = []

    def hang() -> None:
        try:
            tools["hang"]()
        except SmolagentsToolError as error:
            failed.append(error)

    thread = threading.Thread(target=hang)
    thread.start()
    while not (session.workspace / "running").exists():
        thread.join(0.02)
    session.close()
    thread.join(PATIENCE_S)
    assert failed and "cancelled" in str(failed[0])


def test_an_asynchronous_session_is_refused_with_the_cure() -> None:
    with pytest.raises(UsageError, match=r"toolcell\.blocking"):
        to_smolagents_tools(Supervisor())  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def code(session: blocking.Session, *blocks: str, tools: list[Any] | None = None, **options: Any) -> Any:
    """A CodeAgent that has run these pieces of code, in a cell."""
    agent = smolagents.CodeAgent(
        tools=to_smolagents_tools(session) if tools is None else tools,
        model=Scripted(*[f"<code>\n{block}\n</code>" for block in blocks]),
        executor=CellPythonExecutor(session, **options),
        verbosity_level=LogLevel.OFF,
    )
    agent.answer = agent.run("go", max_steps=len(blocks))
    return agent


def test_code_of_an_agent_runs_in_a_cell_and_keeps_its_variables(session: blocking.Session) -> None:
    agent = code(
        session,
        "import os\nroot = os.listdir('/')\nprint('looked')\n'boot' in root",
        "final_answer(len(root) > 3)",
    )
    first = agent.memory.steps[1]
    assert first.error is None and "looked" in first.observations and first.action_output is False
    assert agent.answer is True


def test_code_calls_tools_which_run_in_cells_of_their_own(session: blocking.Session) -> None:
    agent = code(
        session,
        "write('a.txt', content='hello')",
        "said = [pay(amount)['paid'] for amount in (1, 2)]\nfinal_answer([said, open('a.txt').read()])",
    )
    assert agent.answer == [[1, 2], "hello"]


def test_an_error_of_a_tool_is_an_exception_in_the_code(session: blocking.Session) -> None:
    agent = code(session, "try:\n    fail('no reason')\nexcept Exception as error:\n    final_answer(str(error))")
    assert "it failed: no reason" in agent.answer


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("print('before')\nx = 1\nx / 0", "line 3, 'x / 0': ZeroDivisionError"),
        ("x =", "SyntaxError"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("import ctypes\nctypes.string_at(0)", "SIGSEGV"),
        ("while True: fail_ = call_id()", "more than 5 calls"),
    ],
)
def test_an_error_of_the_code_is_explained_and_the_next_code_runs(
    session: blocking.Session, block: str, said: str
) -> None:
    agent = code(session, block, "final_answer(1)", max_calls=5)
    assert said in agent.memory.steps[1].error.message and agent.answer == 1
    if "before" in block:
        assert "before" in agent.memory.steps[1].observations


class Checked(smolagents.FinalAnswerTool):
    """An agent's own final answer."""

    inputs = {  # noqa: RUF012 - as smolagents has it
        "first": {"type": "any", "description": "The first part."},
        "second": {"type": "string", "description": "The second part."},
    }

    def forward(self, first: Any, second: str) -> Any:
        if not second:
            raise ValueError("the second part is missing")
        return first if isinstance(first, Image.Image) else f"{first}, {second}"


def test_an_agent_s_own_final_answer_runs_and_may_refuse_the_answer(session: blocking.Session) -> None:
    tools = [Checked()]
    agent = code(session, "final_answer('a', '')", "final_answer('a', second='b')", tools=tools, host_tools=True)
    assert "the second part is missing" in agent.memory.steps[1].error.message and agent.answer == "a, b"
    picture = "from PIL import Image\nfinal_answer(Image.new('RGB', (3, 4)), 'b')"
    assert code(session, picture, tools=tools, host_tools=True).answer.to_raw().size == (3, 4)
    with pytest.raises(UsageError, match=r"final_answer.*host_tools=True"):
        code(session, "final_answer('a', 'b')", tools=tools)


def test_a_final_answer_of_the_session_runs_in_a_cell(workspace: Path) -> None:
    with blocking.Supervisor([from_smolagents(Checked()), PythonCell()]) as supervisor:
        session = supervisor.open_session("main", workspace=workspace)
        assert code(session, "final_answer('a', 'b')").answer == "a, b"


@pytest.mark.parametrize(
    "value",
    ["(1, 2)", "{1, 2}", "{1: 'a'}", "b'a'", "10**30", "3j", "__import__('datetime').date(2020, 1, 2)",
     "__import__('pathlib').Path('a')", "__import__('decimal').Decimal('1.5')", "'text'", "[None, 1.5, {'a': []}]"],
)  # fmt: skip
def test_a_final_answer_keeps_its_type(session: blocking.Session, value: str) -> None:
    expected = eval(value)
    answer = CellPythonExecutor(session)(f"final_answer({value})").output
    assert answer == expected and type(answer) is type(expected)


def test_a_picture_and_an_array_are_final_answers(session: blocking.Session) -> None:
    executor = CellPythonExecutor(session)
    made = "from PIL import Image\nimport numpy\npicture = Image.new('RGB', (2, 2), (255, 0, 0))\n"
    picture = executor(f"{made}final_answer(picture)").output
    assert isinstance(picture, Image.Image) and picture.getpixel((0, 0)) == (255, 0, 0)
    assert executor("final_answer(numpy.array(picture))").output.shape == (2, 2, 3)


@pytest.mark.parametrize(
    ("value", "said"),
    [("object()", "got a object, which cannot leave the cell"), ("open('/dev/null')", "TextIOWrapper")],
)
def test_a_final_answer_that_cannot_leave_the_cell_is_refused_in_words(
    session: blocking.Session, value: str, said: str
) -> None:
    agent = code(session, f"final_answer({value})", "final_answer(1)")
    assert said in agent.memory.steps[1].error.message and agent.answer == 1


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        ("pickle:gASVBQAAAAAAAABLAS4=", "cannot be read"),
        ('safe:{"__type__": "ndarray", "data": ["a"], "dtype": "<U500000000"}', "no numbers"),
        ("safe:" + "[" * 100_000, "cannot be read"),
        ('safe:{"__type__": "date", "data": "x"}', "cannot be read"),
    ],
)
def test_what_hostile_code_packs_is_data_or_an_error(session: blocking.Session, packed: str, said: str) -> None:
    """Code in the cell may say anything in place of its interpreter."""
    forge = f"""
from toolcell_tools.for_programs import python_code
python_code._packed = lambda _value: {packed!r}
final_answer(())
"""
    with pytest.raises(InterpreterError, match=said):
        CellPythonExecutor(session)(forge)


def test_code_cannot_reach_a_tool_of_the_program_unless_told(session: blocking.Session) -> None:
    with pytest.raises(UsageError, match="host_tools=True"):
        code(session, "final_answer(1)", tools=[WHERE])
    assert "host 1" in code(session, "final_answer(where(1, 'host'))", tools=[WHERE], host_tools=True).answer


def test_variables_go_to_the_code_as_json(session: blocking.Session) -> None:
    executor = CellPythonExecutor(session)
    executor.send_variables({"a": [1, 2]})
    assert executor("sum(a)").output == 3
    with pytest.raises(UsageError, match="JSON"):
        executor.send_variables({"a": object()})


def test_code_that_nobody_answers_any_more_gives_way_to_other_code(session: blocking.Session) -> None:
    executor = CellPythonExecutor(session, max_calls=0)
    executor.send_tools({one.name: one for one in to_smolagents_tools(session)})
    with pytest.raises(InterpreterError, match="more than 0"):
        executor("left = 1\ncall_id()\nleft = 2")
    assert executor("left").output == 1


def test_tools_of_smolagents_run_in_cells(session: blocking.Session) -> None:
    listed = session.call("where", {"depth": 2}).unwrap()
    assert "None 2" in listed and "boot" not in listed
    assert "smolagents: False" in listed  # only what the function itself needs is loaded in its cell
    assert "a 2" in session.call("where", {"depth": 2, "name": "a"}).unwrap()
    error = session.call("where", {"depth": "x"}).error
    assert error and error.kind == "validation"
    (picture,) = session.call("draw", {"size": 2}).content
    assert picture.type == "image"


def test_output_schemas_are_kept_both_ways(session: blocking.Session) -> None:
    tools = {one.name: one for one in to_smolagents_tools(session)}
    assert (tools["pay"].output_type, tools["pay"].output_schema) == ("object", pay.declaration.output_schema)
    assert session.call("weigh", {"text": "owl"}).output == {"grams": 3}
    error = session.call("weigh", {"text": ""}).error
    assert error and "output schema" in error.message


@pytest.mark.parametrize(("given", "said"), [(Look(), "path of a file"), ("os.path:join", "no tool of smolagents")])
def test_a_tool_of_smolagents_that_cannot_run_in_a_cell_is_refused(given: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        from_smolagents(given)
