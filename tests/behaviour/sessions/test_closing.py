"""The end of a session and of a call's time, as tools see them: who is told, how long the grace is, what is ended."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.helpers import PATIENCE_S, until

import toolcell.blocking
from toolcell import (
    Annotations,
    Cancelled,
    Hook,
    HostContext,
    Limits,
    Overloaded,
    PermissionTier,
    Profile,
    Session,
    SessionKind,
    Timeout,
    ToolCall,
    ToolContext,
    ToolResult,
    UsageError,
    base_tools,
    host_tool,
    tool,
)
from toolcell.dispatch.run_in_cell import MOST_SUBMISSIONS
from toolcell.session import core_of
from toolcell.supervisor import runtime_of
from toolcell_sandbox.trees.audit import ProtectedTree

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


def heeds(ctx: ToolContext, name: str, tidy_s: float = 0.0) -> str:
    """Work until the call is cancelled, then clean up."""
    Path(f"{name}.begun").touch()
    while not ctx.cancelled:
        time.sleep(0.02)
    time.sleep(tidy_s)
    Path(f"{name}.tidy").write_text(f"{ctx.remaining():.3f}")
    return "tidied up"


async def heeds_async(ctx: ToolContext, name: str) -> str:
    """Work until the call is cancelled, then clean up, in an async tool."""
    import asyncio

    Path(f"{name}.begun").touch()
    while not ctx.cancelled:
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.3)
    Path(f"{name}.tidy").touch()
    return "tidied up"


def looks_and_goes_on(ctx: ToolContext, name: str) -> None:
    """Read `cancelled` repeatedly, and ignore it."""
    Path(f"{name}.begun").touch()
    while True:
        Path(f"{name}.told" if ctx.cancelled else f"{name}.running").touch()
        time.sleep(0.02)


def deaf(name: str) -> None:
    """Sleep, and never read `cancelled`."""
    Path(f"{name}.begun").touch()
    time.sleep(60)


writes: Any = {"needs": {"write"}, "annotations": Annotations(sequential=False)}
CELL_TOOLS = [tool(each, **writes) for each in (heeds, heeds_async, looks_and_goes_on, deaf)]


@host_tool(harmless=True, tier=PermissionTier.READ_ONLY)
async def waits(ctx: HostContext, name: str) -> None:
    """Wait for a long time, and never read `cancelled`."""
    try:
        _begun.add(name)
        await anyio.sleep(60)
    finally:
        _ended.add(name)


@host_tool(harmless=True, tier=PermissionTier.READ_ONLY)
async def heeds_here(ctx: HostContext, name: str) -> str:
    """Wait until the call is cancelled, then clean up."""
    _begun.add(name)
    while not ctx.cancelled:
        await anyio.sleep(0.01)
    await anyio.sleep(0.3)
    _ended.add(name)
    return "tidied up"


_begun: set[str] = set()
_ended: set[str] = set()
HOST_TOOLS = [waits, heeds_here]


@pytest.fixture(autouse=True)
def nothing_has_begun() -> None:
    _begun.clear()
    _ended.clear()


class Calls:
    """Calls that run beside the test, and their results by name."""

    def __init__(self, tasks: Any) -> None:
        self.results: dict[str, ToolResult] = {}
        self._tasks = tasks

    async def start(self, session: Session, tool_name: str, name: str, begun: Callable[[], bool], **more: Any) -> None:
        """Start a call, and return when its tool has begun."""

        async def call() -> None:
            self.results[name] = await session.call(tool_name, {"name": name, **more})

        self._tasks.start_soon(call)
        await until(begun)


def graced(kind: str, grace_s: float) -> Profile:
    preset = Profile.for_kind(kind)
    return preset.replace(limits=preset.limits.replace(grace_s=grace_s))


@pytest.mark.parametrize("name", ["heeds", "heeds_async"])
async def test_a_tool_that_looks_hears_of_its_sessions_close_and_what_it_returns_counts(
    name: str, supervise: Any, workspace: Path
) -> None:
    more = {"tidy_s": 0.3} if name == "heeds" else {}
    async with supervise(CELL_TOOLS) as supervisor, anyio.create_task_group() as tasks:
        session, calls = await supervisor.open_session("main", workspace=workspace), Calls(tasks)
        await calls.start(session, name, "a", (workspace / "a.begun").exists, **more)
        started = time.monotonic()
        await session.close()
        took = time.monotonic() - started
        await until(lambda: "a" in calls.results)
    assert (workspace / "a.tidy").exists() and took > 0.25
    assert calls.results["a"].output == "tidied up"


async def test_a_tool_that_looks_and_goes_on_has_the_grace_and_one_that_does_not_look_has_none(
    supervise: Any, workspace: Path
) -> None:
    async with supervise(CELL_TOOLS) as supervisor, anyio.create_task_group() as tasks:
        calls = Calls(tasks)
        for name, grace_s, least in (("looks_and_goes_on", 0.6, 0.5), ("deaf", 3600.0, 0.0)):
            session = await supervisor.open_session("main", workspace=workspace, profile=graced("main", grace_s))
            await calls.start(session, name, name, (workspace / f"{name}.begun").exists)
            if name == "looks_and_goes_on":
                await until((workspace / f"{name}.running").exists)
            started = time.monotonic()
            await session.close()
            assert time.monotonic() - started >= least
        await until(lambda: len(calls.results) == 2)
    assert all(isinstance(result.error, Cancelled) for result in calls.results.values())
    assert (workspace / "looks_and_goes_on.told").exists()


async def test_the_calls_of_children_have_longer_when_their_parent_closes_and_that_can_be_bounded(
    supervise: Any, workspace: Path
) -> None:
    async with supervise(CELL_TOOLS) as supervisor, anyio.create_task_group() as tasks:
        calls = Calls(tasks)
        for name, tidy_s, grace_s in (("long", 0.7, None), ("short", 3600.0, 0.2)):
            main = await supervisor.open_session("main", workspace=workspace)
            child = await (await main.open_child("branch")).open_child("branch", profile=graced("branch", 0.1))
            await calls.start(child, "heeds", name, (workspace / f"{name}.begun").exists, tidy_s=tidy_s)
            await anyio.sleep(0.1)
            await main.close(grace_s=grace_s)
            assert child.closed
        await until(lambda: len(calls.results) == 2)
        with pytest.raises(UsageError, match="grace_s"):
            await main.close(grace_s=-1)
    assert calls.results["long"].output == "tidied up" and isinstance(calls.results["short"].error, Cancelled)


async def test_the_end_of_the_supervisor_lets_calls_tidy_up_side_by_side(supervise: Any, workspace: Path) -> None:
    async with anyio.create_task_group() as tasks:
        async with supervise(CELL_TOOLS) as supervisor:
            calls = Calls(tasks)
            for name in "abcdef":
                session = await supervisor.open_session("main", workspace=workspace)
                await calls.start(session, "heeds", name, (workspace / f"{name}.begun").exists, tidy_s=1.0)
        await until(lambda: len(calls.results) == 6)
    assert [result.output for result in calls.results.values()] == ["tidied up"] * 6


async def test_a_tool_hears_of_its_deadline_before_it_comes_and_the_deadline_stays(
    supervise: Any, workspace: Path
) -> None:
    async with supervise(CELL_TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, profile=graced("main", 0.2))
        await session.call("heeds", {"name": "warm"}, timeout=0.5)
        assert (await session.call("heeds", {"name": "a"}, timeout=1.5)).output == "tidied up"
        assert 0.0 < float((workspace / "a.tidy").read_text()) <= 0.2, "the grace"
        assert (await session.call("heeds", {"name": "b"}, timeout=0.6)).output == "tidied up"
        assert 0.0 < float((workspace / "b.tidy").read_text()) <= 0.12, "a fifth of the whole time"
        started = time.monotonic()
        assert isinstance((await session.call("looks_and_goes_on", {"name": "c"}, timeout=0.6)).error, Timeout)
        assert time.monotonic() - started >= 0.6 and (workspace / "c.told").exists()


async def test_a_host_tool_hears_of_its_deadline_before_it_comes(supervise: Any, workspace: Path) -> None:
    async with supervise(HOST_TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("heeds_here", {"name": "a"}, timeout=2.0)).output == "tidied up"


async def test_host_tools_end_with_their_session_and_one_that_looks_tidies_up(supervise: Any, workspace: Path) -> None:
    async with supervise(HOST_TOOLS) as supervisor, anyio.create_task_group() as tasks:
        main, calls = await supervisor.open_session("main", workspace=workspace), Calls(tasks)
        child = await main.open_child("branch")
        await calls.start(child, "waits", "a", lambda: "a" in _begun)
        await calls.start(main, "waits", "b", lambda: "b" in _begun)
        await calls.start(child, "heeds_here", "c", lambda: "c" in _begun)
        await main.close()
        assert _ended == {"a", "b", "c"}
        await until(lambda: len(calls.results) == 3)
    assert isinstance(calls.results["a"].error, Cancelled) and isinstance(calls.results["b"].error, Cancelled)
    assert calls.results["c"].output == "tidied up"


async def test_the_caller_of_a_host_tool_in_a_thread_goes_on_at_once_and_the_log_says_that_the_thread_does_too(
    supervise: Any, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    released = threading.Event()

    @host_tool(harmless=True, tier=PermissionTier.READ_ONLY)
    def blocks(name: str) -> None:
        """Block a thread."""
        _begun.add(name)
        released.wait(PATIENCE_S)

    caplog.set_level("INFO", logger="toolcell.tool")
    try:
        async with supervise([blocks]) as supervisor, anyio.create_task_group() as tasks:
            session, calls = await supervisor.open_session("main", workspace=workspace), Calls(tasks)
            await calls.start(session, "blocks", "a", lambda: "a" in _begun)
            await session.close()
            await until(lambda: "a" in calls.results)
            assert isinstance(calls.results["a"].error, Cancelled)
            await until(lambda: "goes on after" in caplog.text)
            released.set()
            await until(lambda: "has ended" in caplog.text)
    finally:
        released.set()


async def test_a_host_tool_that_does_not_let_itself_be_cancelled_does_not_hold_the_close_for_long(
    supervise: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toolcell.sessions.tree.STUBBORN_S", 0.1)
    released = anyio.Event()

    @host_tool(harmless=True, tier=PermissionTier.READ_ONLY)
    async def stays(name: str) -> None:
        """Wait with a shield against cancellation."""
        _begun.add(name)
        with anyio.CancelScope(shield=True):
            await released.wait()

    async with supervise([stays]) as supervisor, anyio.create_task_group() as tasks:
        session, calls = await supervisor.open_session("main", workspace=workspace), Calls(tasks)
        await calls.start(session, "stays", "a", lambda: "a" in _begun)
        with anyio.fail_after(PATIENCE_S):
            await session.close()
        assert "goes on after its session was closed" in caplog.text and not calls.results
        released.set()


async def test_a_host_tool_may_close_its_own_session(supervise: Any, workspace: Path) -> None:
    @host_tool(harmless=True, tier=PermissionTier.READ_ONLY)
    async def closes(ctx: HostContext) -> str:
        """Close the session that called the tool."""
        await ctx.session.close()
        return "closed"

    async with supervise([closes]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        with anyio.fail_after(PATIENCE_S):
            assert (await session.call("closes")).output == "closed"
        assert session.closed


async def test_a_close_that_is_cancelled_or_asked_for_twice_ends_everything_all_the_same(
    supervise: Any, workspace: Path
) -> None:
    async with supervise([*CELL_TOOLS, *HOST_TOOLS]) as supervisor, anyio.create_task_group() as tasks:
        calls = Calls(tasks)
        session = await supervisor.open_session("main", workspace=workspace, profile=graced("main", 20.0))
        await calls.start(session, "looks_and_goes_on", "a", (workspace / "a.running").exists)
        await calls.start(session, "heeds_here", "b", lambda: "b" in _begun)
        tasks.start_soon(session.close)
        await until(lambda: session.closed)
        with anyio.move_on_after(0.1) as impatient:
            await session.close()
        assert impatient.cancelled_caught, "a second close waits for the first"
        tasks.cancel_scope.cancel()
    assert calls.results.keys() <= {"b"}
    assert not core_of(session).children and repr(session).startswith(f"<Session {session.id}")


class Pausing:
    """A hook that waits until the test lets it continue."""

    def __init__(self) -> None:
        self.is_there = anyio.Event()
        self.may_go_on = anyio.Event()

    async def before_call(self, call: ToolCall) -> None:
        self.is_there.set()
        await self.may_go_on.wait()


@pytest.mark.parametrize("name", ["write", "waits"])
async def test_a_call_whose_session_closes_while_a_hook_has_its_time_is_cancelled_and_never_runs(
    name: str, supervise: Any, workspace: Path
) -> None:
    hook, results = Pausing(), list[ToolResult]()
    arguments = {"path": "a.txt", "content": "x"} if name == "write" else {"name": "a"}
    async with supervise([*base_tools(), *HOST_TOOLS], hooks=[hook]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)

        async def call() -> None:
            results.append(await session.call(name, arguments))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await hook.is_there.wait()
            await session.close()
            hook.may_go_on.set()
    assert isinstance(results[0].error, Cancelled) and not _begun and not (workspace / "a.txt").exists()


class Hangs(Hook):
    """A hook that never returns from the method that `where` names."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.there = 0

    async def _hang(self, where: str) -> None:
        if where == self.where:
            self.there += 1
            await anyio.sleep_forever()

    async def before_call(self, call: ToolCall) -> None:
        await self._hang("before")

    async def after_call(self, call: ToolCall, result: ToolResult) -> None:
        await self._hang("after")

    async def on_error(self, call: ToolCall, error: object) -> None:
        await self._hang("error")


@host_tool(harmless=True, tier=PermissionTier.READ_ONLY)
async def answers(name: str) -> str:
    """Answer."""
    return f"secret of {name}"


@pytest.mark.parametrize("where", ["before", "after", "repair"])
async def test_the_close_of_a_tree_of_sessions_ends_hooks_and_repairs_that_never_come_back(
    where: str, supervise: Any, workspace: Path
) -> None:
    hook, results, repairing = Hangs(where), list[ToolResult](), list[object]()

    async def repair(error: object) -> dict[str, Any]:
        repairing.append(error)
        await anyio.sleep_forever()
        raise AssertionError("not reached")

    async def call(session: Session) -> None:
        arguments = {} if where == "repair" else {"name": "a"}
        results.append(await session.call("answers", arguments, repair=repair if where == "repair" else None))

    async with supervise([answers], hooks=[hook]) as supervisor, anyio.create_task_group() as tasks:
        main = await supervisor.open_session("main", workspace=workspace)
        tree = [main]
        for _ in range(4):
            tree.append(await main.open_child("branch"))
            tree += [await tree[-1].open_child("worker") for _ in range(4)]
        for session in tree:
            tasks.start_soon(call, session)
        await until(lambda: hook.there + len(repairing) == len(tree))
        with anyio.fail_after(PATIENCE_S):
            await main.close()
            await until(lambda: len(results) == len(tree))
    assert all(isinstance(result.error, Cancelled) and result.output is None for result in results)


async def test_a_hook_that_is_asked_about_a_call_that_the_close_has_ended_has_the_grace(
    supervise: Any, workspace: Path
) -> None:
    hook, results = Hangs("error"), list[ToolResult]()
    async with supervise(HOST_TOOLS, hooks=[hook]) as supervisor, anyio.create_task_group() as tasks:
        session = await supervisor.open_session("main", workspace=workspace, profile=graced("main", 0.4))

        async def call() -> None:
            results.append(await session.call("waits", {"name": "a"}))

        tasks.start_soon(call)
        await until(lambda: "a" in _begun)
        with anyio.fail_after(PATIENCE_S):
            await session.close()
        await until(lambda: hook.there == 1)
        started = time.monotonic()
        await until(lambda: bool(results))
        assert time.monotonic() - started > 0.3
    assert isinstance(results[0].error, Cancelled) and "withheld" in results[0].error.message


async def test_a_session_closes_in_a_moment_while_its_workspace_is_looked_at_for_long(
    supervise: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, looking, results = ProtectedTree.look, list[int](), list[ToolResult]()
    closed = threading.Event()

    def slow(self: ProtectedTree, *given: Any, **named: Any) -> Any:
        looking.append(1)
        assert closed.wait(PATIENCE_S)
        return look(self, *given, **named)

    monkeypatch.setattr(ProtectedTree, "look", slow)
    async with supervise(base_tools()) as supervisor, anyio.create_task_group() as tasks:
        session = await supervisor.open_session("main", workspace=workspace)

        async def call() -> None:
            results.append(await session.call("write", {"path": "a.txt", "content": "x"}))

        tasks.start_soon(call)
        await until(lambda: bool(looking))
        await session.close()
        closed.set()
    assert isinstance(results[0].error, Cancelled) and not (workspace / "a.txt").exists()


async def test_a_call_whose_session_closes_while_its_arguments_are_repaired_is_cancelled(
    supervise: Any, workspace: Path
) -> None:
    async def repair(error: object) -> dict[str, Any]:
        await session.close()
        return {"path": "a.txt", "content": "x"}

    async with supervise(base_tools()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert isinstance((await session.call("write", {}, repair=repair)).error, Cancelled)
    assert not (workspace / "a.txt").exists()


def replace_workspace(workspace: Path) -> Path:
    """Rename the workspace, and make another directory in its place. Return the old one."""
    old = workspace.with_name(f"old-{os.urandom(4).hex()}")
    workspace.rename(old)
    workspace.mkdir()
    return old


@pytest.mark.parametrize("sequential", [True, False], ids=["its turn", "the one cell"])
async def test_a_call_that_waits_goes_to_the_directory_that_took_the_workspaces_place_meanwhile(
    sequential: bool, supervise: Any, workspace: Path
) -> None:
    results: list[ToolResult] = []

    def note(name: str, seconds: float) -> None:
        """Write a note, and sleep."""
        Path(name).touch()
        time.sleep(seconds)

    noting = tool(note, needs={"write"}, annotations=Annotations(sequential=sequential))
    async with supervise([noting], max_cells=8 if sequential else 1) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)

        async def call(name: str, seconds: float) -> None:
            results.append(await session.call("note", {"name": name, "seconds": seconds}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, "first.txt", 0.4)
            await until((workspace / "first.txt").exists)
            tasks.start_soon(call, "second.txt", 0.0)
            await until(lambda: len(runtime_of(supervisor).pool.waiting) == 1)
            old = replace_workspace(workspace)
    assert [result.error for result in results] == [None, None]
    assert (workspace / "second.txt").exists() and not (old / "second.txt").exists()


async def test_a_call_goes_to_the_directory_that_took_the_workspaces_place_while_protected_names_were_looked_for(
    supervise: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolcell.sessions.protection import Guarded

    entered, olds = Guarded.enter, list[Path]()

    async def enter(self: Guarded, session_id: str, **options: Any) -> Any:
        watch = await entered(self, session_id, **options)
        if not olds and armed:
            olds.append(replace_workspace(workspace))
        return watch

    armed = False
    monkeypatch.setattr(Guarded, "enter", enter)
    async with supervise(base_tools()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("write", {"path": "a.txt", "content": "a"})).error is None
        armed = True
        assert (await session.call("write", {"path": "b.txt", "content": "b"})).error is None
    assert (workspace / "b.txt").read_text() == "b" and not (olds[0] / "b.txt").exists()


@pytest.mark.parametrize("times", [MOST_SUBMISSIONS - 1, MOST_SUBMISSIONS])
async def test_a_call_whose_workspace_is_replaced_again_and_again_follows_it_so_often_and_no_more(
    times: int, supervise: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolcell.sessions.protection import Guarded

    entered, ways = Guarded.enter, list[Path]()

    async def enter(self: Guarded, session_id: str, **options: Any) -> Any:
        watch = await entered(self, session_id, **options)
        ways.append(replace_workspace(workspace) if len(ways) < times else workspace)
        return watch

    monkeypatch.setattr(Guarded, "enter", enter)
    async with supervise(base_tools()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        result = await session.call("write", {"path": "a.txt", "content": "a"})
    assert len(ways) == MOST_SUBMISSIONS and (workspace / "a.txt").exists() == (times < MOST_SUBMISSIONS)
    assert (result.error is None) == (times < MOST_SUBMISSIONS)
    if result.error is not None:
        assert isinstance(result.error, Overloaded) and result.error.retryable


def test_the_blocking_api_bounds_the_grace_too(workspace: Path) -> None:
    with toolcell.blocking.Supervisor(CELL_TOOLS) as supervisor:
        session = supervisor.open_session(SessionKind.MAIN, workspace=workspace)
        session.close(grace_s=0)
        with pytest.raises(UsageError):
            session.call("deaf", {"name": "a"})
    assert Limits().grace_s == 2.0
