"""Tools that take all arguments as one value. `test_typed.py` and `test_dynamic.py` have the tools made so."""

import pickle
from dataclasses import dataclass
from datetime import date
from typing import Any

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from toolcell_tools import ToolContext, ToolDefinitionError, dynamic_tool
from toolcell_tools.schemas.of_types import object_schema
from toolcell_tools.typed import INPUT_SCHEMA, without_none


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)

    day: date


class Node(BaseModel):
    next: "Node | None" = None


@dataclass
class Size:
    width: int


class Movie(TypedDict):
    title: str


@pytest.mark.parametrize("kind", [Strict, Node, Size, Movie], ids=lambda kind: kind.__name__)
def test_the_schema_of_an_object_type_has_its_object_at_the_root(kind: Any) -> None:
    schema = object_schema("t", kind)
    assert schema["type"] == "object" and schema["properties"].keys() <= {"day", "next", "width", "title"}
    assert "$ref" not in schema


@pytest.mark.parametrize("kind", [int, list[Size], str, Any], ids=str)
def test_a_type_whose_values_are_no_objects_is_refused(kind: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="whose JSON is no object, and arguments always are one"):
        object_schema("t", kind)


def test_a_type_without_a_schema_is_refused_with_the_reason() -> None:
    class Odd:
        pass

    with pytest.raises(ToolDefinitionError, match=r"its parameters, Odd, have no JSON Schema: "):
        object_schema("t", Odd)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (Size | None, Size),
        (Size, Size),
        (Size | Movie | None, Size | Movie | None),
        (None, None),
    ],
    ids=str,
)
def test_none_is_taken_out_of_a_type_that_is_else_one(kind: Any, wanted: Any) -> None:
    assert without_none(kind) == wanted


def test_a_strict_model_takes_a_date_as_json_has_it() -> None:
    tool = dynamic_tool("t", parameters=Strict, handler=lambda given: given, description="Take.")
    (value,) = tool.bind({"day": "2026-01-02"}, None).values()
    assert value == Strict(day=date(2026, 1, 2))
    with pytest.raises(pydantic.ValidationError):
        tool.bind({"day": 5}, None)


def test_a_text_is_the_value_of_input_and_the_context_comes_beside_it() -> None:
    def handler(ctx: ToolContext, text: str) -> str:
        return text

    tool = dynamic_tool("t", parameters=str, handler=handler, description="Take.")
    assert tool.declaration.parameters_schema == INPUT_SCHEMA
    context = object()
    assert tool.bind({"input": "x"}, context) == {"text": "x", "ctx": context}


def read(given: dict[str, Any]) -> str:
    return str(given)


def test_the_validator_stays_when_the_tool_is_sent_and_is_made_again_there() -> None:
    tool = dynamic_tool("t", parameters=Size, handler=read, description="Take.")
    tool.prepare()
    assert tool._adapter is not None
    again = pickle.loads(pickle.dumps(tool))
    assert again._adapter is None
    assert again.bind({"width": 5}, None) == tool.bind({"width": 5}, None) == {"given": Size(5)}


@pytest.mark.parametrize(
    "handler",
    [lambda: 0, lambda a, b: 0, lambda *given: 0, lambda a=None: 0],
    ids=["none", "two", "starred", "with a default"],
)
def test_a_function_that_takes_another_number_of_values_is_refused_with_the_remedy(handler: Any) -> None:
    with pytest.raises(
        ToolDefinitionError, match=r"Write one parameter for all the arguments, and a ToolContext before"
    ):
        dynamic_tool("t", parameters={"type": "object"}, handler=handler, description="Take.")
