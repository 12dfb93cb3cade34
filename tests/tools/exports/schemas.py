"""Strategies: schemas of every kind, values that mostly fit a schema, and tools from random types."""

import inspect
import math
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Literal

from hypothesis import strategies as st
from pydantic import BaseModel, Field

from toolcell_tools import ToolDeclaration, tool

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 6),
    st.sampled_from([0.5, 1.0, -1.5, 2.5]),
    st.sampled_from(["", "a", "ab", "abc", "abcd", "x1"]),
)
NAMES = st.sampled_from(["a", "b", "c", "$d", "e f"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
REFERENCES = st.sampled_from(["#/$defs/Leaf", "#/$defs/Tree", "#/$defs/Pair", "#/$defs/Chain"])
DEFINITIONS = {
    "Leaf": {"type": "string", "minLength": 1},
    "Pair": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/Leaf"}, "b": {"type": "integer"}},
        "required": ["a"],
    },
    "Tree": {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"$ref": "#/$defs/Tree"}},
        "required": ["a"],
        "additionalProperties": False,
    },
    "Chain": {
        "type": "object",
        "properties": {"c": {"type": "array", "items": {"$ref": "#/$defs/Chain"}}},
        "required": ["c"],
        "additionalProperties": False,
    },
}


@st.composite
def leaves(draw: st.DrawFn) -> Any:
    """A schema without others in it."""
    kind = draw(st.sampled_from(["string", "integer", "number", "boolean", "null", "several", "enum", "const", "any"]))
    some: dict[str, Any] = {}
    if kind == "string":
        some = draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "minLength": st.integers(0, 2),
                    "maxLength": st.integers(2, 4),
                    "pattern": st.sampled_from(["^[a-z]*$", "b", "^a"]),
                    "format": st.sampled_from(["date-time", "email", "uuid", "regex"]),
                },
            )
        )
    elif kind in ("integer", "number"):
        some = draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "minimum": st.integers(-2, 2),
                    "maximum": st.integers(2, 5),
                    "exclusiveMinimum": st.sampled_from([-2, 0, 0.5]),
                    "exclusiveMaximum": st.sampled_from([3, 4.5]),
                    "multipleOf": st.sampled_from([1, 2, 0.5]),
                },
            )
        )
    if kind == "several":
        kinds = draw(
            st.lists(st.sampled_from(["string", "integer", "number", "null", "boolean"]), min_size=1, unique=True)
        )
        return {"type": kinds, "minimum": 1, "minLength": 2}
    if kind == "enum":
        return {"enum": draw(st.lists(SCALARS, min_size=1, max_size=4, unique_by=repr))}
    if kind == "const":
        return {"const": draw(SCALARS)}
    if kind == "any":
        return draw(st.sampled_from([{}, {}, True, False, {"minLength": 2}, {"not": {"type": "string"}}]))
    noted = draw(st.fixed_dictionaries({}, optional={"description": st.just("Said."), "default": SCALARS}))
    return {"type": kind, **some, **noted}


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    """An object schema."""
    properties = draw(st.dictionaries(NAMES, inner, max_size=3))
    required = draw(
        st.lists(
            st.sampled_from([*properties, "z"] if draw(st.integers(0, 9)) == 0 else [*properties] or ["a"]), unique=True
        )
    )
    more = (
        draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "minProperties": st.integers(0, 2),
                    "dependentRequired": st.just({"a": ["b"]}),
                    "if": st.just({"required": ["a"]}),
                    "then": st.just({"required": ["c"]}),
                    "not": st.just({"required": ["a", "b"]}),
                    "patternProperties": st.fixed_dictionaries({"^a": inner}),
                    "propertyNames": st.just({"maxLength": 1}),
                    "unevaluatedProperties": st.just(False),
                },
            )
        )
        if draw(st.integers(0, 3)) == 0
        else {}
    )
    closed = draw(st.sampled_from(["closed", "closed", "closed", "absent", "open", "schema"]))
    extra = {"closed": {"additionalProperties": False}, "absent": {}, "open": {"additionalProperties": True}}
    addition = {"additionalProperties": draw(inner)} if closed == "schema" else extra[closed]
    whole = {"type": "object", "properties": properties, **addition, **more}
    return {**whole, "required": required} if required and (properties or "z" in required) else whole


def branches(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A schema with others in it."""
    few = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        objects(inner),
        objects(inner),
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": inner},
            optional={"minItems": st.integers(0, 2), "maxItems": st.integers(1, 3), "uniqueItems": st.booleans()},
        ),
        st.fixed_dictionaries(
            {"type": st.just("array"), "prefixItems": few},
            optional={"items": st.just(False) | inner, "maxItems": st.integers(1, 3)},
        ),
        st.fixed_dictionaries({"type": st.just("array"), "contains": inner, "items": inner}),
        st.fixed_dictionaries({"anyOf": few}, optional={"description": st.just("Either.")}),
        st.fixed_dictionaries({"oneOf": few}, optional={"type": st.sampled_from(["object", "string"])}),
        st.fixed_dictionaries({"allOf": few}, optional={"type": st.sampled_from(["object", "string"])}),
        st.fixed_dictionaries(
            {"$ref": REFERENCES}, optional={"description": st.just("Another."), "minProperties": st.just(1)}
        ),
        st.fixed_dictionaries({"if": inner, "then": inner}, optional={"else": inner}),
    )


SCHEMAS = st.recursive(leaves(), branches, max_leaves=8)


@st.composite
def parameters(draw: st.DrawFn) -> dict[str, Any]:
    """A parameters schema: an object, mostly with more at its root now and then."""
    schema = draw(objects(SCHEMAS))
    few = st.lists(objects(SCHEMAS) | st.just({"required": ["a"]}), min_size=1, max_size=3)
    if draw(st.integers(0, 3)) == 0:
        schema |= {draw(st.sampled_from(["anyOf", "oneOf", "allOf"])): draw(few)}
    return {**schema, "$defs": DEFINITIONS}


@st.composite
def fitting(draw: st.DrawFn, schema: Any, definitions: Mapping[str, Any], room: int = 6) -> Any:
    """A value that mostly fits `schema`; now and then any value."""
    if room <= 0 or not isinstance(schema, dict) or draw(st.integers(0, 19)) == 0:
        return draw(VALUES)

    def again(one: Any) -> Any:
        return draw(fitting(one, definitions, room - 1))

    if "$ref" in schema:
        return again(definitions[schema["$ref"].rpartition("/")[2]])
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    kind = schema.get("type") or ("object" if "properties" in schema else None)
    kind = draw(st.sampled_from(kind)) if isinstance(kind, list) else kind
    if kind == "object":
        return _object(draw, schema, definitions, room)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return again(draw(st.sampled_from(schema[key])))
    if kind == "array":
        least, most = schema.get("minItems", 0), min(schema.get("maxItems", 3), 3)
        count = draw(st.integers(least, max(least, most)))
        prefix = schema.get("prefixItems", [])
        return [again(prefix[index] if index < len(prefix) else schema.get("items", {})) for index in range(count)]
    if kind in ("integer", "number"):
        low = max(schema.get("minimum", -3), schema.get("exclusiveMinimum", -math.inf))
        return draw(st.integers(math.ceil(low), math.ceil(low) + 5))
    if kind == "string":
        return draw(st.sampled_from(["", "a", "ab", "abc", "abcd", "x1"]))
    return draw({"boolean": st.booleans(), "null": st.none()}.get(kind or "", VALUES))


def _object(draw: st.DrawFn, schema: Any, definitions: Mapping[str, Any], room: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    properties = dict(schema.get("properties", {}))
    for key in ("anyOf", "oneOf", "allOf"):
        for one in schema.get(key, []):
            if isinstance(one, dict) and draw(st.booleans()):
                properties |= {name: sub for name, sub in one.get("properties", {}).items() if name not in properties}
    for name, one in properties.items():
        if name in schema.get("required", []) or draw(st.booleans()):
            result[name] = draw(fitting(one, definitions, room - 1))
    if schema.get("additionalProperties") is not False and draw(st.integers(0, 4)) == 0:
        result[draw(NAMES)] = draw(VALUES)
    return result


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int = Field(ge=0)
    label: str | None = None


class Node(BaseModel):
    value: Annotated[str, Field(min_length=1)]
    children: "list[Node]" = []


TYPES: list[Any] = [
    str,
    int,
    float,
    bool,
    Annotated[int, Field(ge=1, le=5)],
    Annotated[float, Field(gt=0)],
    Annotated[str, Field(min_length=1, pattern="^a")],
    Literal["a", "b"],
    Literal[1, 2],
    Colour,
    Point,
    Node,
    bytes,
]


@st.composite
def tools(draw: st.DrawFn) -> ToolDeclaration:
    """A tool of a function with random parameters."""
    simple = st.sampled_from(TYPES)
    types = st.one_of(
        simple,
        simple.map(lambda one: one | None),
        simple.map(lambda one: list.__class_getitem__(one)),
        simple.map(lambda one: dict.__class_getitem__((str, one))),
        st.tuples(simple, simple).map(lambda two: tuple.__class_getitem__(two)),
        st.tuples(simple, simple).map(lambda two: two[0] | two[1]),
    )

    def probe() -> None:
        """Probe."""

    kind = inspect.Parameter
    given: dict[str, tuple[Any, Any]] = draw(
        st.dictionaries(
            st.sampled_from(["one", "two", "three"]),
            st.one_of(
                types.map(lambda one: (one, kind.empty)),
                types.map(lambda one: (one | None, None)),
                st.sampled_from([(int, 1), (str, "a"), (list[Point], []), (bool, False)]),
            ),
            max_size=3,
        )
    )
    probe.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [kind(name, kind.KEYWORD_ONLY, annotation=one, default=default) for name, (one, default) in given.items()]
    )
    probe.__annotations__ = {name: one for name, (one, _) in given.items()}
    return tool(probe).declaration
