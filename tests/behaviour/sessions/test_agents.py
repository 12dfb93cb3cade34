"""Agents as tools: a child session for each call, what passes in and out, and what ends it."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from tests.helpers import PATIENCE_S, until

from toolcell import (
    ApprovalRequest,
    Approved,
    Cancelled,
    Capability,
    ExecutionError,
    PermissionDenied,
    PermissionTier,
    PolicyRule,
    Profile,
    RecentJournal,
    Session,
    SessionInfo,
    SessionKind,
    SessionState,
    Supervisor,
    TierPolicy,
    Timeout,
    ToolCall,
    ToolDeclaration,
    ToolDefinitionError,
    ToolFailure,
    ToolResult,
    UsageLimits,
    agent_tool,
    base_tools,
    delegate,
    host_tool,
    preload_memory,
    tool,
)
from toolcell.backends.protocols import MemoryStore
from toolcell.rules.policy import Decision
from toolcell.runtime.status import overview
from toolcell.session import core_of
from toolcell.supervisor import runtime_of
from toolcell.testing.backends import ListChannel, ListMemory

pytestmark = pytest.mark.anyio

seen: list[Session] = []
"""The sessions that agents got."""


async def reader(session: Session, request: str) -> AsyncIterator[str]:
    """Read the file that the request names."""
    seen.append(session)
    yield "I shall read it."
    result = await session.call("read", {"path": request})
    yield str(result.output["content"]) if result.error is None else f"I could not: {result.error.message}"


async def writer(session: Session, request: str) -> str:
    """Try to write."""
    seen.append(session)
    return (await session.call("write", {"path": "made.txt", "content": request})).for_model()


async def hangs(session: Session, request: str) -> str:
    """Wait for ever."""
    seen.append(session)
    await session.call("remember", {"text": "begun"})
    await anyio.sleep_forever()
    raise AssertionError


async def breaks(session: Session, request: str) -> str:
    """Fail."""
    seen.append(session)
    raise ToolFailure("the model is overloaded", {"after": 3})


class Question(BaseModel):
    """What to look for."""

    topic: str
    depth: int = 1


async def typed(session: Session, question: Question) -> dict[str, Any]:
    """Answer with data."""
    seen.append(session)
    session.values["mine"] = "the child's"
    return {"topic": question.topic, "depth": question.depth, "values": dict(session.values)}


async def told(session: Session, task: str) -> str:
    """Repeat what the helper knows."""
    seen.append(session)
    return f"{task} | {session.context} | {session.kind} | {session.agent_id}"


async def nested(session: Session, task: str) -> str:
    """Try to start another agent."""
    result = await session.call("delegate", {"task": task})
    return "started" if result.error is None else result.error.kind


def remember(text: str) -> str:
    """Return the text."""
    return text


TOOLS = [
    *base_tools(),
    remember,
    agent_tool(reader, name="reader", skip_summarization=True),
    agent_tool(writer, name="writer"),
    agent_tool(writer, name="builder", kind="branch"),
    agent_tool(hangs, name="hangs", timeout=0.5),
    agent_tool(hangs, name="stays"),
    agent_tool(breaks, name="breaks"),
    agent_tool(typed, name="typed", input_schema=Question),
    agent_tool(typed, name="chosen", input_schema=Question, values=["b"]),
    agent_tool(writer, name="bounded", kind="branch", usage_limits=UsageLimits(calls=1)),
    agent_tool(nested, name="nested"),
    agent_tool(nested, name="nested_branch", kind="branch"),
    delegate(told),
]


async def test_the_last_text_of_an_agent_is_the_result_and_its_cost_is_its_callers(main: Session) -> None:
    (main.workspace / "a.txt").write_text("hello")
    result = await main.call("reader", {"request": "a.txt"})
    assert result.output == result.display == "1\thello" and [one.kind for one in result.signals] == [
        "skip_summarization"
    ]
    assert main.usage.calls == 2, "the agent's call, and that of the agent"
    child = seen[-1]
    assert child.kind is SessionKind.WORKER and child.agent_id == "reader" and child.closed
    assert main.results[-1].session_id == child.id and main.results[-1].summary == "1\thello"
    assert core_of(main).living_children == 0


async def test_by_default_an_agent_takes_one_request(main: Session) -> None:
    declared = {one.name: one for one in await main.tools()}
    schema = declared["reader"].parameters_schema
    assert list(schema["properties"]) == schema["required"] == ["request"]
    assert declared["reader"].placement == "host" and declared["reader"].signals == {"skip_summarization"}
    assert declared["reader"].description == "Read the file that the request names."
    assert (await main.call("reader", {"request": ""})).is_error


async def test_an_agent_holds_no_more_than_its_caller_and_by_default_what_a_worker_holds(
    shared: Supervisor, workspace: Path
) -> None:
    main = await shared.open_session("main", workspace=workspace)
    assert "permission_denied" in (await main.call("writer", {"request": "x"})).output
    assert "written" in (await main.call("builder", {"request": "x"})).for_model() or (workspace / "made.txt").exists()
    narrow = await main.open_child(
        "branch", profile=Profile.for_kind("branch").replace(grants=frozenset({"read", "exec"}))
    )
    assert "permission_denied" in (await narrow.call("builder", {"request": "x"})).output
    assert seen[-1].grants == {Capability.READ, Capability.EXEC}
    await main.close()


async def test_a_worker_calls_no_agent_for_it_lacks_what_every_agent_needs(main: Session) -> None:
    worker = await main.open_child("worker")
    for name, arguments in (("reader", {"request": "a"}), ("delegate", {"task": "a"})):
        error = (await worker.call(name, arguments)).error
        assert isinstance(error, PermissionDenied) and error.missing == (Capability.EXEC,)
    assert "reader" not in {one.name for one in await worker.tools()}
    assert (await main.call("nested", {"request": "x"})).output == "permission_denied"
    assert (await main.call("nested_branch", {"request": "x"})).output == "started", "a Branch may"


async def test_an_agent_has_a_copy_of_the_allowed_values_and_gives_none_back(main: Session) -> None:
    main.values = {"a": [1], "b": {"c": 2}, "_private": "key"}
    result = await main.call("typed", {"topic": "ants"})
    assert result.output == {"topic": "ants", "depth": 1, "values": {"a": [1], "b": {"c": 2}, "mine": "the child's"}}
    assert (await main.call("chosen", {"topic": "ants"})).output["values"] == {"b": {"c": 2}, "mine": "the child's"}
    seen[-1].values["b"]["c"] = 3
    assert main.values == {"a": [1], "b": {"c": 2}, "_private": "key"}


async def test_two_agents_at_once_see_nothing_of_each_other(main: Session) -> None:
    main.values = {"a": 1}
    results: list[ToolResult] = []

    async def call(topic: str) -> None:
        results.append(await main.call("typed", {"topic": topic}))

    async with anyio.create_task_group() as tasks:
        for topic in ("ants", "bees", "wasps"):
            tasks.start_soon(call, topic)
    assert {one.output["topic"] for one in results} == {"ants", "bees", "wasps"}
    assert all(one.output["values"] == {"a": 1, "mine": "the child's"} for one in results)


async def test_delegate_passes_a_task_and_a_context(main: Session) -> None:
    result = await main.call("delegate", {"task": "count the ants", "context": "there are many"})
    assert result.output == "count the ants | there are many | worker | delegate"


async def test_an_agent_that_fails_is_an_error_result_and_its_session_has_failed(main: Session) -> None:
    result = await main.call("breaks", {"request": "x"})
    assert isinstance(result.error, ExecutionError) and result.error.data == {"after": 3}
    assert seen[-1].state is SessionState.FAILED and main.results[-1].outcome is SessionState.FAILED


async def test_failed_calls_of_an_agent_are_reported_to_its_caller(main: Session) -> None:
    await main.call("writer", {"request": "x"})
    assert [(one.agent_id, one.tool, one.error.kind) for one in main.reports] == [
        ("writer", "write", "permission_denied")
    ]


async def test_usage_limits_of_an_agent_hold_for_its_calls(main: Session) -> None:
    assert (await main.call("bounded", {"request": "x"})).error is None
    assert seen[-1].usage.calls == 1


async def test_the_deadline_of_the_call_ends_the_agent(main: Session) -> None:
    with anyio.fail_after(PATIENCE_S):
        result = await main.call("hangs", {"request": "x"})
    assert isinstance(result.error, Timeout)
    assert seen[-1].state is SessionState.FAILED and core_of(main).living_children == 0


async def test_the_cancellation_of_the_caller_ends_the_agent(main: Session) -> None:
    before = len(seen)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(main.call, "stays", {"request": "x"})
        await until(lambda: len(seen) > before and seen[-1].usage.calls)
        tasks.cancel_scope.cancel()
    assert seen[-1].state is SessionState.FAILED and core_of(main).living_children == 0


async def test_the_close_of_the_caller_ends_the_agent(shared: Supervisor, workspace: Path) -> None:
    main = await shared.open_session("main", workspace=workspace)
    before, results = len(seen), list[ToolResult]()

    async def call() -> None:
        results.append(await main.call("stays", {"request": "x"}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await until(lambda: len(seen) > before and seen[-1].usage.calls)
        with anyio.fail_after(PATIENCE_S):
            await main.close()
    assert isinstance(results[0].error, Cancelled) and seen[-1].closed


async def test_a_ninth_agent_at_once_is_an_error_that_the_model_reads(main: Session) -> None:
    children = [await main.open_child("worker") for _ in range(8)]
    result = await main.call("delegate", {"task": "x"})
    assert isinstance(result.error, ExecutionError) and "8 open children" in result.error.message
    await children[0].close()
    assert (await main.call("delegate", {"task": "x"})).error is None


async def test_a_function_that_is_not_async_is_an_error_that_says_so(supervise: Any, workspace: Path) -> None:
    def plain(session: Session, request: str) -> str:
        return request

    wrong: Any = plain
    async with supervise([agent_tool(wrong, name="plain")]) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace)
        result = await main.call("plain", {"request": "x"})
        assert "gave a str at once. Write async def" in result.for_model() and main.results[-1].outcome == "failed"


def test_what_cannot_be_an_agent_is_refused_when_it_is_made() -> None:
    with pytest.raises(ToolDefinitionError, match="a Worker must not start an agent"):
        agent_tool(reader, name="reader", needs={Capability.READ, Capability.WEB})
    with pytest.raises(ToolDefinitionError, match="no child is a Main session"):
        agent_tool(reader, name="reader", kind="main")
    with pytest.raises(ToolDefinitionError, match="is not a function"):
        agent_tool("reader", name="reader")  # type: ignore[arg-type]


async def test_an_agent_may_give_a_whole_result(supervise: Any, workspace: Path) -> None:
    async def full(session: Session, request: str) -> ToolResult:
        return ToolResult(output={"n": 1}, display="one")

    async with supervise([agent_tool(full, name="full", skip_summarization=True)]) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace)
        result = await main.call("full", {"request": "x"})
    assert result.output == {"n": 1} and result.display == "one" and len(result.signals) == 1


def test_host_tools_of_other_kinds_take_no_part_in_this() -> None:
    with pytest.raises(ToolDefinitionError, match="there is no signal 'stop'"):
        host_tool(remember, signals={"stop"})  # type: ignore[arg-type]


@tool(tier=PermissionTier.ELEVATED)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def does(session: Session, request: Mapping[str, Any]) -> list[Any]:
    """Make the call that is asked for. Return its output and the kind of its error."""
    seen.append(session)
    result = await session.call(request["tool"], request["arguments"])
    return [result.output, None if result.error is None else result.error.kind]


CALL = {
    "type": "object",
    "properties": {"tool": {"type": "string"}, "arguments": {"type": "object"}},
    "required": ["tool", "arguments"],
}


def doing(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments}


HELPERS = [*base_tools(), pay, agent_tool(does, name="delegate", input_schema=CALL, kind="branch")]
NO_READ = {
    "rule": TierPolicy(rules=[PolicyRule("deny", agent="bob", tool="read")]),
    "agents": TierPolicy(agents={"bob": TierPolicy(tools={"read": "deny"})}),
}


async def test_a_session_knows_its_line(main: Session) -> None:
    assert main.line == ("agent",)
    same, helper = await main.open_child("branch"), await main.open_child("branch", agent_id="h/lp\u00e9r")
    assert same.line == ("agent",) and (await main.open_child("worker", agent_id="agent")).line == ("agent",)
    assert helper.line == ("agent", "h/lp\u00e9r") and (await helper.open_child("worker")).line == helper.line
    back = await helper.open_child("branch", agent_id="agent")
    assert back.line == ("agent", "h/lp\u00e9r", "agent") and back.agent_id == "agent", "it is not its grandparent"
    nameless = await back.open_child("worker", agent_id="")
    assert nameless.line == (*back.line, "")


@pytest.mark.parametrize("policy", NO_READ.values(), ids=NO_READ)
async def test_what_an_agent_is_denied_its_helpers_are_denied_too(
    supervise: Any, workspace: Path, policy: TierPolicy
) -> None:
    (workspace / "a.txt").write_text("secret")
    async with supervise(HELPERS, policy=policy) as supervisor:
        bob = await supervisor.open_session("main", workspace=workspace, agent_id="bob")
        ann = await supervisor.open_session("main", workspace=workspace, agent_id="ann")
        assert (await bob.call("delegate", doing("read", path="a.txt"))).output == [None, "permission_denied"]
        deeper = await bob.call("delegate", {"tool": "delegate", "arguments": doing("read", path="a.txt")})
        assert deeper.output == [[None, "permission_denied"], None]
        below = await (await bob.open_child("branch", agent_id="x")).open_child("worker", agent_id="y")
        assert isinstance((await below.call("read", {"path": "a.txt"})).error, PermissionDenied)
        assert "read" not in {one.name for one in await below.tools()}
        told = await below.explain("read", {"path": "a.txt"})
        assert told.decision == "deny" and told.rule.startswith(("policy.rules[0]", "policy.agents.bob"))
        assert "secret" in (await ann.call("delegate", doing("read", path="a.txt"))).for_model()


async def test_a_policy_of_the_program_sees_the_line(supervise: Any, workspace: Path) -> None:
    lines: list[tuple[str, ...]] = []

    class Mine:
        def decide(self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> Decision:
            lines.append(session.line)
            return "deny" if "bob" in session.line and call.tool == "read" else "allow"

    async with supervise(HELPERS, policy=Mine()) as supervisor:
        bob = await supervisor.open_session("main", workspace=workspace, agent_id="bob")
        assert (await bob.call("delegate", doing("read", path="a"))).output == [None, "permission_denied"]
    assert lines == [("bob",), ("bob", "delegate")]


async def test_a_standing_approval_for_one_agents_helper_is_not_used_by_anothers(
    supervise: Any, workspace: Path
) -> None:
    asked: list[ApprovalRequest] = []

    async with supervise(HELPERS) as supervisor:

        class Asked:
            async def approve(self, request: ApprovalRequest) -> Approved:
                asked.append(request)
                return Approved()

        for name in ("ann", "bob"):
            channel: Any = type("Desk", (ListChannel, Asked), {})()
            await supervisor.open_session("main", workspace=workspace, agent_id=name, session_id=name, channel=channel)
        ann, bob = (runtime_of(supervisor).session(name).public for name in ("ann", "bob"))
        assert (await ann.call("delegate", doing("pay", amount=900))).output == ["paid 900", None]
        assert asked[0].line == ("ann", "delegate") and asked[0].sender == f"ann/delegate/{seen[-1].id}"
        pending = supervisor.approvals.submit(replace(asked[0], id="another"), {"type": "object"})
        supervisor.approvals.approve(pending.id, pattern={"amount": "900"})
        assert (await ann.call("delegate", doing("pay", amount=900))).output == ["paid 900", None] and len(asked) == 1
        assert (await bob.call("delegate", doing("pay", amount=900))).output == ["paid 900", None]
        assert [each.line for each in asked] == [("ann", "delegate"), ("bob", "delegate")], "he was asked anew"


@pytest.mark.parametrize("store", [None, ListMemory], ids=["sqlite", "own"])
async def test_agents_of_one_name_below_different_agents_share_no_memory(
    supervise: Any, workspace: Path, store: type[MemoryStore] | None
) -> None:
    ways = {} if store is None else {"memory": store()}
    async with supervise(HELPERS, **ways) as supervisor:
        sessions = {
            name: await supervisor.open_session("main", workspace=workspace, agent_id=name)
            for name in ("ann", "bob", "delegate", "ann/delegate", '["ann","delegate"]')
        }
        stored = await sessions["ann"].call("delegate", doing("memory_store", text="the code is 7"))
        assert stored.output[1] is None
        found = {
            name: (await session.call("delegate", doing("memory_search", query="code"))).output[0]["records"]
            for name, session in sessions.items()
        }
        assert [each["text"] for each in found.pop("ann")] == ["the code is 7"]
        assert not any(found.values())
        for session in sessions.values():
            assert (await session.call("memory_search", {"query": "code"})).unwrap()["records"] == []
        helper = await sessions["ann"].open_child("worker", agent_id="delegate")
        assert "the code is 7" in await preload_memory(helper, "code")
        assert await preload_memory(sessions["bob"], "code") == ""


async def test_records_and_messages_name_the_agents_above(supervise: Any, workspace: Path) -> None:
    journal, channel = RecentJournal(), ListChannel()
    async with supervise(HELPERS, journal=journal) as supervisor:
        bob = await supervisor.open_session("main", workspace=workspace, agent_id="bob", channel=channel)
        helper = await bob.open_child("branch", agent_id="delegate")
        (await helper.call("message", {"text": "hello"})).unwrap()
        assert channel.sent == [("hello", f"bob/delegate/{helper.id}")]
        runtime = runtime_of(supervisor)
        shown = overview(runtime.services, [core_of(bob), core_of(helper)])["sessions"]
        assert [(each["agent"], each.get("ancestors")) for each in shown] == [("bob", None), ("delegate", ["bob"])]
        assert repr(helper).startswith(f"<Session {helper.id} branch of bob/delegate")
    opened = [each.data for each in journal.of(kind="session") if each.data["event"] == "opened"]
    assert [(each["agent"], each.get("ancestors")) for each in opened] == [("bob", None), ("delegate", ["bob"])]
