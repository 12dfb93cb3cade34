"""The broker's access to the outside world: protocols to implement, and a default for memory, web and HTTP.

Backends run in the supervisor's process and are trusted. Their arguments come from a tool and are not trusted.
Importing this package loads nothing; each name loads its module on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolcell.backends.http.client import BrokeredHttp
    from toolcell.backends.memory import SQLiteMemory
    from toolcell.backends.protocols import (
        BackendError,
        Channel,
        ChannelMessage,
        FetchedPage,
        FullChannel,
        HttpClient,
        HttpReply,
        HttpRequest,
        MemoryRecord,
        MemoryStore,
        NotConfigured,
        OutsideRules,
        Refused,
        SearchHit,
        SearchProvider,
        Unreachable,
        WebClient,
    )
    from toolcell.backends.search import BraveSearch, SearXNG, StaticSearch, TavilySearch
    from toolcell.backends.web import PublicWeb

__all__ = [
    "BackendError",
    "BraveSearch",
    "BrokeredHttp",
    "Channel",
    "ChannelMessage",
    "FetchedPage",
    "FullChannel",
    "HttpClient",
    "HttpReply",
    "HttpRequest",
    "MemoryRecord",
    "MemoryStore",
    "NotConfigured",
    "OutsideRules",
    "PublicWeb",
    "Refused",
    "SQLiteMemory",
    "SearXNG",
    "SearchHit",
    "SearchProvider",
    "StaticSearch",
    "TavilySearch",
    "Unreachable",
    "WebClient",
]

_MODULES = {
    "BrokeredHttp": "http.client",
    "PublicWeb": "web",
    "SQLiteMemory": "memory",
    **dict.fromkeys(("BraveSearch", "SearXNG", "StaticSearch", "TavilySearch"), "search"),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES.get(name, 'protocols')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
