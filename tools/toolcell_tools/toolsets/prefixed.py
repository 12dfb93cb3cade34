"""A prefix for every name of a toolset."""

from collections.abc import Sequence

from toolcell_tools.session_info import SessionInfo

from .base import AnyTool, Toolset, Variants, Wrapper

__all__ = ["Prefixed"]


class Prefixed(Wrapper):
    """`<prefix>_<name>` for each tool."""

    def __init__(self, wrapped: Toolset, prefix: str) -> None:
        super().__init__(wrapped)
        self._prefix = prefix
        self._variants = Variants()

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        return [self._variants.of(tool, self._renamed) for tool in await self.wrapped.tools(session)]

    def _renamed(self, tool: AnyTool) -> AnyTool:
        return tool.replace(name=f"{self._prefix}_{tool.name}")
