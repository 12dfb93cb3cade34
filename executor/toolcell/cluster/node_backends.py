"""A node's own memories, web clients and resolvers, which drivers name by import paths."""

import asyncio
import inspect
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final, cast

from toolcell.backends.egress.net import Lookups
from toolcell.backends.protocols import MemoryStore, WebClient
from toolcell.backends.threads import in_thread
from toolcell.errors import UsageError
from toolcell.rules import misuse

from .terms import MEMORY, WEB, NodeTerms

__all__ = ["NodeBackends", "PlacedBackends"]

_log = logging.getLogger("toolcell.cluster")
RESOLVE: Final = "resolve"


@dataclass(frozen=True, slots=True)
class PlacedBackends:
    """The node's backends that one driver uses; None where the driver uses its own."""

    memory: MemoryStore | None = None
    web: WebClient | None = None
    lookups: Lookups | None = None


class NodeBackends:
    """The backends that this node has made. Each import path is called once: drivers that name it share the object."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Any] = {}
        self._one_at_a_time = asyncio.Lock()

    async def of(self, terms: NodeTerms) -> PlacedBackends:
        """The backends that a driver's terms name. Raises UsageError if one cannot be made."""
        async with self._one_at_a_time:
            return PlacedBackends(
                memory=await self._one(MEMORY, terms.memory),
                web=await self._one(WEB, terms.web),
                lookups=await self._one(RESOLVE, terms.resolve),
            )

    async def _one(self, what: str, path: str) -> Any:
        if not path:
            return None
        if (what, path) not in self._made:
            try:
                self._made[what, path] = await in_thread(partial(_made, what, path))
            except Exception as error:
                raise UsageError(
                    f"A node of the cluster cannot make RayCluster({what}={path!r}): {type(error).__name__}: {error}. "
                    "Install the module on each machine, and write module:name."
                ) from error
        return self._made[what, path]

    async def close(self) -> None:
        """Close each backend that has a method `close`."""
        made, self._made = list(self._made.values()), {}
        for each in made:
            close = getattr(each, "close", None)
            try:
                done = close() if callable(close) else None
                if inspect.isawaitable(done):
                    await done
            except Exception:
                _log.exception("the close of %r failed", each)


def _made(what: str, path: str) -> object:
    """Import the object, and call it for a memory or a web client. Blocks."""
    module, _, name = path.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    misuse.check_callable(path, found)
    if what == RESOLVE:
        return Lookups(found)
    made = found()
    misuse.check_parts(**cast("Mapping[str, Any]", {what: made}))
    return made
