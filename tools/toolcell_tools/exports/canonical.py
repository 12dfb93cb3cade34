"""Bring every schema into one form before a dialect reads it: JSON Schema 2020-12, with all references to `$defs`.

The meaning stays the same: boolean schemas become `{}` and `{"not": {}}`, `definitions` become `$defs`, the array form
of `items` becomes `prefixItems`, and a reference to any place becomes a reference to a definition.
"""

import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote

from toolcell_tools.schemas.keywords import is_index, same, subschemas

from .report import Unexportable

__all__ = [
    "MAX_DEPTH",
    "MAX_NODES",
    "NOTHING",
    "Schema",
    "canonical",
    "escape",
    "is_nothing",
    "keywords",
    "references",
    "target",
]

Schema = dict[str, Any]

MAX_DEPTH = 100  # this and the next bound are those of openai-agents' strict_schema.py
MAX_NODES = 100_000
NOTHING: Schema = {"not": {}}


def keywords(text: str) -> frozenset[str]:
    """The set of keywords in a text, which spaces separate."""
    return frozenset(text.split())


ONE = keywords(
    "not if then else contains propertyNames items additionalProperties unevaluatedProperties unevaluatedItems"
)
MANY = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
NAMED = frozenset({"properties", "patternProperties", "dependentSchemas"})
_BOOLEAN_STAYS = frozenset({"items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems"})
_SKIPPED = frozenset({"$schema", "$id", "$anchor", "$comment", "$vocabulary", "$defs", "definitions"})
_DYNAMIC = frozenset({"$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$recursiveAnchor"})
_ANNOTATIONS = frozenset({"title", "description", "default", "examples"})


def canonical(schema: Mapping[str, Any]) -> Schema:
    """A canonical copy of `schema`. Raises Unexportable for remote or dynamic references and for excessive size."""
    return _Canonical(schema).run()


def is_nothing(schema: Mapping[str, Any]) -> bool:
    """Whether the schema is `{"not": {}}`, which no value fits."""
    return "not" in schema and schema["not"] == {}


def target(schema: Mapping[str, Any]) -> str:
    """The name of the definition that a canonical `$ref` refers to."""
    return unescape(cast("str", schema["$ref"]).removeprefix("#/$defs/"))


def escape(part: str) -> str:
    """`part` as one token of a JSON Pointer (RFC 6901)."""
    return part.replace("~", "~0").replace("/", "~1")


def unescape(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def references(schema: Schema, *, in_place: bool = False) -> set[str]:
    """The definitions that a canonical schema refers to; with `in_place`, only those for the value, not its parts."""
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if "$ref" in node:
            found.add(target(node))
        waiting += [sub for _, sub in (same(node) if in_place else subschemas(node)) if isinstance(sub, dict)]
    return found


def _with_exclusive_numbers(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema with exclusive bounds as numbers. In draft 4 they are booleans, which speak of the bounds."""
    result = dict(schema)
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(result.get(exclusive), bool) and result.pop(exclusive) and bound in result:
            result[exclusive] = result.pop(bound)
    return result


class _Canonical:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.old = bool(re.search(r"draft-0[3-7]", str(root.get("$schema", ""))))
        self.names: dict[str, str] = {}
        self.definitions: dict[str, Schema] = {}
        self.waiting: list[tuple[str, object]] = []
        self.nodes = 0

    def run(self) -> Schema:
        result = self.walk(self.root, "", 0)
        while self.waiting:
            name, found = self.waiting.pop(0)
            self.definitions[name] = self.walk(found, f"/$defs/{escape(name)}", 1)
        self.refuse_circles()
        return {**result, "$defs": self.definitions} if self.definitions else result

    def walk(self, node: object, at: str, depth: int) -> Schema:
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise Unexportable(at, "schema", f"deeper than {MAX_DEPTH} levels or larger than {MAX_NODES:,} nodes")
        if isinstance(node, bool):
            return {} if node else dict(NOTHING)
        if not isinstance(node, Mapping):
            raise Unexportable(at, "schema", f"a {type(node).__name__} is not a schema")
        found = cast("Mapping[str, Any]", node)
        if at and isinstance(found.get("$id"), str):
            raise Unexportable(at, "$id", "embedded schema resources are not supported; inline them")
        if self.old and "$ref" in found:  # before draft 2019-09, keywords beside a $ref are ignored
            found = {key: value for key, value in found.items() if key == "$ref" or key in _ANNOTATIONS}
        if found.get("enum") == []:
            found = {key: value for key, value in found.items() if key in _ANNOTATIONS} | NOTHING
        if self.old:
            found = _with_exclusive_numbers(found)
        result: Schema = {}
        for key, value in found.items():
            if key not in _SKIPPED:
                self.keyword(result, key, value, f"{at}/{escape(key)}", depth + 1)
        if isinstance(found.get("items"), list):
            self.tuple(result, found, at, depth + 1)
        return result

    def keyword(self, result: Schema, key: str, value: Any, at: str, depth: int) -> None:
        if key in _DYNAMIC:
            raise Unexportable(at, key, "dynamic references are not supported; use $ref")
        if key == "$ref":
            result[key] = self.reference(value, at)
        elif key in _BOOLEAN_STAYS and isinstance(value, bool):
            result[key] = value if key != "items" or not value else {}
        elif key in ONE and not isinstance(value, list):
            result[key] = self.walk(value, at, depth)
        elif key in MANY and isinstance(value, list):
            members = cast("list[object]", value)
            result[key] = [self.walk(one, f"{at}/{index}", depth) for index, one in enumerate(members)]
        elif key in NAMED and isinstance(value, Mapping):
            named = cast("Mapping[str, Any]", value)
            result[key] = {name: self.walk(one, f"{at}/{escape(name)}", depth) for name, one in named.items()}
        elif key == "dependencies" and isinstance(value, Mapping):
            self.dependencies(result, cast("Mapping[str, Any]", value), at, depth)
        elif key not in ("items", "additionalItems"):
            result[key] = value

    def tuple(self, result: Schema, found: Mapping[str, Any], at: str, depth: int) -> None:
        """Convert `items` as an array, the form up to draft 2019-09."""
        members = found["items"]
        result["prefixItems"] = [self.walk(one, f"{at}/items/{index}", depth) for index, one in enumerate(members)]
        if "additionalItems" in found:
            self.keyword(result, "items", found["additionalItems"], f"{at}/additionalItems", depth)

    def dependencies(self, result: Schema, value: Mapping[str, Any], at: str, depth: int) -> None:
        """Convert `dependencies`, the form up to draft 7; draft 2019-09 split it into two keywords."""
        for name, one in value.items():
            if isinstance(one, list):
                result.setdefault("dependentRequired", {})[name] = one
            else:
                result.setdefault("dependentSchemas", {})[name] = self.walk(one, f"{at}/{escape(name)}", depth)

    def refuse_circles(self) -> None:
        """Refuse a definition that refers to itself for the same value: it constrains nothing and hangs validators."""
        same_value = {name: references(one, in_place=True) for name, one in self.definitions.items()}
        for name in same_value:
            found, waiting = set[str](), [name]
            while waiting:
                new = same_value[waiting.pop()] - found
                found |= new
                waiting.extend(new)
            if name in found:
                raise Unexportable(f"/$defs/{escape(name)}", "$ref", "it refers to itself without an end")

    def reference(self, value: object, at: str) -> str:
        if not isinstance(value, str) or not value.startswith("#"):
            raise Unexportable(at, "$ref", f"{value!r} is not a reference into the schema itself; inline it")
        if value not in self.names:
            found = self.resolve(unquote(value), at)
            self.names[value] = self.free_name(value)
            self.waiting.append((self.names[value], found))
        return f"#/$defs/{escape(self.names[value])}"

    def free_name(self, reference: str) -> str:
        plain = unescape(unquote(reference)).rpartition("/")[2].lstrip("#") or "root"
        wanted = re.sub(r"[^A-Za-z0-9_.-]", "_", plain)
        used, name, count = set(self.names.values()), wanted, 2
        while name in used:
            name, count = f"{wanted}_{count}", count + 1
        return name

    def resolve(self, reference: str, at: str) -> object:
        if reference == "#":
            return {key: value for key, value in self.root.items() if key != "$id"}
        if not reference.startswith("#/"):
            return self.anchor(reference[1:], at)
        found: Any = self.root
        for part in map(unescape, reference[2:].split("/")):
            if isinstance(found, Mapping) and part in found:
                found = cast("Mapping[str, Any]", found)[part]
            elif isinstance(found, list) and is_index(part) and int(part) < len(cast("list[object]", found)):
                found = cast("list[object]", found)[int(part)]
            else:
                raise Unexportable(at, "$ref", f"nothing is at {reference!r}")
        return found

    def anchor(self, name: str, at: str) -> object:
        waiting: list[Any] = [self.root]
        while waiting:
            found = waiting.pop()
            if isinstance(found, Mapping):
                node = cast("Mapping[str, Any]", found)
                if node.get("$anchor") == name:
                    return node
                waiting.extend(node.values())
            elif isinstance(found, list):
                waiting.extend(cast("list[object]", found))
        raise Unexportable(at, "$ref", f"no $anchor is called {name!r}")
