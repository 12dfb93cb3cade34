"""Check results and failures against the type or the schema that the author gave for them."""

from collections.abc import Mapping
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import PydanticSerializationError

from .failures import ToolDefinitionError, Unencodable
from .result import ToolResult
from .sent import SentSchema

__all__ = ["adapter", "schema_of", "written"]


def schema_of(name: str, option: str, given: object) -> dict[str, Any]:
    """`given` if it is a JSON Schema, else the JSON Schema of what the type `given` serialises to."""
    if isinstance(given, Mapping):
        from .foreign import check_any_schema

        return check_any_schema(name, option, cast("Mapping[str, Any]", given))
    try:
        return adapter(given).json_schema(mode="serialization", schema_generator=SentSchema)
    except (PydanticUserError, PydanticUndefinedAnnotation, NameError, TypeError) as failure:
        reason = str(failure).partition("\n")[0].rstrip(".")
        raise ToolDefinitionError(
            f"tool {name!r}: {option}={given!r} has no JSON Schema: {reason}. "
            "Pass a JSON Schema, or a type that has one."
        ) from failure


def adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def written(kind: TypeAdapter[Any], value: object) -> object:
    """`value`, or the output of a ToolResult, as the type `kind` serialises it to JSON. Raises Unencodable."""
    if isinstance(value, ToolResult):
        result: ToolResult = value  # pyright: ignore[reportUnknownVariableType] - isinstance tells it of no R
        return result.model_copy(update={"output": written(kind, result.output)})
    try:
        return kind.dump_python(kind.validate_python(value), mode="json", by_alias=True)
    except ValidationError as failure:
        first = failure.errors(include_url=False, include_context=False, include_input=False)[0]
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
        raise Unencodable(f"${path}: the result is not what output_schema says: {first['msg']}") from failure
    except PydanticSerializationError as failure:
        raise Unencodable(f"$: the result could not be written as output_schema says: {failure}") from failure
