"""The tools of a session: those of the supervisor, and those that toolsets offer to this session."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from toolcell_tools.definition import Tool
from toolcell_tools.outside_cells import ProviderTool
from toolcell_tools.toolsets import Toolset, resolve

from .data import SessionData
from .foreign import source_of

AnyTool = Tool[..., Any]


class Toolbox:
    """The tools of one session: the static tools, and those that the toolsets offer.

    `refresh` asks the toolsets, before each request to a model. A call uses the tools of the last refresh; for an
    unknown name, it refreshes once more. An untrusted module that claims the name of another tool is left out, and
    `on_refused(stranger, why)` is called. `on_offered(names)` is called with the names of the offered tools."""

    def __init__(
        self,
        static: Mapping[str, AnyTool],
        of_providers: Mapping[str, ProviderTool],
        toolsets: Sequence[Toolset],
        data: SessionData,
        on_refused: Callable[[str, str], None],
        on_offered: Callable[[Iterable[str]], None],
    ) -> None:
        self._static = static
        self._of_providers = of_providers
        self._toolsets = toolsets
        self._data = data
        self._on_refused = on_refused
        self._on_offered = on_offered
        self._offered: dict[str, AnyTool] = {}
        self._refused: dict[str, str] = {}

    @property
    def known(self) -> Mapping[str, AnyTool]:
        """The tools that were offered at the last refresh."""
        return {**self._static, **self._offered}

    async def refresh(self) -> Mapping[str, AnyTool]:
        """Ask every toolset. If this raises ToolsetError, the last answer stays in use."""
        if self._toolsets:
            refused: dict[str, str] = {}
            named: list[AnyTool | ProviderTool] = [*self._static.values(), *self._of_providers.values()]
            found = await resolve(named, self._toolsets, self._data.info, refused.__setitem__)
            for stranger, why in refused.items() - self._refused.items():  # reported once, not at every request
                self._on_refused(stranger, why)
            self._refused = refused
            self._offered = {name: tool for name, tool in found.items() if name not in self._static}
            self._on_offered(self._offered)
        return self.known

    def found(self, name: str) -> AnyTool | None:
        """The tool of this name among the known ones, or None."""
        return self._static.get(name) or self._offered.get(name)

    async def find(self, name: str) -> AnyTool | None:
        """The tool of this name, or None. Asks the toolsets if it is not known. Raises ToolsetError."""
        found = self.found(name)
        if found is None and self._toolsets:
            found = (await self.refresh()).get(name)
        return found

    def of_provider(self, name: str) -> ProviderTool | None:
        """The tool of this name that its provider runs, if there is one."""
        return self._of_providers.get(name)

    def mates(self, tool: AnyTool) -> Sequence[AnyTool]:
        """The tools that may share a cell with this one: those from the same source. An untrusted module shares a cell
        only with itself."""
        found = self._static.values() if self._static.get(tool.name) is tool else self._offered.values()
        source = source_of(tool)
        return [mate for mate in found if source_of(mate) == source]
