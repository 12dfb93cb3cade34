"""Trajectory: how one attempt of a rollout has ended, and its steps. All of it is frozen, and goes to JSON and back."""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from toolcell.usage_limits import SessionUsage
from toolcell_tools.errors import ToolError

__all__ = ["CallStep", "NoteStep", "RolloutOutcome", "Trajectory", "TrajectoryStep"]


class RolloutOutcome(StrEnum):
    """How an attempt has ended. The last two are no fault of the agent: leave them out of a training batch."""

    FINISHED = "finished"
    """The agent returned."""
    FAILED = "failed"
    """The agent raised, or returned something that is no JSON data."""
    TIMED_OUT = "timed_out"
    """The deadline passed first."""
    OUT_OF_BUDGET = "out_of_budget"
    """A usage limit or the trajectory's size was reached first."""
    INFRASTRUCTURE = "infrastructure"
    """Something failed outside of the agent and its tools, in the last try too."""
    INTERRUPTED = "interrupted"
    """The program died during the attempt, and it was not to be tried again."""


class _TrajectoryPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CallStep(_TrajectoryPart):
    """A call of a tool. `observation` is the text for the model. `arguments` are those that the call ran with, or those
    that were asked for if it never ran. `at_s` is the time from the start of the try to the call's, in seconds."""

    kind: Literal["call"] = "call"
    call_id: str
    tool: str
    arguments: dict[str, Any]
    observation: str
    error: ToolError | None = None
    at_s: float
    wall_s: float


class NoteStep(_TrajectoryPart):
    """What the agent has noted, such as the model's answer with its tokens. `data` is JSON data."""

    kind: Literal["note"] = "note"
    data: Any
    at_s: float


TrajectoryStep = Annotated[CallStep | NoteStep, Field(discriminator="kind")]


class Trajectory(_TrajectoryPart):
    """One attempt of a task, from 1 to `attempts` by `number`.

    `output` is what the agent returned, as JSON data, and `reward` its reward, None without one. `message` says why
    the attempt did not finish. `steps`, `usage`, `wall_s` (seconds), `session_id` and `workspace` are those of the last
    try; `tries` counts all of them, also those that died with an earlier program. `started_at` is in Unix seconds.
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
        """Whether the agent itself has brought this end about, so that it can be learnt from."""
        return self.outcome not in (RolloutOutcome.INFRASTRUCTURE, RolloutOutcome.INTERRUPTED)
