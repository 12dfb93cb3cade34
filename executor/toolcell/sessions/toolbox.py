"""The tools of a session: those of the supervisor, and those that toolsets offer to this session.

A model gets their declarations as they hold here: which capabilities reach nothing, because nothing is behind them, is
said or refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from toolcell.backends.protocols import MemoryStore, WebClient
from toolcell.rules.pages import ALL
from toolcell.rules.profile import Profile, pages_in_words
from toolcell_sandbox.network import NoNetwork, ProxyNetwork
from toolcell_tools.capability import Capability
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.definition import Tool
from toolcell_tools.outside_cells import ProviderTool
from toolcell_tools.toolsets import Toolset, resolve

from .foreign_tools import source_of
from .session_result import SessionData

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


NOTHING: frozenset[Capability] = frozenset()
SEARCHES = "searches"
"""The key in a tool's metadata which says that it needs a search engine, and not only the web."""
NO_ENGINE = "There is no search engine here, so that every call fails."
FETCHES = "fetches"
"""The key in a tool's metadata which says that it fetches pages by URL."""
REMEMBERS = "remembers"
"""The key in a tool's metadata which says that it stores records in the memory."""
NO_NETWORK = "It has no network."
KEPT = {
    True: "Records are kept on disk, also after this program has ended.",
    False: "Records are kept until the program that runs this agent ends, and no longer.",
}
"""How long a memory keeps records, by its attribute `durable`."""

_PAGES_CHARS = 400

WHY: Mapping[Capability, tuple[str, str]] = {
    Capability.NET: (
        "no network is set up for it, or no host is allowed there",
        "allow hosts in the profile's network",
    ),
    Capability.WEB: ("no page may be fetched", "list hosts in the profile's web rules"),
    Capability.HTTP: ("no host is listed for its requests", "list hosts and methods in the profile's http rules"),
}
"""Why nothing is reached, and the remedy for whoever runs the agent."""


def profile_of(tool: Tool[..., object], session: Profile) -> Profile:
    """The profile of the tool's cells in a session with this profile, before it is narrowed to the grants."""
    source = source_of(tool)
    return session if source is None else source.profile_in(session)


def out_of_reach(tool: Tool[..., object], profile: Profile) -> frozenset[Capability]:
    """The capabilities that the tool needs and that reach nothing here. A host tool needs no cell's network."""
    needs = tool.needs
    if not needs & WHY.keys():
        return NOTHING
    profile = profile_of(tool, profile)
    found: set[Capability] = set()
    if Capability.NET in needs and tool.placement == "cell" and _is_closed(profile):
        found.add(Capability.NET)
    if Capability.HTTP in needs and not profile.http:
        found.add(Capability.HTTP)
    if Capability.WEB in needs and not profile.web:
        found.add(Capability.WEB)
    return frozenset(found)


def as_offered(
    declaration: ToolDeclaration, profile: Profile, web: Callable[[], WebClient], memory: MemoryStore
) -> ToolDeclaration:
    """The declaration that a model gets. It says so where a search tool has no search engine, where the pages that may
    be fetched are limited, how long a memory lasts, and where a tool that may use the network has none."""
    description, metadata = declaration.description, declaration.metadata
    if metadata.get(REMEMBERS) is True and isinstance(kept := getattr(memory, "durable", None), bool):
        description = f"{description} {KEPT[kept]}"
    if metadata.get(FETCHES) is True and profile.web != ALL:
        description = f"{description}\n\nIt fetches only: {'; '.join(pages_in_words(profile))[:_PAGES_CHARS]}."
    if metadata.get(SEARCHES) is True and not getattr(web(), "can_search", True):
        description = f"{NO_ENGINE} {description}"
    if Capability.NET in declaration.uses and declaration.placement == "cell" and _is_closed(profile):
        description = f"{description}\n\n{NO_NETWORK}"
    if description == declaration.description:
        return declaration
    return declaration.model_copy(update={"description": description[:1024]})


def _is_closed(profile: Profile) -> bool:
    network = profile.network
    if isinstance(network, ProxyNetwork):
        return not (network.allow or network.allow_private)
    return isinstance(network, NoNetwork)
