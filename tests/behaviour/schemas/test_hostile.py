"""Schemas and arguments that try to exhaust a validator are refused, or answered quickly."""

from typing import Any

import pytest

from toolcell.dispatch.validate import Valid, Validator
from toolcell_tools import ToolDefinitionError
from toolcell_tools.errors import ValidationError
from toolcell_tools.schemas.untrusted import check_foreign_schema


def below(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def nested(depth: int, leaf: Any, key: str = "c") -> Any:
    for _ in range(depth):
        leaf = {key: leaf}
    return leaf


def doubling(keyword: str, levels: int) -> dict[str, Any]:
    """A graph of references in which each level refers twice to the next level."""
    levels_ = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"type": "object", "$defs": levels_ | {f"d{levels}": {"minProperties": 1}}, "$ref": "#/$defs/d0"}


def recursive(keyword: str) -> dict[str, Any]:
    """The same growth through the levels of the value: both alternatives apply to the same child."""
    step = {"properties": {"c": {"$ref": "#/$defs/t"}}}
    return {"type": "object", "$defs": {"t": {"type": "object", keyword: [step, step]}}, "$ref": "#/$defs/t"}


def unevaluated(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"properties": {"z": {}}}
    for level in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": {"type": ["integer", "string"][level % 2]}}
    return {"type": "object"} | schema


def fan(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"anyOf": [{"properties": {"c": schema}, "required": [f"q{n}"]} for n in range(4)]}
    return {"type": "object"} | schema


TEXT = "a" * 100_000

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "references that double, allOf": (doubling("allOf", 25), "unfolds to"),
    "references that double, anyOf": (doubling("anyOf", 25), "unfolds to"),
    "references that double, oneOf": (doubling("oneOf", 25), "unfolds to"),
    "unevaluated in unevaluated": (unevaluated(20), "unfolds to"),
    "itself": ({"$ref": "#"}, "refers to itself"),
    "itself, inside anyOf": ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, "refers to itself"),
    "itself, through another": (
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
        "refers to itself",
    ),
    "itself, in place of a property": (below(a={"not": {"$ref": "#/properties/a"}}), "refers to itself"),
    "itself, by an anchor": ({"$anchor": "here", "not": {"$ref": "#here"}}, "refers to itself"),
    "a chain of 400 references": (
        {"$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(400)} | {"d400": {}}, "$ref": "#/$defs/d0"},
        "refers to itself|through",
    ),
    "nested 10,000 deep": (below(a=nested(10_000, {}, "not")), "deep"),
    "too many bytes": (below(a={"description": "x" * 300_000}), "bytes"),
    "too many values": (below(a={"enum": list(range(30_000))}), "values"),
    "a look-ahead": (below(a={"pattern": "^(?=a)"}), "Look-around"),
    "a look-behind": (below(a={"pattern": "(?<!a)b"}), "Look-around"),
    "a back-reference": (below(a={"pattern": r"(a)\1"}), "back-references"),
    "a look-ahead for names": ({"type": "object", "patternProperties": {"^(?!x)": {}}}, "Look-around"),
    "a repetition of repetitions": (below(a={"pattern": "((a{1,1000}){1,1000}){1,1000}"}), "repetition"),
    "a thousand patterns": (below(**{f"p{n}": {"pattern": f"a{n}"} for n in range(1_000)}), "patterns"),
    "a remote reference": (below(a={"$ref": "http://127.0.0.1:1/schema"}), "not in it"),
    "a file": (below(a={"$ref": "file:///etc/passwd"}), "not in it"),
    "a remote reference through $id": ({"$id": "http://127.0.0.1:1/a", "type": "object", "$ref": "b"}, "not in it"),
    "a dynamic remote reference": (below(a={"$dynamicRef": "http://127.0.0.1:1/schema#a"}), "not in it"),
    "a remote meta-schema": ({"$schema": "http://127.0.0.1:1/meta", "type": "object"}, "unknown kind"),
    "a reference to nothing": (below(a={"$ref": "#/$defs/a"}), "not in it"),
}

ANSWERED: dict[str, tuple[dict[str, Any], Any]] = {
    "(a+)+$": (below(a={"pattern": "^(a+)+$"}), {"a": "a" * 50_000 + "!"}),
    "(a|a)*": (below(a={"pattern": "^(a|a)*$"}), {"a": TEXT + "b"}),
    "(.*)*x": (below(a={"pattern": "(.*)*x$"}), {"a": TEXT}),
    "a?{300}a{300}": (below(a={"pattern": "(?:a?){300}a{300}"}), {"a": TEXT}),
    "a large automaton": (below(a={"pattern": r"^(?:\p{L}{1,12}-)+$"}), {"a": "é" * 100_000}),
    "patterns for names": (
        {"type": "object", "patternProperties": {f"^(x+)+{n}$": {"type": "string"} for n in range(150)}},
        {"x" * 200 + str(n): n for n in range(300)},
    ),
    "alternatives of a tree, both the same, anyOf": (recursive("anyOf"), nested(60, 1)),
    "alternatives of a tree, both the same, allOf": (recursive("allOf"), nested(60, {})),
    "alternatives of a tree, both the same, oneOf": (recursive("oneOf"), nested(60, {})),
    "a shallow tree": (recursive("anyOf"), nested(9, 1)),
    "a tree of 12 levels": (recursive("oneOf"), nested(12, 1)),
    "four alternatives on each of five levels": (fan(5), nested(5, "x")),
    "doubled eight times": (doubling("anyOf", 7), {}),
    "unevaluated in unevaluated, eight times": (unevaluated(7), {"a": 1.5, "b": 2}),
    "unique objects": (below(a={"uniqueItems": True}), {"a": [{"x": n, "y": [n]} for n in range(6_000)]}),
    "unique arrays that differ at their end": (
        below(a={"uniqueItems": True}),
        {"a": [[1] * 100 + [n] for n in range(240)]},
    ),
    "unique numbers of both kinds": (
        below(a={"uniqueItems": True}),
        {"a": [*map(float, range(5_000)), *range(5_000, 10_000)]},
    ),
    "many constants, many values": (
        below(a={"items": {"oneOf": [{"const": n} for n in range(900)]}}),
        {"a": [899] * 1_000},
    ),
    "many objects as constants": (
        below(a={"items": {"enum": [{"a": n} for n in range(900)]}}),
        {"a": [{"a": 899}] * 1_000},
    ),
    "many wrong items": (below(a={"items": {"type": "string"}}), {"a": list(range(24_000))}),
    "many wrong items of two kinds": (
        below(a={"items": {"anyOf": [{"type": "string"}, {"type": "boolean"}]}}),
        {"a": list(range(10_000))},
    ),
    "many unknown names": (below() | {"additionalProperties": False}, {f"n{n}": n for n in range(5_000)}),
    "unknown names near to known ones": (
        below(**{f"name_{n}": {} for n in range(900)}) | {"additionalProperties": False},
        {f"nams_{n}": n for n in range(300)},
    ),
    "a large text in many alternatives": (
        below(a={"anyOf": [{"type": "integer", "minimum": n} for n in range(300)]}),
        {"a": "x" * 1_000_000},
    ),
    "contains, of each": (below(a={"items": {"contains": {"const": 7}}}), {"a": [[1] * 300] * 80}),
    "a value nested 10,000 deep": (recursive("anyOf"), nested(10_000, 1)),
    "a million values": (below(a={"items": {"type": "integer"}}), {"a": [1] * 900_000}),
    "property names": (
        below(a={"propertyNames": {"pattern": "^(a+)+$"}}),
        {"a": {"a" * n + "!": 1 for n in range(600)}},
    ),
    "multiples of the smallest number": (below(a={"multipleOf": 5e-324}), {"a": 1.7e308}),
    "a small multiple of a large integer": (below(a={"multipleOf": 1e-300}), {"a": 2**63}),
}


@pytest.mark.parametrize(("schema", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_hostile_schema_is_refused_with_its_reason(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(ToolDefinitionError, match=reason):
        check_foreign_schema("t", "parameters", schema)


@pytest.mark.parametrize(("schema", "arguments"), ANSWERED.values(), ids=ANSWERED)
def test_hostile_arguments_are_answered(schema: dict[str, Any], arguments: Any) -> None:
    """Without bounds, some of them take a validator for ever."""
    validator = Validator("t", check_foreign_schema("t", "parameters", schema))
    assert isinstance(validator.check(arguments), (Valid, ValidationError))
