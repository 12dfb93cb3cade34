"""Shared parts of the web client and the HTTP client: name lookups in threads, TLS, and a bound on concurrent requests.

The first request that needs httpcore or the system's authorities loads them, in a thread.
"""

import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from toolcell.backends.addresses import Address, Target
from toolcell.backends.protocols import Unreachable
from toolcell.backends.threads import Threads, Turns
from toolcell.errors import ArgumentError

if TYPE_CHECKING:
    from toolcell.backends.exchange import ExchangeReply

__all__ = ["Outbound", "Resolver", "check_sender", "resolve_with_system"]

Resolver = Callable[[str, int], Iterable[str]]
T = TypeVar("T")


def resolve_with_system(host: str, port: int) -> list[str]:
    """All addresses that the system's resolver has for `host`, in its order of preference. Blocking; raises
    `OSError`."""
    return [str(answer[4][0]) for answer in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def check_sender(user_agent: object, resolve: object, tls: object) -> None:
    """Refuse settings with which no request can be sent."""
    if not (isinstance(user_agent, str) and user_agent.isascii() and user_agent.isprintable()):
        raise ArgumentError("user_agent goes into a header as it is: use printable ASCII only.")
    if not callable(resolve):
        raise ArgumentError(f"resolve is not a function: {resolve!r}. Pass resolve(host, port) -> addresses.")
    if tls is not None and not isinstance(tls, ssl.SSLContext):
        raise ArgumentError(f"tls is not an ssl.SSLContext: {tls!r}. Pass ssl.create_default_context(cafile=…).")


class Outbound:
    """Looks names up and sends requests, at most `total` of each at a time in each event loop.

    `resolve(host, port)` is blocking and returns addresses; `tls` is for a private authority.
    """

    def __init__(self, total: int, resolve: Resolver, tls: ssl.SSLContext | None) -> None:
        self._resolve = resolve
        self._tls = tls
        self._threads = Threads(total)
        self._turns = Turns(total)
        self._is_loaded = False

    async def in_thread(self, work: Callable[[], T], *, abandon: bool = False) -> T:
        """Return `work()`, as `Threads.run` does."""
        return await self._threads.run(work, abandon=abandon)

    async def addresses(self, target: Target) -> list[str]:
        """Look the host up, once. An address is returned without a lookup."""
        if target.literal is not None:
            return [str(target.literal)]
        try:
            return await self.in_thread(lambda: list(self._resolve(target.host, target.port)), abandon=True)
        except (OSError, UnicodeError):
            raise Unreachable(f"The host {target.host} was not found. Check its spelling.") from None

    async def ask(
        self,
        target: Target,
        addresses: Sequence[Address],
        *,
        headers: Mapping[str, str],
        max_bytes: int,
        method: str = "GET",
        body: bytes = b"",
        on_large: Callable[[], Awaitable[None]] | None = None,
        on_events: Callable[[bytes], None] | None = None,
    ) -> "ExchangeReply":
        """Return the answer, as `exchange.ask` does. `addresses` have been checked."""
        async with self._turns.limiter():
            is_tls = target.scheme == "https"
            if not self._is_loaded or (is_tls and self._tls is None):
                await self.in_thread(partial(self._load, is_tls))
            from toolcell.backends.exchange import ask

            return await ask(
                target,
                addresses,
                tls=self._tls if is_tls else None,
                headers=headers,
                max_bytes=max_bytes,
                method=method,
                body=body,
                on_large=on_large,
                on_events=on_events,
            )

    def _load(self, is_tls: bool) -> None:
        import_module("toolcell.backends.exchange")
        self._is_loaded = True
        if is_tls and self._tls is None:
            self._tls = ssl.create_default_context()  # reads all certificate authorities of the system
