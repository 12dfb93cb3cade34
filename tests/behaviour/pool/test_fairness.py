"""Sessions take turns: one that makes a call now and then does not wait behind those that flood the pool."""

import atexit
import errno
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from tests.helpers import until
from tests.slices import HAS_SLICES, slice_of

from toolcell import Session, Supervisor, tool
from toolcell.pool.cell import Cell, State
from toolcell.pool.plan import HELD_S
from toolcell.pool.rivals import RIVAL_S, SLICE_NS
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


@tool
def niceness(seconds: float) -> tuple[int, int]:
    """Rest, and return the highest and the last nice value of this process."""
    end, highest, last = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        last = os.getpriority(os.PRIO_PROCESS, 0)
        highest = max(highest, last)
        time.sleep(0.02)
    return highest, last


@pytest.fixture
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for an ordinary user, whose cells have no cgroup: processes are niced."""
    monkeypatch.setattr(Cgroup, "can_weigh", False)


@pytest.mark.usefixtures("no_weights")
async def test_the_calls_of_a_session_are_niced_only_if_another_session_calls(supervise: Any, workspace: Path) -> None:
    """Also calls that ran already when the other session came."""

    async def found(session: Session, number: int) -> list[int]:
        values: list[int] = []

        async def one() -> None:
            values.append((await session.call("niceness", {"seconds": 0.4})).unwrap()[0])

        async with anyio.create_task_group() as tasks:
            for _ in range(number):
                tasks.start_soon(one)
        return sorted(values)

    async with supervise([niceness], max_cells=6) as supervisor:
        many, one = [await supervisor.open_session("worker", workspace=workspace) for _ in range(2)]
        (own,) = await found(many, 1)
        assert await found(many, 4) == [own] * 4
        values: dict[str, list[int]] = {}

        async def of(name: str, session: Session, number: int) -> None:
            values[name] = await found(session, number)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(of, "many", many, 4)
            await anyio.sleep(0.1)
            tasks.start_soon(of, "one", one, 1)
        assert values["one"] == [own]
        assert len([value for value in values["many"] if value > own]) >= 3, values


@pytest.mark.usefixtures("no_weights")
async def test_a_long_call_is_not_niced_any_more_when_the_others_of_its_session_are_over(
    supervise: Any, workspace: Path
) -> None:
    found: list[tuple[int, int]] = []

    async def call(session: Session, seconds: float) -> None:
        found.append((await session.call("niceness", {"seconds": seconds})).unwrap())

    async with supervise([niceness], max_cells=6) as supervisor:
        many, one = [await supervisor.open_session("worker", workspace=workspace) for _ in range(2)]
        await call(one, 0.0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, one, 1.6)
            for seconds in (0.3, 0.3, 0.3, 1.6):
                tasks.start_soon(call, many, seconds)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    ((highest, last),) = [each for each in found[-2:] if each[0] > own]  # the long ones end last
    assert highest > own and (last == own or os.geteuid() != 0), found  # only root can lower the value again


def compute(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@tool
def work(seconds: float) -> None:
    """Compute."""
    compute(seconds)


@tool(lifetime="session")
def kept_work(seconds: float) -> None:
    """Compute, in a kept process."""
    compute(seconds)


@tool(lifetime="session")
def work_and_tear_down(seconds: float) -> None:
    """Compute, in a kept process whose teardown takes a while."""
    atexit.register(time.sleep, 1.0)
    compute(seconds)


@tool(lifetime="session")
def leave_work(seconds: float) -> None:
    """Compute in a thread after the call."""
    threading.Thread(target=compute, args=(seconds,), daemon=True).start()


if os.geteuid() == 0:  # an ordinary user's cells have no cgroup here

    @pytest.fixture(params=["reserve_core", "idle"])
    def reserves(request: pytest.FixtureRequest) -> bool:
        """Whether cells that yield leave a core alone, or are idle (cpu.idle) instead."""
        return bool(request.param == "reserve_core")

    def number_in(group: Cgroup | None, name: str) -> int:
        assert group is not None
        (file,) = [path / name for path in map(Path, group.paths) if (path / name).exists()]
        return int(file.read_text())

    def does_yield(group: Cgroup | None) -> bool:
        assert group is not None
        for path in map(Path, group.paths):
            if (path / "cpuset.cpus").exists():
                return re.split("[-,]", (path / "cpuset.cpus").read_text())[0] != str(min(os.sched_getaffinity(0)))
        return number_in(group, "cpu.idle") == 1

    def shares(supervisor: Supervisor, session: Session) -> list[tuple[bool, int]]:
        """Whether each cell of the session that runs a call yields, and its cpu.shares."""
        return [
            (does_yield(cell.cgroup), number_in(cell.cgroup, "cpu.shares"))
            for cell in runtime_of(supervisor).pool.cells.values()
            if cell.spec.key.session_id == session.id and cell.run is not None and cell.cgroup is not None
        ]

    def slices(supervisor: Supervisor, session: Session) -> set[int]:
        """The slices of the inits of these cells, and of their children."""
        cells = [cell for cell in runtime_of(supervisor).pool.cells.values() if cell.spec.key.session_id == session.id]
        inits = [psutil.Process(cell.pid) for cell in cells if cell.run is not None]
        return {slice_of(process.pid) for init in inits for process in (init, *init.children())}

    async def until_shares(supervisor: Supervisor, session: Session, wanted: Callable[[bool, int], bool]) -> None:
        with anyio.fail_after(10):
            while not all(wanted(*each) for each in shares(supervisor, session)):
                await anyio.sleep(0.01)

    @pytest.mark.parametrize("name", ["work", "kept_work"])
    async def test_cells_of_a_session_that_computes_yield_while_another_session_calls(
        supervise: Any, workspace: Path, reserves: bool, name: str
    ) -> None:
        """They have a cgroup with a CPU weight here. Kept processes yield too."""
        async with supervise([work, kept_work, rest], max_cells=6, reserve_core=reserves) as supervisor:
            many, quiet = [await supervisor.open_session("worker", workspace=workspace) for _ in range(2)]
            async with anyio.create_task_group() as tasks:
                for each in [name, "work", "work"]:
                    tasks.start_soon(many.call, each, {"seconds": 20.0})
                with anyio.fail_after(10):
                    while len(runtime_of(supervisor).pool.running()) < 3:
                        await anyio.sleep(0.01)
                assert set(shares(supervisor, many)) == {(False, 1024)}, "no other session has calls"
                await until_it_yields(supervisor, many, quiet)
                if HAS_SLICES:
                    assert slices(supervisor, many) == {slice_of(0) if reserves else SLICE_NS}
                await until_shares(supervisor, many, lambda yields, weight: (yields, weight) == (False, 1024))
                assert slices(supervisor, many) == {slice_of(0)}
                tasks.cancel_scope.cancel()

    async def test_cells_that_yield_leave_one_core_alone_unless_the_supervisor_reserves_none(
        supervise: Any, workspace: Path, reserves: bool
    ) -> None:
        all_cores = os.sched_getaffinity(0)
        async with supervise([work, rest], max_cells=4, reserve_core=reserves) as supervisor:
            many, quiet = [await supervisor.open_session("worker", workspace=workspace) for _ in range(2)]

            def cores() -> set[int]:
                cells = runtime_of(supervisor).pool.cells.values()
                inits = [psutil.Process(cell.pid) for cell in cells if cell.spec.key.session_id == many.id]
                found = [os.sched_getaffinity(each.pid) for init in inits for each in (init, *init.children())]
                return set[int]().union(*found)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(many.call, "work", {"seconds": 20.0})
                await until_it_yields(supervisor, many, quiet)
                assert cores() == (all_cores - {min(all_cores)} if reserves else all_cores)
                await until_shares(supervisor, many, lambda yields, weight: (yields, weight) == (False, 1024))
                assert cores() == all_cores
                tasks.cancel_scope.cancel()

    async def test_a_session_that_computes_yields_from_the_first_call_of_another_one_on(
        supervise: Any, workspace: Path, reserves: bool
    ) -> None:
        """It computed alone until then, so what it uses is known."""
        async with supervise([work, rest], max_cells=4, reserve_core=reserves) as supervisor:
            many, quiet = [await supervisor.open_session("worker", workspace=workspace) for _ in range(2)]
            assert not (await quiet.call("rest", {"seconds": 0.0})).is_error
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(many.call, "work", {"seconds": 20.0})
                await anyio.sleep(RIVAL_S + 0.5)
                assert shares(supervisor, many) == [(False, 1024)]
                pool, seen = runtime_of(supervisor).pool, list[bool]()
                with anyio.fail_after(10):
                    while many.id not in pool._core_use._computing:  # beside other tests, it may get no core
                        await anyio.sleep(0.01)
                    tasks.start_soon(quiet.call, "rest", {"seconds": 5.0})
                    while not seen:
                        await anyio.lowlevel.checkpoint()
                        if len(pool.running()) == 2:
                            seen = [yields for yields, _weight in shares(supervisor, many)]
                assert seen == [many.id in pool._core_use._computing]
                tasks.cancel_scope.cancel()

    async def test_a_session_does_not_yield_after_a_pause_because_it_did_before(
        supervise: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing ran since, so nobody looked."""
        given: list[bool] = []
        weigh = Cgroup.weigh

        def note(self: Cgroup, calls: int, *, yields: bool) -> None:
            given.append(yields)
            weigh(self, calls, yields=yields)

        async with supervise([work, rest], max_cells=4) as supervisor:
            many, quiet = [await supervisor.open_session("worker", workspace=workspace) for _ in range(2)]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(many.call, "work", {"seconds": 20.0})
                await until_it_yields(supervisor, many, quiet)
                tasks.cancel_scope.cancel()
            pool = runtime_of(supervisor).pool
            with anyio.fail_after(10):
                while pool._watching is not None:
                    await anyio.sleep(0.01)
            pool._core_use.yielding = frozenset({many.id})  # as it may be at the last look
            await anyio.sleep(RIVAL_S + 0.1)
            monkeypatch.setattr(Cgroup, "weigh", note)
            assert not (await many.call("rest", {"seconds": 0.0})).is_error
            assert not (await quiet.call("rest", {"seconds": 0.0})).is_error
            assert not any(given)

    async def test_a_session_that_computes_yields_when_a_call_begins_that_waited_long(
        supervise: Any, workspace: Path
    ) -> None:
        async with supervise([work, rest], max_cells=2) as supervisor:
            many, quiet = [await supervisor.open_session("worker", workspace=workspace) for _ in range(2)]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(many.call, "work", {"seconds": 20.0})
                tasks.start_soon(many.call, "work", {"seconds": RIVAL_S + 0.5})
                await anyio.sleep(0.1)
                tasks.start_soon(quiet.call, "rest", {"seconds": 5.0})
                pool, seen = runtime_of(supervisor).pool, list[bool]()
                with anyio.fail_after(10):
                    while not seen:
                        await anyio.lowlevel.checkpoint()
                        if any(run.spec.key.session_id == quiet.id for run in pool.running()):
                            seen = [yields for yields, _weight in shares(supervisor, many)]
                assert seen == [many.id in pool._core_use._computing]  # beside other tests, it may get no core
                tasks.cancel_scope.cancel()

    async def until_it_yields(supervisor: Supervisor, many: Session, quiet: Session) -> None:
        with anyio.fail_after(10):
            while {yields for yields, _weight in shares(supervisor, many)} != {True}:
                await quiet.call("rest", {"seconds": 0.0})
                await anyio.sleep(0.01)

    async def test_a_weight_that_cannot_be_given_back_now_is_given_back_later(
        supervise: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        weigh, failed = Cgroup.weigh, 0

        def scarce(self: Cgroup, calls: int, *, yields: bool) -> None:
            nonlocal failed
            if not yields and failed < 3:
                failed += 1
                raise SandboxError("no descriptor is left", step="write cpu.idle", mechanism="cgroup")
            weigh(self, calls, yields=yields)

        async with supervise([work, rest], max_cells=4) as supervisor:
            many, quiet = [await supervisor.open_session("worker", workspace=workspace) for _ in range(2)]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(many.call, "work", {"seconds": 20.0})
                await until_it_yields(supervisor, many, quiet)
                monkeypatch.setattr(Cgroup, "weigh", scarce)
                await until_shares(supervisor, many, lambda yields, weight: (yields, weight) == (False, 1024))
                assert failed == 3
                tasks.cancel_scope.cancel()

    @pytest.mark.parametrize("name", ["cpuset.cpus", "cpu.shares"])
    async def test_a_call_that_begins_is_not_lost_if_the_kernel_refuses_that_another_session_yields(
        supervise: Any, workspace: Path, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And what was written already is taken back once no other session has calls."""
        write, refused = Cgroup._write, 0

        def scarce(self: Cgroup, controller: str, file: str, text: str) -> None:
            nonlocal refused
            if file == name:
                refused += 1
                raise SandboxError("no descriptor is left", step=f"write {file}", mechanism="cgroup", errno=24)
            write(self, controller, file, text)

        async with supervise([work, rest], max_cells=6) as supervisor:
            many, quiet = [await supervisor.open_session("worker", workspace=workspace) for _ in range(2)]
            assert not (await quiet.call("rest", {"seconds": 0.0})).is_error
            async with anyio.create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(many.call, "work", {"seconds": 20.0})
                await anyio.sleep(RIVAL_S + 0.5)
                assert shares(supervisor, many) == [(False, 1024)] * 2
                with monkeypatch.context() as patched:
                    patched.setattr(Cgroup, "_write", scarce)
                    assert not (await quiet.call("rest", {"seconds": 0.2})).is_error
                    await anyio.sleep(RIVAL_S + 0.5)  # no session has a rival now
                    assert refused
                with anyio.fail_after(3):
                    while shares(supervisor, many) != [(False, 1024)] * 2:
                        await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()

    async def test_a_call_that_begins_is_not_lost_if_a_cell_of_another_session_fails(
        supervise: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with supervise([work, rest], max_cells=6) as supervisor:
            many, quiet = [await supervisor.open_session("worker", workspace=workspace) for _ in range(2)]
            assert not (await quiet.call("rest", {"seconds": 0.0})).is_error
            lower, failed = Cell.lower, 0

            def fail(self: Cell, calls: int, *, yields: bool) -> None:
                nonlocal failed
                if yields:
                    failed += 1
                    raise OSError(errno.EMFILE, "no descriptor is left")
                lower(self, calls, yields=yields)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(many.call, "work", {"seconds": 20.0})
                await anyio.sleep(RIVAL_S + 0.5)
                monkeypatch.setattr(Cell, "lower", fail)
                assert not (await quiet.call("rest", {"seconds": 0.3})).is_error
                assert failed > 2, "also at later looks"
                tasks.cancel_scope.cancel()

    async def test_a_teardown_does_not_yield(supervise: Any, workspace: Path, reserves: bool) -> None:
        """It has only 2 s."""
        async with supervise([work_and_tear_down, rest], max_cells=4, reserve_core=reserves) as supervisor:
            many, quiet = [await supervisor.open_session("worker", workspace=workspace) for _ in range(2)]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(many.call, "work_and_tear_down", {"seconds": 1.0})
                await until_it_yields(supervisor, many, quiet)
            cells = runtime_of(supervisor).pool.cells.values()
            (cell,) = [cell for cell in cells if cell.spec.key.session_id == many.id and cell.spec.key.kept_tool]
            assert cell.cgroup is not None
            cell.cgroup.weigh(1, yields=True)  # as it may be after a call
            cell.lowered = True
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(many.close)
                with anyio.fail_after(10):
                    while cell.state is not State.RETIRING:
                        await anyio.sleep(0.001)
                assert not does_yield(cell.cgroup)

    @pytest.mark.parametrize("of_other", ["long", "short"])
    async def test_a_kept_process_that_computes_after_its_call_yields_to_calls_of_others(
        supervise: Any, workspace: Path, of_other: str
    ) -> None:
        """Short calls are over when the pool looks at the cores."""
        async with supervise([leave_work, work, rest], max_cells=4) as supervisor:
            one, other = [await supervisor.open_session("worker", workspace=workspace) for _ in range(2)]
            assert not (await one.call("leave_work", {"seconds": 30.0})).is_error
            (cell,) = [each for each in runtime_of(supervisor).pool.cells.values() if each.spec.key.kept_tool]
            async with anyio.create_task_group() as tasks:
                if of_other == "long":
                    tasks.start_soon(other.call, "work", {"seconds": 20.0})
                with anyio.fail_after(10):
                    while not does_yield(cell.cgroup):
                        await anyio.sleep(0.01)
                        if of_other == "short":
                            await other.call("rest", {"seconds": 0.0})
                seen: list[bool] = []
                for _ in range(40 if of_other == "short" else 0):
                    await anyio.sleep(0.02)
                    await other.call("rest", {"seconds": 0.0})
                    seen.append(does_yield(cell.cgroup))
                assert sum(seen) >= 0.75 * len(seen), "it goes on"
                tasks.cancel_scope.cancel()
            with anyio.fail_after(10):
                while does_yield(cell.cgroup):
                    await anyio.sleep(0.01)

    async def test_calls_that_got_no_core_have_their_weight_again(supervise: Any, workspace: Path) -> None:
        """The quiet session computes as much as two cores can. So the other one yields no longer, and both progress."""
        async with supervise([work, rest], max_cells=8, reserve_core=False) as supervisor:
            many, few = [await supervisor.open_session("worker", workspace=workspace) for _ in range(2)]
            cores = len(os.sched_getaffinity(0))
            used: dict[str, float] = {}

            async def compute(session: Session, number: int) -> None:
                async with anyio.create_task_group() as calls:
                    for _ in range(number):
                        calls.start_soon(one, session)

            async def one(session: Session) -> None:
                result = await session.call("work", {"seconds": 2.0})
                used[session.id] = used.get(session.id, 0.0) + result.usage.cpu_s

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(compute, many, 2 * cores)
                tasks.start_soon(compute, few, cores)
            assert used[many.id] > 0.2 * used[few.id], used

    async def test_a_new_cell_does_not_yield_because_one_before_did(supervise: Any, workspace: Path) -> None:
        """Cgroups are used again for other cells."""
        async with supervise([work, rest], max_cells=4) as supervisor:
            many, quiet = [await supervisor.open_session("worker", workspace=workspace) for _ in range(2)]
            async with anyio.create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(many.call, "work", {"seconds": 20.0})
                await until_it_yields(supervisor, many, quiet)
                tasks.cancel_scope.cancel()
            await many.close()
            after = await supervisor.open_session("worker", workspace=workspace)
            async with anyio.create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(after.call, "rest", {"seconds": 5.0})
                with anyio.fail_after(10):
                    while len(runtime_of(supervisor).pool.running()) < 2:
                        await anyio.sleep(0.01)
                assert [yields for yields, _weight in shares(supervisor, after)] == [False, False]
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
