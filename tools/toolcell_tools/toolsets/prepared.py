"""A toolset whose tools a function adapts to the session."""

from collections.abc import Callable, Sequence

from toolcell_tools.session_info import SessionInfo

from .base import AnyTool, Toolset, Wrapper

__all__ = ["Prepared"]


class Prepared(Wrapper):
    """Each tool as `prepare` returns it, such as a variant from `tool.replace(…)`. None leaves the tool out."""

    def __init__(self, wrapped: Toolset, prepare: Callable[[SessionInfo, AnyTool], AnyTool | None]) -> None:
        super().__init__(wrapped)
        self._prepare = prepare

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        prepared = (self._prepare(session, tool) for tool in await self.wrapped.tools(session))
        return [tool for tool in prepared if tool is not None]
