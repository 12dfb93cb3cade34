"""Confirmation from within a tool: the call ends as pending, and the same call, made again, has the answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.helpers import until
from tests.misbehaving import call_number, frame_of, write_frames

import toolcell.blocking
from toolcell import (
    ApprovalRequest,
    Approvals,
    Approved,
    Capability,
    Confirmation,
    Denied,
    ExecutionError,
    Hook,
    HostContext,
    PermissionDenied,
    ProtocolViolation,
    Session,
    SessionKind,
    Supervisor,
    ToolCall,
    ToolContext,
    ToolResult,
    UsageError,
    base_tools,
    host_tool,
    tool,
)
from toolcell.supervisor import runtime_of
from toolcell.testing import contexts

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
Supervise = Callable[..., Supervisor]


@tool(needs={Capability.WRITE}, uses={Capability.READ}, confirms=True)
def remove(ctx: ToolContext, path: str) -> str:
    """Remove a file, after a question."""
    size = len(ctx.workspace.read_bytes(path))
    try:
        answer = ctx.confirm(f"Remove {path}?", {"bytes": size})
    except Exception as error:  # a question is none
        return f"caught {error!r}"
    if not answer:
        return f"kept: {answer.message}"
    ctx.require.writer.unlink(path)
    return f"removed, {answer.payload}"


@tool(confirms=True)
async def twice(ctx: ToolContext, name: str) -> list[bool]:
    """Ask two questions, in an async tool."""
    return [bool(ctx.confirm(f"First, {name}?")), bool(ctx.confirm(f"Second, {name}?"))]


@tool(needs={Capability.WRITE}, confirms=True)
def writes_first(ctx: ToolContext) -> str:
    """Write before the question."""
    ctx.require.writer.write_text("early.txt", "x")
    return str(ctx.confirm("Was that right?"))


@tool(needs={Capability.EXEC, Capability.READ}, confirms=True)
def runs_first(ctx: ToolContext) -> str:
    """Run a command before the question."""
    ctx.require.shell.run("true")
    return str(ctx.confirm("Was that right?"))


@tool(needs={Capability.CHANNEL}, confirms=True)
def sends_first(ctx: ToolContext) -> str:
    """Send before the question."""
    ctx.require.channel.send("hello")
    return str(ctx.confirm("Was that right?"))


@tool(needs={Capability.CHANNEL}, confirms=True)
def hides_that_it_sent(ctx: ToolContext) -> None:
    """Send, then ask by a frame of its own."""
    ctx.require.channel.send("hello")
    write_frames(frame_of(17, call_number(), "confirm", "Shall I?", {"payload": None}))


def undeclared(ctx: ToolContext) -> str:
    """Ask without saying so."""
    return str(ctx.confirm("May I?"))


def forges() -> None:
    """Send the frame of a question that the tool does not declare."""
    write_frames(frame_of(17, call_number(), "confirm", "Shall I?", {"payload": None}))


@tool(confirms=True)
def asks_by_hand(hint: str, payload: Any) -> None:
    """Send the frame of a question."""
    write_frames(frame_of(17, call_number(), "confirm", hint, {"payload": payload}))


@tool(confirms=True)
async def asks_in_a_task(ctx: ToolContext) -> bool:
    """Ask from a task of the tool."""
    import asyncio

    async def ask() -> bool:
        return bool(ctx.confirm("From a task?"))

    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(ask())
    return asked.result()


@tool(confirms=True, requires_approval=True)
def both(ctx: ToolContext, amount: int) -> str:
    """Need an approval and a confirmation."""
    return f"paid {amount}" if ctx.confirm("Really?") else "not paid"


@host_tool(confirms=True)
async def here(ctx: HostContext, name: str) -> str:
    """Ask from the supervisor's process."""
    answer = ctx.confirm(f"Run {name} here?", [1, 2])
    return f"{name}: {answer.confirmed}"


@host_tool(confirms=True)
def in_a_thread(ctx: HostContext) -> bool:
    """Ask from a thread of the supervisor's process."""
    return bool(ctx.confirm("Run?"))


@tool(confirms=True)
def catches(ctx: ToolContext) -> str:
    """Catch the end of the call."""
    try:
        return str(ctx.confirm("May I?"))
    except BaseException:
        return "done without an answer"


@tool(confirms=True)
async def gathers(ctx: ToolContext) -> int:
    """Gather the end of the call as a result."""
    import asyncio

    async def ask() -> bool:
        return bool(ctx.confirm("May I?"))

    return len(await asyncio.gather(ask(), return_exceptions=True))


@host_tool(confirms=True)
async def catches_here(ctx: HostContext) -> str:
    """Catch the end of the call in the supervisor's process."""
    try:
        return str(ctx.confirm("May I?"))
    except BaseException:
        return "done without an answer"


TOOLS = [
    *(catches, gathers, catches_here),
    *(remove, twice, writes_first, runs_first, sends_first, hides_that_it_sent, undeclared, forges, both),
    *(asks_by_hand, asks_in_a_task),
    *(here, in_a_thread, *base_tools()),
]


async def test_a_call_ends_as_pending_and_runs_again_with_the_answer(
    shared: Supervisor, main: Session, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("hello")
    asked = await main.call("remove", {"path": "a.txt"})
    assert asked.error is None and asked.pending is not None and asked.pending.status == "needs_confirmation"
    assert asked.pending.handle_id == asked.confirmation and "Remove a.txt?" in asked.for_model()
    entry = shared.approvals.get(asked.confirmation)
    assert entry.state == "pending" and entry.request is not None
    request = entry.request
    assert (request.asks, request.hint, request.payload) == ("confirmation", "Remove a.txt?", {"bytes": 5})
    assert request.arguments == {"path": "a.txt"} and "bytes" in request.preview.details
    pool = runtime_of(shared).pool
    await until(lambda: all(cell.run is None for cell in pool.cells.values()))
    again = await main.call("remove", {"path": "a.txt"})
    assert again.confirmation == asked.confirmation and again.usage.wall_s == 0, "it does not run while it waits"
    with pytest.raises(UsageError, match="is pending"):
        await main.call_again(asked.confirmation)
    shared.approvals.approve(asked.confirmation, payload={"by": "ada"})
    result = await main.call("remove", {"path": "a.txt"})
    assert (
        result.output == "removed, {'by': 'ada'}" and result.confirmation == "" and not (workspace / "a.txt").exists()
    )
    assert shared.approvals.get(asked.confirmation).state == "used"


async def test_a_denial_is_an_answer_for_the_tool(shared: Supervisor, main: Session, workspace: Path) -> None:
    (workspace / "a.txt").write_text("hello")
    asked = await main.call("remove", {"path": "a.txt"})
    shared.approvals.deny(asked.confirmation, "I need it")
    assert (await main.call_again(asked.confirmation)).output == "kept: I need it"
    assert (workspace / "a.txt").exists()


async def test_an_answer_holds_once_and_for_these_arguments_and_this_question_only(
    shared: Supervisor, main: Session, workspace: Path
) -> None:
    for name in ("a.txt", "b.txt"):
        (workspace / name).write_text("hello")
    asked = await main.call("remove", {"path": "a.txt"})
    shared.approvals.approve(asked.confirmation)
    other = await main.call("remove", {"path": "b.txt"})
    assert other.confirmation not in ("", asked.confirmation), "other arguments"
    sibling = await main.open_child("branch")
    assert (await sibling.call("remove", {"path": "a.txt"})).confirmation not in ("", asked.confirmation)
    with pytest.raises(UsageError, match="no request for confirmation"):
        await sibling.call_again(asked.confirmation)
    (workspace / "a.txt").write_text("hello, and more since")
    changed = await main.call("remove", {"path": "a.txt"})
    assert changed.confirmation not in ("", asked.confirmation), "the question is another one now"
    assert (workspace / "a.txt").exists()
    shared.approvals.approve(changed.confirmation)
    assert (await main.call_again(changed.confirmation)).output == "removed, None"
    with pytest.raises(UsageError, match="is used"):
        await main.call_again(changed.confirmation)


async def test_one_call_may_ask_more_than_once(shared: Supervisor, main: Session) -> None:
    first = await main.call("twice", {"name": "ada"})
    shared.approvals.approve(first.confirmation)
    second = await main.call("twice", {"name": "ada"})
    assert second.confirmation not in ("", first.confirmation)
    shared.approvals.deny(second.confirmation)
    assert (await main.call("twice", {"name": "ada"})).output == [True, False]


@pytest.mark.parametrize("name", ["writes_first", "runs_first", "sends_first"])
async def test_a_question_after_an_effect_is_an_error(main: Session, name: str) -> None:
    result = await main.call(name)
    assert isinstance(result.error, ExecutionError) and "after an effect" in result.error.message
    assert result.confirmation == ""


@pytest.mark.parametrize("name", ["catches", "gathers", "catches_here"])
async def test_a_tool_that_goes_on_without_an_answer_has_failed(shared: Supervisor, main: Session, name: str) -> None:
    result = await main.call(name)
    assert isinstance(result.error, ExecutionError) and "and went on" in result.error.message
    assert result.confirmation == "" and main.id not in str(shared.approvals.pending())


async def test_a_cell_cannot_hide_an_effect_or_ask_without_saying_so(shared: Supervisor, main: Session) -> None:
    hidden = await main.call("hides_that_it_sent")
    assert isinstance(hidden.error, ExecutionError) and "after the call had an effect" in hidden.error.message
    said = await main.call("undeclared")
    assert isinstance(said.error, ExecutionError) and "Declare confirms=True" in said.error.message
    assert isinstance((await main.call("forges")).error, ProtocolViolation)
    assert not [one for one in shared.approvals.pending() if one.request and one.request.session_id == main.id]


async def test_host_tools_and_tasks_of_tools_ask_too(shared: Supervisor, main: Session) -> None:
    for name, arguments, output in (
        ("here", {"name": "x"}, "x: True"),
        ("in_a_thread", {}, True),
        ("asks_in_a_task", {}, True),
    ):
        asked = await main.call(name, arguments)
        shared.approvals.approve(asked.confirmation)
        assert (await main.call_again(asked.confirmation)).output == output


async def test_a_confirmation_cannot_stand_for_other_calls_and_an_approval_has_no_payload(
    shared: Supervisor, main: Session
) -> None:
    asked = await main.call("here", {"name": "x"})
    for wrong in ({"for_session": True}, {"pattern": {"name": "*"}}, {"arguments": {"name": "y"}}):
        with pytest.raises(UsageError, match="holds for one call"):
            shared.approvals.approve(asked.confirmation, **wrong)
    shared.approvals.withdraw(asked.confirmation)
    assert (await main.call("here", {"name": "x"})).confirmation != asked.confirmation


class Desk:
    """An approver that answers what it is asked, by kind."""

    def __init__(self, answer: Any) -> None:
        self.asked: list[ApprovalRequest] = []
        self.answer = answer

    async def approve(self, request: ApprovalRequest) -> Any:
        self.asked.append(request)
        return Approved() if request.asks == "approval" else self.answer


async def test_the_approver_is_asked_while_nothing_waits(supervise: Supervise, workspace: Path) -> None:
    desk = Desk(Denied("not today"))
    async with supervise(TOOLS, approver=desk) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace)
        asked = await main.call("here", {"name": "x"})
        await until(lambda: supervisor.approvals.get(asked.confirmation).state == "denied")
        assert (await main.call_again(asked.confirmation)).output == "x: False"
    assert [one.asks for one in desk.asked] == ["confirmation"]


async def test_a_call_that_was_approved_and_then_asks_is_not_approved_a_second_time(
    supervise: Supervise, workspace: Path
) -> None:
    desk = Desk(Approved())
    async with supervise(TOOLS, approver=desk) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace)
        asked = await main.call("both", {"amount": 5})
        await until(lambda: supervisor.approvals.get(asked.confirmation).state == "approved")
        assert (await main.call_again(asked.confirmation)).output == "paid 5"
        assert [one.asks for one in desk.asked] == ["approval", "confirmation"]
        await main.call("both", {"amount": 5})
        assert [one.asks for one in desk.asked][2:3] == ["approval"], "another call is"


async def test_a_standing_approval_is_no_confirmation(supervise: Supervise, workspace: Path) -> None:
    async with supervise(TOOLS) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, channel=Mute())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(main.call, "both", {"amount": 5})
            await until(lambda: supervisor.approvals.pending())
            supervisor.approvals.approve(supervisor.approvals.pending()[0].id, for_session=True)
        asked = await main.call("both", {"amount": 6})
        assert asked.confirmation and supervisor.approvals.get(asked.confirmation).state == "pending"


class Mute:
    async def send(self, text: str, *, sender: str) -> None: ...

    async def approve(self, request: ApprovalRequest) -> Approved:
        await anyio.sleep_forever()
        raise AssertionError


async def test_the_policy_decides_again_when_the_call_is_made_again(supervise: Supervise, workspace: Path) -> None:
    class Changes:
        decision = "allow"

        def decide(self, *_: object) -> Any:
            return self.decision

    policy = Changes()
    async with supervise(TOOLS, policy=policy) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace)
        asked = await main.call("here", {"name": "x"})
        supervisor.approvals.approve(asked.confirmation)
        policy.decision = "deny"
        assert isinstance((await main.call_again(asked.confirmation)).error, PermissionDenied)


async def test_an_idempotency_key_is_free_while_the_question_is_open(shared: Supervisor, main: Session) -> None:
    asked = await main.call("here", {"name": "x"}, idempotency_key="k")
    shared.approvals.approve(asked.confirmation)
    results = [await main.call("here", {"name": "x"}, idempotency_key="k") for _ in range(2)]
    assert [one.output for one in results] == ["x: True", "x: True"] and results[1].call_id == results[0].call_id


async def test_a_hook_sees_the_pending_result_and_cannot_take_its_mark(supervise: Supervise, workspace: Path) -> None:
    class Masks(Hook):
        async def after_call(self, call: ToolCall, result: ToolResult) -> ToolResult:
            return ToolResult(output="masked")

    async with supervise(TOOLS, hooks=[Masks()]) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace)
        result = await main.call("here", {"name": "x"})
        assert result.output == "masked" and result.confirmation == supervisor.approvals.pending()[0].id


async def test_a_question_survives_a_restart_with_a_state_directory(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    (workspace / "a.txt").write_text("hello")
    async with supervise(TOOLS, state=state) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, session_id="m")
        asked = await main.call("remove", {"path": "a.txt"})
        assert asked.confirmation, asked
        await main.suspend()
    with Approvals.open(state) as approvals:
        approvals.approve(asked.confirmation, payload="from another process", by="bob")
    async with supervise(TOOLS, state=state) as supervisor:
        main = await supervisor.resume_session("m")
        assert (await main.call_again(asked.confirmation)).output == "removed, from another process"
    async with supervise(TOOLS, state=state) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, session_id="m")
        with pytest.raises(UsageError, match="is used"):
            await main.call_again(asked.confirmation)


async def test_the_close_of_a_session_withdraws_its_questions(supervise: Supervise, workspace: Path) -> None:
    async with supervise(TOOLS) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace)
        asked = [(await main.call("here", {"name": name})).confirmation for name in ("x", "y")]
        supervisor.approvals.approve(asked[0])
        await main.call_again(asked[0])
        await main.close()
        await until(lambda: supervisor.approvals.get(asked[1]).state == "withdrawn")
        assert supervisor.approvals.get(asked[0]).state == "used"


async def test_a_model_cannot_fill_the_store_with_questions(
    shared: Supervisor, main: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcell.store.approvals.store.MAX_QUESTIONS", 2)
    results = [await main.call("here", {"name": name}) for name in "abc"]
    assert all(one.confirmation for one in results[:2])
    assert isinstance(results[2].error, ExecutionError) and "2 questions" in results[2].error.message
    assert (await main.call("twice", {"name": "x"})).confirmation, "another tool"


@pytest.mark.parametrize(("hint", "payload"), [("x" * 3000, None), ("x", "y" * 70_000)], ids=["hint", "payload"])
async def test_a_cells_question_is_bounded_whatever_it_sends(main: Session, hint: str, payload: object) -> None:
    result = await main.call("asks_by_hand", {"hint": hint, "payload": payload})
    assert isinstance(result.error, ExecutionError) and "too long" in result.error.message
    assert result.confirmation == ""


def test_without_await_too(tmp_path: Path) -> None:
    with toolcell.blocking.Supervisor([here], standby=0) as supervisor:
        session = supervisor.open_session(SessionKind.MAIN, workspace=tmp_path)
        asked = session.call("here", {"name": "x"})
        supervisor.approvals.approve(asked.confirmation)
        assert session.call_again(asked.confirmation).output == "x: True"


def test_the_test_kits_context_answers_and_records(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    ctx = contexts.context(tool=remove, workspace=tmp_path)
    ctx.recorder.confirms = Confirmation(False, message="no")
    assert remove(ctx, "a.txt") == "kept: no" and ctx.recorder.asked == [("Remove a.txt?", {"bytes": 1})]
