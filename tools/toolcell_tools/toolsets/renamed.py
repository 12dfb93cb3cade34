"""Other names for some of a toolset's tools."""

from collections.abc import Mapping, Sequence

from toolcell_tools.session_info import SessionInfo

from .base import AnyTool, Toolset, ToolsetError, Variants, Wrapper

__all__ = ["Renamed"]


class Renamed(Wrapper):
    """Renames tools. `names` is new name → old name; a tool that is not listed keeps its name."""

    def __init__(self, wrapped: Toolset, names: Mapping[str, str]) -> None:
        super().__init__(wrapped)
        self._new = {old: new for new, old in names.items()}
        self._variants = Variants()

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        found = await self.wrapped.tools(session)
        unknown = self._new.keys() - {tool.name for tool in found}
        if unknown:
            names = ", ".join(tool.name for tool in found)
            raise ToolsetError(
                f"it has no tool named {min(unknown)!r} to rename. It has: {names or 'none'}.", self.name
            )
        return [self._variants.of(tool, self._renamed) if tool.name in self._new else tool for tool in found]

    def _renamed(self, tool: AnyTool) -> AnyTool:
        return tool.replace(name=self._new[tool.name])
