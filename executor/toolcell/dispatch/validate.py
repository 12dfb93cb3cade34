"""Validate arguments and results against a tool's schemas, in the supervisor: arguments before anything is sent to a
cell, a result before anybody sees it.

jsonschema-rs validates, with a validator compiled once for each tool, and with its linear-time regex engine. Depth is
bounded first, because jsonschema-rs overflows its stack on instances nested 30,000 deep. The number of steps is bounded
too, because a schema of a few lines can take any time. `format` is not asserted. `Malformed` bounds how often a model
may send arguments that do not fit.
"""

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, cast, final
from weakref import WeakKeyDictionary

import anyio
from pydantic_core import from_json, to_json

from toolcell.errors import UsageError
from toolcell.wire.budget import MOST_VALUES
from toolcell.wire.frames import packed
from toolcell.wire.switches import is_on
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.definition import Tool
from toolcell_tools.encode import WIDE_BITS, encode_counted
from toolcell_tools.errors import ExecutionError, ToolError, ValidationError
from toolcell_tools.failures import Unencodable
from toolcell_tools.schemas.cost import BUDGET, CHARS, Cost, SelfReference, is_cheap, is_flat, is_linear, size_of
from toolcell_tools.schemas.keywords import UnresolvedReference
from toolcell_tools.schemas.untrusted import compiled

from .schema_problems import Problem, explained, problems

MAX_MESSAGE_CHARS = 2_000
MAX_EXPLAINED = 2_000_000
"""The largest product of steps and size for which all problems of a value are explained, which takes 40 ms at worst.
Each problem takes 12 µs and copies its value, even if the problem is not shown."""
_type_of: Callable[[object], type[object]] = type  # type checkers do not know the type() of an Any
_REASON = 400  # the fixed cost of a reason, in units of copied values
UNCOUNTED = 64 * 1024
"""Arguments up to this size are in no byte budget, because the number of waiting calls is bounded."""
_VALUE_BYTES = 64
"""The approximate memory of a value besides its characters: an entry of a list or dict, and a number."""
MAX_ATTEMPTS: Final = 3
_BATCH: "ContextVar[tuple[Malformed, int] | None]" = ContextVar("toolcell_batch", default=None)


class _CompiledSchema(Protocol):
    def is_valid(self, instance: object) -> bool: ...
    def iter_errors(self, instance: object) -> Any: ...
    def validate(self, instance: object) -> None: ...


@final
class Valid(NamedTuple):
    """Valid arguments: a copy, as plain JSON data. `packed` is the copy encoded, if the check has encoded it. `bytes`
    is their approximate memory, or 0 if that is at most `UNCOUNTED`."""

    arguments: dict[str, Any]
    packed: bytes | None = None
    bytes: int = 0


class Validator:
    """Checks values against one schema of a tool: its arguments, its results, or the data of its failures.

    With `validate=False`, a tool's explicit choice, arguments are only converted to plain JSON data and must be an
    object. An object under the name `whole` alone is taken as the arguments: see `Tool.whole`.
    """

    def __init__(self, tool: str, schema: Mapping[str, Any], *, validate: bool = True, whole: str = "") -> None:
        self.schema = dict(schema)
        self._whole = whole
        self._asserts = validate
        try:
            self._compiled = cast("_CompiledSchema", compiled(self.schema))
            self._cost = Cost(self.schema)
        except (ValueError, UnresolvedReference, SelfReference) as error:
            reason = str(error).partition("\n")[0]
            raise UsageError(f"A schema of tool {tool!r} does not compile: {reason}. Mend the schema.") from error
        self._linear = is_linear(self.schema)
        self._budget = BUDGET * 10 if is_cheap(self.schema) else BUDGET
        self._is_flat = validate and is_flat(self.schema) and is_on("flat_arguments")
        self._most = self._budget / self._cost.per_value if self._cost.per_value else math.inf

    def check(self, arguments: object) -> Valid | ValidationError:
        """The arguments as plain JSON data, or a ValidationError by field. None and "" mean no arguments."""
        if self._whole and isinstance(arguments, dict):
            given = cast("dict[str, object]", arguments)
            inside = given.get(self._whole)
            arguments = cast("object", inside) if len(given) == 1 and isinstance(inside, dict) else given
        valid = self._at_once(arguments) if self._is_flat else None
        if valid is not None:
            return valid
        try:
            plain, values, chars = encode_counted(arguments, MOST_VALUES, bits=WIDE_BITS)
        except Unencodable as error:
            return self._error([Problem.of((), "data", str(error))])
        if plain is None or plain == "":
            plain = {}
        if not isinstance(plain, dict):
            return self._error([Problem.of((), "type", f"The arguments must be an object, not {_kind(plain)}.")])
        instance = cast("dict[str, Any]", plain)
        found = self.problems(instance, values + chars // CHARS) if self._asserts else None
        return self._error(found) if found else Valid(instance, bytes=_counted(values, chars))

    def _at_once(self, arguments: Any) -> Valid | None:
        """As `check`, for a flat schema, without a Python step for each value; None if the full check is needed.

        A value that is valid by a flat schema has a JSON type or a subclass of one. `packed` refuses subclasses.
        """
        if _type_of(arguments) is not dict:
            return None
        room = MOST_VALUES - len(arguments)
        if room < 0:
            return None
        copy: dict[str, Any] = arguments.copy()
        for key, value in arguments.items():
            kind = _type_of(value)
            if kind is list or kind is dict:
                room -= len(value)
                if room < 0:
                    return None
                copy[key] = value.copy()
        values = 1 + MOST_VALUES - room
        if room < 0 or values > self._most:  # bounds the steps of validation
            return None
        try:
            data = packed(copy) if self._compiled.is_valid(copy) else None
        except ValueError:  # a key is no string
            return None
        if data is None or values + len(data) // CHARS > self._most:
            return None
        return Valid(copy, data, _counted(values, len(data)))

    def problems(self, value: object, at_most: int | None = None) -> list[Problem] | None:
        """The problems of plain JSON data; None if there are none. For large data, only some problems are found.

        `at_most` is an upper bound on its size, if one is known. It may be far above the real size.
        """
        if at_most is not None and self._cost.per_value * at_most <= self._budget and self._compiled.is_valid(value):
            return None
        size = size_of(value)
        steps = self._cost.of(value, size, self._budget)
        if steps > self._budget:
            return [
                Problem.of((), "size", f"This takes over {self._budget:,} steps to check. Send less, or flatter data.")
            ]
        if self._compiled.is_valid(value):
            return None
        affordable = MAX_EXPLAINED / (_REASON + size)
        if steps <= affordable or self._cost.of(value, size, affordable) <= affordable:
            return problems(self._compiled.iter_errors(value), self.schema, value)
        return self._first_problem(value)

    def _first_problem(self, value: object) -> list[Problem]:
        """The first problem of a large value. If the schema has alternatives, the validator would have to find all
        problems to report the first one, so the message names none."""
        if self._linear:
            try:
                self._compiled.validate(value)
            except ValueError as error:
                return problems([error], self.schema, value)
        return [
            Problem.of((), "size", "This does not fit the schema, and is too large to say where. Send less at once.")
        ]

    def _error(self, found: list[Problem]) -> ValidationError:
        message = explained(found)[:MAX_MESSAGE_CHARS]
        return ValidationError(message=message, field=found[0].field or None, parameters_schema=self.schema)


def _counted(values: int, chars: int) -> int:
    size = values * _VALUE_BYTES + chars
    return size if size > UNCOUNTED else 0


def _kind(value: object) -> str:
    if isinstance(value, str):
        return "a string"
    if isinstance(value, list):
        return "an array"
    return "a boolean" if isinstance(value, bool) else "a number"


class OutputSchema:
    """One tool's compiled output schema. Raises UsageError if it does not compile."""

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        self._tool = tool
        self._validator = Validator(tool, schema)

    def misfit(self, output: object, who: str = "") -> ExecutionError | None:
        """None for an output that fits, else the error. Its `data["path"]` is a JSON path such as `$.rows[3]`.

        `who` says in words who returned the output, if it was not the tool itself.
        """
        found = self._validator.problems(output)
        if not found:
            return None
        path = "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in found[0].path)
        name = f"the tool {self._tool!r}"
        said = (
            f"{who} put in what the output schema of {name}" if who else f"T{name[1:]} returned what its output schema"
        )
        message = f"{said} does not allow: {explained(found)}"
        return ExecutionError(message=message[:MAX_MESSAGE_CHARS], data={"path": path[:MAX_MESSAGE_CHARS]})


def returned_failure(message: str, data: object, declaration: ToolDeclaration) -> dict[str, object] | ExecutionError:
    """The output of a call with a declared failure: `{"failure": data}`, so that no reader takes it for a success, or
    `{"failure": {"message": …}}` without data. Data that does not fit `failure_schema` is an ExecutionError.
    """
    failure = {"message": message} if data is None else data
    if declaration.failure_schema is not None:
        found = _validator(declaration.name, to_json(declaration.failure_schema)).problems(failure)
        if found:
            why = explained(found)[:MAX_MESSAGE_CHARS]
            return ExecutionError(
                message=f"{message} (The data of this failure is not what the tool declared: {why})", data=data
            )
    return {"failure": failure}


@lru_cache(maxsize=256)
def _validator(tool: str, schema: bytes) -> Validator:
    return Validator(tool, cast("dict[str, Any]", from_json(schema)))


@dataclass(frozen=True, slots=True)
class Checks:
    """The compiled schemas of a tool's arguments and of its output."""

    arguments: Validator
    output: OutputSchema | None


_checks: WeakKeyDictionary[Tool[..., Any], Checks] = WeakKeyDictionary()
"""Of all supervisors of this program: they depend on the tool alone."""


def checks_of(tool: Tool[..., Any]) -> Checks:
    """The tool's schemas, compiled at the first call. Raises UsageError if one does not compile."""
    checks = _checks.get(tool)
    if checks is None:
        declaration, schema = tool.declaration, tool.declaration.output_schema
        arguments = Validator(tool.name, declaration.parameters_schema, validate=tool.validate, whole=tool.whole)
        checks = _checks[tool] = Checks(arguments, None if schema is None else OutputSchema(tool.name, schema))
    return checks


@dataclass(slots=True)
class _Streak:
    """Malformed calls of a tool in a row. `task` made the last one. `told` is the turn from which other tasks may know
    its result; None until then."""

    count: int
    task: int
    told: int | None = None


class Malformed:
    """The malformed calls of a session. Bounds how often a model may send malformed arguments: ADR-0004's two retries,
    whoever drives the loop.

    The usual loop gives each error to the model, which corrects itself in its next turn. So the malformed calls of each
    tool in a session are counted. The third in a row is not retryable, and is reported to the parent session. A
    malformed call counts only if it began after the result of the one before was returned, so a batch, whose calls the
    model wrote at once, counts once. For the task that made a call, its result is returned at once; for any other task,
    in a later turn of the event loop.
    """

    __slots__ = ("_streaks", "turn")

    def __init__(self) -> None:
        self.turn = 0
        self._streaks: dict[str, _Streak] = {}

    def __bool__(self) -> bool:
        return bool(self._streaks)

    def begun(self) -> int:
        """The turn in which a call that begins now, or its batch, began."""
        batch = self._batch_turn()
        return self.turn if batch is None else batch

    def _batch_turn(self) -> int | None:
        """The turn in which the current task's batch began; None outside of a batch."""
        batch = _BATCH.get()
        return batch[1] if batch is not None and batch[0] is self else None

    @contextmanager
    def batch(self) -> Generator[None]:
        """A context for calls that the model wrote at once. At its end, their caller has all results."""
        token = _BATCH.set((self, self.begun()))
        try:
            yield
        finally:
            _BATCH.reset(token)
            for streak in self._streaks.values():
                self._tell(streak)

    def judged(
        self, tool: str, error: ToolError | None, began: int | None, in_background: Callable[..., None]
    ) -> ToolError | None:
        """The error of a call that began in the turn `began`: not retryable if it is the third malformed one in a row.
        An outcome that is not malformed ends the row. With `began` None, the call does not count: a repair may still
        correct it."""
        if not isinstance(error, ValidationError) or not error.retryable:  # others put arguments in, not the model
            self._streaks.pop(tool, None)
            return error
        if began is None:
            return error
        streak, task = self._streaks.get(tool), anyio.get_current_task().id
        if streak is None:
            streak = self._streaks[tool] = _Streak(1, task)
        elif (task == streak.task and self._batch_turn() is None) or (streak.told is not None and began >= streak.told):
            streak.count, streak.task, streak.told = streak.count + 1, task, None
        in_background(self._tell_later, streak)
        return error if streak.count < MAX_ATTEMPTS else _for_good(tool, error)

    def gave_up(self, tool: str) -> None:
        """A repair has given up."""
        self._streaks[tool] = _Streak(MAX_ATTEMPTS, 0, self.turn)

    async def _tell_later(self, streak: _Streak) -> None:
        self._tell(streak)

    def _tell(self, streak: _Streak) -> None:
        if streak.told is None:
            self.turn += 1
            streak.told = self.turn


def leave_batch() -> None:
    """Take the current task, which runs the program's code, out of the batch that it was called in."""
    _BATCH.set(None)


def _for_good(tool: str, error: ValidationError) -> ValidationError:
    """The error of the third malformed call of a tool in a row."""
    advice = f"{MAX_ATTEMPTS} calls of {tool!r} in a row did not fit its schema. Do without it, or ask for help."
    return error.model_copy(update={"retryable": False, "message": f"{error.message}\n{advice}"})
