"""smolagents' flat inputs from a JSON Schema, and back."""

from collections.abc import Mapping
from typing import Any, cast

from toolcell_tools.exports.canonical import canonical, target
from toolcell_tools.exports.merge import Definitions, types_of
from toolcell_tools.exports.report import Unexportable

__all__ = ["inputs_of", "parameters_of"]

_ANY = ["string", "boolean", "integer", "number", "array", "object", "null"]
_KNOWN = {*_ANY, "image", "audio", "any"}
_NAMES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    type(None): "null",
}


def inputs_of(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """smolagents' inputs: for each parameter its whole schema, with the type and description that smolagents wants.

    References are written out. A type that smolagents cannot say is a list of types. `anyOf` goes into an `allOf`,
    because smolagents would replace it by its types.
    """
    whole = canonical(schema)
    definitions, required = Definitions(whole.get("$defs", {})), set(whole.get("required", ()))
    inputs: dict[str, dict[str, Any]] = {}
    for key, given in whole.get("properties", {}).items():
        try:
            one = _inlined(given, definitions, frozenset())
        except Unexportable:  # it unfolds to too much; the supervisor validates with the schema itself
            one = {"description": given.get("description", "")}
        if "anyOf" in one:
            one["allOf"] = [*one.get("allOf", []), {"anyOf": one.pop("anyOf")}]
        one = {**one, "type": _type(one), "description": one.get("description", "")}
        inputs[key] = one if key in required else {**one, "nullable": True}
    return inputs


def _inlined(schema: Any, definitions: Definitions, above: frozenset[str]) -> Any:
    """The schema with each reference replaced by what it refers to; a reference to itself by anything."""
    definitions.step()
    if isinstance(cast("object", schema), list):
        return [_inlined(one, definitions, above) for one in schema]
    if not isinstance(cast("object", schema), dict):
        return schema
    given: dict[str, Any] = schema
    if "$ref" in given:
        name = target(given)
        beside = {key: value for key, value in given.items() if key != "$ref"}
        if name in above:
            return beside
        return _inlined(cast("dict[str, Any]", definitions.named[name]) | beside, definitions, above | {name})
    return {key: _inlined(value, definitions, above) for key, value in given.items()}


def _type(schema: Mapping[str, Any]) -> str | list[str]:
    """The types of a schema's values: one, or a list."""
    types = types_of(schema)
    if types is None and "const" in schema:
        schema = {"enum": [schema["const"]]}
    if types is None and "enum" in schema:
        types = [_NAMES.get(type(value), "object") for value in cast("list[object]", schema["enum"])]
    if types is None:
        of_parts = [_type(one) for key in ("anyOf", "oneOf") for one in schema.get(key, [])]
        for part in cast("list[dict[str, Any]]", schema.get("allOf", [])):
            of_parts += [_type(one) for one in part.get("anyOf", [])]
        types = [name for one in of_parts for name in ([one] if isinstance(one, str) else one)] or _ANY
    unique = list(dict.fromkeys(name for name in types if name in _KNOWN))
    if "number" in unique and "integer" not in unique and len(unique) > 1:
        unique.append("integer")  # in a list, smolagents takes no integer for a number
    return unique[0] if len(unique) == 1 else unique


def parameters_of(inputs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The JSON Schema of smolagents' inputs."""
    properties = {
        key: {name: value for name, value in given.items() if name != "nullable" and (name, value) != ("type", "any")}
        for key, given in inputs.items()
    }
    for key, given in inputs.items():
        types = types_of(properties[key])
        if given.get("nullable") and types is not None:
            properties[key]["type"] = [*types, "null"]
    required = [key for key, given in inputs.items() if not given.get("nullable")]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
