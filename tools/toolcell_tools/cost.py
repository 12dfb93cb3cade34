"""How much work it can be to judge a value by a schema, counted before the work is begun.

A schema of a few lines can cost more than any computer can do: each level of `allOf: [A, A]` doubles it, through
references and through the levels of the value. A step is one keyword looked at for one value, 10 to 200 ns.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple, cast

import jsonschema_rs

from .dialect import Schema, same, subschemas, within
from .targets import Targets, targets

__all__ = ["BUDGET", "CHARS", "MAX_SAME", "Cost", "SelfReference", "is_cheap", "is_flat", "is_linear", "size_of"]

BUDGET = 200_000
"""Steps that one value may cost: 42 ms at worst, measured with 1,000 constants in a `oneOf`; 1 ms as a rule."""
MAX_SAME = 10_000
"""Steps that one value may cost without going into it, and so whatever it is."""
MAX_VISITS = 5_000  # pairs of a schema and a value that are looked at for an exact count, about 3 µs each
MAX_DEEP = 300  # schemas and values inside each other, in one count
CHARS = 64  # characters of text that count as one value more: a pattern reads them one by one
SMALL_PATTERN, LARGE_PATTERN = 64 * 1024, 1024 * 1024  # compiled, in bytes


class SelfReference(ValueError):
    """A schema refers to itself for the same value, so that judging would not end, or through over MAX_DEEP others."""


class _TooMuch(Exception):
    """The count is over its bound."""


class _Share(NamedTuple):
    """Of a schema with all that judge the same value: its steps, and how many schemas judge each value inside it."""

    steps: int
    objects: int
    arrays: int


class Cost:
    """Bounds, for one schema, on the steps of judging a value."""

    def __init__(self, schema: Schema) -> None:
        """Raises SelfReference, and UnresolvedReference."""
        self._schema = schema
        self._targets: Targets = targets(schema) if isinstance(schema, dict) else {}
        reachable = list(self._reachable(schema))
        self._weights = {id(one): _weight(one) for one in reachable}
        shares = self._shares(reachable)
        self.same = max((share.steps for share in shares), default=1)
        if all(share.objects <= 1 and share.arrays <= 1 for share in shares):
            # Each value inside is judged once, wherever it is, also if the schema is recursive.
            names = max((_names_weight(one) for one in reachable), default=0)
            self.per_value: float = self.same * (2 if any("propertyNames" in one for one in reachable) else 1) + names
        else:
            self.per_value = self._unfolded(schema, {}, 0)

    def of(self, value: object, size: int, bound: float = BUDGET) -> float:
        """At least the steps that `value`, of this size, costs; math.inf if they are more than `bound`."""
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

    def _shares(self, schemas: list[dict[str, Any]]) -> list[_Share]:
        done: dict[int, _Share] = {}
        return [self._share(one, done, set()) for one in schemas]

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
        """Steps of the schema with every reference written out; math.inf if it is recursive."""
        if not isinstance(schema, dict):
            return 1
        key = id(schema)
        if key not in done:
            done[key] = math.inf  # what is met again on the way down is recursive
            if depth > MAX_DEEP:
                return math.inf
            total: float = _weight(schema) + _names_weight(schema)
            for sub in (*self._same(schema), *(sub for _, sub in within(schema))):
                total += self._unfolded(sub, done, depth + 1)
            done[key] = total * 2 if _unevaluated(schema) else total
        return done[key]


class _Count:
    """One exact count; what was counted for a schema and a value is not counted again, only added again."""

    def __init__(self, targets: Targets, weights: dict[int, int], bound: float) -> None:
        self._targets = targets
        self._weights = weights  # of every schema that can be met, by its id
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
    """Steps of the keywords of this schema alone. Text in an `enum` is looked up, other constants are compared."""
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
    """Steps for each CHARS characters of text; None if the linear engine does not take the pattern, or not its size."""
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
    """Count the schemas that judge one property: its own or `additionalProperties`, and each pattern."""
    plain = any(key in schema for key in ("properties", "additionalProperties", "unevaluatedProperties"))
    return plain + len(cast("dict[str, object]", schema.get("patternProperties") or {}))


def _judging_items(schema: dict[str, Any]) -> int:
    plain = any(key in schema for key in ("items", "prefixItems", "additionalItems", "unevaluatedItems"))
    return plain + ("contains" in schema)


def _unevaluated(schema: dict[str, Any]) -> bool:
    """`unevaluated…` judges all that judges the same value once more, to learn what they took."""
    return "unevaluatedProperties" in schema or "unevaluatedItems" in schema


def size_of(value: object) -> int:
    """The values in plain JSON data, itself included, and one more for each CHARS characters of text and of a key."""
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
    """Whether a value that does not fit has a first reason that is found without looking at others."""
    return _without(schema, _BRANCHING)


def is_cheap(schema: Schema) -> bool:
    """Whether, besides, each step is one of the cheap ones: 20 ns at most, a tenth of others."""
    return _without(schema, _BRANCHING | _DEAR)


_SCALARS = frozenset({"string", "number", "integer", "boolean", "null"})
_SHALLOW = frozenset(  # what these ask of a value, they ask without going into what is inside its members
    {"$schema", "title", "description", "default", "examples", "deprecated", "format", "enum", "const", "required"}
    | {"type", "anyOf", "properties", "additionalProperties", "items"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"}
    | {"minItems", "maxItems", "minProperties", "maxProperties"}
)


def is_flat(schema: Schema) -> bool:
    """Whether only objects fit that hold scalars, and lists and objects of scalars; and whether that one fits is found
    out in a step for each of those, whatever else it holds.
    """
    return isinstance(schema, dict) and schema.get("type") == "object" and _is_within(schema, 2)


def _is_within(schema: Schema, levels: int) -> bool:
    """Whether only values fit that have no more containers than so many inside each other."""
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
