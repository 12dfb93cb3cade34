"""Parse a provider's tool-call payload into a name, arguments and a call id. A model wrote it, so all is checked."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from toolcell_tools.encode import MAX_DEPTH, WIDE_BITS, encode_json
from toolcell_tools.errors import ValidationError
from toolcell_tools.failures import Unencodable
from toolcell_tools.result import ToolResult

__all__ = ["MAX_ARGUMENT_BYTES", "InvalidCall", "ModelCall", "RawCall", "parse_arguments", "text_of"]

MAX_ARGUMENT_BYTES = 4_000_000  # far above what any model writes in one turn
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class RawCall:
    """A call as in the provider's payload: the exported name, the unparsed arguments, the id or "", is it free text."""

    name: str
    arguments: object
    call_id: str
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A call that a model asks for. `exported_name` is the provider's name of the tool. `call_id` may be "". `is_text`
    is true if the argument came as free text; the result is then sent in the same way.
    """

    name: str
    arguments: dict[str, Any]
    call_id: str = ""
    exported_name: str = ""
    is_text: bool = False


class InvalidCall(ValueError):
    """A payload is not a call. `result` tells the model, with the name and the id if they could be read."""

    def __init__(self, message: str, name: str = "", call_id: str = "") -> None:
        super().__init__(message)
        self.name, self.call_id = name, call_id

    @property
    def result(self) -> ToolResult:
        """The refusal as a result: a ValidationError, which the model can correct."""
        return ToolResult(error=ValidationError(message=str(self)), tool=self.name, call_id=self.call_id)


def text_of(payload: Mapping[str, Any], key: str) -> str:
    """The string at `key`. Raises InvalidCall if there is none."""
    value = payload.get(key)
    if not isinstance(value, str):
        raise InvalidCall(f"The tool call has no text at {key!r}.")
    return value


def parse_arguments(given: object, name: str, call_id: str) -> dict[str, Any]:
    """Arguments as an object of plain JSON data, from JSON text or from a provider SDK's parsed form.

    Raises InvalidCall for text that is no JSON, duplicate keys, NaN and infinities, integers of more than 1,023 bits,
    lone surrogates, and more than 64 levels or 4,000,000 bytes. Missing arguments are an empty object.
    """
    try:
        value = _loaded(given) if isinstance(given, str) else given
        plain = encode_json({} if value is None else value, bits=WIDE_BITS)
    except (ValueError, Unencodable) as problem:
        raise InvalidCall(f"The arguments of {name!r} are not valid JSON: {problem}.", name, call_id) from None
    if type(plain) is not dict:
        raise InvalidCall(f"The arguments of {name!r} are not an object.", name, call_id)
    found = cast("dict[str, Any]", plain)
    if not _finite(found):
        raise InvalidCall(f"The arguments of {name!r} are not valid JSON: a number is not finite.", name, call_id)
    return found


def _loaded(text: str) -> object:
    if len(text) > MAX_ARGUMENT_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_ARGUMENT_BYTES:
        raise ValueError(f"more than {MAX_ARGUMENT_BYTES:,} bytes")
    if not text.strip():
        return {}
    depth = 0
    for found in _STRUCTURE.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    return json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_not_json)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"the key {name[:100]!r} stands twice")
        result[name] = value
    return result


def _not_json(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_finite, cast("dict[str, object]", value).values()))
    return not isinstance(value, list) or all(map(_finite, cast("list[object]", value)))
