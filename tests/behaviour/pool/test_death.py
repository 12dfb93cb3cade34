"""Processes that die: the supervisor, a zygote, a cell, a standby. What is left, and what the next call finds."""

import functools
import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from tests import misbehaving, programs, zygotes
from tests.helpers import PATIENCE_S, until

from toolcell import (
    Capability,
    Crashed,
    ExecutionError,
    MemoryRecord,
    SandboxUnavailable,
    Session,
    Supervisor,
    ToolContext,
    ToolResult,
    tool,
)
from toolcell.pool import pool as pool_module
from toolcell.supervisor import runtime_of
from toolcell.testing.backends import ListMemory
from toolcell.testing.residue import cgroups_of
from toolcell.wire.frames import encode
from toolcell.wire.messages import Prepare, to_fields
from toolcell.wire.protocol import ZYGOTE_LIMITS

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.usefixtures("warm")]
ROOT = Path(__file__).parents[3]
TOOLS = [misbehaving.echo, misbehaving.sleep_for_ever, misbehaving.leave_a_daemon, misbehaving.ignore_every_signal]


async def while_it_sleeps(session: Session, then: Callable[[], None]) -> ToolResult:
    """The result of a call of `sleep_for_ever` during which `then` is called."""
    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await session.call("sleep_for_ever", timeout=8.0))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await anyio.sleep(0.1)
        then()
    return results[0]


async def test_calls_end_as_crashed_when_the_zygotes_are_killed_and_the_next_ones_work(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("echo")

        def kill() -> None:
            for zygote in zygotes.alive():
                zygote.kill()

        result = await while_it_sleeps(session, kill)
        assert isinstance(result.error, Crashed), result.error
        assert (await session.call("echo", {"value": 1})).unwrap() == 1


async def test_while_each_zygote_dies_soon_after_its_start_each_call_ends_with_an_error_that_says_when_to_retry(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async def kill_them_all() -> None:
        while True:
            for zygote in zygotes.alive():
                with suppress(psutil.NoSuchProcess):
                    zygote.kill()
            await anyio.sleep(0.02)

    async with supervise([misbehaving.echo]) as supervisor, anyio.create_task_group() as tasks:
        tasks.start_soon(kill_them_all)
        await anyio.sleep(0.1)
        session = await supervisor.open_session("main", workspace=workspace)
        for _call in range(3):
            with anyio.fail_after(PATIENCE_S):
                result = await session.call("echo", {"value": 1}, timeout=2)
            assert result.error is not None
            assert isinstance(result.error, SandboxUnavailable | Crashed), result
        assert isinstance(result.error, SandboxUnavailable), result
        assert result.error.retry_after_s
        tasks.cancel_scope.cancel()


async def test_the_log_has_the_last_words_of_a_zygote_that_had_made_cells(
    supervise: Callable[..., Supervisor], workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with supervise([misbehaving.echo]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        (await session.call("echo", {"value": 1})).unwrap()
        (zygote,) = runtime_of(supervisor).pool.fleet.zygotes
        assert zygote._socket is not None
        zygote._socket.send(b"".join(encode(to_fields(Prepare(None, [], [], [])), ZYGOTE_LIMITS)))  # it had one
        await until(lambda: "does not keep to the protocol" in caplog.text)


async def test_a_zygote_that_is_killed_while_nothing_runs_is_not_noticed(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for value in range(2):  # more deaths than five in ten seconds, and the supervisor gives up
            for zygote in zygotes.alive():
                zygote.kill()
            await until(lambda: not runtime_of(supervisor).pool.cells)
            assert (await session.call("echo", {"value": value})).unwrap() == value


async def test_a_zygote_that_is_stopped_does_not_keep_a_call_from_its_timeout(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for zygote in zygotes.alive():
            zygote.suspend()
        started = time.monotonic()
        result = await session.call("echo", timeout=0.5)
        assert result.is_error and time.monotonic() - started > 0.4
        for zygote in zygotes.alive():
            zygote.resume()
        assert (await session.call("echo", {"value": 1})).unwrap() == 1


async def test_a_close_waits_once_for_the_cells_of_zygotes_that_are_stopped(
    supervise: Callable[..., Supervisor], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "CLOSE_S", 8.0)
    async with supervise(TOOLS) as supervisor:
        pool = runtime_of(supervisor).pool
        sessions = [await supervisor.open_session("worker", workspace=workspace) for _ in range(4)]
        (await sessions[0].call("echo", {"value": 1})).unwrap()
        results: list[ToolResult] = []

        async def call(session: Session) -> None:
            results.append(await session.call("sleep_for_ever", timeout=600.0))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, sessions[0])
            await until(lambda: pool.running())
            for zygote in pool.fleet.zygotes:
                os.kill(zygote.pid, signal.SIGSTOP)
            for session in sessions[1:]:
                tasks.start_soon(call, session)
            await until(lambda: any(cell.starting for cell in pool.cells.values()))
            began = time.monotonic()
            await supervisor.aclose()
            assert time.monotonic() - began < 2 * pool_module.CLOSE_S
        assert {result.error and result.error.kind for result in results} == {"cancelled"}
        assert len(results) == len(sessions)


async def test_a_call_whose_cell_is_killed_ends_as_crashed_and_the_next_one_works(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("echo")
        (cell,) = runtime_of(supervisor).pool.cells.values()
        result = await while_it_sleeps(session, lambda: os.kill(cell.pid, signal.SIGKILL))
        assert isinstance(result.error, Crashed)
        assert (await session.call("echo", {"value": 1})).unwrap() == 1


async def test_a_standby_that_is_killed_while_it_waits_is_replaced(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("echo")
        (cell,) = runtime_of(supervisor).pool.cells.values()
        for value in range(5):
            await until(lambda: cell.free)
            dead = psutil.Process(cell.pid).children()
            for standby in dead:
                standby.kill()
            while not cell.free or psutil.Process(cell.pid).children() in ([], dead):
                await anyio.sleep(0.01)
            assert (await session.call("echo", {"value": value})).unwrap() == value


def test_when_the_supervisor_is_killed_every_process_ends(tmp_path: Path) -> None:
    program = """
        import sys, anyio, psutil
        from toolcell import Supervisor
        sys.path.insert(0, sys.argv[2])
        from tests import misbehaving

        async def main() -> None:
            tools = [misbehaving.echo, misbehaving.sleep_for_ever, misbehaving.ignore_every_signal]
            tools.append(misbehaving.leave_a_daemon)
            async with Supervisor(tools=tools) as supervisor, anyio.create_task_group() as tasks:
                for _ in range(3):
                    session = await supervisor.open_session("main", workspace=sys.argv[1])
                    tasks.start_soon(session.call, "sleep_for_ever")
                    tasks.start_soon(session.call, "ignore_every_signal")
                    await session.call("echo")
                await anyio.sleep(0.3)
                print(*[child.pid for child in psutil.Process().children(recursive=True)], flush=True)
                await anyio.sleep(100)

        anyio.run(main)
    """
    supervisor = programs.start([sys.executable, "-I", "-c", textwrap.dedent(program), str(tmp_path), str(ROOT)])
    try:
        with supervisor.stdout as stdout:
            pids = [int(word) for word in stdout.readline().split()]
        assert len(pids) >= 6 * 2, "cells and their calls, and zygotes"
        assert bool(list(cgroups_of(supervisor.pid))) == (os.geteuid() == 0)
    finally:
        supervisor.kill()
        supervisor.wait()
    deadline = time.monotonic() + PATIENCE_S
    while left := [pid for pid in pids if psutil.pid_exists(pid) and not _is_zombie(pid)]:
        assert time.monotonic() < deadline, [psutil.Process(pid) for pid in left]
        time.sleep(0.01)


def _is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_a_new_supervisor_sweeps_away_the_cgroups_of_one_that_was_killed(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    program = """
        import os, sys, anyio
        from toolcell import Supervisor, base_tools

        async def main() -> None:
            async with Supervisor(tools=base_tools()) as supervisor:
                session = await supervisor.open_session("main", workspace=sys.argv[1])
                (await session.call("shell", {"command": "true"})).unwrap()
                os.kill(os.getpid(), 9)

        anyio.run(main)
    """
    command = [sys.executable, "-I", "-c", textwrap.dedent(program), str(workspace)]
    with programs.start(command) as killed:
        killed.wait(30)
    assert killed.returncode == -9
    await anyio.sleep(0.5)  # until the kernel has ended what was in them
    async with supervise(TOOLS):
        assert list(cgroups_of(killed.pid)) == []


class DeadlyMemory(ListMemory):
    """A memory that kills the process that asks, and then answers it."""

    def __init__(self, supervisor: Supervisor) -> None:
        super().__init__()
        self.supervisor = supervisor

    async def search(self, query: str, *, limit: int, namespace: str) -> list[MemoryRecord]:
        (cell,) = runtime_of(self.supervisor).pool.cells.values()
        asking = psutil.Process(cell.pid).children()[0]  # the next call's process may be there too
        asking.send_signal(getattr(signal, query))
        return []


def ask(ctx: ToolContext, query: str) -> int:
    """Return how many records a search of the memory finds."""
    assert ctx.memory is not None
    return len(ctx.memory.search(query))


def double(number: int) -> int:
    """Return twice the number."""
    return 2 * number


@pytest.mark.parametrize("standby", [1, 0])
@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL"])
async def test_an_answer_to_a_process_that_has_died_is_not_for_the_next_one(
    supervise: Callable[..., Supervisor], workspace: Path, name: str, standby: int
) -> None:
    tools = [tool(each, needs={Capability.MEMORY_READ}) for each in (ask, double)]
    async with supervise(tools, standby=standby) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, memory=DeadlyMemory(supervisor))
        for number in range(5):
            result = await session.call("ask", {"query": name})
            assert isinstance(result.error, Crashed), result.error
            assert (await session.call("double", {"number": number})).unwrap() == 2 * number
        assert len(runtime_of(supervisor).pool.cells) == 1


def leave_packets(next_seq: int) -> None:
    """Answer with a value that the supervisor decodes slowly. Meanwhile, fill the pipes with packets (O_DIRECT,
    pipe(2)), of which a read returns one at a time. The first packet begins a frame that hides the others.
    """
    import fcntl
    import struct

    answer = misbehaving.frame_of(16, next_seq - 1, {"output": [1] * 800_000, "display": "innocent"})
    while answer:
        answer = answer[os.write(5, answer) :]
    for fd in (1, 5):
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
    forged = misbehaving.frame_of(16, next_seq, {"output": "forged", "display": "x" * 4000})
    forged = misbehaving.frame_of(16, next_seq, {"output": "forged", "display": "x" * (4000 + 4096 - len(forged))})
    assert len(forged) == 4096
    os.write(5, (struct.pack(">I", 1_000_000) + b"\x93").ljust(4096, b"\1") + forged * 15)
    os.write(1, b"SECRET".ljust(4096) * 16)
    time.sleep(10)


def speak() -> str:
    """Print a text, and return a text."""
    print("spoken")
    return "genuine"


async def test_what_a_call_leaves_in_its_pipes_in_packets_is_not_the_next_calls(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([tool(leave_packets), tool(speak)], max_cells=1) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        (await session.call("speak")).unwrap()
        heard: dict[str, ToolResult] = {}

        async def call(name: str, **arguments: Any) -> None:
            heard[name] = await session.call(name, arguments)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(functools.partial(call, "leave_packets", next_seq=3))
            await anyio.sleep(0.001)
            tasks.start_soon(call, "speak")
        assert len(heard["leave_packets"].unwrap()) == 800_000
        assert (heard["speak"].unwrap(), heard["speak"].stdout.text) == ("genuine", "spoken\n")


@tool
def spoil(how: str) -> str:
    """Change the scratch itself, or the scheduling of this process, permanently.

    Args:
        how: The change.
    """
    import ctypes
    import struct

    if how == "mode":
        os.chmod("/tmp", 0o500)
    elif how == "attribute":
        os.setxattr("/tmp", "user.message", b"for the next call")
    elif how == "access control list":
        entries = b"".join(struct.pack("<HHI", tag, 0, 0xFFFFFFFF) for tag in (1, 4, 0x20))
        os.setxattr("/tmp", "system.posix_acl_default", struct.pack("<I", 2) + entries)
    elif how == "autogroup":
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: /proc/self is its own then
        fd = os.open("/proc/self/autogroup", os.O_WRONLY)
        os.write(fd, b"19")
        os.close(fd)
    return how


@tool
def use_the_scratch() -> list[str]:
    """Write and read a file in the scratch, and return the attributes of the directory."""
    with open("/tmp/file", "w") as file:
        file.write("x")
    with open("/tmp/file") as file:
        assert file.read() == "x"
    os.unlink("/tmp/file")
    return os.listxattr("/tmp")


@pytest.mark.parametrize("how", ["mode", "attribute", "access control list"])
async def test_what_a_call_does_to_the_scratch_itself_is_not_the_next_calls(
    supervise: Callable[..., Supervisor], workspace: Path, how: str
) -> None:
    async with supervise([spoil, use_the_scratch]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        before = (await session.call("use_the_scratch")).unwrap()
        assert (await session.call("spoil", {"how": how})).unwrap() == how
        assert (await session.call("use_the_scratch", timeout=8.0)).unwrap() == before


@tool
def leave_attributes() -> str:
    """Give the scratch more attributes than the kernel can list, which is 64 KiB, before the next process is forked."""
    for number in range(300):
        os.setxattr("/tmp", f"user.{number:0240}", b"")
    time.sleep(0.1)
    return "done"


async def test_a_scratch_whose_attributes_cannot_be_listed_does_not_end_the_call_that_made_it_so(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([leave_attributes, use_the_scratch]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        before = (await session.call("use_the_scratch")).unwrap()
        assert (await session.call("leave_attributes")).unwrap() == "done"
        assert (await session.call("use_the_scratch")).unwrap() == before


async def test_a_call_cannot_slow_its_init_down_by_the_group_that_it_is_scheduled_in(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([spoil]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("spoil", {"how": "nothing"})).unwrap() == "nothing"
        (cell,) = runtime_of(supervisor).pool.cells.values()
        group = Path(f"/proc/{cell.pid}/autogroup")
        before = group.read_text() if group.exists() else ""  # a kernel without CONFIG_SCHED_AUTOGROUP has none
        result = await session.call("spoil", {"how": "autogroup"})
        if before:
            # No call is dumpable, so its own file there is not its own to open. The second layer: it leads a session.
            assert isinstance(result.error, ExecutionError) and "Permission denied" in result.error.message
            assert group.read_text() == before
