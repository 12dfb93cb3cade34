"""What a model is told about arguments that do not fit, and what passes."""

import json
import math
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from tests.taken import taken

from toolcell import tool
from toolcell.dispatch.validate import OutputSchema, Valid, Validator
from toolcell.errors import UsageError
from toolcell.wire.budget import MOST_VALUES
from toolcell_tools.errors import ValidationError


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: float


class Square(BaseModel):
    kind: Literal["square"]
    side: float = Field(gt=0)


class Group(BaseModel):
    kind: Literal["group"]
    shapes: list["Circle | Square | Group"]


@tool
def draw(
    shape: Circle | Square | Group,
    colour: Literal["red", "green", "dark blue"] = "red",
    line_width: Annotated[int, Field(ge=1, le=10)] = 1,
    tags: list[str] | None = None,
    options: dict[str, int] | None = None,
    when: Literal["now"] | int = 0,
) -> None:
    """Draw."""


VALIDATOR = Validator("draw", draw.declaration.parameters_schema)
CIRCLE = {"kind": "circle", "radius": 1}
INF, NAN, LACKING = math.inf, math.nan, "which JSON does not have"


def message(**arguments: Any) -> str:
    answer = VALIDATOR.check(arguments)
    assert isinstance(answer, ValidationError)
    assert answer.parameters_schema == draw.declaration.parameters_schema
    return answer.message


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "shape: is required"),
        ({"shape": CIRCLE, "color": "red"}, 'color: is not known; did you mean "colour"?'),
        ({"shape": CIRCLE, "lineWidth": 2}, 'lineWidth: is not known; did you mean "line_width"?'),
        (
            {"shape": CIRCLE, "zzz": 2},
            "zzz: is not known; known are shape, colour, line_width, tags, options, when",
        ),
        (
            {"shape": CIRCLE, "colour": "Dark_Blue"},
            'colour: must be one of "red", "green", "dark blue", not "Dark_Blue"; did you mean "dark blue"?',
        ),
        ({"shape": CIRCLE, "colour": 3}, 'colour: must be one of "red", "green", "dark blue", not 3'),
        ({"shape": CIRCLE, "line_width": "3"}, 'line_width: must be an integer, not "3"'),
        ({"shape": CIRCLE, "line_width": 0}, "line_width: 0 is less than the minimum of 1"),
        ({"shape": CIRCLE, "tags": "a"}, 'tags: must be an array or null, not "a"'),
        (
            {"shape": CIRCLE, "tags": '["a"]'},
            r'tags: must be an array or null, not "[\"a\"]". Send the JSON itself, not a string of it',
        ),
        ({"shape": CIRCLE, "tags": ["a", 1]}, "tags.1: must be a string, not 1"),
        ({"shape": CIRCLE, "options": {"a": "b"}}, 'options.a: must be an integer, not "b"'),
        ({"shape": CIRCLE, "when": "later"}, 'when: must be "now", not "later"'),
        ({"shape": {"kind": "square"}}, "shape.side: is required"),
        ({"shape": {"kind": "square", "side": 0}}, "shape.side: 0 is less than or equal to the minimum of 0"),
        (
            {"shape": {"kind": "sqare", "side": 1}},
            'shape.kind: must be one of "circle", "square", "group", not "sqare"; did you mean "square"?',
        ),
        (
            {"shape": {"kind": "group", "shapes": [CIRCLE, {"kind": "square", "side": "1"}]}},
            'shape.shapes.1.side: must be a number, not "1"',
        ),
        ({"shape": "circle"}, 'shape: must be an object, not "circle"'),
        ({"shape": CIRCLE, "line_width": NAN}, f"line_width: must be an integer, not NaN, {LACKING}"),
        ({"shape": CIRCLE, "options": {"a": -INF}}, f"options.a: must be an integer, not -Infinity, {LACKING}"),
        ({"shape": {"kind": "circle", "radius": INF}}, f"shape.radius: must be a number, not Infinity, {LACKING}"),
        ({"shape": {"kind": "circle", "radius": None}}, "shape.radius: must be a number, not null"),
        ({"shape": CIRCLE, "colour": NAN}, f'colour: must be one of "red", "green", "dark blue", not NaN, {LACKING}'),
    ],
)
def test_one_problem_is_one_line_with_its_field_and_what_to_do(arguments: dict[str, Any], text: str) -> None:
    assert message(**arguments) == text


def test_all_problems_are_told_at_once_up_to_five() -> None:
    assert message(colour="r", line_width=20, tags=[1, 2, 3], colr=1).splitlines() == [
        "7 problems:",
        '- colour: must be one of "red", "green", "dark blue", not "r"',
        "- line_width: 20 is greater than the maximum of 10",
        "- tags.0: must be a string, not 1",
        "- tags.1: must be a string, not 2",
        "- tags.2: must be a string, not 3",
        "- and 2 more",
    ]


def test_all_problems_are_told_also_where_only_a_closer_look_shows_that_it_costs_little() -> None:
    """Alternatives that the value has nothing of make its rough cost large, and its true one small."""
    kinds = [{"properties": {"kind": {"const": number}}, "required": ["kind"]} for number in range(30)]
    properties = {"tags": {"type": "array", "items": {"type": "string"}}, "shape": {"anyOf": kinds}}
    validator = Validator("draw", {"type": "object", "properties": properties, "additionalProperties": False})
    answer = validator.check({"tags": [1, 2, *["x"] * 200]})
    assert isinstance(answer, ValidationError)
    assert answer.message.splitlines() == [
        "2 problems:",
        "- tags.0: must be a string, not 1",
        "- tags.1: must be a string, not 2",
    ]


def test_the_field_is_that_of_the_first_problem() -> None:
    answer = VALIDATOR.check({"shape": {"kind": "circle", "radius": "x"}, "line_width": 99})
    assert isinstance(answer, ValidationError)
    assert answer.field == answer.message.splitlines()[1].removeprefix("- ").partition(":")[0]


@pytest.mark.parametrize("nothing", [None, "", {}])
def test_no_arguments_are_an_empty_object(nothing: Any) -> None:
    @tool
    def now() -> None:
        """Now."""

    assert taken(Validator("now", now.declaration.parameters_schema), nothing) == {}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "The arguments must be an object, not an array."),
        ('{"shape": {}}', "The arguments must be an object, not a string."),
        (7, "The arguments must be an object, not a number."),
        ({"shape": object()}, "$.shape: an object cannot be sent"),
        ({"shape": {"kind": "circle", "radius": float("nan")}}, "must be a number"),
        ({1: 2}, "JSON keys are strings"),
        ({"tags": ["a"] * (MOST_VALUES + 1)}, "more than 25,000 elements"),
    ],
)
def test_what_is_no_json_object_of_a_sound_size_is_refused(arguments: Any, text: str) -> None:
    answer = VALIDATOR.check(arguments)
    assert isinstance(answer, ValidationError)
    assert text in answer.message


def test_one_wrong_item_of_many_is_found_where_the_schema_has_no_alternatives() -> None:
    validator = Validator("t", {"type": "object", "properties": {"a": {"items": {"type": "integer"}}}})
    answer = validator.check({"a": [*range(20_000), "x"]})
    assert isinstance(answer, ValidationError)
    assert answer.field == "a.20000"


def test_validation_can_be_left_to_the_tool() -> None:
    lenient = Validator("t", draw.declaration.parameters_schema, validate=False)
    assert lenient.check({"anything": 1}) == Valid({"anything": 1})
    assert isinstance(lenient.check([]), ValidationError)


@pytest.mark.parametrize(
    ("value", "said"), [([1], None), (["a"], '0: must be an integer, not "a"'), (1, "must be an array, not 1")]
)
def test_a_result_is_checked_as_arguments_are(value: Any, said: str | None) -> None:
    misfit = OutputSchema("t", {"type": "array", "items": {"type": "integer"}}).misfit(value)
    assert (None if misfit is None else misfit.message.partition("does not allow: ")[2]) == said


def test_formats_are_notes_in_every_draft() -> None:
    for draft in ("https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"):
        schema = {"$schema": draft, "properties": {"at": {"type": "string", "format": "date-time"}}}
        assert Validator("t", schema).check({"at": "tomorrow"}) == Valid({"at": "tomorrow"})


def test_a_schema_that_does_not_compile_is_a_misuse() -> None:
    with pytest.raises(UsageError, match=r"A schema of tool 't' does not compile.*Mend the schema"):
        Validator("t", {"$ref": "http://127.0.0.1:1/x"})


def test_a_message_is_bounded_whatever_the_arguments_are() -> None:
    answer = VALIDATOR.check({"x" * 5_000: 1, "shape": CIRCLE})
    assert isinstance(answer, ValidationError)
    assert len(answer.message) <= 2_000
    assert json.dumps(answer.model_dump(mode="json"))
