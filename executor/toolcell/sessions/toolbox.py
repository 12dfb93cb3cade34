"""Which tools a session has: those of the supervisor, and what its toolsets offer to this session."""

from collections.abc import Mapping, Sequence
from typing import Any

from toolcell_tools.definition import Tool
from toolcell_tools.session_info import SessionInfo
from toolcell_tools.toolsets import Toolset, resolve

from .modules import source_of

AnyTool = Tool[..., Any]


class Toolbox:
    """The static tools are always there. Toolsets are asked by `refresh`, before each request to a model; a call finds
    what the last answer was, and asks once more before a name counts as unknown."""

    def __init__(self, static: Mapping[str, AnyTool], toolsets: Sequence[Toolset], session: SessionInfo) -> None:
        self._static = static
        self._toolsets = toolsets
        self._session = session
        self._offered: dict[str, AnyTool] = {}

    @property
    def known(self) -> Mapping[str, AnyTool]:
        """What was offered when it was last asked."""
        return {**self._static, **self._offered}

    async def refresh(self) -> Mapping[str, AnyTool]:
        """Ask every toolset. Raises ToolsetError, and then the last answer stands."""
        if self._toolsets:
            found = await resolve(self._static.values(), self._toolsets, self._session)
            self._offered = {name: tool for name, tool in found.items() if name not in self._static}
        return self.known

    async def find(self, name: str) -> AnyTool | None:
        """The tool of this name; None where there is none. Raises ToolsetError."""
        found = self._static.get(name) or self._offered.get(name)
        if found is None and self._toolsets:
            found = (await self.refresh()).get(name)
        return found

    def mates(self, tool: AnyTool) -> Sequence[AnyTool]:
        """The tools that may share a cell with this one: those that come from where it comes from. A stranger's module
        is imported next to nothing but itself."""
        found = self._static.values() if self._static.get(tool.name) is tool else self._offered.values()
        return [mate for mate in found if source_of(mate) == source_of(tool)]
