"""A small JSON service on loopback, for the tests of what asks one."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Asked:
    """One request as it reached the service."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answering = Callable[[Asked], tuple[int, dict[str, str], bytes]]


class JsonService(ThreadingHTTPServer):
    """Answers with what `answering` returns: status, headers and body. `asked` has every request."""

    daemon_threads = True
    block_on_close = True

    def __init__(self, answering: Answering) -> None:
        self.answering = answering
        self.asked: list[Asked] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that hangs up early is what some tests are about


class _Handler(BaseHTTPRequestHandler):
    server: JsonService

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = Asked(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        self.server.asked.append(asked)
        status, headers, answer = self.server.answering(asked)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(answer)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = _any

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(answering: Answering) -> Generator[JsonService]:
    service = JsonService(answering)
    thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        service.shutdown()
        thread.join()
        service.server_close()


def said(value: object, status: int = 200, /, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """An answer of JSON, or of bytes as they are."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return status, {name.replace("_", "-"): text for name, text in headers.items()}, body
