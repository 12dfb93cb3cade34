"""Definitions of a canonical schema: resolve and flatten references, within a budget of steps."""

from typing import cast

from .canonical import Schema, references, target
from .merge import merge
from .report import Unexportable

__all__ = ["Definitions", "accepts_null"]

MAX_STEPS = 20_000  # definitions with two references to each other unfold exponentially


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
