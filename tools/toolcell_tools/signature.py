"""A function's parameters, and how JSON arguments become them. No schema is derived here: a cell needs no more than
this of a tool's definition.

Which arguments to convert is decided once for each tool. Plain JSON types pass unchanged, and only richer types need
pydantic, which is imported when one is met.
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from types import MethodType, NoneType, SimpleNamespace, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ForwardRef,
    Literal,
    NamedTuple,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from .context import ToolContext
from .failures import ToolDefinitionError

if TYPE_CHECKING:
    from pydantic import ConfigDict, GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema

__all__ = [
    "CONFIG",
    "MISSING",
    "Binder",
    "LazyField",
    "Parameter",
    "context_parameter",
    "fields_of",
    "is_async",
    "is_generator",
    "parameters",
    "plain_type",
    "plainness",
    "underlying",
    "whole_parameter",
]

_COROUTINE = 0x80  # inspect.CO_COROUTINE
_GENERATORS = 0x20 | 0x200  # inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


class _Missing(Enum):  # an Enum, because its members keep their identity through pickle
    MISSING = "MISSING"


MISSING = _Missing.MISSING


class Parameter(NamedTuple):
    """A parameter that the model fills in. `default` is MISSING if the parameter is required."""

    name: str
    annotation: Any
    default: Any


def underlying(fn: Callable[..., object]) -> Callable[..., object]:
    """The plain function inside partials, bound methods, callable objects and `functools.wraps`."""
    while True:
        if isinstance(fn, partial):
            fn = cast("Callable[..., object]", fn.func)  # pyright: ignore[reportUnknownMemberType]
        elif isinstance(fn, MethodType):
            fn = fn.__func__
        elif hasattr(fn, "__wrapped__"):
            fn = cast("Callable[..., object]", fn.__wrapped__)  # pyright: ignore[reportFunctionMemberAccess]
        elif not hasattr(fn, "__code__") and hasattr(type(fn).__call__, "__code__"):
            fn = type(fn).__call__
        else:
            return fn


def is_async(fn: Callable[..., object]) -> bool:
    """Whether a call of `fn` itself returns a coroutine."""
    return bool(_flags(fn) & _COROUTINE)


def is_generator(fn: Callable[..., object]) -> bool:
    """Whether a call of `fn` itself returns a generator, plain or async."""
    return bool(_flags(fn) & _GENERATORS)


def _flags(fn: Callable[..., object]) -> int:
    while isinstance(fn, (partial, MethodType)):
        fn = cast("Callable[..., object]", fn.func if isinstance(fn, partial) else fn.__func__)  # pyright: ignore[reportUnknownMemberType]
    code = getattr(fn, "__code__", None) or getattr(type(fn).__call__, "__code__", None)
    return int(getattr(code, "co_flags", 0))


def context_parameter(name: str, fn: Callable[..., object], kind: type = ToolContext) -> str | None:
    """The parameter that is annotated as a context of `kind`, also as a string or with `| None`, or None.

    Raises ToolDefinitionError for two of them.
    """
    annotations: Mapping[str, object] = getattr(underlying(fn), "__annotations__", {})
    found = [key for key, annotation in annotations.items() if key != "return" and _is_context(annotation, kind)]
    if len(found) > 1:
        raise ToolDefinitionError(f"tool {name!r} takes two contexts, {found[0]!r} and {found[1]!r}. Keep one.")
    return found[0] if found else None


def _is_context(annotation: object, kind: type) -> bool:
    if isinstance(annotation, type):
        return issubclass(annotation, kind)
    if isinstance(annotation, str):
        words = set(re.split(r"[|\[\],\s'\"]+", annotation)) - {"", "None"}
        names = {word.rpartition(".")[2] for word in words} - {"Optional", "Union"}
        return names == {kind.__name__}
    if isinstance(annotation, ForwardRef):
        return _is_context(annotation.__forward_arg__, kind)
    members = get_args(annotation)
    return NoneType in members and len(members) == 2 and any(_is_context(member, kind) for member in members)


def parameters(
    name: str, fn: Callable[..., object], context: str | None, localns: Mapping[str, object] | None = None
) -> tuple[Parameter, ...]:
    """The parameters of `fn` without its context, annotations resolved. Raises ToolDefinitionError for an unfit one."""
    from inspect import Signature, signature

    try:
        found = signature(fn).parameters.values()
    except (TypeError, ValueError) as failure:
        raise ToolDefinitionError(
            f"tool {name!r}: no signature can be read ({failure}). Wrap it in a def."
        ) from failure
    for one in found:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            stars = "*" if one.kind is one.VAR_POSITIONAL else "**"
            raise ToolDefinitionError(
                f"tool {name!r}: {stars}{one.name} has no schema. Name each argument, or take one list or dict."
            )
        if one.kind is one.POSITIONAL_ONLY:
            raise ToolDefinitionError(
                f"tool {name!r}: parameter {one.name!r} is positional-only, and models pass arguments by name. "
                "Remove the '/' from the signature."
            )
        if one.annotation is Signature.empty:
            raise ToolDefinitionError(f"tool {name!r}: parameter {one.name!r} has no type. {_untyped_remedy(one.name)}")
    namespace: dict[str, object] = getattr(underlying(fn), "__globals__", {})
    return tuple(
        Parameter(
            one.name,
            evaluated(name, one.name, one.annotation, namespace, localns),
            MISSING if one.default is Signature.empty else one.default,
        )
        for one in found
        if one.name != context
    )


def _untyped_remedy(parameter: str) -> str:
    if parameter in {"self", "cls"}:
        return "Wrap the bound method instead: tool(obj.method)."
    if parameter in {"ctx", "context"}:
        return f"Write `{parameter}: ToolContext`."
    return f"Write for example `{parameter}: str`."


def evaluated(
    name: str, parameter: str, annotation: object, namespace: dict[str, Any], localns: Mapping[str, object] | None
) -> Any:
    """`annotation` with every string in it resolved. `Annotated` is kept."""
    holder = SimpleNamespace(__annotations__={parameter: annotation})
    try:
        return get_type_hints(holder, namespace, dict(localns or {}), include_extras=True)[parameter]
    except NameError as failure:
        raise ToolDefinitionError(
            f"tool {name!r}: the type of {parameter!r} is {annotation!r}, and {failure}. "
            "Import or define it at module level, outside `if TYPE_CHECKING`."
        ) from failure
    except (TypeError, SyntaxError, AttributeError) as failure:
        raise ToolDefinitionError(
            f"tool {name!r}: the type of {parameter!r}, {annotation!r}, is not a type ({failure})."
        ) from failure


class LazyField:
    """`pydantic.Field(description=…, **restrictions)`, made when a schema is derived. A cell never derives one."""

    __slots__ = ("description", "restrictions")

    def __init__(self, description: str, **restrictions: object) -> None:
        self.description = description
        self.restrictions = restrictions

    def __get_pydantic_core_schema__(self, source: Any, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        from pydantic import Field

        restrictions: dict[str, Any] = self.restrictions
        return handler.generate_schema(Annotated[source, Field(description=self.description, **restrictions)])


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
    kind = plain_type(annotation)
    if kind is None:
        return None
    if getattr(kind, "__pydantic_root_model__", None) is False:
        return kind.model_fields  # type: ignore[attr-defined]
    if dict in kind.__bases__ and hasattr(kind, "__total__"):
        return kind.__annotations__
    return getattr(kind, "__dataclass_fields__", None)


def plain_type(annotation: Any) -> type | None:
    """The class inside `Annotated` and before type arguments; None for a union, a Literal and whatever is no class."""
    while get_origin(annotation) is not None:
        if get_origin(annotation) in (Union, UnionType, Literal):
            return None
        annotation = annotation.__origin__
    return annotation if isinstance(annotation, type) else None


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
