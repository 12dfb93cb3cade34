"""Non-blocking sockets on asyncio and on trio, and name lookups."""

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import anyio

from toolcell.backends.addresses import Address
from toolcell.backends.threads import NoThread, in_thread

__all__ = ["Lookups", "Resolver", "connect", "linger"]

Resolver = Callable[[str, int], Iterable[str]]
ATTEMPTS = 4  # addresses of one name to try
LINGER_S, LINGER_BYTES = 1.0, 256 * 1024


class Lookups:
    """Name lookups in threads, at most `most` at a time. A lookup cannot be cancelled, so it counts until it ends, even
    if its caller has gone.
    """

    def __init__(self, resolve: Resolver, most: int = 16) -> None:
        self._resolve = resolve
        self._room = threading.Semaphore(most)
        self._limiter: anyio.CapacityLimiter | None = None
        self._most = most

    async def addresses(self, host: str, port: int) -> list[str]:
        """Look the name up, once. Raises OSError if there is no such name, or no room for a lookup."""
        if not self._room.acquire(blocking=False):
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        ticket = _Ticket(self._room)
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._most * 4)
        work = partial(self._look_up, ticket, host, port)
        try:
            return await in_thread(work, abandon=True, limiter=self._limiter)
        except NoThread as error:
            ticket.give_back()
            raise OSError(errno.EAGAIN, str(error)) from error
        except BaseException:
            if not ticket.started:
                ticket.give_back()
            raise

    def _look_up(self, ticket: "_Ticket", host: str, port: int) -> list[str]:
        ticket.started = True
        try:
            return list(self._resolve(host, port))
        finally:
            ticket.give_back()


class _Ticket:
    """A place among the lookups. It is returned once: by its thread, or by the caller if the thread never started."""

    __slots__ = ("_room", "started")

    def __init__(self, room: threading.Semaphore) -> None:
        self._room: threading.Semaphore | None = room
        self.started = False

    def give_back(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.release()


async def connect(addresses: Sequence[Address], port: int) -> tuple[socket.socket, Address]:
    """Connect to the first address that answers. The addresses must have been checked. Raises the OSError of the last
    one.
    """
    last: OSError | None = None
    for address in addresses[:ATTEMPTS]:
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            number = sock.connect_ex((str(address), port))
            if number == errno.EINPROGRESS:
                await anyio.wait_writable(sock)
                number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number == 0:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return sock, address
            last = OSError(number, os.strerror(number))
        except OSError as error:
            last = error
        except BaseException:
            sock.close()
            raise
        sock.close()
    raise last or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))


async def linger(sock: socket.socket) -> None:
    """End the sending direction, and read for a moment. A close with unread bytes would discard the answer."""
    try:
        sock.shutdown(socket.SHUT_WR)
        left = LINGER_BYTES
        with anyio.move_on_after(LINGER_S):
            while left > 0:
                await anyio.wait_readable(sock)
                data = sock.recv(min(left, 65536))
                if not data:
                    return
                left -= len(data)
    except OSError:
        pass  # it has disconnected already
