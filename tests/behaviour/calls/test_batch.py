"""Many calls at once, and calls that are repeated: in the real sandbox."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcell import Annotations, Overloaded, Supervisor, Timeout, ToolContext, ValidationError, blocking, tool
from toolcell_tools import exports

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
Supervise = Callable[..., Supervisor]


@tool
def add(a: int, b: int, seconds: float = 0.0) -> int:
    """Add."""
    time.sleep(seconds)
    return a + b


@tool(needs={"read"})
def meet(ctx: ToolContext) -> str:
    """Say that the call runs, and wait for a file."""
    ctx.progress("here")
    while not os.path.exists(f"{ctx.workspace_root}/go"):
        time.sleep(0.01)
    return "met"


@tool
def die() -> None:
    """Die."""
    os.abort()


def note(ctx: ToolContext, seconds: float) -> None:
    """Append a line, and wait."""
    with open("lines.txt", "a") as file:
        file.write("x")
    time.sleep(seconds)


once = tool(note, name="once", needs={"write"}, timeout=1.0)
again = tool(note, name="again", needs={"write"}, timeout=1.0, annotations=Annotations(idempotent=True))


async def test_results_keep_their_order_and_no_failure_ends_another_call(supervise: Supervise, workspace: Path) -> None:
    async with supervise([add, die]) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        batch = await session.call_many(
            [
                ("add", {"a": 1, "b": 2, "seconds": 0.3}),
                ("die", {}),
                ("add", {}),
                ("none", {}),
                ("add", {"a": 3, "b": 4}),
            ]
        )
    assert [result.output for result in batch] == [3, None, None, None, 7]
    assert [result.error.kind if result.error else "" for result in batch] == [
        *("", "crashed", "validation", "unknown_tool", "")
    ]


async def test_a_models_message_goes_in_and_the_providers_message_comes_out(
    supervise: Supervise, workspace: Path
) -> None:
    export = exports.anthropic([add])
    blocks: list[dict[str, Any]] = [
        {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1, "b": 2}},
        {"type": "tool_use", "id": "t2", "name": "add", "input": 3},
        {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1, "b": 2}},
    ]
    async with supervise([add]) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        batch = await session.call_many(blocks, export=export)
        assert supervisor.journal.of(call_id="t1")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    (message,) = batch.messages()
    assert [block["tool_use_id"] for block in message["content"]] == ["t1", "t2", "t1"]
    assert isinstance(batch[1].error, ValidationError) and "twice" in (batch[2].error or batch[0]).message  # type: ignore[union-attr]


async def test_they_run_side_by_side_up_to_a_number_and_end_with_their_caller(
    supervise: Supervise, workspace: Path
) -> None:
    async with supervise([add, meet]) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        met: list[str] = []

        def on_progress(message: str, _fraction: float | None) -> None:
            met.append(message)
            if len(met) == 3:
                (workspace / "go").touch()

        batch = await session.call_many([("meet", {})] * 3, on_progress=on_progress)  # each waits for the other two
        assert [result.output for result in batch] == ["met"] * 3
        slow = ("add", {"a": 1, "b": 2, "seconds": 0.4})
        began = time.monotonic()
        await session.call_many([slow] * 2, max_concurrent=1)
        assert time.monotonic() - began >= 0.8
        with anyio.move_on_after(0.2) as scope:
            await session.call_many([("add", {"a": 1, "b": 2, "seconds": 60})] * 3)
        assert scope.cancelled_caught
        assert (await session.call("add", {"a": 1, "b": 2})).output == 3


async def test_an_idempotent_tool_is_repeated_after_a_timeout_and_another_is_not(
    supervise: Supervise, workspace: Path
) -> None:
    async with supervise([once, again, add]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for name, times in (("once", 1), ("again", 3)):
            (workspace / "lines.txt").write_text("")
            result = await session.retry(name, {"seconds": 60.0}, first_s=0.01, call_id=name)
            assert isinstance(result.error, Timeout)
            assert (workspace / "lines.txt").read_text() == "x" * times
            ids = {f"{name}~{number}" for number in range(2, times + 1)} | {name}
            ended = supervisor.journal.of(kind="call")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
            assert {record.call_id for record in ended if record.data["tool"] == name} == ids


async def test_a_call_that_finds_no_room_is_repeated(supervise: Supervise, workspace: Path) -> None:
    async with supervise([add], max_cells=1) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        await session.call("add", {"a": 1, "b": 1})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "add", {"a": 1, "b": 1, "seconds": 0.5})
            await anyio.sleep(0.1)
            error = (await session.call("add", {"a": 1, "b": 1}, timeout=0.1)).error
            assert isinstance(error, Overloaded)
            result = await session.retry("add", {"a": 1, "b": 1}, attempts=20, first_s=0.05, timeout=5, call_id="r")
            assert result.output == 2


def test_without_an_event_loop(workspace: Path) -> None:
    with blocking.Supervisor([add]) as supervisor:
        session = supervisor.open_session("worker", workspace=workspace)
        calls: list[Any] = [("add", {"a": 1, "b": 2}), ("add", {"a": 2, "b": 2})]
        assert [result.output for result in session.call_many(calls)] == [3, 4]
        assert session.retry(add, {"a": 1, "b": 2}).output == 3
