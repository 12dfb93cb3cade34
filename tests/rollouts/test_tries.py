"""What agents, models and a damaged record must not do to the other attempts of a rollout."""

import asyncio
from pathlib import Path
from typing import Any, NoReturn

import anyio
import pytest
from tests.helpers import PATIENCE_S

from toolcell import Supervisor, UsageError
from toolcell.rollouts import Attempt, CallStep, NoteStep, RolloutOutcome, RolloutTask, Scored, Trajectory, rollout
from toolcell.rollouts.record import FILE

pytestmark = pytest.mark.anyio
BAD, GOOD = "bad", "good"


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


TOOLS = [double]


class Unprintable(Exception):
    """Its text cannot be made."""

    def __str__(self) -> NoReturn:
        raise RuntimeError("no text")


class Outcome(BaseException):
    """As those that test runners raise."""


async def all_of(shared: Supervisor, workspace: Path, agent: Any, **options: Any) -> dict[str, Trajectory]:
    """The trajectories of two tasks by id, with a record, and the same ones from the record."""
    found: list[dict[str, Trajectory]] = []
    for _ in range(2):
        tasks = [RolloutTask(BAD), RolloutTask(GOOD)]
        arguments: dict[str, Any] = {"record": workspace / "record", "retries": 0} | options
        with anyio.fail_after(PATIENCE_S):
            async with rollout(tasks, agent, supervisor=shared, workspace=workspace / "runs", **arguments) as run:
                found.append({one.task_id: one async for one in run})
    assert found[0].keys() == {BAD, GOOD}
    assert {id: repr(one) for id, one in found[0].items()} == {id: repr(one) for id, one in found[1].items()}
    assert found[0][GOOD].outcome is RolloutOutcome.FINISHED
    return found[0]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SystemExit(2), "SystemExit: 2"),
        (Outcome("skipped"), "Outcome: skipped"),
        (asyncio.CancelledError("of another task"), "CancelledError: of another task"),
        (BaseExceptionGroup("both", [SystemExit(1), ValueError("x")]), "BaseExceptionGroup: both"),
        (Unprintable(), "Unprintable"),
        (ValueError("\ud800"), "ValueError: \\ud800"),
    ],
)
async def test_whatever_one_agent_raises_the_other_attempts_go_on(
    shared: Supervisor, tmp_path: Path, error: BaseException, message: str, anyio_backend_name: str
) -> None:
    if isinstance(error, asyncio.CancelledError) and anyio_backend_name == "trio":
        error = Outcome("of another task")
        message = "Outcome: of another task"

    async def agent(attempt: Attempt) -> int:
        if attempt.task.id == BAD:
            raise error
        await anyio.sleep(0.1)
        return 1

    found = (await all_of(shared, tmp_path, agent))[BAD]
    assert found.outcome is RolloutOutcome.FAILED
    assert found.message.startswith(message)


async def test_a_workspace_that_is_prepared_by_sys_exit_ends_one_attempt(shared: Supervisor, tmp_path: Path) -> None:
    def prepare(task: RolloutTask, _directory: Path) -> None:
        if task.id == BAD:
            raise SystemExit(3)

    async def agent(_attempt: Attempt) -> int:
        return 1

    found = (await all_of(shared, tmp_path, agent, prepare=prepare))[BAD]
    assert (found.outcome, found.message) == (
        RolloutOutcome.INFRASTRUCTURE,
        "No session was opened: SystemExit: 3",
    )


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), float("-inf")])
async def test_a_reward_that_is_no_finite_number_is_a_failure(
    shared: Supervisor, tmp_path: Path, reward: float
) -> None:
    async def agent(attempt: Attempt) -> Scored:
        return Scored(1, reward if attempt.task.id == BAD else 1.0)

    found = (await all_of(shared, tmp_path, agent))[BAD]
    assert (found.outcome, found.reward) == (RolloutOutcome.FAILED, None)
    assert "no finite number" in found.message


async def test_numbers_that_json_does_not_have_survive_the_record(shared: Supervisor, tmp_path: Path) -> None:
    async def agent(attempt: Attempt) -> float:
        attempt.note({"logprobs": [float("-inf"), float("nan")]})
        return float("inf")

    found = (await all_of(shared, tmp_path, agent))[BAD]
    assert isinstance(found.steps[0], NoteStep)
    assert (found.output, str(found.steps[0].data)) == (float("inf"), "{'logprobs': [-inf, nan]}")


async def test_an_output_counts_as_bytes_of_the_trajectory(shared: Supervisor, tmp_path: Path) -> None:
    async def agent(attempt: Attempt) -> str:
        return "x" * (20_000 if attempt.task.id == BAD else 1_000)

    found = (await all_of(shared, tmp_path, agent, trajectory_bytes=10_000))[BAD]
    assert (found.outcome, found.output) == (RolloutOutcome.OUT_OF_BUDGET, None)


async def test_a_surrogate_in_the_name_that_a_model_calls_ends_no_rollout(shared: Supervisor, tmp_path: Path) -> None:
    async def agent(attempt: Attempt) -> bool:
        name = "do\ud800ble" if attempt.task.id == BAD else "double"
        return (await attempt.call(name, {"number": 1}, call_id=f"{name}-1")).is_error

    found = (await all_of(shared, tmp_path, agent))[BAD]
    (step,) = found.steps
    assert isinstance(step, CallStep)
    assert (step.tool, step.call_id) == ("do\\ud800ble", "do\\ud800ble-1")
    assert step.error is not None
    assert found.output is True


@pytest.mark.parametrize("damage", [b"", b"x" * 20_000, b"half"])
async def test_the_error_about_a_damaged_record_has_its_path(shared: Supervisor, tmp_path: Path, damage: bytes) -> None:
    async def agent(_attempt: Attempt) -> int:
        return 1

    await all_of(shared, tmp_path, agent)
    file = tmp_path / "record" / FILE
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage == b"half" else damage)
    if not damage:  # as a new one
        await all_of(shared, tmp_path, agent)
        return
    with pytest.raises(UsageError, match=r"The record .*record' cannot be read: .* Use another record\."):
        await all_of(shared, tmp_path, agent)


async def test_retries_that_are_no_number_are_refused(shared: Supervisor, tmp_path: Path) -> None:
    async def agent(_attempt: Attempt) -> int:
        return 1

    with pytest.raises(UsageError, match="retries is no number from 0: '2'"):
        await all_of(shared, tmp_path, agent, retries="2")


@pytest.mark.parametrize("arguments", [[1], "number", 5, {1: 2}, {"number": "\ud800"}])
async def test_arguments_that_are_no_object_are_a_step_with_an_error(
    shared: Supervisor, tmp_path: Path, arguments: Any
) -> None:
    async def agent(attempt: Attempt) -> bool:
        return (await attempt.call("double", arguments if attempt.task.id == BAD else {"number": 1})).is_error

    found = (await all_of(shared, tmp_path, agent))[BAD]
    (step,) = found.steps
    assert isinstance(step, CallStep)
    assert step.error is not None
    assert (step.error.kind, found.output) == ("validation", True)
    assert "unencodable" in step.arguments
