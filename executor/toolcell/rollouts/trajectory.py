"""`Trajectory`: the outcome and the steps of one attempt. Its models are frozen, and survive JSON."""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from toolcell.rules.limits import SessionUsage
from toolcell_tools.errors import ToolError

__all__ = ["CallStep", "NoteStep", "RolloutOutcome", "Trajectory", "TrajectoryStep"]


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
