"""Arguments for a flat schema are checked without a walk over each value. The outcome must equal that of the walk."""

from collections import OrderedDict
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcell.dispatch.validate import Valid, Validator
from toolcell.wire.budget import MOST_VALUES
from toolcell_tools.errors import ValidationError
from toolcell_tools.schemas.cost import is_flat

ON_A_BUSY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SCALAR = {"type": ["string", "number", "boolean", "null"]}
FLAT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "maxLength": 3_000_000},
        "number": {"type": "number"},
        "count": {"type": "integer"},
        "word": {"enum": ["a", "b", 1], "type": ["string", "integer"]},
        "any": SCALAR,
        "texts": {"type": "array", "items": {"type": "string"}, "maxItems": 30_000},
        "anys": {"type": "array", "items": SCALAR},
        "marks": {"type": "object", "additionalProperties": {"type": "integer"}},
        "named": {"type": "object", "properties": {"a": SCALAR}, "additionalProperties": False},
        "some": {"anyOf": [{"type": "array", "items": SCALAR}, {"type": "object", "additionalProperties": SCALAR}]},
    },
    "additionalProperties": SCALAR,
}
AT_ONCE = Validator("t", FLAT)
WALKED = Validator("t", FLAT | {"$comment": "a keyword that is not among those of flat schemas"})


class Text(str): ...


class Number(int): ...


class Words(list[Any]): ...


class Map(dict[Any, Any]): ...


class Word(StrEnum):
    A = "a"


class Code(IntEnum):
    A = 1


def nested(levels: int, made: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = made(value)
    return value


def cycle() -> Any:
    inside: list[Any] = []
    inside.append(inside)
    return inside


def doubled(levels: int) -> Any:
    """A value with few lists and 2 ** levels elements."""
    return nested(levels, lambda value: [value, value])


def outcome(answer: Valid | ValidationError) -> tuple[str, str | None]:
    return (repr(answer.arguments), None) if isinstance(answer, Valid) else (answer.message, answer.field)


def same(arguments: Any) -> Valid | ValidationError:
    """The outcome for the arguments, which must be the same in both ways."""
    quick, walked = AT_ONCE.check(arguments), WALKED.check(arguments)
    assert outcome(quick) == outcome(walked)
    if isinstance(quick, Valid) and quick.packed is not None:
        assert repr(msgpack.unpackb(quick.packed)) == repr(quick.arguments)
    return quick


HOSTILE = {
    "a subclass of str": {"text": Text("x")},
    "a subclass of str as key": {Text("text"): "x"},
    "a subclass of int": {"count": Number(3)},
    "a bool for a number": {"count": True},
    "a subclass of list": {"texts": Words(["a"])},
    "a subclass of dict": {"marks": Map({"a": 1})},
    "a subclass of dict for all": Map({"text": "x"}),
    "an ordered dict": OrderedDict(text="x"),
    "an enumeration": {"text": Word.A, "word": Word.A},
    "an enumeration of numbers": {"count": Code.A, "number": Code.A},
    "a key that is one": {"marks": {Word.A: 1}},
    "a decimal": {"number": Decimal("1.5")},
    "no number": {"number": float("nan")},
    "no number where null may be": {"any": float("nan"), "anys": [float("nan")]},
    "infinity": {"number": float("inf"), "any": float("-inf")},
    "minus zero": {"number": -0.0},
    "64 bits": {"count": 2**64 - 1, "number": -(2**63)},
    "65 bits": {"count": 2**64},
    "65 bits below": {"anys": [-(2**63) - 1]},
    "a very large number": {"count": 10**400},
    "half a character": {"text": "\ud800"},
    "half a character in a list": {"texts": ["a", "\udfff"]},
    "half a character in a key": {"marks": {"\ud800": 1}},
    "half a character in a name": {"\ud800": 1},
    "other characters": {"text": "ä€😀\0"},
    "bytes": {"text": b"x"},
    "bytes in a list": {"anys": [b"x"]},
    "a byte array": {"any": bytearray(b"x")},
    "a view": {"any": memoryview(b"x")},
    "an extension": {"any": msgpack.ExtType(1, b"x")},
    "a time stamp": {"any": msgpack.Timestamp(1)},
    "a tuple": {"texts": ("a", "b")},
    "a tuple for all": ("a",),
    "a set": {"texts": {"a"}},
    "a number as name": {1: 2},
    "a number as key": {"marks": {1: 2}},
    "nothing as key": {"marks": {None: 2}},
    "bytes as key": {"marks": {b"a": 2}},
    "two keys of the same text": {"marks": {1: 1, "1": 1}},
    "a list in a list": {"anys": [[1]]},
    "an empty list in a list": {"anys": [[]]},
    "an object in an object": {"marks": {"a": {}}},
    "a list for a number": {"count": [1]},
    "64 levels": {"any": nested(62, lambda value: [value])},
    "65 levels": {"any": nested(64, lambda value: [value]), "texts": ["a"]},
    "1,000 levels": {"anys": nested(1_000, lambda value: {"a": value})},
    "100,000 levels": {"anys": nested(100_000, lambda value: [value])},
    "a cycle": {"anys": cycle()},
    "a cycle in a list": {"anys": [cycle()]},
    "2 ** 60 values": {"anys": doubled(60)},
    "2 ** 60 values in a list": {"anys": [doubled(60)]},
    "as many as may be": {"anys": [0] * (MOST_VALUES - 1)},
    "one too many": {"anys": [0] * MOST_VALUES},
    "too many in two": {"anys": [0] * 13_000, "texts": ["a"] * 13_000},
    "too many names": {f"n{number}": number for number in range(MOST_VALUES + 1)},
    "one list under many names": dict.fromkeys(map(str, range(20_000)), ["x"] * 20_000),
    "too many to check": {"texts": ["x" * 200] * 24_000},
    "a long text": {"text": "x" * ((1 << 20) + 1)},
    "a long text of other characters": {"text": "ä" * ((1 << 20) + 1)},
    "many long texts": {"texts": ["x" * 100_000] * 20},
    "a text that is too long": {"text": "x" * 3_000_001},
    "an empty name": {"": 1},
    "an object": {"any": object()},
    "what is not known": {"named": {"b": 1}},
}


@pytest.mark.parametrize("arguments", HOSTILE.values(), ids=HOSTILE)
def test_hostile_arguments_come_out_as_those_that_are_walked(arguments: Any) -> None:
    same(arguments)


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.sampled_from([b"x", Text("x"), Number(1), Word.A, Code.A, 1j, (), (1,)])
)
keys = st.sampled_from(["a", "b", Text("c"), "\ud800"]) | st.text(max_size=3) | st.integers(0, 3) | st.none()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)


@ON_A_BUSY_MACHINE
@given(st.dictionaries(st.sampled_from([*FLAT["properties"], "more"]) | keys, values, max_size=4))
def test_any_arguments_come_out_as_those_that_are_walked(arguments: dict[Any, Any]) -> None:
    same(arguments)


right = st.fixed_dictionaries(
    {},
    optional={
        "text": st.text(max_size=20),
        "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**64 - 1),
        "word": st.sampled_from(["a", "b", 1]),
        "texts": st.lists(st.text(max_size=5), max_size=20),
        "marks": st.dictionaries(st.text(max_size=5), st.integers(-(2**63), 2**64 - 1), max_size=20),
        "some": st.lists(st.none() | st.booleans()) | st.dictionaries(st.text(), st.booleans()),
    },
)


@pytest.mark.trick
@ON_A_BUSY_MACHINE
@given(right)
def test_what_is_right_is_packed_and_copied(arguments: dict[str, Any]) -> None:
    answer = same(arguments)
    assert isinstance(answer, Valid)
    assert answer.packed is not None
    before = repr(answer.arguments)
    for value in arguments.values():
        if isinstance(value, (list, dict)):
            value.clear()
    arguments["more"] = 1
    assert repr(answer.arguments) == before


@pytest.mark.parametrize(
    "change",
    [
        {"additionalProperties": True},
        {"patternProperties": {"a": {"type": "string"}}},
        {"properties": {"a": {"type": "array"}}},
        {"properties": {"a": {"type": "array", "items": [{"type": "string"}]}}},
        {"properties": {"a": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}}},
        {"properties": {"a": {"type": "array", "items": SCALAR, "prefixItems": [True]}}},
        {"properties": {"a": {"type": "array", "items": SCALAR, "uniqueItems": True}}},
        {"properties": {"a": {"type": "object", "properties": {"b": SCALAR}}}},
        {"properties": {"a": True}},
        {"properties": {"a": {}}},
        {"properties": {"a": {"enum": ["a"]}}},
        {"properties": {"a": {"type": "string", "pattern": "a"}}},
        {"properties": {"a": {"type": "string", "$ref": "#/$defs/a"}}, "$defs": {"a": SCALAR}},
        {"properties": {"a": {"type": "string", "anyOf": [{"items": {"items": SCALAR}}]}}},
        {"properties": {"a": {"anyOf": [SCALAR, True]}}},
        {"properties": {"a": {"type": "string", "not": {"type": "array"}}}},
        {"type": ["object", "array"]},
        {"allOf": [SCALAR]},
    ],
    ids=str,
)
def test_a_schema_that_lets_more_in_is_not_flat(change: dict[str, Any]) -> None:
    assert is_flat(FLAT)
    assert not is_flat(FLAT | change)


def test_a_schema_without_names_is_flat_where_nothing_else_may_be() -> None:
    assert is_flat({"type": "object", "additionalProperties": False})
    assert not is_flat({"type": "object"})
    assert not is_flat(True)


@pytest.mark.parametrize(
    "items",
    [{"enum": [number / 7 for number in range(500)]}, {"anyOf": [{"const": f"word {n}"} for n in range(300)]}],
    ids=["enum", "anyOf"],
)
def test_what_would_take_long_to_judge_is_refused_before_it_is_judged(items: dict[str, Any]) -> None:
    schema = {
        "type": "object",
        "properties": {"list": {"type": "array", "items": items}},
        "additionalProperties": False,
    }
    found = Validator("tool", schema).check({"list": [0.5] * 24_000})
    assert isinstance(found, ValidationError) and "steps to check" in found.message
