"""Every way to make a tool, in real cells: shipping, setup, calls, teardown."""

import logging
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel, PlainSerializer
from tests.helpers import PATIENCE_S

from toolcell import (
    Capability,
    ExecutionError,
    PermissionDenied,
    Session,
    SessionKind,
    Supervisor,
    ToolContext,
    ToolFailure,
    TypedTool,
    UsageError,
    ValidationError,
    base_tools,
    dynamic_tool,
    tool,
)
from toolcell.supervisor import runtime_of
from toolcell.testing.backends import ListChannel

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.few_on_trio,
    pytest.mark.usefixtures("nothing_is_left_of_the_module"),
]


class Step(BaseModel):
    by: int = 1


class Counter(TypedTool[Step]):
    """Count up from the stored number."""

    lifetime = "session"
    needs = {Capability.WRITE}  # noqa: RUF012

    def __init__(self, name: str, start: int) -> None:
        self.name = name
        self.count = start

    def setup(self, ctx: ToolContext) -> None:
        assert ctx.writer is not None
        ctx.writer.write_text("log", "set up\n")
        self.writer = ctx.writer

    def call(self, ctx: ToolContext, input: Step) -> Any:
        self.count += input.by
        return self.count

    def teardown(self) -> Any:
        self.writer.write_text("log", f"torn down at {self.count}\n")


class AsyncCounter(Counter):
    async def call(self, ctx: ToolContext, input: Step) -> Any:
        return super().call(ctx, input)

    async def teardown(self) -> Any:
        super().teardown()


class Clumsy(Counter):
    def teardown(self) -> Any:
        raise OSError("the server is gone")


class Stubborn(Counter):
    def teardown(self) -> Any:
        while True:
            pass


@dataclass
class Trouble:
    code: int
    message: str


def divide(a: float, b: float) -> float:
    """Divide."""
    if b == 0:
        raise ToolFailure("b is zero", Trouble(7, "division by zero"))
    if b < 0:
        raise ToolFailure("b is negative", {"code": "seven"})
    if b > 1_000:
        raise ToolFailure("b is too large")
    return a / b


def greet(greeting: str, name: str) -> str:
    return f"{greeting} {name}"


class Loud:
    def __call__(self, text: str) -> str:
        return text.upper()


Millis = Annotated[datetime, PlainSerializer(lambda at: int(at.timestamp() * 1000), return_type=int)]
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}

write = next(one for one in base_tools() if one.name == "write")
plain = tool(greet)
TOOLS: list[Any] = [
    write,
    write.replace(name="fs_write", description="Write a file."),
    plain.replace(name="salute"),
    plain.replace(
        name="welcome",
        parameters_schema={
            "type": "object",
            "properties": {"greeting": {"const": "welcome", "default": "welcome"}, "name": {"type": "string"}},
            "required": ["name"],
        },
    ),
    partial(greet, "hello"),
    Loud(),
    Counter("counter", 10),
    AsyncCounter("async_counter", 20),
    tool(divide, failure=Trouble, failure_mode="return"),
    tool(divide, name="divide_or_fail", failure=Trouble),
    dynamic_tool(
        "ask_a_rule", handler=lambda arguments: arguments["text"], mutates=lambda arguments: arguments["text"] == "y"
    ),
    dynamic_tool("held", parameters=SCHEMA, handler=lambda arguments: arguments["n"]),
    dynamic_tool("typed", parameters=Step, handler=lambda step: step.by),
    dynamic_tool("now", handler=lambda _: datetime.fromtimestamp(1, UTC), success=Millis),
]


@pytest.fixture(scope="module")
async def supervisor(nothing_is_left_of_the_module: None) -> AsyncIterator[Supervisor]:
    async with Supervisor(TOOLS) as supervisor:
        yield supervisor


@pytest.fixture
async def main(supervisor: Supervisor, tmp_path: Path) -> AsyncIterator[Session]:
    session = await supervisor.open_session(SessionKind.MAIN, workspace=tmp_path)
    yield session
    await session.close()


@pytest.mark.parametrize(
    ("name", "arguments", "output"),
    [
        ("salute", {"greeting": "hi", "name": "Ann"}, "hi Ann"),
        ("welcome", {"name": "Ann"}, "welcome Ann"),
        ("greet", {"name": "Ann"}, "hello Ann"),
        ("loud", {"text": "hi"}, "HI"),
        ("held", {"n": 3}, 3),
        ("typed", {"by": 4}, 4),
        ("now", {}, 1000),
        ("divide", {"a": 1, "b": 2}, 0.5),
    ],
)
async def test_every_kind_of_tool_runs_in_a_cell(
    main: Session, name: str, arguments: dict[str, Any], output: object
) -> None:
    result = await main.call(name, arguments)
    assert result.error is None
    assert result.output == output


async def test_a_variant_of_an_installed_tool_is_imported_like_the_original(
    supervisor: Supervisor, main: Session, tmp_path: Path
) -> None:
    shipped = runtime_of(supervisor).shipments.shipment(runtime_of(supervisor).settings.tools["fs_write"])
    assert shipped["how"] == "import"
    assert (await main.call("fs_write", {"path": "a", "content": "b"})).error is None
    assert (tmp_path / "a").read_text() == "b"


async def test_a_dynamic_tool_is_held_to_its_schema(main: Session) -> None:
    result = await main.call("held", {"n": 0})
    assert isinstance(result.error, ValidationError)
    assert result.error.field == "n"


@pytest.mark.parametrize(("name", "start"), [("counter", 10), ("async_counter", 20)])
async def test_a_typed_tool_of_a_sessions_lifetime_is_set_up_once_and_torn_down_when_the_session_ends(
    supervisor: Supervisor, tmp_path: Path, name: str, start: int
) -> None:
    session = await supervisor.open_session("main", workspace=tmp_path)
    assert (await session.call(name)).output == start + 1
    assert (tmp_path / "log").read_text() == "set up\n"
    assert (await session.call(name, {"by": 5})).output == start + 6
    assert (tmp_path / "log").read_text() == "set up\n"
    await session.close()
    assert await changed(tmp_path / "log", "set up\n") == f"torn down at {start + 6}\n"


async def changed(path: Path, before: str) -> str:
    import anyio

    with anyio.fail_after(PATIENCE_S):
        while (now := path.read_text()) in (before, ""):
            await anyio.sleep(0.01)
    return now


async def test_leaving_the_supervisor_waits_for_what_is_torn_down(tmp_path: Path) -> None:
    async with Supervisor([Counter("counter", 0)]) as supervisor:
        session = await supervisor.open_session("main", workspace=tmp_path)
        await session.call("counter")
    assert (tmp_path / "log").read_text() == "torn down at 1\n"


class Asking(Counter):
    """Leave a thread that waits for an answer."""

    needs = {Capability.WRITE, Capability.CHANNEL}  # noqa: RUF012

    def call(self, ctx: ToolContext, input: Step) -> Any:
        assert ctx.channel is not None
        threading.Thread(target=ctx.channel.send, args=("?",)).start()
        time.sleep(0.05)
        return super().call(ctx, input)


class SilentChannel(ListChannel):
    async def send(self, text: str, *, sender: str) -> None:
        await anyio.sleep(10.0)


async def test_a_thread_that_waits_for_an_answer_keeps_no_tool_from_its_teardown(tmp_path: Path) -> None:
    async with Supervisor([Asking("asking", 0)]) as supervisor:
        session = await supervisor.open_session("main", workspace=tmp_path, channel=SilentChannel())
        assert (await session.call("asking")).unwrap() == 1
    assert (tmp_path / "log").read_text() == "torn down at 1\n"


async def test_a_teardown_that_fails_is_logged_and_one_that_hangs_is_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "toolcell.pool"):
        async with Supervisor([Clumsy("clumsy", 0), Stubborn("stubborn", 0)]) as supervisor:
            session = await supervisor.open_session("main", workspace=tmp_path)
            await session.call("clumsy")
            await session.call("stubborn")
    assert "the tool clumsy could not tear down" in caplog.text
    assert "OSError: the server is gone" in caplog.text


async def test_a_failure_that_is_a_result_is_marked_and_typed(main: Session) -> None:
    result = await main.call("divide", {"a": 1, "b": 0})
    assert result.error is None
    assert result.output == {"failure": {"code": 7, "message": "division by zero"}}
    assert result.display == "b is zero"


async def test_a_failure_without_data_or_with_other_data_than_declared_stays_an_error(main: Session) -> None:
    for b, problem in ((-1, "is not what the tool declared"), (2_000, "is not what the tool declared")):
        result = await main.call("divide", {"a": 1, "b": b})
        assert isinstance(result.error, ExecutionError)
        assert problem in result.error.message


async def test_by_default_a_failure_is_an_error(main: Session) -> None:
    result = await main.call("divide_or_fail", {"a": 1, "b": 0})
    assert isinstance(result.error, ExecutionError)
    assert result.error.data == {"code": 7, "message": "division by zero"}


async def test_a_rule_of_what_mutates_that_fails_denies_the_call(main: Session) -> None:
    assert (await main.call("ask_a_rule", {"text": "x"})).output == "x"
    error = (await main.call("ask_a_rule", {})).error
    assert isinstance(error, PermissionDenied) and "its `mutates` rule failed" in error.message


async def test_two_tools_of_one_name_are_refused_with_both_origins() -> None:
    with pytest.raises(UsageError, match=r"divide.*:divide and .*:greet"):
        Supervisor([divide, tool(greet, name="divide")])
