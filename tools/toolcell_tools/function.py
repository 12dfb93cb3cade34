"""`tool`: the decorator that makes a Tool of a function."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar, Unpack, overload

from .definition import Tool
from .failures import ToolDefinitionError
from .options import ToolOptions

__all__ = ["deriving", "tool"]

P = ParamSpec("P")
R = TypeVar("R")

deriving: bool = os.environ.get("TOOLCELL_IN_CELL") != "1"
"""Whether `tool` derives and checks the declaration at once. The cell's runner sets this to False: the supervisor's
process has checked the tools, and a cell must not spend 100 ms on pydantic and griffe to do it again."""


@overload
def tool(fn: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(fn: None = None, /, **options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    fn: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a Tool of `fn`: `@tool`, `@tool(needs={Capability.WRITE})` or `tool(fn, name="…")`.

    Name and description come from the function, the parameters schema from its types and docstring, the tier from its
    `needs` and `uses`. Raises ToolDefinitionError, which says how to correct the definition.
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
    """The locals of the caller of `tool`. Annotations may name types that are defined in the same function."""
    return sys._getframe(2).f_locals  # pyright: ignore[reportPrivateUsage]
