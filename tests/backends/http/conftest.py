"""Two APIs on loopback, one of them hostile, and what a client needs to ask them. Nothing leaves the machine."""

import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

TOKEN = "s3cret-token/of+api=1"
CERTIFICATE = Path(__file__).parent.parent / "tls_test.pem"  # for tls.example.org

Route = Callable[[BaseHTTPRequestHandler], None]


@dataclass(frozen=True)
class Seen:
    """One request as it reached the server."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


class Api(ThreadingHTTPServer):
    """Answers by `routes`, by path without query; `seen` has every request. What has no route is echoed: 200, and the
    request's head and body as the body.
    """

    daemon_threads = True
    block_on_close = True

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.seen: list[Seen] = []
        self.stopping = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def url(self, path: str = "/", *, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that hangs up early is what some tests are about


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Api

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append(Seen(self.command, self.path, headers, body))
        self.server.routes.get(self.path.partition("?")[0], _echo)(self)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _any

    def log_message(self, format: str, *args: object) -> None:
        pass


def _echo(handler: BaseHTTPRequestHandler) -> None:
    assert isinstance(handler.server, Api)
    seen = handler.server.seen[-1]
    reply(f"{seen.method} {seen.path}\n{handler.headers}".encode() + seen.body)(handler)


def silent(api: Api) -> threading.Event:
    """Have the API answer nothing at all; the event is set when the client has hung up."""
    gone = threading.Event()

    def until_gone(handler: BaseHTTPRequestHandler) -> None:
        if handler.connection.recv(1) == b"":
            gone.set()
        handler.close_connection = True

    api.routes["/"] = until_gone
    return gone


def reply(body: bytes = b"hello", status: int = 200, **headers: str) -> Route:
    def route(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    return route


def raw(*pieces: bytes) -> Route:
    """These bytes, whatever they are, and the end of the connection."""

    def route(handler: BaseHTTPRequestHandler) -> None:
        for piece in pieces:
            handler.wfile.write(piece)
        handler.close_connection = True

    return route


def drip(handler: BaseHTTPRequestHandler) -> None:
    """A byte of a body every 20 ms, for as long as anybody listens."""
    assert isinstance(handler.server, Api)
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not handler.server.stopping.wait(0.02):
        handler.wfile.write(b"x")


def serving(server: Api) -> Iterator[Api]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.stopping.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def api() -> Iterator[Api]:
    yield from serving(Api())


@pytest.fixture
def other() -> Iterator[Api]:
    """An API of somebody else."""
    yield from serving(Api())


@pytest.fixture
def tls_api() -> Iterator[Api]:
    """An API by TLS, with a certificate for tls.example.org."""
    server = Api()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    yield from serving(server)


def to_loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]
