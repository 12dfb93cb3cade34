"""A toolset whose calls need approval."""

from collections.abc import Callable, Sequence

from toolcell_tools.session_info import SessionInfo

from .base import AnyTool, Toolset, Variants, Wrapper

__all__ = ["ApprovalRequired"]


class ApprovalRequired(Wrapper):
    """Requires approval for calls of a toolset's tools: all calls, or those for which `when` returns True."""

    def __init__(self, wrapped: Toolset, when: Callable[[SessionInfo, AnyTool], bool] | None = None) -> None:
        super().__init__(wrapped)
        self._when = when
        self._variants = Variants()

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        when = self._when
        return [
            self._variants.of(tool, _guarded) if when is None or when(session, tool) else tool
            for tool in await self.wrapped.tools(session)
        ]


def _guarded(tool: AnyTool) -> AnyTool:
    return tool.replace(requires_approval=True)
