"""The surroundings of the demo's sessions: a project, a web on loopback, a channel, a memory, a listener."""

import http.server
import json
import secrets
import socket
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from toolcell.backends.memory import SQLiteMemory
from toolcell.backends.web import PublicWeb
from toolcell.journal import RecentJournal

if TYPE_CHECKING:
    from toolcell.session import Session

BUG = "    return net_cents + net_cents * percent // 100\n"
MENDED = "    return net_cents + (net_cents * percent + 50) // 100\n"
PROJECT: Mapping[str, str] = MappingProxyType(
    {
        "README.md": "# Shop\n\nPrices are whole cents. Tax is rounded half up.\nRun the tests: python3 -m unittest\n",
        "prices.py": (
            '"""Prices in cents."""\n\n\n'
            "def with_tax(net_cents: int, percent: int) -> int:\n"
            '    """The price with tax, rounded half up to a cent."""\n' + BUG
        ),
        "cart.py": (
            '"""What a customer is about to buy."""\n\nfrom prices import with_tax\n\n\n'
            "def total(items: dict[str, int], percent: int) -> int:\n"
            '    """The sum of all items with tax, in cents."""\n'
            "    return sum(with_tax(cents, percent) for cents in items.values())\n"
        ),
        "test_prices.py": (
            "import unittest\n\nfrom cart import total\nfrom prices import with_tax\n\n\n"
            "class PricesTest(unittest.TestCase):\n"
            "    def test_half_a_cent_is_rounded_up(self):\n"
            "        self.assertEqual(with_tax(1050, 19), 1250)\n\n"
            "    def test_the_total_is_the_sum_of_the_items(self):\n"
            '        self.assertEqual(total({"tea": 1000, "cup": 2000}, 19), 3570)\n'
        ),
        "notes/decisions.md": "# Decisions\n\n- Prices are integers.\n- Tax is added item by item.\n",
    }
)
PAGE = """<!doctype html><html><head><title>Rounding half up</title></head><body>
<nav>Home</nav><h1>Rounding half up</h1>
<p>With whole numbers, add half of the divisor before the floor division: (n * p + 50) // 100.</p>
</body></html>"""


class Inbox:
    """A channel that keeps the messages of agents. Implements `toolcell.Channel`."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    async def send(self, text: str, *, sender: str) -> None:
        self.messages.append(text)


class DemoServer:
    """A socket on the loopback interface that must get no connection."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._accepted = 0

    def connections(self) -> int:
        """The number of connections so far."""
        with suppress(BlockingIOError):
            while True:
                self._socket.accept()[0].close()
                self._accepted += 1
        return self._accepted

    def close(self) -> None:
        self._socket.close()


class _Pages(http.server.BaseHTTPRequestHandler):
    """A page, and a search engine that finds it and speaks SearXNG's JSON."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/search":
            words = parse_qs(url.query).get("q", [""])[0]
            hit = {
                "title": f"About {words}",
                "url": f"http://{self.headers['Host']}/rounding",
                "content": "Add half, then floor.",
            }
            self._answer(200, "application/json", json.dumps({"results": [hit]}))
        elif url.path == "/rounding":
            self._answer(200, "text/html; charset=utf-8", PAGE)
        else:
            self._answer(404, "text/plain", "There is no such page.")

    def _answer(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass  # the table shows the outcomes


@contextmanager
def _website() -> Generator[int, None, None]:
    """Serve the pages in a thread. Yields the port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="demo-web")
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class DemoStage:
    """The surroundings of the sessions. `mark` is a name that only this run uses, so its leftovers can be found."""

    project: Path
    web_port: int
    listener: DemoServer
    memory: SQLiteMemory
    inbox: Inbox = field(default_factory=Inbox)
    journal: RecentJournal = field(default_factory=RecentJournal)
    mark: str = field(default_factory=lambda: f"toolcell-demo-{secrets.token_hex(8)}")
    sessions: "dict[str, Session]" = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """The address of the web server."""
        return f"http://127.0.0.1:{self.web_port}"

    def web(self) -> PublicWeb:
        """The web client: the public web's, with one exception for the loopback server."""
        return PublicWeb(
            search_url=f"{self.origin}/search?q={{query}}&format=json", allow_private=(f"127.0.0.1:{self.web_port}",)
        )


@contextmanager
def stage(folder: Path) -> Generator[DemoStage, None, None]:
    """Lay out the project in `folder`, start the servers, and end them afterwards."""
    project = folder / "project"
    for name, text in PROJECT.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    listener = DemoServer()
    memory = SQLiteMemory(folder / "memory" / "memory.sqlite")
    try:
        with _website() as port:
            yield DemoStage(project, port, listener, memory)
    finally:
        memory.close()
        listener.close()
