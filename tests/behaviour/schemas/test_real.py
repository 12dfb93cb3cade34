"""Tool schemas of published MCP servers load unchanged, accept valid arguments and name what is wrong with others."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.taken import taken

from toolcell.dispatch.validate import Validator
from toolcell_tools.errors import ValidationError
from toolcell_tools.schemas.untrusted import check_any_schema, check_foreign_schema

SOURCES = sorted((Path(__file__).parent / "real").glob("*.json"))
TOOLS: dict[str, dict[str, Any]] = {
    f"{source.stem}-{tool['name']}": tool for source in SOURCES for tool in json.loads(source.read_text())["tools"]
}
INPUTS = {name: tool["inputSchema"] for name, tool in TOOLS.items()}


def validator(name: str) -> Validator:
    return Validator(name, check_foreign_schema(name, "inputSchema", INPUTS[name]))


def sample(schema: Any, root: dict[str, Any]) -> Any:
    """A small valid value for the schema."""
    if not isinstance(schema, dict):
        return "x"
    if "$ref" in schema:
        here: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            here = here[step]
        return sample(here, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return (
                sample(schema[key][0], root)
                if "type" not in schema
                else sample(schema | schema[key][0] | {key: []}, root)
            )
    kind = schema.get("type", "object" if "properties" in schema else "string")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            properties = schema.get("properties", {})
            return {key: sample(properties.get(key, True), root) for key in schema.get("required", [])}
        case "array":
            return [sample(schema.get("items", True), root)] * max(1, schema.get("minItems", 1))
        case "integer" | "number":
            return max(schema.get("minimum", 1), schema.get("exclusiveMinimum", 0) + 1)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return SAMPLES.get(schema.get("pattern", ""), "x" * max(1, schema.get("minLength", 1)))


SAMPLES = {  # for the patterns that are required somewhere
    r"^I?\d+[:|-]\d+(?:;\d+[:|-]\d+)*$": "1:2",
    r"^[a-zA-Z0-9_.-]+\.(png|svg|gif)$": "a.png",
}


def test_there_are_218_tools_of_18_servers_with_source_and_licence() -> None:
    assert (len(SOURCES), len(TOOLS)) == (18, 218)
    for source in SOURCES:
        assert {"package", "registry", "version", "licence", "repository"} <= json.loads(source.read_text())[
            "source"
        ].keys()


@pytest.mark.parametrize("name", TOOLS)
def test_a_real_tool_is_kept_verbatim_and_takes_good_arguments(name: str) -> None:
    schema = INPUTS[name]
    assert check_foreign_schema(name, "inputSchema", schema) == schema
    if "outputSchema" in TOOLS[name]:
        assert check_any_schema(name, "outputSchema", TOOLS[name]["outputSchema"]) == TOOLS[name]["outputSchema"]
    good = sample(schema, schema)
    assert taken(validator(name), good) == good


@pytest.mark.parametrize("name", [name for name, schema in INPUTS.items() if schema.get("required")])
def test_a_real_tool_names_what_is_missing(name: str) -> None:
    answer = validator(name).check({})
    assert isinstance(answer, ValidationError)
    assert answer.field == INPUTS[name]["required"][0]
    for missing in INPUTS[name]["required"][:5]:
        assert f"{missing}: is required" in answer.message


@pytest.mark.parametrize(
    "name", [name for name, schema in INPUTS.items() if schema.get("additionalProperties") is False]
)
def test_a_real_tool_names_what_it_does_not_know(name: str) -> None:
    answer = validator(name).check(sample(INPUTS[name], INPUTS[name]) | {"zzz_unheard_of": 1})
    assert isinstance(answer, ValidationError)
    assert answer.field == "zzz_unheard_of"


TYPED = {
    name: keys
    for name, schema in INPUTS.items()
    if (
        keys := [
            key
            for key, sub in schema.get("properties", {}).items()
            if sub.get("type") in ("string", "integer", "number", "boolean", "array") and "enum" not in sub
        ]
    )
}


@pytest.mark.parametrize("name", TYPED)
def test_each_value_of_a_wrong_type_is_named(name: str) -> None:
    for key in TYPED[name]:
        answer = validator(name).check(sample(INPUTS[name], INPUTS[name]) | {key: {"a": 1}})
        assert isinstance(answer, ValidationError), key
        assert answer.field == key
        assert INPUTS[name]["properties"][key]["type"] in answer.message
