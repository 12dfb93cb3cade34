"""The actor that Ray starts on each node. It only passes bytes on to a `Node`."""

import logging
import os

from .kill_timer import KillTimer
from .node import Node

__all__ = ["NodeActor"]

_log = logging.getLogger("toolcell.cluster")


class NodeActor:
    """The actor of one machine: named, detached and restarted by Ray. It is async, so that many exchanges can wait."""

    def __init__(self) -> None:
        self._node: Node | None = None

    async def exchange(self, data: bytes) -> bytes:
        """Pass a driver's request on to the node, and return the reply."""
        node = self._made()
        try:
            return await node.exchange(data)
        except Exception:
            if node.is_broken:
                _log.exception("the supervisor of this node has failed: the actor ends, and Ray starts it again")
                os._exit(1)
            raise

    async def files(self, data: bytes, payload: bytes) -> bytes:
        """Pass a driver's request about files on to the node, and return the reply."""
        return await self._made().files(data, payload)

    def _made(self) -> Node:
        """The node, made on the actor's event loop."""
        if self._node is None:
            self._node = Node(KillTimer())
        return self._node

    async def close(self) -> None:
        """End all sessions and processes of the node, before the actor is killed."""
        if self._node is not None:
            await self._node.aclose()
