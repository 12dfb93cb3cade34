"""Inspect a function without deriving a schema. This is the only part of a tool's definition that a cell runs."""

import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from types import MethodType, NoneType, SimpleNamespace
from typing import Any, ForwardRef, NamedTuple, cast, get_args, get_type_hints

from .context import ToolContext
from .failures import ToolDefinitionError

__all__ = ["MISSING", "Parameter", "context_parameter", "is_async", "parameters", "underlying"]

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
