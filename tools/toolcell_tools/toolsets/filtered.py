"""Some of a toolset's tools."""

from collections.abc import Callable, Iterable, Sequence

from toolcell_tools.session_info import SessionInfo

from .base import AnyTool, Toolset, ToolsetError, Wrapper

__all__ = ["Filtered"]


class Filtered(Wrapper):
    """Keeps tools by name, or by a predicate of session and tool. A name that the toolset does not have is an error."""

    def __init__(self, wrapped: Toolset, keep: Iterable[str] | Callable[[SessionInfo, AnyTool], bool]) -> None:
        super().__init__(wrapped)
        self._predicate = keep if callable(keep) else None
        self._names = frozenset[str]() if callable(keep) else frozenset(keep)

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        found = await self.wrapped.tools(session)
        predicate = self._predicate
        if predicate is not None:
            return [tool for tool in found if predicate(session, tool)]
        unknown = self._names - {tool.name for tool in found}
        if unknown:
            names = ", ".join(tool.name for tool in found)
            raise ToolsetError(f"it has no tool named {min(unknown)!r} to keep. It has: {names or 'none'}.", self.name)
        return [tool for tool in found if tool.name in self._names]
