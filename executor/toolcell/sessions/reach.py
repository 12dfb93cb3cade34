"""Which capabilities of a tool reach nothing in a session: granted, and with nothing behind them."""

from collections.abc import Callable, Mapping

from toolcell.backends.protocols import MemoryStore, WebClient
from toolcell.rules.pages import ALL
from toolcell.rules.profile import Profile, pages_in_words
from toolcell_sandbox.network import NoNetwork, ProxyNetwork
from toolcell_tools.capability import Capability
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.definition import Tool

from .foreign import source_of

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
"""Why nothing is reached, and what whoever runs the agent can do."""


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
