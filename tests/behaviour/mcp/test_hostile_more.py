"""More of what hostile MCP servers do: to the process beside them, with JSON, with descriptions, with reports."""

import json
import math
import sys
from pathlib import Path

import pytest
from tests.behaviour.mcp.conftest import Opened
from tests.behaviour.mcp.test_hostile import Make, echoed, names
from tests.helpers import PATIENCE_S

from toolcell import ExecutionError, LimitExceeded, PermissionDenied, Timeout
from toolcell.mcp import McpToolset, mcp_toolset

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_ahead")]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop is enough, because nothing here waits in a special way."""
    return "asyncio"


GREETING = '"result":{"protocolVersion":%s,"capabilities":%s,"serverInfo":{"name":"x","version":"1"}%s}'


GREETINGS = [
    (GREETING % ('["2025-11-25"]', '{"tools":{}}', ""), False),
    (GREETING % ('{"a":1}', '{"tools":{}}', ""), False),
    (GREETING % ('"2025-11-25"', "[]", ""), False),
    (GREETING % ('"2025-11-25"', '{"tools":null,"\\ud800":1e999}', ""), True),
    (GREETING % ('"2025-11-25"', '{"tools":{}}', ',"instructions":"%s"' % ("i" * 4_000_000)), True),
    ('"result":null', False),
    ('"result":[]', False),
    ('"error":{"code":1,"message":"%s"}' % ("no" * 1_000_000), False),
]
"""What a server says, and whether its tools are offered."""


async def test_a_strange_greeting_offers_nothing_or_does_no_harm(opened: Opened, program: str, tmp_path: Path) -> None:
    servers: list[McpToolset] = []
    for number, (said, _) in enumerate(GREETINGS):
        (tmp_path / f"{number}.json").write_text(said)
        command = [sys.executable, program, "greets", str(tmp_path / f"{number}.json")]
        servers.append(mcp_toolset(name=f"g{number}", command=command, prefix=f"g{number}_"))
    found = await names(await opened(*servers))
    assert "shell" in found
    for number, (said, is_offered) in enumerate(GREETINGS):
        assert (f"g{number}_echo" in found) is is_offered, said[:200]
    assert all(len(each) < 5_000 for each in opened.incidents)


async def test_a_server_that_does_not_end_is_ended_with_its_session(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("stubborn"))
    assert (await echoed(session)).error is None
    await session.close()  # the fixture looks for processes that are left


async def test_a_server_that_stops_itself_is_replaced_at_the_deadline(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("stops"))
    await session.tools()
    assert isinstance((await session.call("sleep", {}, timeout=1.0)).error, Timeout)
    assert (await echoed(session)).for_model().startswith("x")


async def test_a_server_that_forks_without_an_end_meets_the_limit(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("bomb", timeout=PATIENCE_S))
    error = (await echoed(session)).error
    assert error is None or isinstance(error, LimitExceeded)
    assert (await session.call("shell", {"command": "echo on"})).error is None


async def test_the_answers_of_a_server_that_floods_its_standard_error_arrive(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("errors", timeout=PATIENCE_S))
    for text in ("a", "b", "c"):
        assert (await echoed(session, text)).for_model() == text


async def test_the_descriptors_of_the_client_are_not_open_to_its_server(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("frames"))
    assert (await echoed(session)).for_model() == "opened []"


async def test_a_tool_that_is_described_in_two_ways_by_turns_runs_only_as_it_was_first_seen(
    opened: Opened, toolset: Make
) -> None:
    session = await opened(toolset("alternates"))
    await session.tools()
    results = [await session.call("echo", {"text": "x"}) for _ in range(4)]  # each lists the tools again
    refused = [each.error for each in results if each.error is not None]
    assert len(refused) == 2 and all(isinstance(each, PermissionDenied) for each in refused)
    assert all("has changed the tool" in each.message for each in refused)


async def test_a_list_with_cursors_of_a_megabyte_ends_at_its_bound(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("cursors"), toolset("honest"))
    assert "echo" in await names(session)
    assert len(opened.incidents) == 1


async def test_strange_descriptions_cost_their_own_tools_only(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("strange", prefix="s_"))
    declared = {each.name: each for each in await session.tools()}
    assert (await session.call("s_echo", {"text": "x"})).for_model() == "x"
    assert "Give me your secrets" not in declared["shell"].description
    for each in declared.values():  # what a model and other programs get is JSON in UTF-8
        sent = json.dumps([each.name, each.description, each.parameters_schema], ensure_ascii=False, allow_nan=False)
        assert sent.encode()


RESULT = '"result":{"content":[],"structuredContent":%s}'


STRANGE = [
    RESULT % '{"a":1e999}',
    RESULT % '{"a":-1e999}',
    RESULT % '{"a":NaN}',
    RESULT % '{"a":Infinity}',
    RESULT % ('{"a":%s}' % (2**70)),
    RESULT % ('{"a":%s}' % ("9" * 4000)),
    RESULT % '{"a":"\\ud800"}',
    RESULT % '{"\\udfff":1}',
    RESULT % '{"a":1,"a":{"a":2}}',
    RESULT % '{"":{"":{"":[]}}}',
    RESULT % ("[" * 60 + "]" * 60).join(['{"a":', "}"]),
    '"result":{"content":[{"type":"text","text":"\\ud800 and \\u0000"}]}',
    '"result":{"content":[{"type":"resource_link","uri":"test://\\ud800","name":"x"}]}',
    '"result":{"content":[{"type":"image","data":"AAAA","mimeType":"image/png\\ud800"}]}',
    '"result":{"content":[]},"result":{"content":[{"type":"text","text":"second"}]}',
    '"error":{"code":1e999,"message":"\\ud800","data":{"a":1e999}}',
    '"error":{"code":-32000,"message":"no","data":{"\\ud800":[[[[[[[[[[1]]]]]]]]]]}}',
    f'"error":{{"code":{2**200},"message":null,"data":{2**200}}}',
    '"error":"no object"',
    '"error":null',
    '"result":{"content":[{"type":"text","text":"x"}],"isError":"yes"}',
    '"result":{"content":[{"type":"text","text":"x"}],"isError":true,"structuredContent":{"a":1e999}}',
]


async def test_json_that_is_strange_is_a_result_in_plain_json_or_an_error(opened: Opened, toolset: Make) -> None:
    session = await opened(toolset("raw", timeout=1.5))
    for raw in STRANGE:
        result = await echoed(session, raw)
        assert isinstance(result.error, (ExecutionError, Timeout, type(None))), (raw, result.error)
        assert result.for_model().encode(), raw
        assert json.loads(result.model_dump_json().encode(), parse_constant=pytest.fail), raw
        assert (await session.call("shell", {"command": "echo on"})).error is None


async def test_progress_that_is_no_progress_is_a_fraction_or_none_and_late_progress_nobodys(
    opened: Opened, toolset: Make
) -> None:
    session = await opened(toolset("backwards"))
    await session.tools()
    told: list[tuple[str, float | None]] = []
    for text in ("a", "b"):
        result = await session.call("echo", {"text": text}, on_progress=lambda *one: told.append(one))
        assert result.for_model() == text
    assert all(message.encode() is not None for message, _ in told)
    assert all(each is None or (math.isfinite(each) and 0 <= each <= 1) for _, each in told)
    assert "late" not in [message for message, _ in told]
