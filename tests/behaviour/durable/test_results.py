"""Results that outlive the supervisor: idempotency keys and tasks, and what each error says of its call."""

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from tests import programs
from tests.helpers import PATIENCE_S, until

from toolcell import (
    Cancelled,
    Crashed,
    ErrorBase,
    ExecutionError,
    PermissionDenied,
    Record,
    Session,
    Supervisor,
    Timeout,
    ToolContext,
    ToolResult,
    UsageError,
    ValidationError,
    blocking,
    host_tool,
    tool,
)
from toolcell.store.directory import StateDirectory
from toolcell.store.journal.reading import JournalReader
from toolcell.store.journal.segments import closed_segments
from toolcell.store.schema import CALLS
from toolcell.supervisor import runtime_of

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.usefixtures("warm", "nothing_ahead")]
Supervise = Callable[..., Supervisor]


@tool(needs={"write"})
def append(ctx: ToolContext, line: str, seconds: float = 0.0, fail: bool = False) -> int:
    """Append a line, and wait."""
    import time

    with open("lines.txt", "a") as file:
        file.write(f"{line}\n")
    time.sleep(seconds)
    if fail:
        raise ValueError("no")
    with open("lines.txt") as file:
        return len(file.readlines())


@tool
def look(seconds: float) -> str:
    """Wait."""
    import time

    time.sleep(seconds)
    return "seen"


@tool
def anything(x: dict[str, Any]) -> int:
    """Take any object."""
    return len(x)


def lines(workspace: Path) -> list[str]:
    file = workspace / "lines.txt"
    return file.read_text().splitlines() if file.exists() else []


def killed(state: Path, workspace: Path, call: str) -> None:
    """Run a program that makes this call with the session "s", and kill it when the call has written its line."""
    program = (
        f"import sys, anyio; sys.path.insert(0, {str(Path(__file__).parents[3])!r})\n"
        "from toolcell import Supervisor\n"
        "from tests.behaviour.durable.test_results import append, look\n"
        "async def main():\n"
        "    async with Supervisor([append, look], state=sys.argv[1]) as supervisor:\n"
        "        session = await supervisor.open_session('main', workspace=sys.argv[2], session_id='s')\n"
        f"        {call}\n"
        "        await anyio.sleep(60)\n"
        "anyio.run(main)\n"
    )
    command = [sys.executable, "-I", "-c", program, str(state), str(workspace)]
    before = len(lines(workspace))
    with programs.start(command) as run:
        while len(lines(workspace)) == before:
            assert run.poll() is None
        run.kill()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


async def test_a_key_holds_after_a_restart(supervise: Supervise, workspace: Path, state: Path) -> None:
    for _ in range(2):
        async with supervise([append], state=state) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace, session_id="s")
            result = await session.call("append", {"line": "a"}, idempotency_key="k")
            assert (result.output, result.tool) == (1, "append")
            with pytest.raises(UsageError, match="another call's"):
                await session.call("append", {"line": "b"}, idempotency_key="k")
            other = await supervisor.open_session("main", workspace=workspace)
            assert not (await other.call("look", {"seconds": 0}, idempotency_key="k")).output
    assert lines(workspace) == ["a"]


async def test_a_call_that_failed_may_run_again_under_its_key(
    supervise: Supervise, workspace: Path, state: Path
) -> None:
    for _ in range(2):
        async with supervise([append], state=state) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace, session_id="s")
            result = await session.call("append", {"line": "a", "fail": True}, idempotency_key="k")
            assert isinstance(result.error, ExecutionError)
    assert lines(workspace) == ["a", "a"]


async def test_a_call_that_timed_out_does_not_run_again_under_its_key(
    supervise: Supervise, workspace: Path, state: Path
) -> None:
    arguments = {"line": "a", "seconds": 60.0}
    for _ in range(2):
        async with supervise([append], state=state) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace, session_id="s")
            for _again in range(2):
                result = await session.call("append", arguments, idempotency_key="k", timeout=1.0)
                assert isinstance(result.error, Timeout) and result.error.outcome == "outcome unknown"
    assert lines(workspace) == ["a"]


async def test_a_call_that_was_killed_does_not_run_again_under_its_key(
    supervise: Supervise, workspace: Path, state: Path
) -> None:
    call = "await session.call('append', {'line': 'a', 'seconds': 60.0}, idempotency_key='k')"
    await anyio.to_thread.run_sync(killed, state, workspace, call)
    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        result = await session.call("append", {"line": "a", "seconds": 60.0}, idempotency_key="k")
        assert isinstance(result.error, Cancelled) and result.error.outcome == "outcome unknown"
        assert "killed before the call ended. The call may have run in part or in whole." in result.for_model()
    assert lines(workspace) == ["a"]


async def test_a_key_whose_records_were_removed_for_the_bound_does_not_run_again(
    supervise: Supervise, workspace: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result could not be kept, and the segment of the log that has the call's end was removed since."""
    monkeypatch.setattr("toolcell.store.journal.log.SYNC_S", 0.05)
    directory, most = StateDirectory(state), 1_048_576
    async with supervise([append], state=state, journal_bytes=most) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        assert (await session.call("append", {"line": "a"}, idempotency_key="k")).output == 1
        session.start("append", {"line": "b"}, task_id="t")
        assert (await supervisor.task("t").result()).output == 2
        services = runtime_of(supervisor).services
        assert services.results is not None
        kept = services.results._database  # pyright: ignore[reportPrivateUsage]
        for row in kept.rows(CALLS):
            kept.change(CALLS, row.values, row.until, result=None)
        durable = services.durable
        assert durable is not None
        for _try in range(60):
            for _record in range(4):
                durable.write(Record("log", "s", data={"text": "x" * 60_000, "fields": {"y": "x" * 60_000}}))
            await anyio.sleep(0.3)
            if closed_segments(directory.log) and closed_segments(directory.log)[0].begin > 0:
                break
    with closing(sqlite3.connect(directory.index)) as database:
        assert database.execute("SELECT count(*) FROM records WHERE call != ''").fetchone() == (0,)
    async with supervise([append], state=state, journal_bytes=most) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        for error in (
            (await session.call("append", {"line": "a"}, idempotency_key="k")).error,
            (await supervisor.task("t").result()).error,
        ):
            assert isinstance(error, Cancelled) and error.outcome == "outcome unknown"
            assert "the journal has lost the call's end" in error.message
    assert lines(workspace) == ["a", "b"]


async def test_a_key_runs_once_if_its_session_is_closed_and_opened_again_meanwhile(
    supervise: Supervise, workspace: Path, state: Path
) -> None:
    """The first call has not said how it ended when the second comes."""
    found: list[ToolResult] = []
    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")

        async def call(session: Session) -> None:
            found.append(await session.call("append", {"line": "a", "seconds": 3.0}, idempotency_key="k"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, session)
            await until(lambda: lines(workspace) == ["a"])
            await session.close()
            again = await supervisor.open_session("main", workspace=workspace, session_id="s")
            tasks.start_soon(call, again)
    assert lines(workspace) == ["a"]
    assert [each.error.outcome for each in found if each.error is not None] == ["outcome unknown"] * 2


async def test_a_key_stands_for_one_tool_and_its_arguments_also_after_a_restart(
    supervise: Supervise, workspace: Path, state: Path
) -> None:
    for _start in range(2):
        async with supervise([append, look], state=state) as supervisor:
            one, other = [
                await supervisor.open_session("main", workspace=workspace, session_id=name) for name in ("s", "t")
            ]
            assert (await one.call("append", {"line": "a"}, idempotency_key="k")).output == 1
            for name, args in (
                ("append", {"line": "b"}),
                ("look", {"seconds": 0.0}),
                ("append", {"line": "a", "x": 1}),
            ):
                with pytest.raises(UsageError, match="'k' is another call's"):
                    await one.call(name, args, idempotency_key="k")
            assert (await other.call("look", {"seconds": 0.0}, idempotency_key="k")).output == "seen"
    assert lines(workspace) == ["a"]


async def test_a_call_that_waits_for_the_one_with_its_key_ends_in_its_own_time(
    supervise: Supervise, workspace: Path
) -> None:
    async with supervise([append]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        call = {"line": "a", "seconds": 3.0}
        ended: list[ToolResult] = []

        async def first() -> None:
            ended.append(await session.call("append", call, idempotency_key="k"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            await until(lambda: lines(workspace) == ["a"])
            assert isinstance((await session.call("append", call, timeout=0.2, idempotency_key="k")).error, Timeout)
            assert not ended
        assert (await session.call("append", call, timeout=0.2, idempotency_key="k")).output == 1


@pytest.mark.parametrize("key", ["", "\udcff", "k" * 1025])
async def test_a_key_that_cannot_be_kept_is_refused(
    supervise: Supervise, workspace: Path, state: Path, key: str
) -> None:
    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        with pytest.raises(UsageError, match=r"idempotency_key (is empty|is not valid Unicode|has 1,025 characters)"):
            await session.call("append", {"line": "a"}, idempotency_key=key)
        with pytest.raises(UsageError, match=r"task_id (is empty|is not valid Unicode|has 1,025 characters)"):
            session.start("append", {"line": "a"}, task_id=key)
        with pytest.raises(UsageError, match="There is no task"):
            supervisor.task(key)
    assert lines(workspace) == []


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


def not_json(kind: str) -> dict[str, Any]:
    """Arguments that no JSON text can have."""
    found: dict[Any, Any] = {}
    if kind == "inside itself":
        found["x"] = found
    elif kind == "too deep":
        for _ in range(5_000):
            found = {"x": found}
    elif kind == "names":
        found = {1: 2, "a": 3}
    else:
        found["x"] = Unspeakable()
    return {"x": found} if kind != "names at the top" else {cast("str", 1): 2}


@pytest.mark.parametrize("kind", ["names", "names at the top", "inside itself", "too deep", "an object"])
async def test_arguments_that_are_no_json_data_are_a_validation_error_also_with_a_key_and_a_state(
    supervise: Supervise, workspace: Path, state: Path, kind: str
) -> None:
    async with supervise([anything], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for key in (None, "k", "k2"):
            result = await session.call("anything", not_json(kind), idempotency_key=key, call_id=f"call {key}")
            assert isinstance(result.error, ValidationError), result
        if kind != "too deep":
            assert isinstance((await session.start("anything", not_json(kind)).result()).error, ValidationError)
        else:
            with pytest.raises(UsageError, match="cannot be copied: RecursionError"):
                session.start("anything", not_json(kind))
    directory = StateDirectory(state)
    reader = JournalReader(directory.log, directory.index)
    reader.verify()
    kept = [each.record for each in reader.entries() if each.record.call_id == "call k"]
    assert [record.kind for record in kept] == ["call"] and kept[0].data["error"] == "validation"


@host_tool
def answer(fail: bool) -> str:
    """Answer, or fail."""
    if fail:
        raise ValueError("\ud800")
    return "answered"


async def test_an_id_with_a_lone_surrogate_stands_in_the_way_of_no_record_and_no_start(
    supervise: Supervise, workspace: Path, state: Path
) -> None:
    """A provider's JSON may have one in the id of a call."""
    odd = "c\ud800"

    def in_the_index() -> bool:
        with closing(sqlite3.connect(StateDirectory(state).index)) as database:
            return bool(database.execute(r"SELECT count(*) FROM records WHERE call = 'c\ud800'").fetchone()[0])

    for start in range(2):
        async with supervise([append, answer], state=state) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace, session_id="s")
            assert isinstance((await session.call("append", {"line": "a"}, call_id=odd)).error, ValidationError)
            for _again in range(2):
                with anyio.fail_after(PATIENCE_S):
                    result = await session.call("answer", {"fail": False}, call_id=odd, idempotency_key="k")
                error = result.error
                assert result.output == "answered" if start == 0 else error and error.outcome == "outcome unknown"
            task = session.start("answer", {"fail": False}, call_id=odd, task_id="t")
            with anyio.fail_after(PATIENCE_S):
                assert (await task.result()).is_error == bool(start)
            durable = runtime_of(supervisor).services.durable
            assert durable is not None
            await until(in_the_index)
            assert not durable.failure
            with pytest.raises(UsageError, match="session_id is not valid Unicode"):
                await supervisor.open_session("main", workspace=workspace, session_id=odd)
            with pytest.raises(UsageError, match="no suspended session"):
                await supervisor.resume_session(odd)
    directory = StateDirectory(state)
    JournalReader(directory.log, directory.index).verify()


async def test_a_host_tool_that_raises_text_with_a_lone_surrogate_has_failed(
    supervise: Supervise, workspace: Path
) -> None:
    async with supervise([answer]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        error = (await session.call("answer", {"fail": True})).error
        assert isinstance(error, ExecutionError) and error.message == "ValueError: ?"


async def test_a_task_has_the_arguments_of_its_start(supervise: Supervise, workspace: Path, state: Path) -> None:
    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        arguments = {"line": "a"}
        task = session.start("append", arguments)
        arguments["line"] = "b"
        assert (await task.result()).output == 1
    assert lines(workspace) == ["a"]


async def test_a_task_that_is_cancelled_before_it_begins_says_so(
    supervise: Supervise, workspace: Path, state: Path
) -> None:
    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        task = session.start("append", {"line": "a"}, task_id="t")
        task.cancel()
        error = (await task.result()).error
        assert isinstance(error, Cancelled) and error.outcome == "not started"
    assert lines(workspace) == []
    async with supervise([append], state=state) as supervisor:
        error = (await supervisor.task("t").result()).error
        assert isinstance(error, Cancelled) and error.outcome == "not started"
        supervisor.task("t").cancel()


async def test_a_task_of_another_session_or_of_an_earlier_start_is_not_run_again(
    supervise: Supervise, workspace: Path, state: Path
) -> None:
    for _start in range(2):
        async with supervise([append], state=state) as supervisor:
            one, other = [
                await supervisor.open_session("main", workspace=workspace, session_id=name) for name in ("s", "t")
            ]
            with anyio.fail_after(PATIENCE_S):
                assert (await one.start("append", {"line": "a"}, task_id="t").result()).output == 1
            with pytest.raises(UsageError, match="another task"):
                other.start("append", {"line": "a"}, task_id="t")
            assert (await one.call("append", {"line": "key"}, idempotency_key="t")).output == 2, "a key is no task"
    assert lines(workspace) == ["a", "key"]


async def test_a_task_goes_on_without_its_caller_and_its_result_survives(
    supervise: Supervise, workspace: Path, state: Path
) -> None:
    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")

        async def start() -> None:
            task = session.start("append", {"line": "a", "seconds": 0.3}, task_id="t")
            assert task.status == "running"
            with anyio.move_on_after(0.05):
                await task.result()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
        again = session.start("append", {"line": "a", "seconds": 0.3}, task_id="t")
        assert (await again.result()).output == 1 and supervisor.task("t").status == "finished"
        with pytest.raises(UsageError, match="another task"):
            session.start("append", {"line": "b"}, task_id="t")
    async with supervise([append], state=state) as supervisor:
        task = supervisor.task("t")
        assert (task.status, task.session_id, (await task.result()).output) == ("finished", "s", 1)
        with pytest.raises(UsageError, match="no task"):
            supervisor.task("none")
    assert lines(workspace) == ["a"]


async def test_a_task_that_was_killed_says_so(supervise: Supervise, workspace: Path, state: Path) -> None:
    call = "session.start('append', {'line': 'a', 'seconds': 60.0}, task_id='t')"
    await anyio.to_thread.run_sync(killed, state, workspace, call)
    async with supervise([append], state=state) as supervisor:
        error = (await supervisor.task("t").result()).error
        assert isinstance(error, Cancelled) and error.outcome == "outcome unknown"
        assert supervisor.task("t").status == "failed"


async def test_a_task_is_cancelled_by_its_id(supervise: Supervise, workspace: Path, state: Path) -> None:
    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        task = session.start("append", {"line": "a", "seconds": 60.0})
        await until(lambda: lines(workspace) == ["a"])
        supervisor.task(task.id).cancel()
        with anyio.fail_after(PATIENCE_S):
            assert isinstance((await task.result()).error, Cancelled)
        task.cancel()


async def test_the_close_of_its_session_ends_a_task(supervise: Supervise, workspace: Path) -> None:
    async with supervise([append]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        running = session.start("append", {"line": "a", "seconds": 60.0})
        await until(lambda: lines(workspace) == ["a"])
        late = session.start("append", {"line": "b"})
        await session.close()
        for task in (running, late):
            with anyio.fail_after(PATIENCE_S):
                assert isinstance((await task.result()).error, Cancelled)
        with pytest.raises(UsageError, match="closed"):
            session.start("append", {"line": "c"})


async def test_the_end_of_the_supervisor_ends_its_tasks(supervise: Supervise, workspace: Path, state: Path) -> None:
    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        task = session.start("append", {"line": "a", "seconds": 60.0}, task_id="t")
        await until(lambda: lines(workspace) == ["a"])
    assert isinstance((await task.result()).error, Cancelled)
    async with supervise([append], state=state) as supervisor:
        assert supervisor.task("t").status == "failed"


def test_tasks_without_an_event_loop(workspace: Path) -> None:
    with blocking.Supervisor([look]) as supervisor:
        session = supervisor.open_session("worker", workspace=workspace)
        task = session.start("look", {"seconds": 0.1})
        assert supervisor.task(task.id).result().output == "seen" and task.status == "finished"
        slow = session.start(look, {"seconds": 60})
        slow.cancel()
        assert slow.result().is_error


@host_tool
async def wait() -> None:
    """Wait for ever."""
    await anyio.sleep_forever()


@tool
def die() -> None:
    """Die."""
    import os

    os.abort()


async def test_each_error_says_whether_the_call_was_delivered_and_may_have_had_an_effect(
    supervise: Supervise, workspace: Path
) -> None:
    errors: dict[str, ErrorBase] = {}
    async with supervise([append, look, die, wait]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        worker = await supervisor.open_session("worker", workspace=workspace)
        for name, call in {
            "denied": worker.call("append", {"line": "a"}),
            "wrong": session.call("append", {}),
            "unknown": session.call("none", {}),
            "raised": session.call("append", {"line": "a", "fail": True}),
            "late write": session.call("append", {"line": "a", "seconds": 9.0}, timeout=1),
            "late look": session.call("look", {"seconds": 9.0}, timeout=0.5),
            "died": session.call("die", {}),
            "late host": session.call("wait", {}, timeout=0.2),
        }.items():
            result = await call
            assert result.error is not None, name
            errors[name] = result.error
            told = "may have done a part" in result.for_model()
            assert told == (result.error.outcome == "outcome unknown")
        for record in supervisor.journal.of(kind="call"):  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
            assert record.data["outcome"] in ("not started", "finished", "outcome unknown")
    assert isinstance(errors["denied"], PermissionDenied) and isinstance(errors["died"], Crashed)
    assert {name: (error.delivered, error.effect, error.outcome) for name, error in errors.items()} == {
        "denied": (False, False, "not started"),
        "wrong": (False, False, "not started"),
        "unknown": (False, False, "not started"),
        "raised": (True, True, "finished"),
        "late write": (True, True, "outcome unknown"),
        "late look": (True, False, "finished"),
        "died": (True, False, "finished"),
        "late host": (True, True, "outcome unknown"),
    }
