"""Rollouts over a real supervisor, with scripted agents: each attempt ends typed, whatever its agent does."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.helpers import until

from toolcell import Supervisor, ToolContext, ToolFailure, UsageError, UsageLimits, tool
from toolcell.rollouts import (
    Attempt,
    CallStep,
    InfrastructureFailure,
    NoteStep,
    RolloutOutcome,
    RolloutTask,
    Scored,
    Trajectory,
    rollout,
)

pytestmark = pytest.mark.anyio


@tool(needs={"read"})
def read_number(ctx: ToolContext) -> int:
    """Read the number that was prepared."""
    return int(ctx.require.workspace.read_text("number"))


@tool
def fail(why: str) -> None:
    """Fail."""
    raise ToolFailure(why)


@tool
def crash() -> None:
    """Die."""
    os.kill(os.getpid(), signal.SIGKILL)


@tool(timeout=60, needs={"write"})
def hang(ctx: ToolContext) -> None:
    """Say that it runs, and sleep for a minute."""
    import time

    ctx.require.writer.write_text("running", "")
    time.sleep(60)


BAR = """
import sys, anyio
from toolcell import Supervisor
from toolcell.rollouts import rollout

async def agent(attempt):
    await anyio.sleep(0.3)

async def main():
    async with Supervisor() as supervisor:
        async with rollout(range(3), agent, supervisor=supervisor, workspace=sys.argv[1], progress=True) as found:
            assert len([one async for one in found]) == 3

anyio.run(main)
"""
TOOLS = [read_number, fail, crash, hang]


def prepare(task: RolloutTask, directory: Path) -> None:
    (directory / "number").write_text(str(task.data))


async def all_of(
    shared: Supervisor, workspace: Path, agent: Any, tasks: Any = (1,), **options: Any
) -> list[Trajectory]:
    async with rollout(tasks, agent, supervisor=shared, workspace=workspace, **options) as trajectories:
        return [one async for one in trajectories]


async def only(shared: Supervisor, workspace: Path, agent: Any, **options: Any) -> Trajectory:
    (one,) = await all_of(shared, workspace, agent, **options)
    return one


async def test_each_attempt_has_a_session_a_workspace_and_a_frozen_trajectory(
    shared: Supervisor, workspace: Path
) -> None:
    async def agent(attempt: Attempt) -> Scored:
        attempt.note({"model": "I shall read", "tokens": [1, 2]})
        number = (await attempt.call("read_number")).unwrap()
        return Scored(number * attempt.number, reward=float(number))

    found = await all_of(shared, workspace, agent, [5, 7], attempts=2, prepare=prepare)
    assert {(one.task_id, one.number): one.output for one in found} == {
        ("0", 1): 5, ("0", 2): 10, ("1", 1): 7, ("1", 2): 14,
    }  # fmt: skip
    assert {one.outcome for one in found} == {RolloutOutcome.FINISHED}
    assert len({one.session_id for one in found}) == len({one.workspace for one in found}) == 4
    one = next(one for one in found if one.task_id == "1")
    noted, called = one.steps
    assert isinstance(noted, NoteStep) and noted.data["tokens"] == [1, 2]
    assert isinstance(called, CallStep) and (called.tool, called.observation, called.error) == (
        "read_number",
        "7",
        None,
    )
    assert (one.reward, one.tries, one.usage.calls, one.is_sample) == (7.0, 1, 1, True)
    assert Trajectory.model_validate_json(one.model_dump_json()) == one
    with pytest.raises(ValueError, match="frozen"):
        one.reward = 1.0


async def test_errors_of_tools_are_steps_and_nothing_is_tried_again(shared: Supervisor, workspace: Path) -> None:
    async def agent(attempt: Attempt) -> list[str]:
        results = [await attempt.call("fail", {"why": "rain"}), await attempt.call("crash"), await attempt.call("none")]
        return [one.error.kind for one in results if one.error is not None]

    one = await only(shared, workspace, agent)
    assert (one.output, one.tries) == (["execution", "crashed", "unknown_tool"], 1)
    assert [step.error.kind for step in one.steps if isinstance(step, CallStep) and step.error] == one.output


@pytest.mark.parametrize(
    ("raised", "says"),
    [(ValueError("no luck"), "ValueError: no luck"), (RuntimeError(), "RuntimeError")],
    ids=["with words", "without"],
)
async def test_an_agent_that_raises_has_failed(
    shared: Supervisor, workspace: Path, raised: Exception, says: str
) -> None:
    async def agent(attempt: Attempt) -> None:
        await attempt.call("fail", {"why": "rain"})
        raise raised

    one = await only(shared, workspace, agent)
    assert (one.outcome, one.message, one.tries, len(one.steps)) == (RolloutOutcome.FAILED, says, 1, 1)


async def test_an_output_that_is_no_json_data_is_a_failure(shared: Supervisor, workspace: Path) -> None:
    async def agent(attempt: Attempt) -> object:
        return object()

    one = await only(shared, workspace, agent)
    assert one.outcome is RolloutOutcome.FAILED and "not JSON data" in one.message


async def test_an_agent_that_hangs_is_ended_at_its_deadline_with_its_call(shared: Supervisor, workspace: Path) -> None:
    async def agent(attempt: Attempt) -> None:
        await attempt.call("fail", {"why": "rain"})
        assert 0 < attempt.left_s <= 10.0
        try:
            await attempt.call("hang")
        except Exception:  # no cancellation is one
            await anyio.sleep_forever()

    one = await only(shared, workspace, agent, deadline_s=10.0)
    assert (one.outcome, one.output, len(one.steps)) == (RolloutOutcome.TIMED_OUT, None, 1)
    assert one.wall_s >= 10.0 and "10 s" in one.message


async def test_an_agent_that_replaces_its_cancellation_has_timed_out(shared: Supervisor, workspace: Path) -> None:
    async def raises(attempt: Attempt) -> None:
        try:
            await anyio.sleep(60)
        finally:
            raise ValueError("cut short")

    async def returns(attempt: Attempt) -> str:
        try:
            await anyio.sleep(60)
        except BaseException:
            pass
        return "in time"

    for agent in (raises, returns):
        one = await only(shared, workspace, agent, deadline_s=0.1, name=agent.__name__)
        assert (one.outcome, one.output, one.tries) == (RolloutOutcome.TIMED_OUT, None, 1)


async def test_an_agent_that_floods_is_out_of_budget(shared: Supervisor, workspace: Path) -> None:
    async def agent(attempt: Attempt) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(attempt.call, "fail", {"why": "rain"})

    async def swallows(attempt: Attempt) -> str:
        for _ in range(20):
            if (await attempt.session.call("fail", {"why": "rain"})).error is None:
                break
        await attempt.check(await attempt.session.call("fail", {"why": "rain"}))
        return "not reached"

    for one in [
        await only(shared, workspace, each, budget=UsageLimits(calls=3), name=each.__name__)
        for each in (agent, swallows)
    ]:
        assert (one.outcome, one.tries) == (RolloutOutcome.OUT_OF_BUDGET, 1) and one.usage.calls <= 3
        assert "usage limit: calls = 3" in one.message


async def test_a_trajectory_does_not_grow_beyond_its_bound(shared: Supervisor, workspace: Path) -> None:
    async def notes(attempt: Attempt) -> None:
        while True:  # it never awaits
            attempt.note("x" * 1000)

    async def calls(attempt: Attempt) -> None:
        while True:
            await attempt.call("fail", {"why": "x" * 1000})

    for agent in (notes, calls):
        one = await only(shared, workspace, agent, trajectory_bytes=10_000, name=agent.__name__)
        assert one.outcome is RolloutOutcome.OUT_OF_BUDGET and "trajectory_bytes" in one.message
        assert 3 <= len(one.steps) <= 9 and len(one.model_dump_json()) < 20_000


async def test_a_call_whose_session_is_taken_away_is_tried_again_in_a_new_one(
    shared: Supervisor, workspace: Path
) -> None:
    sessions: list[str] = []

    async def agent(attempt: Attempt) -> str:
        sessions.append(attempt.session.id)
        if attempt.tries == 1:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(attempt.call, "hang")
                await until((attempt.session.workspace / "running").exists)
                await attempt.session.close(grace_s=0)
        return (await attempt.call("fail", {"why": "rain"})).for_model()

    one = await only(shared, workspace, agent)
    assert (one.outcome, one.tries, len(one.steps)) == (RolloutOutcome.FINISHED, 2, 1)
    assert sessions == ["rollout-0-1-1", "rollout-0-1-2"] and one.session_id == sessions[-1]


async def test_an_infrastructure_error_is_retried_retries_times(shared: Supervisor, workspace: Path) -> None:
    tries: Counter[str] = Counter()

    async def agent(attempt: Attempt) -> int:
        tries[attempt.task.id] += 1
        if attempt.tries <= attempt.task.data:
            async with anyio.create_task_group():
                raise InfrastructureFailure("the model's server is away")
        return attempt.tries

    found = {one.task_id: one for one in await all_of(shared, workspace, agent, [0, 1, 9], retries=1)}
    assert tries == {"0": 1, "1": 2, "2": 2}
    assert [found[id].output for id in "01"] == [1, 2]
    assert (found["2"].outcome, found["2"].is_sample) == (RolloutOutcome.INFRASTRUCTURE, False)
    assert "the model's server is away" in found["2"].message


async def test_a_workspace_that_cannot_be_prepared_is_the_infrastructure_s(shared: Supervisor, workspace: Path) -> None:
    async def fetch(task: RolloutTask, directory: Path) -> None:
        if directory.name == "1-1":
            raise OSError("the mirror is away")
        prepare(task, directory)

    async def agent(attempt: Attempt) -> Any:
        return (await attempt.call("read_number")).output

    one = await only(shared, workspace, agent, prepare=fetch)
    assert (one.output, one.tries) == (1, 2)


async def test_no_more_attempts_run_than_were_allowed_and_a_slow_reader_holds_them_up(
    shared: Supervisor, workspace: Path
) -> None:
    running = most = begun = 0
    four = anyio.Event()

    async def agent(attempt: Attempt) -> None:
        nonlocal running, most, begun
        running, begun = running + 1, begun + 1
        most = max(most, running)
        if running == 4:
            four.set()
        await four.wait()
        await anyio.sleep(0.01)
        running -= 1

    async with rollout(range(30), agent, supervisor=shared, workspace=workspace, max_concurrent=4) as trajectories:
        await anyio.sleep(0.3)
        assert begun <= 4 + 2  # one trajectory waits in the stream, one to get there
        found = [one async for one in trajectories]
        assert trajectories.progress.done == trajectories.progress.total == len(found) == 30
    assert most == 4 and "30 of 30 attempts" in repr(trajectories)


async def test_leaving_the_block_ends_the_running_attempts(shared: Supervisor, workspace: Path) -> None:
    begun = cancelled = 0

    async def agent(attempt: Attempt) -> None:
        nonlocal begun, cancelled
        if attempt.task.id == "0":
            await until(lambda: begun == 2)
            return
        begun += 1
        try:
            await attempt.call("hang")
        except anyio.get_cancelled_exc_class():
            cancelled += 1
            raise

    with pytest.raises(ZeroDivisionError):
        async with rollout(range(3), agent, supervisor=shared, workspace=workspace) as trajectories:
            assert (await anext(aiter(trajectories))).task_id == "0"
            raise ZeroDivisionError
    assert cancelled == 2


async def test_progress_is_shown_in_lines_if_stderr_is_no_terminal(
    shared: Supervisor, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def agent(attempt: Attempt) -> None:
        if attempt.task.data == 1:
            raise ValueError

    await all_of(shared, workspace, agent, range(3), progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("rollout: 0 of 3 attempts")
    assert "3 of 3 attempts, 0 running: 2 finished, 1 failed" in lines[-1]


def test_on_a_terminal_the_progress_is_a_bar(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(BAR)
    ours, theirs = os.openpty()
    with subprocess.Popen([sys.executable, program, tmp_path], stderr=theirs) as running:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the terminal's other end is closed
            while data := os.read(ours, 4096):
                shown += data
        os.close(ours)
    assert running.returncode == 0
    assert b"3/3" in shown and b"3 finished" in shown and "━".encode() in shown


async def test_wrong_arguments_are_refused_before_anything_runs(shared: Supervisor, workspace: Path) -> None:
    async def agent(attempt: Attempt) -> None: ...

    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"attempts": 0}, "attempts"),
        ({"deadline_s": 0}, "deadline_s"),
        ({"retries": -1}, "retries"),
        ({"interrupted": "never"}, "interrupted"),
        ({"name": "a/b"}, "a/b"),
        ({"record": workspace / "record"}, "overlap"),
        ({"tasks": [RolloutTask("a"), RolloutTask("a")]}, "Two tasks"),
        ({"session_options": {"agent": 1}}, "agent"),
        ({"kind": "boss"}, "boss"),
    ]
    for wrong, says in mistakes:
        with pytest.raises(UsageError, match=says):
            await all_of(shared, workspace, agent, **wrong)
    with pytest.raises(UsageError, match="cannot have the id"):
        RolloutTask("../up")


@pytest.fixture
async def ended(supervise: Any) -> AsyncIterator[Supervisor]:
    async with supervise() as supervisor:
        pass
    yield supervisor


async def test_without_a_running_supervisor_the_iterator_raises(ended: Supervisor, workspace: Path) -> None:
    async def agent(attempt: Attempt) -> None: ...

    with pytest.raises(UsageError, match="supervisor"):
        await all_of(ended, workspace, agent, range(3))
