"""Servers on loopback, a supervisor with a proxied network, and tools that send arbitrary bytes to the proxy.

Nothing here leaves the machine: the tests resolve names themselves, to 127.0.0.1.
"""

import http.server
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toolcell import Profile, ProxyNetwork, SessionKind, Supervisor


class Site(http.server.ThreadingHTTPServer):
    """Serves `folder`, and answers POST with the request's body. `seen` has each request line with its headers."""

    daemon_threads = True
    block_on_close = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: list[tuple[str, list[tuple[str, str]]]] = []
        self.bodies: list[bytes] = []
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that is cut off is what many tests are about


class _Handler(http.server.SimpleHTTPRequestHandler):
    def parse_request(self) -> bool:
        understood = super().parse_request()
        assert isinstance(self.server, Site)
        self.server.seen.append((self.requestline, list(self.headers.items()) if understood else []))
        return understood

    def do_POST(self) -> None:
        assert isinstance(self.server, Site)
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.bodies.append(body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """An HTTP server on 127.0.0.1 with a file hello.txt."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "hello.txt").write_text("hello there\n")
    server = Site(folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Listener:
    """Accepts connections on 127.0.0.1 and sends `greeting`. Records the received bytes, and when the other side has
    ended.
    """

    def __init__(self, greeting: bytes = b"welcome", *, hang_up: bool = False) -> None:
        self._greeting = greeting
        self._hang_up = hang_up  # as soon as something has come
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self.accepted = 0
        self.received = bytearray()
        self.ended = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _address = self._socket.accept()
            except OSError:
                return
            self.accepted += 1
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(20)
            try:
                connection.sendall(self._greeting)
                while data := connection.recv(65536):
                    self.received += data
                    if self._hang_up:
                        break
            except OSError:
                pass
        self.ended.set()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def listener() -> Iterator[Listener]:
    """A bare TCP server on 127.0.0.1."""
    server = Listener()
    yield server
    server.close()


class Resolver:
    """`resolve(host, port)` for a supervisor: the next answer of `answers[host]`. The last answer is repeated."""

    def __init__(self) -> None:
        self.answers: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        answers = self.answers.get(host, [["127.0.0.1"]])
        return answers.pop(0) if len(answers) > 1 else answers[0]


@pytest.fixture
def resolver() -> Resolver:
    return Resolver()


Proxied = Callable[..., Supervisor]


@pytest.fixture
def proxied(resolver: Resolver) -> Proxied:
    """`async with proxied(tools, allow=[…]) as supervisor`: Main and Branch on a ProxyNetwork."""

    def make(tools: Any, *, network: Any = None, **policy: Any) -> Supervisor:
        wanted = network or ProxyNetwork(**policy)
        profiles = {kind: Profile.for_kind(kind.value).replace(network=wanted) for kind in SessionKind}
        return Supervisor(tools, profiles=profiles, resolve=resolver)

    return make


def require_program(name: str, package: str) -> None:
    """Fail, never skip, if a program that the tests run is not installed."""
    if shutil.which(name) is None:
        pytest.fail(f"{name} is not installed here, and this test runs it. Install it: apt-get install -y {package}")
