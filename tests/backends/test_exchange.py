"""One request over one connection: where it connects to, what it takes for an answer, and what it leaves behind."""

import gzip
import logging
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol

import anyio
import httpcore
import pytest
from tests.helpers import PATIENCE_S, until

from toolcell import Credential
from toolcell.backends import BrokeredHttp, HttpReply, HttpRequest, Unreachable
from toolcell.backends.addresses import parse_url
from toolcell.backends.body import PIECE, Body
from toolcell.backends.exchange import HEAD_BYTES, Pinned

pytestmark = pytest.mark.anyio

Route = Callable[[BaseHTTPRequestHandler], None]
OK = b"HTTP/1.1 200 OK\r\n"
HI = b"Content-Length: 2\r\n\r\nhi"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
TRUSTING = Path(__file__).with_name("tls_test.pem")


class Site(Protocol):
    """What the fixtures in conftest.py give."""

    routes: dict[str, Route]
    seen: list[tuple[str, dict[str, str]]]

    @property
    def port(self) -> int: ...
    def url(self, path: str = "/", *, host: str = "site.example.org", scheme: str = "http") -> str: ...


def raw(answer: bytes) -> Route:
    def route(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(answer)

    return route


def to_loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def asked(site: Site, answer: bytes, *, timeout_s: float = 10.0) -> HttpReply:
    site.routes["/"] = raw(answer)
    request = HttpRequest("GET", site.url(), private=True)
    return await BrokeredHttp(resolve=to_loopback, timeout_s=timeout_s).send(request)


TWO_READINGS = {
    "another protocol": b"HTTP/2.0 200 OK\r\n" + HI,
    "a protocol that does not exist": b"HTTP/3.7 200 OK\r\n" + HI,
    "an old protocol": b"HTTP/0.9 200 OK\r\n" + HI,
    "a switch of protocols": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
    "a status in words": b"HTTP/1.1 2x0 OK\r\n" + HI,
    "an end amid the head": OK + b"Content-Length: 2\r\n",
    "a bare carriage return": OK + b"X: a\rSet-Cookie: b\r\n" + HI,
    "a fold without a header": OK + b" X: a\r\n" + HI,
    "white space before the colon": OK + b"Content-Length : 1\r\n" + HI,
    "no colon": OK + b"X\r\n" + HI,
    "a NUL": OK + b"X: a\0b\r\n" + HI,
    "a name that is none": OK + b"X\xe4: a\r\n" + HI,
    "two lengths": OK + b"Content-Length: 5\r\n" + HI + b"hih",
    "a list of lengths": OK + b"Content-Length: 2, 5\r\n\r\nhihih",
    "a length below zero": OK + b"Content-Length: -2\r\n\r\nhi",
    "a length with a sign": OK + b"Content-Length: +2\r\n\r\nhi",
    "a length of nothing": OK + b"Content-Length:\r\n\r\nhi",
    "a length over 63 bits": OK + b"Content-Length: 9223372036854775808\r\n\r\nhi",
    "another transfer encoding": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "two transfer encodings": OK + b"Transfer-Encoding: chunked\r\n" + CHUNKED + b"2\r\nhi\r\n0\r\n\r\n",
}
BROKEN_CHUNKS = {
    "a prefix": b"0x2\r\nhi\r\n0\r\n\r\n",
    "a sign": b"+2\r\nhi\r\n0\r\n\r\n",
    "no end of a chunk": b"2\r\nhiXX0\r\n\r\n",
    "no last chunk": b"2\r\nhi\r\n",
    "a trailer that is none": b"2\r\nhi\r\n0\r\nfoo\r\n\r\n",
}


@pytest.mark.parametrize("name", TWO_READINGS)
async def test_an_answer_that_can_be_read_in_two_ways_is_no_answer(site: Site, name: str) -> None:
    with pytest.raises(Unreachable, match=r"not valid HTTP/1\.1, or breaks off"):
        await asked(site, TWO_READINGS[name])


@pytest.mark.parametrize("name", BROKEN_CHUNKS)
async def test_a_chunk_that_can_be_read_in_two_ways_ends_the_answer(site: Site, name: str) -> None:
    with pytest.raises(Unreachable, match="breaks off"):
        await asked(site, OK + CHUNKED + BROKEN_CHUNKS[name])


async def test_a_length_beside_chunks_is_not_believed(site: Site) -> None:
    answer = await asked(site, OK + b"Content-Length: 7\r\n" + CHUNKED + b"2\r\nhi\r\n0\r\n\r\n")
    assert answer.body == b"hi"


async def test_a_folded_header_is_one_line(site: Site) -> None:
    answer = await asked(site, OK + b"X: a\r\n\t Set-Cookie: b\r\n" + HI)
    assert dict(answer.headers)["X"] == "a Set-Cookie: b"


async def test_what_follows_an_answer_is_not_read(site: Site) -> None:
    answer = await asked(site, OK + HI + b"HTTP/1.1 500 no\r\nX: y\r\n\r\n")
    assert (answer.status, answer.body) == (200, b"hi")


# -- bounds -----------------------------------------------------------------------------------------------------------

EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"X: y\r\n" * 99 + HI,
        OK + b"X: " + b"y" * (HEAD_BYTES - 100) + b"\r\n" + HI,
        EARLY * 10 + OK + HI,
        OK + b"Content-Length: 5000\r\n\r\n" + b"\n" * 5000,
    ],
    ids=["100 headers", "a long header", "interim answers", "a body of lines"],
)
async def test_a_head_of_a_sane_size_is_taken(site: Site, answer: bytes) -> None:
    assert (await asked(site, answer)).status == 200


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"X: y\r\n" * 100 + HI,
        OK + b"X: " + b"y" * HEAD_BYTES + b"\r\n" + HI,
        OK + b"X: " + b"y" * (HEAD_BYTES + 8192),
        OK + b"a:\r\n" * 16_000 + HI,
        EARLY * 5000 + OK + HI,
    ],
    ids=["101 headers", "too long a header", "a header without end", "16,001 headers", "interim answers"],
)
async def test_a_head_that_is_too_large_is_an_error(site: Site, answer: bytes) -> None:
    with pytest.raises(Unreachable, match=r"too many or too large\. Use another source"):
        await asked(site, answer)


def test_a_body_is_decoded_in_small_pieces() -> None:
    body = Body(3_000_000, "gzip")
    pieces: list[int] = []
    for piece in body.decode(gzip.compress(b"\0" * 10_000_000)):
        body.keep(piece)
        pieces.append(len(piece))
    assert max(pieces) <= PIECE and sum(pieces) == 3_000_001 and not body.wants_more
    assert body.end(whole=True) == (b"\0" * 3_000_000, True, None)


async def test_other_tasks_have_their_turn_during_an_answer_of_tiny_chunks(site: Site) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    site.routes["/"] = raw(OK + CHUNKED + b"1\r\nx\r\n" * 10_000 + b"0\r\n\r\n")
    client = BrokeredHttp(resolve=to_loopback)
    async with anyio.create_task_group() as tasks:
        request = HttpRequest("GET", site.url(), private=True)
        await client.send(request)  # httpcore is loaded
        tasks.start_soon(count)
        assert len((await client.send(request)).body) == 10_000
        tasks.cancel_scope.cancel()
    assert turns > 10_000 / 32


# -- where it connects to ---------------------------------------------------------------------------------------------


async def test_the_backend_connects_to_the_addresses_it_was_given_whatever_it_is_asked_for(site: Site) -> None:
    pinned = Pinned(parse_url(site.url(), any_port=True), [ip_address("127.0.0.2"), ip_address("127.0.0.1")])
    stream = await pinned.connect_tcp("evil.example.org", 1)
    assert stream.get_extra_info("server_addr") == ("127.0.0.1", site.port) and str(pinned.address) == "127.0.0.1"
    await pinned.aclose()
    with pytest.raises(NotImplementedError):
        await pinned.connect_unix_socket("/run/evil.sock")


async def test_an_address_that_does_not_answer_leaves_time_for_the_next(site: Site) -> None:
    with socket.create_server(("127.0.0.2", site.port), backlog=1):
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.2", site.port))  # now nobody else gets in
        pinned = Pinned(parse_url(site.url(), any_port=True), [ip_address("127.0.0.2"), ip_address("127.0.0.1")])
        with anyio.fail_after(PATIENCE_S):
            await pinned.connect_tcp("site.example.org", site.port)
        assert str(pinned.address) == "127.0.0.1"
        await pinned.aclose()
        for each in waiting:
            each.close()


async def test_tls_is_for_the_name_of_the_target_whatever_it_is_asked_for(tls_site: Site) -> None:
    context = ssl.create_default_context(cafile=str(TRUSTING))
    for name, is_valid in (("tls.example.org", True), ("other.example.org", False)):
        target = parse_url(tls_site.url(host=name, scheme="https"), any_port=True)
        pinned = Pinned(target, [ip_address("127.0.0.1")])
        stream = await pinned.connect_tcp(name, tls_site.port)
        if is_valid:
            await stream.start_tls(context, "evil.example.org")
        else:
            with pytest.raises(httpcore.ConnectError, match=r"other\.example\.org"):
                await stream.start_tls(context, "tls.example.org")
        await pinned.aclose()


async def test_an_address_that_refuses_is_not_told(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    request = HttpRequest("GET", f"http://name.example.org:{port}/", private=True)
    with pytest.raises(Unreachable, match=r"^name\.example\.org could not be asked: Connection refused\. ") as caught:
        await BrokeredHttp(resolve=to_loopback).send(request)
    assert "127.0.0.1" not in str(caught.value)


# -- what it sends, and what is left ----------------------------------------------------------------------------------


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[int, list[socket.socket]]]:
    """A server that accepts and says nothing."""
    accepted: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            accepted.append(server.accept()[0])

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1], accepted
        thread.join(PATIENCE_S)
        for each in accepted:
            each.close()


async def test_a_request_that_is_cancelled_in_the_handshake_hangs_up() -> None:
    async with listening() as (port, accepted):
        client = BrokeredHttp(resolve=to_loopback, tls=ssl.create_default_context(cafile=str(TRUSTING)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.send, HttpRequest("GET", f"https://tls.example.org:{port}/", private=True))
            await until(lambda: accepted)
            tasks.cancel_scope.cancel()
        accepted[0].settimeout(PATIENCE_S)

        def until_gone() -> bytes:
            while accepted[0].recv(65536):
                pass
            return b"gone"

        assert await anyio.to_thread.run_sync(until_gone) == b"gone"


async def test_a_connection_is_for_one_request(site: Site) -> None:
    kept: list[tuple[str, int]] = []
    gone = threading.Event()

    def keep_alive(handler: BaseHTTPRequestHandler) -> None:
        kept.append(handler.client_address)
        handler.wfile.write(OK + b"Connection: keep-alive\r\n" + HI)
        if handler.connection.recv(1) == b"":
            gone.set()

    site.routes["/"] = keep_alive
    client = BrokeredHttp(resolve=to_loopback)
    for _ in range(2):
        gone.clear()
        assert (await client.send(HttpRequest("GET", site.url(), private=True))).body == b"hi"
        assert await anyio.to_thread.run_sync(gone.wait, 10)
    assert len(set(kept)) == 2 and site.seen[0][1]["Connection"] == "close"


async def test_white_space_around_a_header_is_not_sent(site: Site) -> None:
    site.routes["/"] = raw(OK + HI)
    request = HttpRequest("GET", site.url(), {"x-mine": " a b\t", "x-empty": " "}, private=True)
    await BrokeredHttp(resolve=to_loopback).send(request)
    [(_, headers)] = site.seen
    assert (headers["x-mine"], headers["x-empty"]) == ("a b", "") and "Content-Length" not in headers


async def test_a_log_of_httpcore_has_nothing_of_our_requests_and_all_of_others(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "s3cret-token/of+api=1"
    site.routes["/"] = raw(OK + b"X: " + secret.encode() + b"\r\n" + HI)
    credentials = {f"http://site.example.org:{site.port}": Credential(value=secret)}
    await BrokeredHttp(credentials=credentials, resolve=to_loopback).send(HttpRequest("GET", site.url(), private=True))
    assert secret not in caplog.text and not any(each.name.startswith("httpcore") for each in caplog.records)
    async with httpcore.AsyncConnectionPool() as others:
        await others.request("GET", f"http://127.0.0.1:{site.port}/")
    assert any(each.name == "httpcore.http11" for each in caplog.records)


def test_nothing_of_httpcore_is_loaded_before_the_first_request() -> None:
    program = (
        "import sys\nfrom toolcell import BrokeredHttp, PublicWeb, Supervisor, tool\nPublicWeb(), BrokeredHttp()\n"
        "sys.exit(any(name.split('.')[0] in ('httpcore', 'h11', 'certifi') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
