"""Turn validated JSON arguments into a function's keyword arguments. Which to convert is decided once per tool."""

from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, cast, get_args, get_origin

from .lazy import LazyField
from .signature import MISSING, Parameter

if TYPE_CHECKING:
    from pydantic import ConfigDict, TypeAdapter

__all__ = ["CONFIG", "Binder", "Plainness", "plainness"]

CONFIG: "ConfigDict" = {"val_json_bytes": "base64", "ser_json_bytes": "base64", "ser_json_inf_nan": "constants"}
"""pydantic's configuration for arguments whose type has none: bytes are base64, as in results."""

Plainness = Literal["json", "int", "float", None]


class Binder:
    """Converts one tool's arguments: some pass unchanged, some are numbers to convert, pydantic makes the rest.

    JSON has one kind of number: `1.0` is a valid integer and `1` a valid number. So top-level ints and floats are
    converted to the type of the annotation.
    """

    __slots__ = ("_adapter", "_converted", "_numbers", "_whole", "converts")

    def __init__(self, parameters: tuple[Parameter, ...]) -> None:
        self._whole = whole_parameter(parameters)
        kinds = {parameter.name: plainness(parameter.annotation) for parameter in parameters}
        self._numbers = [(name, kind == "int") for name, kind in kinds.items() if kind in ("int", "float")]
        rich = {one.name: one.annotation for one in parameters if kinds[one.name] is None}
        self._converted = tuple(rich)
        self._adapter = _adapter(self._whole.annotation if self._whole else _typed_dict(rich)) if rich else None
        self.converts = bool(self._numbers or rich)  # whether any argument needs conversion

    def convert(self, bound: dict[str, Any]) -> None:
        """Convert the arguments to the function's types. Raises pydantic's ValidationError with the parameter."""
        if self._whole is not None:
            from pydantic_core import to_json

            name = self._whole.name
            value = bound[name] if bound.keys() == {name} and name not in fields_of(self._whole.annotation) else bound
            made = cast("TypeAdapter[Any]", self._adapter).validate_json(to_json(value))
            bound.clear()
            bound[name] = made
            return
        for name, integer in self._numbers:
            value = bound.get(name)
            if integer:
                if type(value) is float:
                    bound[name] = int(value)
            elif type(value) is int:
                bound[name] = float(value)
        if self._adapter is not None:
            from pydantic_core import to_json

            rich = {name: bound[name] for name in self._converted if name in bound}
            if rich:
                # Through JSON text, so that strict models take a date from a string, as the schema promises.
                bound.update(self._adapter.validate_json(to_json(rich)))


def _adapter(annotation: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter[Any](annotation)


def _typed_dict(annotations: dict[str, Any]) -> Any:
    """One type for all parameters, a TypedDict: unlike a model, it takes any name, and errors carry the name."""
    from typing_extensions import TypedDict

    typed_dict: Any = TypedDict
    made = typed_dict("Arguments", annotations, total=False)
    made.__pydantic_config__ = CONFIG
    return made


def whole_parameter(parameters: tuple[Parameter, ...]) -> Parameter | None:
    """The parameter whose fields are the arguments, or None: the only one, required, and a pydantic model, a dataclass
    or a TypedDict. Arguments by the parameter's own name bind too, for an author's schema that has it."""
    if len(parameters) == 1 and parameters[0].default is MISSING and fields_of(parameters[0].annotation) is not None:
        return parameters[0]
    return None


def fields_of(annotation: Any) -> Any:
    """The names of the fields of a pydantic model, a dataclass or a TypedDict; None for another type."""
    while get_origin(annotation) is not None:
        if get_origin(annotation) in (Union, UnionType, Literal):
            return None
        annotation = annotation.__origin__
    if not isinstance(annotation, type):
        return None
    if getattr(annotation, "__pydantic_root_model__", None) is False:
        return annotation.model_fields  # type: ignore[attr-defined]
    if dict in annotation.__bases__ and hasattr(annotation, "__total__"):
        return annotation.__annotations__
    return getattr(annotation, "__dataclass_fields__", None)


def plainness(annotation: object) -> Plainness:
    """How JSON data becomes a value of `annotation`: "json" if it is one already, "int" or "float" if only the kind of
    number may differ, None if pydantic has to convert it."""
    if annotation is int:
        return "int"
    if annotation is float:
        return "float"
    if annotation in _JSON_TYPES:
        return "json"
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        if not all(type(member) in _JSON_SCALARS for member in members):
            return None
        return "int" if any(type(member) is int for member in members) else "json"
    if origin is list or origin is dict:
        # Numbers inside containers are left to pydantic, which settles them in one pass.
        return "json" if all(plainness(member) == "json" for member in members) else None
    if origin is Annotated:
        return plainness(members[0]) if all(_only_restricts(extra) for extra in members[1:]) else None
    if origin is Union or origin is UnionType:
        return _union_plainness([plainness(member) for member in members])
    return None


_JSON_SCALARS = frozenset({str, int, float, bool, NoneType})
_JSON_TYPES: tuple[object, ...] = (str, bool, None, NoneType, Any, object, dict, list)


def _union_plainness(kinds: list[Plainness]) -> Plainness:
    if None in kinds:
        return None
    if "int" in kinds and "float" in kinds:
        return "json"
    return "int" if "int" in kinds else "float" if "float" in kinds else "json"


def _only_restricts(extra: object) -> bool:
    """Whether the JSON schema, which was checked before, expresses everything that this metadata says."""
    if isinstance(extra, (str, LazyField)):
        return True
    module, name = type(extra).__module__, type(extra).__name__
    if module == "annotated_types":
        return name in _RESTRICTIONS
    if module == "pydantic.fields" and name == "FieldInfo":
        return all(_only_restricts(one) for one in cast("list[object]", getattr(extra, "metadata", [])))
    # Field(pattern=…) leaves an object of a private class of pydantic. So does Field(strict=…), which does more.
    return module.startswith("pydantic.") and name == "_PydanticGeneralMetadata" and set(vars(extra)) <= {"pattern"}


_RESTRICTIONS = frozenset({"Ge", "Gt", "Le", "Lt", "Interval", "MultipleOf", "MinLen", "MaxLen", "Len"})
