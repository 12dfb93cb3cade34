"""A toolset that caches another toolset's tools."""

import time
from collections import OrderedDict
from collections.abc import Sequence

from toolcell_tools.session_info import SessionInfo

from .base import AnyTool, Toolset, Wrapper

__all__ = ["Cached"]

MOST_SESSIONS = 10_000  # beyond this, the least recently used entry is evicted


class Cached(Wrapper):
    """Caches the tools of each session, without end or for `seconds`. A failure is not cached."""

    def __init__(self, wrapped: Toolset, seconds: float | None = None) -> None:
        super().__init__(wrapped)
        self._seconds = seconds
        self._known: OrderedDict[str, tuple[float, Sequence[AnyTool]]] = OrderedDict()

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        known = self._known.get(session.session_id)
        now = time.monotonic()
        if known is None or (self._seconds is not None and now - known[0] >= self._seconds):
            known = (now, tuple(await self.wrapped.tools(session)))
            self._known[session.session_id] = known
            if len(self._known) > MOST_SESSIONS:
                self._known.popitem(last=False)
        self._known.move_to_end(session.session_id)
        return known[1]

    def forget(self, session_id: str | None = None) -> None:
        """Ask again the next time: for one session, or for all."""
        if session_id is None:
            self._known.clear()
        else:
            self._known.pop(session_id, None)

    async def close(self) -> None:
        self._known.clear()
        await super().close()
