"""Values that cannot be sent, and zygotes that cannot start: the affected calls get an error, and nothing is left."""

import asyncio
import errno
import os
import resource
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from tests import probes, zygotes
from tests.helpers import PATIENCE_S, until
from tests.misbehaving import echo, flood_with_progress

from toolcell import (
    Capability,
    MemoryRecord,
    Profile,
    ProtocolViolation,
    RecentJournal,
    Record,
    SandboxUnavailable,
    SandboxUnavailableError,
    Session,
    Supervisor,
    Timeout,
    ToolContext,
    ToolResult,
    ValidationError,
    tool,
)
from toolcell.pool.cell import calls
from toolcell.pool.cell import cell as cell_module
from toolcell.pool.cell.meter import Evidence
from toolcell.pool.fleet import MOST_ASKED
from toolcell.pool.pool import Pool
from toolcell.pool.reactor import current_reactor
from toolcell.supervisor import runtime_of
from toolcell.wire.messages import Ready

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
ODD = os.fsdecode(b"\xff")


UNSENDABLE: dict[str, dict[str, Any]] = {
    "a variable that has changed since": {"pass_env": ("ODD",)},
}


@pytest.mark.parametrize("odd", UNSENDABLE)
async def test_a_cell_whose_options_cannot_be_sent_ends_its_calls_and_no_others(
    odd: str, supervise: Callable[..., Supervisor], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with supervise([echo]) as supervisor:
        profile = Profile.for_kind("main").replace(**UNSENDABLE[odd])
        broken = await supervisor.open_session("main", workspace=workspace, profile=profile)
        monkeypatch.setenv("ODD", ODD)
        whole = await supervisor.open_session("main", workspace=workspace)

        async def fails() -> None:
            result = await broken.call("echo", timeout=5.0)
            assert isinstance(result.error, SandboxUnavailable), result.error
            assert "UTF-8" in result.error.cure

        async def works() -> None:
            assert (await whole.call("echo", {"value": 1})).unwrap() == 1

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(fails)
                tasks.start_soon(works)
        assert not runtime_of(supervisor).pool.waiting
        assert {cell.spec.key.session_id for cell in runtime_of(supervisor).pool.cells.values()} == {whole.id}


async def test_an_environment_larger_than_a_message_to_a_zygote_is_in_the_cell(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    environment = {f"V{number}": "x" * 10_000 for number in range(60)}
    async with supervise([variables]) as supervisor:
        profile = Profile.for_kind("main").replace(env=environment)
        session = await supervisor.open_session("main", workspace=workspace, profile=profile)
        assert (await session.call("variables")).unwrap() == 600_000


@tool
def variables() -> int:
    """Return the length of all variables that begin with V."""
    return sum(len(value) for name, value in os.environ.items() if name.startswith("V"))


@tool(needs={Capability.READ})
def length(text: str) -> int:
    """Return the length of a text."""
    return len(text)


@pytest.mark.parametrize("standby", [0, 1])
async def test_arguments_that_cannot_be_sent_leave_the_cell_to_the_calls_behind_them(
    standby: int, supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([length], standby=standby, max_cells=1) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for _ in range(2):
            ended: dict[int, object] = {}

            async def call(size: int, ended: dict[int, object] = ended) -> None:
                result = await session.call("length", {"text": "x" * size}, timeout=5.0)
                ended[size] = type(result.error) if result.error is not None else result.output

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, 3_000_000)  # the frame has room for 1 MiB and what is around it
                tasks.start_soon(call, 3)
            assert ended == {3_000_000: ValidationError, 3: 3}


async def test_a_pool_that_cannot_start_its_zygote_keeps_nothing() -> None:
    """Each attempt has one descriptor more, until there are enough."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    refused = 0
    for room in range(30):
        pool = Pool(current_reactor(), max_cells=1, zygotes=3)
        before = os.listdir("/proc/self/fd")
        free = [number for number in range(6, 1000) if str(number) not in before]
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[room], limit[1]))
        try:
            await pool.start()
        except (SandboxUnavailableError, OSError):
            refused += 1
            assert zygotes.alive() == []
            assert len(os.listdir("/proc/self/fd")) == len(before)
        else:
            break
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    await pool.close()
    assert refused > 0


async def test_a_second_zygote_is_started_when_the_first_is_busy_and_not_before(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([length]) as supervisor:
        sessions = [await supervisor.open_session("main", workspace=workspace) for _ in range(6)]
        assert (await sessions[0].call("length", {"text": "x"})).output == 1
        assert len(zygotes.alive()) == 1

        async def call(session: Session) -> None:
            assert (await session.call("length", {"text": "xx"})).output == 2

        async with anyio.create_task_group() as tasks:
            for session in sessions:
                tasks.start_soon(call, session)
        cores = os.cpu_count() or 1
        assert min(2, cores) <= len(zygotes.alive()) <= min(4, cores)


@tool
def sleep(seconds: float) -> float:
    """Sleep.

    Args:
        seconds: How long.
    """
    time.sleep(seconds)
    return seconds


async def test_a_sweep_that_does_not_end_costs_the_cell_and_not_the_next_call(
    supervise: Callable[..., Supervisor], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_module, "RECYCLE_S", 0.3)
    async with supervise([echo]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("echo", {"value": 1})
        (cell,) = runtime_of(supervisor).pool.cells.values()
        while not cell.free:
            await anyio.sleep(0.01)
        os.kill(cell.pid, signal.SIGSTOP)  # the init: nobody sweeps any more
        for number in (2, 3):
            assert (await session.call("echo", {"value": number}, timeout=10.0)).unwrap() == number
        assert cell.id not in runtime_of(supervisor).pool.cells


async def test_a_deadline_that_is_near_only_later_is_kept_all_the_same(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([sleep]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("sleep", {"seconds": 0.0})
        result = await session.call("sleep", {"seconds": 3600.0}, timeout=5 * calls.NEAR_S)
        assert isinstance(result.error, Timeout)
        assert result.error.elapsed >= 5 * calls.NEAR_S


@tool(lifetime="session")
def nap(seconds: float) -> str:
    """Sleep.

    Args:
        seconds: How long.
    """
    time.sleep(seconds)
    return "slept"


@tool(lifetime="session")
def look(ctx: ToolContext, seconds: float) -> list[int]:
    """Sleep. Return the pid, and whether the caller has gone, which is checked only if `seconds` is 0.

    Args:
        seconds: How long.
    """
    time.sleep(seconds)
    return [os.getpid(), not seconds and ctx.cancelled]


async def test_a_kept_process_does_not_take_the_cancellation_of_an_answered_call_for_the_next_ones(
    supervise: Callable[..., Supervisor], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "CANCEL_GRACE_S", 5.0)
    async with supervise([look]) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        before = (await session.call("look", {"seconds": 0.0})).unwrap()
        with anyio.move_on_after(0.1):
            await session.call("look", {"seconds": 0.4})
        after = (await session.call("look", {"seconds": 0.0})).unwrap()
        assert after == before == [before[0], 0]


async def test_a_cell_that_dies_in_a_call_is_buried_also_if_its_cgroup_is_gone(
    supervise: Callable[..., Supervisor], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_self: Evidence) -> bool:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    async with supervise([look]) as supervisor:
        pool = runtime_of(supervisor).pool
        session = await supervisor.open_session("worker", workspace=workspace)
        results: list[ToolResult] = []

        async def call() -> None:
            results.append(await session.call("look", {"seconds": 600.0}, timeout=600.0))

        with monkeypatch.context() as patched:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await until(lambda: any(cell.run is not None for cell in pool.cells.values()))
                [cell] = [cell for cell in pool.cells.values() if cell.run is not None]
                patched.setattr(Evidence, "oom_killed", gone)
                os.kill(cell.pid, signal.SIGKILL)
        assert [result.error and result.error.kind for result in results] == ["crashed"]
        await until(lambda: cell.id not in pool.cells and not pool.slots.vacating)
        (await session.call("look", {"seconds": 0.0})).unwrap()


class SlowMemory:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def search(self, query: str, *, limit: int, namespace: str) -> list[MemoryRecord]:
        await anyio.sleep(self.seconds)
        return []

    async def store(self, record: MemoryRecord, *, namespace: str) -> str:
        raise NotImplementedError


tasks: list[asyncio.Task[object]] = []


@tool(lifetime="session", needs={Capability.MEMORY_READ})
async def recall(ctx: ToolContext, how: str) -> list[str]:
    """Search the memory, and return the outcomes of earlier searches that were not awaited.

    Args:
        how: "leave" the answer to a task, or wait for it, "async" or "sync".
    """
    assert ctx.memory is not None
    if how == "leave":
        tasks.append(asyncio.create_task(ctx.memory.asearch("")))
        await asyncio.sleep(0)  # it asks
        return []
    if how == "async":
        await ctx.memory.asearch("")
    else:
        ctx.memory.search("")
        await asyncio.sleep(0.01)
    return [str(task.exception()) if task.done() else "waits" for task in tasks]


@pytest.mark.parametrize("how", ["async", "sync"])
async def test_what_a_call_of_a_kept_process_left_unanswered_gets_none_of_the_next_ones_answers(
    how: str, supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([recall]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, memory=SlowMemory(0.1))
        await session.call("recall", {"how": "leave"})
        said = (await session.call("recall", {"how": how}, timeout=10.0)).unwrap()
        assert said == ["The call is over, so its unanswered requests were dropped."]


@tool(lifetime="session", needs={Capability.MEMORY_READ})
def recall_in_a_thread(ctx: ToolContext, leave: bool) -> str:
    """Search the memory in a thread, or return the outcome of that search.

    Args:
        leave: Whether to search.
    """
    if leave:
        assert ctx.memory is not None
        left.append(ThreadPoolExecutor().submit(ctx.memory.search, ""))
        time.sleep(0.05)
        return ""
    return str(left[0].exception(timeout=5.0))


left: list[Future[object]] = []


async def test_a_thread_that_waits_for_a_reply_to_the_last_call_takes_nothing_of_the_next_one(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([recall_in_a_thread]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, memory=SlowMemory(5.0))
        assert (await session.call("recall_in_a_thread", {"leave": True})).unwrap() == ""
        said = (await session.call("recall_in_a_thread", {"leave": False}, timeout=20.0)).unwrap()
        assert said == "The call is over, so its unanswered requests were dropped."


async def two_naps(
    session: Session, first: tuple[float, float], second: tuple[float, float], meanwhile: Callable[[], None]
) -> list[ToolResult]:
    """The results of two calls of one kept process, each (seconds, timeout). The second call waits for the first, while
    the loop is blocked.
    """
    assert (await session.call("nap", {"seconds": 0.0})).error is None
    results: dict[int, ToolResult] = {}

    async def one(number: int, seconds: float, timeout: float) -> None:
        results[number] = await session.call("nap", {"seconds": seconds}, timeout=timeout)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one, 1, *first)
        await anyio.sleep(0.01)
        tasks.start_soon(one, 2, *second)
        await anyio.sleep(0.04)
        meanwhile()
    return [results[1], results[2]]


async def test_the_deadline_of_a_call_whose_answer_came_meanwhile_does_not_end_the_next_one(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([nap]) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        _first, second = await two_naps(session, (0.2, 0.15), (0.3, 20.0), lambda: time.sleep(0.3))
        assert second.unwrap() == "slept"


async def test_a_call_that_starts_when_its_deadline_is_due_ends_at_it(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([nap]) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        _first, second = await two_naps(session, (0.2, 0.15), (3600.0, 0.15), lambda: time.sleep(0.3))
        assert second.error is not None


async def test_a_waiting_call_is_not_given_to_a_cell_that_is_ending(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([nap]) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)

        def orphan() -> None:
            time.sleep(0.2)  # the answer is in the pipe by then
            (cell,) = runtime_of(supervisor).pool.cells.values()
            cell.orphan()  # as where its zygote is gone

        first, second = await two_naps(session, (0.1, 9.0), (0.0, 9.0), orphan)
        assert (first.unwrap(), second.unwrap()) == ("slept", "slept")


async def test_a_look_at_a_cell_that_fails_costs_no_deadline(
    supervise: Callable[..., Supervisor], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_evidence: Evidence) -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    async with supervise([nap]) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        assert (await session.call("nap", {"seconds": 0.0})).error is None
        with monkeypatch.context() as patch:
            patch.setattr(Evidence, "exceeded", refuses)
            results: list[ToolResult] = []

            async def call() -> None:
                results.append(await session.call("nap", {"seconds": 8.0}, timeout=0.6))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await anyio.sleep(0.3)
                patch.undo()
        assert isinstance(results[0].error, Timeout), results[0].error


class FullJournal(RecentJournal):
    """A journal without room for refusals."""

    def write(self, record: Record) -> None:
        if record.kind == "denied":
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(record)


async def test_a_refusal_that_cannot_be_put_on_record_ends_the_supervisor_and_hangs_nobody(workspace: Path) -> None:
    with anyio.fail_after(PATIENCE_S), pytest.raises(ExceptionGroup) as raised:
        async with Supervisor([tool(probes.ask, name="ask")], journal=FullJournal()) as supervisor:
            session = await supervisor.open_session("worker", workspace=workspace)
            await session.call("ask", {"operation": "channel.send", "arguments": {}})
    assert raised.group_contains(OSError, match="No space left")


class Ignores:
    """A tool whose module ignores SIGCHLD when it is loaded."""

    __name__ = "ignores"

    def __call__(self) -> str:
        """Crash."""
        os.kill(os.getpid(), signal.SIGSEGV)
        return ""

    def __reduce__(self) -> tuple[object, ...]:
        return _ignoring, ()


def _ignoring() -> Ignores:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    return Ignores()


async def test_a_tool_that_ignores_the_end_of_children_as_it_is_loaded_is_swept_all_the_same(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([tool(Ignores(), name="ignores")]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for _ in range(2):
            result = await session.call("ignores", {}, timeout=5.0)
            assert result.error is not None and result.error.kind == "crashed", result
        assert len(runtime_of(supervisor).pool.cells) == 1


async def test_a_burst_of_sessions_waits_for_the_zygote_and_does_not_cost_the_calls_that_run(workspace: Path) -> None:
    """The zygote's socket holds some hundred requests. If it is full, the supervisor regards the zygote as stuck."""
    async with Supervisor([sleep], max_cells=50) as supervisor:  # as descriptors of an ordinary user allow
        runtime_of(supervisor).pool.fleet.size = 1
        running = await supervisor.open_session("main", workspace=workspace)
        sessions = [await supervisor.open_session("main", workspace=workspace) for _ in range(45)]
        (zygote,) = runtime_of(supervisor).pool.fleet.zygotes
        most = 0

        async def call(session: Session, seconds: float) -> None:
            nonlocal most
            result = await session.call("sleep", {"seconds": seconds}, timeout=90.0)
            assert result.error is None, result.error
            most = max(most, len(zygote.asked))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, running, 3.0)
            await anyio.sleep(0.5)
            os.kill(zygote.pid, signal.SIGSTOP)
            for session in sessions:
                tasks.start_soon(call, session, 0.0)
            await anyio.sleep(0.5)
            asked = len(zygote.asked)
            os.kill(zygote.pid, signal.SIGCONT)
        assert asked == MOST_ASKED
        assert runtime_of(supervisor).pool.fleet.zygotes == [zygote]


async def test_a_ready_within_a_call_is_a_violation(supervise: Callable[..., Supervisor], workspace: Path) -> None:
    async with supervise([sleep]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("sleep", {"seconds": 0.0})

        async def lie() -> None:
            await anyio.sleep(0.3)
            (cell,) = runtime_of(supervisor).pool.cells.values()
            cell.on_process(Ready(cell._process + 1, True))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lie)
            result = await session.call("sleep", {"seconds": 5.0}, timeout=8.0)
        assert isinstance(result.error, ProtocolViolation)
        assert (await session.call("sleep", {"seconds": 0.0})).unwrap() == 0.0


async def test_values_with_bytes_come_back_as_json_data(supervise: Callable[..., Supervisor], workspace: Path) -> None:
    async with supervise([length]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        session.values["blob"] = b"\0\1"
        result = await session.call("length", {"text": "xy"})
        assert result.unwrap() == 2
        result.model_dump_json()


async def test_a_call_that_floods_with_small_frames_is_read_in_small_pieces(
    supervise: Callable[..., Supervisor], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    take_in = calls.Calls._take_in

    def counted(cell: calls.Calls, events: Any) -> None:
        taken.append(len(events))
        take_in(cell, events)

    monkeypatch.setattr(calls.Calls, "_take_in", counted)
    async with supervise([flood_with_progress]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for _ in range(2):
            taken.clear()
            result = await session.call("flood_with_progress", timeout=1.0)
            assert isinstance(result.error, Timeout) and sum(taken) > 2_000
            most = calls.LEAST_READ_BYTES // 7  # the bytes of the smallest frame
            assert sum(frames > most for frames in taken) <= 1, "the read that told of the flood"


async def test_a_deadline_kills_the_process_without_waiting_for_its_init(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([sleep]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("sleep", {"seconds": 0.0})).error is None
        (cell,) = runtime_of(supervisor).pool.cells.values()
        init = psutil.Process(cell.pid)
        with anyio.fail_after(PATIENCE_S):
            while not cell.free:
                await anyio.sleep(0.005)
        (process,) = init.children()
        init.suspend()
        try:
            result = await session.call("sleep", {"seconds": 60.0}, timeout=0.1)
            assert isinstance(result.error, Timeout)
            with anyio.fail_after(PATIENCE_S):
                while process.status() != psutil.STATUS_ZOMBIE:
                    await anyio.sleep(0.005)
        finally:
            init.resume()
        assert (await session.call("sleep", {"seconds": 0.0})).error is None
        assert init.is_running()
