"""Convert a value of a richer type one step towards JSON data. Cheap and common types are tested first."""

import sys
from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, cast

from .failures import Unencodable

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["converted"]


def converted(value: object) -> object:
    """A plainer value for `value`, one step nearer to JSON. Raises Unencodable, without a path, if there is none."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return "".join((value,))  # the exact str of a subclass; its __str__ is not called
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    pydantic = sys.modules.get("pydantic")  # if it is not imported, `value` is no model
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return cast("BaseModel", value).model_dump(mode="json", by_alias=True)
    if is_dataclass(value) and not isinstance(value, type):
        serializer = getattr(value, "__pydantic_serializer__", None)
        if serializer is not None:  # a pydantic dataclass has aliases and serialisers, as a model has
            return cast("object", serializer.to_python(value, mode="json", by_alias=True))
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, PurePath) or _is_a("uuid", "UUID", value) or _is_a("decimal", "Decimal", value):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _binary(cast("bytes | bytearray | memoryview[int]", value))
    if isinstance(value, timedelta):
        return _duration(value)
    return _collection(value)


def _is_a(module: str, name: str, value: object) -> bool:
    """Whether `value` is an instance of that class. If the module is not loaded, it is not; nothing is imported."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))


def _collection(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    if isinstance(value, Set):
        return _in_order(cast("Set[object]", value))
    if isinstance(value, (Sequence, deque)):
        return list(cast("Sequence[object]", value))
    raise Unencodable(_refusal(value))


def _in_order(items: Set[object]) -> list[object]:
    """A set's items in a repeatable order: sorted if they can be compared, else sorted by their repr."""
    try:
        return sorted(items)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportUnknownVariableType]
    except TypeError:
        return sorted(items, key=repr)


def _binary(raw: "bytes | bytearray | memoryview[int]") -> dict[str, object]:
    from base64 import b64encode

    return {"base64": b64encode(raw).decode("ascii"), "size": memoryview(raw).nbytes}


def _duration(value: timedelta) -> str:
    """The duration in ISO 8601, as pydantic writes it."""
    from pydantic_core import to_jsonable_python

    return cast("str", to_jsonable_python(value))


_REMEDIES = {
    "coroutine": "await it",
    "generator": "return list(...) of it",
    "async_generator": "collect it into a list",
    "function": "call it",
    "method": "call it",
    "builtin_function_or_method": "call it",
    "ndarray": "return its .tolist()",
    "DataFrame": 'return its .to_dict("records")',
    "Series": "return its .tolist()",
    "complex": "return [z.real, z.imag]",
}


def _refusal(value: object) -> str:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    remedy = _REMEDIES.get(kind.__name__, "return JSON data, a dataclass, a pydantic model or a ToolResult")
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name} cannot be sent; {remedy}"
