"""A fixed list of tools as a toolset, so that it can be wrapped or handed on."""

from collections.abc import Iterable, Sequence

from toolcell_tools.session_info import SessionInfo

from .base import AnyTool, ToolLike, Toolset, as_tools

__all__ = ["StaticToolset"]


class StaticToolset(Toolset):
    """The same tools for every session: `StaticToolset("files", [read, write])`."""

    def __init__(self, name: str, tools: Iterable[ToolLike]) -> None:
        self._name = name
        self._tools = as_tools(tools, name)

    def __repr__(self) -> str:
        return f"<StaticToolset {self._name} · {len(self._tools)} tools>"

    @property
    def name(self) -> str:
        return self._name

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        return self._tools
