"""ADR-0004's two retries, whoever drives the loop: the third malformed call of a tool in a row is the last."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from pydantic import AfterValidator

from toolcell import Session, ToolResult, host_tool, tool
from toolcell_tools.exports.for_openai import openai_chat

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


def even(value: int) -> int:
    """A rule that no schema knows: only the cell checks it."""
    if value % 2:
        raise ValueError("the number is odd")
    return value


@tool
def halve(number: Annotated[int, AfterValidator(even)]) -> int:
    """Halve an even number."""
    return number // 2


@host_tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def retryable(result: ToolResult) -> bool | None:
    return None if result.error is None else result.error.retryable


async def one(session: Session, name: str, arguments: dict[str, Any]) -> ToolResult:
    return await session.call(name, arguments)


async def in_a_batch(session: Session, name: str, arguments: dict[str, Any]) -> ToolResult:
    return (await session.call_many([(name, arguments)] * 3, max_concurrent=1))[-1]


async def in_a_payload(session: Session, name: str, arguments: dict[str, Any]) -> ToolResult:
    export = openai_chat(await session.tools())
    text = "{" if "number" not in arguments or arguments["number"] in ("x", 3) else str(arguments).replace("'", '"')
    calls = [{"id": str(index), "function": {"name": name, "arguments": text}} for index in range(3)]
    return (await session.call_many(calls, export=export))[-1]


async def side_by_side(session: Session, name: str, arguments: dict[str, Any]) -> ToolResult:
    """As frameworks make the calls of one turn of a model."""
    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await session.call(name, arguments))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(call)
    return results[-1]


async def in_a_new_task(session: Session, name: str, arguments: dict[str, Any]) -> ToolResult:
    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await session.call(name, arguments))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
    return results[0]


Driver = Callable[[Session, str, dict[str, Any]], Awaitable[ToolResult]]


@pytest.mark.parametrize("drive", [one, in_a_batch, in_a_payload, side_by_side, in_a_new_task])
@pytest.mark.parametrize(
    ("name", "wrong"), [("halve", {"number": "x"}), ("halve", {"number": 3}), ("double", {"number": "x"})]
)
async def test_the_third_malformed_turn_in_a_row_is_the_last_and_the_parent_hears_of_it(
    supervise: Any, workspace: Path, drive: Driver, name: str, wrong: dict[str, Any]
) -> None:
    async with supervise([halve, double]) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace)
        child = await main.open_child("branch")
        right, other = {"number": 2}, "double" if name == "halve" else "halve"
        assert [retryable(await drive(child, name, wrong)) for _ in range(2)] == [True, True]
        assert retryable(await drive(child, name, right)) is None, "a valid call begins anew"
        assert [retryable(await drive(child, name, wrong)) for _ in range(2)] == [True, True]
        assert retryable(await drive(child, other, {"number": "x"})) is True, "each tool has its own count"
        assert retryable(await drive(main, name, wrong)) is True, "and each session"
        assert main.reports == ()
        last = await drive(child, name, wrong)
        assert last.error is not None and not last.error.retryable and "\n3 calls" in last.error.message
        assert {(one.session_id, one.tool, one.error.kind) for one in main.reports} == {(child.id, name, "validation")}
        assert child.reports == ()
        assert retryable(await drive(child, name, wrong)) is False
        assert retryable(await drive(child, name, right)) is None
        assert retryable(await drive(child, name, wrong)) is True


async def test_a_main_reports_its_own_and_a_repair_that_gave_up_counts_as_three(
    supervise: Any, workspace: Path
) -> None:
    async def in_vain(_error: object) -> dict[str, Any]:
        return {"number": "y"}

    async def gives_up(_error: object) -> dict[str, Any]:
        raise LookupError

    async def mends(_error: object) -> dict[str, Any]:
        return {"number": 2}

    wrong = {"number": "x"}
    async with supervise([halve]) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace)
        for repair in (in_vain, gives_up):
            before = len(main.reports)
            assert retryable(await main.call("halve", wrong)) is True
            assert (await main.call("halve", wrong, repair=mends)).unwrap() == 1
            assert retryable(await main.call("halve", wrong)) is True, "the repaired call was valid"
            assert retryable(await main.call("halve", wrong, repair=repair)) is False
            assert len(main.reports) == before + 1
            assert retryable(await main.call("halve", wrong)) is False
            assert (await main.call("halve", {"number": 2})).unwrap() == 1
        assert {(one.session_id, one.tool) for one in main.reports} == {(main.id, "halve")}


async def test_a_host_tool_that_drives_a_loop_in_a_batch_is_bounded_too(supervise: Any, workspace: Path) -> None:
    sessions: list[Session] = []

    @host_tool
    async def drives() -> list[bool | None]:
        return [retryable(await sessions[0].call("halve", {"number": "x"})) for _ in range(4)]

    async with supervise([halve, drives]) as supervisor:
        sessions.append(await supervisor.open_session("main", workspace=workspace))
        (result,) = await sessions[0].call_many([("drives", {})])
        assert result.unwrap() == [True, True, False, False]
