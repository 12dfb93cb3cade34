"""`ctx.http` in real cells: a tool without a network, an API on loopback, and a key that the tool never sees."""

import ctypes
import json
import logging
import os
import re
import ssl
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.backends.http.conftest import CERTIFICATE, TOKEN, Api, raw, reply, silent, to_loopback
from tests.journal.test_redaction import spellings
from tests.probes import ask as forge

from toolcell import (
    BrokeredHttp,
    Capability,
    Credential,
    ExecutionError,
    Limits,
    PermissionDenied,
    Profile,
    RecentJournal,
    RequestDenied,
    Session,
    SessionKind,
    Supervisor,
    Timeout,
    Tool,
    ToolContext,
    ToolFailure,
    load_config,
    tool,
)

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
HTTP = {Capability.HTTP}


@tool(needs=HTTP)
def ask(ctx: ToolContext, method: str, url: str, headers: dict[str, str] | None = None, body: str = "") -> list[Any]:
    """Make a request to an API."""
    assert ctx.http is not None
    answer = ctx.http.request(method, url, headers=headers, body=body.encode())
    return [answer.status, answer.headers, answer.body.decode("latin-1")]


@tool(needs=HTTP)
async def ask_many(ctx: ToolContext, urls: list[str]) -> list[Any]:
    """Make many requests at once. Return the outcome of each."""
    import asyncio

    http = ctx.http
    assert http is not None

    async def one(url: str) -> Any:
        try:
            return (await http.arequest("GET", url)).status
        except (RequestDenied, ToolFailure) as error:
            return type(error).__name__

    return list(await asyncio.gather(*map(one, urls)))


@tool(needs=HTTP)
def memory_has(ctx: ToolContext, url: str, shifted: str) -> list[bool]:
    """Make a request. Then search this process's memory and environment for a text whose characters were shifted by
    one, and for a text that must be there.
    """
    assert ctx.http is not None
    answer = ctx.http.request("GET", url)
    first, rest = ord(shifted[0]) - 1, bytes(ord(each) - 1 for each in shifted[1:])
    found = [False, False]
    with open("/proc/self/maps") as maps:
        areas = [line.split() for line in maps]
    for area in areas:
        if area[1][0] != "r" or area[-1].startswith(("[v", "/")):
            continue
        start, end = (int(number, 16) for number in area[0].split("-"))
        data = ctypes.string_at(start, end - start)
        at = data.find(rest)
        while at > 0 and not found[0]:
            found[0] = data[at - 1] == first
            at = data.find(rest, at + 1)
        found[1] = found[1] or answer.body in data
    return found


@tool(uses=HTTP)
def has_http(ctx: ToolContext) -> bool:
    """Return whether there is a handle."""
    return ctx.http is not None


@tool(needs=HTTP, lifetime="session")
def linger(ctx: ToolContext, url: str, late: bool) -> str:
    """Make a request in a thread that outlives the call."""
    http = ctx.http
    assert http is not None

    def later() -> None:
        time.sleep(0.3)
        try:
            http.request("GET", url)
            said.append("served")
        except BaseException as error:
            said.append(f"{type(error).__name__}: {error}")

    if late:
        threading.Thread(target=later, daemon=True).start()
        return ""
    return ", ".join(said)


said: list[str] = []


@tool(needs=HTTP)
def swallow(ctx: ToolContext, url: str) -> str:
    """Ignore the refusal, and return."""
    assert ctx.http is not None
    try:
        ctx.http.request("GET", url)
    except RequestDenied as error:
        return str(error)
    return "served"


@tool(uses={Capability.READ})
def forge_a_request(url: str) -> dict[str, Any]:
    """Send a forged request frame, without the grant."""
    return forge("http.request", {"method": "GET", "url": url, "headers": {}, "body": b""})


@tool(needs=HTTP)
def forge_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Send a forged request frame, with the grant."""
    return forge("http.request", arguments)


TOOLS: list[Tool[..., Any]] = [ask, ask_many, memory_has, has_http, linger, swallow, forge_a_request, forge_arguments]


def a_profile(api: Api, *rules: str, kind: str = "main") -> Profile:
    return Profile.for_kind(kind).replace(http=rules or (f"GET,POST http://127.0.0.1:{api.port}",))


@asynccontextmanager
async def a_session(
    api: Api, workspace: Path, *rules: str, **options: Any
) -> AsyncIterator[tuple[Session, RecentJournal]]:
    journal = RecentJournal()
    credential = Credential(value=TOKEN, prefix="Bearer ")
    http = BrokeredHttp(credentials={f"http://127.0.0.1:{api.port}": credential}, **options)
    async with Supervisor(TOOLS, http=http, journal=journal) as supervisor:
        yield await supervisor.open_session("main", workspace=workspace, profile=a_profile(api, *rules)), journal


def nowhere(journal: RecentJournal) -> None:
    """Check that no record contains the token."""
    assert TOKEN not in json.dumps([[record.kind, dict(record.data)] for record in journal], default=repr)


async def test_a_tool_without_network_or_key_asks_an_api(api: Api, workspace: Path) -> None:
    api.routes["/users"] = reply(b'[{"name": "ann"}]', 200, Content_Type="application/json")
    async with a_session(api, workspace) as (session, journal):
        result = await session.call("ask", {"method": "GET", "url": api.url("/users?n=1")})
        status, headers, body = result.unwrap()
        assert (status, headers["content-type"], json.loads(body)) == (200, "application/json", [{"name": "ann"}])
        assert result.sandbox.network == "none"
        assert api.seen[0].headers["authorization"] == f"Bearer {TOKEN}"
        [record] = journal.of(kind="http", call_id=result.call_id)
        facts = {name: record.data[name] for name in ("tool", "method", "path", "allowed", "status")}
        assert facts == {"tool": "ask", "method": "GET", "path": "/users", "allowed": True, "status": 200}
        assert record.data["credentials"] == ["authorization"]
        echoed = (await session.call("ask", {"method": "POST", "url": api.url("/echo"), "body": "x"})).unwrap()
        assert TOKEN not in str(echoed) and "[credential]" in echoed[2]
        nowhere(journal)
        assert TOKEN not in repr(session) + session.profile.explain() + str(session.profile.to_wire())


async def test_an_answer_shows_no_part_of_the_key_however_the_api_spells_it(api: Api, workspace: Path) -> None:
    spelled = spellings(TOKEN)
    api.routes["/"] = reply("\n".join(spelled.values()).encode())
    async with a_session(api, workspace) as (session, journal):
        _status, _headers, body = (await session.call("ask", {"method": "GET", "url": api.url()})).unwrap()
        for name, line in zip(spelled, body.splitlines(), strict=True):
            assert "[credential]" in line, name
        assert not re.search("s3cret|(?i:73%33|0033|#x33|#51)", body)
        nowhere(journal)


async def test_an_api_by_tls_is_asked_under_its_name(tls_api: Api, workspace: Path) -> None:
    place = f"tls.example.org:{tls_api.port}"
    http = BrokeredHttp(
        credentials={place: Credential(header="X-Api-Key", value=TOKEN)},
        tls=ssl.create_default_context(cafile=str(CERTIFICATE)),
        resolve=to_loopback,
    )
    async with Supervisor(TOOLS, http=http) as supervisor:
        profile = a_profile(tls_api, f"GET {place} private")
        session = await supervisor.open_session("main", workspace=workspace, profile=profile)
        url = tls_api.url("/x", host="tls.example.org", scheme="https")
        assert (await session.call("ask", {"method": "GET", "url": url})).unwrap()[0] == 200
        assert tls_api.seen[0].headers["x-api-key"] == TOKEN
        plain = tls_api.url("/x", host="tls.example.org")
        assert isinstance((await session.call("ask", {"method": "GET", "url": plain})).error, PermissionDenied)


async def test_the_key_is_nowhere_in_the_cells_memory(
    api: Api, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.routes["/"] = reply(b"a body that is in the memory of the cell")
    monkeypatch.setenv("API_TOKEN", TOKEN)
    credentials = {f"http://127.0.0.1:{api.port}": Credential(value_env="API_TOKEN")}
    async with Supervisor(TOOLS, http=BrokeredHttp(credentials=credentials)) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, profile=a_profile(api))
        shifted = "".join(chr(ord(character) + 1) for character in TOKEN)
        assert (await session.call("memory_has", {"url": api.url(), "shifted": shifted})).unwrap() == [False, True]
    assert api.seen[0].headers["authorization"] == TOKEN


async def test_a_denial_is_typed_has_its_reason_and_cure_and_is_on_record(
    api: Api, other: Api, workspace: Path
) -> None:
    async with a_session(api, workspace) as (session, journal):
        for method, url in (("DELETE", api.url()), ("GET", other.url()), ("GET", "https://example.com/")):
            result = await session.call("ask", {"method": method, "url": url})
            assert isinstance(result.error, PermissionDenied)
            assert "is not among the requests" in result.error.reason and "Profile(http=[..., " in result.error.reason
            assert result.error.missing == ()
            [record] = journal.of(kind="http", call_id=result.call_id)
            assert (record.data["allowed"], record.data["reason"]) == (False, result.error.reason)
        assert api.seen == other.seen == []
        said = (await session.call("swallow", {"url": other.url()})).unwrap()
        assert "is not among the requests" in said, "a tool may cope with it"


HOSTILE_HEADERS: list[dict[str, str]] = [
    {"Authorization": "mine"}, {"Cookie": "a=b"}, {"Host": "evil.example.org"}, {"Content-Length": "0"},
    {"Transfer-Encoding": "chunked"}, {"Proxy-Authorization": "x"}, {"X": "a\r\nAuthorization: mine"},
    {"X\r\nHost: evil.example.org\r\nY": "z"}, {"X": "a\0"}, {"Content_Length": "5"},
    {"X-HTTP-Method-Override": "DELETE"},
    {"": "x"}, {"X-A": "1", "x-a": "2"},
]  # fmt: skip


async def test_hostile_headers_are_refused_and_nothing_is_sent(api: Api, workspace: Path) -> None:
    async with a_session(api, workspace) as (session, journal):
        for headers in HOSTILE_HEADERS:
            result = await session.call("ask", {"method": "POST", "url": api.url(), "headers": headers, "body": "x"})
            assert isinstance(result.error, PermissionDenied), (headers, result)
        assert [record.data["allowed"] for record in journal.of(kind="http")] == [False] * len(HOSTILE_HEADERS)
        assert api.seen == []


async def test_hosts_that_look_alike_are_refused(api: Api, workspace: Path) -> None:
    async with a_session(api, workspace, f"GET http://api.example.org:{api.port} private") as (session, _):
        urls = [
            f"http://{host}:{api.port}/"
            for host in (
                "127.0.0.1", "127.1", "2130706433", "0x7f.1", "localhost", "[::1]", "[::ffff:127.0.0.1]",
                "evil.api.example.org", "api.example.org.evil.example.org", "api.example.org@127.0.0.1",
                "аpi.example.org", "api.example.org%2eevil.example.org",
                "api。example。org。evil.example.org",
            )
        ]  # fmt: skip
        urls += [
            "http://api.example.org/",
            f"https://api.example.org:{api.port}/",
            f"http:api.example.org:{api.port}",
            "file:///etc/passwd",
        ]
        urls += [
            f"http://api.example.org:{api.port}/\r\nHost: evil.example.org",
            f"http://api.example.org:{api.port} /",
            "unix:///run/x",
        ]
        assert set((await session.call("ask_many", {"urls": urls})).unwrap()) == {"RequestDenied"}
        assert api.seen == []


async def test_a_redirect_cannot_carry_the_key_away(api: Api, other: Api, workspace: Path) -> None:
    both = (f"GET http://127.0.0.1:{api.port}", f"GET http://127.0.0.1:{other.port}/open")
    api.routes["/open"] = reply(b"", 302, Location=other.url("/open"))
    api.routes["/closed"] = reply(b"", 307, Location=other.url("/closed"))
    api.routes["/inside"] = reply(b"", 302, Location="http://169.254.169.254/latest/meta-data/")
    async with a_session(api, workspace, *both) as (session, journal):
        assert (await session.call("ask", {"method": "GET", "url": api.url("/open")})).unwrap()[0] == 200
        for path in ("/closed", "/inside"):
            result = await session.call("ask", {"method": "GET", "url": api.url(path)})
            assert isinstance(result.error, PermissionDenied)
            records = [record.data["allowed"] for record in journal.of(kind="http", call_id=result.call_id)]
            assert records == [True, False]
        assert [seen.path for seen in other.seen] == ["/open"]
        assert "authorization" not in other.seen[0].headers
        nowhere(journal)


async def test_many_requests_are_in_flight_and_a_refusal_is_one_of_them(api: Api, workspace: Path) -> None:
    async with a_session(api, workspace) as (session, journal):
        urls = [api.url(f"/{number}") if number % 3 else "https://example.com/" for number in range(120)]
        found = (await session.call("ask_many", {"urls": urls})).unwrap()
        assert found == [200 if number % 3 else "RequestDenied" for number in range(120)]
        assert len(journal.of(kind="http")) == 120 and len(api.seen) == 80


async def test_a_huge_answer_and_one_that_breaks_off_fail_the_tool_and_nothing_else(api: Api, workspace: Path) -> None:
    api.routes["/huge"] = raw(b"HTTP/1.1 200 OK\r\n\r\n", *([b"x" * 1_000_000] * 12))
    api.routes["/cut"] = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
    async with a_session(api, workspace) as (session, _):
        for path, why in (("/huge", "larger than 8,388,608 bytes"), ("/cut", "breaks off")):
            result = await session.call("ask", {"method": "GET", "url": api.url(path)})
            assert isinstance(result.error, ExecutionError) and why in result.error.message
        assert (await session.call("ask", {"method": "GET", "url": api.url()})).unwrap()[0] == 200


async def test_an_answer_that_the_cell_may_not_be_sent_is_a_failure_and_the_supervisor_goes_on(
    api: Api, workspace: Path
) -> None:
    api.routes["/"] = reply(b"x" * 2_000_000)
    small = a_profile(api).replace(limits=Limits(result_bytes=1_000_000))
    async with Supervisor(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, profile=small)
        result = await session.call("ask", {"method": "GET", "url": api.url()})
        assert isinstance(result.error, ExecutionError) and "too large for this call" in result.error.message
        assert (await session.call("has_http")).unwrap() is True


async def test_a_slow_server_is_left_at_the_calls_deadline(api: Api, workspace: Path) -> None:
    gone = silent(api)
    async with a_session(api, workspace) as (session, journal):
        result = await session.call("ask", {"method": "GET", "url": api.url()}, timeout=1.0)
        assert isinstance(result.error, Timeout)
        [record] = journal.of(kind="http", call_id=result.call_id)
        assert (record.data["allowed"], record.data["reason"]) == (True, "the call ended")
        assert await anyio.to_thread.run_sync(gone.wait, 5), "the connection is cut with the call"


async def test_after_the_call_nothing_is_asked_any_more(api: Api, workspace: Path) -> None:
    async with a_session(api, workspace) as (session, _):
        (await session.call("linger", {"url": api.url(), "late": True})).unwrap()
        await anyio.sleep(1.0)
        heard = (await session.call("linger", {"url": "", "late": False})).unwrap()
        assert heard.startswith("ToolFailure: The call is over") and api.seen == []


async def test_forged_frames_get_no_further_than_the_handle(api: Api, workspace: Path) -> None:
    async with a_session(api, workspace) as (session, journal):
        answer = (await session.call("forge_a_request", {"url": api.url()})).unwrap()
        assert (answer["ok"], answer["value"]["kind"]) == (False, "permission_denied")
        assert journal.of(kind="denied")[-1].data["operation"] == "http.request"
        good = {"method": "GET", "url": api.url(), "headers": {}, "body": ""}
        for wrong in (
            good, good | {"headers": []}, good | {"headers": {"X": 1}}, good | {"method": 7}, good | {"url": None},
            {}, good | {"url": "http://a/" + "x" * 300_000},
        ):  # fmt: skip
            answer = (await session.call("forge_arguments", {"arguments": wrong})).unwrap()
            assert (answer["ok"], answer["value"]["kind"]) == (False, "execution"), wrong
        assert api.seen == []


async def test_a_child_reaches_no_more_than_its_parent_and_a_worker_nothing(api: Api, workspace: Path) -> None:
    wide = a_profile(api, f"* http://127.0.0.1:{api.port}", "* https://*.example.com", kind="branch")
    async with Supervisor(TOOLS, profiles={SessionKind.BRANCH: wide}) as supervisor:
        parent = await supervisor.open_session(
            "main", workspace=workspace, profile=a_profile(api, f"GET {api.url('/v1')}")
        )
        branch = await parent.open_child("branch")
        assert branch.profile.http == (f"GET http://127.0.0.1:{api.port}/v1",)
        assert (await branch.call("ask", {"method": "GET", "url": api.url("/v1/x")})).unwrap()[0] == 200
        for method, path in (("POST", "/v1"), ("GET", "/v2")):
            result = await branch.call("ask", {"method": method, "url": api.url(path)})
            assert isinstance(result.error, PermissionDenied)
        worker = await parent.open_child("worker", profile=wide)
        assert Capability.HTTP not in worker.grants
        assert (await worker.call("has_http")).unwrap() is False
        refused = await worker.call("ask", {"method": "GET", "url": api.url("/v1")})
        assert isinstance(refused.error, PermissionDenied) and refused.error.missing == (Capability.HTTP,)
        answer = (await worker.call("forge_a_request", {"url": api.url("/v1")})).unwrap()
        assert answer["value"]["kind"] == "permission_denied"
        assert len(api.seen) == 1


async def test_by_default_there_is_a_handle_and_nothing_that_it_reaches(api: Api, workspace: Path) -> None:
    async with Supervisor(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("has_http")).unwrap() is True
        result = await session.call("ask", {"method": "GET", "url": api.url()})
        assert isinstance(result.error, PermissionDenied) and api.seen == []


async def test_a_session_may_have_a_client_of_its_own_and_its_children_have_it_too(api: Api, workspace: Path) -> None:
    place = f"http://127.0.0.1:{api.port}"
    mine = BrokeredHttp(credentials={place: Credential(value="my-own-key")})
    async with Supervisor(TOOLS, profiles={SessionKind.BRANCH: a_profile(api, kind="branch")}) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, profile=a_profile(api), http=mine)
        child = await session.open_child("branch")
        for each in (session, child):
            (await each.call("ask", {"method": "GET", "url": api.url()})).unwrap()
        assert [seen.headers["authorization"] for seen in api.seen] == ["my-own-key"] * 2


async def test_settings_say_what_may_be_asked_and_where_the_key_is(
    api: Api, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("API_TOKEN", TOKEN)
    settings = tmp_path / "settings.toml"
    settings.write_text(
        f"""
        [profiles.main]
        http = ["GET http://127.0.0.1:{api.port}"]
        [supervisor.credentials."http://127.0.0.1:{api.port}"]
        value_env = "API_TOKEN"
        prefix = "Bearer "
        """
    )
    config = load_config(file=settings)
    async with Supervisor(TOOLS, config=config) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        (await session.call("ask", {"method": "GET", "url": api.url()})).unwrap()
        assert api.seen[0].headers["authorization"] == f"Bearer {TOKEN}"
        assert isinstance(supervisor.journal, RecentJournal)
        nowhere(supervisor.journal)
    assert TOKEN not in repr(config) + caplog.text
    assert os.environ["API_TOKEN"] == TOKEN
