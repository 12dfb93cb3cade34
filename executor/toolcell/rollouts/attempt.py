"""`Attempt`: the object that a rollout gives to the agent. It makes the calls and keeps the steps."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Unpack, cast

import anyio

from toolcell.errors import UsageError
from toolcell.session import CallOptions, Session
from toolcell_tools.declaration import Declared
from toolcell_tools.encode import encode_counted, encode_json, in_utf8
from toolcell_tools.errors import PermissionDenied
from toolcell_tools.failures import Unencodable
from toolcell_tools.result import ToolResult

from .infrastructure import is_infrastructure, steady_call
from .tasks import RolloutTask
from .trajectory import CallStep, NoteStep, RolloutOutcome

__all__ = ["Attempt", "Scored"]

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
