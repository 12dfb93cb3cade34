"""Sessions take turns: one that makes a call now and then does not wait behind those that flood the pool."""

import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.helpers import until

from toolcell import Session, Supervisor, tool
from toolcell.pool.plan import HELD_S
from toolcell.supervisor import runtime_of
from toolcell_sandbox import Cgroup
from toolcell_sandbox.errors import SandboxError

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


@tool
def rest(seconds: float) -> None:
    """Rest."""
    time.sleep(seconds)


async def test_a_session_that_calls_now_and_then_does_not_wait_behind_floods(supervise: Any, workspace: Path) -> None:
    """In the order of arrival, each of its calls would wait for the 80 calls of the floods that wait already."""
    stop, ended = anyio.Event(), 0

    async def flood(session: Session) -> None:
        nonlocal ended
        while not stop.is_set():
            assert not (await session.call("rest", {"seconds": 0.03})).is_error
            ended += 1

    async with supervise([rest], max_cells=3) as supervisor:
        sessions = [await supervisor.open_session("worker", workspace=workspace) for _ in range(3)]
        waited: list[int] = []
        async with anyio.create_task_group() as tasks:
            for session in sessions[:2]:
                for _ in range(40):
                    tasks.start_soon(flood, session)
            await until(lambda: ended > 40)
            for _ in range(5):
                await anyio.sleep(2 * HELD_S)
                before = ended
                assert not (await sessions[2].call("rest", {"seconds": 0.0})).is_error
                waited.append(ended - before)
            stop.set()
    assert statistics.median(waited) < 40, waited


async def test_long_calls_of_a_flood_leave_a_cell_to_a_quiet_session(supervise: Any, workspace: Path) -> None:
    async with supervise([rest], max_cells=3) as supervisor:
        sessions = [await supervisor.open_session("worker", workspace=workspace) for _ in range(3)]
        await sessions[2].call("rest", {"seconds": 0.0})
        async with anyio.create_task_group() as tasks:
            for session in sessions[:2]:
                for _ in range(4):
                    tasks.start_soon(partial(session.call, "rest", {"seconds": 3600.0}, timeout=3600.0))
            for _ in range(4):
                await anyio.sleep(2 * HELD_S)
                assert not (await sessions[2].call("rest", {"seconds": 0.0})).is_error
            tasks.cancel_scope.cancel()


if os.geteuid() == 0:  # an ordinary user's cells have no cgroup here

    def shares(supervisor: Supervisor, session: Session) -> list[int]:
        """The cpu.shares of each cell of the session that runs a call."""
        groups = [
            cell.cgroup
            for cell in runtime_of(supervisor).pool.cells.values()
            if cell.spec.key.session_id == session.id and cell.run is not None and cell.cgroup is not None
        ]
        files = [path / "cpu.shares" for group in groups for path in map(Path, group.paths)]
        return [int(file.read_text()) for file in files if file.exists()]

    async def test_the_calls_of_a_session_share_one_weight_while_another_session_calls(
        supervise: Any, workspace: Path
    ) -> None:
        """Also calls that ran already when the other session came. They have their weight again when it is silent."""
        async with supervise([rest], max_cells=6) as supervisor:
            many, one = [await supervisor.open_session("worker", workspace=workspace) for _ in range(2)]
            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(partial(many.call, "rest", {"seconds": 3600.0}, timeout=3600.0))
                await until(lambda: len(runtime_of(supervisor).pool.running()) == 4)
                assert shares(supervisor, many) == [1024] * 4
                async with anyio.create_task_group() as beside:
                    beside.start_soon(partial(one.call, "rest", {"seconds": 3600.0}, timeout=3600.0))
                    await until(lambda: (shares(supervisor, many), shares(supervisor, one)) == ([256] * 4, [1024]))
                    beside.cancel_scope.cancel()
                await until(lambda: shares(supervisor, many) == [1024] * 4)
                tasks.cancel_scope.cancel()

    async def test_a_weight_that_cannot_be_set_now_is_set_later(
        supervise: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        weigh, failed = Cgroup.weigh, 0

        def scarce(self: Cgroup, calls: int) -> None:
            nonlocal failed
            if failed < 6:
                failed += 1
                raise SandboxError("no descriptor is left", step="write cpu.shares", mechanism="cgroup", errno=24)
            weigh(self, calls)

        async with supervise([rest], max_cells=6) as supervisor:
            many, one = [await supervisor.open_session("worker", workspace=workspace) for _ in range(2)]
            async with anyio.create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(partial(many.call, "rest", {"seconds": 3600.0}, timeout=3600.0))
                await until(lambda: len(runtime_of(supervisor).pool.running()) == 2)
                monkeypatch.setattr(Cgroup, "weigh", scarce)
                tasks.start_soon(partial(one.call, "rest", {"seconds": 3600.0}, timeout=3600.0))
                await until(lambda: shares(supervisor, many) == [512] * 2)
                assert failed == 6
                tasks.cancel_scope.cancel()


PRIORITIES = """
import os, re, sys, anyio
from pathlib import Path
from toolcell import Supervisor, tool
from toolcell_sandbox.kernel.syscalls import attempt

@tool
def scheduled() -> tuple[int, int, int]:
    "The scheduling policy, the nice value and the I/O priority of this process."
    return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), attempt("ioprio_get", 1, 0)

async def main() -> None:
    assert attempt("ioprio_set", 1, 0, int(sys.argv[4])) == 0
    os.setpriority(os.PRIO_PROCESS, 0, -15)
    os.sched_setscheduler(0, int(sys.argv[2]), os.sched_param(int(sys.argv[3])))
    async with Supervisor([scheduled]) as supervisor:
        session = await supervisor.open_session("worker", workspace=sys.argv[1])
        inside = (await session.call("scheduled")).unwrap()
        mine = Path("/proc/self/task")
        children = [int(pid) for task in mine.iterdir() for pid in (task / "children").read_text().split()]
        assert children
        assert os.sched_getscheduler(0) == int(sys.argv[2]) and os.getpriority(os.PRIO_PROCESS, 0) == -15
        outside = {
            (os.sched_getscheduler(pid), os.getpriority(os.PRIO_PROCESS, pid), attempt("ioprio_get", 1, pid))
            for pid in children
        }
        print({tuple(inside), *outside} == {(os.SCHED_OTHER, 0, 0)})

anyio.run(main)
"""

if os.geteuid() == 0:  # an ordinary user may not take a real-time class

    @pytest.mark.parametrize(
        "given", [(os.SCHED_RR, 1, 1 << 13), (os.SCHED_FIFO, 50, 2 << 13), (os.SCHED_OTHER, 0, 1 << 13 | 7)]
    )
    def test_nothing_inherits_the_program_s_priority_over_other_processes(
        tmp_path: Path, given: tuple[int, int, int]
    ) -> None:
        """A tool with it could keep all other processes of the host from a core, from most of it, or from a disk.
        `given`: the policy, its priority, and the I/O priority."""
        command = [sys.executable, "-c", PRIORITIES, str(tmp_path), *map(str, given)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (ended.returncode, ended.stdout) == (0, "True\n"), ended.stderr
