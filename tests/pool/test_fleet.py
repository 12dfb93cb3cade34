"""Zygotes that keep dying: pauses that grow, calls that are told or wait, and a pool that works again by itself."""

import os
import resource
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import anyio
import psutil
import pytest
from tests import zygotes
from tests.helpers import PATIENCE_S
from tests.misbehaving import echo

from toolcell import Crashed, Overloaded, Profile, SandboxUnavailable, Session, Supervisor, Timeout, ToolResult
from toolcell.pool import fleet
from toolcell.pool.fleet import FIRST_PAUSE_S, HEALTHY_S, MOST_PAUSE_S, RESTARTS, Recovery
from toolcell.pool.interface import SupervisorStatus
from toolcell.supervisor import runtime_of


def test_the_first_deaths_cost_no_time_and_then_pauses_double_up_to_a_cap() -> None:
    recovery, now = Recovery(), 100.0
    assert [recovery.on_death(now) for _ in range(RESTARTS)] == RESTARTS * [now]
    pauses: list[float] = []
    for _ in range(9):
        pauses.append(recovery.on_death(now) - now)
        now += pauses[-1]
    assert pauses[0] == FIRST_PAUSE_S and pauses[-1] == MOST_PAUSE_S
    assert all(later == min(2 * earlier, MOST_PAUSE_S) for earlier, later in pairwise(pauses))
    assert recovery.deaths == RESTARTS + 9


def test_a_healthy_time_after_the_pause_makes_up_for_what_was() -> None:
    recovery = Recovery()
    for _ in range(RESTARTS + 3):
        at = recovery.on_death(100.0)
    assert recovery.problem_now(at + HEALTHY_S - 0.1)
    assert recovery.problem_now(at + HEALTHY_S) == ""
    assert recovery.on_death(at + HEALTHY_S) == at + HEALTHY_S


def test_a_status_ends_with_the_last_problem_where_there_is_one() -> None:
    recovery = Recovery()
    assert recovery.problem_now(100.0) == ""
    well = str(SupervisorStatus((), "root", zygotes=1, problem=recovery.problem_now(100.0)))
    assert well.endswith("zygotes: 1 alive, 0 died")
    recovery.on_death(100.0)
    ill = str(SupervisorStatus((), "root", zygotes=1, problem=recovery.problem_now(100.0)))
    assert ill == f"{well}\nA zygote, the process that makes cells, has ended."


def kill_zygotes() -> None:
    for zygote in zygotes.alive():
        try:
            zygote.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            pass


async def break_down(supervisor: Supervisor) -> None:
    """Kill zygotes until the pool pauses."""
    with anyio.fail_after(PATIENCE_S):
        while supervisor.status().next_attempt_s is None:
            kill_zygotes()
            await anyio.sleep(0.01)


@pytest.mark.anyio
@pytest.mark.few_on_trio
class TestWithZygotes:
    async def test_a_pool_whose_zygotes_were_killed_many_times_under_load_works_again_by_itself(
        self, supervise: Callable[..., Supervisor], workspace: Path
    ) -> None:
        async with supervise([echo]) as supervisor:
            sessions = [await supervisor.open_session("main", workspace=workspace) for _ in range(6)]
            results: list[ToolResult] = []

            async def load(session: Session) -> None:
                number = 0
                while not over:
                    result = await session.call("echo", {"value": number}, timeout=1.0)
                    results.append(result)
                    assert result.error is not None or result.output == number
                    number += 1
                    await anyio.sleep(0.01 if result.error is None else 0.1)

            over = False
            async with anyio.create_task_group() as tasks:
                for session in sessions:
                    tasks.start_soon(load, session)
                while supervisor.status().zygote_deaths <= 6:
                    kill_zygotes()
                    await anyio.sleep(0.1)
                over = True
            kinds = {type(result.error) for result in results if result.error is not None}
            assert kinds <= {SandboxUnavailable, Crashed, Timeout, Overloaded}, kinds
            for result in results:
                if isinstance(result.error, (SandboxUnavailable, Overloaded)):
                    assert result.error.retryable and result.error.retry_after_s is not None
            for session in sessions:
                assert (await session.call("echo", {"value": 7}, timeout=PATIENCE_S)).unwrap() == 7
            assert supervisor.status().zygotes > 0 and supervisor.status().next_attempt_s is None

    async def test_in_a_pause_a_call_without_time_hears_when_and_one_with_time_waits(
        self, supervise: Callable[..., Supervisor], workspace: Path
    ) -> None:
        async with supervise([echo]) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace)
            assert (await session.call("echo", {"value": 1})).unwrap() == 1
            await break_down(supervisor)
            status = supervisor.status()
            assert status.zygotes == 0 and status.zygote_deaths > RESTARTS and status.problem
            assert status.next_attempt_s is not None and "next attempt in" in str(status)
            fleet = runtime_of(supervisor).pool.fleet
            fleet.start_at(time.monotonic() + 7200.0)  # a pause that the test cannot miss
            error = (await session.call("echo", {"value": 2}, timeout=3600.0)).error  # else it waits for an hour
            assert isinstance(error, SandboxUnavailable), error
            assert error.retryable and error.retry_after_s is not None and 3600.0 < error.retry_after_s <= 7200.0
            assert f"The next attempt is in {error.retry_after_s:g} s" in error.message and error.cure
            started = time.monotonic()
            fleet.start_at(started + 2.0)
            assert (await session.call("echo", {"value": 3}, timeout=PATIENCE_S)).unwrap() == 3
            assert time.monotonic() - started >= 2.0

    async def test_calls_that_wait_when_the_pause_begins_hear_of_it_too(
        self, supervise: Callable[..., Supervisor], workspace: Path
    ) -> None:
        async with supervise([echo]) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace)
            await break_down(supervisor)
            pool = runtime_of(supervisor).pool
            pool.fleet.start_at(time.monotonic() + 1800.0)
            results: list[ToolResult] = []

            async def call() -> None:
                results.append(await session.call("echo", {"value": 1}, timeout=3600.0))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await anyio.sleep(0.1)
                assert not results
                pool.fleet.start_at(time.monotonic() + 7200.0)
                with anyio.fail_after(PATIENCE_S):
                    while not results:
                        await anyio.sleep(0.01)
            assert isinstance(results[0].error, SandboxUnavailable) and results[0].error.retryable
            pool.fleet.start_at(time.monotonic())
            assert (await session.call("echo", {"value": 2}, timeout=PATIENCE_S)).unwrap() == 2

    async def test_a_zygote_that_cannot_be_started_is_tried_again(
        self, supervise: Callable[..., Supervisor], workspace: Path
    ) -> None:
        """There are no descriptors when the only one dies."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        async with supervise([echo]) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace)
            assert (await session.call("echo", {"value": 1})).unwrap() == 1
            resource.setrlimit(resource.RLIMIT_NOFILE, (8, hard))
            try:
                for zygote in runtime_of(supervisor).pool.fleet.zygotes:
                    zygote.kill()
                with anyio.fail_after(PATIENCE_S):
                    while "could be started" not in supervisor.status().problem:
                        await anyio.sleep(0.01)
                runtime_of(supervisor).pool.fleet.start_at(time.monotonic() + 7200.0)
                error = (await session.call("echo", {"value": 2}, timeout=3600.0)).error
                assert isinstance(error, SandboxUnavailable) and error.retryable, error
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            runtime_of(supervisor).pool.fleet.start_at(time.monotonic())
            assert (await session.call("echo", {"value": 3}, timeout=PATIENCE_S)).unwrap() == 3

    async def test_a_pause_does_not_keep_the_supervisor_from_ending(
        self, supervise: Callable[..., Supervisor], workspace: Path
    ) -> None:
        async with supervise([echo]) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace)
            await break_down(supervisor)
            runtime_of(supervisor).pool.fleet.start_at(time.monotonic() + 1800.0)
            ended: list[ToolResult] = []
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call_into, session, ended)
                await anyio.sleep(0.1)
                with anyio.fail_after(PATIENCE_S):
                    await runtime_of(supervisor).pool.close()
        assert [result.error.kind for result in ended if result.error is not None] == ["cancelled"]

    async def test_a_zygote_that_is_stopped_is_replaced_and_its_calls_are_made_elsewhere(
        self, supervise: Callable[..., Supervisor], workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fleet, "STUCK_S", 4.0)
        preset = Profile.for_kind("worker")
        profile = preset.replace(limits=preset.limits.replace(start_s=8.0))
        async with supervise([echo]) as supervisor:
            first = await supervisor.open_session("main", workspace=workspace)
            assert (await first.call("echo", {"value": 1})).unwrap() == 1
            stopped = zygotes.alive()
            for zygote in stopped:
                os.kill(zygote.pid, signal.SIGSTOP)
            session = await supervisor.open_session("worker", workspace=workspace, profile=profile)
            assert (await session.call("echo", {"value": 2}, timeout=PATIENCE_S)).unwrap() == 2
            assert not any(zygote.is_running() for zygote in stopped)


async def call_into(session: Session, ended: list[ToolResult]) -> None:
    ended.append(await session.call("echo", {"value": 1}, timeout=3600.0))
