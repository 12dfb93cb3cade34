"""Validating arguments and results against a tool's schemas, in the supervisor: arguments before anything is sent to a
cell, a result before anybody sees it.

jsonschema-rs does the work, with a validator compiled once for each tool. Its regex engine is the linear one; depth is
bounded first, for it overflows its stack on instances nested 30,000 deep; and so is the number of steps, for schemas of
a few lines can ask for more than any time. `format` is not asserted.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, cast

from toolcell.errors import UsageError
from toolcell.fast.frames import LONG
from toolcell.fast.tuples import made
from toolcell.wire.frames import packed
from toolcell_tools.cost import BUDGET, CHARS, Cost, SelfReference, is_cheap, is_flat, is_linear, size_of
from toolcell_tools.encode import encode_counted
from toolcell_tools.errors import ValidationError
from toolcell_tools.failures import Unencodable
from toolcell_tools.foreign import compiled
from toolcell_tools.targets import UnresolvedReference

from .explain import Problem, explained, problems

MAX_MESSAGE_CHARS = 2_000
MAX_VALUES = 25_000  # in the arguments of one call; more belongs into a file
MAX_EXPLAINED = 2_000_000
"""Steps times size of what is explained in full. Each reason takes 12 µs and a copy of the value that it is about, also
the reasons of alternatives that nobody will read: 40 ms at worst."""
_type_of: Callable[[object], type[object]] = type  # what type() says of an Any is unknown to type checkers
_REASON = 400  # the fixed price of a reason, in the size of a value copied


class _CompiledSchema(Protocol):
    def is_valid(self, instance: object) -> bool: ...
    def iter_errors(self, instance: object) -> Any: ...
    def validate(self, instance: object) -> None: ...


class Valid(NamedTuple):
    """Arguments that may be sent: a copy, plain JSON data. `packed` is that, encoded, where the check encoded it."""

    arguments: dict[str, Any]
    packed: bytes | None = None


class Validator:
    """Checks values against one schema of a tool: its arguments, or with `check_output` its results.

    With `validate=False`, a tool's explicit choice, arguments are only made plain JSON data and must be an object.
    """

    def __init__(self, tool: str, schema: Mapping[str, Any], *, validate: bool = True) -> None:
        self.schema = dict(schema)
        self._asserts = validate
        try:
            self._compiled = cast("_CompiledSchema", compiled(self.schema))
            self._cost = Cost(self.schema)
        except (ValueError, UnresolvedReference, SelfReference) as error:
            reason = str(error).partition("\n")[0]
            raise UsageError(f"A schema of tool {tool!r} does not compile: {reason}. Mend the schema.") from error
        self._linear = is_linear(self.schema)
        self._budget = BUDGET * 10 if is_cheap(self.schema) else BUDGET
        self._is_flat = validate and is_flat(self.schema)

    def check(self, arguments: object) -> Valid | ValidationError:
        """The arguments as plain JSON data, or what is wrong with them, by field. None and "" are no arguments."""
        valid = self._at_once(arguments) if self._is_flat else None
        if valid is not None:
            return valid
        try:
            plain, values, chars = encode_counted(arguments, MAX_VALUES)
        except Unencodable as error:
            return self._error([Problem.of((), "data", str(error))])
        if plain is None or plain == "":
            plain = {}
        if not isinstance(plain, dict):
            return self._error([Problem.of((), "type", f"The arguments must be an object, not {_kind(plain)}.")])
        instance = cast("dict[str, Any]", plain)
        found = self.problems(instance, values + chars // CHARS) if self._asserts else None
        return self._error(found) if found else Valid(instance)

    def _at_once(self, arguments: Any) -> Valid | None:
        """The same for a flat schema, without a look at each value; None for what is to be gone through.

        What fits such a schema is of JSON types, or derived from them, and what can then be packed is of no others.
        """
        if _type_of(arguments) is not dict:
            return None
        room = MAX_VALUES - len(arguments)
        copy: dict[str, Any] = arguments.copy()
        for key, value in arguments.items():
            kind = _type_of(value)
            if kind is list or kind is dict:
                room -= len(value)
                if room < 0:
                    return None
                copy[key] = value.copy()
            elif kind is str and len(value) > LONG:
                return None  # it is sent from where it is
        if room < 0 or self._cost.per_value * (1 + MAX_VALUES - room) > self._budget:  # what judging takes is bounded
            return None
        try:
            data = packed(copy) if self._compiled.is_valid(copy) else None
        except ValueError:  # a key is no string
            return None
        if data is None or self._cost.per_value * (1 + MAX_VALUES - room + len(data) // CHARS) > self._budget:
            return None
        return made(Valid, (copy, data))

    def check_output(self, value: object) -> str | None:
        """What is wrong with a result, plain JSON data; None if it is what the schema says."""
        found = self.problems(value) if self._asserts else None
        return explained(found)[:MAX_MESSAGE_CHARS] if found else None

    def problems(self, value: object, at_most: int | None = None) -> list[Problem] | None:
        """Everything that is wrong with plain JSON data, or what of it can be told in a moment; None if nothing is.

        `at_most` is a bound on its size that is known already, and may be far from it.
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
            return problems(self._compiled.iter_errors(value), self.schema)
        return self._first_problem(value)

    def _first_problem(self, value: object) -> list[Problem]:
        """Of a large value. Where a schema has alternatives, even the first reason comes with those of all of them."""
        if self._linear:
            try:
                self._compiled.validate(value)
            except ValueError as error:
                return problems([error], self.schema)
        return [
            Problem.of((), "size", "This does not fit the schema, and is too large to say where. Send less at once.")
        ]

    def _error(self, found: list[Problem]) -> ValidationError:
        message = explained(found)[:MAX_MESSAGE_CHARS]
        return ValidationError(message=message, field=found[0].field or None, parameters_schema=self.schema)


def _kind(value: object) -> str:
    if isinstance(value, str):
        return "a string"
    if isinstance(value, list):
        return "an array"
    return "a boolean" if isinstance(value, bool) else "a number"
