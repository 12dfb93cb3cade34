"""Which schemas from outside are taken, and in what words others are refused."""

from types import MappingProxyType
from typing import Any

import pytest

from toolcell.dispatch.validate import Valid, Validator
from toolcell_tools import ToolDefinitionError
from toolcell_tools.errors import ValidationError
from toolcell_tools.schemas.keywords import DRAFTS
from toolcell_tools.schemas.untrusted import check_any_schema, check_foreign_schema

SEARCH = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100},
        "filter": {"oneOf": [{"$ref": "#/$defs/tag"}, {"type": "null"}]},
    },
    "required": ["query"],
    "additionalProperties": False,
    "$defs": {"tag": {"type": "string", "x-note": "kept"}},
}


def test_a_schema_is_kept_verbatim_and_is_a_copy_all_the_way_down() -> None:
    kept = check_foreign_schema("t", "parameters", MappingProxyType(SEARCH))
    assert kept == SEARCH
    assert list(kept) == list(SEARCH)
    kept["properties"]["query"]["type"] = "integer"
    assert SEARCH["properties"]["query"] == {"type": "string"}  # type: ignore[index]


@pytest.mark.parametrize("draft", [*DRAFTS, *(f"{draft}#" for draft in DRAFTS)])
def test_each_draft_is_judged_by_its_own_rules(draft: str) -> None:
    schema: dict[str, Any] = {"$schema": draft, "type": "object"}
    old = "draft-04" in draft
    exclusive: dict[str, Any] = {"minimum": 1, "exclusiveMinimum": True} if old else {"exclusiveMinimum": 1}
    validator = Validator("t", check_foreign_schema("t", "parameters", schema | {"properties": {"a": exclusive}}))
    assert isinstance(validator.check({"a": 1}), ValidationError)
    assert validator.check({"a": 2}) == Valid({"a": 2})
    wrong: dict[str, Any] = {"exclusiveMinimum": 1} if old else {"exclusiveMinimum": True}
    with pytest.raises(ToolDefinitionError, match="is not valid JSON Schema at"):
        check_foreign_schema("t", "parameters", schema | {"properties": {"a": wrong}})


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (["object"], "is no schema but a list. Pass a JSON Schema as a dict"),
        (True, "is no schema but a bool"),
        ({"type": "string"}, 'is a schema for "string", and arguments are an object'),
        ({"type": ["string", "null"]}, "arguments are an object"),
        ({"type": "strnig"}, r"is not valid JSON Schema at \$\.type: 'strnig'"),
        ({"properties": {"a": {"minimum": "1"}}}, r"at \$\.properties\.a\.minimum: '1' is not of type 'number'"),
        ({"required": "a"}, r"at \$\.required"),
        (
            {"required": "a", "properties": {"b": {"type": "strnig", "minLength": -1}, "c": {"items": 3}}},
            r"at \$\.properties\.b\.minLength: .*; at \$\.properties\.b\.type: .*; at \$\.properties\.c\.items: .*; "
            r"at \$\.required",
        ),
        ({"properties": {str(n): {"minLength": -n} for n in range(1, 9)}}, r"at \$\.properties\.1\..*; and 3 more"),
        ({"enum": [object()]}, r"is not JSON data: \$\.enum\[0\]"),
        ({"enum": [float("nan")]}, "is not JSON data"),
        ({"enum": [float("inf")]}, "is not JSON data"),
        ({"enum": [(1, 2)]}, "is not JSON data: .*convert them"),
        ({1: "a"}, "keys are strings"),
        ({"$schema": "https://example.com/mine"}, "unknown kind of JSON Schema.*Leave .schema out"),
        ({"$schema": 7}, "unknown kind of JSON Schema"),
        (
            {"properties": {"a": {"$ref": "#/$defs/b"}}},
            r"refers to '#/\$defs/b', which is not in it.*put the schema into",
        ),
        ({"properties": {"a": {"$ref": "#b"}}}, "refers to '#b', which is not in it"),
        ({"properties": {"a": {"$ref": "#/required"}}, "required": ["a"]}, "which is not in it"),
        (
            {"properties": {"a": {"$ref": "other.json"}}},
            "refers to 'other.json', which is not in it. Nothing is fetched",
        ),
        ({"properties": {"a": {"pattern": "("}}}, r"a pattern at \$\.properties\.a\.pattern"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_reason_and_remedy(schema: Any, says: str) -> None:
    with pytest.raises(ToolDefinitionError, match=f"tool 'find': parameters .*{says}"):
        check_foreign_schema("find", "parameters", schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": ["object", "null"]},
        {
            "$id": "https://example.com/tool",
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {}},
        },
        {"properties": {"a": {"$ref": "#b"}}, "$defs": {"b": {"$anchor": "b"}}},
        {"properties": {"a": {"$ref": "part"}}, "$defs": {"b": {"$id": "part"}}},
        {"properties": {"a": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}},
        {"properties": {"a": {"$ref": "#/$defs/a~1b~0c%25"}}, "$defs": {"a/b~c%": {}}},
        {"properties": {"when": {"format": "made-up"}, "pattern": {"type": "string"}, "$ref": {"type": "string"}}},
        {"properties": {"tree": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": {"items": {"$ref": "#/$defs/tree"}}}},
    ],
)
def test_what_is_unusual_but_sound_is_taken(schema: dict[str, Any]) -> None:
    assert check_foreign_schema("t", "parameters", schema) == schema
    assert Validator("t", schema).check({}) == Valid({})


def test_a_schema_of_results_may_be_of_any_type() -> None:
    assert check_any_schema("t", "output_schema", {"type": "array"}) == {"type": "array"}


def test_a_property_called_ref_is_no_reference() -> None:
    schema = {"properties": {"$ref": {"type": "string"}}, "examples": [{"$ref": "http://example.com"}]}
    assert check_foreign_schema("t", "parameters", schema) == schema
