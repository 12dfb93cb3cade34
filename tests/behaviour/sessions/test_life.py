"""The life of a session: its states, its time, its suspension, and what it leaves to its parent."""

import math
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.helpers import PATIENCE_S, until

import toolcell.blocking
from toolcell import (
    Approved,
    CallReport,
    Cancelled,
    Capability,
    Hook,
    PermissionTier,
    Session,
    SessionInfo,
    SessionKind,
    SessionResult,
    SessionState,
    Supervisor,
    ToolCall,
    ToolContext,
    ToolDeclaration,
    ToolFailure,
    UsageError,
    base_tools,
    load_config,
    tool,
)
from toolcell.rules.policy import Decision
from toolcell.runtime.opening import CONTEXT_BYTES
from toolcell.session import core_of
from toolcell.sessions.session_result import MAX_REPORTS
from toolcell.store.directory import StateDirectory
from toolcell.store.journal.reading import JournalReader
from toolcell.supervisor import runtime_of

pytestmark = pytest.mark.anyio


def fail(text: str) -> str:
    """Fail."""
    raise ToolFailure(text)


def whoami(ctx: ToolContext) -> list[str]:
    """Return for whom the call runs."""
    return [ctx.agent_id, ctx.user_id, ctx.invocation_id, ctx.context]


def remember(ctx: ToolContext, key: str, value: Any = None) -> Any:
    """Set `key` in the session's values. Return its earlier value."""
    before = ctx.values.get(key)
    ctx.values[key] = value
    return before


@tool(needs={Capability.WRITE})
def wait(ctx: ToolContext) -> str:
    """Wait until the call is cancelled."""
    Path("begun").touch()
    while not ctx.cancelled:
        time.sleep(0.01)
    return "tidy"


@tool(lifetime="session")
def count() -> int:
    """Count the calls of this process."""
    seen = globals()["SEEN"] = globals().get("SEEN", 0) + 1
    return int(seen)


@tool(tier=PermissionTier.ELEVATED)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


TOOLS = [*base_tools(), fail, whoami, remember, wait, count, pay]


# -- what a session leaves to its parent ------------------------------------------------------------------------------


async def test_a_close_gives_a_result_that_reaches_the_parent(main: Session) -> None:
    child = await main.open_child("branch", agent_id="builder")
    await child.call("write", {"path": "made.txt", "content": "x"})
    await child.call("fail", {"text": "no such user"}, call_id="the one")
    result = await child.close(outcome="failed", summary="made one file")
    assert (result.session_id, result.agent_id, result.outcome) == (child.id, "builder", SessionState.FAILED)
    assert result.summary == "made one file" and [one.path for one in result.artifacts] == ["made.txt"]
    assert result.usage.calls == 2 and result.usage.cpu_s > 0 and result.usage.bytes > 0
    assert [(one.call_id, one.tool, one.error.message) for one in result.errors] == [
        ("the one", "fail", "no such user")
    ]
    assert main.results == (result,) and main.usage == result.usage
    assert [one.path for one in main.artifacts] == ["made.txt"]
    assert await child.close(summary="another") is result and child.state is SessionState.FAILED and child.closed
    assert SessionResult.model_validate_json(result.model_dump_json()) == result


async def test_a_call_that_failed_for_good_is_reported_to_the_parent_and_to_nobody_else(main: Session) -> None:
    child, sibling = await main.open_child("worker"), await main.open_child("worker")

    async def repair(_error: object) -> dict[str, Any]:
        return {"wrong": 1}

    await child.call("fail", {"wrong": 1})
    assert main.reports == (), "a model may correct its arguments"
    await child.call("fail", {"wrong": 1}, call_id="repaired twice", repair=repair)
    await child.call("write", {"path": "a", "content": "b"}, call_id="denied")
    reports: tuple[CallReport, ...] = main.reports
    assert [(one.session_id, one.call_id, one.error.kind) for one in reports] == [
        (child.id, "repaired twice", "validation"),
        (child.id, "denied", "permission_denied"),
    ]
    assert sibling.reports == child.reports == () and not core_of(sibling).caller.tally.errors


async def test_reports_are_bounded_and_the_oldest_goes_first(main: Session) -> None:
    child = await main.open_child("worker")
    for number in range(MAX_REPORTS + 3):
        await child.call("shell", {"command": "true"}, call_id=str(number))
    assert len(main.reports) == MAX_REPORTS and main.reports[0].call_id == "3"


async def test_a_child_is_closed_with_its_parent_and_its_usage_is_counted_once(
    shared: Supervisor, workspace: Path
) -> None:
    main = await shared.open_session("main", workspace=workspace)
    leaf = await (await main.open_child("branch")).open_child("worker")
    for session in (main, leaf):
        await session.call("whoami")
    assert main.usage.calls == 2 and leaf.usage.calls == 1
    result = await main.close(outcome=SessionState.FAILED)
    assert result.usage.calls == 2 and leaf.state is SessionState.FAILED


async def test_a_session_is_closed_as_completed_or_failed_only(main: Session) -> None:
    for outcome in ("expired", "active", "done"):
        with pytest.raises(UsageError, match="'completed' or 'failed'"):
            await main.close(outcome=outcome)  # type: ignore[arg-type]
    assert main.state is SessionState.ACTIVE


# -- what it is told ---------------------------------------------------------------------------------------------------


async def test_a_child_has_the_summary_that_its_parent_gave_it(main: Session) -> None:
    child = await main.open_child("worker", context="The bug is in parse().")
    assert child.context == "The bug is in parse()." and main.context == ""
    assert (await child.call("whoami")).output[-1] == "The bug is in parse()."
    with pytest.raises(UsageError, match="65,536 bytes"):
        await main.open_child("worker", context="ä" * CONTEXT_BYTES)


async def test_user_and_invocation_stand_beside_the_agent_in_tools_policy_and_journal(
    supervise: Any, workspace: Path, tmp_path: Path
) -> None:
    seen: list[SessionInfo] = []

    class Looks:
        def decide(self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> Decision:
            seen.append(session)
            return "allow"

    async with supervise(TOOLS, policy=Looks(), state=tmp_path / "state") as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, user_id="ada", invocation_id="turn-1")
        assert (await main.call("whoami")).output == ["agent", "ada", "turn-1", ""]
        main.invocation_id = "turn-2"
        child = await main.open_child("worker", agent_id="helper")
        assert (await child.call("whoami")).output == ["helper", "ada", "turn-2", ""]
    directory = StateDirectory(tmp_path / "state")
    entries = JournalReader(directory.log, directory.index).entries()
    kept = [each.record.data for each in entries if each.record.kind in ("intent", "call")]
    told = list(dict.fromkeys((one.user_id, one.invocation_id) for one in seen))
    assert told == [("ada", "turn-1"), ("ada", "turn-2")]
    assert [(one["user"], one["invocation"]) for one in kept] == [("ada", "turn-1")] * 2 + [("ada", "turn-2")] * 2
    assert main.user_id == "ada" and child.invocation_id == "turn-2"


async def test_nothing_passes_between_siblings(main: Session) -> None:
    main.values = {"of": "main"}
    one, two = await main.open_child("branch"), await main.open_child("branch")
    await one.call("remember", {"key": "secret", "value": 1})
    assert (await two.call("remember", {"key": "secret"})).output is None
    assert main.values == {"of": "main"} and one.values == {"secret": 1} and two.values == {"secret": None}


# -- its time ----------------------------------------------------------------------------------------------------------


async def test_a_session_expires_and_its_parent_learns_it(shared: Supervisor, workspace: Path) -> None:
    main = await shared.open_session("main", workspace=workspace)
    child = await main.open_child("worker", ttl_s=0.2)
    assert (await child.call("whoami")).error is None
    await until(lambda: main.results)
    assert child.state is SessionState.EXPIRED and main.results[0].outcome is SessionState.EXPIRED
    with pytest.raises(UsageError, match="closed: it has expired"):
        await child.call("whoami")
    assert main.state is SessionState.ACTIVE
    await main.close()


async def test_the_running_call_of_a_session_that_expires_is_told(main: Session, workspace: Path) -> None:
    child = await main.open_child("branch", ttl_s=0.5)
    result = await child.call("wait")
    assert result.output == "tidy" or isinstance(result.error, Cancelled)
    await until(lambda: child.closed)


async def test_lifetimes_are_by_kind_and_can_be_set(supervise: Any, workspace: Path, tmp_path: Path) -> None:
    def left(session: Session) -> float:
        core = core_of(session)
        core.stop_clock()
        return core.left_s

    async with supervise(TOOLS) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace)
        children = [await main.open_child(kind) for kind in ("branch", "worker")]
        branch, worker = map(left, children)
        assert left(main) == math.inf and 1795 < branch <= 1800 and 295 < worker <= 300
    settings = tmp_path / "toolcell.toml"
    settings.write_text("[supervisor]\nhook_timeout_s = 7\n[supervisor.session_ttl_s]\nworker = 60\nmain = inf\n")
    config = load_config(file=settings)
    assert config.hook_timeout_s == 7
    async with supervise(TOOLS, config=config, session_ttl_s={"branch": 90.0}, profiles=None) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace)
        children = [await main.open_child(kind) for kind in ("branch", "worker")]
        branch, worker = map(left, children)
        assert left(main) == math.inf and 85 < branch <= 90 and 55 < worker <= 60
    for wrong in (0, -1, "long"):
        with pytest.raises(UsageError, match="session_ttl_s"):
            Supervisor(session_ttl_s={"worker": wrong})  # type: ignore[arg-type]


# -- its suspension ----------------------------------------------------------------------------------------------------


async def test_a_suspended_session_holds_no_cell_and_refuses_calls_until_it_is_resumed(
    shared: Supervisor, workspace: Path
) -> None:
    main = await shared.open_session("main", workspace=workspace, config={"tone": "dry"})
    child = await main.open_child("branch")
    for session in (main, child):
        await session.call("remember", {"key": "k", "value": session.id})
    await main.suspend()
    await main.suspend()
    pool = runtime_of(shared).pool
    ids = {main.id, child.id}
    await until(lambda: ids.isdisjoint(cell.spec.key.session_id for cell in pool.cells.values()))
    for session in (main, child):
        assert session.state is SessionState.SUSPENDED and not session.closed
        with pytest.raises(UsageError, match="Resume it first"):
            await session.call("whoami")
    with pytest.raises(UsageError, match="suspended"):
        await main.open_child("worker")
    with pytest.raises(UsageError, match="Resume the parent first"):
        await child.resume()
    assert shared.suspended_sessions() == [main.id, child.id]
    await main.resume()
    assert (await main.call("remember", {"key": "k"})).output == main.id and main.config == {"tone": "dry"}
    assert child.state is SessionState.SUSPENDED
    assert (await shared.resume_session(child.id)) is child
    assert (await child.call("remember", {"key": "k"})).output == child.id
    with pytest.raises(UsageError, match="is not suspended"):
        await main.resume()
    await main.close()
    with pytest.raises(UsageError, match="closed"):
        await main.suspend()
    assert shared.suspended_sessions() == []


async def test_running_calls_are_told_of_the_suspension_and_others_end(main: Session, workspace: Path) -> None:
    results: list[Any] = []

    async def call() -> None:
        results.append(await main.call("wait"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await until((workspace / "begun").exists)
        with anyio.fail_after(PATIENCE_S):
            await main.suspend()
    assert results[0].output == "tidy"


async def test_a_question_for_approval_outlives_the_suspension(supervise: Any, workspace: Path) -> None:
    async with supervise(TOOLS) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, channel=Silent())
        results: list[Any] = []

        async def call() -> None:
            results.append(await main.call("pay", {"amount": 5}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until(lambda: supervisor.approvals.pending())
            await main.suspend()
        assert isinstance(results[0].error, Cancelled) and "suspended" in results[0].error.message
        (entry,) = supervisor.approvals.pending()
        supervisor.approvals.approve(entry.id)
        await main.resume()
        assert (await main.call("pay", {"amount": 5})).output == "paid 5"


@pytest.mark.parametrize("end", ["suspend", "close"])
async def test_a_session_that_ends_while_a_question_is_being_kept_does_not_wait_for_the_answer(
    supervise: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    kept, ended = threading.Event(), threading.Event()
    async with supervise(TOOLS) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, channel=Silent())
        submit = supervisor.approvals.submit

        def slow(*given: Any) -> Any:
            found = submit(*given)
            kept.set()
            assert ended.wait(PATIENCE_S)
            return found

        monkeypatch.setattr(supervisor.approvals, "submit", slow)
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(main.call, "pay", {"amount": 5})
                await until(kept.is_set)
                await getattr(main, end)()
                ended.set()


class Silent:
    """A channel whose people do not answer."""

    async def send(self, text: str, *, sender: str) -> None: ...

    async def approve(self, request: object) -> Approved:
        await anyio.sleep_forever()
        raise AssertionError


async def test_the_state_of_a_kept_process_is_lost_by_a_suspension_and_the_model_is_told(main: Session) -> None:
    assert (await main.call("count")).output == 1 and (await main.call("count")).output == 2
    await main.suspend()
    await main.resume()
    result = await main.call("count")
    assert result.output == 1 and [one.kind for one in result.notices] == ["state_lost"]
    assert "suspended" in result.notices[0].message


async def test_the_time_of_a_suspended_session_stands_still(shared: Supervisor, workspace: Path) -> None:
    main = await shared.open_session("main", workspace=workspace, ttl_s=0.4)
    await main.suspend()
    await anyio.sleep(0.5)
    await main.resume()
    assert (await main.call("whoami")).error is None
    await until(lambda: main.closed)
    assert main.state is SessionState.EXPIRED


async def test_a_suspended_session_can_be_closed(shared: Supervisor, workspace: Path) -> None:
    main = await shared.open_session("main", workspace=workspace, session_id="parked")
    await main.suspend()
    assert (await main.close()).outcome is SessionState.COMPLETED
    assert shared.suspended_sessions() == []
    with pytest.raises(UsageError, match="There is no suspended session 'parked'"):
        await shared.resume_session("parked")


# -- hooks -------------------------------------------------------------------------------------------------------------


class Witness(Hook):
    def __init__(self) -> None:
        self.log: list[tuple[str, ...]] = []

    async def on_session(self, session: SessionInfo, event: str, result: SessionResult | None) -> None:
        self.log.append((event, session.session_id, "" if result is None else result.outcome.value))

    async def on_suspend(self, session: SessionInfo) -> None:
        self.log.append(("suspended", session.session_id))

    async def on_resume(self, session: SessionInfo) -> None:
        self.log.append(("resumed", session.session_id))


class Faulty:
    """Plain methods, of which one fails and one hangs."""

    def on_session(self, session: SessionInfo, event: str, result: SessionResult | None) -> None:
        raise RuntimeError("broken")

    async def on_suspend(self, session: SessionInfo) -> None:
        await anyio.sleep_forever()


async def test_hooks_hear_of_sessions_and_one_that_fails_or_hangs_stops_nothing(
    supervise: Any, workspace: Path
) -> None:
    witness = Witness()
    async with supervise(TOOLS, hooks=[Faulty(), witness], hook_timeout_s=0.1) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, session_id="m")
        await main.open_child("worker", session_id="w")
        with anyio.fail_after(PATIENCE_S):
            await main.suspend()
        await main.resume()
        await main.close(outcome="failed")
    assert witness.log == [
        ("opened", "m", ""),
        ("opened", "w", ""),
        ("suspended", "m"),
        ("suspended", "w"),
        ("resumed", "m"),
        ("closed", "w", "failed"),
        ("closed", "m", "failed"),
    ]


# -- without await -----------------------------------------------------------------------------------------------------


def test_a_blocking_session_has_the_same_life(tmp_path: Path) -> None:
    with toolcell.blocking.Supervisor([*base_tools(), whoami, fail], standby=0) as supervisor:
        main = supervisor.open_session(SessionKind.MAIN, workspace=tmp_path, user_id="ada", session_id="m")
        main.values, main.config, main.invocation_id = {"a": 1}, {"b": 2}, "turn"
        child = main.open_child("worker", context="why")
        assert child.call("whoami").output == ["agent", "ada", "turn", "why"]
        child.call("fail", {"text": "no"})
        assert child.close(summary="done").summary == "done" == main.results[0].summary
        assert len(main.reports) == 1 and main.usage.calls == 2 and main.artifacts == ()
        main.suspend()
        assert main.state is SessionState.SUSPENDED and supervisor.suspended_sessions() == ["m"]
        assert supervisor.resume_session("m").values == {"a": 1}
        main.suspend()
        main.resume()
        assert main.close().outcome is SessionState.COMPLETED and main.closed
        assert main.close(summary="again").summary == ""


async def test_a_session_whose_opening_is_cancelled_leaves_nothing(supervise: Any, workspace: Path) -> None:
    events: list[str] = []
    begun = anyio.Event()

    class Slow(Hook):
        async def on_session(self, session: SessionInfo, event: str, result: SessionResult | None) -> None:
            events.append(f"{session.session_id} {event}")
            if event == "opened" and len(events) == 1:
                begun.set()
                await anyio.sleep_forever()

    async with supervise(hooks=[Slow()]) as supervisor:
        async with anyio.create_task_group() as tasks:

            async def opening() -> None:
                await supervisor.open_session("main", workspace=workspace, session_id="one")

            tasks.start_soon(opening)
            await begun.wait()
            tasks.cancel_scope.cancel()
        assert events == ["one opened", "one closed"]
        again = await supervisor.open_session("main", workspace=workspace, session_id="one")
        assert again.state is SessionState.ACTIVE
