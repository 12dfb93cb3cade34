"""Both event loops for every async test, and a real HTTP server on loopback; nothing here leaves the machine."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest

Route = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class LoopbackSocket(socket.socket):
    def connect(self, address: tuple[str, int], /) -> None:  # type: ignore[override]
        assert ip_address(address[0]).is_loopback, f"a test tried to reach {address}"
        super().connect(address)


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", LoopbackSocket)


class Site(ThreadingHTTPServer):
    """Serves `routes` by path without query; `seen` is every request line and its headers, in order."""

    daemon_threads = True
    block_on_close = True

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.stopping = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def url(self, path: str = "/", *, host: str = "site.example.org", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that hangs up early is what many tests are about


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.seen.append((self.requestline, dict(self.headers.items())))
        self.server.routes[self.path.partition("?")[0]](self)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    yield from _serve(Site())


@pytest.fixture
def tls_site() -> Iterator[Site]:
    site = Site()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(__file__).with_name("tls_test.pem"))
    site.socket = context.wrap_socket(site.socket, server_side=True)
    yield from _serve(site)


def _serve(site: Site) -> Iterator[Site]:
    thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    site.stopping.set()
    site.shutdown()
    thread.join()
    site.server_close()
