"""What tools return, as JSON data."""

import asyncio
import gc
import json
from collections import Counter, OrderedDict, deque, namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_serializer

from toolcell_tools import Artifact, ImageBlock, TextBlock, ToolResult, Unencodable, encode_json, encode_return
from toolcell_tools.encode import MAX_DEPTH, encode_counted


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"


class Loud(str):
    def __str__(self) -> str:
        return "LOUD"


class Model(BaseModel):
    when: date
    alias: int = Field(default=1, serialization_alias="shown")


@dataclass
class Size:
    width: int
    inner: "Size | None" = None


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize("value", [None, True, 0, -(2**63), 2**64 - 1, 1.5, "", "ä🎈", [], {}, {"a": [1, {"b": None}]}])
def test_json_data_stays_as_it_is(value: Any) -> None:
    result = encode_json(value)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, 2), [1, 2]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", 1}), ["b", 1]),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Word.YES, "yes"),
        (Loud("quiet"), "quiet"),
        (datetime(2026, 1, 2, tzinfo=timezone.utc), "2026-01-02T00:00:00+00:00"),  # noqa: UP017
        (date(2026, 1, 2), "2026-01-02"),
        (timedelta(hours=1, seconds=5), "PT1H5S"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Path("a/b"), "a/b"),
        (b"\xff\x00", {"base64": "/wA=", "size": 2}),
        (bytearray(b"a"), {"base64": "YQ==", "size": 1}),
        (Model(when=date(2026, 1, 2)), {"when": "2026-01-02", "shown": 1}),
        (Size(1, Size(2)), {"width": 1, "inner": {"width": 2, "inner": None}}),
        (Pair(1, "x"), [1, "x"]),
        (OrderedDict(a=1), {"a": 1}),
        (Counter("aab"), {"a": 2, "b": 1}),
        (deque([1, 2]), [1, 2]),
        (range(3), [0, 1, 2]),
        ([Size(1), (Colour.RED,)], [{"width": 1, "inner": None}, ["red"]]),
    ],
)
def test_richer_types_become_json_data(value: Any, expected: Any) -> None:
    result = encode_json(value)
    assert result == expected
    assert msgpack.unpackb(msgpack.packb(result)) == expected


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=30,
    )
)
def test_any_json_value_goes_through_msgpack_unchanged(value: Any) -> None:
    encoded = encode_return(value)
    assert msgpack.unpackb(msgpack.packb(encoded)) == encoded
    assert encoded["output"] == value
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert encoded["display"] == (value if isinstance(value, str) else written)


_PLACES = st.lists(st.integers(0, 30) | st.sampled_from(["a", "longer", "ä b"]), max_size=12)
_OFFENDERS: dict[str, Any] = {
    "a lone surrogate": "\ud800",
    "an integer of more than 64 bits": 2**64,
    "a bytes, and JSON keys are strings": {b"a": 1},
    "a Loud, and JSON keys are strings": {Loud("a"): 1},
    "a builtin_function_or_method": len,
}


@given(_PLACES, st.sampled_from(sorted(_OFFENDERS)), st.sampled_from([0, "text", 1.5, None, [], {}]))
def test_what_cannot_cross_is_named_with_its_place_whatever_is_beside_it(
    places: list[int | str], why: str, beside: Any
) -> None:
    value = _OFFENDERS[why]
    path = ""
    for place in places:
        if isinstance(place, int):
            value, path = [*[beside] * place, value, beside], f"[{place}]{path}"
        else:
            value, path = {"beside": beside, place: value}, (f".{place}" if place != "ä b" else '["ä b"]') + path
    said = refusal(value)
    assert why.split(",")[0] in said
    assert said.startswith(f"${path}") or len(places) + ("keys" in why) >= 12


@given(
    st.recursive(
        st.sampled_from([None, True, 7, 1.5, "text", "ä", Colour.RED, Word.YES, date(2026, 1, 2), (1, 2), {3}]),
        lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner),
    )
)
def test_what_was_encoded_is_plain_and_the_callers_no_longer(value: Any) -> None:
    plain, values, chars = encode_counted(value)
    assert (values, chars >= _chars(plain)) == (_values(plain), True)
    before = json.dumps(plain)
    _empty(value)
    assert json.dumps(plain) == before
    assert encode_json(plain) == plain


def _inside(value: Any) -> list[Any]:
    assert type(value) in {type(None), bool, int, float, str, list, dict}
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _values(plain: Any) -> int:
    return 1 + sum(map(_values, _inside(plain)))


def _chars(plain: Any) -> int:
    own = len(plain) if isinstance(plain, str) else sum(map(len, plain)) if isinstance(plain, dict) else 0
    return own + sum(map(_chars, _inside(plain)))


def _empty(value: Any) -> None:
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        _empty(each)
    if isinstance(value, (dict, list)):
        value.clear()


def refusal(value: Any) -> str:
    with pytest.raises(Unencodable) as caught:
        encode_return(value)
    return str(caught.value)


def _lines() -> Iterator[str]:
    yield ""


async def _later() -> None: ...


def test_the_complaint_begins_with_the_path_of_the_value() -> None:
    assert refusal({"rows": [1, 2, 3, _lines()]}) == "$.rows[3]: a generator cannot be sent; return list(...) of it"
    assert refusal({"a b": {"c": 2**64}}) == (
        '$["a b"].c: an integer of more than 64 bits cannot be sent; send it as a string'
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (len, "a builtin_function_or_method cannot be sent; call it"),
        (_lines, "a function cannot be sent; call it"),
        (object(), "an object cannot be sent; return JSON data"),
        (int, "a type cannot be sent"),
        (Size, "a type cannot be sent"),
        (1j, "a complex cannot be sent"),
        (-(2**63) - 1, "more than 64 bits"),
        ("a\ud800", "lone surrogate at character 1"),
        ({"\udfff": 1}, "lone surrogate"),
        (Path("\udcff"), "lone surrogate"),
        ({1: 2}, "a key of this object is an int"),
        ({None: 2}, "a key of this object is a NoneType"),
        (Exception("x"), "an Exception cannot be sent"),
    ],
)
def test_what_is_not_data_is_refused(value: Any, message: str) -> None:
    assert message in refusal(value)


@pytest.mark.parametrize("value", [-(2**63) - 1, 2**64])
def test_many_integers_that_are_one_too_large_are_refused_as_one_is(value: int) -> None:
    assert "more than 64 bits" in refusal([value] * 11)
    assert "more than 64 bits" in refusal({str(number): value for number in range(11)})


def test_a_coroutine_that_was_not_awaited_is_refused() -> None:
    coroutine = _later()
    assert "a coroutine cannot be sent; await it" in refusal([coroutine])
    coroutine.close()


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 10_000, 100_000])
def test_deep_nesting_is_refused_and_does_not_crash(depth: int) -> None:
    message = refusal(nested(depth))
    assert f"nested more than {MAX_DEPTH} deep" in message
    assert len(message) < 300


def test_nesting_up_to_the_limit_passes() -> None:
    assert encode_json(nested(MAX_DEPTH)) == nested(MAX_DEPTH)


def test_cycles_are_refused_also_through_other_types() -> None:
    loop: list[Any] = []
    loop.append([loop, loop])
    table: dict[str, Any] = {}
    table["self"] = table
    size = Size(1)
    size.inner = size
    for value in (loop, table, size, (loop,)):
        assert "nested more than" in refusal(value)


def test_a_model_that_contains_itself_is_refused() -> None:
    class Node(BaseModel):
        next: Any = None

    node = Node()
    node.next = node
    assert "a test_a_model_that_contains_itself_is_refused.<locals>.Node could not be turned into JSON data" in refusal(
        node
    )


def test_a_small_web_of_shared_lists_that_unfolds_without_end_is_refused() -> None:
    value: list[Any] = [1]
    for _ in range(60):
        value = [value, value]
    assert "more than 50,000 lists and objects" in refusal(value)
    value = [1] * 100
    for _ in range(60):
        value = [value] * 100
    assert "more than 1,000,000 elements" in refusal(value)


def test_a_mapping_that_gives_itself_for_ever_is_refused() -> None:
    class Endless(Mapping[str, Any]):
        def __getitem__(self, key: str) -> Any:
            return self

        def __iter__(self) -> Iterator[str]:
            return iter(["again"])

        def __len__(self) -> int:
            return 1

    assert "nested more than" in refusal(Endless())


def test_a_serialiser_that_raises_is_named() -> None:
    class Broken(BaseModel):
        a: int

        @field_serializer("a")
        def bad(self, value: int) -> int:
            raise RuntimeError("boom")

    assert "$.x: a " in (message := refusal({"x": Broken(a=1)}))
    assert "boom" in message


def test_the_display_of_text_is_the_text_and_of_data_its_json() -> None:
    assert encode_return("saved")["display"] == "saved"
    assert encode_return({"a": [1, "ä"], "b": None})["display"] == '{"a":[1,"ä"],"b":null}'
    assert encode_return(None)["display"] == "null"
    assert encode_return(Loud("quiet")) == encode_return("quiet")


@pytest.mark.parametrize(
    "value", [list(range(100_000)), {"a": "x" * 100_000}, {"k" * 9_000: 1}, {str(i): i for i in range(9_000)}]
)
def test_the_display_of_a_long_output_is_short(value: Any) -> None:
    display = encode_return(value)["display"]
    assert len(display) <= 2_000
    assert "…" in display


def test_the_display_of_a_very_long_text_is_cut() -> None:
    encoded = encode_return("x" * 100_000)
    assert (len(encoded["output"]), len(encoded["display"]), encoded["display"][-1]) == (100_000, 64_000, "…")


def test_a_result_gives_all_four_parts() -> None:
    result = ToolResult(
        output=Size(1),
        display="made",
        artifacts=[Artifact("a.txt", "created", size=3)],
        content=[TextBlock(text="t"), ImageBlock.from_bytes(b"png", "image/png")],
    )
    assert encode_return(result) == {
        "output": {"width": 1, "inner": None},
        "display": "made",
        "artifacts": [{"path": "a.txt", "kind": "created", "digest": None, "size": 3}],
        "content": [
            {"type": "text", "text": "t"},
            {"type": "image", "data": "cG5n", "mime_type": "image/png"},
        ],
    }


def test_a_result_without_a_display_gets_one_and_an_empty_one_is_kept() -> None:
    assert encode_return(ToolResult(output={"a": 1}))["display"] == '{"a":1}'
    assert encode_return(ToolResult(output={"a": 1}, display=""))["display"] == ""


def test_a_tool_cannot_return_an_error_as_a_result() -> None:
    from toolcell_tools import Cancelled

    assert "raise ToolFailure" in refusal(ToolResult(error=Cancelled(message="no")))


def test_recorded_artifacts_are_added_unless_the_tool_named_the_path() -> None:
    recorded = [Artifact("a", "created"), Artifact("b", "modified")]
    result = ToolResult(artifacts=[Artifact("a", "report")])
    assert [(one["path"], one["kind"]) for one in encode_return(result, recorded)["artifacts"]] == [
        ("a", "report"),
        ("b", "modified"),
    ]
    assert [one["path"] for one in encode_return("x", recorded)["artifacts"]] == ["a", "b"]


def test_not_a_number_stays_a_float() -> None:
    assert str(encode_return([float("nan"), float("inf")])["output"]) == "[nan, inf]"


def test_encoding_leaves_no_coroutine_behind() -> None:
    async def main() -> str:
        return str(encode_return("x")["output"])

    assert asyncio.run(main()) == "x"
    gc.collect()


class LikeAll(type):
    """Says of its classes that they are equal to any other."""

    def __eq__(cls, other: object) -> bool:
        return True

    __hash__ = type.__hash__


@pytest.mark.parametrize("plain", ["x", 1, 1.5, True, None])
def test_a_class_that_says_it_is_equal_to_a_plain_one_is_not_plain(plain: object) -> None:
    odd = LikeAll("Odd", (), {})()
    for value in ([plain] * 20 + [odd], {str(number): plain for number in range(20)} | {"odd": odd}):
        with pytest.raises(Unencodable, match="Odd"):
            encode_json(value)


def nested_of(levels: int, kinds: str) -> Any:
    """A value of so many levels, whose kinds take turns: `l` a list, `t` a tuple, `d` an object."""
    value: Any = 1
    for number in range(levels):
        kind = kinds[number % len(kinds)]
        value = {"a": value, "b": "text"} if kind == "d" else [value, "text"] if kind == "l" else (value, "text")
    return value


@pytest.mark.parametrize("kinds", ["l", "d", "t", "ld", "td", "lt", "ddl", "lld"])
def test_levels_count_whatever_they_are_made_of(kinds: str) -> None:
    encode_json(nested_of(MAX_DEPTH, kinds))
    for levels in (MAX_DEPTH + 1, 4 * MAX_DEPTH):
        with pytest.raises(Unencodable, match=f"more than {MAX_DEPTH} deep"):
            encode_json(nested_of(levels, kinds))


def test_of_a_long_output_the_display_shows_the_beginning_as_it_is_and_says_where_it_was_cut() -> None:
    display = encode_return({"small": {"a": 1}, "list": [1, 2], "text": "x" * 200_000})["display"]
    assert display.startswith('{"small":{"a":1},"list":[1,2],"text":"xxx') and len(display) < 100_000
