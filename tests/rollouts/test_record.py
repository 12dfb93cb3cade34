"""A rollout that is killed, and goes on from its record: no attempt is lost, and none is doubled."""

import signal
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import programs

from toolcell import Supervisor, UsageError, tool
from toolcell.rollouts import Attempt, InfrastructureFailure, RolloutOutcome, RolloutTask, Trajectory, rollout

from .victim import STEPS

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("warm")]
VICTIM = Path(__file__).with_name("victim.py")


@tool
def say(text: str) -> str:
    """Say it."""
    return text


TOOLS = [say]


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "record"


def command(record: Path, workspace: Path, tasks: int, *more: str) -> list[str]:
    return [sys.executable, "-I", str(VICTIM), str(record), str(workspace), str(tasks), *more]


def killed_after(lines: int, command: list[str]) -> list[list[str]]:
    """Kill the program when it has printed so many lines. Returns the words of what it has printed."""
    with programs.start(command) as program:
        said = [program.stdout.readline() for _ in range(lines)]
        program.send_signal(signal.SIGKILL)
        said += [line for line in program.stdout.read().splitlines() if line]
    assert all(said), "it ended by itself"
    return [line.split() for line in said]


def finished(command: list[str]) -> list[list[str]]:
    done = programs.run(command, timeout=120, fork_zygotes=True)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


class TestKilled:
    """kill -9 in the middle."""

    @pytest.mark.parametrize("anyio_backend", ["asyncio"])
    def test_the_next_program_gets_each_trajectory_once_and_runs_no_ended_attempt_again(
        self, record: Path, workspace: Path, anyio_backend: str
    ) -> None:
        tasks, seen = 5, list[list[str]]()
        for lines in (2, 6):
            said = killed_after(lines, command(record, workspace, tasks))
            assert all(each in said for each in seen)  # among those that were recorded and not said before the kill
            seen = said
        said = finished(command(record, workspace, tasks))
        assert Counter((task, number) for task, number, *_ in said) == Counter(
            (str(task), str(number)) for task in range(tasks) for number in (1, 2)
        )
        assert all(outcome == "finished" and float(reward) == int(task) for task, _, outcome, _, reward in said)
        assert sorted(seen) == sorted(line for line in said if line in seen)  # what had ended is as it was
        for task, number, _, tries, _ in said:
            directories = sorted((workspace / task).glob(f"{number}-*"))
            assert len(directories) <= int(tries)  # each try has its own, and none was not counted
            whole = [(each / "steps").read_text().split() for each in directories if (each / "steps").exists()]
            assert Counter(map(len, whole))[STEPS] >= 1 and whole[-1] == [str(step) for step in range(STEPS)]
        assert any(int(tries) > 1 for _, _, _, tries, _ in said)  # some were under way

    @pytest.mark.parametrize("anyio_backend", ["asyncio"])
    def test_an_interrupted_attempt_that_must_not_run_twice_has_ended(
        self, record: Path, workspace: Path, anyio_backend: str
    ) -> None:
        before = killed_after(2, command(record, workspace, 3))
        said = finished(command(record, workspace, 3, "end"))
        assert len(said) == len({(task, number) for task, number, *_ in said}) == 6
        outcomes = Counter(outcome for _, _, outcome, _, _ in said)
        assert outcomes["interrupted"] >= 1 and set(outcomes) == {"finished", "interrupted"}
        assert all(tries == "1" for _, _, _, tries, _ in said)
        assert [line for line in before if line not in said] == []


async def test_a_program_that_leaves_in_an_orderly_way_interrupts_nothing(
    shared: Supervisor, record: Path, workspace: Path
) -> None:
    release = False

    async def agent(attempt: Attempt) -> str:
        if attempt.task.id != "a" and not release:
            await anyio.sleep_forever()
        return str((await attempt.call("say", {"text": attempt.task.id})).unwrap())

    def again() -> Any:
        tasks = [RolloutTask("a"), RolloutTask("b")]
        return rollout(
            tasks, agent, supervisor=shared, workspace=workspace, record=record, retries=0, interrupted="end"
        )

    async with again() as trajectories:
        first = await anext(aiter(trajectories))
    release = True
    async with again() as trajectories:
        kept, other = [one async for one in trajectories]
    assert kept == first
    assert (other.task_id, other.output, other.tries) == ("b", "b", 2)


async def test_an_attempt_that_kills_its_program_does_not_do_so_for_ever(
    shared: Supervisor, record: Path, workspace: Path
) -> None:
    """As if it had died in each try: the record has a try that runs."""

    async def agent(attempt: Attempt) -> int:
        if attempt.tries == 1:
            raise InfrastructureFailure("away")
        return attempt.tries

    async def run(retries: int) -> Trajectory:
        async with rollout(
            ["x"], agent, supervisor=shared, workspace=workspace, record=record, retries=retries
        ) as trajectories:
            (one,) = [one async for one in trajectories]
            return one

    assert (await run(0)).outcome is RolloutOutcome.INFRASTRUCTURE
    edit(record, "UPDATE attempts SET trajectory = NULL, running = 1, tries = 3")
    one = await run(2)
    assert (one.outcome, one.tries, one.is_sample) == (RolloutOutcome.INTERRUPTED, 3, False)
    assert "died during try 3" in one.message
    edit(record, "UPDATE attempts SET trajectory = NULL, running = 1, tries = 2")
    assert (await run(2)).output == 3


def edit(record: Path, statement: str) -> None:
    database = sqlite3.connect(record / "rollout.sqlite")
    with database:
        database.execute(statement)
    database.close()


async def test_a_record_has_one_writer_and_takes_no_other_task_for_a_known_one(
    shared: Supervisor, record: Path, workspace: Path
) -> None:
    async def agent(attempt: Attempt) -> None: ...

    def of(*tasks: object) -> Any:
        return rollout(tasks, agent, supervisor=shared, workspace=workspace, record=record)

    async with of("a", "b") as trajectories:
        with pytest.raises(UsageError, match="Another rollout writes"):
            async with of("a", "b"):
                pass
        assert len([one async for one in trajectories]) == 2
    with pytest.raises(UsageError, match="The task '1' has other data"):
        async with of("a", "c"):
            pass
    with pytest.raises(UsageError, match="not JSON data"):
        async with of("a", "b", object()):
            pass
    async with of("a", "b", "c") as trajectories:
        assert [one.task_id async for one in trajectories][-1] == "2"  # the kept ones come first
    assert (record / "rollout.sqlite").stat().st_mode & 0o077 == 0


async def test_a_damaged_trajectory_is_reported(shared: Supervisor, record: Path, workspace: Path) -> None:
    async def agent(attempt: Attempt) -> None: ...

    async def run() -> list[Trajectory]:
        async with rollout(["a"], agent, supervisor=shared, workspace=workspace, record=record) as trajectories:
            return [one async for one in trajectories]

    await run()
    edit(record, "UPDATE attempts SET trajectory = '{}'")
    with pytest.raises(UsageError, match="cannot be read"):
        await run()


def test_a_fork_that_outlives_a_rollout_keeps_nobody_out_of_its_record(record: Path) -> None:
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from toolcell.rollouts.record import RolloutRecord\n"
        "record = RolloutRecord(Path(sys.argv[1]))\n"
        "read, write = os.pipe()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.close(write)\n"
        "    os.read(read, 1)\n"
        "    os._exit(0)\n"
        "record.close()\n"
        "RolloutRecord(Path(sys.argv[1])).close()\n"
        "os.close(write)\n"
        "print(os.waitpid(child, 0)[1])\n"
    )
    done = programs.run([*programs.PYTHON, "-c", program, str(record)], timeout=120)
    assert (done.stdout, done.stderr) == ("0\n", "")
