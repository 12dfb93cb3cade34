"""JSON Schema: the supported drafts, which of their keywords hold subschemas, and where references lead. Nothing is
ever fetched: a reference can lead only into the schema itself or to a meta-schema of a draft."""

from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote

__all__ = [
    "DEFAULT",
    "DRAFTS",
    "FORMATS",
    "Schema",
    "Targets",
    "UnresolvedReference",
    "draft_of",
    "is_index",
    "references",
    "same",
    "subschemas",
    "targets",
    "within",
]

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
MOST_DIGITS = 9  # of an index: no list has 10**9 items

Schema = dict[str, Any] | bool
Targets = dict[int, list[Schema]]
"""From the id() of a schema that has a reference to the schemas that it may lead to: several if it is dynamic."""


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


class UnresolvedReference(ValueError):
    """A reference leads nowhere. The message is the reference."""


def targets(schema: dict[str, Any]) -> Targets:
    """The targets of every reference in `schema`, as objects inside it. Raises UnresolvedReference for a dead one."""
    found: Targets = {}
    pending: list[dict[str, Any]] = [schema]
    seen: set[int] = set()
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if _is_named(one) or (one is not schema and any(isinstance(one.get(key), str) for key in ("$id", "id"))):
            return _by_identifiers(schema)
        for _, reference in references(one):
            if reference != "#" and not reference.startswith("#/"):
                return _by_identifiers(schema)
            target = _pointed_at(schema, reference)
            found.setdefault(id(one), []).append(target)
            if isinstance(target, dict):
                pending.append(target)
        pending += [sub for _, sub in subschemas(one) if isinstance(sub, dict)]
    return found


def _is_named(schema: dict[str, Any]) -> bool:
    """Whether the schema has an anchor or an `$id`, or refers to one. An `$id` at the root does not count."""
    return any(key in schema for key in ("$anchor", "$dynamicAnchor", "$recursiveAnchor", "$dynamicRef"))


def is_index(text: str) -> bool:
    """Whether a text may be an index of a list. int() refuses numbers of thousands of digits."""
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS


def _pointed_at(schema: dict[str, Any], reference: str) -> Schema:
    """The target of a JSON Pointer (RFC 6901): "#" or "#/…"."""
    here: Any = schema
    for step in reference.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict) and key in here:
            here = cast("dict[str, Any]", here)[key]
        elif isinstance(here, list) and is_index(key) and int(key) < len(items := cast("list[Any]", here)):  # type: ignore[redundant-cast]
            here = items[int(key)]
        else:
            raise UnresolvedReference(reference)
    if not isinstance(here, (dict, bool)):
        raise UnresolvedReference(reference)
    return cast("Schema", here)


def _by_identifiers(schema: dict[str, Any]) -> Targets:
    """The targets in schemas with `$id`, anchors or dynamic references, by the `referencing` library."""
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]
    from referencing import Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import specification_with

    draft = specification_with(draft_of(schema) or DEFAULT)
    root: Resource[Any] = draft.create_resource(schema)
    base = root.id() or ""
    resolver = REGISTRY.with_resource(base, root).crawl().resolver(base)
    found: Targets = {}
    dynamic: list[tuple[dict[str, Any], str]] = []
    anchored: dict[str, list[Schema]] = {}
    pending: list[tuple[Resource[Any], Any]] = [(root, resolver)]
    seen: set[int] = set()
    while pending:
        resource, here = pending.pop()
        one = resource.contents
        if not isinstance(one, dict) or id(cast("object", one)) in seen:
            continue
        one = cast("dict[str, Any]", one)
        seen.add(id(one))
        if isinstance(one.get("$dynamicAnchor"), str):
            anchored.setdefault(one["$dynamicAnchor"], []).append(one)
        if one.get("$recursiveAnchor") is True:
            anchored.setdefault("", []).append(one)
        for keyword, reference in references(one):
            try:
                resolved = here.lookup(reference)
            except (Unresolvable, ValueError, KeyError, TypeError) as failure:  # TypeError: a step into a number
                raise UnresolvedReference(reference) from failure
            found.setdefault(id(one), []).append(resolved.contents)
            if keyword != "$ref":
                dynamic.append((one, reference.rpartition("#")[2]))
            target: Resource[Any] = Resource.from_contents(resolved.contents, default_specification=draft)
            pending.append((target, resolved.resolver))
        pending += [(sub, here.in_subresource(sub)) for sub in resource.subresources()]
    for one, anchor in dynamic:
        known = found[id(one)]
        known += [other for other in anchored.get(anchor, []) if all(other is not target for target in known)]
    return found
