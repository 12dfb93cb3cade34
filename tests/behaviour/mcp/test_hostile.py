"""What hostile MCP servers do, each a real program, and what becomes of it: the others' tools go on."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.behaviour.mcp.conftest import Opened
from tests.helpers import PATIENCE_S

from toolcell import (
    Crashed,
    ExecutionError,
    LimitExceeded,
    PermissionDenied,
    Session,
    Timeout,
    ToolError,
    ToolResult,
    ToolsetError,
    UnknownTool,
)
from toolcell.mcp import McpToolset

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_ahead")]
Make = Callable[..., McpToolset]
LATE = ("mute",)
"""Those whose list ends at the deadline of the start."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop is enough, because nothing here waits in a special way."""
    return "asyncio"


async def names(session: Session) -> set[str]:
    return {each.name for each in await session.tools()}


async def echoed(session: Session, text: str = "x") -> ToolResult:
    await session.tools()
    return await session.call("echo", {"text": text})


async def test_nothing_of_a_hostile_server_reaches_the_tools_beside_it(opened: Opened, toolset: Make) -> None:
    """The tools of every hostile server are asked for in one session, beside an honest server and the base tools."""
    hostile = ("mute", "exits", "many", "endless", "wronglist", "redos", "taker", "future", "names")
    servers = [toolset(each, startup_s=2.0 if each in LATE else PATIENCE_S, prefix=f"{each}_") for each in hostile]
    session = await opened(*servers, toolset("honest"))
    found = await names(session)
    assert {"read", "shell", "echo", "wronglist_echo", "redos_echo"} <= found
    assert not {each for each in found if each.startswith(("mute", "exits", "many", "endless", "future"))}
    incidents = list(opened.incidents)
    assert await names(session) == found
    assert opened.incidents == incidents, "those that failed are not started again"
    assert (await session.call("echo", {"text": "hello"})).for_model() == "hello"


async def test_a_worker_gets_nothing_of_a_hostile_server(opened: Opened, toolset: Make) -> None:
    hostile = ("flood", "daemons", "longline", "taker")
    session = await opened(*(toolset(each, prefix=f"{each}_") for each in hostile))
    worker = await session.open_child("worker")
    assert await names(worker) == {"read", "memory_search", "web_search", "web_fetch"}
    for each in hostile:
        assert isinstance((await worker.call(f"{each}_echo", {"text": "x"})).error, UnknownTool)
    assert opened.incidents == []


@pytest.mark.parametrize(
    ("behaviour", "kind", "said"),
    [
        ("longline", ExecutionError, "a line of more than 16,777,216 bytes"),
        ("flood", ExecutionError, "more than 10,000 messages"),
        ("noise", ExecutionError, "more than 100 lines"),
        ("closes", ExecutionError, "closed its output"),
        ("silent", Timeout, "deadline"),
        ("spins", LimitExceeded, "cpu"),
        ("eats", LimitExceeded, "memory"),
        ("parent", Crashed, "SIGKILL"),
        ("huge", LimitExceeded, "result"),
        ("asks", ExecutionError, "more than 100 questions"),
        ("holds", Crashed, "exited with code 7"),
        ("killsall", Crashed, "SIGKILL"),
        ("deaf", Timeout, "deadline"),
    ],
)
async def test_a_call_that_a_server_abuses_is_a_typed_error_and_the_session_goes_on(
    opened: Opened, toolset: Make, behaviour: str, kind: type[Any], said: str
) -> None:
    session = await opened(toolset(behaviour, timeout=2.0 if behaviour in ("silent", "deaf") else PATIENCE_S))
    if behaviour == "spins":
        session = await session.open_child("branch", profile=session_profile(session, cpu_s=1.0))
    result = await echoed(session, "x" * 1_000_000 if behaviour == "deaf" else "x")
    assert isinstance(result.error, kind), result.error
    assert said in result.error.message
    assert (await session.call("shell", {"command": "echo on"})).error is None
    assert "echo" in await names(session)  # the server was started again


def session_profile(session: Session, **limits: float) -> Any:
    profile = session._core.caller.profile  # pyright: ignore[reportPrivateUsage]
    return profile.replace(limits=profile.limits.replace(**limits))


async def test_forged_second_and_early_answers_are_not_taken(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("forged"))
    for text in ("a", "b", "c"):
        assert (await echoed(session, text)).for_model() == text


async def test_forged_reports_and_questions_with_strange_ids_reach_nobody(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("forgedreports"))
    await session.tools()
    told: list[str] = []
    result = await session.call("echo", {"text": "a"}, on_progress=lambda message, _fraction: told.append(message))
    assert result.for_model() == "a" and told == []
    assert (await session.call("echo", {"text": "b"})).for_model() == "b"


@pytest.mark.parametrize(
    ("behaviour", "said", "offers"),
    [
        ("shifting", "its list of tools repeats", True),
        ("stuck", "its list of tools repeats", True),
        ("toolless", "does not declare the capability 'tools'", False),
        ("stringids", "answer to initialize is malformed: its id is", False),
        ("unversioned", 'answer to initialize is malformed: it lacks "jsonrpc"', False),
    ],
)
async def test_a_list_or_an_answer_that_is_malformed_is_named_at_once_and_costs_no_other_tool(
    opened: Opened, toolset: Make, behaviour: str, said: str, offers: bool
) -> None:
    session = await opened(toolset(behaviour, startup_s=PATIENCE_S, prefix="odd_"), toolset("honest"))
    found = await names(session)
    assert "echo" in found and ("odd_echo" in found) is offers
    (incident,) = opened.incidents
    assert said in incident


async def test_a_server_that_floods_after_a_cancellation_is_ended(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("floodswhenlate"))
    await session.tools()
    error = (await session.call("sleep", {}, timeout=5.0)).error
    assert isinstance(error, (ExecutionError, Timeout)) and "runs on" not in error.message
    again = await session.call("echo", {"text": "back"})
    assert again.error is None and again.for_model().startswith("back")


async def test_output_that_is_no_message_is_left_out(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("chatty"), toolset("babble", prefix="babble_"))
    assert (await echoed(session, "a")).for_model() == "a"
    assert (await session.call("babble_echo", {"text": "b"})).for_model() == "b"


async def test_daemons_of_a_server_end_with_its_session(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("daemons"))
    assert (await echoed(session)).error is None  # the fixture looks for processes that are left
    await session.close()


async def test_a_server_that_exits_at_once_is_an_incident_with_its_last_words(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("exits"))
    assert "echo" not in await names(session)
    (incident,) = opened.incidents
    assert "exited with code 3" in incident and "no licence found" in incident
    assert isinstance((await session.call("echo", {"text": "x"})).error, UnknownTool)


async def test_a_server_that_is_required_and_fails_is_an_error_of_the_session(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("exits", required=True))
    with pytest.raises(ToolsetError, match="exited with code 3"):
        await session.tools()


@pytest.mark.parametrize(
    "answer",
    ["[]", "7", '"x"', "null", '{"content": {}}', '{"content": [7]}', '{"content": [{"type": "text"}]}',
     '{"content": [{"type": "image", "data": "!", "mimeType": "image/png"}]}',
     '{"content": [{"type": "image", "data": "AAAA", "mimeType": "text/html"}]}',
     '{"content": [{"type": "resource", "resource": {"uri": 7}}]}', '{"content": [{"type": "resource_link"}]}',
     '{"content": [], "structuredContent": []}', '{"content": [{"type": "new"}]}',
     '{"resultType": "input_required", "inputRequests": {}}', '{"resultType": [], "content": []}'],
)  # fmt: skip
async def test_an_answer_of_a_wrong_type_is_an_execution_error(opened: Opened, toolset: Make, answer: str) -> None:
    session = await opened(toolset("types"))
    error = (await echoed(session, answer)).error
    assert isinstance(error, ExecutionError), error
    assert (await session.call("shell", {"command": "echo on"})).error is None


async def test_a_tool_that_is_described_with_wrong_types_is_left_out_alone(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("wronglist"))
    found = await names(session)
    assert "echo" in found and not {"a", "b", "c", "d", "twice"} & found
    assert len(opened.incidents) == 6 and all(each.startswith("MCP server 'wronglist':") for each in opened.incidents)


@pytest.mark.parametrize("depth", [100, 100_000])
async def test_deep_json_is_an_error_of_the_call(opened: Opened, toolset: Make, depth: int) -> None:
    session = await opened(toolset("deep", timeout=3.0))
    error: ToolError | None = (await echoed(session, str(depth))).error
    assert isinstance(error, ExecutionError if depth == 100 else Timeout)  # the deeper one is no message


async def test_schemas_that_would_hang_a_validator_are_judged(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("redos"))
    found = await names(session)
    assert {"slow", "echo"} <= found and not {"ahead", "remote", "text"} & found
    assert (await session.call("slow", {"s": "a" * 5000 + "!"})).error is not None  # by the linear engine
    assert (await session.call("slow", {"s": "aaa"})).error is not None  # the answer does not fit either


async def test_names_that_are_illegal_or_alike_become_legal_ones_always_the_same(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("names"))
    found = sorted(await names(session) - {"read", "write", "edit", "shell", "message", "memory_search",
                                           "memory_store", "web_search", "web_fetch"})  # fmt: skip
    told = {name: (await session.call(name, {})).for_model() for name in found}
    assert told["read_file"] == "read_file" and told["a_b"] == "a b" and told["tool_9"] == "9"
    assert sorted(told.values()) == sorted(
        ["Read-File", "read_file", "readFile", "😀", "toolcell_x", "handoff", "x" * 200, "a b", "a\u202eb", "9"]
    )
    again = await opened(toolset("names"))
    assert set(await names(again)) >= set(found)


async def test_a_server_that_takes_the_name_of_another_tool_loses_all_of_its_own(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("taker"))
    found = {each.name: each.description for each in await session.tools()}
    assert "secrets" not in found["shell"] and "echo" not in found
    assert any("'shell'" in each for each in opened.incidents)


@pytest.mark.parametrize("behaviour", ["drift", "announced"])
async def test_a_tool_that_changes_after_it_was_seen_is_refused_until_the_program_accepts_it(
    opened: Opened, toolset: Make, behaviour: str
) -> None:
    server = toolset(behaviour)
    session = await opened(server)
    before = {each.name: each for each in await session.tools()}["echo"]
    if behaviour == "announced":
        assert (await session.call("echo", {"text": "x"})).error is None  # the change comes with this answer
    else:
        assert {each.name: each for each in await session.tools()}["echo"].description == before.description
    error = (await session.call("echo", {"text": "x"})).error
    assert isinstance(error, PermissionDenied) and "has changed the tool" in error.message
    await session.tools()
    assert server.changed == ["echo"]
    assert any("no longer as it was first seen" in each for each in opened.incidents)
    server.accept("echo")
    after = {each.name: each for each in await session.tools()}["echo"]
    assert after.description != before.description and after.fingerprint != before.fingerprint
    assert (await session.call("echo", {"text": "x"})).error is None


async def test_a_change_between_two_programs_is_noticed_by_pins(opened: Opened, toolset: Make) -> None:
    first = toolset("honest")
    await (await opened(first)).tools()
    assert first.fingerprints.keys() >= {"echo", "add"}
    second = toolset("honest", pins={**first.fingerprints, "echo": "0" * 64})
    session = await opened(second)
    found = await names(session)
    assert "add" in found and "echo" not in found  # it was never seen in its pinned form
    assert second.changed == ["echo"]
    second.accept()
    assert "echo" in await names(session)


async def test_new_tools_of_a_server_are_offered_and_take_no_other_name(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("growing"))
    assert "more_0" not in await names(session)
    assert "more_0" in await names(session)


async def test_the_memory_of_the_client_is_not_open_to_its_server(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("memory"))
    assert (await echoed(session)).for_model().startswith("refused")
