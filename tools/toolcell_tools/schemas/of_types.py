"""JSON Schemas for a tool's parameters and results: derived from its types by pydantic, under the rules here, or given
by its author."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from typing import Annotated, Any, ClassVar, Final, Literal, cast, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, SchemaError, core_schema
from typing_extensions import is_typeddict

from toolcell_tools.failures import ToolDefinitionError
from toolcell_tools.options import defaults_of
from toolcell_tools.result import ToolResult
from toolcell_tools.signature import CONFIG, MISSING, Parameter, fields_of, plain_type

from .untrusted import check_any_schema, check_foreign_schema

__all__ = [
    "EncodedSchema",
    "closed",
    "given_schema",
    "object_schema",
    "other_names",
    "parameters_schema",
    "returned_schema",
    "schema_of",
]

_NoSchema = (PydanticUserError, PydanticUndefinedAnnotation, NameError, TypeError, ImportError)


def parameters_schema(name: str, parameters: tuple[Parameter, ...], descriptions: Mapping[str, str]) -> dict[str, Any]:
    """The JSON Schema of an object with these parameters and no others.

    A description in `Annotated[…, Field(description=…)]` takes precedence over a text in `Annotated[…, "text"]`, and
    both over the docstring's. Raises ToolDefinitionError, which names the parameter, for a type that has no schema.
    """
    adapters = {one.name: _adapter(name, one) for one in parameters}
    _, definitions = schemas = TypeAdapter.json_schemas(
        [(key, "validation", adapter) for key, adapter in adapters.items()], schema_generator=_Generator
    )
    properties: dict[str, Any] = {}
    for one in parameters:
        found = dict(schemas[0][one.name, "validation"])
        said = next((extra for extra in get_args(one.annotation)[1:] if isinstance(extra, str)), None)
        if get_origin(one.annotation) is Annotated and said is not None:
            found.setdefault("description", said)
        if one.name in descriptions:
            found.setdefault("description", descriptions[one.name])
        if one.default is not MISSING:
            found["default"] = _default(name, one, adapters[one.name])
        properties[one.name] = found
    required = [one.name for one in parameters if one.default is MISSING]
    result = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return result | definitions


class _JsonTypes(GenerateJsonSchema):
    """Refuses types for which pydantic has a schema, but of which no JSON is a value."""

    def is_subclass_schema(self, schema: core_schema.IsSubclassSchema) -> dict[str, Any]:
        raise PydanticInvalidForJsonSchema("No JSON is a class.")


class _Generator(_JsonTypes):
    """Declares bytes as base64, which the binder expects. A model's own configuration takes precedence."""

    _models = 0

    def model_schema(self, schema: core_schema.ModelSchema) -> dict[str, Any]:
        self._models += 1
        try:
            return super().model_schema(schema)
        finally:
            self._models -= 1

    def bytes_schema(self, schema: core_schema.BytesSchema) -> dict[str, Any]:
        found = super().bytes_schema(schema)
        return found if self._models else found | {"format": "base64"}


def _adapter(name: str, parameter: Parameter) -> TypeAdapter[Any]:
    _refuse_misplaced_field(name, parameter)
    if _has_enum_literal(parameter.annotation):
        raise ToolDefinitionError(
            f"tool {name!r}: the type of parameter {parameter.name!r} is a Literal of enum members, which pydantic "
            "cannot read from JSON. Use the enum itself, or a Literal of its values."
        )
    if get_origin(parameter.annotation) in (Final, ClassVar):
        raise ToolDefinitionError(
            f"tool {name!r}: parameter {parameter.name!r} is Final or a ClassVar, which is for variables. Write the "
            "type that is inside it."
        )
    try:
        adapter = _built(parameter.annotation)
        adapter.json_schema(schema_generator=_Generator)
    except SchemaError as failure:
        problem = " ".join(str(failure).split()).removesuffix(".")
        raise ToolDefinitionError(
            f"tool {name!r}: a constraint on parameter {parameter.name!r} cannot be checked: {problem}. Mend it in "
            "Annotated[…, Field(…)]."
        ) from failure
    except _NoSchema as failure:
        raise ToolDefinitionError(
            f"tool {name!r}: the type of parameter {parameter.name!r} has no JSON Schema: {_first_line(failure)} "
            "Use JSON types, dataclasses, TypedDicts, enums or pydantic models."
        ) from failure
    return adapter


def _built(annotation: Any) -> TypeAdapter[Any]:
    """An adapter with the binder's configuration, unless the type has its own, as a model has."""
    try:
        return TypeAdapter(annotation, config=CONFIG)
    except PydanticUserError as failure:
        if failure.code != "type-adapter-config-unused":
            raise
    return TypeAdapter(annotation)


def _has_enum_literal(annotation: object) -> bool:
    members = get_args(annotation)
    if get_origin(annotation) is Literal:
        return any(isinstance(member, Enum) for member in members)
    return any(_has_enum_literal(member) for member in members)


def _refuse_misplaced_field(name: str, parameter: Parameter) -> None:
    where = f"tool {name!r}: parameter {parameter.name!r}"
    if isinstance(parameter.default, FieldInfo):
        raise ToolDefinitionError(
            f"{where} has a Field as its default. Write `{parameter.name}: Annotated[<type>, Field(…)]`, and the "
            "default itself after `=`."
        )
    for extra in get_args(parameter.annotation)[1:]:
        if isinstance(extra, FieldInfo) and not extra.is_required():
            raise ToolDefinitionError(f"{where} has its default in Field(…). Write it after `=` in the signature.")
        if isinstance(extra, FieldInfo) and (extra.alias or extra.validation_alias):
            raise ToolDefinitionError(f"{where} has an alias. Give the parameter that name itself.")


def _default(name: str, parameter: Parameter, adapter: TypeAdapter[Any]) -> Any:
    try:
        return adapter.dump_python(adapter.validate_python(parameter.default), mode="json")
    except ValidationError as failure:
        problem = failure.errors(include_url=False)[0]["msg"]
        remedy = f"Write `{parameter.name}: … | None`." if parameter.default is None else "Change one of them."
        raise ToolDefinitionError(
            f"tool {name!r}: the default of parameter {parameter.name!r}, {parameter.default!r}, does not fit its "
            f"type: {problem}. {remedy}"
        ) from failure
    except PydanticSerializationError as failure:
        raise ToolDefinitionError(
            f"tool {name!r}: the default of parameter {parameter.name!r}, {parameter.default!r}, is not JSON data. "
            "Use None and make the object in the function."
        ) from failure


def object_schema(name: str, kind: Any) -> dict[str, Any]:
    """The schema of a type whose values are JSON objects, with type "object" at its root; else ToolDefinitionError."""
    said = getattr(kind, "__name__", repr(kind))
    try:
        schema = TypeAdapter[Any](kind).json_schema(mode="validation", by_alias=True, schema_generator=_JsonTypes)
    except _NoSchema as failure:
        reason = str(failure).partition("\n")[0].rstrip(".")
        raise ToolDefinitionError(
            f"tool {name!r}: its parameters, {said}, have no JSON Schema: {reason}. "
            "Pass a pydantic model, a dataclass or a TypedDict of types that have one."
        ) from failure
    root = schema
    if "$ref" in schema:  # the schema of a model that contains itself is a $ref; providers want an object at the root
        definitions = cast("dict[str, Any]", schema["$defs"])
        root = {**definitions[schema["$ref"].removeprefix("#/$defs/")], "$defs": definitions}
    if (root.get("type") != "object" and not ("oneOf" in root or "anyOf" in root)) or kind is Any:
        raise ToolDefinitionError(
            f"tool {name!r}: its parameters are {said}, whose JSON is no object, and arguments always are one. "
            "Put it into a dataclass, a TypedDict or a pydantic model, as a field with a name."
        )
    return {"type": "object", **root}


def closed(schema: dict[str, Any], kind: Any) -> dict[str, Any]:
    """The schema of `kind`, by which names that are no field are refused, as they are of a function's parameters. It
    stays as it is if `kind` says what becomes of them, or takes fields by other names than the schema's."""
    kind = plain_type(kind)
    config: dict[str, Any] = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", None) or {}
    decorators = getattr(kind, "__pydantic_decorators__", None)
    before = decorators is not None and any(one.info.mode != "after" for one in decorators.model_validators.values())
    renamed = set(schema.get("properties", ())) != set(fields_of(kind) or ())
    if "extra" in config or "additionalProperties" in schema or before or renamed:
        return schema
    return {**schema, "additionalProperties": False}


def other_names(kind: Any, name: str) -> set[str]:
    """The names besides `name` from which a field of `kind` takes its value: its own, aliases, and the first names of
    alias paths."""
    found: set[str] = set()
    waiting: list[object] = [TypeAdapter[Any](kind).core_schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            values = cast("dict[str, object]", node)
            names = {str(values.get("name", name)), *_aliases(values.get("validation_alias"))}
            waiting += [
                {"name": key, **cast("dict[str, object]", each)} if isinstance(each, dict) else each
                for key, each in values.items()
            ]
            found |= names if name in names and "validation_alias" in values else set()
        elif isinstance(node, list):
            waiting += cast("list[object]", node)
    return found - {name}


def _aliases(given: Any) -> list[str]:
    """The first names in the `validation_alias` of a core schema: a name, a path, or a list of paths."""
    if given is None or isinstance(given, str):
        return [given] if given else []
    paths: list[list[Any]] = given if isinstance(given[0], list) else [given]
    return [str(path[0]) for path in paths]


def returned_schema(annotation: object) -> dict[str, Any] | None:
    """The schema of results if the return annotation is a model, dataclass or TypedDict with a schema, else None."""
    if not isinstance(annotation, type) or issubclass(annotation, ToolResult):
        return None
    kind = cast("type[Any]", annotation)
    if not (issubclass(kind, BaseModel) or is_dataclass(kind) or is_typeddict(kind)):
        return None
    try:
        return TypeAdapter[Any](kind).json_schema(mode="serialization", schema_generator=EncodedSchema)
    except _NoSchema:  # a schema of results is optional
        return None


def schema_of(name: str, option: str, given: Any) -> dict[str, Any]:
    """`given` if it is a JSON Schema, else the JSON Schema of what the type `given` serialises to."""
    if isinstance(given, Mapping):
        return check_any_schema(name, option, cast("Mapping[str, Any]", given))
    try:
        return TypeAdapter[Any](given).json_schema(mode="serialization", schema_generator=EncodedSchema)
    except (PydanticUserError, PydanticUndefinedAnnotation, NameError, TypeError) as failure:
        reason = str(failure).partition("\n")[0].rstrip(".")
        raise ToolDefinitionError(
            f"tool {name!r}: {option}={given!r} has no JSON Schema: {reason}. "
            "Pass a JSON Schema, or a type that has one."
        ) from failure


def given_schema(name: str, derived: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
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


class EncodedSchema(GenerateJsonSchema):
    """The JSON Schema of a type as `encode` sends it, which differs from pydantic's serialisation for a few types.

    Pass this class as `schema_generator`. Bytes are `{"base64", "size"}` outside models. A Decimal may have an
    exponent: pydantic's serialiser writes it, although pydantic's pattern does not allow it.
    """

    def bytes_schema(self, schema: core_schema.BytesSchema) -> dict[str, Any]:
        sent: dict[str, Any] = {
            "type": "object",
            "properties": {"base64": {"type": "string", "contentEncoding": "base64"}, "size": {"type": "integer"}},
            "required": ["base64", "size"],
        }
        return {"anyOf": [sent, {"type": "string"}]}  # a model writes its bytes as text

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> dict[str, Any]:
        return {"type": "string"} if self.mode == "serialization" else super().decimal_schema(schema)


def _first_line(failure: Exception) -> str:
    """The first line of the message; the others are pydantic's advice to its own users."""
    return str(failure).partition("\n")[0].partition(" Set `")[0].rstrip(".") + "."
