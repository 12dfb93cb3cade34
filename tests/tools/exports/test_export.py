"""What each dialect writes: the base tools, real tools, and the places where a dialect falls short."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

import toolcell
from toolcell_tools import base_tools, dynamic_tool, exports, tool
from toolcell_tools.exports import Export

from .kit import MODES, Mode, accepts, declared, real_tools
from .rules import check, nodes

by_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
by_rewriting_mode = pytest.mark.parametrize(  # MCP takes schemas as they are
    "mode", [one for one in MODES if one.name != "mcp"], ids=lambda mode: mode.name
)
NAMES = [one.name for one in base_tools()]


class Branch(BaseModel):
    label: str
    children: "list[Branch]" = []


def plant(root: Branch, depth: Annotated[int, Field(ge=1, le=9)] = 3, note: str | None = None) -> str:
    """Plant a tree."""
    return f"{root} {depth} {note}"


@dataclass
class Native:
    """Stands for the tool object of a provider-defined tool."""

    name: str
    provider: str
    definition: dict[str, Any] = field(default_factory=dict[str, Any])


def strict(schema: dict[str, Any]) -> Export:
    """A strict export of one tool."""
    return exports.openai_responses([declared(schema)], strict=True)


def object_of(**properties: Any) -> dict[str, Any]:
    """A closed object schema with all properties required."""
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


# -- every dialect -----------------------------------------------------------------------------------------------------


@by_mode
def test_the_base_tools_keep_the_rules_and_their_order(mode: Mode) -> None:
    export = mode.export(one.declaration for one in base_tools())
    for index, name in enumerate(NAMES):
        written = mode.tool_of(export, index)
        check(mode.name, written)
        assert (written.get("function") or written)["name"] == name
    assert export.names.changed == {}
    assert not export.report.tightens("read")


@by_mode
def test_real_tools_keep_the_rules_and_none_is_left_out(mode: Mode) -> None:
    given = real_tools()
    export = mode.export(given)
    assert [one for one in export.report if one.action == "refused"] == []
    for index in range(len(given)):
        check(mode.name, mode.tool_of(export, index))
    assert [export.names.original(export.names.exported(one.name)) for one in given] == [one.name for one in given]
    assert json.loads(json.dumps(export.tools, allow_nan=False)) == export.tools


@by_mode
def test_an_export_leaves_its_declarations_alone(mode: Mode) -> None:
    given = real_tools()
    before = [one.model_dump_json() for one in given]
    mode.export(given)
    assert [one.model_dump_json() for one in given] == before


@by_rewriting_mode
def test_a_schema_that_cannot_be_taken_is_refused_by_name_and_the_others_go_out(mode: Mode) -> None:
    remote = declared(object_of(a={"$ref": "https://example.com/a.json"}), "remote")
    endless = declared({"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "endless")
    doubling: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    bomb = declared({"type": "object", "$ref": "#/$defs/d0", "$defs": doubling | {"d40": {}}}, "bomb")
    text = declared({"type": "string"}, "text")
    export = mode.export([remote, endless, bomb, text, declared(object_of(a={"type": "string"}), "fine")])
    assert [one.tool for one in export.report if one.action == "refused"] == ["remote", "endless", "bomb", "text"]
    assert set(export.names.forward) == {"fine"}


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"two tools are called 'probe'\. Rename"):
        exports.mcp([declared(object_of()), declared(object_of())])


def test_the_package_is_reached_from_toolcell_and_takes_tools_as_well_as_declarations() -> None:
    from toolcell import exports as theirs

    assert theirs.openai_chat is exports.openai_chat
    assert exports.mcp([*base_tools()]).tools == exports.mcp(one.declaration for one in base_tools()).tools
    assert toolcell.exports is theirs


INF, NAN = math.inf, math.nan


class Bounds(BaseModel):
    """The limits of a search."""

    most: float = INF
    steps: Annotated[float, Field(le=INF, ge=-INF, examples=[NAN, 1.0])] = 1


class Level(Enum):
    LOW = 0.5
    ANY = INF


def seek(
    limit: float = INF,
    low: Annotated[float, Field(description="From here.")] = -INF,
    some: float | None = NAN,
    each: list[float] = [1.0, INF],  # noqa: B006 - it is not changed
    within: Bounds = Bounds(),  # noqa: B008 - as above
    level: Level = Level.ANY,
) -> str:
    """Seek."""
    return f"{limit} {low} {some} {each} {within} {level}"


@by_mode
def test_a_number_that_json_lacks_is_in_no_export_and_a_default_of_it_is_said_in_the_description(mode: Mode) -> None:
    by_type = dynamic_tool("by_type", parameters=Bounds, handler=lambda bounds: bounds, success=Bounds)
    export = mode.export([tool(seek).declaration, by_type.declaration])
    for index in range(2):
        check(mode.name, mode.tool_of(export, index))
    told = mode.schema_of(export)["properties"]
    for name, says in (
        ("limit", "Default: Infinity"),
        ("low", "From here. (default: -Infinity"),
        ("some", "Default: NaN"),
        ("each", "Default: [1.0, Infinity]"),
        ("within", '"most": Infinity'),
        ("level", "Default: Infinity"),
    ):
        assert says in str(told[name]), name
    assert "Default: Infinity" in mode.schema_of(export, 1)["properties"]["most"]["description"]


REFUSED_BY_GEMINI: dict[str, tuple[dict[str, Any], str]] = {
    "an empty text among others": ({"type": "string", "enum": ["", "x"]}, "enum narrowed"),
    "an empty text alone": ({"type": "string", "enum": [""]}, "said in the description"),
    "an empty constant": ({"const": ""}, "said in the description"),
    "with null": ({"type": ["string", "null"], "enum": ["", "x", None]}, "enum"),
    "with null only": ({"enum": ["", None]}, "said in the description"),
    "with a number": ({"enum": ["", "x", 1]}, "enum"),
    "in a variant": ({"anyOf": [{"type": "string", "enum": [""]}, {"type": "integer"}]}, "said in the description"),
    "among items": ({"type": "array", "items": {"enum": ["a", ""]}}, "enum narrowed"),
    "a default of it": ({"type": "string", "enum": ["", "x"], "default": ""}, "default"),
    "required and not declared": (
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]},
        "undeclared: b",
    ),
    "no value": ({"enum": []}, "fits"),
    "an exclusive bound of draft 4": (
        {"type": "integer", "minimum": 3, "exclusiveMinimum": True},
        "exclusiveMinimum rewritten: minimum: 4",
    ),
}


@pytest.mark.parametrize("case", REFUSED_BY_GEMINI)
@pytest.mark.parametrize("is_openapi", [False, True])
def test_what_a_provider_would_refuse_is_left_out_and_reported(case: str, is_openapi: bool) -> None:
    schema, says = REFUSED_BY_GEMINI[case]
    whole = {"$schema": "http://json-schema.org/draft-04/schema#"} | object_of(a=schema)
    given = [declared(whole, output=object_of(result=schema))]
    export = exports.gemini(given, mode="openapi" if is_openapi else "json_schema")
    check("gemini", export.tools[0]["functionDeclarations"][0])
    assert says in str(export.report)
    for mode in MODES[:-1]:
        check(mode.name, mode.tool_of(mode.export(given)))


# -- OpenAI ------------------------------------------------------------------------------------------------------------


def test_chat_and_responses_differ_in_their_envelope_only() -> None:
    for is_strict in (False, True):
        chat = exports.openai_chat(base_tools(), strict=is_strict)
        responses = exports.openai_responses(base_tools(), strict=is_strict)
        for one, other in zip(chat.tools, responses.tools, strict=True):
            assert {"strict": False, **one["function"], "type": "function"} == other


def test_a_strict_tool_as_a_whole() -> None:
    export = exports.openai_chat([tool(plant)], strict=True)
    assert export.tools == [
        {
            "type": "function",
            "function": {
                "name": "plant",
                "description": "Plant a tree.",
                "parameters": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "root": {"$ref": "#/$defs/Branch"},
                        "depth": {
                            "type": ["integer", "null"],
                            "minimum": 1,
                            "maximum": 9,
                            "description": "Default: 3 (null to leave it out)",
                        },
                        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "Default: null"},
                    },
                    "required": ["root", "depth", "note"],
                    "$defs": {
                        "Branch": {
                            "title": "Branch",
                            "type": "object",
                            "additionalProperties": False,
                            "properties": {
                                "label": {"title": "Label", "type": "string"},
                                "children": {
                                    "title": "Children",
                                    "type": ["array", "null"],
                                    "items": {"$ref": "#/$defs/Branch"},
                                    "description": "Default: [] (null to leave it out)",
                                },
                            },
                            "required": ["label", "children"],
                        }
                    },
                },
                "strict": True,
            },
        }
    ]


def test_nulls_of_optional_properties_are_left_out_on_the_way_back_at_any_depth() -> None:
    export = exports.openai_chat([tool(plant)], strict=True)
    called = {
        "root": {"label": "a", "children": [{"label": "b", "children": None}]},
        "depth": None,
        "note": None,
    }
    back = {"root": {"label": "a", "children": [{"label": "b"}]}, "note": None}
    assert export.decode("plant", called) == back
    assert export.encode("plant", back) == called


def test_the_kind_that_fits_decides_what_a_null_means() -> None:
    kinds = [
        {**object_of(kind={"const": "a"}, x={"type": "integer"}), "required": ["kind"]},
        {**object_of(kind={"const": "b"}, x={"type": ["integer", "null"]}), "required": ["kind"]},
    ]
    export = strict(object_of(one={"anyOf": kinds}))
    assert export.decode("probe", {"one": {"kind": "a", "x": None}}) == {"one": {"kind": "a"}}
    assert export.decode("probe", {"one": {"kind": "b", "x": None}}) == {"one": {"kind": "b", "x": None}}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "object"}, "without declared properties"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "keys that are not known"),
        ({"type": "object", "properties": {}, "patternProperties": {"^a": {}}}, "keys that are not known"),
        ({"not": {"type": "string"}}, "any type"),
        ({"type": "array"}, "an array of anything"),
        ({"enum": [{"a": 1}]}, "without declared properties"),
    ],
)
def test_what_strict_mode_cannot_say_is_exported_without_it(schema: dict[str, Any], says: str) -> None:
    export = strict(object_of(a=schema))
    assert export.tools[0]["strict"] is False
    (why,) = [one for one in export.report if one.action == "fallback"]
    assert why.pointer.startswith("/properties/a") and says in why.detail
    assert "strict mode cannot express it" in str(export.report)


def deep(levels: int) -> dict[str, Any]:
    """Objects in objects."""
    return {"type": "string"} if levels == 0 else object_of(a=deep(levels - 1))


@pytest.mark.parametrize(
    ("fits", "does_not"),
    [
        (deep(10), deep(11)),
        (
            object_of(**{f"p{n}": {"type": "null"} for n in range(5_000)}),
            object_of(**{f"p{n}": {} for n in range(5_001)}),
        ),
        (object_of(a={"enum": [*range(1_000)]}), object_of(a={"enum": [*range(1_001)]})),
        (
            object_of(a={"enum": ["x" * 59 + f"{n:03}" for n in range(240)]}),
            object_of(a={"enum": ["x" * 59 + f"{n:03}" for n in range(251)]}),
        ),
        (object_of(**{"x" * 60_000: {"type": "null"}}), object_of(**{"x" * 120_001: {"type": "null"}})),
    ],
    ids=["nesting", "properties", "enum values", "long enum", "characters"],
)
def test_the_sizes_of_strict_mode(fits: dict[str, Any], does_not: dict[str, Any]) -> None:
    assert strict(fits).tools[0]["strict"] is True
    assert strict(does_not).tools[0]["strict"] is False


def test_a_constraint_that_is_lost_is_said_in_the_description() -> None:
    export = strict(
        object_of(
            a={"type": "string", "minLength": 2, "format": "iri", "description": "A."},
            b={"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            c={"type": "string", "pattern": "(?=a)b"},
        )
    )
    written = export.tools[0]["parameters"]["properties"]
    assert written["a"] == {"type": "string", "description": "A. (at least 2 characters; format: iri)"}
    assert written["b"]["description"] == "No item twice"
    assert written["c"]["description"] == "Matches the regular expression (?=a)b"
    assert {one.pointer for one in export.report if one.loosens} == {
        "/properties/a/minLength",
        "/properties/a/format",
        "/properties/b/uniqueItems",
        "/properties/c/pattern",
    }


def test_an_array_says_what_its_items_are_and_a_long_description_is_cut() -> None:
    export = exports.openai_chat([declared(object_of(a={"type": "array"}), description="x" * 2_000)])
    function = export.tools[0]["function"]
    assert function["parameters"]["properties"]["a"] == {"type": "array", "items": {}}
    assert len(function["description"]) == 1_024
    assert [one.keyword for one in export.report] == ["description", "items"]


@by_rewriting_mode
def test_a_union_at_the_root_becomes_one_object(mode: Mode) -> None:
    variants = [
        object_of(kind={"const": "a"}, x={"type": "string"}),
        object_of(kind={"const": "b"}, y={"type": "string"}),
    ]
    export = mode.export([declared({"anyOf": variants})])
    check(mode.name, mode.tool_of(export))
    schema = mode.schema_of(export)
    assert schema["properties"].keys() == {"kind", "x", "y"}
    assert export.report.loosens("probe") and not export.report.tightens("probe")
    assert accepts(schema)(export.encode("probe", {"kind": "a", "x": "1"}))


# -- Anthropic ---------------------------------------------------------------------------------------------------------


def test_a_request_has_room_for_so_many_strict_tools_optional_properties_and_unions() -> None:
    plain = [declared(object_of(a={"type": "string"}), f"t{n}") for n in range(22)]
    optional = [declared({**object_of(a={"type": "string"}), "required": []}, f"t{n}") for n in range(13)]
    unions = [declared(object_of(a={"type": ["string", "null"]}), f"t{n}") for n in range(18)]
    assert [one.get("strict", False) for one in exports.anthropic(plain, strict=True).tools] == [True] * 20 + [
        False
    ] * 2
    assert [one.get("strict", False) for one in exports.anthropic(unions, strict=True).tools] == [True] * 16 + [
        False
    ] * 2
    wide = {**object_of(**{f"p{n}": {"type": "string"} for n in range(25)}), "required": []}
    given = [declared(wide, "wide"), *optional]
    assert [one.get("strict", False) for one in exports.anthropic(given, strict=True).tools] == [False] + [True] * 13


def test_recursion_is_not_strict_with_anthropic() -> None:
    export = exports.anthropic([tool(plant)], strict=True)
    assert "strict" not in export.tools[0]
    assert "recursion" in str(export.report)


def test_parameters_are_renamed_where_the_provider_refuses_their_names_and_named_back() -> None:
    schema = {**object_of(**{"$filter": {"type": "string"}, "größe": {"type": "integer"}}), "required": ["$filter"]}
    export = exports.anthropic([declared(schema)])
    check("anthropic", export.tools[0])
    there = export.encode("probe", {"$filter": "x", "größe": 3})
    assert accepts(export.tools[0]["input_schema"])(there)
    assert export.decode("probe", there) == {"$filter": "x", "größe": 3}
    assert [one.action for one in export.report] == ["renamed", "renamed"]


def test_examples_go_out_where_they_fit() -> None:
    examples: dict[str, list[dict[str, Any]]] = {"plant": [{"root": {"label": "a"}}, {"root": 3}]}
    export = exports.anthropic([tool(plant)], examples=examples)
    assert export.tools[0]["input_examples"] == [{"root": {"label": "a"}}]
    assert "example 1 does not fit" in str(export.report)


# -- Gemini ------------------------------------------------------------------------------------------------------------


def test_the_openapi_subset_as_a_whole() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": ["string", "null"], "enum": ["x", "y", None]},
            "b": {"enum": [1, 2]},
            "c": {"type": ["string", "integer"]},
            "d": {"$ref": "#/$defs/D", "description": "Here."},
            "e": {"type": "integer", "exclusiveMinimum": 2},
            "f": {"type": "string", "format": "date-time"},
        },
        "$defs": {"D": object_of(x={"type": "boolean"})},
    }
    (tools,) = exports.gemini([declared(schema)], mode="openapi").tools
    assert tools["functionDeclarations"][0]["parameters"] == {
        "type": "OBJECT",
        "properties": {
            "a": {"type": "STRING", "nullable": True, "enum": ["x", "y"], "format": "enum"},
            "b": {"type": "INTEGER", "description": "One of 1, 2"},
            "c": {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]},
            "d": {
                "type": "OBJECT",
                "properties": {"x": {"type": "BOOLEAN"}},
                "required": ["x"],
                "description": "Here.",
            },
            "e": {"type": "INTEGER", "minimum": 3},
            "f": {"type": "STRING", "format": "date-time"},
        },
    }


def test_what_the_openapi_subset_cannot_say_is_declared_by_json_schema() -> None:
    (tools,) = exports.gemini([tool(plant), *base_tools()[:1]], mode="openapi").tools
    assert [one.keys() - {"name", "description"} for one in tools["functionDeclarations"]] == [
        {"parametersJsonSchema"},
        {"parameters"},
    ]


def test_recursion_that_is_required_is_cut_for_gemini() -> None:
    endless = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/N"}}}}
    required = {**object_of(n={"$ref": "#/$defs/N"}), "$defs": {"N": {**endless, "required": ["kids"]}}}
    optional = {**object_of(n={"$ref": "#/$defs/N"}), "$defs": {"N": endless}}
    cut, kept = exports.gemini([declared(required, "cut"), declared(optional, "kept")]).tools[0]["functionDeclarations"]
    counts = [sum("$ref" in node for node in nodes(one["parametersJsonSchema"])) for one in (cut, kept)]
    assert counts == [1, 2]


def test_a_function_without_parameters_has_none() -> None:
    (tools,) = exports.gemini([declared(object_of())], mode="openapi").tools
    assert tools["functionDeclarations"][0].keys() == {"name", "description"}


# -- output schemas ----------------------------------------------------------------------------------------------------


def test_gemini_gets_the_output_schema_and_every_loss_of_it_is_a_finding() -> None:
    output = {
        "type": "object",
        "properties": {"id": {"type": "integer", "minimum": 1}, "code": {"type": "string", "pattern": "^a"}},
        "required": ["id"],
    }
    export = exports.gemini([declared(object_of(), output=output)])
    (function,) = export.tools[0]["functionDeclarations"]
    assert function["responseJsonSchema"]["properties"]["id"] == {"type": "integer", "minimum": 1}
    assert function["responseJsonSchema"]["required"] == ["id"]
    (lost,) = export.report
    assert (lost.pointer, lost.keyword, lost.action) == ("/outputSchema/properties/code/pattern", "pattern", "moved")
    assert not export.report.loosens("probe"), "no argument depends on it"
    (function,) = exports.gemini([declared(object_of(), output=output)], "openapi").tools[0]["functionDeclarations"]
    assert function["response"]["properties"]["id"] == {"type": "INTEGER", "minimum": 1}


def test_an_output_that_the_openapi_subset_cannot_say_goes_out_by_json_schema() -> None:
    export = exports.gemini([declared(object_of(), output={"type": "object"})], "openapi")
    (function,) = export.tools[0]["functionDeclarations"]
    assert function["responseJsonSchema"]["type"] == "object" and "response" not in function
    assert [one.action for one in export.report if one.pointer.startswith("/outputSchema")] == ["fallback"]


@pytest.mark.parametrize("make", [exports.openai_chat, exports.openai_responses, exports.anthropic])
def test_where_there_is_no_place_for_an_output_schema_the_report_says_so(make: Callable[..., Export]) -> None:
    export = make([declared(object_of(), output={"type": "integer"}), declared(object_of(), "other")])
    assert [(one.tool, one.keyword, one.action) for one in export.report] == [("probe", "outputSchema", "dropped")]


# -- MCP ---------------------------------------------------------------------------------------------------------------


def test_mcp_carries_annotations_and_what_it_has_no_field_for() -> None:
    (edit,) = [one for one in exports.mcp(base_tools()).tools if one["name"] == "edit"]
    assert edit["title"] == edit["annotations"]["title"]
    assert edit["annotations"].keys() == {"title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
    assert edit["_meta"]["toolcell/edit"] is True and edit["_meta"]["toolcell/tier"] == "workspace"


def test_an_output_that_is_no_object_is_wrapped_in_schema_and_result_alike() -> None:
    output = {"type": "array", "items": {"$ref": "#/definitions/P"}, "definitions": {"P": {"type": "integer"}}}
    export = exports.mcp([declared(object_of(), output=output)])
    schema = export.tools[0]["outputSchema"]
    sent = export.result_for(exports.ModelCall("probe", {}), toolcell.ToolResult(output=[1, 2]))
    assert sent["structuredContent"] == {"result": [1, 2]}
    assert accepts(schema)({"result": [1, 2]}) and not accepts(schema)({"result": ["a"]})


# -- provider-defined tools --------------------------------------------------------------------------------------------


def test_a_provider_defined_tool_passes_in_its_own_dialect_and_is_reported_elsewhere() -> None:
    definition = {"type": "bash_20250124", "name": "bash"}
    native = Native("bash", "anthropic", definition)
    own = exports.anthropic([native, declared(object_of(), "bash_")])
    assert own.tools[-1] == definition and [one.action for one in own.report] == ["passed"]
    for other in (exports.openai_chat, exports.openai_responses, exports.gemini, exports.mcp):
        export = other([native])
        assert definition not in export.tools and [one.action for one in export.report] == ["refused"]
    search = exports.gemini([Native("search", "google", {"googleSearch": {}}), declared(object_of())])
    assert [list(one) for one in search.tools] == [["functionDeclarations"], ["googleSearch"]]
    assert search.names.original("search") == "search"


def test_a_tool_makes_way_for_a_provider_defined_tool_of_its_name() -> None:
    export = exports.anthropic([Native("their_bash", "anthropic", {"type": "t", "name": "bash"}), declared({}, "bash")])
    mine = export.names.exported("bash")
    assert mine != "bash" and export.names.original("bash") == "their_bash" and export.names.original(mine) == "bash"
