"""Host tools: in the supervisor's own process, with the same pipeline."""

import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest

from toolcell import (
    Annotations,
    Capability,
    ExecutionError,
    HostContext,
    LimitExceeded,
    PermissionDenied,
    PermissionTier,
    SessionKind,
    TierPolicy,
    Timeout,
    ToolDefinitionError,
    ToolFailure,
    ToolResult,
    base_tools,
    dynamic_host_tool,
    host_tool,
)
from toolcell.session import core_of
from toolcell_tools import TextBlock

pytestmark = pytest.mark.anyio


@host_tool
async def where(ctx: HostContext) -> list[Any]:
    """Return the place where the tool runs."""
    ctx.values["was"] = "here"
    return [os.getpid(), threading.current_thread() is threading.main_thread(), ctx.agent_id]


@host_tool
def blocking(seconds: float) -> int:
    """Block a thread."""
    time.sleep(seconds)
    return threading.get_ident()


async def test_host_tools_that_hang_keep_nobody_else_waiting(
    supervise: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcell.runtime.runtime.MAX_HOST_THREADS", 2)
    released = threading.Event()

    @host_tool
    def hanging() -> None:
        released.wait(60)

    async with supervise([hanging, *base_tools()]) as supervisor:
        session = await supervisor.open_session(SessionKind.MAIN, workspace=workspace)
        try:
            for _ in range(2):
                assert isinstance((await session.call("hanging", timeout=0.05)).error, Timeout)
            limiter = anyio.to_thread.current_default_thread_limiter()
            assert limiter.borrowed_tokens == 0
            assert (await session.call("write", {"path": "a.txt", "content": "x"})).error is None
        finally:
            released.set()


@host_tool(tier=PermissionTier.SYSTEM)
async def ask_helper(ctx: HostContext, path: str) -> str:
    """Make a Worker read a file: an agent as a tool."""
    child = await ctx.session.open_child(SessionKind.WORKER)
    try:
        result: ToolResult = await child.call("read", {"path": path})
        return str(result.unwrap())
    finally:
        await child.close()


@host_tool
async def fails(how: str) -> str:
    """Fail."""
    if how == "failure":
        raise ToolFailure("no such user", {"known": 3})
    if how == "data":
        raise ToolFailure("no such user", object())
    if how == "unencodable":
        return object()  # type: ignore[return-value]
    raise ValueError("broken")


@host_tool
async def reports(ctx: HostContext) -> float:
    """Report the progress."""
    ctx.progress("half", 0.5)
    ctx.log("noted", colour="red")
    return ctx.remaining()


@host_tool(timeout=0.1)
async def sleeps() -> None:
    """Sleep for a long time."""
    await anyio.sleep(60)


_here: set[str] = set()


@host_tool(annotations=Annotations(sequential=True))
async def one_at_a_time(name: str) -> list[str]:
    """Return the names of the calls that run at the same time."""
    _here.add(name)
    try:
        await anyio.sleep(0.05)
        return sorted(_here)
    finally:
        _here.discard(name)


TOOLS = [one_at_a_time, where, blocking, ask_helper, fails, reports, sleeps, *base_tools()]


async def test_it_runs_here_and_its_declaration_says_so(supervise: Any, workspace: Path) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        result = await session.call("where")
        assert result.output == [os.getpid(), True, "agent"]
        assert session.values == {"was": "here"}
        declared = {one.name: one for one in await session.tools()}
    assert declared["where"].placement == "host" and declared["read"].placement == "cell"


async def test_a_synchronous_one_does_not_hold_the_loop(supervise: Any, workspace: Path) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        beats = 0
        async with anyio.create_task_group() as tasks:

            async def beat() -> None:
                nonlocal beats
                while True:
                    beats += 1
                    await anyio.sleep(0.01)

            tasks.start_soon(beat)
            result = await session.call("blocking", {"seconds": 0.3})
            tasks.cancel_scope.cancel()
        assert result.output != threading.get_ident() and beats > 5


async def test_a_worker_can_call_only_a_host_tool_that_is_harmless(supervise: Any, workspace: Path) -> None:
    made: list[str] = []

    @host_tool
    def save() -> None:
        """Save."""
        made.append("a file")

    @host_tool(harmless=True)
    def now() -> str:
        """Tell the time."""
        return "noon"

    tools = [save, now, dynamic_host_tool("forward", handler=lambda arguments: made.append("a request"))]
    async with supervise(tools) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace)
        worker = await main.open_child("worker")
        assert [one.name for one in await worker.tools()] == ["now"]
        for name in ("save", "forward"):
            error = (await worker.call(name)).error
            assert isinstance(error, PermissionDenied) and error.missing == (Capability.EXEC,)
        assert not made
        assert (await worker.call("now")).unwrap() == "noon"
        assert (await main.call("save")).error is None and made == ["a file"]


async def test_an_agent_as_a_tool_opens_a_session_of_its_own(supervise: Any, workspace: Path) -> None:
    (workspace / "a.txt").write_text("hello\n")
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert "hello" in (await session.call("ask_helper", {"path": "a.txt"})).output
        assert core_of(session).living_children == 0


async def test_a_question_to_the_user_is_one_that_waits_for_them(supervise: Any, workspace: Path) -> None:
    questions, answers = anyio.create_memory_object_stream[str](1), anyio.create_memory_object_stream[str](1)

    @host_tool(harmless=True, tier=PermissionTier.READ_ONLY, timeout=300)
    async def ask_user(question: str) -> str:
        """Ask the user."""
        await questions[0].send(question)
        return await answers[1].receive()

    async def user() -> None:
        assert await questions[1].receive() == "which one?"
        await answers[0].send("the blue one")

    async with supervise([ask_user]) as supervisor, anyio.create_task_group() as tasks:
        session = await supervisor.open_session("main", workspace=workspace)
        tasks.start_soon(user)
        assert (await session.call("ask_user", {"question": "which one?"})).output == "the blue one"
    for stream in (*questions, *answers):
        stream.close()


async def test_what_it_raises_is_an_error_result(supervise: Any, workspace: Path) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        failure = (await session.call("fails", {"how": "failure"})).error
        assert isinstance(failure, ExecutionError)
        assert (failure.message, failure.data) == ("no such user", {"known": 3})
        odd = (await session.call("fails", {"how": "data"})).error
        assert isinstance(odd, ExecutionError) and "could not be sent" in odd.data
        broken = (await session.call("fails", {"how": "x"})).error
        assert isinstance(broken, ExecutionError) and broken.message == "ValueError: broken"
        assert "Traceback" not in broken.model_dump_json()
        assert "Traceback" in supervisor.journal.of(kind="call")[-1].data["traceback"]
        assert isinstance((await session.call("fails", {"how": "unencodable"})).error, ExecutionError)
        assert (await session.call("where")).error is None


async def test_values_that_are_too_large_are_its_own_failure(supervise: Any, workspace: Path) -> None:
    @host_tool
    async def hoard(ctx: HostContext) -> None:
        """Store too much."""
        ctx.values["much"] = "x" * 100_000

    async with supervise([hoard]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        error = (await session.call("hoard")).error
        assert isinstance(error, ExecutionError) and "65,536 bytes" in error.message
        assert session.values == {}


async def test_its_deadline_holds(supervise: Any, workspace: Path) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for name, args, timeout in (("sleeps", {}, None), ("blocking", {"seconds": 1.0}, 0.1)):
            error = (await session.call(name, args, timeout=timeout)).error
            assert isinstance(error, Timeout) and error.elapsed > 0.05


async def test_it_reports(supervise: Any, workspace: Path) -> None:
    heard: list[tuple[str, float | None]] = []
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        result = await session.call("reports", timeout=5, on_progress=lambda *told: heard.append(told))
        assert 0 < result.output <= 5 and heard == [("half", 0.5)]
        (record,) = supervisor.journal.of(kind="log")
        assert record.data["fields"] == {"colour": "red"}


async def test_the_policy_holds_for_it_too(supervise: Any, workspace: Path) -> None:
    async with supervise(TOOLS, policy=TierPolicy(system="deny")) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert isinstance((await session.call("ask_helper", {"path": "a.txt"})).error, PermissionDenied)
        error = (await session.call("where", {"surplus": 1})).error
        assert error is not None and error.kind == "validation"


async def test_cancelling_the_caller_cancels_it(supervise: Any, workspace: Path) -> None:
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        with anyio.move_on_after(0.1) as scope:
            await session.call("sleeps", timeout=30)
        assert scope.cancelled_caught


async def test_a_sequential_one_never_runs_beside_itself(supervise: Any, workspace: Path) -> None:
    found: list[list[str]] = []
    async with supervise(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)

        async def call(name: str) -> None:
            found.append((await session.call("one_at_a_time", {"name": name})).output)

        async with anyio.create_task_group() as tasks:
            for name in ("a", "b", "c"):
                tasks.start_soon(call, name)
    assert sorted(found) == [["a"], ["b"], ["c"]]


def test_it_takes_no_handles() -> None:
    with pytest.raises(ToolDefinitionError, match="host"):
        host_tool(blocking.fn, uses={Capability.EXEC})


class Client:
    """The client of a tool server, as for MCP: it has the schemas, and forwards calls by name."""

    TOOLS: ClassVar[dict[str, Any]] = {
        "area": {"type": "object", "properties": {"r": {"type": "number", "minimum": 0}}, "required": ["r"]},
        "wait": {"type": "object"},
        "refuse": {"type": "object"},
    }

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any], int]] = []

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        self.calls.append((name, arguments, os.getpid()))
        if name == "wait":
            await anyio.sleep(60)
        if name == "refuse":
            raise ToolFailure("not today", {"code": 3})
        return {"area": 3 * arguments["r"] ** 2} if arguments["r"] < 10 else "much"


OUTPUT = {"type": "object", "properties": {"area": {"type": "number"}}, "required": ["area"]}


def tools_of(client: Client) -> list[Any]:
    return [
        dynamic_host_tool(
            name,
            parameters=schema,
            description="Of a server.",
            handler=partial(client.call_tool, name),
            success=OUTPUT,
            failure={"type": "object", "required": ["code"]},
            failure_mode="return",
            timeout=0.2 if name == "wait" else None,
        )
        for name, schema in client.TOOLS.items()
    ]


async def test_the_tools_of_a_client_run_here_with_the_schemas_that_they_came_with(
    supervise: Any, workspace: Path
) -> None:
    client = Client()
    async with supervise(tools_of(client)) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        declared = {one.name: one for one in await session.tools()}
        assert {name: one.parameters_schema for name, one in declared.items()} == client.TOOLS
        assert {one.placement for one in declared.values()} == {"host"}
        assert (await session.call("area", {"r": 2})).output == {"area": 12}
        refused = (await session.call("area", {"r": -1})).error
        assert refused is not None and refused.kind == "validation" and refused.field == "r"
        assert client.calls == [("area", {"r": 2}, os.getpid())], "what does not fit is never forwarded"
        misfit = (await session.call("area", {"r": 10})).error
        assert isinstance(misfit, ExecutionError) and "what its output schema does not allow" in misfit.message
        assert isinstance((await session.call("wait")).error, Timeout)
        assert (await session.call("refuse")).unwrap() == {"failure": {"code": 3}}


async def test_a_lambda_that_gives_a_coroutine_is_awaited(supervise: Any, workspace: Path) -> None:
    client = Client()
    area = dynamic_host_tool("area", handler=lambda arguments: client.call_tool("area", arguments))
    async with supervise([area]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("area", {"r": 1})).output == {"area": 3}


async def test_its_results_are_bounded_as_those_of_cells_are(supervise: Any, workspace: Path) -> None:
    """Here the bounds are 1 MiB, a million elements, 64 levels and 10,000 blocks. A result over `model_bytes` is also
    written to a file.
    """
    deep: list[Any] = []
    for _ in range(70):
        deep = [deep]
    given = {
        "large": "x" * 2 * 2**20,
        "many": [0] * 1_000_001,
        "deep": deep,
        "blocks": ToolResult(content=[TextBlock(text="")] * 10_001),
        "data": None,
        "long": "x" * 200_000,
    }

    @host_tool
    async def give(which: str) -> Any:
        """Give."""
        if which == "data":
            raise ToolFailure("too much", "x" * 2 * 2**20)
        return given[which]

    async with supervise([give]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for which in ("large", "data"):
            error = (await session.call("give", {"which": which})).error
            assert isinstance(error, LimitExceeded) and (error.resource, error.limit) == ("result", 2**20)
        for which, said in (("many", "1,000,000 elements"), ("deep", "64 deep"), ("blocks", "at most 10,000")):
            error = (await session.call("give", {"which": which})).error
            assert isinstance(error, ExecutionError) and said in error.message
        long = await session.call("give", {"which": "long"})
        assert long.unwrap() == given["long"] and long.artifacts[0].read() == b"x" * 200_000
