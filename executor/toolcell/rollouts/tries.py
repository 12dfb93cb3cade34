"""Run one attempt: begin another try while tries end by an infrastructure error and retries remain."""

import inspect
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from toolcell.backends.threads import in_thread
from toolcell.errors import UsageError
from toolcell.rules.limits import SessionUsage, UsageLimits
from toolcell.runtime.retrying import LONGEST_S, waits
from toolcell.session import Session
from toolcell.sessions.session_result import SessionState
from toolcell_tools.encode import encode_counted, in_utf8
from toolcell_tools.errors import ToolFailed
from toolcell_tools.failures import Unencodable
from toolcell_tools.interrupts import Guard, described

from .attempt import Attempt, Scored
from .infrastructure import failure_of, is_infrastructure
from .tasks import AttemptKey, RolloutTask
from .trajectory import CallStep, NoteStep, RolloutOutcome, Trajectory

if TYPE_CHECKING:
    from toolcell.supervisor import Supervisor

__all__ = ["Agent", "Prepare", "RolloutPlan", "run_try", "tried"]

_log = logging.getLogger("toolcell.rollouts")
Agent = Callable[[Attempt], Awaitable[Any]]
"""Works on `attempt.task`. Returns JSON data, or `Scored`."""
Prepare = Callable[[RolloutTask, Path], Awaitable[None] | None]
"""Fills the new workspace of a try. A plain function runs in a thread."""
FIRST_PAUSE_S: Final = 0.5
"""The longest pause before the second try, in seconds. It doubles with each further try."""
CLOSE_S: Final = 10.0
"""The most seconds that the close of a session may take, so that a lost node does not delay the attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """The arguments of `rollout` that all attempts share."""

    supervisor: "Supervisor"
    agent: Agent
    workspace: Path
    name: str = "rollout"
    kind: str = "main"
    deadline_s: float = 600.0
    budget: UsageLimits | None = None
    retries: int = 2
    interrupted: Literal["again", "end"] = "again"
    prepare: Prepare | None = None
    session_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    trajectory_bytes: int = 16 * 1024 * 1024


@dataclass(slots=True)
class _End:
    """How a try has ended so far."""

    outcome: RolloutOutcome = RolloutOutcome.FINISHED
    message: str = ""
    value: Scored = field(default_factory=Scored)

    def become(self, outcome: RolloutOutcome, message: str) -> None:
        self.outcome, self.message = outcome, message


async def tried(
    plan: RolloutPlan,
    task: RolloutTask,
    key: AttemptKey,
    tries: int,
    lost: int,
    begin: Callable[[AttemptKey, int], Awaitable[None]],
) -> Trajectory:
    """The trajectory of an attempt. The attempt has had `tries` tries before, of which `lost` ended by infrastructure
    errors or died with their program. `begin` records that a try begins.

    Raises UsageError if `Supervisor.open_session` refuses its arguments.
    """
    pauses = waits(FIRST_PAUSE_S, LONGEST_S)
    while True:
        tries += 1
        await begin(key, tries)
        trajectory = await run_try(plan, task, key, tries)
        lost += 1
        if trajectory.outcome is not RolloutOutcome.INFRASTRUCTURE or lost > plan.retries:
            return trajectory
        _log.warning("try %d of %s #%d: %s", tries, task.id, key.number, trajectory.message)
        await anyio.sleep(next(pauses))


async def run_try(plan: RolloutPlan, task: RolloutTask, key: AttemptKey, tries: int) -> Trajectory:
    """Run one try in a new session and a new workspace. The workspace is not removed."""
    workspace = plan.workspace / task.id / f"{key.number}-{tries}"
    session_id = f"{plan.name}-{task.id}-{key.number}-{tries}"
    began, started = time.time(), time.monotonic()
    end, usage = _End(), SessionUsage()
    steps: tuple[CallStep | NoteStep, ...] = ()
    with anyio.CancelScope(deadline=anyio.current_time() + plan.deadline_s) as scope:
        session = await _opened(plan, task, workspace, session_id, end)
        if session is not None:
            attempt = Attempt(task, key.number, tries, session, scope, plan.trajectory_bytes)
            try:
                await _worked(plan.agent, attempt, end)
            finally:
                is_late = scope.cancel_called  # also if the agent caught its cancellation and returned or raised
                usage = await _closed(session, end)
                steps = tuple(attempt.steps)
                if attempt.verdict is not None:
                    end.become(*attempt.verdict)
                elif is_late:
                    end.become(RolloutOutcome.TIMED_OUT, _late(plan))
    if scope.cancelled_caught and end.outcome is RolloutOutcome.FINISHED:  # before there was a session
        end.become(RolloutOutcome.TIMED_OUT, _late(plan))
    finished = end.outcome is RolloutOutcome.FINISHED
    return Trajectory(
        task_id=task.id,
        number=key.number,
        outcome=end.outcome,
        output=end.value.output if finished else None,
        reward=end.value.reward if finished else None,
        message=end.message,
        steps=steps,
        usage=usage,
        tries=tries,
        session_id=session_id,
        workspace=str(workspace),
        started_at=began,
        wall_s=time.monotonic() - started,
    )


def _late(plan: RolloutPlan) -> str:
    return f"The deadline of {plan.deadline_s:g} s has passed."


async def _opened(plan: RolloutPlan, task: RolloutTask, workspace: Path, session_id: str, end: _End) -> Session | None:
    """Open the session on a prepared workspace. If that fails, return None and set the reason in `end`. Raises
    UsageError."""
    try:
        async with Guard(contains_exit=True):
            await in_thread(lambda: workspace.mkdir(parents=True, exist_ok=True))
            if plan.prepare is not None:
                await _prepared(plan.prepare, task, workspace)
            options: dict[str, Any] = {"agent_id": plan.name, "usage_limits": plan.budget, **plan.session_options}
            return await plan.supervisor.open_session(plan.kind, workspace=workspace, session_id=session_id, **options)
    except UsageError:
        raise
    except Exception as error:  # a full disk, a download that failed, no sandbox, no node
        end.become(RolloutOutcome.INFRASTRUCTURE, f"No session was opened: {_said(error)}")
        return None


async def _prepared(prepare: Prepare, task: RolloutTask, workspace: Path) -> None:
    if inspect.iscoroutinefunction(prepare):
        await prepare(task, workspace)
        return
    returned = await in_thread(lambda: prepare(task, workspace))
    if inspect.isawaitable(returned):
        await returned


async def _worked(agent: Agent, attempt: Attempt, end: _End) -> None:
    """Run the agent, and set the outcome in `end`."""
    try:
        async with Guard(contains_exit=True):
            value = await agent(attempt)
        given = value if isinstance(value, Scored) else Scored(value)
        reward = None if given.reward is None else float(given.reward)
        if reward is not None and not math.isfinite(reward):
            raise ValueError(f"the reward is {reward}, which is no finite number")
        output, values, characters = encode_counted(given.output)
        attempt.count(8 * values + characters)
        end.value = Scored(output, reward)
    except Unencodable as error:
        end.become(RolloutOutcome.FAILED, f"The agent returned something that is not JSON data: {error}")
    except Exception as error:
        failure = failure_of(error)
        is_of_a_call = isinstance(error, ToolFailed) and is_infrastructure(error.error)
        if failure is not None or is_of_a_call or attempt.session.closed:
            end.become(RolloutOutcome.INFRASTRUCTURE, _said(failure or error))
            return
        end.become(RolloutOutcome.FAILED, _said(error))
        _log.info("the agent failed in %r", attempt, exc_info=error)


async def _closed(session: Session, end: _End) -> SessionUsage:
    """Close the session, even if the rollout is cancelled, and return the usage of its calls."""
    outcome = SessionState.COMPLETED if end.outcome is RolloutOutcome.FINISHED else SessionState.FAILED
    with anyio.move_on_after(CLOSE_S, shield=True):
        try:
            return (await session.close(grace_s=0, outcome=outcome)).usage
        except Exception:  # such as a lost node; the agent's outcome counts nevertheless
            _log.exception("the session %s could not be closed", session.id)
    return session.usage


def _said(error: BaseException) -> str:
    """The exception in one line, of at most 2,000 characters, which JSON can hold."""
    return in_utf8(described(error)[:2000])
