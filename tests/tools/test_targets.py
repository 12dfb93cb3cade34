"""The targets of a schema's references: in the schema itself, or nowhere."""

from typing import Any

import pytest

from toolcell_tools import ToolDefinitionError
from toolcell_tools.schemas.keywords import UnresolvedReference, targets
from toolcell_tools.schemas.untrusted import check_foreign_schema


def to(reference: str, **others: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A schema with one reference, and the schema that has it."""
    one = {"$ref": reference}
    return {"type": "object", "properties": {"a": one}, **others}, one


@pytest.mark.parametrize(
    ("reference", "others"),
    [
        ("#/$defs/x", {"$defs": {"x": {"type": "string"}}}),
        ("#/$defs/a~1b~0c", {"$defs": {"a/b~c": {"type": "string"}}}),
        ("#/$defs/%C3%A9", {"$defs": {"é": {"type": "string"}}}),
        ("#/allOf/1", {"allOf": [{}, {"type": "string"}]}),
        ("#x", {"$defs": {"x": {"$anchor": "x", "type": "string"}}}),
        ("https://example.org/x", {"$defs": {"x": {"$id": "https://example.org/x", "type": "string"}}}),
    ],
)
def test_a_reference_leads_to_a_schema_inside(reference: str, others: dict[str, Any]) -> None:
    schema, one = to(reference, **others)
    [found] = targets(schema)[id(one)]
    assert isinstance(found, dict) and found["type"] == "string"


def test_a_reference_may_lead_to_the_root_and_to_a_plain_truth() -> None:
    schema, one = to("#")
    assert targets(schema)[id(one)] == [schema]
    schema, one = to("#/$defs/x", **{"$defs": {"x": True}})
    assert targets(schema)[id(one)] == [True]


@pytest.mark.parametrize("anchored", [False, True], ids=["", "anchored"])
@pytest.mark.parametrize(
    "reference",
    [
        "#/$defs/y",
        "#/allOf/1",
        "#/allOf/-1",
        "#/allOf/x",
        "#/allOf/" + "9" * 5_000,
        "#/allOf/\u0660",
        "#/type",
        "#/maxProperties/0",
        "#/additionalProperties/x",
        "#/properties/a/$ref/x",
        "#y",
        "https://example.org/y",
        "file:///etc/passwd",
        "y.json",
    ],
    ids=lambda reference: ascii(reference)[:24],
)
def test_a_reference_that_leads_nowhere_is_refused_and_nothing_is_fetched(reference: str, anchored: bool) -> None:
    named = {"$defs": {"x": {"$anchor": "x"}}} if anchored else {}
    schema, _one = to(reference, allOf=[{}], maxProperties=5, additionalProperties=True, **named)
    if not anchored:  # with an anchor, `referencing` resolves them, which takes some that no validator takes
        with pytest.raises(UnresolvedReference) as refused:
            targets(schema)
        assert str(refused.value) == reference
    with pytest.raises(ToolDefinitionError, match=r"^tool 't': parameters "):
        check_foreign_schema("t", "parameters", schema)


def test_a_reference_behind_a_reference_is_followed() -> None:
    chain = {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/c"}}
    schema, _one = to("#/$defs/a", **{"$defs": {**chain, "c": {"type": "string"}}})
    assert len(targets(schema)) == 3
    schema, _one = to("#/$defs/a", **{"$defs": chain})
    with pytest.raises(UnresolvedReference, match="#/\\$defs/c"):
        targets(schema)


def test_a_dynamic_reference_may_lead_to_every_anchor_of_its_name() -> None:
    leaf = {"$dynamicAnchor": "node", "type": "string"}
    one = {"$dynamicRef": "#node"}
    schema = {"$dynamicAnchor": "node", "type": "object", "properties": {"a": one}, "$defs": {"leaf": leaf}}
    found = targets(schema)[id(one)]
    assert any(each is leaf for each in found) and any(each is schema for each in found)
