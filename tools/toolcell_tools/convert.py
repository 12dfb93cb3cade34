"""One step from a value of a richer type towards JSON data. Types are told apart from the cheap to the rare."""

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
    """A plainer value that stands for `value`; raises Unencodable, without a path, if nothing does."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return "".join((value,))  # the exact str inside a subclass, whatever its __str__ says
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    pydantic = sys.modules.get("pydantic")  # not imported: then nothing here is a model
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return cast("BaseModel", value).model_dump(mode="json", by_alias=True)
    if is_dataclass(value) and not isinstance(value, type):
        serializer = getattr(value, "__pydantic_serializer__", None)
        if serializer is not None:  # a dataclass of pydantic's has aliases and serialisers as a model has
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
    """Whether `value` is of that class. Where its module is not loaded, nothing is, and it need not be loaded here."""
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
    """A set has no order and JSON does: sorted if its items can be, else by their repr, so that runs agree."""
    try:
        return sorted(items)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportUnknownVariableType]
    except TypeError:
        return sorted(items, key=repr)


def _binary(raw: "bytes | bytearray | memoryview[int]") -> dict[str, object]:
    from base64 import b64encode

    return {"base64": b64encode(raw).decode("ascii"), "size": memoryview(raw).nbytes}


def _duration(value: timedelta) -> str:
    """ISO 8601, as pydantic writes it."""
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
