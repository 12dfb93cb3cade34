"""What every adapter builds on: declarations, approval asked ahead of the call, and answers that fit one call only."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from threading import get_ident
from typing import Any, TypeVar

import anyio
import pytest
from tests.conftest import Supervise
from tests.helpers import PATIENCE_S, until

from toolcell import (
    ApprovalQueue,
    Approved,
    Denied,
    Hook,
    PermissionTier,
    RecentJournal,
    Session,
    Supervisor,
    TierPolicy,
    ToolCall,
    ToolContext,
    UsageError,
    provider_tool,
    tool,
)
from toolcell.adapters.session_calls import ApprovalNeeded, SessionCalls, question_data
from toolcell_tools import PermissionDenied

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_ahead")]


@tool(requires_approval=lambda arguments: arguments["amount"] > 10, preview=lambda amount: f"Spend {amount}")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
async def count(ctx: ToolContext, to: int) -> int:
    """Count."""
    for number in range(to):
        ctx.progress(f"at {number}", number / to)
    return to


@tool(tier=PermissionTier.ELEVATED)
def erase() -> str:
    """Erase."""
    return "erased"


@tool(tier=PermissionTier.WORKSPACE, needs={"write"}, timeout=60)
def hang(ctx: ToolContext) -> None:
    """Say that it runs, and never end."""
    ctx.require.writer.write_text("runs", "")
    time.sleep(60)


SEARCH = provider_tool("search", provider="openai", definition={"type": "web_search"})
TOOLS = [pay, count, erase, hang, SEARCH]
T = TypeVar("T")


@pytest.fixture
async def calls(main: Session) -> AsyncIterator[SessionCalls]:
    yield SessionCalls(main)


async def refused(calls: SessionCalls, *arguments: Any, **options: Any) -> ApprovalNeeded:
    with pytest.raises(ApprovalNeeded) as needed:
        await calls.call(*arguments, **options)
    return needed.value


async def test_a_tool_that_its_provider_runs_is_not_declared(calls: SessionCalls) -> None:
    assert {one.name for one in await calls.declarations()} == {"pay", "count", "erase", "hang"}


async def test_a_question_has_the_supervisor_s_preview_and_reason_and_is_pending(
    calls: SessionCalls, shared: Supervisor
) -> None:
    request = await calls.question("pay", {"amount": 50}, call_id="c1")
    assert request is not None
    assert (request.preview.summary, request.call_id, dict(request.arguments)) == ("Spend 50", "c1", {"amount": 50})
    assert question_data(request)["preview"]["summary"] == "Spend 50"
    assert request.id in {entry.id for entry in shared.approvals.pending()}


async def test_the_journal_says_that_an_earlier_call_has_made_the_request_which_a_later_one_takes_up(
    calls: SessionCalls, shared: Supervisor
) -> None:
    first = await calls.question("pay", {"amount": 52}, call_id="c1")
    second = await calls.question("pay", {"amount": 52}, call_id="c2")
    assert first is not None and second == first
    assert isinstance(shared.journal, RecentJournal)
    records = [record for record in shared.journal.of(kind="approval") if record.data["request"] == first.id]
    assert [(record.call_id, record.data.get("made_by")) for record in records] == [("c1", None), ("c2", "c1")]


@pytest.mark.parametrize(("name", "arguments"), [("pay", {"amount": 5}), ("pay", {"amount": "x"}), ("nothing", {})])
async def test_nobody_is_asked_about_a_call_that_needs_no_approval_or_cannot_run(
    calls: SessionCalls, name: str, arguments: dict[str, Any]
) -> None:
    assert await calls.question(name, arguments, call_id="c1") is None


async def test_a_call_without_an_answer_does_not_run_and_tells_what_is_asked(calls: SessionCalls) -> None:
    needed = await refused(calls, "erase", {}, call_id="c1")
    assert "has not run" in str(needed) and needed.request.tool == "erase"


async def test_an_approved_call_runs_once(calls: SessionCalls) -> None:
    assert await calls.question("pay", {"amount": 50}, call_id="c1")
    assert (await calls.call("pay", {"amount": 50}, call_id="c1", answer=Approved())).output == "paid 50"
    await refused(calls, "pay", {"amount": 50}, call_id="c1", answer=Approved())


async def test_a_call_that_was_refused_for_want_of_an_answer_runs_with_one(calls: SessionCalls) -> None:
    await refused(calls, "pay", {"amount": 50}, call_id="c1")
    assert (await calls.call("pay", {"amount": 50}, call_id="c1", answer=Approved())).output == "paid 50"


async def test_an_approval_that_nobody_was_asked_for_is_not_taken(calls: SessionCalls) -> None:
    await refused(calls, "pay", {"amount": 51}, call_id="c1", answer=Approved())


async def test_an_approval_holds_for_no_other_tool(calls: SessionCalls) -> None:
    assert await calls.question("pay", {"amount": 50}, call_id="c1")
    await refused(calls, "erase", {}, call_id="c1", answer=Approved())


@pytest.mark.parametrize("way", ["in the answer", "in place of the call's"])
async def test_edited_arguments_are_the_ones_that_run_and_the_journal_tells_it(
    calls: SessionCalls, shared: Supervisor, way: str
) -> None:
    assert await calls.question("pay", {"amount": 500}, call_id="c1")
    if way == "in the answer":
        result = await calls.call("pay", {"amount": 500}, call_id="c1", answer=Approved({"amount": 20}))
    else:
        result = await calls.call("pay", {"amount": 20}, call_id="c1", answer=Approved())
    assert (result.output, result.arguments) == ("paid 20", {"amount": 20})
    assert isinstance(shared.journal, RecentJournal)
    told = [one.data["answer"] for one in shared.journal.of(kind="approval", call_id="c1")]
    assert told[-1] == "approved with other arguments"


async def test_edited_arguments_are_validated(calls: SessionCalls) -> None:
    assert await calls.question("pay", {"amount": 500}, call_id="c1")
    result = await calls.call("pay", {"amount": 500}, call_id="c1", answer=Approved({"amount": "much"}))
    assert result.error is not None and result.error.kind == "validation"


async def test_a_denial_reaches_the_model_in_the_person_s_words(calls: SessionCalls) -> None:
    assert await calls.question("pay", {"amount": 50}, call_id="c1")
    result = await calls.call("pay", {"amount": 50}, call_id="c1", answer=Denied("ask me tomorrow"))
    assert isinstance(result.error, PermissionDenied) and result.error.message == "ask me tomorrow"


async def test_two_identical_calls_side_by_side_take_an_approval_each(calls: SessionCalls) -> None:
    for id in ("c1", "c2"):
        assert await calls.question("pay", {"amount": 50}, call_id=id)
    assert (await calls.call("pay", {"amount": 50}, call_id="c1", answer=Approved())).output == "paid 50"
    needed = await refused(calls, "pay", {"amount": 50}, call_id="c2")
    assert needed.request.call_id == "c2"
    assert (await calls.call("pay", {"amount": 50}, call_id="c2", answer=Approved())).output == "paid 50"


async def test_an_answer_in_the_supervisor_s_store_is_taken_without_another_question(
    calls: SessionCalls, shared: Supervisor
) -> None:
    request = await calls.question("pay", {"amount": 50}, call_id="c1")
    assert request is not None
    shared.approvals.approve(request.id, by="a command")
    assert await calls.question("pay", {"amount": 50}, call_id="c1") is None
    assert (await calls.call("pay", {"amount": 50}, call_id="c1")).output == "paid 50"


async def test_progress_and_the_call_id_arrive(calls: SessionCalls) -> None:
    told: list[tuple[str, float | None]] = []
    result = await calls.call("count", {"to": 2}, call_id="c9", on_progress=lambda *one: told.append(one))
    assert (result.output, result.call_id, told) == (2, "c9", [("at 0", 0.0), ("at 1", 0.5)])


async def elsewhere(backend: str, work: Callable[[], Awaitable[T]]) -> T:
    """Run `work` on an event loop of its own in another thread."""
    with anyio.fail_after(PATIENCE_S):
        return await anyio.to_thread.run_sync(lambda: anyio.run(work, backend=backend), abandon_on_cancel=True)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_on_another_loop_everything_works_as_on_the_session_s(calls: SessionCalls, backend: str) -> None:
    told: list[tuple[str, float | None, int]] = []

    async def note(message: str, fraction: float | None) -> None:
        await anyio.sleep(0)
        told.append((message, fraction, get_ident()))

    async def work() -> int:
        assert "pay" in {one.name for one in await calls.declarations()}
        assert await calls.question("pay", {"amount": 50}, call_id="c1")
        approved = await calls.call("pay", {"amount": 50}, call_id="c1", answer=Approved(), on_progress=note)
        assert approved.output == "paid 50"
        with pytest.raises(ApprovalNeeded):
            await calls.call("erase", {})
        assert (await calls.direct("count", {"to": 2}, on_progress=note)).output == 2
        return get_ident()

    thread = await elsewhere(backend, work)
    assert thread != get_ident() and told == [("at 0", 0.0, thread), ("at 1", 0.5, thread)]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_a_caller_on_another_loop_that_is_cancelled_ends_the_call(
    main: Session, shared: Supervisor, calls: SessionCalls, backend: str
) -> None:
    async def work() -> bool:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(calls.direct, "hang", dict[str, Any]())
            while "busy" not in repr(shared):
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        return True

    assert await elsewhere(backend, work)
    await until(lambda: "busy" not in repr(shared))


async def test_a_thread_without_a_loop_waits_and_the_loop_s_own_thread_is_told_what_to_do(
    main: Session, calls: SessionCalls
) -> None:
    def wait() -> Any:
        return calls.loop.wait(lambda _: main.call("pay", {"amount": 5}), instead="Await it.").output

    assert await anyio.to_thread.run_sync(wait) == "paid 5"
    with pytest.raises(UsageError, match=r"block the session's event loop.* Await it\."):
        wait()


async def test_a_session_whose_loop_does_not_run_is_misuse_and_no_wait_for_ever(workspace: Path) -> None:
    def work() -> None:
        with asyncio.Runner() as runner:
            supervisor = Supervisor([pay])
            runner.run(supervisor.start())
            calls = SessionCalls(runner.run(supervisor.open_session("main", workspace=workspace)))
            with pytest.raises(UsageError, match="event loop does not run"):
                calls.loop.wait(lambda _: calls.declarations(), instead="")
            assert runner.run(calls.declarations())
            runner.run(supervisor.aclose())
            with pytest.raises(UsageError, match="not running"):
                calls.loop.wait(lambda _: calls.declarations(), instead="")

    await anyio.to_thread.run_sync(work)


LEFT = """
import asyncio, os, sys, time
from concurrent.futures import ThreadPoolExecutor
import anyio
from toolcell import Supervisor, UsageError
from toolcell.adapters.session_calls import SessionCalls

async def started(threads, way):
    supervisor = Supervisor()
    await supervisor.start()
    calls = SessionCalls(await supervisor.open_session("main", workspace="."))
    def call():
        if way == "thread":
            return calls.loop.wait(lambda _: calls.declarations(), instead="")
        return anyio.run(calls.declarations, backend=way)
    futures = threads.submit(call)
    time.sleep(0.5)  # the call is queued, and this is the last turn of the loop
    return futures

loop, threads = asyncio.new_event_loop(), ThreadPoolExecutor()
future = loop.run_until_complete(started(threads, sys.argv[1]))
loop.close()
print(type(future.exception(30)).__name__, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("way", ["thread", "asyncio", "trio"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_caller_elsewhere_does_not_wait_for_a_loop_that_was_closed_before_its_call(
    workspace: Path, way: str
) -> None:
    done = await anyio.run_process([sys.executable, "-c", LEFT, way], cwd=workspace, check=False)
    assert done.stdout == b"UsageError\n", done.stderr.decode()


async def test_a_call_of_a_closed_session_is_misuse(main: Session) -> None:
    calls = SessionCalls(main)
    await main.close()
    with pytest.raises(UsageError, match="closed"):
        await calls.question("pay", {"amount": 50}, call_id="c1")
    with pytest.raises(UsageError, match="closed"):
        await calls.call("pay", {"amount": 5})


async def test_the_supervisor_s_own_approver_is_asked_and_the_framework_is_not(
    supervise: Supervise, workspace: Path
) -> None:
    desk = ApprovalQueue()

    async def answer() -> None:
        while not len(desk):
            await anyio.sleep(0.01)
        desk.decide(next(iter(desk)).id, Denied("the desk says no"))

    async with supervise([pay], approver=desk) as supervisor:
        calls = SessionCalls(await supervisor.open_session("main", workspace=workspace))
        assert await calls.question("pay", {"amount": 50}, call_id="c1") is None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            result = await calls.call("pay", {"amount": 50}, call_id="c1", answer=Approved())
    assert result.error is not None and result.error.message == "the desk says no"


class Double(Hook):
    async def before_call(self, call: ToolCall) -> ToolCall:
        return call.with_arguments({"amount": call.arguments["amount"] * 2})


async def test_arguments_that_a_hook_replaces_are_asked_about_before_they_run(
    supervise: Supervise, workspace: Path
) -> None:
    async with supervise([pay], hooks=[Double()]) as supervisor:
        calls = SessionCalls(await supervisor.open_session("main", workspace=workspace))
        assert await calls.question("pay", {"amount": 50}, call_id="c1")
        needed = await refused(calls, "pay", {"amount": 50}, call_id="c1", answer=Approved())
        assert needed.request.arguments == {"amount": 100}
        assert (await calls.call("pay", {"amount": 50}, call_id="c1", answer=Approved())).output == "paid 100"


async def test_an_answer_is_for_the_request_of_its_call_and_for_no_other_pending_one(
    supervise: Supervise, workspace: Path
) -> None:
    async with supervise([pay], hooks=[Double()]) as supervisor:
        calls = SessionCalls(await supervisor.open_session("main", workspace=workspace))
        for call_id, amount in (("c1", 50), ("c2", 100)):
            assert await calls.question("pay", {"amount": amount}, call_id=call_id)
        needed = await refused(calls, "pay", {"amount": 50}, call_id="c1", answer=Approved())
        assert needed.request.arguments == {"amount": 100}, "approved was 50, and 100 is pending for another call"


async def test_an_approval_that_came_too_late_is_asked_for_again(
    supervise: Supervise, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    async with supervise([pay]) as supervisor:
        calls = SessionCalls(await supervisor.open_session("main", workspace=workspace))
        assert await calls.question("pay", {"amount": 50}, call_id="c1")
        monkeypatch.setattr(time, "time", lambda: real() + 3600)
        await refused(calls, "pay", {"amount": 50}, call_id="c1", answer=Approved())


async def test_a_policy_that_asks_is_a_question_and_one_that_denies_is_none(
    supervise: Supervise, workspace: Path
) -> None:
    async with supervise([pay, count], policy=TierPolicy(tools={"count": "ask", "pay": "deny"})) as supervisor:
        calls = SessionCalls(await supervisor.open_session("main", workspace=workspace))
        assert await calls.question("count", {"to": 1}, call_id="c1")
        assert await calls.question("pay", {"amount": 50}, call_id="c2") is None
        assert (await calls.call("pay", {"amount": 50}, call_id="c2", answer=Approved())).is_error


async def test_with_a_state_directory_an_approval_outlives_the_supervisor(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    async with supervise([pay], state=tmp_path / "state") as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="shop")
        assert await SessionCalls(session).question("pay", {"amount": 50}, call_id="c1")
    async with supervise([pay], state=tmp_path / "state") as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="shop")
        calls = SessionCalls(session)
        assert (await calls.call("pay", {"amount": 50}, call_id="c1", answer=Approved())).output == "paid 50"
        await refused(calls, "pay", {"amount": 50}, call_id="c1", answer=Approved())
