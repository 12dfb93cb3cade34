"""The table of calls under an idempotency key, without any call: which run, wait, take over or are forgotten."""

import anyio
import pytest
from tests.helpers import PATIENCE_S

from toolcell import ExecutionError, Timeout, ToolResult, UsageError
from toolcell.sessions.idempotency import IdempotentCalls

pytestmark = pytest.mark.anyio
ASKED = ("count", "{}")


class Work:
    """Runs that wait until they are let go, and then end as they are told."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = anyio.Event()
        self.failing = False

    async def run(self) -> ToolResult:
        self.begun += 1
        number = self.begun
        await self.go.wait()
        return ToolResult(error=ExecutionError(message="no")) if self.failing else ToolResult(output=number)


async def test_those_that_come_while_one_runs_wait_and_have_its_result() -> None:
    calls, work, found = IdempotentCalls(), Work(), list[object]()

    async def one() -> None:
        found.append((await calls.once("k", ASKED, work.run)).output)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(one)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(PATIENCE_S), pytest.raises(UsageError, match="'k' is another call's"):
            await calls.once("k", ("count", '{"n": 1}'), work.run)
        work.go.set()
    await one()
    assert (found, work.begun) == ([1] * 6, 1)


async def test_who_waits_longer_than_its_own_time_has_a_timeout_and_the_call_goes_on() -> None:
    calls, work, found = IdempotentCalls(), Work(), list[ToolResult]()

    async def first() -> None:
        found.append(await calls.once("k", ASKED, work.run))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(PATIENCE_S):
            error = (await calls.once("k", ASKED, work.run, wait_s=0.05)).error
        assert isinstance(error, Timeout) and error.outcome == "outcome unknown" and "still runs" in error.message
        work.go.set()
    assert [result.output for result in found] == [1]
    assert (await calls.once("k", ASKED, work.run, wait_s=0.05)).output == 1 == work.begun


async def test_when_the_first_fails_or_is_cancelled_the_next_takes_over() -> None:
    calls, work, found = IdempotentCalls(), Work(), list[object]()

    async def one(scope: anyio.CancelScope) -> None:
        with scope:
            found.append((await calls.once("k", ASKED, work.run)).output)

    scopes = [anyio.CancelScope() for _ in range(3)]
    async with anyio.create_task_group() as tasks:
        for scope in scopes:
            tasks.start_soon(one, scope)
            await anyio.wait_all_tasks_blocked()
        assert work.begun == 1
        scopes[0].cancel()
        await anyio.wait_all_tasks_blocked()
        assert work.begun == 2
        work.go.set()
    assert found == [2, 2]
    work.failing = True
    assert (await calls.once("other", ASKED, work.run)).is_error and (
        await calls.once("other", ASKED, work.run)
    ).is_error
    assert work.begun == 4


async def test_who_waits_for_one_that_fails_does_not_get_the_result_of_another_call() -> None:
    calls, first, second = IdempotentCalls(), Work(), Work()
    first.failing = True
    refused: list[str] = []

    async def waiting() -> None:
        try:
            await calls.once("k", ASKED, first.run)
        except UsageError as error:
            refused.append(str(error))

    async def failing() -> None:
        await calls.once("k", ASKED, first.run)
        await calls.once("k", ("other", "{}"), second.run)  # at once, before those who wait are awake

    second.go.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(failing)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(waiting)
        await anyio.wait_all_tasks_blocked()
        first.go.set()
    assert len(refused) == 1 and (first.begun, second.begun) == (1, 1)


async def test_the_oldest_results_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcell.sessions.idempotency.MAX_KEPT", 2)
    calls, work = IdempotentCalls(), Work()
    work.go.set()
    for key in ("a", "b", "c"):
        await calls.once(key, ASKED, work.run)
    assert (await calls.once("c", ASKED, work.run)).output == 3
    assert (await calls.once("a", ASKED, work.run)).output == 4, "forgotten, and run again"
