"""robots.txt of the hosts that are asked for pages (RFC 9309). protego reads the files; this module keeps them.

protego compares without regular expressions, so the time of a comparison is bounded by the sizes of file and URL.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, Protocol, cast

from toolcell.backends.errors import OutsideRules, Refused, Unreachable
from toolcell.backends.guard import Target
from toolcell.errors import ArgumentError

__all__ = ["ROBOTS_BYTES", "Robots"]

ROBOTS_BYTES: Final = 512 * 1024  # RFC 9309, 2.5: at least 500 KiB
KEPT_S: Final = 24 * 3600.0  # RFC 9309, 2.4
_RETRY_S = 60.0  # after a failure of the server
_MOST = 1024  # hosts


class RobotsFile(NamedTuple):
    """The answer to a request for robots.txt."""

    status: int
    body: bytes


class _Rules(Protocol):
    def can_fetch(self, url: str, user_agent: str) -> bool: ...


class _Kept(NamedTuple):
    rules: _Rules | None
    """None: the file could not be had, so nothing may be fetched (RFC 9309, 2.3.1.4)."""
    until: float


class Robots:
    """Whether a page may be fetched by `agent`. Needs the extra `[web]`.

    `fetch(target, anywhere)` gets a robots.txt, after redirects, which lead to other hosts only with `anywhere`;
    otherwise it raises OutsideRules. `in_thread(work)` runs blocking work.
    """

    def __init__(
        self,
        agent: str,
        fetch: Callable[[Target, bool], Awaitable[RobotsFile]],
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        if find_spec("protego") is None:
            raise ArgumentError("robots.txt is read by protego. Install it: pip install 'toolcell[web]'.")
        self._agent, self._fetch, self._in_thread = agent, fetch, in_thread
        self._kept: OrderedDict[tuple[str, str, int], _Kept] = OrderedDict()

    async def check(self, target: Target, *, anywhere: bool) -> None:
        """Raise Refused if the host's robots.txt does not let the agent fetch this page, or cannot be had. Without
        `anywhere`, a robots.txt that redirects to another host counts as none for this request."""
        origin = target.scheme, target.host, target.port
        kept = self._kept.get(origin)
        if kept is None or kept.until < time.monotonic():
            try:
                kept = await self._read(target, anywhere)
            except OutsideRules:  # a session without rules may follow, so nothing is kept
                return
            self._kept[origin] = kept
            while len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        rules = kept.rules
        if rules is None:
            raise Refused(
                f"The robots.txt of {target.host} cannot be had, so that none of its pages may be fetched now."
            )
        if not await self._in_thread(lambda: rules.can_fetch(target.url, self._agent)):
            raise Refused(f"The robots.txt of {target.host} asks not to fetch this page. Use another source.")

    async def _read(self, target: Target, anywhere: bool) -> _Kept:
        place = Target(target.scheme, target.host, target.port, "/robots.txt", target.literal)
        try:
            file = await self._fetch(place, anywhere)
        except Unreachable:
            return _Kept(None, time.monotonic() + _RETRY_S)
        if file.status >= 500:
            return _Kept(None, time.monotonic() + _RETRY_S)
        text = file.body.decode("utf-8", "replace") if file.status == 200 else ""
        return _Kept(await self._in_thread(lambda: _parsed(text)), time.monotonic() + KEPT_S)


def _parsed(text: str) -> _Rules:
    protego: Any = import_module("protego")
    return cast("_Rules", protego.Protego.parse(text))
