"""The actor that Ray starts on each node. It only passes bytes on to a `Node`."""

import logging
import os

from .node import Node

__all__ = ["NodeActor"]

_log = logging.getLogger("toolcell.cluster")


class NodeActor:
    """One on each machine: named, detached, restarted by Ray. An async actor, so that many exchanges wait in it."""

    def __init__(self) -> None:
        self._node: Node | None = None

    async def exchange(self, data: bytes) -> bytes:
        """Pass a driver's request on to the node, and return the reply."""
        if self._node is None:  # made here, on the actor's event loop
            self._node = Node()
        try:
            return await self._node.exchange(data)
        except Exception:
            if self._node.is_broken:
                _log.exception("the supervisor of this node has failed: the actor ends, and Ray starts it again")
                os._exit(1)
            raise

    async def close(self) -> None:
        """End all sessions and processes of the node, before the actor is killed."""
        if self._node is not None:
            await self._node.aclose()
