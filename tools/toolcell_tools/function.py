"""`tool`: the decorator that makes a Tool of a function; `as_tool`: the same for whatever a user hands over."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ParamSpec, TypeVar, Unpack, cast, overload

from .definition import Tool
from .failures import ToolDefinitionError
from .options import ToolOptions
from .provider import ProviderTool

if TYPE_CHECKING:
    from .typed import TypedTool

__all__ = ["as_tool", "deriving", "tool"]

P = ParamSpec("P")
R = TypeVar("R")

deriving: bool = os.environ.get("TOOLCELL_IN_CELL") != "1"
"""Whether `tool` checks and derives the declaration at once. Cells import tools that the supervisor's process has
checked, and must not spend 100 ms on pydantic and griffe to do it again; the cell's runner sets this to False."""


@overload
def tool(fn: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(fn: None = None, /, **options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    fn: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """A Tool of `fn`: `@tool`, `@tool(needs={Capability.WRITE})` or `tool(fn, name="…")`.

    Name and description come from the function, the parameters schema from its types and docstring, the tier from what
    it needs and uses. Raises ToolDefinitionError, which says how to mend the definition.
    """
    if fn is not None:
        return _made(fn, options, _locals_above() if deriving else None)

    def decorate(decorated: Callable[P, R]) -> Tool[P, R]:
        return _made(decorated, options, _locals_above() if deriving else None)

    return decorate


def _made(fn: Callable[P, R], options: ToolOptions, localns: Mapping[str, object] | None) -> Tool[P, R]:
    if isinstance(fn, Tool):
        raise ToolDefinitionError(f"{fn.name!r} is a tool already. Pass its function: tool({fn.name}.fn, …).")
    if not callable(fn):
        raise ToolDefinitionError(f"{fn!r} is not a function. Write @tool above a def, or tool(fn, …).")
    return Tool(fn, **options, derive=deriving, localns=localns)


def _locals_above() -> Mapping[str, object]:
    """The locals where `tool` was called: annotations may name types that are defined in the same function."""
    return sys._getframe(2).f_locals  # pyright: ignore[reportPrivateUsage]


def as_tool(obj: object) -> Tool[..., object]:
    """`obj` itself if it is a Tool, the Tool of a TypedTool, a Tool of any other callable; else ToolDefinitionError."""
    if isinstance(obj, Tool):
        return cast("Tool[..., object]", obj)
    typed = sys.modules.get("toolcell_tools.typed")  # not imported: then nothing here is a TypedTool
    if typed is not None:
        if isinstance(obj, typed.TypedTool):
            return cast("TypedTool[object]", obj).tool
        if isinstance(obj, type) and issubclass(obj, typed.TypedTool):
            raise ToolDefinitionError(f"{obj.__name__} is the class of a tool. Pass an instance: {obj.__name__}().")
    if isinstance(obj, ProviderTool):
        raise ToolDefinitionError(f"{obj.name!r} is run by its provider, {obj.provider}, and cannot be run here.")
    if not callable(obj) or isinstance(obj, type):
        raise ToolDefinitionError(f"{obj!r} is not a tool and not a function. Pass a Tool or a plain function.")
    return tool(obj)
