"""A toolset made of a function that is called each time."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence

from toolcell_tools.session_info import SessionInfo
from toolcell_tools.typed import as_tool

from .base import AnyTool, ToolLike, Toolset, Variants, as_tools

__all__ = ["FunctionToolset", "toolset"]

Resolve = Callable[[SessionInfo], "Iterable[ToolLike] | Awaitable[Iterable[ToolLike]]"]


class FunctionToolset(Toolset):
    """The tools that `resolve(session)` returns. `resolve` may be async. Each plain function is wrapped once."""

    def __init__(self, name: str, resolve: Resolve) -> None:
        self._name = name
        self._resolve = resolve
        self._wrapped = Variants()

    def __repr__(self) -> str:
        return f"<FunctionToolset {self._name}>"

    @property
    def name(self) -> str:
        return self._name

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        found = self._resolve(session)
        if inspect.isawaitable(found):
            found = await found
        return as_tools((self._wrapped.of(one, as_tool) for one in found), self._name)


def toolset(resolve: Resolve) -> FunctionToolset:
    """Make a toolset of a function, with the function's name. Write `@toolset` above it."""
    return FunctionToolset(resolve.__name__, resolve)
