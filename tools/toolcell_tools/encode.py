"""Turn values into plain JSON data that msgpack can carry. Runs inside the cell.

One walk checks each element and replaces what is not plain. Richer types are converted one step at a time towards JSON,
cheap and common types first, and nothing is imported for a type whose module is not loaded.
"""

import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from enum import Enum
from itertools import repeat
from json import JSONEncoder
from operator import is_
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

from .failures import Unencodable
from .interrupts import described, pass_on

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = [
    "MAX_CONTAINERS",
    "MAX_DEPTH",
    "MAX_ELEMENTS",
    "WIDE_BITS",
    "compact",
    "cut",
    "encode_counted",
    "encode_json",
    "in_utf8",
]

MAX_DEPTH = 64
MAX_ELEMENTS = 1_000_000  # in all containers together: shared lists can unfold to very many elements
MAX_CONTAINERS = 50_000  # lists and objects; a container takes far longer to decode than a scalar
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1  # what msgpack can carry
WIDE_BITS = 1_023  # of an integer in arguments, so that each can become a float

compact = JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


def in_utf8(text: str, errors: str = "backslashreplace") -> str:
    """The text without lone surrogates, which UTF-8 cannot hold: each is escaped, or a question mark if `errors` is
    "replace"."""
    return text if text.isascii() else text.encode("utf-8", errors).decode()


def encode_json(value: object, max_elements: int = MAX_ELEMENTS, *, bits: int = 64) -> Any:
    """`value` as plain JSON data: dict with str keys, list, str, int, float, bool, None. Raises Unencodable.

    Integers have at most 64 bits. In arguments and schemas, which go only to a cell, they may have `WIDE_BITS`."""
    return encode_counted(value, max_elements, bits=bits)[0]


def encode_counted(value: object, max_elements: int = MAX_ELEMENTS, *, bits: int = 64) -> tuple[Any, int, int]:
    """As `encode_json`, with the number of values, itself included, and of characters in texts and keys."""
    room = _EncodeRoom(max_elements, bits)
    try:
        plain = _walk(value, MAX_DEPTH, room)
    except _Offender as offender:
        raise Unencodable(f"{_json_path(offender.trail)}: {offender.complaint}") from offender.__cause__
    return plain, 1 + max_elements - room.elements, room.chars


class _Offender(Exception):
    """Carries a complaint up through the containers. Each container adds its key to the path."""

    def __init__(self, complaint: str) -> None:
        self.complaint = complaint
        self.trail: list[str | int] = []


class _EncodeRoom:
    """How many more elements and containers fit, and how many characters have been seen."""

    __slots__ = ("bits", "chars", "containers", "elements", "most")

    def __init__(self, elements: int, bits: int) -> None:
        self.bits = bits
        self.most = self.elements = elements
        self.containers = MAX_CONTAINERS
        self.chars = 0

    def complaint(self) -> str:
        """The complaint about a container that did not fit."""
        if self.elements < 0:
            return f"more than {self.most:,} elements in all; send fewer, or write them to a file"
        if self.containers < 0:
            return f"more than {MAX_CONTAINERS:,} lists and objects in all; send fewer, or write them to a file"
        return f"nested more than {MAX_DEPTH} deep, or inside itself; send a flatter value"


def _walk(value: Any, depth: int, room: _EncodeRoom) -> Any:
    kind = _type_of(value)
    if kind is dict:
        return _walk_dict(value, depth, room)
    if kind is list or kind is tuple:
        return _walk_list(value, depth, room)
    if kind is str:
        room.chars += len(value)
        return value if value.isascii() else _valid_text(value)
    if kind is bool or kind is float or value is None:
        return value
    if kind is int:
        if _INT_MIN <= value <= _INT_MAX or value.bit_length() <= room.bits > 64:
            return value
        raise _Offender(f"an integer of more than {room.bits:,} bits cannot be sent; send it as a string")
    try:
        plain = _converted(value)
    except MemoryError:
        raise
    except Unencodable as refusal:
        raise _Offender(str(refusal)) from refusal
    except BaseException as failure:  # the serialiser of a user's type may raise anything
        pass_on(failure)
        raise _Offender(f"a {kind.__qualname__} could not be turned into JSON data: {described(failure)}") from failure
    # Each further conversion in a row counts as a level of nesting, so endless ones (a Mapping of itself) end too.
    if type(plain) not in _PLAIN:
        room.containers -= 1
        depth -= 1
        if depth < 0 or room.containers < 0:
            raise _Offender(room.complaint())
    return _walk(plain, depth, room)


_type_of: Callable[[object], type[object]] = type  # type checkers do not know the type() of an Any
_AS_IS = frozenset({bool, float, type(None)})
_PLAIN = frozenset({str, int, float, bool, type(None), list, dict})
_FEW = 10  # up to so many elements, a loop is as fast as one check of all of them


def _walk_list(items: "list[Any] | tuple[Any, ...]", depth: int, room: _EncodeRoom) -> list[Any]:
    count = len(items)
    room.elements -= count
    room.containers -= 1
    if not depth or room.elements < 0 or room.containers < 0:
        raise _Offender(room.complaint())
    if count > _FEW and _all_plain(items, count, room):
        return [*items]
    out: list[Any] = []
    try:
        for item in items:
            kind = _type_of(item)
            if kind is str and item.isascii():
                room.chars += len(item)
                out.append(item)
            elif kind in _AS_IS or (kind is int and _INT_MIN <= item <= _INT_MAX):
                out.append(item)
            elif kind is dict:
                out.append(_walk_dict(item, depth - 1, room))
            else:
                out.append(_walk(item, depth - 1, room))
    except _Offender as offender:
        offender.trail.append(len(out))
        raise
    return out


def _walk_dict(items: dict[Any, Any], depth: int, room: _EncodeRoom) -> dict[str, Any]:
    count = len(items)
    room.elements -= count
    room.containers -= 1
    if not depth or room.elements < 0 or room.containers < 0:
        raise _Offender(room.complaint())
    if count > _FEW and _all_plain(items.values(), count, room) and _all_plain(items, count, room, str):
        return items.copy()
    out = items.copy()  # each element is checked, and replaced if it is not plain
    key: Any = None
    chars = 0
    try:
        for key, item in out.items():
            if type(key) is not str:
                name = _named(type(key).__qualname__)
                raise _Offender(f"a key of this object is {name}, and JSON keys are strings; convert it with str()")
            chars += len(key) if key.isascii() else len(_valid_text(key))
            kind = _type_of(item)
            if kind is str and item.isascii():
                chars += len(item)
            elif kind in _AS_IS or (kind is int and _INT_MIN <= item <= _INT_MAX):
                pass
            elif kind is list:
                out[key] = _walk_list(item, depth - 1, room)
            else:
                out[key] = _walk(item, depth - 1, room)
    except _Offender as offender:
        if type(key) is str:
            offender.trail.append(key)
        raise
    room.chars += chars
    return out


def _all_plain(values: Collection[Any], count: int, room: _EncodeRoom, kind: type[object] | None = None) -> bool:
    """Whether all `count` values are of one plain type (of `kind`, if it is given) and can cross as they are.

    This takes a few calls into C for all values together. If the answer is no, the caller's loop finds the reason.
    """
    kinds = [*map(type, values)]
    kind = kind or kinds[0]
    if not all(map(is_, kinds, repeat(kind))):  # not `==`, which a metaclass can override
        return False
    if kind is str:
        text = "".join(values)
        room.chars += len(text)  # an upper bound: if the loop runs too, texts count twice
        return text.isascii()
    if kind is int:
        return max(map(int.bit_length, values)) < 64
    return kind in _AS_IS


def _valid_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as failure:
        raise _Offender(f"text with a lone surrogate at character {failure.start} is not valid Unicode") from failure
    return text


def _json_path(trail: list[str | int]) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else _step(step) for step in reversed(trail)]
    # A path can have 64 steps. Its two ends are enough to find the place.
    return "$" + "".join(steps if len(steps) <= 12 else [*steps[:6], "…", *steps[-3:]])


def _step(key: str) -> str:
    if key.isidentifier():
        return f".{key}"
    return f"[{compact(cut(key.encode(errors='backslashreplace').decode(), 60))}]"


def cut(text: str, limit: int) -> str:
    """The text, or its first `limit - 1` characters and an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _converted(value: object) -> object:
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
    return f"{_named(name)} cannot be sent; {remedy}"


def _named(name: str) -> str:
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
