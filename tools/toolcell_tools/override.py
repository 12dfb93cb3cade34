"""Check an author's own parameters schema: the function must be callable with everything that it accepts."""

from collections.abc import Mapping
from typing import Any, cast

from .failures import ToolDefinitionError
from .foreign import check_foreign_schema

__all__ = ["defaults_of", "overriding"]


def overriding(name: str, derived: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return `given`, checked: everything that it accepts can be bound, by name, to the parameters in `derived`.

    If the tool takes no other parameters, `additionalProperties` is set to False. Raises ToolDefinitionError.
    """
    schema = check_foreign_schema(name, "parameters_schema", given)
    properties = cast("dict[str, Any]", schema.get("properties", {}))
    if derived.get("additionalProperties") is False:
        known = cast("dict[str, Any]", derived["properties"])
        strange = [one for one in properties if one not in known]
        if strange:
            raise ToolDefinitionError(
                f"tool {name!r}: parameters_schema has {strange[0]!r}, and the tool has no such parameter "
                f"(it has: {', '.join(known) or 'none'}). Remove it or add the parameter."
            )
        if schema.setdefault("additionalProperties", False) is not False or "patternProperties" in schema:
            raise ToolDefinitionError(
                f"tool {name!r}: parameters_schema lets in properties that it does not name, which the tool could not "
                "take. Remove patternProperties, and set additionalProperties to False or leave it out."
            )
    promised = {*cast("list[str]", schema.get("required", [])), *defaults_of(schema)}
    for one in cast("list[str]", derived.get("required", [])):
        if one not in promised:
            raise ToolDefinitionError(
                f"tool {name!r}: parameters_schema does not require {one!r}, and the tool cannot do without it. Add it "
                f"to 'required', or give properties[{one!r}] a 'default'."
            )
    return schema


def defaults_of(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The defaults in an author's schema, which the binder must apply."""
    properties: Any = {} if schema is None else schema.get("properties", {})
    if not isinstance(properties, Mapping):
        return {}
    items = cast("Mapping[str, Any]", properties).items()
    return {key: one["default"] for key, one in items if isinstance(one, Mapping) and "default" in one}
