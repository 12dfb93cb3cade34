"""Convert arguments between the exported schema and the tool's own schema, in both directions."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from .canonical import Schema, target

__all__ = ["NULL_IS_ABSENT", "Codec", "unmarked"]

NULL_IS_ABSENT = "x-null-is-absent"
"""The keyword that lists an object's properties whose `null` means "left out". It never leaves this package."""


class _SchemaValidator(Protocol):
    def is_valid(self, instance: object) -> bool: ...


class Codec:
    """Converts arguments. It knows where `null` means "left out", and how parameters were renamed.

    `marked` is the exported schema with `NULL_IS_ABSENT` on the objects concerned. If several kinds are allowed for a
    value, the first kind that it fits decides.
    """

    def __init__(self, marked: Schema, renamed: Mapping[str, str]) -> None:
        self._schema = marked
        self.definitions = cast("Schema", marked.get("$defs", {}))
        self._exported = dict(renamed)
        self._original = {theirs: mine for mine, theirs in renamed.items()}
        self._strict = _has_marks(marked)  # otherwise only names differ
        self._compiled: dict[int, _SchemaValidator] = {}

    def decode(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The tool's own arguments, from the arguments of a call to its export."""
        plain = _ValueWalk(self, _without_nulls, first=False).of(arguments, self._schema) if self._strict else arguments
        return {self._original.get(name, name): value for name, value in plain.items()}

    def encode(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call to the export, from the tool's own arguments, to replay a conversation."""
        named = {self._exported.get(name, name): value for name, value in arguments.items()}
        return _ValueWalk(self, _with_nulls, first=True).of(named, self._schema) if self._strict else named

    def validator(self, schema: Schema) -> _SchemaValidator:
        """The compiled validator of one kind that is allowed for a value."""
        if id(schema) not in self._compiled:
            import jsonschema_rs  # needed only to choose between kinds

            whole = {**schema, "$defs": self.definitions} if self.definitions else schema
            options = jsonschema_rs.RegexOptions()  # the linear engine: arguments come from a model
            compiled = jsonschema_rs.Draft202012Validator(whole, pattern_options=options)
            self._compiled[id(schema)] = cast("_SchemaValidator", compiled)
        return self._compiled[id(schema)]


class _ValueWalk:
    """One walk through a value, along the schema. `first`: values are changed before they are matched to a kind."""

    def __init__(
        self, codec: Codec, change: Callable[[dict[str, Any], Schema], dict[str, Any]], *, first: bool
    ) -> None:
        self.codec, self.change, self.first = codec, change, first
        self.done: dict[tuple[int, int], Any] = {}  # by value and schema: kinds nest, so a pair can recur

    def of(self, value: Any, schema: Schema) -> Any:
        if not isinstance(value, dict | list):
            return value
        key = id(cast("object", value)), id(schema)
        if key not in self.done:
            self.done[key] = self.changed(cast("dict[str, Any] | list[Any]", value), schema)
        return self.done[key]

    def changed(self, value: dict[str, Any] | list[Any], schema: Schema) -> Any:
        while "$ref" in schema:
            schema = cast("Schema", self.codec.definitions[target(schema)])
        if "anyOf" in schema:
            for variant in cast("list[Schema]", schema["anyOf"]):
                compared = self.of(value, variant) if self.first else value
                if self.codec.validator(variant).is_valid(compared):
                    return self.of(value, variant)
            return value
        if isinstance(value, list):
            items: object = schema.get("items")
            return [self.of(one, cast("Schema", items)) for one in value] if isinstance(items, dict) else value
        properties = cast("Schema", schema.get("properties", {}))
        given = self.change(value, schema)
        return {name: self.of(one, properties[name]) if name in properties else one for name, one in given.items()}


def _without_nulls(value: dict[str, Any], schema: Schema) -> dict[str, Any]:
    absent = cast("list[str]", schema.get(NULL_IS_ABSENT, []))
    return {name: one for name, one in value.items() if one is not None or name not in absent}


def _with_nulls(value: dict[str, Any], schema: Schema) -> dict[str, Any]:
    required = cast("list[str]", schema.get("required", []))
    return {**value, **{name: None for name in required if name not in value and _takes_null(schema, name)}}


def _takes_null(schema: Schema, name: str) -> bool:
    one = cast("Schema", schema["properties"][name])
    kinds: object = one.get("type")
    if kinds == "null" or (isinstance(kinds, list) and "null" in kinds):
        return True
    return any(_takes_null({"properties": {name: other}}, name) for other in one.get("anyOf", []))


def _has_marks(node: object) -> bool:
    if isinstance(node, dict):
        return NULL_IS_ABSENT in node or any(map(_has_marks, cast("Schema", node).values()))
    return isinstance(node, list) and any(map(_has_marks, cast("list[object]", node)))


def unmarked(node: Any) -> Any:
    """A copy of a marked schema without the marks."""
    if isinstance(node, dict):
        return {key: unmarked(value) for key, value in cast("Schema", node).items() if key != NULL_IS_ABSENT}
    return [unmarked(one) for one in cast("list[object]", node)] if isinstance(node, list) else node
