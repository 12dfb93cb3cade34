"""What waits for one session is bounded in bytes, so its flood is refused, and a quiet session goes on."""

import tracemalloc
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.helpers import PATIENCE_S, until

from toolcell import CallTask, Overloaded, PermissionDenied, Session, Supervisor, ToolResult, tool
from toolcell.store.directory import StateDirectory
from toolcell.store.journal.arguments import TOO_LARGE
from toolcell.store.journal.reading import JournalReader

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
MIB = 1024 * 1024
FLOOD = 62


@tool
def rest(seconds: float, text: str = "") -> int:
    """Rest."""
    import time

    time.sleep(seconds)
    return len(text)


@tool(requires_approval=True)
def pay(text: str) -> int:
    """Pay."""
    return len(text)


@tool
def letters(number: int) -> str:
    """Return letters."""
    return "x" * number


def of_4_mib(number: int) -> str:
    return f"{number:08}".ljust(4 * MIB, "x")


async def test_arguments_of_waiting_tasks_are_bounded_by_session(workspace: Path) -> None:
    async with Supervisor([rest], max_cells=3) as supervisor:
        flood, quiet = [await supervisor.open_session("main", workspace=workspace) for _ in range(2)]
        await quiet.call("rest", {"seconds": 0.0})  # so that the flood leaves it a place
        tasks = [
            flood.start("rest", {"seconds": 3600.0, "text": of_4_mib(each)}, timeout=3600.0) for each in range(FLOOD)
        ]
        await until(lambda: sum(each.status == "failed" for each in tasks) >= FLOOD - 16)
        result = await quiet.call("rest", {"seconds": 0.0, "text": "x" * 900_000}, timeout=PATIENCE_S)
        assert result.output == 900_000, result
        refused = [each for each in tasks if each.status == "failed"]
        assert 0 < len(tasks) - len(refused) <= 16, "64 MiB, and the reserve of 1 MiB"
        for each in refused:
            error = (await each.result()).error
            assert isinstance(error, Overloaded) and error.retryable and "leave no room" in error.message
        await flood.close(grace_s=0)
        again = await supervisor.open_session("main", workspace=workspace)
        assert (await again.call("rest", {"seconds": 0.0, "text": of_4_mib(0)})).output == 4 * MIB


async def test_one_call_may_have_larger_arguments_than_a_share(workspace: Path) -> None:
    async with Supervisor([rest]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for _ in range(2):
            result = await session.call("rest", {"seconds": 0.0, "text": "x" * 15 * MIB})
            assert result.output == 15 * MIB


@pytest.mark.parametrize("state", ["memory", "directory"])
async def test_requests_for_approval_that_were_given_up_are_bounded_by_session(
    workspace: Path, tmp_path: Path, state: str
) -> None:
    results: list[ToolResult] = []
    options: dict[str, Any] = {"state": tmp_path / "state"} if state == "directory" else {}

    async def ask(session: Session, number: int) -> None:
        results.append(await session.call("pay", {"text": of_4_mib(number)}))

    async with Supervisor([pay], approver=Silent(), **options) as supervisor:
        flood, quiet = [await supervisor.open_session("main", workspace=workspace) for _ in range(2)]
        for each in range(FLOOD // 4):
            most = supervisor.approvals.pending_count() + len(results) + 4
            async with anyio.create_task_group() as tasks:
                for number in range(4):
                    tasks.start_soon(ask, flood, 4 * each + number)
                while supervisor.approvals.pending_count() + len(results) < most:
                    await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()
        kept = supervisor.approvals.pending_count()
        assert 0 < kept * 4 * MIB <= 33 * MIB, "half of 64 MiB, and the reserve of 1 MiB"
        for result in results:
            assert isinstance(result.error, PermissionDenied) and "leave no room" in result.error.reason
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call_into, results, partial(quiet.call, "pay", {"text": "x" * 100_000}))
            await until(lambda: supervisor.approvals.pending_count() == kept + 1)
            (mine,) = [
                each.id
                for each in supervisor.approvals.pending()
                if each.request is not None and each.request.session_id == quiet.id
            ]
            supervisor.approvals.approve(mine)
        assert results[-1].output == 100_000


async def call_into(results: list[ToolResult], call: Any) -> None:
    results.append(await call())


class Silent:
    """An approver that never answers."""

    async def approve(self, _request: object) -> Any:
        await anyio.sleep_forever()


async def test_results_of_finished_tasks_are_bounded_in_bytes(workspace: Path) -> None:
    async with Supervisor([letters]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        tasks: list[CallTask] = []
        for number in range(12):
            tasks.append(session.start("letters", {"number": 8 * MIB}, task_id=f"t{number}"))
            assert len((await tasks[-1].result()).unwrap()) == 8 * MIB
        await until(lambda: known(supervisor, tasks) <= 8)
        assert known(supervisor, tasks[-4:]) == 4, "the oldest are forgotten"


def known(supervisor: Supervisor, tasks: list[CallTask]) -> int:
    found = 0
    for each in tasks:
        try:
            found += supervisor.task(each.id) is each
        except Exception as error:
            assert "There is no task" in str(error)
    return found


LARGE: dict[str, Any] = {
    "a list": {"text": list(range(2_000_000))},
    "lists": {"text": [[1]] * 2_000_000},
    "names": {str(number): number for number in range(500_000)},
    "nested": {"text": {"a": [{"b": list(range(1_000_000))}]}},
    "6 Mx in a name": {"x" * 6 * MIB: 1},
    "6 Mx in a text": {"seconds": "x" * 6 * MIB},
}


async def test_a_refusal_costs_what_its_bound_allows_whatever_the_arguments(workspace: Path, tmp_path: Path) -> None:
    costs: dict[str, int] = {}
    async with Supervisor([rest], state=tmp_path / "state") as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        asks: dict[str, Any] = {
            "call": session.call,
            "keyed call": partial(session.call, idempotency_key="k"),
            "task": lambda name, arguments: session.start(name, arguments).result(),
        }
        for (name, arguments), tool_name, ask in product(LARGE.items(), ("rest", "nothing"), asks):
            if "x" in name and (tool_name, ask) != ("nothing", "call"):
                continue  # the check of a text and its digest take as many bytes as the text
            tracemalloc.start()
            try:
                result = await asks[ask](tool_name, arguments)
                costs[f"{name}, {tool_name}, {ask}"] = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert result.error is not None and result.error.kind in ("validation", "unknown_tool")
    assert max(costs.values()) < MIB, costs
    log = StateDirectory(tmp_path / "state")
    ends = [each.record for each in JournalReader(log.log, log.index).entries() if each.record.kind == "call"]
    assert len(ends) == len(costs) and {each.data["digest"] for each in ends} == {TOO_LARGE}
