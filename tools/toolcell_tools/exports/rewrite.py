"""Rewrite a canonical schema into a dialect's subset, with a finding for every difference.

Every step either keeps the meaning, or notes whether the result is looser or tighter, or raises Inexpressible. To drop
a constraint can only loosen the schema, because no dialect here keeps `not`, `if` or `oneOf`, which could invert that.
"""

import math
from typing import Any, cast

from .canonical import Schema, escape, is_nothing, target
from .codec import NULL_IS_ABSENT
from .dialect import Subset
from .merge import ANNOTATIONS, Definitions, accepts_null, constraints, distinct, merge, same, types_of
from .report import Action, Difference, Inexpressible, described, in_words

__all__ = ["rewritten"]

_OF_STRINGS = ("minLength", "maxLength", "pattern", "format")
_OF_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_OF_ARRAYS = ("minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems")
_OF_OBJECTS = ("minProperties", "maxProperties", "propertyNames", "dependentRequired", "dependentSchemas")
_OF_ANYTHING = ("not", "if", "then", "else")
_KIND_OF = {
    **dict.fromkeys(_OF_STRINGS, "string"),
    **dict.fromkeys(_OF_NUMBERS, "number"),
    **dict.fromkeys((*_OF_ARRAYS, "items", "prefixItems"), "array"),
    **dict.fromkeys(
        (*_OF_OBJECTS, "properties", "required", "additionalProperties", "patternProperties", "unevaluatedProperties"),
        "object",
    ),
}
_UNDERSTOOD = frozenset({*_KIND_OF, *_OF_ANYTHING, *ANNOTATIONS, "type", "enum", "const", "anyOf", "oneOf", "$defs"})
_MAX_NESTING = 100


def rewritten(tool: str, schema: Schema, subset: Subset) -> tuple[Schema, list[Difference]]:
    """The schema in the dialect's subset, and the findings. Raises Inexpressible."""
    return _Rewriter(tool, schema, subset).run()


class _SchemaNode:
    """One place in the schema, with its rewritten form and the phrases for its description."""

    def __init__(self, source: Schema, at: str) -> None:
        self.source, self.at = source, at
        self.result: Schema = {}
        self.phrases: list[str] = []

    def below(self, *parts: str | int) -> str:
        return self.at + "".join(f"/{escape(str(part))}" for part in parts)


class _Rewriter:
    def __init__(self, tool: str, schema: Schema, subset: Subset) -> None:
        self.tool, self.subset = tool, subset
        self.root = {key: value for key, value in schema.items() if key != "$defs"}
        self.definitions = Definitions(cast("Schema", schema.get("$defs", {})))
        self.findings: list[Difference] = []
        self.written: Schema = {}
        self.waiting: list[str] = []
        self.current = ""  # the definition that is being written, "" for the root
        self.optional = 0  # optional properties on the path from that definition to this place
        self.inlined: tuple[str, ...] = ()
        self.nesting = 0

    def run(self) -> tuple[Schema, list[Difference]]:
        result = self.schema(self.root, "")
        while self.waiting:
            self.current = self.waiting.pop(0)
            self.written[self.current] = self.schema(
                self.definitions.named[self.current], f"/$defs/{escape(self.current)}"
            )
        if self.written:
            result["$defs"] = self.written
        return result, self.findings

    # -- notes -------------------------------------------------------------------------------------------------------

    def note(
        self, at: str, keyword: str, action: Action, detail: str, *, loosens: bool = False, tightens: bool = False
    ) -> None:
        self.findings.append(Difference(self.tool, at, keyword, action, detail, loosens, tightens))

    def drop(self, node: _SchemaNode, keyword: str, value: Any, *, loosens: bool = True) -> None:
        """Leave a constraint out and describe it in words instead."""
        phrase = in_words(keyword, value)
        if phrase is not None:
            node.phrases.append(phrase)
        detail = "left out" if phrase is None else f"said in the description: {phrase}"
        self.note(node.below(keyword), keyword, "dropped" if phrase is None else "moved", detail, loosens=loosens)

    # -- references and combinators ----------------------------------------------------------------------------------

    def schema(self, source: Schema, at: str) -> Schema:
        """Rewrite any schema."""
        self.definitions.step()
        self.nesting += 1
        if self.nesting > _MAX_NESTING:
            raise Inexpressible(at, "schema", f"nested more than {_MAX_NESTING} levels deep")
        before = self.inlined
        try:
            return self.reference(source, at) if "$ref" in source else self.combined(source, at)
        finally:
            self.nesting -= 1
            self.inlined = before

    def reference(self, source: Schema, at: str) -> Schema:
        name = target(source)
        beside = {key: value for key, value in source.items() if key != "$ref"}
        recursive = self.definitions.reaches(name, name)
        if recursive and not self.subset.recursion:
            raise Inexpressible(at, "$ref", "recursion")
        if recursive and not self.subset.required_recursion and not self.optional and self.returns(name):
            self.note(f"{at}/$ref", "$ref", "widened", "recursion stands in optional properties only", loosens=True)
            words = described(beside.get("description"), [f"another {name}, of the same shape"])
            return {"description": words}
        if not beside and self.subset.references:
            return self.referred(name)
        if name in self.inlined:
            if not self.subset.references:
                raise Inexpressible(at, "$ref", "recursion")
            loosens = bool(constraints(beside))
            self.note(at, "$ref", "dropped", "what stands beside the reference was left out", loosens=loosens)
            return self.referred(name)
        self.inlined = (*self.inlined, name)
        return self.combined(source, at if beside else f"/$defs/{escape(name)}")

    def referred(self, name: str) -> Schema:
        if name not in self.written:
            self.written[name] = {}
            self.waiting.append(name)
        return {"$ref": f"#/$defs/{escape(name)}"}

    def returns(self, name: str) -> bool:
        """Whether a reference to `name` from the definition that is being written is part of a cycle."""
        return bool(self.current) and (name == self.current or self.definitions.reaches(name, self.current))

    def combined(self, source: Schema, at: str) -> Schema:
        whole, lost = self.definitions.joined(source)
        for _ in range(lost):
            detail = "a part that cannot be merged was left out"
            self.note(f"{at}/allOf", "allOf", "widened", detail, loosens=True)
        node = _SchemaNode(whole, at)
        for key in sorted(whole.keys() - _UNDERSTOOD):
            self.note(node.below(key), key, "dropped", "not a keyword that arguments are checked by")
        if "anyOf" in whole or "oneOf" in whole:
            return self.union(node)
        return self.finished(node)

    def union(self, node: _SchemaNode) -> Schema:
        keyword = "anyOf" if "anyOf" in node.source else "oneOf"
        variants = cast("list[Schema]", node.source.pop(keyword))
        if "oneOf" in node.source:
            self.drop(node, "oneOf", node.source.pop("oneOf"))
        if keyword == "oneOf":
            self.note(node.below("oneOf"), "oneOf", "widened", "any of them, not exactly one", loosens=True)
        base = {key: value for key, value in constraints(node.source).items() if key in _UNDERSTOOD}
        if base:
            joined = [self.joined(base, one) for one in variants]
            if any(one is None for one in joined):
                self.drop(node, keyword, variants)
                return self.finished(node)
            variants = [one for one in joined if one is not None]
        kept = [(index, one) for index, one in enumerate(variants) if not is_nothing(one)]
        if not kept:
            return self.impossible(node, keyword)
        node.source = {key: value for key, value in node.source.items() if key in ANNOTATIONS}
        node.result["anyOf"] = [self.schema(one, node.below(keyword, index)) for index, one in kept]
        return self.annotated(node)

    def joined(self, base: Schema, variant: Schema) -> Schema | None:
        whole = self.definitions.whole(variant)
        return merge(base, whole) if whole is not None else None

    # -- one schema --------------------------------------------------------------------------------------------------

    def finished(self, node: _SchemaNode) -> Schema:
        """Rewrite a schema without references and combinators."""
        if is_nothing(node.source) or not self.values(node):
            return self.impossible(node, "not" if is_nothing(node.source) else "enum")
        kinds = self.kinds(node)
        if kinds is not None and self.subset.one_type and len([one for one in kinds if one != "null"]) > 1:
            source = {key: value for key, value in node.source.items() if key not in ANNOTATIONS and key != "type"}
            node.result = {"anyOf": [self.of_kind(source, kind, node) for kind in kinds]}
            return self.annotated(node)
        if kinds is not None:
            node.result["type"] = kinds[0] if len(kinds) == 1 else kinds
        applying = kinds or ["string", "number", "array", "object"]
        if "object" in applying:
            self.object(node, bool(kinds))
        if "array" in applying:
            self.array(node, bool(kinds))
        if "string" in applying:
            self.simple(node, _OF_STRINGS)
        if "number" in applying or "integer" in applying:
            self.number(node, integers="number" not in applying)
        self.simple(node, _OF_ANYTHING)
        return self.annotated(node)

    def of_kind(self, source: Schema, kind: str, node: _SchemaNode) -> Schema:
        return self.finished(_SchemaNode({**source, "type": kind}, node.at))

    def annotated(self, node: _SchemaNode) -> Schema:
        """The rewritten schema with its title and its description, to which the phrases are added."""
        source = node.source
        for key in ("examples", "deprecated"):
            if key in source:
                self.drop(node, key, source[key], loosens=False)
        if "default" in source:
            default = source["default"]
            if self.subset.default and default in node.result.get("enum", [default]):
                node.result["default"] = default
            else:
                self.drop(node, "default", default, loosens=False)
        if isinstance(source.get("title"), str):
            node.result = {"title": source["title"], **node.result}
        description = described(source.get("description"), node.phrases)
        return node.result if description is None else {**node.result, "description": description}

    def impossible(self, node: _SchemaNode, keyword: str) -> Schema:
        """Rewrite a schema that no value fits. A lenient dialect says so in words."""
        if not self.subset.untyped:
            raise Inexpressible(node.at, keyword, "no value fits")
        self.note(node.at, keyword, "widened", "any value, where none fits", loosens=True)
        return {"description": "No value fits here."}

    def values(self, node: _SchemaNode) -> bool:
        """Rewrite `const` and `enum`, and narrow the types to theirs. Returns False if no value remains."""
        source = node.source
        if "const" not in source and "enum" not in source:
            return True
        values = cast("list[Any]", source["enum"] if "enum" in source else [source["const"]])
        if "const" in source and "enum" in source:
            values = [one for one in values if same(one, source["const"])]
        kinds = types_of(source)
        values = [one for one in values if kinds is None or _fits(one, kinds)]
        if not values:
            return False
        left = list(dict.fromkeys(_kind(one) for one in values))
        source["type"] = left[0] if len(left) == 1 else left
        full = values if self.subset.empty_text else [one for one in values if one != ""]
        if set(left) <= self.subset.enum_types and set(left) == set(map(_kind, full)):
            if len(full) < len(values):
                self.note(node.below("enum"), "enum", "narrowed", 'without "", which is refused', tightens=True)
                values = full
            if self.subset.const and "const" in source:
                node.result["const"] = source["const"]
            else:
                node.result["enum"] = values
        elif left != ["null"]:
            self.drop(node, "const" if len(values) == 1 else "enum", values[0] if len(values) == 1 else values)
        return True

    def kinds(self, node: _SchemaNode) -> list[str] | None:
        """The types, inferred from the keywords if none are given; None if the dialect needs none."""
        given = types_of(node.source)
        if given is not None:
            if "number" in given and "integer" in given:
                given = [one for one in given if one != "integer"]
            return given
        if self.subset.untyped:
            return None
        implied = {_KIND_OF[key] for key in node.source if key in _KIND_OF}
        if len(implied) != 1:
            raise Inexpressible(node.at, "type", "any type of value")
        kind = implied.pop()
        self.note(node.at, "type", "narrowed", f"taken to be {kind}, as its keywords imply", tightens=True)
        return [kind]

    def simple(self, node: _SchemaNode, keywords: tuple[str, ...]) -> None:
        for keyword in keywords:
            if keyword not in node.source:
                continue
            value = node.source[keyword]
            if keyword == "format":
                kept = value in self.subset.formats
            elif keyword == "pattern":
                kept = "pattern" in self.subset.keywords and self.subset.portable(value)
            else:
                kept = keyword in self.subset.keywords
            if kept:
                node.result[keyword] = value
            elif not (keyword in ("then", "else") and "if" not in node.source):
                self.drop(node, keyword, value)

    def number(self, node: _SchemaNode, *, integers: bool) -> None:
        source = node.source
        for keyword, instead, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
            if keyword not in source or keyword in self.subset.keywords or instead not in self.subset.keywords:
                continue
            bound = source.pop(keyword)
            nearest = (math.floor(bound) + 1 if step > 0 else math.ceil(bound) - 1) if integers else bound
            both = [nearest, *([source[instead]] if instead in source else [])]
            source[instead] = max(both) if step > 0 else min(both)
            if integers:
                self.note(node.below(keyword), keyword, "rewritten", f"{instead}: {nearest}")
            else:
                self.drop(node, keyword, bound)
        self.simple(node, _OF_NUMBERS)

    # -- arrays ------------------------------------------------------------------------------------------------------

    def array(self, node: _SchemaNode, typed: bool) -> None:
        source = dict(node.source)
        prefix = cast("list[Schema]", source.get("prefixItems", []))
        items = source.get("items")
        if items is False:  # no items after the tuple
            source["maxItems"] = min(len(prefix), source.get("maxItems", len(prefix)))
        node.source = source
        if prefix and self.subset.tuples:
            node.result["prefixItems"] = [
                self.schema(one, node.below("prefixItems", index)) for index, one in enumerate(prefix)
            ]
            if isinstance(items, dict):
                node.result["items"] = self.schema(cast("Schema", items), node.below("items"))
        elif prefix:
            self.pooled(node, prefix, items)
        elif isinstance(items, dict):
            node.result["items"] = self.schema(cast("Schema", items), node.below("items"))
        elif typed and not self.subset.untyped:
            raise Inexpressible(node.at, "items", "an array of anything")
        most = self.subset.most_min_items
        if most is not None and source.get("minItems", 0) > most:
            self.drop(node, "minItems", source["minItems"])
            node.result["minItems"] = most
            node.source = {key: value for key, value in source.items() if key != "minItems"}
        self.simple(node, _OF_ARRAYS)

    def pooled(self, node: _SchemaNode, prefix: list[Schema], items: Any) -> None:
        """Rewrite a tuple as an array whose items may be of any kind in the tuple."""
        pool = list(prefix[: node.source.get("maxItems", len(prefix))])
        open_ended = node.source.get("maxItems", math.inf) > len(prefix)
        if open_ended and isinstance(items, dict):
            pool.append(cast("Schema", items))
        elif open_ended and not self.subset.untyped:
            raise Inexpressible(node.at, "items", "an array of anything")
        elif open_ended:
            pool = cast("list[Schema]", [{}])
        different = distinct(self.schema(one, node.below("prefixItems", index)) for index, one in enumerate(pool))
        if different:
            node.result["items"] = different[0] if len(different) == 1 else {"anyOf": different}
        elif not self.subset.untyped:
            raise Inexpressible(node.at, "items", "an array that is always empty")
        detail = "each item may be any of the tuple's kinds"
        self.note(node.below("prefixItems"), "prefixItems", "widened", detail, loosens=True)

    # -- objects -----------------------------------------------------------------------------------------------------

    def object(self, node: _SchemaNode, typed: bool) -> None:
        source, subset = node.source, self.subset
        properties = cast("Schema", source.get("properties", {}))
        required = cast("list[str]", source.get("required", []))
        if subset.closed:
            self.close(node, properties, required)
        elif not subset.empty_objects and not properties and node.at and typed:
            raise Inexpressible(node.at, "properties", "an object without declared properties")
        missing = [name for name in required if name not in properties]
        if missing:
            required = [name for name in required if name in properties]
            self.note(node.below("required"), "required", "dropped", f"undeclared: {', '.join(missing)}", loosens=True)
        written: Schema = {}
        for name, one in properties.items():
            if is_nothing(one) and not subset.untyped:
                self.forbidden(node, name, required)
                continue
            self.optional += name not in required
            written[name] = self.schema(one, node.below("properties", name))
            self.optional -= name not in required
        if written or typed:
            node.result["properties"] = written
        if subset.all_required:
            self.require_all(node, properties, required)
        elif required:
            node.result["required"] = list(required)
        self.additional(node)
        self.simple(node, _OF_OBJECTS)

    def forbidden(self, node: _SchemaNode, name: str, required: list[str]) -> None:
        if name in required:
            raise Inexpressible(node.below("properties", name), "not", "no value fits")
        open_ended = not self.subset.closed
        detail = "no value fits, so it is not offered"
        self.note(node.below("properties", name), "properties", "dropped", detail, loosens=open_ended)

    def close(self, node: _SchemaNode, properties: Schema, required: list[str]) -> None:
        """Make an object take only its declared properties, or raise Inexpressible with the reason."""
        source = node.source
        given = source.get("additionalProperties")
        if source.get("patternProperties"):
            raise Inexpressible(node.below("patternProperties"), "patternProperties", "keys that are not known")
        if given not in (None, False):
            raise Inexpressible(node.below("additionalProperties"), "additionalProperties", "keys that are not known")
        if given is None and not properties:
            raise Inexpressible(node.at, "properties", "an object without declared properties")
        if any(name not in properties for name in required):
            raise Inexpressible(node.below("required"), "required", "a required property that is not declared")
        if given is None:
            detail = "closed: the mode takes declared properties only"
            self.note(node.at, "additionalProperties", "narrowed", detail, tightens=True)
        source.pop("unevaluatedProperties", None)  # nothing is left unevaluated
        node.result["additionalProperties"] = False

    def additional(self, node: _SchemaNode) -> None:
        source = node.source
        if self.subset.closed:
            return
        if source.get("patternProperties"):
            self.drop(node, "patternProperties", source["patternProperties"])
        if "unevaluatedProperties" in source:
            self.drop(node, "unevaluatedProperties", source["unevaluatedProperties"])
        given = source.get("additionalProperties")
        if given is None or given is True or given == {}:
            return
        if not self.subset.additional or source.get("patternProperties"):
            self.drop(node, "additionalProperties", given)
        elif given is False:
            node.result["additionalProperties"] = False
        else:
            node.result["additionalProperties"] = self.schema(given, node.below("additionalProperties"))

    def require_all(self, node: _SchemaNode, properties: Schema, required: list[str]) -> None:
        """Require every property. An optional property takes `null` for "left out"."""
        written = cast("Schema", node.result["properties"])
        absent: list[str] = []
        for name in written:
            if name in required:
                continue
            written[name] = _nullable(written[name])
            at = node.below("properties", name)
            if accepts_null(properties[name], self.definitions):
                self.note(at, "required", "rewritten", "required; null is a value of its own, so it cannot be left out")
            else:
                absent.append(name)
                said = described(written[name].get("description"), ["null to leave it out"])
                written[name] = {**written[name], "description": said}
                self.note(at, "required", "rewritten", "required; null means that it is left out")
        node.result["required"] = list(written)
        if len(required) < len(written):
            node.result[NULL_IS_ABSENT] = absent  # empty if every null is a value; the codec needs the mark anyway


def _nullable(schema: Schema) -> Schema:
    if "type" in schema:
        kinds = types_of(schema) or []
        result = {**schema, "type": kinds if "null" in kinds else [*kinds, "null"]}
        if "const" in result:
            result["enum"] = [result.pop("const")]
        if "enum" in result and None not in result["enum"]:
            result["enum"] = [*result["enum"], None]
        return result
    if "anyOf" in schema:
        variants = cast("list[Schema]", schema["anyOf"])
        if any("null" in (types_of(one) or []) for one in variants):
            return schema
        return {**schema, "anyOf": [*variants, {"type": "null"}]}
    return {"anyOf": [schema, {"type": "null"}]}


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == int(value) else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _fits(value: Any, kinds: list[str]) -> bool:
    kind = _kind(value)
    return kind in kinds or (kind == "integer" and "number" in kinds)
