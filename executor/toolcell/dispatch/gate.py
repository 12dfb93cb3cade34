"""The gate of a supervisor: its concurrency limits."""

from toolcell.rules.concurrency import Concurrency
from toolcell_tools.capability import SessionKind

from .turnstile import Queue, Turnstile


class Gate:
    """The turnstiles by tool and by session kind."""

    __slots__ = ("_kinds", "_tools", "is_limited", "queue")

    def __init__(self, concurrency: Concurrency) -> None:
        self._tools = {name: Turnstile(limit) for name, limit in concurrency.tools.items()}
        self._kinds = {kind: Turnstile(limit) for kind, limit in concurrency.kinds.items()}
        self.is_limited = bool(self._tools or self._kinds)
        self.queue = Queue()

    def turnstiles(self, tool: str, kind: SessionKind) -> list[Turnstile]:
        """Those that a call of this tool in a session of this kind must pass."""
        found = (self._tools.get(tool), self._kinds.get(kind))
        return [turnstile for turnstile in found if turnstile is not None]
