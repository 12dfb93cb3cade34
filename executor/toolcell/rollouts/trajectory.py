"""The data of a rollout: its tasks, and the trajectory of each attempt. The models are frozen, and survive JSON."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from toolcell.errors import UsageError
from toolcell.rules.limits import SessionUsage
from toolcell_tools.encode import encode_json
from toolcell_tools.errors import ToolError
from toolcell_tools.failures import Unencodable

__all__ = [
    "AttemptKey",
    "CallStep",
    "NoteStep",
    "RolloutOutcome",
    "RolloutTask",
    "Trajectory",
    "TrajectoryStep",
    "digest_of",
    "tasks_of",
]

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class RolloutTask:
    """A task. `id` is unique in its rollout. It has up to 100 letters, digits, dots, hyphens and underscores, because
    it names directories and sessions. `data` is JSON data, which only the agent reads."""

    id: str
    data: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or _ID.fullmatch(self.id) is None:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                f"A task cannot have the id {self.id!r}. Use 1 to 100 letters, digits, dots, hyphens and underscores, "
                "with a letter or a digit first."
            )


class AttemptKey(NamedTuple):
    """One attempt of a rollout; `number` counts from 1."""

    task_id: str
    number: int


def tasks_of(given: Iterable[Any]) -> list[RolloutTask]:
    """The tasks. Data that is not a RolloutTask gets its index as id. Raises UsageError if two tasks have one id."""
    tasks = [one if isinstance(one, RolloutTask) else RolloutTask(str(index), one) for index, one in enumerate(given)]
    seen: set[str] = set()
    for task in tasks:
        if task.id in seen:
            raise UsageError(f"Two tasks have the id {task.id!r}. Give each task an id of its own.")
        seen.add(task.id)
    return tasks


def digest_of(task: RolloutTask) -> str:
    """The SHA-256 of the task's data, in hexadecimal. Raises UsageError if the data is not JSON data."""
    try:
        text = json.dumps(encode_json(task.data), sort_keys=True)
    except Unencodable as error:
        raise UsageError(f"The data of the task {task.id!r} is not JSON data: {error}.") from None
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class RolloutOutcome(StrEnum):
    """How an attempt ended. The agent did not cause the last two: leave them out of a training batch."""

    FINISHED = "finished"
    """The agent returned."""
    FAILED = "failed"
    """The agent raised an exception, or returned something other than JSON data."""
    TIMED_OUT = "timed_out"
    """The deadline passed before the agent returned."""
    OUT_OF_BUDGET = "out_of_budget"
    """A usage limit or the size of the trajectory was reached before the agent returned."""
    INFRASTRUCTURE = "infrastructure"
    """Something outside the agent and its tools failed, also in the last try."""
    INTERRUPTED = "interrupted"
    """The program died during the attempt, and no try was left, or `interrupted="end"`."""


class _TrajectoryPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class CallStep(_TrajectoryPart):
    """A call of a tool. `observation` is the text for the model. `arguments` are the arguments that the call ran with;
    if it never ran, the requested ones. `at_s` is the start of the call, in seconds from the start of the try.
    `wall_s` is its duration in seconds."""

    kind: Literal["call"] = "call"
    call_id: str
    tool: str
    arguments: dict[str, Any]
    observation: str
    error: ToolError | None = None
    at_s: float
    wall_s: float


class NoteStep(_TrajectoryPart):
    """A note of the agent, such as the model's answer with its tokens. `data` is JSON data. `at_s` is the time of the
    note, in seconds from the start of the try."""

    kind: Literal["note"] = "note"
    data: Any
    at_s: float


TrajectoryStep = Annotated[CallStep | NoteStep, Field(discriminator="kind")]


class Trajectory(_TrajectoryPart):
    """One attempt of a task. `number` counts the attempts of the task, from 1.

    `output` is the agent's answer, as JSON data. `reward` is None if the agent gave none. `message` says why the
    attempt did not finish. `steps`, `usage`, `session_id`, `workspace`, `started_at` (Unix seconds) and `wall_s`
    (seconds) are those of the last try. `tries` counts all tries, including those that died with an earlier program.
    """

    task_id: str
    number: int
    outcome: RolloutOutcome
    output: Any = None
    reward: float | None = None
    message: str = ""
    steps: tuple[TrajectoryStep, ...] = ()
    usage: SessionUsage = SessionUsage()
    tries: int
    session_id: str
    workspace: str
    started_at: float
    wall_s: float

    @property
    def is_sample(self) -> bool:
        """Whether the agent itself caused the outcome, so that the trajectory can be used for training."""
        return self.outcome not in (RolloutOutcome.INFRASTRUCTURE, RolloutOutcome.INTERRUPTED)
