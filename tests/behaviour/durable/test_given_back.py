"""An approval that was given, and whose call then did not begin, is given back: nobody is asked twice."""

import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests import programs
from tests.helpers import PATIENCE_S

from toolcell import (
    ApprovalRequest,
    Approved,
    Denied,
    Hook,
    PermissionTier,
    Record,
    Supervisor,
    ToolCall,
    ToolResult,
    tool,
)
from toolcell.store.directory import StateDirectory
from toolcell.store.journal.reading import JournalReader

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.usefixtures("warm")]
Supervise = Callable[..., Supervisor]


@tool(tier=PermissionTier.ELEVATED)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(tier=PermissionTier.ELEVATED)
def hold(seconds: float) -> str:
    """Hold a cell."""
    import time

    time.sleep(seconds)
    return "held"


class Desk:
    """Approves everything, and counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: Approved | Denied = Approved()

    async def approve(self, request: ApprovalRequest) -> Approved | Denied:
        self.asked.append(request.tool)
        return self.answer


def records(state: Path, kind: str) -> list[Record]:
    directory = StateDirectory(state)
    entries = JournalReader(directory.log, directory.index).entries()
    return [each.record for each in entries if each.record.kind == kind]


@pytest.fixture(params=[True, False], ids=["durable", "in memory"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, object]:
    return {"state": tmp_path / "state"} if request.param else {}


async def test_a_call_that_is_cancelled_while_it_waits_for_a_cell_gives_its_approval_back(
    supervise: Supervise, workspace: Path, options: dict[str, object]
) -> None:
    desk = Desk()
    async with supervise([pay, hold], approver=desk, max_cells=1, **options) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "hold", {"seconds": 60.0})
            with anyio.fail_after(PATIENCE_S):
                while desk.asked != ["hold"]:
                    await anyio.sleep(0.05)
            await anyio.sleep(1.0)
            with anyio.move_on_after(3.0) as scope:
                await session.call("pay", {"amount": 5})
            assert scope.cancelled_caught and desk.asked == ["hold", "pay"]
            tasks.cancel_scope.cancel()
        assert (await session.call("pay", {"amount": 5})).output == "paid 5"
        assert desk.asked == ["hold", "pay"], "the approval was still there"
        assert (await session.call("pay", {"amount": 5})).output == "paid 5"
        assert desk.asked == ["hold", "pay", "pay"], "and is used once"
    if "state" in options:
        state = options["state"]
        assert isinstance(state, Path)
        events = [record.data["event"] for record in records(state, "approval") if record.data.get("tool") != "hold"]
        assert events == ["asked", "answered", "given back", "asked", "answered", "refused", "asked", "answered"]


async def test_a_denial_is_not_given_back(supervise: Supervise, workspace: Path, options: dict[str, object]) -> None:
    desk = Desk()
    desk.answer = Denied("no")
    async with supervise([pay], approver=desk, **options) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for _call in range(2):
            assert (await session.call("pay", {"amount": 5})).is_error
        assert desk.asked == ["pay", "pay"]


async def test_a_call_that_ran_gives_nothing_back_whatever_its_end(
    supervise: Supervise, workspace: Path, options: dict[str, object]
) -> None:
    desk = Desk()
    async with supervise([hold], approver=desk, **options) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("hold", {"seconds": 60.0}, timeout=1.5)).is_error
        with anyio.move_on_after(2.5):
            await session.call("hold", {"seconds": 60.0})
        assert (await session.call("hold", {"seconds": 60.0}, timeout=1.5)).is_error
        assert desk.asked == ["hold"] * 3


async def test_a_call_in_a_hook_gives_back_nothing_that_another_call_has_taken(
    supervise: Supervise, workspace: Path, options: dict[str, object]
) -> None:
    """A result that a hook puts in place of an approved call has used the approval."""

    class Simulated(Hook):
        async def before_call(self, call: ToolCall) -> ToolResult | None:
            made = ToolResult.build(output="simulated", call_id=call.id, session_id=session.id)
            return made if call.tool == "pay" else None

        async def after_call(self, call: ToolCall, result: ToolResult) -> None:
            if call.tool == "pay":
                with anyio.move_on_after(0.5):
                    await session.call("hold", {"seconds": 0.0})

    class SlowDesk(Desk):
        async def approve(self, request: ApprovalRequest) -> Approved | Denied:
            if request.tool == "hold":
                await anyio.sleep(PATIENCE_S)
            return await super().approve(request)

    desk = SlowDesk()
    async with supervise([pay, hold], approver=desk, hooks=[Simulated()], **options) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for _call in range(2):
            assert (await session.call("pay", {"amount": 5})).output == "simulated"
        assert desk.asked == ["pay", "pay"]


async def test_an_approval_is_given_back_at_once_and_ends_with_its_session(
    supervise: Supervise, workspace: Path, options: dict[str, object]
) -> None:
    """Somebody can still withdraw it, although no call was made since."""
    desk = Desk()
    async with supervise([pay, hold], approver=desk, max_cells=1, **options) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        other = await supervisor.open_session("main", workspace=workspace)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other.call, "hold", {"seconds": 60.0})
            with anyio.fail_after(PATIENCE_S):
                while desk.asked != ["hold"]:
                    await anyio.sleep(0.05)
            await anyio.sleep(1.0)
            for amount in (5, 6):
                with anyio.move_on_after(2.0):
                    await session.call("pay", {"amount": amount})
            states = await states_of(supervisor, "pay", "approved")
            assert states == {5: "approved", 6: "approved"}
            (five,) = [
                each
                for each in supervisor.approvals.all()
                if each.request and each.request.arguments.get("amount") == 5
            ]
            supervisor.approvals.withdraw(five.id)
            tasks.start_soon(session.call, "pay", {"amount": 6})
            assert (await states_of(supervisor, "pay", "used"))[6] == "used"
            await session.close()
            tasks.cancel_scope.cancel()
        again = await supervisor.open_session("main", workspace=workspace, session_id="s")
        for amount in (5, 6):
            assert (await again.call("pay", {"amount": amount})).output == f"paid {amount}"
        assert desk.asked == ["hold", "pay", "pay", "pay", "pay"]


async def states_of(supervisor: Supervisor, name: str, wanted: str) -> dict[int, str]:
    """The states of the requests of a tool, by amount, when one of them is as `wanted`."""
    found: dict[int, str] = {}
    with anyio.move_on_after(PATIENCE_S):
        while wanted not in found.values():
            await anyio.sleep(0.2)
            entries = [each for each in supervisor.approvals.all() if each.request and each.request.tool == name]
            found = {each.request.arguments["amount"]: each.state for each in entries if each.request}
    return found


KILLED = """
import anyio, os, sys
from toolcell import Approved, Supervisor
from tests.behaviour.durable.test_given_back import hold, pay

class Desk:
    async def approve(self, request):
        return Approved()

async def main():
    supervisor = Supervisor([pay, hold], state=sys.argv[1], approver=Desk(), max_cells=1, approval_timeout_s=600)
    async with supervisor, anyio.create_task_group() as tasks:
        session = await supervisor.open_session("main", workspace=sys.argv[2], session_id="s")
        tasks.start_soon(session.call, "hold", {"seconds": 600.0})
        await anyio.sleep(3.0)
        tasks.start_soon(session.call, "pay", {"amount": 5})
        while not any(each.state == "used" and each.request.tool == "pay" for each in supervisor.approvals.all()):
            await anyio.sleep(0.05)
        await anyio.sleep(1.0)
        os._exit(9)

anyio.run(main)
"""


async def test_a_call_that_was_killed_before_it_began_gives_its_approval_back(
    supervise: Supervise, workspace: Path, tmp_path: Path
) -> None:
    state, desk = tmp_path / "state", Desk()
    program = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[3])!r}){KILLED}"
    command = [sys.executable, "-I", "-c", program, str(state), str(workspace)]
    done = await anyio.to_thread.run_sync(lambda: programs.run(command))
    assert done.returncode == 9, done.stderr
    async with supervise([pay, hold], state=state, approver=desk) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        assert (await session.call("pay", {"amount": 5})).output == "paid 5"
        assert desk.asked == []
        assert (await session.call("hold", {"seconds": 600.0}, timeout=1.0)).is_error
        assert desk.asked == ["hold"], "the approval of the call that ran is used up"
    async with supervise([pay, hold], state=state, approver=desk) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        assert (await session.call("pay", {"amount": 5})).output == "paid 5"
        assert desk.asked == ["hold", "pay"], "it was used now, also after another start"


async def test_a_call_whose_session_closes_while_it_waits_is_cancelled_and_withdraws_nothing_that_was_used(
    supervise: Supervise, workspace: Path, options: dict[str, object]
) -> None:
    desk = Desk()
    async with supervise([pay], approver=desk, **options) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        assert (await session.call("pay", {"amount": 5})).output == "paid 5"
        await session.close()
        again = await supervisor.open_session("main", workspace=workspace, session_id="s")
        assert (await again.call("pay", {"amount": 5})).output == "paid 5"
        assert desk.asked == ["pay", "pay"]
