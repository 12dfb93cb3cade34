"""The supported JSON Schema drafts, and which of their keywords hold subschemas."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

__all__ = ["DEFAULT", "DRAFTS", "FORMATS", "draft_of", "references", "subschemas", "within"]

DEFAULT = "https://json-schema.org/draft/2020-12/schema"
DRAFTS: Mapping[str, str] = {
    DEFAULT: "Draft202012Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
}
"""From meta-schema URI to the name of its validator class, which jsonschema-rs and jsonschema share."""

FORMATS = False
"""Whether `format` is asserted. It is an annotation in every draft (JSON Schema 2020-12, Validation, section 7.2.1):
emitters disagree on formats ("date-time" without a zone), and pydantic checks in the cell what a type needs."""

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# Keywords whose subschemas apply to the same value …
_SAME_LIST = ("allOf", "anyOf", "oneOf")
_SAME_ONE = ("not", "if", "then", "else")
_SAME_MAP = ("dependentSchemas", "dependencies")
# … and keywords whose subschemas apply to its parts.
_WITHIN_ONE = (
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "additionalItems",
    "unevaluatedItems",
    "contains",
)
_WITHIN_MAP = ("properties", "patternProperties")
_WITHIN_LIST = ("prefixItems", "items")
_HELD = ("$defs", "definitions")

Schema = dict[str, Any] | bool


def draft_of(schema: object) -> str | None:
    """The URI of the meta-schema that `schema` names, DEFAULT if it names none, None if it is not one of DRAFTS."""
    named = cast("dict[str, Any]", schema).get("$schema", DEFAULT) if isinstance(schema, dict) else DEFAULT
    plain = named.removesuffix("#") if isinstance(named, str) else ""
    return plain if plain in DRAFTS else None


def same(schema: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Schema]]:
    """The subschemas that apply to the same value, each with its place. References are not followed."""
    for key in _SAME_LIST:
        yield from _listed(schema, key)
    for key in _SAME_ONE:
        yield from _single(schema, key)
    for key in _SAME_MAP:
        yield from _mapped(schema, key)


def within(schema: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Schema]]:
    """The subschemas that apply to parts of the value: properties, items, names."""
    for key in _WITHIN_ONE:
        yield from _single(schema, key)
    for key in _WITHIN_MAP:
        yield from _mapped(schema, key)
    for key in _WITHIN_LIST:
        yield from _listed(schema, key)


def subschemas(schema: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Schema]]:
    """Every schema directly inside this one, definitions included."""
    yield from same(schema)
    yield from within(schema)
    for key in _HELD:
        yield from _mapped(schema, key)


def references(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(keyword, reference) of each reference in this schema itself."""
    for key in REFERENCES:
        target = schema.get(key)
        if isinstance(target, str):
            yield key, target


def _single(schema: dict[str, Any], key: str) -> Iterator[tuple[tuple[str | int, ...], Schema]]:
    held = schema.get(key)
    if isinstance(held, (dict, bool)):
        yield (key,), held


def _listed(schema: dict[str, Any], key: str) -> Iterator[tuple[tuple[str | int, ...], Schema]]:
    held = schema.get(key)
    if isinstance(held, list):
        for index, one in enumerate(cast("list[object]", held)):
            if isinstance(one, (dict, bool)):
                yield (key, index), cast("Schema", one)


def _mapped(schema: dict[str, Any], key: str) -> Iterator[tuple[tuple[str | int, ...], Schema]]:
    held = schema.get(key)
    if isinstance(held, dict):
        for name, one in cast("dict[str, object]", held).items():
            if isinstance(one, (dict, bool)):
                yield (key, name), cast("Schema", one)
