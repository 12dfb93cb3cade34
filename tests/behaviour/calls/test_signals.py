"""Signals: what a tool tells the loop that called it, and the ready tools that do."""

from pathlib import Path
from typing import Any

import pytest
from tests.misbehaving import call_number, frame_of, write_frames

from toolcell import (
    Capability,
    ExecutionError,
    Hook,
    HostContext,
    PermissionDenied,
    ProtocolViolation,
    Session,
    Signal,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    ToolFailure,
    ToolResult,
    ask_user,
    exit_loop,
    host_tool,
    tool,
    transfer_to,
)
from toolcell.testing.backends import ListChannel

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


@tool(signals={"end_turn", "transfer"})
def speaks(ctx: ToolContext, kinds: list[str], then: str = "return") -> str:
    """Give signals."""
    for kind in kinds:
        ctx.signal(kind, to="bob" if kind == "transfer" else "", reason="because")  # type: ignore[arg-type]
    if then == "fail":
        raise ToolFailure("no")
    return "spoken"


@tool(signals={"transfer"})
def returns(kind: str) -> ToolResult:
    """Return a result with a signal."""
    return ToolResult(output="x", signals=(Signal(kind, "bob" if kind == "transfer" else ""),))  # type: ignore[arg-type]


@tool(signals={"end_turn"}, lifetime="session")
def kept(ctx: ToolContext, speak: bool) -> str:
    """Give a signal, or none, in one process."""
    if speak:
        ctx.signal("end_turn")
    return "x"


@host_tool(signals={"leave_loop"})
async def here(ctx: HostContext, kind: str) -> str:
    """Give a signal from the supervisor's process."""
    ctx.signal(kind)  # type: ignore[arg-type]
    return "x"


def forges(signals: Any) -> None:
    """Send a result frame of its own, with signals that the tool does not declare."""
    payload = {"output": "forged", "signals": signals}
    write_frames(frame_of(16, call_number(), payload))


@tool(signals={"end_turn"})
def forges_more(signals: Any) -> None:
    """Send a result frame of its own."""
    forges(signals)


TOOLS = [speaks, returns, kept, here, forges, forges_more, exit_loop, transfer_to, ask_user]


async def test_a_tool_gives_the_signals_that_it_declares(main: Session) -> None:
    result = await main.call("speaks", {"kinds": ["end_turn", "transfer"]})
    assert result.signals == (
        Signal("end_turn", reason="because"),
        Signal("transfer", to="bob", reason="because"),
    )
    assert (await main.call("speaks", {"kinds": []})).signals == ()
    assert (await main.call("returns", {"kind": "transfer"})).signals == (Signal("transfer", to="bob"),)
    assert (await main.call("here", {"kind": "leave_loop"})).signals == (Signal("leave_loop"),)
    assert ToolResult.parse(result.model_dump_json()).signals == result.signals


async def test_a_signal_that_is_not_declared_is_an_error_that_says_so(main: Session) -> None:
    for name, arguments in (
        ("speaks", {"kinds": ["leave_loop"]}),
        ("returns", {"kind": "end_turn"}),
        ("here", {"kind": "end_turn"}),
    ):
        result = await main.call(name, arguments)
        assert isinstance(result.error, ExecutionError) and "without declaring it" in result.error.message, name
        assert result.signals == ()


async def test_a_call_that_fails_gives_no_signals_and_none_stay_for_the_next_call(main: Session) -> None:
    failed = await main.call("speaks", {"kinds": ["end_turn"], "then": "fail"})
    assert failed.is_error and failed.signals == ()
    assert [one.kind for one in (await main.call("kept", {"speak": True})).signals] == ["end_turn"]
    assert (await main.call("kept", {"speak": False})).signals == ()


@pytest.mark.parametrize(
    "signals",
    [
        [{"kind": "leave_loop"}],
        [{"kind": "end_turn", "to": "bob"}],
        [{"kind": "end_turn", "more": 1}],
        [{"kind": "end_turn", "reason": "x" * 1001}],
        [{"kind": "stop"}],
        [{"kind": 1}],
        ["end_turn"],
        {"kind": "end_turn"},
        [{"kind": "end_turn"}] * 9,
    ],
)
async def test_a_cell_that_forges_signals_has_broken_the_protocol(main: Session, signals: Any) -> None:
    for name in ("forges", "forges_more"):
        result = await main.call(name, {"signals": signals})
        assert isinstance(result.error, ProtocolViolation) and result.signals == (), name


async def test_what_a_hook_puts_in_has_only_declared_signals(supervise: Any, workspace: Path) -> None:
    class Puts(Hook):
        async def after_call(self, call: ToolCall, result: ToolResult) -> ToolResult:
            return ToolResult(output="put in", signals=(Signal(call.arguments["kinds"][0]),))

    async with supervise(TOOLS, hooks=[Puts()]) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace)
        assert (await main.call("speaks", {"kinds": ["end_turn"]})).signals == (Signal("end_turn"),)
        result = await main.call("speaks", {"kinds": ["end_turn"], "then": "fail"})
        assert result.signals == (Signal("end_turn"),), "the hook has mended it"

    class PutsAnother(Hook):
        async def after_call(self, call: ToolCall, result: ToolResult) -> ToolResult:
            return ToolResult(output="put in", signals=(Signal("leave_loop"),))

    async with supervise(TOOLS, hooks=[PutsAnother()]) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace)
        result = await main.call("speaks", {"kinds": []})
        assert result.is_error and "without declaring it" in result.for_model() and result.signals == ()


async def test_signals_are_declared_and_checked_when_the_tool_is_made(main: Session) -> None:
    declared = {one.name: one for one in await main.tools()}
    assert declared["speaks"].signals == {"end_turn", "transfer"} and declared["forges"].signals == frozenset()
    assert '"signals":["end_turn","transfer"]' in declared["speaks"].model_dump_json()
    with pytest.raises(ToolDefinitionError, match="there is no signal 'stop'"):
        tool(forges, signals={"stop"})  # type: ignore[arg-type]
    with pytest.raises(ToolDefinitionError, match="Pass a set"):
        tool(forges, signals="end_turn")  # type: ignore[arg-type]
    for wrong in ({"kind": "transfer"}, {"kind": "end_turn", "to": "bob"}, {"kind": "end_turn", "reason": "x" * 1001}):
        with pytest.raises(ValueError, match="signal"):
            Signal(**wrong)  # type: ignore[arg-type]


# -- the ready tools ---------------------------------------------------------------------------------------------------


async def test_exit_loop_leaves_the_loop_without_a_summary(main: Session) -> None:
    result = await main.call("exit_loop", {"reason": "all done"})
    assert [one.kind for one in result.signals] == ["leave_loop", "skip_summarization"] and result.output == {}
    assert result.signals[0].reason == "all done"
    worker = await main.open_child("worker")
    assert (await worker.call("exit_loop")).error is None, "it needs nothing"


async def test_transfer_to_names_the_agent(main: Session) -> None:
    result = await main.call("transfer_to", {"agent": "billing", "reason": "an invoice"})
    assert result.signals == (Signal("transfer", to="billing", reason="an invoice"),)
    choice = transfer_to.replace(
        parameters_schema={"properties": {"agent": {"enum": ["billing", "sales"]}}, "required": ["agent"]}
    )
    assert choice.declaration.parameters_schema["properties"]["agent"]["enum"] == ["billing", "sales"]
    assert (await main.call("transfer_to", {"agent": ""})).is_error


async def test_ask_user_puts_a_question_and_ends_the_turn(supervise: Any, workspace: Path) -> None:
    channel = ListChannel()
    async with supervise(TOOLS) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, channel=channel)
        result = await main.call("ask_user", {"question": "Which one?", "choices": ["red", "blue"]})
        assert [one.kind for one in result.signals] == ["end_turn"]
        assert channel.sent == [("Which one?\n- red\n- blue", f"agent/{main.id}")]
        worker = await main.open_child("worker")
        error = (await worker.call("ask_user", {"question": "May I?"})).error
        assert isinstance(error, PermissionDenied) and error.missing == (Capability.CHANNEL,)
