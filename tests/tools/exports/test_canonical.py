"""References of schemas that are brought into one form."""

from typing import Any

import pytest

from toolcell_tools.exports.canonical import canonical
from toolcell_tools.exports.report import Unexportable


def schema(reference: str) -> dict[str, Any]:
    return {"type": "object", "allOf": [{"type": "object"}], "properties": {"a": {"$ref": reference}}}


def test_a_reference_to_any_place_becomes_one_to_a_definition() -> None:
    made = canonical(schema("#/allOf/0"))
    reference = made["properties"]["a"]["$ref"]
    assert reference.startswith("#/$defs/") and made["$defs"][reference.removeprefix("#/$defs/")] == {"type": "object"}


@pytest.mark.parametrize(
    "reference",
    ["#/allOf/1", "#/allOf/-1", "#/allOf/" + "9" * 5_000, "#/allOf/\u0660", "#/type/0", "#x", "https://example.org/x"],
    ids=lambda reference: ascii(reference)[:24],
)
def test_a_reference_that_leads_nowhere_cannot_be_exported(reference: str) -> None:
    with pytest.raises(Unexportable):
        canonical(schema(reference))
