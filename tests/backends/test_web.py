"""The web client against a real server on loopback: the guard on every hop, exact caps, one deadline for all of it."""

import gzip
import json
import socket
import ssl
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Collection, Iterable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Protocol

import anyio
import pytest
from tests.helpers import PATIENCE_S, until

from toolcell.backends import BackendError, NotConfigured, PublicWeb, Refused, SearchHit, Unreachable, WebClient
from toolcell.backends.outbound import resolve_with_system

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]

Route = Callable[[BaseHTTPRequestHandler], None]


class Site(Protocol):
    """What the fixtures in conftest.py give."""

    routes: dict[str, Route]
    seen: list[tuple[str, dict[str, str]]]
    stopping: threading.Event

    @property
    def port(self) -> int: ...
    def url(self, path: str = "/", *, host: str = "site.example.org", scheme: str = "http") -> str: ...


def reply(body: bytes = b"hello", status: int = 200, length: bool = True, **headers: str) -> Route:
    def route(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        if length:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return route


def raw(*pieces: bytes, pause: float = 0.0) -> Route:
    def route(handler: BaseHTTPRequestHandler) -> None:
        for piece in pieces:
            handler.wfile.write(piece)
            handler.wfile.flush()
            time.sleep(pause)

    return route


def drip(head: bytes, piece: bytes = b"x") -> Route:
    """Send `head`, then a little every 20 ms for as long as anybody listens."""

    def route(handler: BaseHTTPRequestHandler) -> None:
        stopping: threading.Event = handler.server.stopping  # type: ignore[attr-defined]
        handler.wfile.write(head)
        while not stopping.wait(0.02):
            handler.wfile.write(piece)

    return route


def a_web(site: Site, *, names: Collection[str] = ("site.example.org",), **options: Any) -> PublicWeb:
    options.setdefault("resolve", to_loopback)
    return PublicWeb(allow_private=[f"{name}:{site.port}" for name in names], **options)


def to_loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def test_a_page_comes_back_with_its_status_type_and_body(site: Site) -> None:
    site.routes["/a"] = reply(b"<p>hi</p>", 404, Content_Type="text/html; charset=utf-8")
    web: WebClient = a_web(site, user_agent="mine/1")
    page = await web.fetch(site.url("/a?q=ä b".replace(" ", "+") + "#part"), max_bytes=1000)
    assert (page.status, page.content_type, page.body) == (404, "text/html; charset=utf-8", b"<p>hi</p>")
    assert page.omitted_bytes == 0 and page.url == site.url("/a?q=%C3%A4+b")
    [(line, headers)] = site.seen
    assert line == "GET /a?q=%C3%A4+b HTTP/1.1"
    assert headers == {
        "Host": f"site.example.org:{site.port}",
        "User-Agent": "mine/1",
        "Accept": "*/*",
        "Accept-Encoding": "gzip, deflate",
        "Connection": "close",
    }


@pytest.mark.parametrize(
    ("size", "cap", "omitted"), [(10, 10, 0), (10, 9, 1), (10, 11, 0), (100_000, 99_999, 1), (0, 1, 0)]
)
@pytest.mark.parametrize("length", [True, False])
async def test_the_byte_cap_is_exact(site: Site, size: int, cap: int, omitted: int, length: bool) -> None:
    site.routes["/"] = reply(b"x" * size, length=length)
    page = await a_web(site).fetch(site.url(), max_bytes=cap)
    assert page.body == b"x" * min(size, cap)
    assert page.omitted_bytes == (omitted if length or not omitted else None)


async def test_a_page_without_end_is_cut_at_the_cap(site: Site) -> None:
    site.routes["/"] = drip(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", b"y" * 100_000)
    page = await a_web(site).fetch(site.url(), max_bytes=300_000)
    assert len(page.body) == 300_000 and page.omitted_bytes == 99999999999 - 300_000


async def test_chunks_are_joined_and_a_page_that_breaks_off_says_so(site: Site) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    site.routes["/whole"] = raw(head, b"3\r\nabc\r\n", b"2;ext=1\r\nde\r\n", b"0\r\n\r\n", pause=0.01)
    site.routes["/broken"] = raw(head, b"3\r\nabc\r\n", b"5\r\nde")
    site.routes["/short"] = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabcde")
    web = a_web(site)
    whole, broken, short = [await web.fetch(site.url(p), max_bytes=100) for p in ("/whole", "/broken", "/short")]
    assert (whole.body, whole.omitted_bytes) == (b"abcde", 0)
    assert (broken.body, broken.omitted_bytes) == (b"abcde", None)
    assert (short.body, short.omitted_bytes) == (b"abcde", 5)


def bare_deflate(data: bytes) -> bytes:
    squeeze = zlib.compressobj(wbits=-15)
    return squeeze.compress(data) + squeeze.flush()


TEXT = bytes(range(256)) * 40
ENCODED = {
    "gzip": ("gzip", gzip.compress(TEXT)),
    "members": ("x-gzip", gzip.compress(TEXT[:1]) + gzip.compress(b"") + gzip.compress(TEXT[1:])),
    "padded": ("GZIP", gzip.compress(TEXT) + b"\0\0\0"),
    "zlib": ("deflate", zlib.compress(TEXT)),
    "bare": ("deflate", bare_deflate(TEXT)),
    "identity": ("identity", TEXT),
}


@pytest.mark.parametrize("name", ENCODED)
async def test_a_compressed_page_is_decoded_and_capped_in_its_decoded_size(site: Site, name: str) -> None:
    encoding, body = ENCODED[name]
    site.routes["/"] = reply(body, Content_Encoding=encoding)
    web = a_web(site)
    page = await web.fetch(site.url(), max_bytes=len(TEXT))
    assert (page.body, page.omitted_bytes) == (TEXT, 0)
    page = await web.fetch(site.url(), max_bytes=len(TEXT) - 1)
    assert (page.body, page.omitted_bytes) == (TEXT[:-1], 1 if name == "identity" else None)


@pytest.mark.parametrize("name", ["gzip", "members", "zlib", "bare"])
async def test_a_compressed_page_may_arrive_byte_by_byte_and_break_off(site: Site, name: str) -> None:
    encoding, body = ENCODED[name]
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\n\r\n".encode()
    site.routes["/bytes"] = raw(head, *(bytes([b]) for b in body))
    site.routes["/short"] = raw(head, body[:-20])
    web = a_web(site)
    page = await web.fetch(site.url("/bytes"), max_bytes=len(TEXT))
    assert (page.body, page.omitted_bytes) == (TEXT, 0)
    page = await web.fetch(site.url("/short"), max_bytes=len(TEXT))
    assert page.omitted_bytes is None and TEXT.startswith(page.body)


async def test_a_gzip_bomb_costs_its_cap_and_no_more(site: Site) -> None:
    bomb = gzip.compress(b"\0" * 200_000_000, 9)
    site.routes["/"] = reply(gzip.compress(bomb), Content_Encoding="gzip")
    site.routes["/once"] = reply(bomb, Content_Encoding="gzip")
    site.routes["/nothing"] = reply(gzip.compress(b"") * 100_000, Content_Encoding="gzip")
    web = a_web(site)
    tracemalloc.start()
    try:
        page = await web.fetch(site.url("/once"), max_bytes=100_000)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert (page.body, page.omitted_bytes) == (b"\0" * 100_000, None)
    assert (await web.fetch(site.url(), max_bytes=1_000_000)).body == bomb  # one layer only
    page = await web.fetch(site.url("/nothing"), max_bytes=1000)
    assert (page.body, page.omitted_bytes) == (b"", None)


@pytest.mark.parametrize(
    ("route", "why"),
    [
        (reply(b"x", Content_Encoding="br"), "compressed as 'br'"),
        (reply(b"x", Content_Encoding="gzip, gzip"), "compressed as"),
        (reply(b"\x1f\x8bnot gzip at all", Content_Encoding="gzip"), "damaged"),
        (raw(b""), "could not be asked"),
        (raw(b"SSH-2.0-OpenSSH_9\r\n"), "not valid HTTP"),
        (raw(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n"), "too many"),
        (raw(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n"), "too large"),
    ],
    ids=range(7),
)
async def test_an_answer_that_is_no_use_is_an_error_with_a_remedy(site: Site, route: Route, why: str) -> None:
    site.routes["/"] = route
    with pytest.raises(Unreachable, match=why) as caught:
        await a_web(site).fetch(site.url(), max_bytes=1000)
    assert str(caught.value).lower().endswith("use another source.")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed(site: Site, status: int) -> None:
    site.routes["/a/b"] = reply(status=status, Location="../c?x#y")
    site.routes["/c"] = reply(b"there")
    page = await a_web(site).fetch(site.url("/a/b"), max_bytes=100)
    assert (page.url, page.body) == (site.url("/c?x"), b"there")


async def test_a_location_in_raw_utf_8_is_read_as_such(site: Site) -> None:
    site.routes["/"] = raw("HTTP/1.1 302 Found\r\nLocation: /ä\r\nContent-Length: 0\r\n\r\n".encode())
    site.routes["/%C3%A4"] = reply(b"umlaut")
    assert (await a_web(site).fetch(site.url(), max_bytes=100)).body == b"umlaut"


async def test_there_are_only_so_many_redirects(site: Site) -> None:
    site.routes["/"] = reply(status=302, Location="/")
    with pytest.raises(Unreachable, match="more than 2 redirects"):
        await a_web(site, max_redirects=2).fetch(site.url(), max_bytes=100)
    assert len(site.seen) == 3
    site.routes["/3"] = reply(b"no location", status=302)
    assert (await a_web(site, max_redirects=0).fetch(site.url("/3"), max_bytes=100)).body == b"no location"


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1/",
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://2130706433/",
        "http://169.254.169.254/latest/meta-data/",
        "http://inside.example.org/",
        "https://inside.example.org/",
        "//inside.example.org/",
        "file:///etc/passwd",
        "http://user@site.example.org:{port}/",
        "http://site.example.org:{port}/\tx",
        "http://site.example.org:22/",
        "http://[bad/",
        "/" + "a" * 9000,
    ],
)
async def test_a_redirect_is_checked_like_any_url(site: Site, location: str) -> None:
    site.routes["/"] = reply(status=302, Location=location.format(port=site.port))
    with pytest.raises(Refused):
        await a_web(site).fetch(site.url(), max_bytes=100)
    assert len(site.seen) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://inside.example.org/",
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://0.0.0.0/",
    ],
)
async def test_an_address_inside_is_refused_without_a_connection(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", None)
    answers = Answers(["127.0.0.1"], ["1.1.1.1", "10.0.0.1"], ["::ffff:10.0.0.1"], ["100.64.0.1"])
    for _ in range(4):
        with pytest.raises(Refused, match="not on the public web"):
            await PublicWeb(resolve=answers).fetch(url, max_bytes=100)


async def test_a_literal_address_may_be_allowed_with_its_port(site: Site) -> None:
    site.routes["/"] = reply()
    web = PublicWeb(allow_private=(f"127.0.0.1:{site.port}",), resolve=to_loopback)
    assert (await web.fetch(site.url(host="127.0.0.1"), max_bytes=100)).body == b"hello"
    assert site.seen[0][1]["Host"] == f"127.0.0.1:{site.port}"
    with pytest.raises(Refused, match="is not fetched"):
        await web.fetch(site.url(), max_bytes=100)


class Answers:
    """A resolver that gives each answer once: an attacker's name server, with a time to live of zero."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    def __call__(self, host: str, port: int) -> Iterable[str]:
        self.asked.append((host, port))
        return self.answers.pop(0)


async def test_the_address_that_was_checked_is_the_one_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[tuple[str, int]] = []

    class Recorder(socket.SocketType):
        def connect(self, address: Any, /) -> None:
            connected.append(address[:2])
            raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "socket", Recorder)
    answers = Answers(["1.1.1.1", "2606:4700::1111"], ["127.0.0.1"])
    with pytest.raises(Unreachable, match="Connection refused"):
        await PublicWeb(resolve=answers).fetch("http://rebind.example.org/", max_bytes=100)
    assert connected == [("1.1.1.1", 80), ("2606:4700::1111", 80)]
    assert answers.asked == [("rebind.example.org", 80)]
    with pytest.raises(Refused):
        await PublicWeb(resolve=answers).fetch("http://rebind.example.org/", max_bytes=100)
    assert len(connected) == 2


async def test_every_hop_resolves_its_name_once(site: Site) -> None:
    site.routes["/"] = reply(status=302, Location="/b")
    site.routes["/b"] = reply()
    answers = Answers(["127.0.0.1"], ["127.0.0.1"])
    await a_web(site, resolve=answers).fetch(site.url(), max_bytes=100)
    assert answers.asked == [("site.example.org", site.port)] * 2


async def test_the_next_address_is_tried_when_one_does_not_answer(site: Site) -> None:
    site.routes["/"] = reply()
    web = a_web(site, resolve=lambda host, port: ["::1", "127.0.0.2", "127.0.0.1"])
    assert (await web.fetch(site.url(), max_bytes=100)).body == b"hello"


async def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    def missing(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(Unreachable, match=r"gone\.example\.org was not found"):
        await PublicWeb(resolve=missing).fetch("http://gone.example.org/", max_bytes=100)


def test_the_system_resolver_gives_addresses_as_text() -> None:
    assert set(resolve_with_system("127.0.0.1", 80)) == {"127.0.0.1"}


def slow_redirect(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(0.1)
    reply(status=302, Location="/")(handler)


OK = b"HTTP/1.1 200 OK\r\n"
DRIPPING = {
    "nothing": drip(b"", b""),
    "status": drip(b"HTTP/1.1 2"),
    "header": drip(OK + b"X: "),
    "headers": drip(OK, b"X: y\r\n"),
    "continue": drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": drip(OK + b"Content-Length: 100000\r\n\r\n"),
    "chunks": drip(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "chunk line": drip(OK + b"Transfer-Encoding: chunked\r\n\r\n1;"),
    "redirects": slow_redirect,
}


@pytest.mark.parametrize("name", DRIPPING)
async def test_a_server_that_takes_its_time_gets_no_more_than_the_deadline(site: Site, name: str) -> None:
    site.routes["/"] = DRIPPING[name]
    start = time.monotonic()
    with pytest.raises(Unreachable, match=r"within 0\.4 s"):
        await a_web(site, timeout_s=0.4, max_redirects=1000).fetch(site.url(), max_bytes=100_000)
    assert time.monotonic() - start > 0.35


async def test_a_resolver_that_hangs_gets_no_more_than_the_deadline() -> None:
    release = threading.Event()

    def hang(host: str, port: int) -> list[str]:
        release.wait(3600)
        return ["127.0.0.1"]

    with pytest.raises(Unreachable, match=r"within 0\.2 s"):
        await PublicWeb(resolve=hang, timeout_s=0.2).fetch("http://slow.example.org/", max_bytes=100)
    release.set()


async def test_a_cancelled_fetch_returns_at_once_and_hangs_up(site: Site) -> None:
    gone = threading.Event()

    def until_gone(handler: BaseHTTPRequestHandler) -> None:
        if handler.connection.recv(1) == b"":
            gone.set()

    site.routes["/"] = until_gone
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: a_web(site, timeout_s=3600).fetch(site.url(), max_bytes=100))
        await until(lambda: site.seen)
        tasks.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(gone.wait, PATIENCE_S)


async def test_proxies_in_the_environment_are_ignored(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    site.routes["/"] = reply()
    assert (await a_web(site).fetch(site.url(), max_bytes=100)).body == b"hello"


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(Path(__file__).with_name("tls_test.pem")))


async def test_tls_is_checked_against_the_name_while_the_address_is_the_checked_one(tls_site: Site) -> None:
    tls_site.routes["/"] = reply()
    names = ("tls.example.org", "other.example.org")
    web = a_web(tls_site, names=names, tls=trusting())
    page = await web.fetch(tls_site.url(host="tls.example.org", scheme="https"), max_bytes=100)
    assert (page.body, tls_site.seen[0][1]["Host"]) == (b"hello", f"tls.example.org:{tls_site.port}")
    with pytest.raises(Unreachable, match=r"certificate of other\.example\.org is not valid"):
        await web.fetch(tls_site.url(host="other.example.org", scheme="https"), max_bytes=100)
    with pytest.raises(Unreachable, match="certificate"):
        await a_web(tls_site, names=names).fetch(tls_site.url(host="tls.example.org", scheme="https"), max_bytes=100)
    assert len(tls_site.seen) == 1


async def test_a_handshake_that_never_ends_gets_no_more_than_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        web = PublicWeb(allow_private=[f"127.0.0.1:{port}"], resolve=to_loopback, timeout_s=0.3)
        with pytest.raises(Unreachable, match=r"within 0\.3 s"):
            await web.fetch(f"https://127.0.0.1:{port}/", max_bytes=100)


@pytest.mark.parametrize("max_bytes", [0, -1, 10**12])
async def test_a_cap_out_of_range_is_refused(max_bytes: int) -> None:
    with pytest.raises(Refused, match="max_bytes"):
        await PublicWeb(resolve=to_loopback).fetch("http://site.example.org/", max_bytes=max_bytes)


async def test_a_search_returns_the_hits_of_the_engine(site: Site) -> None:
    results = [
        {"title": "A", "url": "https://a.example.org/", "content": "first", "score": 1},
        {"title": None, "url": "http://b.example.org/"},
        {"title": "bad", "url": "javascript:alert(1)"},
        "junk",
        {"title": "C" * 9000, "url": "https://c.example.org/", "content": 5},
    ]
    site.routes["/search"] = reply(json.dumps({"results": results}).encode())
    web = a_web(site, search_url=site.url("/search?q={query}&format=json"))
    hits = await web.search("a&b=c #ü\n{query}", limit=10)
    assert hits == [
        SearchHit("A", "https://a.example.org/", "first"),
        SearchHit("", "http://b.example.org/", ""),
        SearchHit("C" * 2000, "https://c.example.org/", ""),
    ]
    assert site.seen[0][0] == "GET /search?q=a%26b%3Dc%20%23%C3%BC%0A%7Bquery%7D&format=json HTTP/1.1"
    assert await web.search("x", limit=1) == hits[:1]
    assert await web.search("x", limit=-1) == []


@pytest.mark.parametrize(
    "route",
    [
        reply(b"<html>"),
        reply(b"[]"),
        reply(b'{"results": {"a": 1}}'),
        reply(b"\xff"),
        reply(b"[" * 500_000),
        reply(b"{}", status=403),
    ],
    ids=range(6),
)
async def test_an_engine_that_answers_something_else_is_an_error(site: Site, route: Route) -> None:
    site.routes["/s"] = route
    with pytest.raises(Unreachable, match=r"should check .* JSON"):
        await a_web(site, search_url=site.url("/s?q={query}")).search("x", limit=1)


async def test_a_search_without_an_engine_says_how_to_get_one() -> None:
    with pytest.raises(NotConfigured, match=r"PublicWeb\(search_url="):
        await PublicWeb().search("x", limit=1)


@pytest.mark.parametrize("query", ["", "  ", "x" * 1001])
async def test_a_query_that_is_none_is_refused(query: str) -> None:
    with pytest.raises(Refused, match="query"):
        await PublicWeb(search_url="http://s.example.org/{query}", resolve=to_loopback).search(query, limit=1)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"allow_private": "127.0.0.1:80"}, ValueError),
        ({"allow_private": ["127.0.0.1"]}, ValueError),
        ({"search_url": "https://s.example.org/"}, ValueError),
        ({"timeout_s": 0}, ValueError),
        ({"timeout_s": float("nan")}, ValueError),
        ({"max_redirects": -1}, ValueError),
        ({"user_agent": "a\r\nX: y"}, ValueError),
        ({"user_agent": "ä"}, ValueError),
    ],
    ids=range(8),
)
def test_misuse_fails_when_the_client_is_made(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        PublicWeb(**options)


def test_every_error_of_a_backend_is_one() -> None:
    for kind in (Refused, NotConfigured, Unreachable):
        assert issubclass(kind, BackendError)
