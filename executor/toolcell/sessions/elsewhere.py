"""The memory or the web client of a session that the nodes of a cluster have."""

from collections.abc import Callable
from typing import Final, NoReturn

from toolcell.backends.protocols import FetchedPage, MemoryRecord, NotConfigured, SearchHit

__all__ = ["MEMORY_ON_NODES", "WEB_ON_NODES", "MemoryOnNodes", "WebOnNodes"]


class MemoryOnNodes:
    """Stands for the memory in the driver's process, where it cannot be used."""

    async def search(self, query: str, *, limit: int, namespace: str) -> list[MemoryRecord]:
        _refuse("memory")

    async def store(self, record: MemoryRecord, *, namespace: str) -> str:
        _refuse("memory")


class WebOnNodes:
    """Stands for the web client in the driver's process, where it cannot be used."""

    async def search(self, query: str, *, limit: int) -> list[SearchHit]:
        _refuse("web")

    async def fetch(self, url: str, *, max_bytes: int) -> FetchedPage:
        _refuse("web")

    async def fetch_within(self, url: str, *, max_bytes: int, check: Callable[[str], None]) -> FetchedPage:
        _refuse("web")


MEMORY_ON_NODES: Final = MemoryOnNodes()
WEB_ON_NODES: Final = WebOnNodes()


def _refuse(what: str) -> NoReturn:
    raise NotConfigured(
        f"The {what} is on the nodes of the cluster, where tools use it. Open the session with {what}=… to have it in "
        "this process."
    )
