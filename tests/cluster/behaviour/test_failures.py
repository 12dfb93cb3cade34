"""Failures of a cluster: an actor, a machine or a driver dies, under load. Nothing hangs, and each call ends typed."""

import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from tests.cluster.conftest import LEASE_S, RayNodes
from tests.conftest import Supervise
from tests.helpers import PATIENCE_S, until

from toolcell import Capability, Session, Supervisor, ToolContext, ToolResult, base_tools, tool
from toolcell.cluster import RayCluster
from toolcell.supervisor import runtime_of

pytestmark = pytest.mark.anyio


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool(needs={Capability.WRITE})
def linger(ctx: ToolContext, name: str, seconds: float) -> str:
    """Append a line to a file, and sleep."""
    import time

    with (ctx.workspace_root / name).open("a") as file:
        file.write("began\n")
    time.sleep(seconds)
    return name


@tool(needs={Capability.WRITE})
def tick(ctx: ToolContext, name: str, seconds: float) -> str:
    """Append the time to a file again and again."""
    import time

    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        with (ctx.workspace_root / name).open("a") as file:
            file.write(f"{time.time()}\n")
        time.sleep(0.02)
    return name


TOOLS = [double, linger, tick, *base_tools()]


@pytest.fixture
async def supervisor(supervise: Supervise) -> AsyncIterator[Supervisor]:
    async with supervise(TOOLS) as made:
        yield made


def node_of(supervisor: Supervisor, session: Session) -> str:
    """The node of a session that has made a call."""
    pool: Any = runtime_of(supervisor).calls
    home = pool._homes.of(session.id)
    return "" if home is None else str(home.id)


def supervisor_process(node_id: str) -> psutil.Process:
    """The process of the actor on a node: Ray names it after the class."""
    found = [
        each
        for each in psutil.process_iter()
        if "ray::NodeActor" in " ".join(_command_of(each)) and _node_of_worker(each) == node_id
    ]
    assert len(found) == 1, found
    return found[0]


def _command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has ended
        return []


def _node_of_worker(process: psutil.Process) -> str:
    return process.environ().get("RAY_NODE_ID", "") or _argument(process.parent(), "--node_id")


def _argument(raylet: psutil.Process | None, name: str) -> str:
    if raylet is None:
        return ""
    for text in raylet.cmdline():
        if text.startswith(f"{name}="):
            return text.partition("=")[2]
    return ""


def _have_gone_on(ends: list[list[ToolResult]], marks: list[int]) -> bool:
    """Whether each session has had three answers since its mark."""
    return all(sum(end.error is None for end in each[mark + 1 :]) > 3 for each, mark in zip(ends, marks, strict=True))


async def load(session: Session, ends: list[ToolResult], stop: anyio.Event) -> None:
    """Make calls one after the other until told to stop."""
    number = 0
    while not stop.is_set():
        number += 1
        ends.append(await session.call("double", {"number": number}))
        if ends[-1].error is not None:
            await anyio.sleep(0.05)


@asynccontextmanager
async def loaded(
    supervisor: Supervisor, directory: Path, count: int, patience_s: float = PATIENCE_S
) -> AsyncIterator[tuple[list[Session], list[list[ToolResult]]]]:
    """So many sessions, each with a workspace of its own, and the results of the calls that each makes until the end of
    the context. Each result must be typed."""
    sessions = [await supervisor.open_session("main", workspace=directory / f"w{each}") for each in range(count)]
    ends: list[list[ToolResult]] = [[] for _ in sessions]
    stop = anyio.Event()
    with anyio.fail_after(patience_s):
        async with anyio.create_task_group() as tasks:
            for session, mine in zip(sessions, ends, strict=True):
                tasks.start_soon(load, session, mine, stop)
            yield sessions, ends
            stop.set()
    for mine in ends:
        assert_typed(mine)


def assert_typed(ends: list[ToolResult]) -> None:
    """Each result is an answer, or an infrastructure error with an outcome."""
    for end in ends:
        if end.error is None:
            assert end.arguments is not None
            assert end.output == 2 * end.arguments["number"]
        else:
            assert end.error.kind in ("node_lost", "overloaded"), end.error
            assert end.error.outcome in ("not started", "finished", "outcome unknown")


async def test_a_killed_actor_ends_its_calls_typed_and_sessions_go_on(supervisor: Supervisor, tmp_path: Path) -> None:
    async with loaded(supervisor, tmp_path, 4) as (sessions, ends):
        await until(lambda: all(len(each) > 3 for each in ends))
        supervisor_process(node_of(supervisor, sessions[0])).kill()
        marks = [len(each) for each in ends]
        await until(partial(_have_gone_on, ends, marks))


async def test_a_call_that_may_have_acted_ends_with_outcome_unknown_and_its_key_is_kept(
    supervisor: Supervisor, workspace: Path
) -> None:
    session = await supervisor.open_session("main", workspace=workspace)
    await session.call("double", {"number": 1})
    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await session.call("linger", {"name": "log", "seconds": 8.0}, idempotency_key="once"))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until((workspace / "log").exists)
            supervisor_process(node_of(supervisor, session)).kill()
        again = await session.call("linger", {"name": "log", "seconds": 8.0}, idempotency_key="once")
        after = await session.call("double", {"number": 4})
    (result,) = results
    assert result.error is not None
    assert (result.error.kind, result.error.outcome) == ("node_lost", "outcome unknown")
    assert again.error == result.error
    assert (workspace / "log").read_text() == "began\n"
    assert after.output == 8


async def test_no_process_of_a_killed_nodes_calls_is_left(supervisor: Supervisor, workspace: Path) -> None:
    session = await supervisor.open_session("main", workspace=workspace)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "shell", {"command": "sleep 43.21"})
            await until(lambda: _sleeping("43.21"))
            supervisor_process(node_of(supervisor, session)).kill()
        await until(lambda: not _sleeping("43.21"))


async def test_a_driver_that_was_killed_leaves_no_session_after_its_lease(ray_nodes: RayNodes, workspace: Path) -> None:
    code = f"""
import anyio, ray
from toolcell import Supervisor, base_tools
from toolcell.cluster import RayCluster

async def main():
    async with Supervisor(base_tools(), cluster=RayCluster({ray_nodes.cluster.address!r}, lease_s={LEASE_S})) as made:
        session = await made.open_session("main", workspace={str(workspace)!r})
        print((await session.call("shell", {{"command": "echo up"}})).error, flush=True)
        await session.call("shell", {{"command": "sleep 54.32"}}, timeout=3600)

anyio.run(main)
"""
    driver = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        with anyio.fail_after(PATIENCE_S):
            await until(lambda: _sleeping("54.32"))
            driver.send_signal(signal.SIGKILL)
            await until(lambda: not _sleeping("54.32"))
    finally:
        driver.kill()
        driver.wait()
        assert driver.stdout is not None
        driver.stdout.close()


async def test_a_silent_node_is_given_up_after_its_lease_and_its_sessions_go_on(
    supervise: Supervise, workspace: Path
) -> None:
    lease_s = 1.5
    async with supervise(TOOLS, cluster=RayCluster(lease_s=lease_s, min_nodes=2)) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("double", {"number": 1})
        node = node_of(supervisor, session)
        silent = supervisor_process(node)
        silent.suspend()  # as a machine that the network no longer reaches
        try:
            began_at = time.monotonic()
            result = await session.call("double", {"number": 2}, timeout=PATIENCE_S)
            assert result.error is not None
            assert result.error.kind == "node_lost"
            assert time.monotonic() - began_at > lease_s
            assert (await session.call("double", {"number": 3})).output == 6
            assert node_of(supervisor, session) != node
        finally:
            with suppress(psutil.NoSuchProcess):  # the kernel has ended it by now
                silent.resume()
        with anyio.fail_after(PATIENCE_S):
            await until(lambda: all(each["state"] == "up" for each in runtime_of(supervisor).calls.nodes()))


async def test_the_cells_of_a_stopped_actor_end_before_their_session_goes_on_elsewhere(
    supervise: Supervise, workspace: Path
) -> None:
    async with supervise(TOOLS, cluster=RayCluster(lease_s=LEASE_S, min_nodes=2)) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("double", {"number": 1})
        node = node_of(supervisor, session)
        stopped = supervisor_process(node)
        with anyio.fail_after(2 * PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(session.call, "tick", {"name": "first", "seconds": 60.0}, timeout=60.0))
                await until((workspace / "first").exists)
                stopped.suspend()  # its cells run on, and write to the workspace
                result = await session.call("tick", {"name": "second", "seconds": 1.0}, timeout=PATIENCE_S)
                if result.error is not None:  # it was sent to the stopped node
                    assert result.error.kind == "node_lost"
                    (await session.call("tick", {"name": "second", "seconds": 1.0})).unwrap()
                assert node_of(supervisor, session) != node
                with suppress(psutil.NoSuchProcess):  # the kernel has ended it by now
                    stopped.resume()
            await until(lambda: all(each["state"] == "up" for each in runtime_of(supervisor).calls.nodes()))
    first, second = ([float(each) for each in (workspace / name).read_text().split()] for name in ("first", "second"))
    assert first[-1] < second[0], "two cells of the session wrote to its workspace at the same time"


async def test_nodes_can_be_restarted_one_by_one_under_load(supervisor: Supervisor, tmp_path: Path) -> None:
    async with loaded(supervisor, tmp_path, 2, 2 * PATIENCE_S) as (_sessions, ends):
        for node in [str(each["id"]) for each in runtime_of(supervisor).calls.nodes()]:
            await until(lambda: all(each["state"] == "up" for each in runtime_of(supervisor).calls.nodes()))
            supervisor_process(node).kill()
            marks = [len(each) for each in ends]
            await until(partial(_have_gone_on, ends, marks))


async def test_a_machine_dies_under_load_and_its_sessions_reopen_on_another(
    supervise: Supervise, ray_nodes: RayNodes, tmp_path: Path
) -> None:
    third = ray_nodes.add()
    async with supervise(TOOLS, cluster=RayCluster(lease_s=LEASE_S, min_nodes=3)) as supervisor:
        async with loaded(supervisor, tmp_path, 6, 2 * PATIENCE_S) as (sessions, ends):
            await until(lambda: all(len(each) > 2 for each in ends))
            assert third.node_id in {node_of(supervisor, each) for each in sessions}
            await anyio.to_thread.run_sync(ray_nodes.kill, third)
            await until(lambda: third.node_id not in {node_of(supervisor, each) for each in sessions})
            marks = [len(each) for each in ends]
            await until(partial(_have_gone_on, ends, marks))
        assert third.node_id not in {node_of(supervisor, each) for each in sessions}
        assert third.node_id not in {node_of(supervisor, each) for each in sessions}


async def test_a_session_with_a_local_workspace_fails_with_its_machine(supervise: Supervise, workspace: Path) -> None:
    cluster = RayCluster(lease_s=LEASE_S, min_nodes=2, workspaces="local")
    async with supervise(TOOLS, cluster=cluster) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("double", {"number": 1})
        with anyio.fail_after(PATIENCE_S):
            supervisor_process(node_of(supervisor, session)).kill()
            await until(lambda: session.state.is_final)
        assert session.state.value == "failed"


def _sleeping(seconds: str) -> list[int]:
    """The processes that sleep for so long."""
    return [each.pid for each in psutil.process_iter() if _command_of(each)[:2] == ["sleep", seconds]]
