"""Count how many steps it takes at most to validate a value against a schema, before validation begins.

A schema of a few lines can take more steps than any computer can do: each level of `allOf: [A, A]` doubles them,
through references and through the levels of the value. A step is one keyword evaluated for one value: 10 to 200 ns.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple, cast

import jsonschema_rs

from .keywords import Schema, Targets, same, subschemas, targets, within

__all__ = ["BUDGET", "CHARS", "MAX_SAME", "Cost", "SelfReference", "is_cheap", "is_flat", "is_linear", "size_of"]

BUDGET = 200_000
"""The most steps for one value: usually 1 ms, at worst 42 ms (measured with 1,000 constants in a `oneOf`)."""
MAX_SAME = 10_000
"""The most steps for one value without those inside it. This bound does not depend on the value."""
MAX_VISITS = 5_000  # pairs of schema and value visited in an exact count, about 3 µs each
MAX_DEEP = 300  # nested schemas and values in one count
CHARS = 64  # so many characters of text count as one more value, because a pattern reads each character
SMALL_PATTERN, LARGE_PATTERN = 64 * 1024, 1024 * 1024  # compiled, in bytes


class SelfReference(ValueError):
    """A schema refers to itself for the same value, so validation would not end, or through over MAX_DEEP others."""


class _TooMuch(Exception):
    """The count has passed its bound."""


class _Share(NamedTuple):
    """A schema's steps for one value, its subschemas for that value included, and how many apply to an inner value."""

    steps: int
    objects: int
    arrays: int


class Cost:
    """Bounds, for one schema, on the steps that it takes to validate a value."""

    def __init__(self, schema: Schema) -> None:
        """Raises SelfReference or UnresolvedReference."""
        self._schema = schema
        self._targets: Targets = targets(schema) if isinstance(schema, dict) else {}
        reachable = list(self._reachable(schema))
        self._weights = {id(one): _weight(one) for one in reachable}
        done: dict[int, _Share] = {}
        shares = [self._share(one, done, set()) for one in reachable]
        self.same = max((share.steps for share in shares), default=1)
        if all(share.objects <= 1 and share.arrays <= 1 for share in shares):
            # Each inner value is validated once, at any depth, even if the schema is recursive.
            names = max((_names_weight(one) for one in reachable), default=0)
            self.per_value: float = self.same * (2 if any("propertyNames" in one for one in reachable) else 1) + names
        else:
            self.per_value = self._unfolded(schema, {}, 0)

    def of(self, value: object, size: int, bound: float = BUDGET) -> float:
        """An upper bound on the steps for `value`, of this size; math.inf if the bound is over `bound`."""
        rough = self.per_value * size
        if rough <= bound:
            return rough
        try:
            return _Count(self._targets, self._weights, bound).steps(self._schema, value, 0)
        except _TooMuch:
            return math.inf

    def _reachable(self, schema: Schema) -> Iterator[dict[str, Any]]:
        pending: list[Schema] = [schema]
        seen: set[int] = set()
        while pending:
            one = pending.pop()
            if isinstance(one, dict) and id(one) not in seen:
                seen.add(id(one))
                yield one
                pending += [sub for _, sub in subschemas(one)]
                pending += self._targets.get(id(one), [])

    def _share(self, schema: Schema, done: dict[int, _Share], open_: set[int]) -> _Share:
        if not isinstance(schema, dict):
            return _Share(1, 0, 0)
        key = id(schema)
        if key in open_ or len(open_) > MAX_DEEP:
            raise SelfReference
        if key not in done:
            open_.add(key)
            parts = [self._share(sub, done, open_) for sub in self._same(schema)]
            factor = 2 if _unevaluated(schema) else 1
            done[key] = _Share(
                factor * (_weight(schema) + sum(part.steps for part in parts)),
                factor * (_judging_properties(schema) + sum(part.objects for part in parts)),
                factor * (_judging_items(schema) + sum(part.arrays for part in parts)),
            )
            open_.remove(key)
        return done[key]

    def _same(self, schema: dict[str, Any]) -> list[Schema]:
        return [*(sub for _, sub in same(schema)), *self._targets.get(id(schema), ())]

    def _unfolded(self, schema: Schema, done: dict[int, float], depth: int) -> float:
        """The steps of the schema with every reference expanded; math.inf if the schema is recursive."""
        if not isinstance(schema, dict):
            return 1
        key = id(schema)
        if key not in done:
            done[key] = math.inf  # a schema that is met again below itself is recursive
            if depth > MAX_DEEP:
                return math.inf
            total: float = _weight(schema) + _names_weight(schema)
            for sub in (*self._same(schema), *(sub for _, sub in within(schema))):
                total += self._unfolded(sub, done, depth + 1)
            done[key] = total * 2 if _unevaluated(schema) else total
        return done[key]


class _Count:
    """One exact count. The sum for a pair of schema and value is computed once, and added each time the pair recurs."""

    def __init__(self, targets: Targets, weights: dict[int, int], bound: float) -> None:
        self._targets = targets
        self._weights = weights  # of every reachable schema, by its id()
        self._bound = bound
        self._done: dict[tuple[int, int], float] = {}

    def steps(self, schema: Schema, value: object, depth: int) -> float:
        if not isinstance(schema, dict):
            return 1
        key = (id(schema), id(value))
        known = self._done.get(key)
        if known is not None:
            return known
        if len(self._done) >= MAX_VISITS or depth > MAX_DEEP:
            raise _TooMuch
        total: float = self._weights[key[0]]
        if isinstance(value, str):
            total += _pattern_weight(schema) * (1 + len(value) // CHARS)
        for _, sub in same(schema):
            total += self.steps(sub, value, depth + 1)
        for sub in self._targets.get(id(schema), ()):
            total += self.steps(sub, value, depth + 1)
        if _unevaluated(schema):
            total *= 2
        if isinstance(value, dict):
            total += self._inside_object(schema, cast("dict[str, object]", value), depth + 1)
        elif isinstance(value, list):
            total += self._inside_array(schema, cast("list[object]", value), depth + 1)
        if total > self._bound:
            raise _TooMuch
        self._done[key] = total
        return total

    def _inside_object(self, schema: dict[str, Any], value: dict[str, object], depth: int) -> float:
        named = cast("dict[str, Schema]", schema.get("properties") or {})
        patterns = cast("dict[str, Schema]", schema.get("patternProperties") or {})
        rest = [schema[key] for key in ("additionalProperties", "unevaluatedProperties") if key in schema]
        names: Schema = schema.get("propertyNames", True)
        name_weight = _names_weight(schema)
        total: float = 0
        for key, item in value.items():
            total += self.steps(names, key, depth) + name_weight * (1 + len(key) // CHARS)
            if key in named:
                total += self.steps(named[key], item, depth)
            for sub in (*patterns.values(), *(() if key in named else rest)):
                total += self.steps(sub, item, depth)
            if total > self._bound:
                raise _TooMuch
        return total

    def _inside_array(self, schema: dict[str, Any], value: list[object], depth: int) -> float:
        items = schema.get("items", True)
        first = cast("list[Schema]", items if isinstance(items, list) else schema.get("prefixItems") or [])
        keys = ("additionalItems", "unevaluatedItems") if isinstance(items, list) else ("items", "unevaluatedItems")
        rest = [cast("Schema", schema[key]) for key in keys if key in schema]
        contains: Schema = schema.get("contains", True)
        total: float = 0
        for index, item in enumerate(value):
            total += self.steps(contains, item, depth)
            for sub in (first[index],) if index < len(first) else rest:
                total += self.steps(sub, item, depth)
            if total > self._bound:
                raise _TooMuch
        return total


def _weight(schema: dict[str, Any]) -> int:
    """The steps of this schema's own keywords. Text in an `enum` is looked up; other constants are compared in turn."""
    total = 1 + len(schema)
    constants = schema.get("enum")
    if isinstance(constants, list):
        total += sum(not isinstance(one, str) for one in cast("list[object]", constants))
    required = schema.get("required")
    if isinstance(required, list):
        total += len(cast("list[object]", required))
    if "pattern" in schema:
        total += _pattern_weight(schema)
    return total


def _names_weight(schema: dict[str, Any]) -> int:
    """Count the steps of matching one property's name against all patterns for names."""
    patterned = schema.get("patternProperties")
    if not isinstance(patterned, dict):
        return 0
    return sum(pattern_weight(key) or 0 for key in cast("dict[str, object]", patterned))


def _pattern_weight(schema: dict[str, Any]) -> int:
    pattern = schema.get("pattern")
    return (pattern_weight(pattern) or 0) if isinstance(pattern, str) else 0


@lru_cache(maxsize=4096)
def pattern_weight(pattern: str) -> int | None:
    """Steps for each CHARS characters of text; None if the linear engine rejects the pattern or its size."""
    for size, weight in ((SMALL_PATTERN, 16), (LARGE_PATTERN, 256)):
        try:
            jsonschema_rs.Draft202012Validator(
                {"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions(size_limit=size)
            )
        except (jsonschema_rs.ValidationError, ValueError):
            continue
        return weight
    return None


def _judging_properties(schema: dict[str, Any]) -> int:
    """Count the schemas that apply to one property: its own or `additionalProperties`, and each pattern."""
    plain = any(key in schema for key in ("properties", "additionalProperties", "unevaluatedProperties"))
    return plain + len(cast("dict[str, object]", schema.get("patternProperties") or {}))


def _judging_items(schema: dict[str, Any]) -> int:
    plain = any(key in schema for key in ("items", "prefixItems", "additionalItems", "unevaluatedItems"))
    return plain + ("contains" in schema)


def _unevaluated(schema: dict[str, Any]) -> bool:
    """Whether an `unevaluated…` keyword evaluates all subschemas for the value again, to learn what they covered."""
    return "unevaluatedProperties" in schema or "unevaluatedItems" in schema


def size_of(value: object) -> int:
    """The number of values in plain JSON data, itself included, plus one for each CHARS characters of text or key."""
    size = 1 + (len(value) // CHARS if isinstance(value, str) else 0)
    pending: list[Any] = [value] if isinstance(value, (dict, list)) else []
    while pending:
        inside: dict[str, Any] | list[Any] = pending.pop()
        if isinstance(inside, dict):
            size += sum(len(key) // CHARS for key in inside if len(key) >= CHARS)
        size += len(inside)
        for item in inside.values() if isinstance(inside, dict) else inside:
            if isinstance(item, str):
                size += len(item) // CHARS
            elif isinstance(item, (dict, list)):
                pending.append(item)
    return size


_BRANCHING = frozenset(
    {"anyOf", "oneOf", "not", "if", "contains", "propertyNames", "dependentSchemas", "unevaluatedProperties"}
    | {"unevaluatedItems", "dependencies"}
)
_DEAR = frozenset({"pattern", "patternProperties", "enum", "const", "uniqueItems", "multipleOf"})


def is_linear(schema: Schema) -> bool:
    """Whether the first reason why a value does not fit can be found without computing the other reasons."""
    return _without(schema, _BRANCHING)


def is_cheap(schema: Schema) -> bool:
    """Whether the schema is linear and each of its steps is cheap: 20 ns at most, a tenth of other steps."""
    return _without(schema, _BRANCHING | _DEAR)


_SCALARS = frozenset({"string", "number", "integer", "boolean", "null"})
_SHALLOW = frozenset(  # keywords that do not look inside the members of a value
    {"$schema", "title", "description", "default", "examples", "deprecated", "format", "enum", "const", "required"}
    | {"type", "anyOf", "properties", "additionalProperties", "items"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"}
    | {"minItems", "maxItems", "minProperties", "maxProperties"}
)


def is_flat(schema: Schema) -> bool:
    """Whether the schema accepts only objects of scalars and of lists and objects of scalars, and takes one step for
    each of these, whatever else the value holds.
    """
    return isinstance(schema, dict) and schema.get("type") == "object" and _is_within(schema, 2)


def _is_within(schema: Schema, levels: int) -> bool:
    """Whether the schema accepts only values with at most `levels` nested containers."""
    if not isinstance(schema, dict) or not _SHALLOW.issuperset(schema) or ("type" in schema) == ("anyOf" in schema):
        return False
    if "anyOf" in schema:
        return all(_is_within(one, levels) for one in cast("list[Schema]", schema["anyOf"]))
    types = cast("str | list[str]", schema["type"])
    inside: list[Schema] = []
    for kind in [types] if isinstance(types, str) else types:
        if kind == "object":
            inside += [*schema.get("properties", {}).values(), schema.get("additionalProperties", True)]
        elif kind == "array":
            inside.append(schema.get("items", True))
        elif kind not in _SCALARS:
            return False
    return not inside or (levels > 0 and all(one is False or _is_within(one, levels - 1) for one in inside))


def _without(schema: Schema, keywords: frozenset[str]) -> bool:
    pending: list[Schema] = [schema]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            if not keywords.isdisjoint(one):
                return False
            pending += [sub for _, sub in subschemas(one)]
    return True
