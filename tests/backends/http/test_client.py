"""The HTTP client and its redirects against real servers on loopback: where credentials go, and where they do not."""

import gzip
import logging
import re
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import anyio
import pytest
from tests.helpers import PATIENCE_S, until
from tests.journal.test_redaction import spellings

from toolcell import BrokeredHttp, Credential, HttpClient, HttpRequest, HttpResponse
from toolcell.backends.http import Requester, Trail
from toolcell.backends.http.requester import MAX_REQUEST, MAX_RESPONSE
from toolcell.backends.protocols import BackendError, Refused, Unreachable
from toolcell.rules.redaction import CREDENTIAL, Redaction

from .conftest import CERTIFICATE, TOKEN, Api, Route, drip, raw, reply, silent, to_loopback

pytestmark = pytest.mark.anyio


class Asking:
    """A requester by some rules, and the records that it left."""

    def __init__(self, rules: list[str], **options: Any) -> None:
        options.setdefault("resolve", to_loopback)
        self.client: HttpClient = BrokeredHttp(**options)
        self.records: list[dict[str, Any]] = []
        self.trail = Trail(self.records.append)
        self.requester = Requester(rules, self.client, self.trail)

    async def __call__(self, method: str, url: str, body: bytes = b"", **headers: str) -> HttpResponse:
        said = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.requester.request(method, url, said, body)

    async def refused(self, method: str, url: str, body: bytes = b"", **headers: str) -> str:
        with pytest.raises(Refused) as caught:
            await self(method, url, body, **headers)
        assert self.records[-1]["allowed"] is False and self.records[-1]["reason"] == str(caught.value)
        return str(caught.value)


def keyed(api: Api, **options: Any) -> dict[str, Any]:
    return {"credentials": {f"http://127.0.0.1:{api.port}": Credential(value=TOKEN, prefix="Bearer ", **options)}}


def everything(*apis: Api) -> list[str]:
    return [f"* http://127.0.0.1:{api.port}" for api in apis]


async def test_a_request_goes_out_as_it_was_asked_for_with_the_credential(api: Api) -> None:
    ask = Asking(everything(api), **keyed(api))
    api.routes["/v1/users"] = reply(b'{"id": 1}', 201, X_Left="3", Set_Cookie="session=1")
    answer = await ask("post", api.url("/v1/users?a=ä"), b"{}", Content_Type="application/json", X_Trace="7")
    assert (answer.status, answer.body) == (201, b'{"id": 1}')
    assert answer.headers["x-left"] == "3" and "set-cookie" not in answer.headers
    [seen] = api.seen
    assert (seen.method, seen.path, seen.body) == ("POST", "/v1/users?a=%C3%A4", b"{}")
    assert seen.headers == {
        "host": f"127.0.0.1:{api.port}",
        "user-agent": "toolcell/0.1",
        "accept": "*/*",
        "accept-encoding": "gzip, deflate",
        "authorization": f"Bearer {TOKEN}",
        "content-type": "application/json",
        "content-length": "2",
        "connection": "close",
        "x-trace": "7",
    }
    [record] = ask.records
    assert record == {
        "method": "POST",
        "scheme": "http",
        "host": "127.0.0.1",
        "port": api.port,
        "path": "/v1/users",
        "rule": f"* http://127.0.0.1:{api.port}",
        "address": "127.0.0.1",
        "credentials": ["authorization"],
        "allowed": True,
        "reason": "",
        "status": 201,
        "bytes_in": 9,
        "bytes_out": 2,
    }


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_every_method_of_a_rule_is_sent_and_no_other(api: Api, method: str) -> None:
    url = api.url("/x")
    answer = await Asking([f"{method} {url}"])(method, url)
    assert answer.status == 200 and api.seen[0].method == method
    assert api.seen[0].headers.get("content-length", "0") == "0"
    for different in {"GET", "POST", "DELETE"} - {method}:
        said = await Asking([f"{method} {url}"]).refused(different, url)
        assert f"{different} http://127.0.0.1:{api.port}/x is not among the requests" in said
    assert len(api.seen) == 1


async def test_a_credential_goes_to_its_own_scheme_host_and_port_alone(api: Api, other: Api, tls_api: Api) -> None:
    ask = Asking(
        [
            *everything(api, other),
            f"* http://name.example.org:{api.port} private",
            f"* https://tls.example.org:{tls_api.port} private",
        ],
        tls=ssl.create_default_context(cafile=str(CERTIFICATE)),
        credentials={
            f"http://127.0.0.1:{api.port}": Credential(value=TOKEN),
            f"tls.example.org:{tls_api.port}": [
                Credential(header="X-Api-Key", value="a-key-of-tls"),
                Credential(value="another1"),
            ],
        },
    )
    await ask("GET", api.url())
    await ask("GET", other.url())
    await ask("GET", api.url(host="name.example.org"))
    await ask("GET", tls_api.url(host="tls.example.org", scheme="https"))
    assert [seen.headers.get("authorization") for seen in api.seen] == [TOKEN, None]
    assert "authorization" not in other.seen[0].headers
    assert tls_api.seen[0].headers["x-api-key"] == "a-key-of-tls"
    assert tls_api.seen[0].headers["authorization"] == "another1"
    assert [record["credentials"] for record in ask.records] == [
        ["authorization"], [], [], ["x-api-key", "authorization"],
    ]  # fmt: skip


async def test_a_tool_cannot_send_the_header_of_a_credential_itself(api: Api, other: Api) -> None:
    ask = Asking(everything(api, other), **keyed(api, header="X-Api-Key"))
    for name in ("X-Api-Key", "x-api-key", "X_API_KEY"):
        with pytest.raises(Refused, match="is not a tool's to set"):
            await ask.requester.request("GET", api.url(), {name: "mine"}, b"")
    assert api.seen == []
    await ask("GET", other.url(), X_Api_Key="mine")
    assert other.seen[0].headers["x-api-key"] == "mine"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_within_the_origin_keeps_credential_and_headers(api: Api, status: int) -> None:
    api.routes["/a"] = reply(b"", status, Location="/b?c=1")
    ask = Asking(everything(api), **keyed(api))
    await ask("POST", api.url("/a"), b"body", Content_Type="text/x", X_Mine="1")
    first, second = api.seen
    assert (second.path, second.headers["authorization"], second.headers["x-mine"]) == (
        "/b?c=1",
        f"Bearer {TOKEN}",
        "1",
    )
    if status in (307, 308):
        assert (second.method, second.body, second.headers["content-type"]) == ("POST", b"body", "text/x")
    else:
        assert (second.method, second.body) == ("GET", b"") and "content-type" not in second.headers
    assert first.body == b"body" and [record["status"] for record in ask.records] == [status, 200]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_origin_takes_no_credential_and_no_header_of_the_tools_along(
    api: Api, other: Api, status: int
) -> None:
    api.routes["/a"] = reply(b"", status, Location=other.url("/b"))
    other.routes["/b"] = reply(b"", 302, Location=api.url("/back"))
    both = {"credentials": keyed(api)["credentials"] | keyed(other)["credentials"]}
    ask = Asking(everything(api, other), **both)
    await ask("GET", api.url("/a"), X_Mine="1", Accept="a/b")
    [elsewhere], [_, back] = other.seen, api.seen
    assert elsewhere.headers.keys() == {"host", "user-agent", "accept", "accept-encoding", "connection"}
    assert elsewhere.headers["accept"] == "a/b"
    assert "authorization" not in back.headers, "a redirect asks for nothing in the supervisor's name, even back here"
    assert [record["credentials"] for record in ask.records] == [["authorization"], [], []]


async def test_a_redirect_to_what_no_rule_covers_is_refused_and_not_followed(api: Api, other: Api) -> None:
    ask = Asking([f"GET,POST {api.url('/v1')}", f"GET {other.url('/')}"], **keyed(api))
    for location in (
        "/admin",
        "/v1/../admin",
        "//evil.example.org/",
        "http://169.254.169.254/latest/meta-data/",
        f"http://localhost:{other.port}/",
        f"http://0x7f000001:{other.port}/",
        f"http://[::ffff:127.0.0.1]:{other.port}/",
        f"https://127.0.0.1:{other.port}/",
        f"http://user@127.0.0.1:{other.port}/",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "/v1/\tx",
        "http://[bad/",
    ):
        api.routes["/v1/go"] = reply(b"", 302, Location=location)
        await ask.refused("GET", api.url("/v1/go"))
    api.routes["/v1/go"] = reply(b"", 307, Location=other.url("/"))
    assert "POST http" in await ask.refused("POST", api.url("/v1/go"), b"secret"), "the rule there is for GET alone"
    assert other.seen == [] and {seen.path for seen in api.seen} == {"/v1/go"}
    assert [record["allowed"] for record in ask.records[:2]] == [True, False]


async def test_an_answer_that_puts_the_credential_into_a_redirect_does_not_give_it_away(api: Api, other: Api) -> None:
    api.routes["/a"] = reply(b"", 302, Location=other.url(f"/b?stolen={TOKEN}"))
    await Asking(everything(api, other), **keyed(api))("GET", api.url("/a"))
    [seen] = other.seen
    assert TOKEN not in seen.path and "credential" in seen.path


async def test_there_are_only_so_many_redirects(api: Api) -> None:
    api.routes["/"] = reply(b"", 302, Location="/")
    with pytest.raises(Unreachable, match="more than 5 redirects"):
        await Asking(everything(api))("GET", api.url())
    assert len(api.seen) == 6


async def test_an_answer_that_repeats_the_request_does_not_show_the_credential(api: Api) -> None:
    ask = Asking(everything(api), **keyed(api))
    api.routes["/headers"] = reply(b"", 200, X_Echo=f"Bearer {TOKEN}", WWW_Authenticate=f'Bearer realm="{TOKEN}"')
    api.routes["/zip"] = raw(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n" + gzip.compress(f"<{TOKEN}>".encode())
    )
    echoed = await ask("POST", api.url("/echo"), b"mine")
    assert b"authorization: Bearer [credential]" in echoed.body and echoed.body.endswith(b"mine")
    assert "content-length" not in echoed.headers, "it would tell how long the secret is"
    headers = (await ask("GET", api.url("/headers"))).headers
    assert headers["x-echo"] == "Bearer [credential]" and TOKEN not in str(headers)
    assert (await ask("GET", api.url("/zip"))).body == b"<[credential]>"
    assert TOKEN not in str(ask.records)


async def test_events_that_arrive_in_pieces_do_not_show_the_credential(api: Api) -> None:
    """Each byte is sent on its own, and one piece ends within each spelling."""
    spelled = spellings(TOKEN)
    body = "".join(f"data: {each}\n\n" for each in spelled.values()).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    api.routes["/"] = raw(head, *(body[at : at + 1] for at in range(len(body))))
    ask, seen = Asking(everything(api), **keyed(api)), bytearray()

    async def listen() -> None:
        while (events := await ask.requester.events(1)) is not None:
            seen.extend(events)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        answer = await ask.requester.watched(1, "GET", api.url(), {}, b"")
    for text in (bytes(seen).decode(), answer.body.decode()):
        lines = [line for line in text.split("\n") if line]
        assert lines and all(line.count(CREDENTIAL) >= 1 for line in lines)
        assert not re.search("s3cret|(?i:73%33|0033|#x33|#51)", text)
    assert answer.body.count(b"data: ") == len(spelled)


PRIVATE = ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1", "::ffff:10.0.0.1", "100.64.0.1", "0.0.0.0"]


@pytest.mark.parametrize("address", PRIVATE)
async def test_a_name_may_not_have_a_private_address_unless_its_rule_says_so(
    api: Api, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"http://name.example.org:{api.port}"
    ask = Asking([f"GET {place}"], resolve=lambda host, port: ["1.1.1.1", address])
    monkeypatch.setattr("toolcell.backends.outbound.Outbound.ask", None)
    said = await ask.refused("GET", f"{place}/")
    assert said.endswith(f"Profile(http=[..., 'GET {place} private']).")
    assert address not in said, "an internal address is not a model's to know"


async def test_a_rule_that_says_private_lifts_that_for_its_host_and_methods(api: Api) -> None:
    place = f"http://name.example.org:{api.port}"
    ask = Asking([f"GET {place} private", f"POST {place}", f"GET http://other.example.org:{api.port}"])
    assert (await ask("GET", f"{place}/")).status == 200
    await ask.refused("POST", f"{place}/")
    await ask.refused("GET", f"http://other.example.org:{api.port}/")
    assert [seen.method for seen in api.seen] == ["GET"]


async def test_a_name_is_looked_up_once_for_each_request_and_what_was_checked_is_connected_to(api: Api) -> None:
    answers = [["127.0.0.1"], ["10.0.0.1"]]
    asked: list[str] = []

    def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return answers.pop(0)

    ask = Asking([f"GET http://name.example.org:{api.port} private"], resolve=rebinding)
    await ask("GET", api.url(host="name.example.org"))
    assert asked == ["name.example.org"] and ask.records[0]["address"] == "127.0.0.1"


async def test_what_is_not_covered_is_never_looked_up() -> None:
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    ask = Asking(["GET https://api.example.com"], resolve=resolve)
    await ask.refused("GET", "https://my-secret-data.evil.example.org/")
    assert asked == [], "names carry nothing out"


async def test_tls_is_checked_against_the_name(tls_api: Api) -> None:
    rules = [f"GET https://{name}.example.org:{tls_api.port} private" for name in ("tls", "other")]
    trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
    credentials = {f"{name}.example.org:{tls_api.port}": Credential(value=TOKEN) for name in ("tls", "other")}
    ask = Asking(rules, tls=trusting, credentials=credentials)
    assert (await ask("GET", tls_api.url(host="tls.example.org", scheme="https"))).status == 200
    with pytest.raises(Unreachable, match=r"certificate of other\.example\.org is not valid"):
        await ask("GET", tls_api.url(host="other.example.org", scheme="https"))
    with pytest.raises(Unreachable, match="certificate"):
        await Asking(rules, credentials=credentials)("GET", tls_api.url(host="tls.example.org", scheme="https"))
    assert len(tls_api.seen) == 1, "no credential goes to a server that is not known"


async def test_a_body_that_is_too_large_is_not_sent(api: Api) -> None:
    ask = Asking(everything(api))
    assert "over the limit" in await ask.refused("POST", api.url(), b"x" * (MAX_REQUEST + 1))
    assert api.seen == []
    await ask("POST", api.url("/x"), b"x" * MAX_REQUEST)
    assert len(api.seen[0].body) == MAX_REQUEST


BOMB = gzip.compress(b"\0" * (MAX_RESPONSE + 1))
BROKEN: dict[str, tuple[Route, str]] = {
    "too large": (reply(b"x" * (MAX_RESPONSE + 1)), "larger than 8,388,608 bytes. Ask for less"),
    "bomb": (reply(BOMB, Content_Encoding="gzip"), "larger than 8,388,608 bytes. Ask for less"),
    "without end": (raw(b"HTTP/1.1 200 OK\r\n\r\n", *([b"y" * 1_000_000] * 20)), "larger than 8,388,608 bytes"),
    "breaks off": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), "breaks off"),
    "nothing": (raw(b""), "could not be asked"),
    "no http": (raw(b"SSH-2.0-OpenSSH_9\r\n"), "not valid HTTP"),
    "many headers": (raw(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n"), "too many"),
    "large headers": (raw(b"HTTP/1.1 200 OK\r\n", *([b"X: " + b"y" * 30_000 + b"\r\n"] * 3), b"\r\n"), "too large"),
    "another protocol": (raw(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"), "not valid HTTP"),
    "damaged": (reply(b"\x1f\x8bno gzip", Content_Encoding="gzip"), "damaged"),
    "unknown encoding": (reply(b"x", Content_Encoding="br"), "compressed as 'br'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
async def test_half_an_answer_is_none(api: Api, name: str) -> None:
    api.routes["/"], why = BROKEN[name]
    ask = Asking(everything(api), **keyed(api))
    with pytest.raises(Unreachable, match=why) as caught:
        await ask("GET", api.url())
    assert ask.records[-1]["reason"] == str(caught.value) and ask.records[-1]["allowed"] is True
    assert TOKEN not in str(caught.value)


async def test_the_largest_answer_comes_whole(api: Api) -> None:
    api.routes["/"] = reply(b"x" * MAX_RESPONSE)
    assert (await Asking(everything(api))("GET", api.url())).body == b"x" * MAX_RESPONSE


async def test_a_server_that_takes_its_time_gets_no_more_than_the_deadline(api: Api) -> None:
    api.routes["/"] = drip
    start = time.monotonic()
    with pytest.raises(Unreachable, match=r"did not answer within 0\.4 s\. The request may have"):
        await Asking(everything(api), timeout_s=0.4)("GET", api.url())
    assert time.monotonic() - start > 0.35


async def test_a_cancelled_request_returns_at_once_hangs_up_and_is_on_record(api: Api) -> None:
    gone = silent(api)
    ask = Asking(everything(api))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, "GET", api.url())
        await until(lambda: api.seen)
        tasks.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(gone.wait, PATIENCE_S)
    [record] = ask.records
    assert (record["allowed"], record["reason"], record["status"]) == (True, "the call ended", 0)


async def test_proxies_and_netrc_of_the_environment_are_ignored(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    assert (await Asking(everything(api))("GET", api.url())).status == 200


async def test_many_requests_are_under_way_at_once_and_a_call_has_sixteen(api: Api) -> None:
    together, most = 0, 0
    lock, sixteen = threading.Lock(), threading.Event()

    def slow(handler: BaseHTTPRequestHandler) -> None:
        nonlocal together, most
        with lock:
            together += 1
            most = max(most, together)
            if together == 16:
                sixteen.set()
        sixteen.wait(PATIENCE_S)
        time.sleep(0.05)  # so that a seventeenth could come
        with lock:
            together -= 1
        reply()(handler)

    api.routes["/"] = slow
    ask = Asking(everything(api))
    async with anyio.create_task_group() as tasks:
        for _ in range(40):
            tasks.start_soon(ask, "GET", api.url())
    assert len(ask.records) == 40 and most == 16


async def test_no_secret_is_in_a_log_or_an_error_whatever_goes_wrong(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ask = Asking([*everything(api), "GET http://127.0.0.1:1"], **keyed(api))
    wrong: list[Callable[[], Any]] = [
        lambda: ask("GET", api.url("/drop")),
        lambda: ask("GET", "http://127.0.0.1:1/"),
        lambda: ask("DELETE", "http://127.0.0.1:1/"),
        lambda: ask("GET", api.url(), Authorization="x"),
    ]
    api.routes["/drop"] = raw(f"HTTP/1.1 2x0 {TOKEN}\r\n\r\n".encode())
    for each in wrong:
        with pytest.raises(BackendError) as caught:
            await each()
        cause: BaseException | None = caught.value
        while cause is not None and not cause.__suppress_context__:
            assert TOKEN not in str(cause)
            cause = cause.__context__
    assert TOKEN not in caplog.text and TOKEN not in str(ask.records)


async def test_a_client_serves_two_event_loops_one_after_another(api: Api) -> None:
    ask = Asking(everything(api))

    async def once() -> int:
        return (await ask.client.send(HttpRequest("GET", api.url(), private=True))).status

    assert await anyio.to_thread.run_sync(lambda: anyio.run(once)) == await once() == 200


# -- large answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "asked"), [(1_000, []), (64 * 1024, []), (64 * 1024 + 1, [MAX_RESPONSE])])
async def test_room_is_asked_for_before_a_large_answer_is_kept_and_not_for_a_small_one(
    api: Api, size: int, asked: list[int]
) -> None:
    asks: list[int] = []

    async def grow(bytes: int) -> None:
        asks.append(bytes)

    api.routes["/"] = reply(b"x" * size)
    request = HttpRequest("GET", api.url(), private=True, max_bytes=MAX_RESPONSE, grow=grow)
    assert len((await BrokeredHttp(resolve=to_loopback).send(request)).body) == size
    assert asks == asked


async def test_an_answer_that_waits_for_room_ends_with_its_time_and_says_why(api: Api) -> None:
    async def grow(bytes: int) -> None:
        await anyio.sleep_forever()

    api.routes["/"] = reply(b"x" * 100_000)
    request = HttpRequest("GET", api.url(), private=True, grow=grow)
    with pytest.raises(Unreachable, match="Have fewer requests in flight"):
        await BrokeredHttp(resolve=to_loopback, timeout_s=5.0).send(request)


async def test_credentials_are_taken_out_of_a_hostile_answer_beside_the_event_loop(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    take_out = Redaction.body

    def noted(redaction: Redaction, body: bytes) -> bytes:
        threads.append(threading.get_ident())
        return take_out(redaction, body)

    monkeypatch.setattr(Redaction, "body", noted)
    secret = "a" * 4000 + "b"
    body = b"a" * (MAX_RESPONSE - 10_000) + secret.encode()
    api.routes["/"] = reply(body)
    credentials = {f"http://127.0.0.1:{api.port}": Credential(value=secret)}
    client = BrokeredHttp(credentials=credentials, resolve=to_loopback, timeout_s=60.0)
    answer = await client.send(HttpRequest("GET", api.url(), private=True, max_bytes=MAX_RESPONSE))
    assert threads and threading.get_ident() not in threads
    assert answer.body == body[: -len(secret)] + b"[credential]"


async def test_an_address_in_the_url_is_not_looked_up(api: Api) -> None:
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    ask = Asking(everything(api), resolve=resolve)
    assert (await ask("GET", f"http://127.0.0.1:{api.port}/")).status and asked == []


async def test_only_the_length_of_a_redacted_answer_is_left_out(api: Api) -> None:
    ask = Asking(everything(api), **keyed(api))
    api.routes["/plain"] = reply(b"plain", X_Mine="1")
    api.routes["/secret"] = reply(TOKEN.encode(), X_Mine="1")
    plain, redacted = await ask("GET", api.url("/plain")), await ask("GET", api.url("/secret"))
    assert (plain.headers["x-mine"], plain.headers["content-length"]) == ("1", "5")
    assert redacted.headers["x-mine"] == "1" and "content-length" not in redacted.headers
