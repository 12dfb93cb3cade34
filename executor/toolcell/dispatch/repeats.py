"""RepeatGuard: a hook against a model that makes the same call again and again."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from toolcell.rules.call import ToolCall
from toolcell.rules.misuse import count, items
from toolcell.store.journal.redact import digest_of

from .hooks import Deny, Hook

__all__ = ["RepeatGuard"]

MOST_SESSIONS: Final = 10_000
"""The most sessions whose last call is known. The session that has called least recently is forgotten first."""


class RepeatGuard(Hook):
    """Denies a call that repeats the session's last calls: the same tool with the same arguments.

    `most` identical calls in a row may run, the first included (default: 3). Any other call of the session begins a new
    count. `except_tools` names tools that may be repeated, such as one that asks for the progress of a job.
    """

    def __init__(self, most: int = 3, except_tools: Iterable[str] = ()) -> None:
        self._most = count("most", most, "Pass how many identical calls in a row may run.")
        self._except = frozenset(map(str, items("except_tools", except_tools, "['status']")))
        self._last: OrderedDict[str, tuple[tuple[str, str], int]] = OrderedDict()

    async def before_call(self, call: ToolCall) -> Deny | None:
        """Deny the call if it is one identical call too many."""
        if call.session is None or call.tool in self._except:
            return None
        asked, session_id = (call.tool, digest_of(call.arguments)), call.session.session_id
        before, times = self._last.get(session_id, (asked, 0))
        times = times + 1 if before == asked else 1
        self._last[session_id] = asked, times
        self._last.move_to_end(session_id)
        if len(self._last) > MOST_SESSIONS:
            self._last.popitem(last=False)
        if times <= self._most:
            return None
        return Deny(
            f"The tool {call.tool!r} was called with the same arguments {times} times in a row, and at most "
            f"{self._most} such calls may run. Use what the earlier results say, change the arguments, or do something "
            "else."
        )
