"""Validate arguments and results against a tool's schemas, in the supervisor: arguments before anything is sent to a
cell, a result before anybody sees it.

jsonschema-rs validates, with a validator compiled once for each tool, and with its linear-time regex engine. Depth is
bounded first, because jsonschema-rs overflows its stack on instances nested 30,000 deep. The number of steps is bounded
too, because a schema of a few lines can take any time. `format` is not asserted.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, cast, final

from toolcell.errors import UsageError
from toolcell.wire.budget import MOST_VALUES
from toolcell.wire.frames import packed
from toolcell.wire.switches import is_on
from toolcell_tools.encode import WIDE_BITS, encode_counted
from toolcell_tools.errors import ValidationError
from toolcell_tools.failures import Unencodable
from toolcell_tools.schemas.cost import BUDGET, CHARS, Cost, SelfReference, is_cheap, is_flat, is_linear, size_of
from toolcell_tools.schemas.keywords import UnresolvedReference
from toolcell_tools.schemas.untrusted import compiled

from .explain import Problem, explained, problems

MAX_MESSAGE_CHARS = 2_000
MAX_VALUES = MOST_VALUES
MAX_EXPLAINED = 2_000_000
"""The largest product of steps and size for which all problems of a value are explained, which takes 40 ms at worst.
Each problem takes 12 µs and copies its value, even if the problem is not shown."""
_type_of: Callable[[object], type[object]] = type  # type checkers do not know the type() of an Any
_REASON = 400  # the fixed cost of a reason, in units of copied values


class _CompiledSchema(Protocol):
    def is_valid(self, instance: object) -> bool: ...
    def iter_errors(self, instance: object) -> Any: ...
    def validate(self, instance: object) -> None: ...


UNCOUNTED = 64 * 1024
"""Arguments up to this size are in no byte budget, because the number of waiting calls is bounded."""
_VALUE_BYTES = 64
"""The approximate memory of a value besides its characters: an entry of a list or dict, and a number."""


@final
class Valid(NamedTuple):
    """Valid arguments: a copy, as plain JSON data. `packed` is the copy encoded, if the check has encoded it. `bytes`
    is their approximate memory, or 0 if that is at most `UNCOUNTED`."""

    arguments: dict[str, Any]
    packed: bytes | None = None
    bytes: int = 0


class Validator:
    """Checks values against one schema of a tool: its arguments, or with `check_output` its results.

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
            plain, values, chars = encode_counted(arguments, MAX_VALUES, bits=WIDE_BITS)
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
        room = MAX_VALUES - len(arguments)
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
        values = 1 + MAX_VALUES - room
        if room < 0 or values > self._most:  # bounds the steps of validation
            return None
        try:
            data = packed(copy) if self._compiled.is_valid(copy) else None
        except ValueError:  # a key is no string
            return None
        if data is None or values + len(data) // CHARS > self._most:
            return None
        return Valid(copy, data, _counted(values, len(data)))

    def check_output(self, value: object) -> str | None:
        """The problems of a result, which is plain JSON data; None if it fits the schema."""
        found = self.problems(value) if self._asserts else None
        return explained(found)[:MAX_MESSAGE_CHARS] if found else None

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
