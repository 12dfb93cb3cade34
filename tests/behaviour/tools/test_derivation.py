"""Each kind of type: the schema for a model, the value for the function, and the field that an error names."""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from ipaddress import IPv4Address
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypeVar,
)
from uuid import UUID

import pydantic
import pytest
from annotated_types import Len, MinLen
from pydantic import AnyUrl, BaseModel, Field
from tests.taken import taken
from typing_extensions import TypeAliasType, TypedDict

from toolcell.dispatch.validate import Validator
from toolcell_tools import ToolDefinitionError, tool
from toolcell_tools.errors import ValidationError

T = TypeVar("T")


class Colour(str, Enum):  # noqa: UP042
    """What it is painted with."""

    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


class Box(BaseModel, Generic[T]):
    value: T


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


@dataclass
class Size:
    width: int
    tags: list[str] = field(default_factory=list)


@dataclass
class Frame:
    outer: Size
    inner: Size | None = None


class Loose(TypedDict, total=False):
    title: Required[str]
    year: int


class Firm(TypedDict):
    title: str
    year: NotRequired[int]


class Pair(NamedTuple):
    x: int
    label: str = "?"


UserId = NewType("UserId", int)
Data = TypeAliasType("Data", "dict[str, Data] | list[Data] | str | int | None")
UTC = timezone.utc  # noqa: UP017
UUID_TEXT = "12345678-1234-5678-1234-567812345678"
TEXT = {"type": "string"}
INTEGER = {"type": "integer"}


def taking(annotation: Any) -> Any:
    def takes(value: Any, beside: int = 0) -> None: ...

    takes.__annotations__["value"] = annotation
    return tool(takes)


# The type, its schema (None: a definition of its own), a JSON value, what the function gets, and a value that is wrong.
TABLE: list[tuple[Any, dict[str, Any] | None, Any, Any, Any]] = [
    (int, INTEGER, 3, 3, "3"),
    (float, {"type": "number"}, 1, 1.0, "1"),
    (str, TEXT, "a", "a", 1),
    (bool, {"type": "boolean"}, True, True, 1),
    (None, {"type": "null"}, None, None, 0),
    (Any, {}, [1], [1], ...),
    (Optional[int], {"anyOf": [INTEGER, {"type": "null"}]}, None, None, "a"),  # noqa: UP045
    (int | str | None, {"anyOf": [INTEGER, TEXT, {"type": "null"}]}, "a", "a", 1.5),
    (
        (int | None) | list[str | None],
        {"anyOf": [INTEGER, {"type": "array", "items": {"anyOf": [TEXT, {"type": "null"}]}}, {"type": "null"}]},
        ["a", None],
        ["a", None],
        [1],
    ),
    (Literal["a", 1, None, True], {"enum": ["a", 1, None, True]}, 1, 1, "b"),
    (Colour, None, "red", Colour.RED, "green"),
    (Level, None, 2, Level.HIGH, 3),
    (UserId, INTEGER, 3, 3, "3"),
    (Tree, None, {"name": "a", "children": [{"name": "b"}]}, Tree(name="a", children=[Tree(name="b")]), {"name": 1}),
    (Box[int], None, {"value": 1}, Box[int](value=1), {"value": "a"}),
    (Data, None, {"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}, True),
    (Cat | Dog, None, {"kind": "dog", "tricks": []}, Dog(kind="dog", tricks=[]), {"kind": "dog"}),
    (Annotated[Cat | Dog, Field(discriminator="kind")], None, {"kind": "cat"}, Cat(kind="cat"), {"kind": "cow"}),
    (Size, None, {"width": 1}, Size(1), {"width": "a"}),
    (Frame, None, {"outer": {"width": 1, "tags": ["a"]}}, Frame(Size(1, ["a"])), {"outer": {}}),
    (Loose, None, {"title": "a"}, {"title": "a"}, {"year": 1}),
    (Firm, None, {"title": "a", "year": 1}, {"title": "a", "year": 1}, {"title": "a", "year": "b"}),
    (Pair, None, [1, "a"], Pair(1, "a"), ["a"]),
    (datetime, TEXT | {"format": "date-time"}, "2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), True),
    (date, TEXT | {"format": "date"}, "2026-01-02", date(2026, 1, 2), 1),
    (time, TEXT | {"format": "time"}, "03:04:05", time(3, 4, 5), 1),
    (timedelta, TEXT | {"format": "duration"}, "PT1H", timedelta(hours=1), 1),
    (bytes, TEXT | {"format": "base64"}, "aGk=", b"hi", 1),
    (list[bytes], {"type": "array", "items": TEXT | {"format": "base64"}}, ["aGk="], [b"hi"], [1]),
    (Path, TEXT | {"format": "path"}, "a/b", Path("a/b"), 1),
    (UUID, TEXT | {"format": "uuid"}, UUID_TEXT, UUID(UUID_TEXT), 1),
    (AnyUrl, TEXT | {"format": "uri", "minLength": 1}, "http://a.b/", AnyUrl("http://a.b/"), ""),
    (IPv4Address, TEXT | {"format": "ipv4"}, "1.2.3.4", IPv4Address("1.2.3.4"), 1),
    (re.Pattern[str], TEXT | {"format": "regex"}, "a+", re.compile("a+"), 1),
    (set[int], {"type": "array", "uniqueItems": True, "items": INTEGER}, [1, 2], {1, 2}, [1, 1]),
    (frozenset[str], {"type": "array", "uniqueItems": True, "items": TEXT}, ["a"], frozenset("a"), [1]),
    (
        tuple[int, str],
        {"type": "array", "prefixItems": [INTEGER, TEXT], "minItems": 2, "maxItems": 2},
        [1, "a"],
        (1, "a"),
        [1],
    ),
    (tuple[int, ...], {"type": "array", "items": INTEGER}, [1, 2], (1, 2), ["a"]),
    (dict[str, Size], None, {"a": {"width": 1}}, {"a": Size(1)}, {"a": 1}),
    (dict[int, str], {"type": "object", "additionalProperties": TEXT}, {"1": "a"}, {1: "a"}, {"1": 2}),
    (Annotated[int, Field(ge=1, le=9)], INTEGER | {"minimum": 1, "maximum": 9}, 1, 1, 10),
    (
        Annotated[int, Field(gt=1, lt=9, multiple_of=2)],
        INTEGER | {"exclusiveMinimum": 1, "exclusiveMaximum": 9, "multipleOf": 2},
        4,
        4,
        5,
    ),
    (
        Annotated[str, Field(min_length=1, max_length=3, pattern="^a")],
        TEXT | {"minLength": 1, "maxLength": 3, "pattern": "^a"},
        "ab",
        "ab",
        "b",
    ),
    (Annotated[list[int], MinLen(1)], {"type": "array", "items": INTEGER, "minItems": 1}, [1], [1], []),
    (
        Annotated[list[int], Len(1, 2)],
        {"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 2},
        [1],
        [1],
        [1, 2, 3],
    ),
    (Annotated[int, Field(strict=True)], INTEGER, 3, 3, "3"),
    (Annotated[float, Field(allow_inf_nan=False)], {"type": "number"}, 1, 1.0, "a"),
    (
        Annotated[int, Field(title="Count", examples=[3], json_schema_extra={"x-unit": "files"})],
        INTEGER | {"title": "Count", "examples": [3], "x-unit": "files"},
        3,
        3,
        "a",
    ),
]
NAMES = [f"{index}-{row[0]}"[:60] for index, row in enumerate(TABLE)]


@pytest.mark.parametrize("row", TABLE, ids=NAMES)
def test_a_type_has_its_schema_and_takes_what_the_schema_takes(row: Any) -> None:
    annotation, schema, value, expected, _ = row
    made = taking(annotation)
    derived = made.declaration.parameters_schema
    if schema is not None:
        assert derived["properties"]["value"] == schema
    assert taken(Validator("takes", derived), {"value": value}) == {"value": value}
    got = made.bind({"value": value}, None)["value"]
    assert (got, type(got)) == (expected, type(expected))


@pytest.mark.parametrize("row", [row for row in TABLE if row[4] is not ...], ids=[*NAMES[:5], *NAMES[6:]])
def test_a_wrong_value_is_blamed_on_its_field(row: Any) -> None:
    made = taking(row[0])
    answer = Validator("takes", made.declaration.parameters_schema).check({"value": row[4]})
    assert isinstance(answer, ValidationError)
    assert answer.field is not None and answer.field.partition(".")[0] == "value"


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (datetime, "tomorrow"),
        (IPv4Address, "1.2.3"),
        (UUID, "x"),
        (bytes, "%"),
        (Annotated[Decimal, Field(max_digits=3, decimal_places=1)], "1.25"),
        (Decimal, "one"),
    ],
)
def test_what_a_schema_cannot_say_is_refused_in_the_cell_and_named(annotation: Any, value: Any) -> None:
    made = taking(annotation)
    assert taken(Validator("takes", made.declaration.parameters_schema), {"value": value}) == {"value": value}
    with pytest.raises(pydantic.ValidationError) as caught:
        made.bind({"value": value}, None)
    assert caught.value.errors()[0]["loc"][0] == "value"


def test_details_of_definitions_are_kept() -> None:
    def use(colour: Colour, frame: Frame, loose: Loose, firm: Firm, pair: Pair, animal: Cat | Dog) -> None: ...

    defs = tool(use).declaration.parameters_schema["$defs"]
    assert defs["Colour"] == {
        "description": "What it is painted with.",
        "enum": ["red", "blue"],
        "title": "Colour",
        "type": "string",
    }
    assert defs["Frame"]["properties"]["outer"] == {"$ref": "#/$defs/Size"}
    assert defs["Size"]["required"] == ["width"]
    assert defs["Loose"]["required"] == defs["Firm"]["required"] == ["title"]
    assert defs["Pair"]["minItems"] == 1
    assert defs["Cat"]["properties"]["kind"]["const"] == "cat"


def test_defaults_of_all_kinds_are_shown_and_left_to_the_function() -> None:
    def use(
        count: int = 3,
        *,
        size: Size | None = None,
        colour: Colour = Colour.BLUE,
        raw: bytes = b"hi",
        when: datetime = datetime(2026, 1, 2, tzinfo=UTC),
        pair: tuple[int, ...] = (1, 2),
    ) -> None: ...

    made = tool(use)
    schema = made.declaration.parameters_schema
    assert schema["required"] == []
    assert {name: one["default"] for name, one in schema["properties"].items()} == {
        "count": 3,
        "size": None,
        "colour": "blue",
        "raw": "aGk=",
        "when": "2026-01-02T00:00:00Z",
        "pair": [1, 2],
    }
    assert made.bind({}, None) == {}


def test_bytes_in_a_model_are_what_the_model_says() -> None:
    class Model(BaseModel):
        raw: bytes

    made = taking(Model)
    assert made.declaration.parameters_schema["$defs"]["Model"]["properties"]["raw"]["format"] == "binary"
    assert made.bind({"value": {"raw": "hi"}}, None)["value"].raw == b"hi"


def variadic(*values: int) -> None: ...
def keywords(**values: int) -> None: ...
def positional(value: int, /) -> None: ...
def untyped(value) -> None: ...  # type: ignore[no-untyped-def]
def unknown(value: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (variadic, r"\*values has no schema\. Name each argument, or take one list or dict"),
        (keywords, r"\*\*values has no schema\. Name each argument"),
        (positional, r"'value' is positional-only.*Remove the '/'"),
        (untyped, r"'value' has no type\. Write for example `value: str`"),
        (unknown, r"'value' is 'Nowhere'.*Import or define it at module level"),
    ],
)
def test_a_signature_that_a_model_cannot_fill_is_refused(fn: Any, says: str) -> None:
    with pytest.raises(ToolDefinitionError, match=says):
        tool(fn)


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (range, r"'value' has no JSON Schema.*<class 'range'>\. Use JSON types"),
        (Callable[[], int], "'value' has no JSON Schema"),
        (type[int], "'value' has no JSON Schema: No JSON is a class"),
        (list[type[int] | None], "'value' has no JSON Schema: No JSON is a class"),
        (Final[int], "'value' is Final or a ClassVar.*Write the type that is inside it"),
        (ClassVar[int], "'value' is Final or a ClassVar"),
        (Literal[Colour.RED], "'value' is a Literal of enum members.*Use the enum itself"),
        (
            Annotated[str, Field(pattern="(?=a)")],
            r"a constraint on parameter 'value'.*look-around.*Mend it in Annotated",
        ),
        (Annotated[int, Field(default=3)], r"'value' has its default in Field.*Write it after `=`"),
        (Annotated[int, Field(alias="v")], "'value' has an alias"),
    ],
)
def test_a_type_without_a_schema_is_refused_with_the_remedy(annotation: Any, says: str) -> None:
    with pytest.raises(ToolDefinitionError, match=f"tool 'takes': .*{says}"):
        taking(annotation)


@pytest.mark.parametrize(("default", "remedy"), [(None, r"Write `value: … \| None`"), ("a", "Change one of them")])
def test_a_default_that_does_not_fit_is_refused(default: Any, remedy: str) -> None:
    def takes(value: int = default) -> None: ...

    with pytest.raises(ToolDefinitionError, match=f"default of parameter 'value'.*does not fit.*{remedy}"):
        tool(takes)


def test_annotations_as_strings_resolve_at_module_level_and_in_functions() -> None:
    scope: dict[str, Any] = {"tool": tool}
    source = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "def make():\n"
        "    @dataclass\n"
        "    class Local:\n"
        "        a: int\n"
        "    @tool\n"
        "    def use(one: Local, many: list[Later]) -> None: ...\n"
        "    return use\n"
        "@dataclass\n"
        "class Later:\n"
        "    b: int\n"
    )
    exec(compile(source, "<strings>", "exec"), scope)
    made = scope["make"]()
    assert made.declaration.parameters_schema["$defs"].keys() == {"Local", "Later"}
    assert made.bind({"one": {"a": 1}, "many": [{"b": 2}]}, None)["many"][0].b == 2


if sys.version_info >= (3, 12):

    def test_type_statements_and_parameters_of_classes() -> None:
        scope: dict[str, Any] = {"BaseModel": BaseModel, "tool": tool}
        source = (
            "type Nested = list[Nested] | int\n"
            "type Named[T] = dict[str, T]\n"
            "class Page[T](BaseModel):\n"
            "    items: list[T]\n"
            "@tool\n"
            "def use(nested: Nested, named: Named[int], page: Page[str]) -> None: ...\n"
        )
        exec(compile(source, "<pep 695>", "exec"), scope)
        made = scope["use"]
        arguments = {"nested": [1, [2]], "named": {"a": 1}, "page": {"items": ["a"]}}
        validator = Validator("use", made.declaration.parameters_schema)
        assert taken(validator, arguments) == arguments
        assert isinstance(validator.check(arguments | {"nested": [["a"]]}), ValidationError)
        assert made.bind(arguments, None)["page"].items == ["a"]
