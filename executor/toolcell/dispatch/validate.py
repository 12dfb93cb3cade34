"""Validating arguments against a tool's schema, in the supervisor, before anything is sent to a cell.

jsonschema-rs does the work, with a validator compiled once for each tool. Its regex engine is the linear one, so that
no pattern can hang the supervisor; depth is bounded first, for it overflows its stack on instances nested 30,000 deep.
"""

from collections.abc import Mapping
from typing import Any, Protocol, cast

import jsonschema_rs

from toolcell.errors import UsageError
from toolcell_tools.encode import encode_json
from toolcell_tools.errors import ValidationError
from toolcell_tools.failures import Unencodable

MAX_MESSAGE_CHARS = 2_000


class _Compiled(Protocol):
    def is_valid(self, instance: object) -> bool: ...
    def iter_errors(self, instance: object) -> Any: ...


class Validator:
    """Checks arguments against one tool's parameters schema."""

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        self.schema = dict(schema)
        try:
            self._compiled = cast(
                "_Compiled",
                jsonschema_rs.Draft202012Validator(
                    self.schema, pattern_options=jsonschema_rs.RegexOptions(), retriever=_refuse_remote
                ),
            )
        except ValueError as error:
            raise UsageError(
                f"The parameters schema of tool {tool!r} does not compile: {error}. Mend the schema."
            ) from error

    def check(self, arguments: object) -> dict[str, Any] | ValidationError:
        """The arguments as plain JSON data, or what is wrong with them, by field."""
        try:
            plain = encode_json(arguments)
        except Unencodable as error:
            return self._error(str(error), None)
        if type(plain) is not dict:
            return self._error(f"The arguments must be an object, not {type(arguments).__name__}.", None)
        instance = cast("dict[str, Any]", plain)
        if self._compiled.is_valid(instance):
            return instance
        problem = next(iter(self._compiled.iter_errors(instance)))
        named = _named_property(problem)
        field = ".".join(str(part) for part in (*problem.instance_path, *named))
        return self._error(f"{field}: {problem.message}" if field else str(problem.message), field or None)

    def _error(self, message: str, field: str | None) -> ValidationError:
        return ValidationError(message=message[:MAX_MESSAGE_CHARS], field=field, parameters_schema=self.schema)


def _named_property(problem: Any) -> tuple[str, ...]:
    """A missing or surplus property is reported at its parent; its own name says more."""
    kind = problem.kind.as_dict()
    name = kind.get("property")
    if isinstance(name, str):
        return (name,)
    unexpected = kind.get("unexpected")
    return (str(unexpected[0]),) if unexpected else ()


def _refuse_remote(uri: str) -> Any:
    raise ValueError(f"a schema may not refer to {uri}: only local references are followed")
