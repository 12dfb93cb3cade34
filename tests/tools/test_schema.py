"""Parameter and output schemas, from types. `test_docstrings.py` has the descriptions."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Optional, TypeVar

import jsonschema
import pytest
from pydantic import BaseModel, Field, RootModel, model_validator
from typing_extensions import TypedDict

from toolcell.dispatch.validate import Valid, Validator
from toolcell_tools import HostContext, ToolContext, ToolDefinitionError, ToolResult, ValidationError, host_tool, tool

V = TypeVar("V")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    """A place."""

    x: int
    y: int = 0


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


@dataclass
class Size:
    width: int
    height: int = 1


class Movie(TypedDict):
    title: str


POINT = Point(x=1)


def schema_of(fn: Any) -> dict[str, Any]:
    schema: dict[str, Any] = tool(fn).declaration.parameters_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def property_of(annotation: Any) -> Any:
    def takes(value: Any) -> None: ...

    takes.__annotations__["value"] = annotation
    return schema_of(takes)["properties"]["value"]


def test_a_function_without_parameters_has_an_empty_closed_schema() -> None:
    def now() -> str:
        return ""

    assert schema_of(now) == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (datetime, {"type": "string", "format": "date-time"}),
        (Path, {"type": "string", "format": "path"}),
        (Any, {}),
        (Annotated[int, Field(ge=1, description="Many.")], {"type": "integer", "minimum": 1, "description": "Many."}),
    ],
)
def test_a_type_has_the_schema_that_models_expect(annotation: Any, expected: dict[str, Any]) -> None:
    assert property_of(annotation) == expected


def test_a_decimal_may_be_a_number_or_a_string() -> None:
    assert {choice["type"] for choice in property_of(Decimal)["anyOf"]} == {"number", "string"}


def test_enums_models_dataclasses_and_typed_dicts_are_shared_definitions() -> None:
    def draw(colour: Colour, at: Point, to: Point, size: Size, movie: Movie) -> None: ...

    schema = schema_of(draw)
    assert schema["properties"]["at"] == schema["properties"]["to"] == {"$ref": "#/$defs/Point"}
    assert schema["$defs"]["Colour"]["enum"] == ["red", "blue"]
    assert schema["$defs"]["Point"]["required"] == ["x"]
    assert schema["$defs"]["Size"]["properties"]["height"]["default"] == 1
    assert schema["$defs"]["Movie"]["required"] == ["title"]


def test_a_recursive_model_refers_to_itself() -> None:
    def plant(tree: Tree, deep: bool = False) -> None: ...

    schema = schema_of(plant)
    assert schema["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    jsonschema.validate({"tree": {"name": "a", "children": [{"name": "b"}]}}, schema)


class Query(BaseModel):
    text: Annotated[str, Field(min_length=2, description="What to seek.")]
    limit: int = 10


class Sized(TypedDict):
    width: int


@dataclass
class Boxed(Generic[V]):
    value: V


class Listed(RootModel[list[int]]):
    pass


class Inside(BaseModel):
    input: str


WHOLE: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "a model": (Query, {"text": "ab"}, Query(text="ab")),
    "a model with a note": (Annotated[Query, Field(description="It.")], {"text": "ab"}, Query(text="ab")),
    "a typed dict": (Sized, {"width": 1.0}, {"width": 1}),
    "a dataclass": (Boxed[int], {"value": 1}, Boxed(1)),
    "a model with a field of the parameter's name": (Inside, {"input": "a"}, Inside(input="a")),
    "a model that contains itself": (Tree, {"name": "a"}, Tree(name="a")),
}


@pytest.mark.parametrize("case", WHOLE)
@pytest.mark.parametrize("make", [tool, partial(host_tool, harmless=True)])
def test_the_fields_of_the_only_parameter_are_the_arguments(case: str, make: Any) -> None:
    annotation, arguments, expected = WHOLE[case]

    def use(ctx: Any, input: Any) -> None: ...

    use.__annotations__ |= {"ctx": ToolContext if make is tool else HostContext, "input": annotation}
    made = make(use)
    schema = made.declaration.parameters_schema
    assert schema["type"] == "object" and schema["properties"].keys() >= arguments.keys()
    assert made.bind(arguments, None) == {"ctx": None, "input": expected}
    validator = Validator("use", schema, whole=made.whole)
    checked = validator.check(arguments)
    assert isinstance(checked, Valid) and checked.arguments == arguments
    if annotation is not Inside:  # as other frameworks declare it
        assert validator.check({"input": arguments}) == checked
    assert isinstance(validator.check({"input": 3}), ValidationError)


class Loose(Query, extra="ignore"):
    pass


class Renamed(BaseModel, populate_by_name=True):
    text: Annotated[str, Field(alias="q")] = ""


class Older(Query):
    @model_validator(mode="before")
    @classmethod
    def _newer(cls, given: Any) -> Any:
        return {"text": given["q"]} if "q" in given else given


@pytest.mark.parametrize(
    ("annotation", "refuses"),
    [
        *[(one, True) for one in (Query, Sized, Boxed[int], Annotated[Query, "It."], Tree)],
        *[(one, False) for one in (Loose, Renamed, Older)],
    ],
)
def test_names_that_are_no_field_are_refused_unless_the_type_says_what_becomes_of_them(
    annotation: Any, refuses: bool
) -> None:
    def use(input: Any) -> None: ...

    use.__annotations__["input"] = annotation
    made = tool(use)
    schema = made.declaration.parameters_schema
    assert schema.get("additionalProperties", True) is not refuses
    found = Validator("use", schema, whole=made.whole).check({"text": "ab", "limt": 3})
    assert not refuses or (isinstance(found, ValidationError) and "limt: is not known" in found.message)


@pytest.mark.parametrize("annotation", [Query | None, Listed, list[Query], dict[str, Query], int])
def test_another_type_of_the_only_parameter_is_its_own_argument(annotation: Any) -> None:
    def use(input: Any) -> None: ...

    use.__annotations__["input"] = annotation
    assert list(schema_of(use)["properties"]) == ["input"]


def test_models_of_several_parameters_or_with_a_default_or_in_an_authors_schema_are_arguments_by_name() -> None:
    def several(input: Query, times: int) -> None: ...
    def optional(input: Query = Query(text="ab")) -> None: ...  # noqa: B008 - it is not changed
    def alone(input: Query) -> None: ...

    assert list(schema_of(several)["properties"]) == ["input", "times"]
    assert list(schema_of(optional)["properties"]) == ["input"]
    nested = {"type": "object", "properties": {"input": {"type": "object"}}, "required": ["input"]}
    authored = tool(alone, parameters_schema=nested)
    assert list(authored.declaration.parameters_schema["properties"]) == ["input"]
    assert authored.bind({"input": {"text": "ab"}}, None) == {"input": Query(text="ab")} and not authored.whole


def test_two_models_of_one_name_stay_apart() -> None:
    def other() -> Any:
        class Point(BaseModel):
            label: str

        return Point

    def compare(a: Any, b: Any) -> None: ...

    compare.__annotations__ |= {"a": Point, "b": other()}
    schema = schema_of(compare)
    assert schema["properties"]["a"] != schema["properties"]["b"]


def test_defaults_are_kept_as_json() -> None:
    def paint(colour: Colour = Colour.RED, at: Point = POINT, where: Path = Path("a")) -> None: ...

    properties = schema_of(paint)["properties"]
    assert [properties[name]["default"] for name in ("colour", "at", "where")] == ["red", {"x": 1, "y": 0}, "a"]


def test_a_description_in_annotated_wins_over_the_docstring() -> None:
    def show(path: Annotated[str, Field(description="typed")], other: str) -> None:
        """Show.

        Args:
            path: documented
            other: documented
        """

    properties = schema_of(show)["properties"]
    assert (properties["path"]["description"], properties["other"]["description"]) == ("typed", "documented")


def test_a_parameter_may_be_called_what_pydantic_reserves() -> None:
    def odd(schema: str, copy: int, model_config: str, _hidden: str = "") -> None: ...

    assert list(schema_of(odd)["properties"]) == ["schema", "copy", "model_config", "_hidden"]


@pytest.mark.parametrize(
    "annotation",
    [
        ToolContext,
        "ToolContext",
        "toolcell.ToolContext",
        ToolContext | None,
        Optional[ToolContext],  # noqa: UP045
        "ToolContext | None",
    ],
)
def test_the_context_is_found_by_its_annotation_and_left_out(annotation: Any) -> None:
    def act(text: str, c: Any = None) -> None: ...

    act.__annotations__["c"] = annotation
    made = tool(act)
    assert made.context_parameter == "c"
    assert list(made.declaration.parameters_schema["properties"]) == ["text"]


def test_types_from_the_function_that_defines_the_tool_can_be_named_in_strings() -> None:
    class Local(BaseModel):
        a: int

    @tool
    def use(value: "Local", beside: int = 0) -> "Local":
        return value

    assert "Local" in use.declaration.parameters_schema["$defs"]
    assert use.declaration.output_schema is not None
    assert use.bind({"value": {"a": 1}}, None) == {"value": Local(a=1)}


@pytest.mark.parametrize("annotation", [Point, Size, Movie])
def test_an_output_schema_comes_from_a_structured_return_type(annotation: Any) -> None:
    def give() -> Any: ...

    give.__annotations__["return"] = annotation
    schema = tool(give).declaration.output_schema
    assert schema is not None
    assert schema["type"] == "object"


@pytest.mark.parametrize("annotation", [str, None, list[int], dict[str, int], ToolResult, Any, "Unknown", "not a type"])
def test_other_return_types_have_no_output_schema(annotation: Any) -> None:
    def give() -> Any: ...

    give.__annotations__["return"] = annotation
    assert tool(give).declaration.output_schema is None


def test_an_output_schema_can_be_given_as_a_type_or_as_json_schema() -> None:
    def give() -> Any: ...

    given = {"type": "array", "items": {"type": "integer"}}
    assert tool(give, output_schema=given).declaration.output_schema == given
    assert tool(give, output_schema=list[int]).declaration.output_schema == given


def test_a_wrong_output_schema_says_where_it_is_wrong() -> None:
    def give() -> Any: ...

    with pytest.raises(ToolDefinitionError, match=r"output_schema is not valid JSON Schema at \$\.type"):
        tool(give, output_schema={"type": "strnig"})
