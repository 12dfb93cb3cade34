"""A call through the supervisor: validation and repair, unknown names, keys, progress, deadlines, the result."""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel, Field
from tests import misbehaving
from tests.helpers import PATIENCE_S

import toolcell.blocking
from toolcell import (
    BackendError,
    Cancelled,
    Capability,
    ExecutionError,
    MemoryRecord,
    RecentJournal,
    Session,
    Supervisor,
    Timeout,
    Tool,
    ToolContext,
    ToolFailure,
    UnknownTool,
    UsageError,
    ValidationError,
    tool,
)
from toolcell.session import core_of
from toolcell.testing.backends import ListChannel, ListMemory

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


class Address(BaseModel):
    """A street address."""

    street: str
    number: int = Field(ge=1)


def post(address: Address, copies: Annotated[int, Field(ge=1, le=10)] = 1, tags: list[str] | None = None) -> Address:
    """Return the address of the house next door."""
    assert type(address) is Address
    return Address(street=address.street, number=address.number + copies)


def attempts(ctx: ToolContext, number: int) -> list[int]:
    """Return the number of this attempt, and `number`."""
    return [ctx.attempt, number]


def threads_in_a_fork() -> list[int]:
    """Return how many threads this process has, and how many a forked child counts for itself."""
    done = threading.Event()
    threading.Thread(target=done.wait, daemon=True).start()
    child = os.fork()
    if child == 0:
        os._exit(threading.active_count())
    counts = [threading.active_count(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
    done.set()
    return counts


def count(ctx: ToolContext, fail: bool = False, seconds: float = 0.0) -> int:
    """Add a line to the workspace's file "count". Return the number of lines."""
    path = ctx.workspace_root / "count"
    with open(path, "a") as file:
        file.write("x\n")
    time.sleep(seconds)
    if fail:
        raise ToolFailure("not this time", {"code": 17})
    return len(path.read_text().splitlines())


def report(ctx: ToolContext, steps: int) -> str:
    """Report each step."""
    for step in range(steps):
        ctx.progress(f"step {step}", (step + 1) / steps)
    ctx.log("done with it", level="warning", steps=steps)
    return "reported"


def echo_aloud(text: str) -> None:
    """Print the text."""
    print(text)


def time_left(ctx: ToolContext) -> float:
    """Return the remaining seconds."""
    return ctx.remaining()


async def search_many(ctx: ToolContext, queries: int) -> int:
    """Make `queries` concurrent searches of memory. Return how many records they found in all."""
    import asyncio

    assert ctx.memory is not None
    found = await asyncio.gather(*(ctx.memory.asearch(f"query {number}", 1) for number in range(queries)))
    assert [records[0].text for records in found] == [f"query {number}" for number in range(queries)]
    return len(found)


def search_in_threads(ctx: ToolContext, queries: int) -> list[str]:
    """Search memory from eight threads."""
    from concurrent.futures import ThreadPoolExecutor

    memory = ctx.memory
    assert memory is not None
    with ThreadPoolExecutor(8) as threads:
        return [found[0].text for found in threads.map(lambda n: memory.search(f"query {n}", 1), range(queries))]


def talk(ctx: ToolContext, text: str) -> str:
    """Send a message. Return "sent", or the error."""
    assert ctx.channel is not None
    try:
        ctx.channel.send(text)
    except ToolFailure as failure:
        return failure.message
    return "sent"


WRITE, MEMORY, CHANNEL = {Capability.WRITE}, {Capability.MEMORY_READ}, {Capability.CHANNEL}
TOOLS: list[Tool[..., Any] | Callable[..., Any]] = [
    post,
    attempts,
    tool(count, needs=WRITE),
    report,
    echo_aloud,
    time_left,
    tool(misbehaving.sleep_for_ever, timeout=0.3),
    tool(search_many, needs=MEMORY),
    tool(search_in_threads, needs=MEMORY),
    tool(talk, needs=CHANNEL),
    misbehaving.raise_an_exception,
    misbehaving.echo,
]

# -- validation and repair ---------------------------------------------------------------------------------------------

WRONG: list[tuple[Any, str | None]] = [
    ({}, "address"),
    ({"address": {"street": "Elm"}}, "address.number"),
    ({"address": {"street": "Elm", "number": "three"}}, "address.number"),
    ({"address": {"street": "Elm", "number": 0}}, "address.number"),
    ({"address": {"street": "Elm", "number": 3}, "copies": 11}, "copies"),
    ({"address": {"street": "Elm", "number": 3}, "tags": ["a", 7]}, "tags.1"),
    ({"address": {"street": "Elm", "number": 3}, "colour": "red"}, "colour"),
    ({"address": "Elm 3"}, "address"),
    (["address"], None),
    ("address", None),
    ({"address": object()}, None),
]


@pytest.mark.parametrize(("arguments", "field"), WRONG, ids=[str(arguments)[:24] for arguments, _ in WRONG])
async def test_arguments_that_do_not_fit_the_schema_are_named_and_never_run(
    main: Session, arguments: Any, field: str | None
) -> None:
    result = await main.call("post", arguments)
    error = result.error
    assert isinstance(error, ValidationError)
    assert error.retryable and error.message
    assert error.field == field
    declaration = {one.name: one for one in await main.tools()}["post"]
    assert error.parameters_schema == declaration.parameters_schema
    assert (result.usage.wall_s, result.usage.max_rss_bytes) == (0.0, 0)


async def test_models_go_in_and_come_out_as_what_they_are(main: Session) -> None:
    result = await main.call("post", {"address": {"street": "Elm", "number": 3}, "copies": 2, "tags": []})
    assert result.unwrap() == {"street": "Elm", "number": 5}


class Mender:
    """A repair that returns its answers one after the other, and records the errors."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[ValidationError] = []

    async def __call__(self, error: ValidationError) -> dict[str, Any]:
        self.asked.append(error)
        answer: dict[str, Any] = self.answers.pop(0)
        return answer


@pytest.mark.parametrize("wrong", [0, 1, 2])
async def test_a_repair_mends_the_arguments_up_to_twice(main: Session, wrong: int) -> None:
    first: list[dict[str, Any]] = [*([{"number": "x"}] * wrong), {"number": 7}]
    mender = Mender(*first[1:])
    result = await main.call("attempts", first[0], repair=mender)
    assert result.output == [wrong + 1, 7]
    assert result.usage.attempts == wrong + 1
    assert [error.field for error in mender.asked] == ["number"] * wrong


async def test_after_two_repairs_the_error_stands(main: Session) -> None:
    mender = Mender({"number": "y"}, {"number": "z"}, {"number": 7})
    result = await main.call("attempts", {"number": "x"}, repair=mender)
    assert isinstance(result.error, ValidationError)
    assert result.usage.attempts == 3 and len(mender.asked) == 2


async def test_what_a_repair_gives_is_validated_like_anything_else(main: Session) -> None:
    mender = Mender(["no", "object"], {"number": 7, "surplus": 1})
    result = await main.call("attempts", {}, repair=mender)
    assert isinstance(result.error, ValidationError) and result.error.field == "surplus"


async def test_only_arguments_are_repaired(main: Session) -> None:
    mender = Mender({})
    for name in ("raise_an_exception", "sleep_for_ever", "no_such_tool"):
        assert (await main.call(name, {}, repair=mender)).is_error
    assert mender.asked == []


# -- names, keys and ids -----------------------------------------------------------------------------------------------


class Name(StrEnum):
    COUNT = "count"
    ATTEMPTS = "attempts"


async def test_a_tool_is_called_by_its_name_by_a_member_of_an_enum_or_by_itself(main: Session) -> None:
    by_itself = next(one for one in TOOLS if isinstance(one, Tool) and one.name == "count")
    for number, name in enumerate(("count", Name.COUNT, by_itself), 1):
        result = await main.call(name)
        assert (result.output, type(result.tool), result.tool) == (number, str, "count")
    assert isinstance((await main.call(by_itself.replace(name="counts"))).error, UnknownTool), "by what it is called"
    with pytest.raises(UsageError, match="Pass the tool that tool"):
        await main.call(count)  # type: ignore[call-overload]


async def test_a_result_has_the_arguments_that_the_call_ran_with(main: Session) -> None:
    async def repair(error: ValidationError) -> dict[str, Any]:
        return {"number": 3}

    assert (await main.call("attempts", {"number": "three"}, repair=repair)).arguments == {"number": 3}
    assert (await main.call("count", {"fail": True})).arguments == {"fail": True}
    assert (await main.call("attempts", {"number": "three"})).arguments is None
    assert (await main.call("attemps", {"number": 3})).arguments is None


@pytest.mark.parametrize(
    ("name", "suggestion"), [("cuont", "count"), ("Report", "report"), ("search_mny", "search_many"), ("ecoh", "echo")]
)
async def test_a_misspelt_name_is_answered_with_suggestions(main: Session, name: str, suggestion: str) -> None:
    error = (await main.call(name, {})).error
    assert isinstance(error, UnknownTool)
    assert error.suggestions[0] == suggestion and len(error.suggestions) <= 3
    assert suggestion in error.message


async def test_a_name_that_is_like_no_other_has_no_suggestions(main: Session) -> None:
    error = (await main.call("zzzzzzzzzz", {})).error
    assert isinstance(error, UnknownTool) and error.suggestions == ()


async def test_a_call_id_is_taken_or_made_and_is_in_result_and_journal(main: Session) -> None:
    given = await main.call("echo", {"value": 1}, call_id="given by the model")
    made = [await main.call("echo", {"value": 1}) for _ in range(3)]
    assert given.call_id == "given by the model"
    assert len({result.call_id for result in made}) == 3
    journal = core_of(main).services.journal
    assert isinstance(journal, RecentJournal)
    assert len(journal.of(session_id=main.id, call_id=given.call_id)) == 1


async def test_calls_with_one_idempotency_key_run_once(main: Session) -> None:
    results = []
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            results.append(await main.call("count", {"seconds": 0.1}, idempotency_key="k"))

        for _ in range(5):
            tasks.start_soon(call)
    again = await main.call("count", {"seconds": 0.1}, idempotency_key="k")
    for name, arguments in (("count", {}), ("echo", {"seconds": 0.1})):
        with pytest.raises(UsageError, match="'k' is another call's"):
            await main.call(name, arguments, idempotency_key="k")
    assert [result.output for result in (*results, again)] == [1] * 6
    assert len({result.call_id for result in (*results, again)}) == 1
    assert (await main.call("count", {}, idempotency_key="another")).output == 2


async def test_a_failure_does_not_use_up_its_idempotency_key(main: Session) -> None:
    assert (await main.call("count", {"fail": True}, idempotency_key="k")).is_error
    assert (await main.call("count", {}, idempotency_key="k")).output == 2


async def test_a_cancelled_call_that_may_have_had_an_effect_does_not_run_again_under_its_key(main: Session) -> None:
    assert (await main.call("count")).output == 1  # now a cell is there, whatever the machine's load
    with anyio.move_on_after(0.5):
        await main.call("count", {"seconds": 100.0}, idempotency_key="k")
    again = await main.call("count", {"seconds": 100.0}, idempotency_key="k")
    assert isinstance(again.error, Cancelled) and again.error.outcome == "outcome unknown"
    assert (await main.call("count")).output == 3  # the second line is of the call that was cancelled


async def test_a_cancelled_call_that_did_nothing_that_lasts_does_not_use_up_its_idempotency_key(main: Session) -> None:
    worker = await main.open_child("worker")
    assert (await worker.call("echo", {"value": 1})).output == 1
    with anyio.move_on_after(0.1):
        await worker.call("sleep_for_ever", {}, idempotency_key="k")
    again = await worker.call("sleep_for_ever", {}, idempotency_key="k")
    assert isinstance(again.error, Timeout), "it ran again"


async def test_an_idempotency_key_belongs_to_its_session(main: Session) -> None:
    other = await main.open_child("branch")
    assert (await main.call("count", {}, idempotency_key="k")).output == 1
    assert (await other.call("count", {}, idempotency_key="k")).output == 2


# -- progress, log and deadlines ---------------------------------------------------------------------------------------


async def test_progress_is_heard_in_order_and_before_the_result(main: Session) -> None:
    heard: list[tuple[str, float | None]] = []
    result = await main.call("report", {"steps": 4}, on_progress=lambda *said: heard.append(said))
    assert result.output == "reported"
    assert heard == [("step 0", 0.25), ("step 1", 0.5), ("step 2", 0.75), ("step 3", 1.0)]


async def test_progress_may_be_heard_by_an_async_function(main: Session) -> None:
    heard: list[str] = []

    async def listen(message: str, _fraction: float | None) -> None:
        await anyio.sleep(0)
        heard.append(message)

    await main.call("report", {"steps": 3}, on_progress=listen)
    with anyio.fail_after(PATIENCE_S):
        while len(heard) < 3:
            await anyio.sleep(0.01)
    assert sorted(heard) == ["step 0", "step 1", "step 2"]


async def test_the_log_of_a_tool_is_heard_by_the_caller(main: Session) -> None:
    heard: list[object] = []
    await main.call("report", {"steps": 2}, on_log=lambda *said: heard.append(said))
    assert heard == [("warning", "done with it", {"steps": 2})]


CELL: ContextVar[str] = ContextVar("CELL", default="that of the supervisor")
"""The cell of a notebook, as its kernel keeps it: what a callback prints is shown below it."""


class Heard:
    """Callbacks that note the context variable, before and after they wait."""

    def __init__(self) -> None:
        self.cells: list[tuple[str, str]] = []

    def now(self, *said: object) -> None:
        self.cells.append((str(said[0]), CELL.get()))

    async def later(self, *said: object) -> None:
        self.now(*said)
        await anyio.sleep(0)
        with anyio.move_on_after(0.001):
            await anyio.sleep_forever()
        self.now(*said)


async def test_callbacks_run_in_the_context_of_the_call(main: Session) -> None:
    heard = Heard()
    CELL.set("first")
    await main.call("report", {"steps": 1}, on_progress=heard.later, on_log=heard.now)
    CELL.set("second")
    await main.call("echo_aloud", {"text": "a"}, on_output=heard.later)
    with anyio.fail_after(PATIENCE_S):
        while heard.cells.count(("step 0", "first")) < 2:
            await anyio.sleep(0.01)
    assert set(heard.cells) == {("step 0", "first"), ("warning", "first"), ("stdout", "second")}


def test_callbacks_of_a_blocking_session_run_in_the_context_of_the_call(tmp_path: Path) -> None:
    heard = Heard()
    with toolcell.blocking.Supervisor([report, echo_aloud]) as supervisor:
        session = supervisor.open_session("main", workspace=tmp_path)
        copy_context().run(CELL.set, "of another context")
        token = CELL.set("first")
        session.call("report", {"steps": 1}, on_progress=heard.now, on_log=heard.now)
        session.call("echo_aloud", {"text": "a"}, on_output=heard.now)
        CELL.reset(token)
    assert set(heard.cells) == {("step 0", "first"), ("warning", "first"), ("stdout", "first")}


async def test_a_listener_that_raises_harms_nobody(main: Session) -> None:
    async def raise_later(*_: object) -> None:
        raise RuntimeError("the user's own")

    def raise_now(*_: object) -> None:
        raise RuntimeError("the user's own")

    for listener in (raise_later, raise_now):
        assert (await main.call("report", {"steps": 3}, on_progress=listener)).output == "reported"
    assert (await main.call("report", {"steps": 3}, on_log=raise_now)).output == "reported"
    assert (await main.call("echo", {"value": 1})).output == 1


async def test_what_a_tool_logs_is_in_the_journal_and_not_in_the_result(main: Session) -> None:
    result = await main.call("report", {"steps": 2})
    journal = core_of(main).services.journal
    assert isinstance(journal, RecentJournal)
    (record,) = journal.of(kind="log", call_id=result.call_id)
    assert record.data == {"tool": "report", "level": "warning", "message": "done with it", "fields": {"steps": 2}}
    assert "done with it" not in result.for_model()


async def test_the_shorter_word_on_time_is_the_callers_then_the_tools_then_the_profiles(main: Session) -> None:
    await main.call("echo")  # so that no call waits for a cell
    own = await main.call("sleep_for_ever")
    assert isinstance(own.error, Timeout) and own.error.elapsed >= 0.3
    callers = await main.call("sleep_for_ever", timeout=0.1)
    assert isinstance(callers.error, Timeout) and callers.error.elapsed >= 0.1
    assert 0.0 < (await main.call("time_left")).output <= 100.0
    assert 0.0 < (await main.call("time_left", timeout=8.0)).output <= 8.0
    for timeout in (0, -1.0, float("nan")):
        with pytest.raises(UsageError):
            await main.call("echo", timeout=timeout)


# -- what comes back ---------------------------------------------------------------------------------------------------


async def test_a_result_says_where_it_comes_from_and_what_it_cost(shared: Supervisor, main: Session) -> None:
    result = await main.call("echo", {"value": {"a": [1, None, 2.5, "ü"]}})
    assert result.output == {"a": [1, None, 2.5, "ü"]}
    assert (result.tool, result.version, result.session_id) == ("echo", "1.0.0", main.id)
    assert set(result.sandbox.on) == set(shared.status().on) and result.sandbox.allowed_missing == ()
    assert {"seccomp", "landlock", "pid_namespace", "mount_namespace"} <= set(result.sandbox.on)
    assert result.usage.wall_s > 0 and result.usage.max_rss_bytes > 4 * 1024 * 1024


async def test_what_a_tool_says_of_its_failure_reaches_the_model_and_a_traceback_does_not(main: Session) -> None:
    told = (await main.call("count", {"fail": True})).error
    assert isinstance(told, ExecutionError)
    assert (told.message, told.data, told.retryable) == ("not this time", {"code": 17}, False)
    result = await main.call("raise_an_exception")
    assert "Traceback" not in result.for_model() and "misbehaving.py" not in result.for_model()
    journal = core_of(main).services.journal
    assert isinstance(journal, RecentJournal)
    (record,) = journal.of(kind="call", call_id=result.call_id)
    assert "Traceback" in record.data["traceback"] and "misbehaving.py" in record.data["traceback"]


# -- handles -----------------------------------------------------------------------------------------------------------


class SlowMemory(ListMemory):
    """A memory that finds every text slowly, and counts its concurrent searches."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once = self.most_at_once = 0

    async def search(self, query: str, *, limit: int, namespace: str) -> list[MemoryRecord]:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await anyio.sleep(0.05)
        self.at_once -= 1
        return [MemoryRecord("m1", query)]


@pytest.mark.parametrize("queries", [50, 1000])
async def test_an_async_tool_has_many_operations_in_flight(shared: Supervisor, workspace: Path, queries: int) -> None:
    memory = SlowMemory()
    session = await shared.open_session("main", workspace=workspace, memory=memory)
    result = await session.call("search_many", {"queries": queries})
    assert result.unwrap() == queries
    assert memory.most_at_once >= 25
    await session.close()


async def test_a_sync_tool_may_use_a_handle_from_many_threads(shared: Supervisor, workspace: Path) -> None:
    session = await shared.open_session("main", workspace=workspace, memory=SlowMemory())
    result = await session.call("search_in_threads", {"queries": 16})
    assert result.unwrap() == [f"query {number}" for number in range(16)]
    await session.close()


class BrokenChannel(ListChannel):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def send(self, text: str, *, sender: str) -> None:
        raise self._error


async def test_what_a_backend_means_to_say_reaches_the_tool_and_its_other_failures_do_not(
    shared: Supervisor, workspace: Path
) -> None:
    meant, internal = BackendError("The channel is asleep."), RuntimeError("password=hunter2")
    for error, said, unsaid in ((meant, "asleep", "?"), (internal, "channel.send", "hunter2")):
        session = await shared.open_session("main", workspace=workspace, channel=BrokenChannel(error))
        result = await session.call("talk", {"text": "hello"})
        assert said in result.output and unsaid not in result.output
        await session.close()


async def test_a_backend_that_hangs_ends_with_its_call(shared: Supervisor, workspace: Path) -> None:
    class Hanging(ListChannel):
        async def send(self, text: str, *, sender: str) -> None:
            await anyio.sleep(1000)

    session = await shared.open_session("main", workspace=workspace, channel=Hanging())
    result = await session.call("talk", {"text": "hello"}, timeout=1.5)  # the start of its cell included
    assert isinstance(result.error, Timeout), result.error
    assert (await session.call("echo", {"value": 1})).output == 1
    await session.close()


# -- without await -----------------------------------------------------------------------------------------------------


def test_the_blocking_api_serves_many_threads(workspace: Path) -> None:
    with toolcell.blocking.Supervisor(TOOLS) as supervisor:
        session = supervisor.open_session("main", workspace=workspace)
        child = session.open_child("worker")
        assert child.parent is not None and child.parent.id == session.id
        with ThreadPoolExecutor(8) as threads:
            outputs = list(threads.map(lambda n: session.call("echo", {"value": n}).output, range(24)))
        assert outputs == list(range(24))
        assert {declaration.name for declaration in child.tools()} >= {"echo", "post"}
        heard: list[str] = []
        session.call("report", {"steps": 2}, on_progress=lambda message, _: heard.append(message))
        mended = session.call("attempts", {}, repair=lambda error: {"number": 4})
        assert (heard, mended.output) == (["step 0", "step 1"], [2, 4])
        assert session.call("talk", {"text": "hello"}).output == "sent"
        child.close()
        with pytest.raises(UsageError):
            child.call("echo")
    with pytest.raises((UsageError, RuntimeError)):
        supervisor.open_session("main", workspace=workspace)


async def test_a_tool_that_forks_beside_its_threads_has_the_handlers_of_a_fork(tmp_path: Path) -> None:
    async with Supervisor(tools=[threads_in_a_fork]) as supervisor:
        session = await supervisor.open_session("main", workspace=tmp_path)
        assert (await session.call("threads_in_a_fork", {})).unwrap() == [2, 1]
