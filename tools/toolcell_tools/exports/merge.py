"""Merge schemas that both apply into one with exactly the same meaning, or not at all; follow the references of a
canonical schema to do so, within a budget of steps."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from .canonical import Schema, keywords, references, target
from .report import Unexportable

__all__ = ["ANNOTATIONS", "Definitions", "accepts_null", "constraints", "distinct", "merge", "same", "types_of"]

MAX_STEPS = 20_000  # definitions with two references to each other unfold exponentially
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


def distinct(schemas: Iterable[Schema]) -> list[Schema]:
    """The schemas without those that equal an earlier one."""
    found: list[Schema] = []
    for schema in schemas:
        if not any(same(schema, other) for other in found):
            found.append(schema)
    return found


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


class Definitions:
    """The `$defs` of a canonical schema. It counts every step of which there could be exponentially many."""

    def __init__(self, named: Schema) -> None:
        self.named = named
        self.steps = 0
        self._beyond: dict[str, set[str]] = {}

    def step(self) -> None:
        """Count one step. Raises Unexportable when the budget is spent."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise Unexportable("", "schema", f"it unfolds to more than {MAX_STEPS:,} nodes")

    def parts(self, schema: Schema) -> list[Schema]:
        """The schemas that apply besides the keywords of `schema`: the target of its `$ref`, the members of `allOf`."""
        parts = cast("list[Schema]", schema.get("allOf", []))
        return [cast("Schema", self.named[target(schema)]), *parts] if "$ref" in schema else parts

    def whole(self, schema: Schema, seen: frozenset[str] = frozenset()) -> Schema | None:
        """`schema` without `$ref` and `allOf` at its top; None if no exact form exists or the references never end."""
        self.step()
        if "$ref" in schema:
            if target(schema) in seen:
                return None
            seen |= {target(schema)}
        result: Schema = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        for part in self.parts(schema):
            whole = self.whole(part, seen)
            merged = merge(result, whole) if whole is not None else None
            if merged is None:
                return None
            result = merged
        return result

    def joined(self, schema: Schema) -> tuple[Schema, int]:
        """`schema` without `$ref` and `allOf` at its top, and how many of its parts could not be merged in."""
        whole = self.whole(schema)
        if whole is not None:
            return dict(whole), 0
        result: Schema = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        lost = 0
        for part in self.parts(schema):
            flat = self.whole(part)
            merged = merge(result, flat) if flat is not None else None
            if merged is None:
                lost += 1
            else:
                result = merged
        return result, lost

    def reaches(self, start: str, goal: str) -> bool:
        """Whether the definition `start` refers to `goal`, directly or through others."""
        if start not in self._beyond:
            found: set[str] = set()
            waiting = [start]
            while waiting:
                new = references(self.named[waiting.pop()]) - found
                found |= new
                waiting.extend(new)
            self._beyond[start] = found
        return goal in self._beyond[start]


def accepts_null(schema: Schema, definitions: Definitions, depth: int = 0) -> bool:
    """Whether `null` fits a canonical schema. A reference that never ends accepts nothing."""
    definitions.step()
    if depth > 50:
        return False
    again = depth + 1
    kinds: object = schema.get("type", "null")
    if "null" not in (kinds if isinstance(kinds, list) else [kinds]):
        return False
    if "const" in schema and schema["const"] is not None:
        return False
    if "enum" in schema and None not in schema["enum"]:
        return False
    if not all(accepts_null(one, definitions, again) for one in definitions.parts(schema)):
        return False
    if "anyOf" in schema and not any(accepts_null(one, definitions, again) for one in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(accepts_null(one, definitions, again) for one in schema["oneOf"]) != 1:
        return False
    if "not" in schema and accepts_null(schema["not"], definitions, again):
        return False
    if "if" in schema:
        branch = "then" if accepts_null(schema["if"], definitions, again) else "else"
        return branch not in schema or accepts_null(schema[branch], definitions, again)
    return True
