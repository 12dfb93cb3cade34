"""One attempt: `Attempt`, the object that makes an agent's calls and keeps its steps, and the tries around it.

Each try has a new session and a new workspace. While tries end by an infrastructure error and retries remain, another
one follows.
"""

import inspect
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack, cast

import anyio

from toolcell.backends.threads import in_thread
from toolcell.errors import UsageError
from toolcell.rules.limits import SessionUsage, UsageLimits
from toolcell.runtime.retrying import LONGEST_S, waits
from toolcell.session import CallOptions, Session
from toolcell.sessions.session_result import SessionState
from toolcell_tools.declaration import Declared
from toolcell_tools.encode import encode_counted, encode_json, in_utf8
from toolcell_tools.errors import PermissionDenied, ToolFailed
from toolcell_tools.failures import Unencodable
from toolcell_tools.interrupts import Guard, described
from toolcell_tools.result import ToolResult

from .infrastructure import failure_of, is_infrastructure, steady_call
from .trajectory import AttemptKey, CallStep, NoteStep, RolloutOutcome, RolloutTask, Trajectory

if TYPE_CHECKING:
    from toolcell.supervisor import Supervisor

__all__ = ["Agent", "Attempt", "Prepare", "RolloutPlan", "Scored", "tried"]

_log = logging.getLogger("toolcell.rollouts")
FIRST_PAUSE_S: Final = 0.5
"""The longest pause before the second try, in seconds. It doubles with each further try."""
CLOSE_S: Final = 10.0
"""The most seconds that the close of a session may take, so that a lost node does not delay the attempt."""
_SPENT: Final = "usage limit: "
"""The prefix of the reason of a PermissionDenied if a usage limit is reached."""
_STEP_BYTES: Final = 200
"""The size of a step in bytes, without its texts."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What an agent returns to give its attempt a reward. `output` is JSON data."""

    output: Any = None
    reward: float | None = None


class Attempt:
    """One try of one attempt, in a session and a workspace of its own. A rollout makes it, and gives it to the agent.

    `call` makes a call and keeps it as a step. `session` is for frameworks and verifiers. Their calls count in the
    budget and are not kept as steps. Pass the results of such calls to `check`.
    """

    def __init__(
        self, task: RolloutTask, number: int, tries: int, session: Session, scope: anyio.CancelScope, most_bytes: int
    ) -> None:
        self.task = task
        self.number = number
        """The number of the attempt, from 1."""
        self.tries = tries
        """The number of this try, from 1. Another try follows only after an infrastructure error or the program's
        end."""
        self.session = session
        self.steps: list[CallStep | NoteStep] = []
        self.verdict: tuple[RolloutOutcome, str] | None = None
        """The outcome and its reason, if the rollout has decided them before the agent returned. None otherwise."""
        self.started = time.monotonic()
        self._scope = scope
        self._room = most_bytes

    def __repr__(self) -> str:
        return f"<Attempt {self.task.id} #{self.number}, try {self.tries} · {len(self.steps)} steps>"

    @property
    def left_s(self) -> float:
        """The seconds until the deadline."""
        return max(0.0, self._scope.deadline - anyio.current_time())

    async def call(
        self, name: str | Declared, args: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> ToolResult:
        """Call a tool, as `Session.call` does, and keep the call as a step.

        After an infrastructure error, the call is repeated up to twice if it has done nothing that lasts. Otherwise
        this try ends, and the call is not kept as a step. If the budget is reached, the attempt ends. Both ends cancel
        the agent.
        """
        began = time.monotonic()
        result = await steady_call(self.session, name, args, **options)
        await self.check(result)
        step = CallStep(
            call_id=result.call_id,
            tool=result.tool,
            arguments=_plain(args if result.arguments is None else result.arguments),
            observation=result.for_model(),
            error=result.error,
            at_s=began - self.started,
            wall_s=time.monotonic() - began,
        )
        self._add(step if _is_in_utf8(step) else CallStep.model_validate(_in_utf8(step.model_dump())))
        await self._checkpoint()
        return result

    async def check(self, result: ToolResult) -> None:
        """End this try if the result is an infrastructure error, and the attempt if its budget is reached."""
        error = result.error
        if error is not None and is_infrastructure(error):
            self._end(RolloutOutcome.INFRASTRUCTURE, in_utf8(f"{result.tool}: {error.message}"))
        elif isinstance(error, PermissionDenied) and error.reason.startswith(_SPENT):
            self._end(RolloutOutcome.OUT_OF_BUDGET, f"The {error.reason} was reached.")
        await self._checkpoint()

    def note(self, data: Any) -> None:
        """Keep JSON data as a step, such as the model's answer. Raises UsageError for other data, and if the attempt
        has ended, for example because its steps need more than `trajectory_bytes`."""
        try:
            plain, values, characters = encode_counted(data)
        except Unencodable as error:
            raise UsageError(f"The note is not JSON data: {error}.") from None
        self._add(NoteStep(data=plain, at_s=time.monotonic() - self.started), 8 * values + characters)
        if self.verdict is not None:  # an agent that never awaits could not be cancelled
            raise UsageError(f"The attempt has ended ({self.verdict[0]}): {self.verdict[1]}")

    def _add(self, step: CallStep | NoteStep, size: int | None = None) -> None:
        """Keep a step. If it exceeds the size of the trajectory, the attempt ends, and the step is left out."""
        if isinstance(step, CallStep):
            _, values, characters = encode_counted(step.arguments)
            size = len(step.observation) + 8 * values + characters
        if self.count(_STEP_BYTES + (size or 0)) and self.verdict is None:
            self.steps.append(step)

    def count(self, size: int) -> bool:
        """Count bytes of the trajectory. Returns whether there is room for them. If not, the attempt ends."""
        self._room -= size
        if self._room < 0:
            self._end(RolloutOutcome.OUT_OF_BUDGET, "The trajectory is larger than trajectory_bytes.")
        return self._room >= 0

    def _end(self, outcome: RolloutOutcome, message: str) -> None:
        """Decide on the outcome, and cancel the agent. The first decision counts."""
        if self.verdict is None:
            self.verdict = outcome, message
            self._scope.cancel()

    async def _checkpoint(self) -> None:
        if self.verdict is not None:
            await anyio.lowlevel.checkpoint()


def _is_in_utf8(step: CallStep) -> bool:
    """Whether JSON can hold the step. A model chooses the name of the tool, and an error repeats it."""
    texts = (step.call_id, step.tool, step.observation, "" if step.error is None else step.error.message)
    return all(text.isascii() or in_utf8(text) == text for text in texts)


def _in_utf8(data: Any) -> Any:
    if isinstance(data, str):
        return in_utf8(data)
    if isinstance(data, dict):
        items = cast("Mapping[Any, Any]", data).items()
        return {_in_utf8(name): _in_utf8(value) for name, value in items}
    if isinstance(data, (list, tuple)):
        return [_in_utf8(value) for value in cast("Sequence[Any]", data)]
    return data


def _plain(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments as JSON data. Arguments that cannot be encoded, or are no object, become their repr."""
    try:
        return dict(encode_json(dict(arguments or {})))
    except (Unencodable, TypeError, ValueError):  # a model may pass anything as its arguments
        return {"unencodable": in_utf8(repr(arguments)[:1000])}


Agent = Callable[[Attempt], Awaitable[Any]]
"""Works on `attempt.task`. Returns JSON data, or `Scored`."""
Prepare = Callable[[RolloutTask, Path], Awaitable[None] | None]
"""Fills the new workspace of a try. A plain function runs in a thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """The arguments of `rollout` that all attempts share."""

    supervisor: "Supervisor"
    agent: Agent
    workspace: Path
    name: str
    kind: str
    deadline_s: float
    budget: UsageLimits | None
    retries: int
    interrupted: Literal["again", "end"]
    prepare: Prepare | None
    session_options: Mapping[str, Any]
    trajectory_bytes: int

    def session_id(self, key: AttemptKey, tries: int) -> str:
        """The id of the session of one try."""
        return f"{self.name}-{key.task_id}-{key.number}-{tries}"

    def directory(self, key: AttemptKey, tries: int) -> Path:
        """The workspace of one try."""
        return self.workspace / key.task_id / f"{key.number}-{tries}"


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
        trajectory = await _tried_once(plan, task, key, tries)
        lost += 1
        if trajectory.outcome is not RolloutOutcome.INFRASTRUCTURE or lost > plan.retries:
            return trajectory
        _log.warning("try %d of %s #%d: %s", tries, task.id, key.number, trajectory.message)
        await anyio.sleep(next(pauses))


async def _tried_once(plan: RolloutPlan, task: RolloutTask, key: AttemptKey, tries: int) -> Trajectory:
    """Run one try in a new session and a new workspace. The workspace is not removed."""
    workspace, session_id = plan.directory(key, tries), plan.session_id(key, tries)
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
