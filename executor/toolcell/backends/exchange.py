"""One request over one checked address: blocking, with a deadline over all of it and a cap on every byte kept."""

import io
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, cast

from toolcell.backends.body import read_body
from toolcell.backends.errors import Unreachable
from toolcell.backends.guard import Address, Target

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["REDIRECTS", "Exchange", "Reply"]

REDIRECTS = frozenset({301, 302, 303, 307, 308})
_ATTEMPTS = 4  # addresses of one name to try; the deadline is shared out between them


@dataclass(frozen=True, slots=True)
class Reply:
    """`body` is decoded and at most `max_bytes` long; `total_bytes` is its full decoded length where that is known.

    `location` is where a redirect leads; its body is not read. `headers` are as they came, in order.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    location: str | None
    body: bytes
    truncated: bool
    total_bytes: int | None

    def header(self, name: str) -> str:
        """The first header of this name, in lower case; "" where there is none."""
        return next((value for each, value in self.headers if each.lower() == name), "")


class Exchange:
    """Ask one of `addresses` for `target` before `deadline`, a time of `time.monotonic`; by GET unless `method` says
    so.

    `headers` go out as they are, beside Host and Connection. `address` is the one that was connected to, once it is.
    For one `run`, in a worker thread; `abort` ends it early from any other. `tls` is called there, for https only.
    """

    def __init__(
        self,
        target: Target,
        addresses: Sequence[Address],
        *,
        deadline: float,
        tls: Callable[[], ssl.SSLContext],
        headers: Mapping[str, str],
        method: str = "GET",
        body: bytes = b"",
    ) -> None:
        self.address: Address | None = None
        self._target = target
        self._addresses = addresses[:_ATTEMPTS]
        self._deadline = deadline
        self._tls = tls
        self._headers = headers
        self._method = method
        self._body = body
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._aborted = False

    def abort(self) -> None:
        """End a `run` in another thread: it raises at once. Harmless before, after and twice."""
        with self._lock:
            self._aborted = True
            if self._socket is not None:
                try:
                    # Not SSLSocket.shutdown: that one drops the TLS state which the other thread is using.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
                except OSError:
                    pass  # not connected yet, or not any more

    def run(self, max_bytes: int, on_large: Callable[[], None] | None = None) -> Reply:
        """Return the reply. Raise `TimeoutError` at the deadline, `Unreachable` for whatever else goes wrong.
        `on_large` is for `read_body`.
        """
        host = self._target.host
        try:
            self._connect()
            if self._target.scheme == "https":
                self._handshake()
            return self._ask(max_bytes, on_large)
        except TimeoutError:
            raise
        except ssl.SSLCertVerificationError as error:
            why = f"The certificate of {host} is not valid: {error.verify_message}. Use another source."
        except zlib.error:
            why = f"The answer of {host} is compressed and damaged. Try again later or use another source."
        except (OSError, HTTPException, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
            why = f"{host} could not be asked: {reason[:120]}. Try again later or use another source."
        finally:
            with self._lock:
                if self._socket is not None:
                    self._socket.close()
        raise Unreachable(why)

    def _adopt(self, sock: socket.socket) -> socket.socket:
        with self._lock:
            self._socket = sock
            if self._aborted:
                raise OSError("the fetch was cancelled")
        return sock

    def _connect(self) -> None:
        for tried, address in enumerate(self._addresses):
            last = tried + 1 == len(self._addresses)
            share = _left(self._deadline) / (len(self._addresses) - tried)
            family = socket.AF_INET if address.version == 4 else socket.AF_INET6
            sock = self._adopt(socket.socket(family, socket.SOCK_STREAM))
            sock.settimeout(share)
            try:
                sock.connect((str(address), self._target.port))
                self.address = address
                return
            except OSError:
                if last:
                    raise
                with self._lock:
                    sock.close()

    def _handshake(self) -> None:
        plain = self._socket
        assert plain is not None
        # The server's name goes into SNI and is what the certificate is checked against, whatever the address.
        sock = self._tls().wrap_socket(plain, server_hostname=self._target.host, do_handshake_on_connect=False)
        self._adopt(sock)
        sock.settimeout(_left(self._deadline))
        sock.do_handshake()

    def _ask(self, max_bytes: int, on_large: Callable[[], None] | None) -> Reply:
        assert self._socket is not None
        connection = HTTPConnection(self._target.host, self._target.port)
        connection.sock = cast(socket.socket, _TimedSocket(self._socket, self._deadline))
        headers = {"Host": self._target.authority, **self._headers, "Connection": "close"}
        connection.request(self._method, self._target.path, self._body or None, headers)
        with connection.getresponse() as response:
            if response.status < 200:  # 100 is skipped; 101 would be another protocol
                raise HTTPException
            got = tuple(response.getheaders())
            location = response.getheader("location") if response.status in REDIRECTS else None
            if location is not None:
                location = location.encode("latin-1").decode("utf-8", "replace")  # raw UTF-8 is common
                return Reply(response.status, got, location, b"", False, None)
            body, truncated, total = read_body(response, max_bytes, on_large)
            return Reply(response.status, got, None, body, truncated, total)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _TimedReader(io.RawIOBase):
    """Every single read gets what is left of the deadline, so a server that drips bytes gains nothing."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._socket = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        self._socket.settimeout(_left(self._deadline))
        return self._socket.recv_into(buffer)


class _TimedSocket:
    """As much of a socket as `http.client` uses. The exchange owns the real one and closes it."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._socket = sock
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._socket, self._deadline))

    def sendall(self, data: bytes) -> None:
        self._socket.settimeout(_left(self._deadline))
        self._socket.sendall(data)

    def close(self) -> None:
        pass
