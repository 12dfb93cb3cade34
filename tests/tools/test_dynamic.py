"""Dynamic tools: JSON Schema kept as it came, or a model; and what is one."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, Field, PlainSerializer

from toolcell_tools import (
    HostContext,
    HostTool,
    PermissionTier,
    Tool,
    ToolContext,
    ToolDefinitionError,
    ToolResult,
    Unencodable,
    dynamic_host_tool,
    dynamic_tool,
    is_dynamic,
    provider_tool,
    tool,
)

SEARCH = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "minimum": 1, "maximum": 100}},
    "required": ["query"],
    "additionalProperties": False,
}
REFERRING = {
    "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}}},
    "type": "object",
    "properties": {"at": {"$ref": "#/$defs/point"}, "way": {"oneOf": [{"const": "up"}, {"type": "integer"}]}},
}


class Search(BaseModel):
    query: str
    limit: int = 3


def called(made: Tool[..., Any], arguments: dict[str, Any], ctx: ToolContext | None = None) -> object:
    return made.run(made.bind(arguments, ctx), ctx)


@tool
def plain(a: int) -> int:
    """Not dynamic."""
    return a


@pytest.mark.parametrize(
    ("obj", "answer"),
    [
        (dynamic_tool("by_schema", parameters=SEARCH, handler=lambda arguments: None), True),
        (dynamic_tool("by_model", parameters=Search, handler=lambda arguments: None), True),
        (dynamic_tool("by_model", parameters=Search, handler=lambda arguments: None).declaration, True),
        (dynamic_host_tool("by_schema", parameters=SEARCH, handler=lambda arguments: None), True),
        (plain, False),
        (plain.declaration, False),
        (provider_tool("web", provider="openai", definition={"type": "web_search"}), False),
        (None, False),
        ({}, False),
        ({"name": "fake"}, False),
        ({"kind": "dynamic"}, False),
    ],
)
def test_both_forms_are_dynamic_and_nothing_else_is(obj: object, answer: bool) -> None:
    assert is_dynamic(obj) is answer


@pytest.mark.parametrize("schema", [SEARCH, REFERRING], ids=["constraints", "references"])
def test_a_json_schema_is_declared_as_it_came(schema: dict[str, Any]) -> None:
    made = dynamic_tool("found", parameters=schema, handler=lambda arguments: None)
    assert made.declaration.parameters_schema == schema
    assert (made.declaration.kind, made.declaration.is_dynamic, made.declaration.description) == ("dynamic", True, "")


def test_a_later_change_of_the_schema_does_not_reach_the_tool() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    made = dynamic_tool("found", parameters=schema, handler=lambda arguments: None)
    schema["properties"]["more"] = {}
    assert made.declaration.parameters_schema["properties"] == {}


def test_a_model_is_derived_and_the_handler_gets_an_instance() -> None:
    def found(search: Search) -> list[str]:
        return [f"{search.query}-{number}" for number in range(search.limit)]

    made = dynamic_tool("found", parameters=Search, handler=found)
    schema = made.declaration.parameters_schema
    assert (schema["type"], schema["required"], set(schema["properties"])) == ("object", ["query"], {"query", "limit"})
    assert called(made, {"query": "test"}) == ["test-0", "test-1", "test-2"]


def test_with_a_json_schema_the_handler_gets_the_same_as_a_dict() -> None:
    def found(arguments: dict[str, Any]) -> list[str]:
        return [f"{arguments['query']}-{number}" for number in range(arguments["limit"])]

    made = dynamic_tool("found", parameters=SEARCH, handler=found)
    assert called(made, {"query": "test", "limit": 3}) == ["test-0", "test-1", "test-2"]


def test_a_literal_union_works_in_a_model() -> None:
    class Calculation(BaseModel):
        operation: Literal["add", "subtract", "multiply", "divide"]
        a: float
        b: float

    made = dynamic_tool("calc", parameters=Calculation, handler=lambda input: (input.operation, input.a + input.b))
    assert made.declaration.parameters_schema["properties"]["operation"]["enum"][0] == "add"
    assert called(made, {"operation": "add", "a": 1, "b": 2}) == ("add", 3.0)


def test_without_parameters_anything_goes() -> None:
    made = dynamic_tool("anything", handler=lambda arguments: arguments)
    assert made.declaration.parameters_schema == {"type": "object"}
    assert called(made, {"x": [1]}) == {"x": [1]}


def test_str_is_one_text_called_input_as_llamaindex_has_it() -> None:
    made = dynamic_tool("ask", parameters=str, handler=lambda text: text.upper())
    schema = made.declaration.parameters_schema
    assert schema["properties"] == {"input": {"title": "input query string", "type": "string"}}
    assert schema["required"] == ["input"]
    assert called(made, {"input": "hi"}) == "HI"


Millis = Annotated[datetime, PlainSerializer(lambda at: int(at.timestamp() * 1000), return_type=int)]


def test_success_says_how_a_result_is_written_also_with_a_json_schema_for_the_parameters() -> None:
    made = dynamic_tool("now", parameters=SEARCH, handler=lambda _: datetime.fromtimestamp(1, UTC), success=Millis)
    assert made.declaration.output_schema == {"type": "integer"}
    assert called(made, {"query": ""}) == 1000


def test_a_result_that_is_not_what_success_says_cannot_be_sent() -> None:
    class Report(BaseModel):
        rows: list[int]

    made = dynamic_tool("report", handler=lambda arguments: arguments, success=Report)
    assert called(made, {"rows": [1]}) == {"rows": [1]}
    with pytest.raises(Unencodable, match=r"^\$\.rows\[1\]: the result is not what output_schema says"):
        called(made, {"rows": [1, "x"]})


def test_success_holds_for_the_output_of_a_tool_result() -> None:
    made = dynamic_tool(
        "now", handler=lambda _: ToolResult(output=datetime.fromtimestamp(1, UTC), display="now"), success=Millis
    )
    result = called(made, {})
    assert isinstance(result, ToolResult)
    assert (result.output, result.display) == (1000, "now")


def test_success_and_failure_may_be_json_schemas() -> None:
    made = dynamic_tool(
        "divide",
        handler=lambda arguments: None,
        success={"type": "number"},
        failure={"type": "object", "required": ["code"]},
        failure_mode="return",
    )
    declaration = made.declaration
    assert (declaration.output_schema, declaration.failure_schema, declaration.failure_mode) == (
        {"type": "number"},
        {"type": "object", "required": ["code"]},
        "return",
    )


def test_a_failure_may_be_a_type() -> None:
    @dataclass
    class Trouble:
        code: int
        message: str

    schema = dynamic_tool("f", handler=lambda arguments: None, failure=Trouble).declaration.failure_schema
    assert schema is not None
    assert schema["required"] == ["code", "message"]


def test_a_handler_finds_its_context_by_type_or_by_name(ctx: ToolContext) -> None:
    def by_type(c: ToolContext, arguments: dict[str, Any]) -> str:
        return c.call_id

    assert called(dynamic_tool("a", handler=by_type), {}, ctx) == "c1"
    assert called(dynamic_tool("b", handler=lambda ctx, arguments: ctx.call_id), {}, ctx) == "c1"


def test_validation_can_be_left_to_the_handler_of_a_json_schema_only() -> None:
    assert dynamic_tool("free", parameters=SEARCH, handler=lambda arguments: None, validate=False).validate is False
    assert dynamic_tool("held", parameters=SEARCH, handler=lambda arguments: None).validate is True
    with pytest.raises(ToolDefinitionError, match="validate=False is for parameters in JSON Schema"):
        dynamic_tool("typed", parameters=Search, handler=lambda arguments: None, validate=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "Bad Name"}, "pass name='bad_name'"),
        ({"name": "handoff"}, "is reserved"),
        ({"description": "x" * 1025}, "has 1,025 characters"),
        ({"parameters": {"type": "string"}}, 'is a schema for "string", and arguments are an object'),
        ({"parameters": {"type": "banana"}}, "parameters is not valid JSON Schema"),
        ({"parameters": int}, "whose JSON is no object"),
        ({"success": {"type": 3}}, "output_schema is not valid JSON Schema"),
        ({"success": object()}, "output_schema=.* has no JSON Schema"),
        ({"handler": 3}, "handler=3 is not a function"),
        ({"handler": lambda: None}, r"its function takes \(nothing\)"),
        ({"handler": lambda a, b: None}, r"its function takes \(a, b\)"),
        ({"handler": lambda **arguments: None}, r"takes \(\*\*arguments\)"),
        ({"limit": 3}, "has no option 'limit'. Did you mean 'limits'"),
    ],
)
def test_a_wrong_definition_is_refused(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"name": "found", "handler": lambda arguments: None, **options}
    with pytest.raises(ToolDefinitionError, match=message):
        dynamic_tool(given.pop("name"), **given)


def test_a_described_field_reaches_the_declaration() -> None:
    class Described(BaseModel):
        city: str = Field(description="Where.", examples=["Rome"])

    schema = dynamic_tool("weather", parameters=Described, handler=lambda input: None).declaration.parameters_schema
    assert schema["properties"]["city"]["description"] == "Where."


def test_one_of_the_host_is_declared_as_it_came_and_says_where_it_runs() -> None:
    def found(ctx: HostContext, arguments: dict[str, Any]) -> object:
        return [ctx, arguments]

    made = dynamic_host_tool("found", parameters=REFERRING, handler=found, success=list, harmless=True)
    declaration = made.declaration
    assert declaration.parameters_schema == REFERRING and isinstance(made, HostTool)
    assert (declaration.kind, declaration.placement, declaration.tier) == ("dynamic", "host", PermissionTier.SYSTEM)
    assert made.bind({"way": 1}, None) == {"ctx": None, "arguments": {"way": 1}}
    assert made.replace(name="lost").declaration.placement == "host"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parameters": {"type": "string"}}, "'bad': parameters is a schema for \"string\", and arguments"),
        ({"uses": {"web"}}, "host tool 'bad' takes no uses"),
        ({"lifetime": "session"}, "host tool 'bad' takes no lifetime"),
        ({"limits": {"wall_s": 1}}, "host tool 'bad' takes no limits"),
        ({"handler": 3}, "'bad': handler=3 is not a function"),
        ({"handler": lambda: None}, "write one parameter for all the arguments, and a HostContext"),
        ({"validate": False, "parameters": Search}, "validate=False is for parameters in JSON Schema"),
    ],
)
def test_a_wrong_definition_of_one_of_the_host_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolDefinitionError, match=f"(?i){re.escape(message)}"):
        dynamic_host_tool("bad", **({"handler": lambda arguments: None} | options))


def test_one_of_the_host_takes_the_context_of_the_host_only() -> None:
    def found(ctx: ToolContext, arguments: dict[str, Any]) -> None: ...

    with pytest.raises(ToolDefinitionError, match="runs in the supervisor's process, and there is no ToolContext"):
        dynamic_host_tool("found", handler=found)


def signed(arguments: object) -> str:
    return str(arguments)


class Nested(BaseModel):
    form: dict[str, Any] = {}
    answers: Any = Field(default=None, validation_alias=AliasChoices("reply", AliasPath("form", "reply")))


class Below(BaseModel):
    form: dict[str, Any] = {}
    answers: Any = Field(default=None, validation_alias=AliasPath("form", "reply"))


class Renamed(BaseModel, populate_by_name=True):
    answers: Any = Field(default=None, alias="reply")


class Twice(BaseModel):
    reply: Any = None
    answers: Any = Field(default=None, validation_alias=AliasChoices("answers", "reply"))


@pytest.mark.parametrize(
    ("kind", "answers"), [(Nested, "reply"), (Below, "answers"), (Renamed, "answers"), (Twice, "answers")]
)
def test_a_type_that_takes_a_person_s_answers_from_another_argument_is_refused(kind: type, answers: str) -> None:
    with pytest.raises(ToolDefinitionError, match="which a client can send"):
        dynamic_tool("sign", handler=signed, parameters=kind, metadata={"mcp": {"answers": answers}})
    assert dynamic_tool("sign", handler=signed, parameters=kind).parameters_type is kind
