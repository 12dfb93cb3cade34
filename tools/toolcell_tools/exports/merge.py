"""Merge two schemas that both apply into one with exactly the same meaning, or not at all."""

import json
from collections.abc import Mapping
from typing import Any, cast

from .canonical import Schema, keywords

__all__ = ["ANNOTATIONS", "constraints", "merge", "same", "types_of"]

ANNOTATIONS = keywords("title description default examples deprecated readOnly writeOnly")
_OBJECT_NEIGHBOURS = ("additionalProperties", "patternProperties", "unevaluatedProperties")
_ARRAY_NEIGHBOURS = ("items", "prefixItems", "unevaluatedItems")
_LARGER = keywords("minimum exclusiveMinimum minLength minItems minProperties")
_SMALLER = keywords("maximum exclusiveMaximum maxLength maxItems maxProperties")
_TOGETHER = (("contains", "minContains", "maxContains"), ("if", "then", "else"))  # keywords that depend on each other


def constraints(schema: Mapping[str, Any]) -> Schema:
    """The keywords of the schema that a value can violate."""
    return {key: value for key, value in schema.items() if key not in ANNOTATIONS and key != "$defs"}


def types_of(schema: Mapping[str, Any]) -> list[str] | None:
    """The schema's `type` as a list, or None if it has none."""
    given = schema.get("type")
    if given is None:
        return None
    return [given] if isinstance(given, str) else list(cast("list[str]", given))


def merge(first: Schema, second: Schema) -> Schema | None:
    """The schema of values that fit both, or None if that needs an `allOf`. Annotations of `first` take precedence."""
    if _meddle(first, second) or _meddle(second, first):
        return None
    result = dict(first)
    for key, value in second.items():
        if key not in result:
            result[key] = value
        elif key not in ANNOTATIONS and not same(result[key], value):
            joined = _join(key, result[key], value)
            if joined is None:
                return None
            result[key] = joined
    return result


def same(first: Any, second: Any) -> bool:
    """Whether two JSON values are equal. `true` does not equal `1`."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def _meddle(first: Schema, second: Schema) -> bool:
    """Whether a keyword of `first` would mean something else beside the keywords of `second`."""
    if "unevaluatedProperties" in first or "unevaluatedItems" in first:
        return bool(constraints(second))
    for group in _TOGETHER:
        mine, theirs = ({key: one[key] for key in group if key in one} for one in (first, second))
        if mine and theirs and not same(mine, theirs):
            return True
    closed = first.get("additionalProperties", True) is not True and first.get("additionalProperties") != {}
    names = second.get("properties", {}).keys() - first.get("properties", {}).keys()
    patterns = second.get("patternProperties", {}).keys() - first.get("patternProperties", {}).keys()
    if closed and (names or patterns):
        return True
    tuples = any("prefixItems" in one for one in (first, second))
    return tuples and any(first.get(key) != second.get(key) for key in _ARRAY_NEIGHBOURS if key in first)


def _join(key: str, first: Any, second: Any) -> Any:
    if key in _LARGER:
        return max(first, second)
    if key in _SMALLER:
        return min(first, second)
    if key == "required":
        return [*first, *(name for name in second if name not in first)]
    if key == "type":
        return _common_type(types_of({"type": first}) or [], types_of({"type": second}) or [])
    if key == "enum":
        kept = [one for one in first if any(same(one, other) for other in second)]
        return kept or None
    if key in ("properties", "patternProperties"):
        return _join_each(cast("Schema", first), cast("Schema", second))
    if key == "items" and isinstance(first, dict) and isinstance(second, dict):
        return merge(cast("Schema", first), cast("Schema", second))
    return None


def _join_each(first: Schema, second: Schema) -> Schema | None:
    result = dict(first)
    for name, schema in second.items():
        joined = merge(result[name], schema) if name in result else schema
        if joined is None:
            return None
        result[name] = joined
    return result


def _common_type(first: list[str], second: list[str]) -> list[str] | str | None:
    common = [one for one in first if one in second or (one == "integer" and "number" in second)]
    common += [one for one in second if one == "integer" and "number" in first and one not in common]
    return common[0] if len(common) == 1 else common or None
