"""Whatever the program's code raises or cancels, `call` returns a result; only its caller's own cancellation passes."""

import asyncio
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pydantic
import pytest
import trio
from tests.helpers import until

from toolcell import (
    HostContext,
    PermissionTier,
    Session,
    SessionInfo,
    Supervisor,
    TierPolicy,
    ToolCall,
    ToolContext,
    ToolResult,
    agent_tool,
    base_tools,
    blocking,
    host_tool,
    tool,
)
from toolcell.adapters.session_calls import SessionCalls
from toolcell.testing import DictWeb, ListChannel, ListMemory
from toolcell_tools.toolsets import Toolset

pytestmark = pytest.mark.anyio
Supervise = Callable[..., Supervisor]


class Other(BaseException):
    """No Exception."""


async def await_a_cancelled_task() -> None:
    """Raise the cancellation of something that is not the caller."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        caught: BaseException | None = None
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as error:
                caught = error
        assert caught is not None
        raise caught from None
    task = loop.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    task.cancel()
    await task


async def in_a_group() -> None:
    try:
        await await_a_cancelled_task()
    except BaseException as error:
        raise BaseExceptionGroup("both", [ValueError("x"), error]) from None


async def raise_other() -> None:
    raise Other("out")


async def raise_cancelled() -> None:
    raise asyncio.CancelledError("of nobody")


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def raise_broken() -> None:
    raise Broken


FAILURES: Mapping[str, tuple[Callable[[], Awaitable[None]], BaseException]] = {
    "awaits a cancelled task": (await_a_cancelled_task, asyncio.CancelledError("of nobody")),
    "raises a group with a cancellation": (in_a_group, BaseExceptionGroup("both", [asyncio.CancelledError()])),
    "raises CancelledError": (raise_cancelled, asyncio.CancelledError("of nobody")),
    "raises a BaseException": (raise_other, Other("out")),
    "raises an exception without a text": (raise_broken, Broken()),
}
"""What code that is awaited does, and what code that is not awaited raises."""


class Place(pydantic.BaseModel):
    """Input of a host tool whose validator is the program's code."""

    text: str

    @pydantic.field_validator("text")
    @classmethod
    def checked(cls, text: str) -> str:
        raise FAILURES[text][1]


class Failing:
    """The program's code in each place that a call may reach. Calls of other tools are left alone."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.soon, self.error = FAILURES[how]

    def now(self, *about: object) -> Any:
        raise self.error

    def tools(self) -> list[Any]:
        @host_tool
        async def host() -> None:
            await self.soon()

        @host_tool
        def host_in_a_thread() -> None:
            self.now()

        @host_tool
        def host_validator(place: Place) -> None:
            pass

        @host_tool
        async def host_that_reports(ctx: HostContext) -> str:
            ctx.progress("half")
            ctx.log("noted")
            return "fine"

        @host_tool
        async def hooked(before: bool) -> str:
            return "fine"

        @host_tool
        async def hooked_error() -> None:
            raise ValueError("x")

        async def run(session: Session, request: str) -> str:
            await self.soon()
            return "never"

        @tool
        def needs_repair(number: int) -> int:
            return number

        @tool(tier=PermissionTier.ELEVATED)
        def asks() -> str:
            return "fine"

        @tool
        def refused_by_policy() -> str:
            return "fine"

        @tool(requires_approval=lambda arguments: self.now())
        def asks_its_predicate() -> str:
            return "fine"

        @tool(uses={"write"}, mutates=lambda arguments: self.now())
        def asks_whether_it_mutates() -> str:
            return "fine"

        @tool
        def reports(ctx: ToolContext) -> str:
            print("printed")
            ctx.progress("half")
            ctx.log("noted")
            return "fine"

        return [
            *(host, host_in_a_thread, host_validator, host_that_reports, hooked, hooked_error, needs_repair, asks),
            *(refused_by_policy, asks_its_predicate, asks_whether_it_mutates, reports),
            agent_tool(run, name="agent"),
            *base_tools(),
        ]


class Hooks:
    def __init__(self, failing: Failing) -> None:
        self._failing = failing

    async def before_call(self, call: ToolCall) -> None:
        if call.tool == "hooked" and call.arguments["before"]:
            await self._failing.soon()

    async def after_call(self, call: ToolCall, result: ToolResult) -> None:
        if call.tool == "hooked":
            await self._failing.soon()

    async def on_error(self, call: ToolCall, error: object) -> None:
        if call.tool == "hooked_error":
            await self._failing.soon()


class Policy:
    def __init__(self, failing: Failing) -> None:
        self._failing = failing
        self._others = TierPolicy()

    def decide(self, call: ToolCall, declaration: Any, session: Any) -> Any:
        decide = self._failing.now if call.tool == "refused_by_policy" else self._others.decide
        return decide(call, declaration, session)


class Memory(ListMemory):
    def __init__(self, failing: Failing) -> None:
        super().__init__()
        self._failing = failing

    async def search(self, query: str, *, limit: int, namespace: str) -> Any:
        await self._failing.soon()

    async def store(self, record: Any, *, namespace: str) -> Any:
        await self._failing.soon()


class Web(DictWeb):
    def __init__(self, failing: Failing) -> None:
        super().__init__({})
        self._failing = failing

    async def fetch(self, url: str, *, max_bytes: int) -> Any:
        await self._failing.soon()


class FailingChannel(ListChannel):
    def __init__(self, failing: Failing) -> None:
        super().__init__()
        self._failing = failing

    async def send(self, text: str, *, sender: str) -> Any:
        await self._failing.soon()

    async def approve(self, request: object) -> Any:
        await self._failing.soon()


class Tools(Toolset):
    """Tools that cannot be resolved as soon as `failing` is set."""

    def __init__(self) -> None:
        self.failing: Failing | None = None

    @property
    def name(self) -> str:
        return "mine"

    async def tools(self, session: SessionInfo) -> Sequence[Any]:
        if self.failing is not None:
            await self.failing.soon()
        return []


class NoTelemetry:
    def __init__(self, failing: Failing) -> None:
        self._failing = failing

    def begin(self, *about: object) -> Any:
        self._failing.now()


EXPECTED = {
    ("host", ""): "execution",
    ("host_in_a_thread", ""): "execution",
    ("host_validator", "place"): "execution",
    ("hooked", "before"): "permission_denied",
    ("hooked", "after"): "permission_denied",
    ("hooked_error", ""): "permission_denied",
    ("agent", "request"): "execution",
    ("asks", ""): "permission_denied",
    ("refused_by_policy", ""): "permission_denied",
    ("asks_its_predicate", ""): "permission_denied",
    ("asks_whether_it_mutates", ""): "permission_denied",
    ("message", "text"): "execution",
    ("memory_search", "query"): "execution",
    ("memory_store", "store"): "execution",
    ("web_fetch", "url"): "execution",
    ("not_there", ""): "unknown_tool",
}
"""The error of each place."""


def arguments_of(argument: str, how: str) -> dict[str, Any]:
    given: dict[str, dict[str, Any]] = {
        "": {},
        "place": {"place": {"text": how}},
        "before": {"before": True},
        "after": {"before": False},
        "url": {"url": "https://example.org/"},
        "store": {"text": "a"},
    }
    return given.get(argument, {argument: "a"})


@pytest.mark.parametrize("how", FAILURES)
async def test_no_code_of_the_program_makes_a_call_raise_or_another_call_of_its_batch_fail(
    supervise: Supervise, workspace: Path, how: str
) -> None:
    failing, toolset = Failing(how), Tools()
    options: dict[str, Any] = {
        "hooks": [Hooks(failing)],
        "policy": Policy(failing),
        "toolsets": [toolset],
        "telemetry": NoTelemetry(failing),
    }
    (workspace / "a.txt").write_text("kept")
    async with supervise(failing.tools(), **options) as supervisor:
        backends: dict[str, Any] = {
            "memory": Memory(failing),
            "web": Web(failing),
            "channel": FailingChannel(failing),
        }
        session = await supervisor.open_session("main", workspace=workspace, **backends)
        toolset.failing = failing
        calls = [(name, arguments_of(argument, how)) for name, argument in EXPECTED]
        with anyio.fail_after(90):
            batch = await session.call_many([*calls, ("read", {"path": "a.txt"})])
            found = {key: result.error and result.error.kind for key, result in zip(EXPECTED, batch, strict=False)}
            assert found == EXPECTED
            assert batch[-1].error is None
            await every_listener_and_repair(session, failing)


async def every_listener_and_repair(session: Session, failing: Failing) -> None:
    async def soon(*said: object) -> None:
        await failing.soon()

    def now(*said: object) -> None:
        failing.now()

    repaired = await session.call("needs_repair", {"number": "x"}, repair=soon)  # type: ignore[arg-type]
    assert repaired.error is not None
    assert repaired.error.kind == "validation"
    for name in ("reports", "host_that_reports"):
        for listener in (soon, now):
            options: dict[str, Any] = {"on_progress": listener, "on_output": listener, "on_log": now}
            assert (await session.call(name, {}, **options)).unwrap() == "fine"


@host_tool
async def cancels_its_task() -> None:
    """Cancel the task that runs it."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


@host_tool
async def waits_for_a_cancelled_task() -> None:
    """Await a task that somebody has cancelled."""
    await await_a_cancelled_task()


@host_tool
def exits() -> None:
    """Raise SystemExit in a thread."""
    raise SystemExit(3)


@host_tool
async def fine() -> str:
    """Return a text."""
    return "fine"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_tool_that_cancels_its_own_task_ends_only_its_call_of_a_batch_and_of_a_started_task(
    supervise: Supervise, workspace: Path
) -> None:
    async with supervise([cancels_its_task, fine]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        batch = await session.call_many([("cancels_its_task", {}), ("fine", {})])
        assert [result.error and result.error.kind for result in batch] == ["cancelled", None]
        task = session.start("cancels_its_task")
        with anyio.fail_after(60):
            result = await task.result()
        assert result.error is not None
        assert result.error.kind == "cancelled"
        assert (await session.call("fine")).error is None


@host_tool
async def takes_its_cancellation_back() -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    task.uncancel()
    return "fine"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancellation_that_a_tool_takes_back_does_not_leave_its_call(
    supervise: Supervise, workspace: Path
) -> None:
    @tool
    def number(value: int) -> int:
        return value

    async def repair(error: object) -> dict[str, Any]:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        task.uncancel()
        return {"value": 1}

    async with supervise([takes_its_cancellation_back, number]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("takes_its_cancellation_back")).unwrap() == "fine"
        assert (await session.call("number", {"value": "x"}, repair=repair)).unwrap() == 1
        task = asyncio.create_task(session.call("takes_its_cancellation_back"))
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_tool_that_cancels_its_own_task_does_not_end_the_calls_of_its_batch_that_still_run(
    supervise: Supervise, workspace: Path
) -> None:
    @tool
    def outlasts_it() -> str:
        time.sleep(0.5)
        return "fine"

    async with supervise([cancels_its_task, outlasts_it]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        batch = await session.call_many([("outlasts_it", {}), ("cancels_its_task", {}), ("outlasts_it", {})])
        assert [result.error and result.error.kind for result in batch] == [None, "cancelled", None]


class Unreadable(dict[str, Any]):
    """Data whose items cannot be read."""

    def __iter__(self) -> Any:
        raise Other("items")

    keys = items = __iter__


class Untellable(BaseException):
    """An exception without a text."""

    def __str__(self) -> str:
        raise Other("text")


async def test_data_that_cannot_be_read_and_exceptions_that_cannot_be_told_are_error_results(
    supervise: Supervise, workspace: Path
) -> None:
    @host_tool
    def ends_a_generator_in_a_thread() -> None:
        raise GeneratorExit

    @host_tool
    async def untellable() -> None:
        raise Untellable

    @tool
    def number(value: int) -> int:
        return value

    async def repair(error: object) -> dict[str, Any]:
        return Unreadable(value=1)

    async with supervise([ends_a_generator_in_a_thread, untellable, number]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for name in ("ends_a_generator_in_a_thread", "untellable"):
            error = (await session.call(name)).error
            assert error is not None
            assert error.kind == "execution"
        error = (await session.call("number", {"value": "x"}, repair=repair)).error
        assert error is not None
        assert error.kind == "validation"
        assert (await session.call("number", {"value": 1})).unwrap() == 1


async def test_started_tasks_and_adapters_have_the_error_too(supervise: Supervise, workspace: Path) -> None:
    async with supervise([waits_for_a_cancelled_task]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        with anyio.fail_after(60):
            started = await session.start("waits_for_a_cancelled_task").result()
            adapted = await SessionCalls(session).call("waits_for_a_cancelled_task", {})
        for result in (started, adapted):
            assert result.error is not None
            assert result.error.kind == "execution"


async def test_an_exit_in_a_thread_is_an_error_result(supervise: Supervise, workspace: Path) -> None:
    async with supervise([exits]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        error = (await session.call("exits")).error
        assert error is not None
        assert (error.kind, error.message) == ("execution", "SystemExit: 3")


def test_callers_without_await_have_the_error_too(workspace: Path) -> None:
    @host_tool
    async def leaves(how: str) -> None:
        """Raise what is no Exception."""
        raise SystemExit(3) if how == "exit" else asyncio.CancelledError

    def on_progress(message: str, fraction: float | None) -> None:
        raise SystemExit(3)

    @host_tool
    async def progresses(ctx: HostContext) -> str:
        """Report progress."""
        ctx.progress("half")
        return "fine"

    with blocking.Supervisor([leaves, waits_for_a_cancelled_task, progresses, exits]) as supervisor:
        session = supervisor.open_session("main", workspace=workspace)
        said = {
            how: result.error and result.error.message
            for how in ("exit", "cancel")
            if (result := session.call("leaves", {"how": how}))
        }
        assert said == {"exit": "SystemExit: 3", "cancel": "CancelledError"}
        batch = session.call_many([("waits_for_a_cancelled_task", {}), ("exits", {}), ("progresses", {})])
        assert [result.error and result.error.kind for result in batch] == ["execution", "execution", None]
        assert session.call("progresses", on_progress=on_progress).unwrap() == "fine"


@pytest.mark.parametrize(("raised", "code"), [("SystemExit(3)", 3), ("KeyboardInterrupt", -2)])
def test_an_exit_of_the_main_thread_and_an_interrupt_end_the_program(raised: str, code: int, workspace: Path) -> None:
    program = f"""
        import asyncio, signal
        from toolcell import Supervisor, host_tool

        @host_tool
        async def leaves() -> None:
            "Leave."
            raise {raised}

        async def main():
            async with Supervisor([leaves]) as supervisor:
                session = await supervisor.open_session("main", workspace={str(workspace)!r})
                await session.call("leaves")
                print("went on")

        asyncio.run(main())
        """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=100)
    assert (ran.returncode, ran.stdout) == (code, ""), ran.stderr


class Waits:
    """Code of the program that waits, and what it does with its cancellation."""

    def __init__(self, then: str) -> None:
        self.then = then
        self.has_begun = False

    async def wait(self) -> None:
        self.has_begun = True
        try:
            await anyio.sleep(600)
        except BaseException:
            if self.then == "foreign":
                await await_a_cancelled_task()
            if self.then == "raise":
                raise ValueError("during the cancellation") from None
            if self.then == "pass":
                raise

    def tool(self) -> Any:
        @host_tool(timeout=600)
        async def waits() -> str:
            await self.wait()
            return "swallowed"

        return waits

    async def before_call(self, call: ToolCall) -> None:
        if call.tool == "fine":
            await self.wait()

    async def after_call(self, call: ToolCall, result: ToolResult) -> None:
        if call.tool == "read":
            await self.wait()

    async def approve(self, request: object) -> Any:
        await self.wait()


THEN = ["pass", "foreign", "raise", "swallow"]
PLACES = ["waits", "fine", "read", "asks", "repair"]


@tool(tier=PermissionTier.ELEVATED)
def asks() -> str:
    """Ask."""
    return "fine"


async def called(session: Session, place: str, waits: Waits) -> ToolResult:
    async def repair(error: object) -> dict[str, Any]:
        await waits.wait()
        return {}

    if place == "repair":
        return await session.call("read", {"path": 1}, repair=repair)
    return await session.call(place, {"path": "a.txt"} if place == "read" else {})


@asynccontextmanager
async def waiting(supervise: Supervise, workspace: Path) -> AsyncGenerator[tuple[Session, Waits]]:
    """A session in which each place of PLACES waits, and what waits there."""
    (workspace / "a.txt").write_text("kept")
    waits = Waits("")
    async with supervise(
        [waits.tool(), fine, asks, *base_tools()], hooks=[waits], approver=waits, hook_timeout_s=600
    ) as supervisor:
        yield await supervisor.open_session("main", workspace=workspace), waits


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("place", PLACES)
async def test_the_cancellation_of_the_callers_task_passes_whatever_the_code_does_with_it(
    supervise: Supervise, workspace: Path, place: str
) -> None:
    async with waiting(supervise, workspace) as (session, waits):
        for waits.then in THEN:
            waits.has_begun = False
            task = asyncio.create_task(called(session, place, waits))
            await until(lambda: waits.has_begun)
            task.cancel()
            await asyncio.wait([task], timeout=60)
            assert task.cancelled(), waits.then
            waits.has_begun, seconds = False, 0.2
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(seconds):
                    await called(session, place, waits)


@pytest.mark.parametrize("place", PLACES)
async def test_the_cancellation_of_a_scope_around_the_call_passes_whatever_the_code_does_with_it(
    supervise: Supervise, workspace: Path, place: str
) -> None:
    async with waiting(supervise, workspace) as (session, waits):
        for waits.then in THEN:
            waits.has_begun = False
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(called_and_cancelled, session, place, waits)
                await until(lambda: waits.has_begun)
                tasks.cancel_scope.cancel()


async def called_and_cancelled(session: Session, place: str, waits: Waits) -> None:
    await called(session, place, waits)
    await anyio.lowlevel.checkpoint()
    raise AssertionError("the cancellation was lost")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_has_caught_an_earlier_cancellation_has_the_error_of_its_tool(
    supervise: Supervise, workspace: Path
) -> None:
    async with supervise([waits_for_a_cancelled_task, fine]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)

        async def cleans_up() -> str:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                error = (await session.call("waits_for_a_cancelled_task")).error
                return "none" if error is None else error.kind
            return "not cancelled"

        async def cancels_itself() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await session.call("fine")

        task = asyncio.create_task(cleans_up())
        await asyncio.sleep(0)
        task.cancel()
        assert await task == "execution"
        task = asyncio.create_task(cancels_itself())  # type: ignore[arg-type]
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_the_deadline_of_a_tool_that_fails_at_it_is_its_error(supervise: Supervise, workspace: Path) -> None:
    waits = Waits("foreign")
    async with supervise([waits.tool()]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        error = (await session.call("waits", timeout=0.2)).error
        assert error is not None
        assert error.kind == "timeout"
