"""The proxy from inside a cell: what it allows, what it refuses, and that nothing of a call outlives the call."""

import os
import socket
import time
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.helpers import PATIENCE_S, until

from toolcell import (
    Capability,
    HostNetwork,
    PermissionDenied,
    ProxyNetwork,
    RecentJournal,
    Session,
    Supervisor,
    ToolResult,
    tool,
)
from toolcell.backends.addresses import Address
from toolcell.backends.egress import connection as connection_module
from toolcell.backends.egress import gateway as gateway_module
from toolcell.backends.egress import net
from toolcell.pool.fleet import Fleet
from toolcell.session import core_of

from .conftest import Listener, Proxied, Resolver, Site
from .tools import flood, leave_open, speak, without_net

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.usefixtures("nothing_ahead")]


def dial(request: bytes) -> socket.socket:
    stream = socket.create_connection(("127.0.0.1", 3128), 5)
    stream.sendall(request)
    return stream


class Early:
    """When unpickled, it becomes a connection to the proxy with a request in flight."""

    def __init__(self, request: bytes) -> None:
        self.request = request

    def __reduce__(self) -> Any:
        return dial, (self.request,)


@asynccontextmanager
async def opened(supervisor: Supervisor, workspace: Path) -> Any:
    async with supervisor:
        yield await supervisor.open_session("main", workspace=workspace)


async def told(session: Session, *requests: str, **options: Any) -> list[str]:
    """The proxy's answer to each request."""
    result: ToolResult = await session.call("speak", {"requests": list(requests), **options})
    return [str(each) for each in result.unwrap()]


def get(url: str, *headers: str) -> str:
    return "\r\n".join((f"GET {url} HTTP/1.1", *headers, "", ""))


def connect(authority: str) -> str:
    return f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"


def statuses(answers: Sequence[str]) -> list[int]:
    return [int(answer.split(" ", 2)[1]) if answer.startswith("HTTP/1.1 ") else 0 for answer in answers]


def records(session: Session) -> list[dict[str, Any]]:
    journal = core_of(session).services.journal
    assert isinstance(journal, RecentJournal)
    return [dict(record.data) for record in journal.of(kind="egress", session_id=session.id)]


async def test_what_is_allowed_goes_through_and_is_on_record(
    proxied: Proxied, site: Site, listener: Listener, workspace: Path
) -> None:
    allowed = [f"site.example.org:{site.port}", f"127.0.0.1:{listener.port}"]
    async with opened(proxied([speak], allow=allowed, allow_private=allowed), workspace) as session:
        page, tunnel = await told(
            session,
            get(f"http://site.example.org:{site.port}/hello.txt", "Host: evil.example.org"),
            connect(allowed[1]) + "hi",
            half_close=True,
        )
        assert page.startswith("HTTP/1.0 200 OK\r\n") and page.endswith("\r\n\r\nhello there\n")
        assert "Connection: close" in page
        assert tunnel.startswith("HTTP/1.1 200 ") and "\r\n\r\nwelcome" in tunnel
        line, headers = site.seen[0]
        assert line == "GET /hello.txt HTTP/1.1"
        assert [value for name, value in headers if name.lower() == "host"] == [f"site.example.org:{site.port}"]
        first, second = records(session)
        assert first | {"bytes_in": 0, "bytes_out": 0} == {
            "tool": "speak",
            "method": "GET",
            "host": "site.example.org",
            "port": site.port,
            "address": "127.0.0.1",
            "allowed": True,
            "reason": "",
            "bytes_in": 0,
            "bytes_out": 0,
        }
        assert first["bytes_in"] > 100 and first["bytes_out"] > 50
        assert (second["host"], second["port"], second["allowed"]) == ("127.0.0.1", listener.port, True)
        assert second["bytes_in"] == len(b"welcome") and second["bytes_out"] == 2 == len(listener.received)


async def test_the_session_says_that_its_network_is_proxied(proxied: Proxied, workspace: Path) -> None:
    async with opened(proxied([speak, without_net], allow=["a.example.org"]), workspace) as session:
        with_net, without = await session.call("speak", {"requests": []}), await session.call("without_net")
        assert (with_net.sandbox.network, without.sandbox.network) == ("proxy", "none")
        assert "net_namespace" in with_net.sandbox.on


async def test_look_alikes_and_other_spellings_do_not_pass(
    proxied: Proxied, site: Site, workspace: Path, resolver: Resolver
) -> None:
    port = site.port
    allow = [f"good.example.org:{port}", f"*.wild.example.org:{port}", f"xn--bcher-kva.example.org:{port}"]
    private = [f"good.example.org:{port}", f"xn--bcher-kva.example.org:{port}", f"a.wild.example.org:{port}"]
    same = [
        "good.example.org",
        "GOOD.example.org",
        "good.example.org.",
        "a.wild.example.org",
        "b\u00fccher.example.org",
        "good\u3002example\u3002org",
        "\uff47ood.example.org",
    ]
    other = [
        "evil.example.org", "good.example.org.evil.example.org", "evilgood.example.org", "goodxexample.org",
        "wild.example.org", "evilwild.example.org", "a.good.example.org",
        "g\u043e\u043ed.example.org", "b\u0443cher.example.org", "go\u200bod.example.org.evil", "127.0.0.1",
        "localhost", "[::1]",
    ]  # fmt: skip
    broken = [
        "good.example.org..", ".good.example.org", "evil.example.org\0.wild.example.org",
        "evil.example.org%00.wild.example.org", "evil.example.org#.wild.example.org",
        "evil.example.org/.wild.example.org", "evil.example.org?.wild.example.org",
        "evil.example.org\\.wild.example.org", "evil.example.org .wild.example.org",
        "evil.example.org\t.wild.example.org", "good.example.org@evil.example.org", "user:pass@good.example.org",
        "a@good.example.org", "0x7f000001",
        "2130706433", "017700000001", "127.1", "[::ffff:127.0.0.1]x", "[fe80::1%25lo]", "stra\u00dfe.example.org", "",
    ]  # fmt: skip
    latin = "latin-1"
    async with opened(proxied([speak], allow=allow, allow_private=private), workspace) as session:
        for make in (connect, lambda place: get(f"http://{place}/hello.txt")):

            def asked(names: list[str], make: Any = make) -> list[str]:
                return [make(f"{name}:{port}").encode().decode(latin) for name in names]

            resolver.asked.clear()
            assert statuses(await told(session, *asked(other))) == [403] * len(other)
            assert set(statuses(await told(session, *asked(broken)))) <= {400, 403}
            assert resolver.asked == [] and site.seen == []  # nothing was looked up, let alone connected to
        fetched = await told(session, *(get(f"http://{name}:{port}/hello.txt").encode().decode(latin) for name in same))
        assert [answer.endswith("hello there\n") for answer in fetched] == [True] * len(same), fetched
        hosts = {value for _line, headers in site.seen for name, value in headers if name == "Host"}
        assert hosts == {
            f"{name}:{port}" for name in ("good.example.org", "a.wild.example.org", "xn--bcher-kva.example.org")
        }
        assert all(record["reason"] for record in records(session) if not record["allowed"])


async def test_the_refusal_says_which_rule_it_was_and_how_to_allow_it(proxied: Proxied, workspace: Path) -> None:
    async with opened(proxied([speak], allow=["good.example.org"]), workspace) as session:
        answers = await told(
            session, connect("evil.example.org:443"), connect("good.example.org:22"), connect("good.example.org:443")
        )
        for answer, remedy in zip(
            answers,
            ["ProxyNetwork(allow=[..., 'evil.example.org:443'])", "ProxyNetwork(allow=[..., 'good.example.org:22'])",
             "ProxyNetwork(allow_private=[..., 'good.example.org:443'])"],
            strict=True,
        ):  # fmt: skip
            head, _, body = answer.partition("\r\n\r\n")
            assert head.startswith("HTTP/1.1 403 ") and remedy in head.split("\r\n")[0] and remedy in body
        assert [record["allowed"] for record in records(session)] == [False] * 3


@pytest.mark.parametrize("port", [1, 22, 25, 8080, 3128, 65535])
async def test_a_port_that_is_not_listed_is_refused(
    port: int, proxied: Proxied, workspace: Path, resolver: Resolver
) -> None:
    async with opened(proxied([speak], allow=["good.example.org"]), workspace) as session:
        answers = await told(session, connect(f"good.example.org:{port}"), get(f"http://good.example.org:{port}/"))
        assert statuses(answers) == [403, 403] and resolver.asked == []
        answers = await told(
            session, connect("good.example.org"), connect("good.example.org:0"), connect("good.example.org:99999")
        )
        assert statuses(answers) == [403] * 3


PRIVATE = [
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "224.0.0.1", "255.255.255.255", "168.63.129.16", "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1",
    "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "fec0::1", "nonsense",
]  # fmt: skip


async def test_a_name_that_leads_to_a_private_address_is_refused_whatever_else_it_leads_to(
    proxied: Proxied, workspace: Path, resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Any] = []
    monkeypatch.setattr(connection_module, "connect", lambda *arguments: tried.append(arguments))
    names = [f"n{number}.wild.example.org" for number in range(len(PRIVATE))]
    for name, address in zip(names, PRIVATE, strict=True):
        resolver.answers[name] = [["93.184.216.34", address]]
    async with opened(proxied([speak], allow=["*.wild.example.org"]), workspace) as session:
        assert statuses(await told(session, *(connect(f"{name}:443") for name in names))) == [403] * len(names)
        resolver.answers["none.wild.example.org"] = [[]]
        assert statuses(await told(session, connect("none.wild.example.org:443"))) == [502]
        assert tried == []


async def test_addresses_on_the_allow_list_are_private_all_the_same(
    proxied: Proxied, site: Site, workspace: Path
) -> None:
    async with opened(proxied([speak], allow=[f"127.0.0.1:{site.port}", "169.254.169.254"]), workspace) as session:
        answers = await told(
            session, connect(f"127.0.0.1:{site.port}"), get("http://169.254.169.254/latest/meta-data/")
        )
        assert statuses(answers) == [403, 403] and site.seen == []


async def test_a_name_is_looked_up_once_and_the_checked_address_is_connected_to(
    proxied: Proxied, listener: Listener, workspace: Path, resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: a second lookup would return the host's loopback."""
    tried: list[list[str]] = []

    async def redirected(addresses: Sequence[Address], port: int) -> Any:
        tried.append([str(address) for address in addresses])
        sock, _address = await net.connect([type(addresses[0])("127.0.0.1")], listener.port)  # no packet leaves here
        return sock, addresses[0]

    monkeypatch.setattr(connection_module, "connect", redirected)
    resolver.answers["rebind.example.org"] = [["93.184.216.34"], ["127.0.0.1"]]
    async with opened(proxied([speak], allow=["rebind.example.org"]), workspace) as session:
        (first,) = await told(session, connect("rebind.example.org:443"), half_close=True)
        assert statuses([first]) == [200] and resolver.asked == ["rebind.example.org"] and tried == [["93.184.216.34"]]
        (second,) = await told(session, connect("rebind.example.org:443"), half_close=True)
        assert statuses([second]) == [403] and resolver.asked == ["rebind.example.org"] * 2 and len(tried) == 1
        assert [record["address"] for record in records(session)] == ["93.184.216.34", ""]


async def test_what_cannot_be_reached_is_a_bad_gateway(
    proxied: Proxied, site: Site, workspace: Path, resolver: Resolver
) -> None:
    port = site.port
    site.shutdown()
    site.server_close()
    async with opened(
        proxied([speak], allow_private=[f"127.0.0.1:{port}"], allow=["gone.example.org"]), workspace
    ) as session:

        def fail(host: str, port: int) -> list[str]:
            raise OSError("no such name")

        core_of(session).services.gateway.lookups._resolve = fail
        answers = await told(session, connect(f"127.0.0.1:{port}"), connect("gone.example.org:443"))
        assert statuses(answers) == [502, 502]
        assert [(record["allowed"], bool(record["reason"])) for record in records(session)] == [
            (True, True),
            (False, True),
        ]


async def test_a_request_that_two_servers_could_read_differently_is_refused(
    proxied: Proxied, site: Site, workspace: Path
) -> None:
    url = f"http://127.0.0.1:{site.port}/hello.txt"
    smuggled = f"GET http://127.0.0.1:{site.port}/smuggled HTTP/1.1\r\nHost: evil.example.org\r\n\r\n"
    post = f"POST {url} HTTP/1.1\r\n"
    refused = [
        get(url, "Host: a", "Host: b"),
        post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
        post + "Content-Length: 0\r\nContent-Length: 3\r\n\r\nabc" + smuggled,
        post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + smuggled,
        post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + smuggled,
        post + "X: a\nContent-Length: 3\r\n\r\nabc",
        "GET /hello.txt HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        get(url.replace("http:", "https:")),
        get(url.replace("http:", "ftp:")),
        get("file:///etc/passwd"),
        "\x16\x03\x01\x02\x00\r\n\r\n",
        "SSH-2.0-x\r\n\r\n",
    ]
    async with opened(proxied([speak], allow_private=[f"127.0.0.1:{site.port}"]), workspace) as session:
        assert set(statuses(await told(session, *refused))) <= {400, 403}
        assert site.seen == []
        answers = await told(
            session,
            get(url) + smuggled,
            post + "Content-Length: 3\r\n\r\nabc" + smuggled,
            post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + smuggled,
        )
        assert [answer.count("HTTP/1.") for answer in answers] == [1, 1, 1]
        assert [line.split()[0] for line, _headers in site.seen] == ["GET", "POST", "POST"]
        assert site.bodies == [b"abc", b"abc"] and "smuggled" not in str(site.seen)


async def test_a_head_without_end_is_refused(proxied: Proxied, site: Site, workspace: Path) -> None:
    url = f"http://127.0.0.1:{site.port}/hello.txt"
    async with opened(proxied([speak], allow_private=[f"127.0.0.1:{site.port}"]), workspace) as session:
        answers = await told(session, get(url, "X: " + "y" * 100_000), get(url, *["X: y"] * 200), "x" * 1_000_000)
        assert statuses(answers) == [400, 400, 400] and site.seen == []


async def test_a_client_that_drips_is_given_up(
    proxied: Proxied, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "HEAD_S", 0.3)
    async with opened(proxied([speak], allow=["good.example.org"]), workspace) as session:
        (answer,) = await told(session, "GET http://good.example.org/ HTTP/1.1\r\nX: " + "y" * 30, pause=0.05)
        assert answer == "" or statuses([answer]) == [408] or "Reset" in answer
        assert "complete" in records(session)[0]["reason"]


async def test_a_connection_on_which_nothing_moves_ends(proxied: Proxied, listener: Listener, workspace: Path) -> None:
    place = f"127.0.0.1:{listener.port}"
    async with opened(proxied([speak], allow_private=[place], idle_s=0.3), workspace) as session:
        (answer,) = await told(session, connect(place))
        assert "welcome" in answer
        assert "no data has moved" in records(session)[0]["reason"] and listener.ended.wait(PATIENCE_S)


async def test_a_connection_outlives_an_event_loop_that_was_held(
    proxied: Proxied, listener: Listener, workspace: Path
) -> None:
    place, idle_s = f"127.0.0.1:{listener.port}", 4.0
    async with opened(proxied([speak], allow_private=[place], idle_s=idle_s), workspace) as session:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(told, session, connect(place))
            await until(lambda: listener.accepted)
            time.sleep(idle_s + 2.0)  # nothing can move meanwhile
            await anyio.sleep(0.2)
            assert not listener.ended.is_set()
        assert listener.ended.wait(20)


@pytest.mark.parametrize("tunnelled", [False, True])
async def test_the_byte_cap_ends_a_download_with_a_reset(
    tunnelled: bool, proxied: Proxied, site: Site, workspace: Path
) -> None:
    (site.folder / "big").write_bytes(b"x" * 3_000_000)
    place, most = f"127.0.0.1:{site.port}", 100_000
    async with opened(proxied([speak], allow_private=[place], max_bytes=most), workspace) as session:
        request = connect(place) + "GET /big HTTP/1.0\r\n\r\n" if tunnelled else get(f"http://{place}/big")
        first, again = await told(session, request, request)
        assert "[ConnectionResetError]" in first and len(first) <= most + 200
        assert statuses([again]) == [403] and "max_bytes" in again
        record, refused = records(session)
        assert record["allowed"] and record["bytes_in"] == most and "max_bytes" in record["reason"]
        assert not refused["allowed"]
        (new_call,) = await told(session, get(f"http://{place}/hello.txt"))  # the cap is each call's own
        assert new_call.endswith("hello there\n")


async def test_the_byte_cap_holds_for_what_goes_out_too(proxied: Proxied, listener: Listener, workspace: Path) -> None:
    place, most = f"127.0.0.1:{listener.port}", 100_000
    async with opened(proxied([speak], allow_private=[place], max_bytes=most), workspace) as session:
        await told(session, connect(place) + "x" * 1_000_000)
        assert listener.ended.wait(PATIENCE_S) and len(listener.received) <= most
        assert records(session)[0]["bytes_out"] == most


async def test_a_flood_of_connections_is_bounded_and_the_next_call_works(
    proxied: Proxied, listener: Listener, site: Site, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "DECISIONS", 60)
    monkeypatch.setattr(connection_module, "HEAD_S", 5.0)
    policy = {"allow_private": [f"127.0.0.1:{site.port}"], "max_connections": 4}
    async with opened(proxied([speak, flood], **policy), workspace) as session:
        before = len(os.listdir("/proc/self/fd"))
        said = (await session.call("flood", {"count": 100})).unwrap()
        assert said.count("HTTP/1.1 503") >= 40
        assert len(os.listdir("/proc/self/fd")) <= before + 15  # a cell's own are ten
        assert 60 <= len(records(session)) <= 64  # refused, and those that were open until the end
        (answer,) = await told(session, get(f"http://127.0.0.1:{site.port}/hello.txt"))
        assert answer.endswith("hello there\n")


@pytest.mark.parametrize("fork", [False, True])
async def test_a_connection_that_is_left_open_ends_with_the_call(
    fork: bool, proxied: Proxied, listener: Listener, workspace: Path
) -> None:
    place = f"127.0.0.1:{listener.port}"
    async with opened(proxied([leave_open], allow_private=[place]), workspace) as session:
        result = await session.call("leave_open", {"request": connect(place), "fork": fork})
        assert "200" in result.unwrap()
        assert listener.ended.wait(PATIENCE_S)
        (record,) = records(session)  # on record by the time that the caller has the result
        assert record["allowed"] and record["reason"] == "the call ended"


@pytest.mark.parametrize("ending", ["timeout", "cancelled", "closed"])
async def test_a_connection_ends_however_its_call_ends(
    ending: str, proxied: Proxied, listener: Listener, workspace: Path
) -> None:
    import anyio

    place = f"127.0.0.1:{listener.port}"
    async with opened(proxied([speak], allow_private=[place]), workspace) as session:
        if ending == "timeout":
            result = await session.call("speak", {"requests": [connect(place)]}, timeout=0.5)
            assert result.error is not None and result.error.kind == "timeout"
        elif ending == "cancelled":
            with anyio.move_on_after(0.5):
                await session.call("speak", {"requests": [connect(place)]})
        else:
            async with anyio.create_task_group() as group:
                group.start_soon(session.call, "speak", {"requests": [connect(place)]})
                await anyio.sleep(0.5)
                await session.close()
        assert listener.accepted == 1
        with anyio.fail_after(PATIENCE_S):
            while not listener.ended.is_set():
                await anyio.sleep(0.01)
        assert [record["allowed"] for record in records(session)] == [True]


async def test_a_cell_without_net_has_no_proxy_and_no_socket(proxied: Proxied, workspace: Path) -> None:
    async with opened(proxied([speak, without_net], allow=["good.example.org"]), workspace) as session:
        await session.call("speak", {"requests": []})
        answer, names = (await session.call("without_net")).unwrap()
        assert answer == "Address family not supported by protocol" and names == []


async def test_a_worker_never_has_net_whatever_its_profile_says(proxied: Proxied, workspace: Path) -> None:
    async with opened(proxied([speak, without_net], allow=["good.example.org"]), workspace) as session:
        worker = await session.open_child("worker", profile=session.profile)
        denied = await worker.call("speak", {"requests": [connect("good.example.org:443")]})
        assert isinstance(denied.error, PermissionDenied) and list(denied.error.missing) == ["net"]
        result = await worker.call("without_net")
        assert result.unwrap()[0] == "Address family not supported by protocol"
        assert records(session) == []


async def test_a_child_reaches_no_more_than_its_parent(proxied: Proxied, site: Site, workspace: Path) -> None:
    place = f"127.0.0.1:{site.port}"
    async with opened(proxied([speak], allow=["a.example.org"]), workspace) as session:
        wider = session.profile.replace(network=ProxyNetwork(allow=["b.example.org"], allow_private=[place]))
        for profile in (wider, session.profile.replace(network=HostNetwork())):
            branch = await session.open_child("branch", profile=profile)
            if branch.profile.network == ProxyNetwork(allow=[]):  # what both allow, which is nothing
                refused = (await branch.call("speak", {"requests": []})).error
                assert isinstance(refused, PermissionDenied) and "no host is allowed" in refused.message
                continue
            answers = await told(branch, connect("b.example.org:443"), get(f"http://{place}/hello.txt"))
            assert statuses(answers) == [403, 403] and site.seen == []


async def test_a_branch_has_its_own_proxy_and_its_own_record(proxied: Proxied, site: Site, workspace: Path) -> None:
    async with opened(proxied([speak], allow_private=[f"127.0.0.1:{site.port}"]), workspace) as session:
        branch = await session.open_child("branch")
        (answer,) = await told(branch, get(f"http://127.0.0.1:{site.port}/hello.txt"))
        assert answer.endswith("hello there\n") and len(records(branch)) == 1 and records(session) == []


async def test_what_was_connected_before_the_call_is_not_served_in_it(
    proxied: Proxied, site: Site, workspace: Path
) -> None:
    early: Any = Early(get(f"http://127.0.0.1:{site.port}/hello.txt").encode())

    @tool(needs={Capability.NET})
    def look() -> str:
        """Return the answer on the connection that was made while the tool was loaded."""
        try:
            return str(early.recv(1000).decode())
        except ConnectionResetError:
            return "reset"

    async with opened(proxied([look], allow_private=[f"127.0.0.1:{site.port}"]), workspace) as session:
        assert (await session.call("look")).unwrap() in ("", "reset")
        assert site.seen == [] and records(session) == []


async def test_a_cell_that_is_ready_before_the_zygote_says_so_has_its_proxy_all_the_same(
    proxied: Proxied, site: Site, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_spawned = Fleet._on_spawned

    def late(fleet: Fleet, *arguments: int) -> None:
        fleet._deadlines.at(time.monotonic() + 0.5, lambda: on_spawned(fleet, *arguments))

    monkeypatch.setattr(Fleet, "_on_spawned", late)
    async with opened(proxied([speak], allow_private=[f"127.0.0.1:{site.port}"]), workspace) as session:
        (answer,) = await told(session, get(f"http://127.0.0.1:{site.port}/hello.txt"))
        assert answer.endswith("hello there\n")


async def test_connections_of_a_kept_process_end_with_the_call_that_made_them(
    proxied: Proxied, listener: Listener, workspace: Path
) -> None:
    kept: list[Any] = []

    @tool(needs={Capability.NET}, lifetime="session")
    def keep(request: str) -> list[str]:
        """Return the state of each earlier call's connection, and open another connection."""
        states: list[str] = []
        for stream in kept:
            try:
                states.append("open" if stream.recv(1000) else "ended")
            except OSError:
                states.append("ended")
        kept.append(socket.create_connection(("127.0.0.1", 3128), 5))
        kept[-1].sendall(request.encode())
        return [*states, kept[-1].recv(12).decode()]

    place = f"127.0.0.1:{listener.port}"
    async with opened(proxied([keep], allow_private=[place]), workspace) as session:
        arguments = {"request": connect(place)}
        assert (await session.call("keep", arguments)).unwrap() == ["HTTP/1.1 200"]
        assert listener.ended.wait(PATIENCE_S)
        # what was sent before the end can still be read, then it ends
        assert (await session.call("keep", arguments)).unwrap()[-1] == "HTTP/1.1 200"
        assert (await session.call("keep", arguments)).unwrap()[0] == "ended"
        assert [record["reason"] for record in records(session)] == ["the call ended"] * 3


async def test_many_downloads_at_a_time_come_whole(proxied: Proxied, site: Site, workspace: Path) -> None:
    import anyio

    (site.folder / "big").write_bytes(bytes(range(256)) * 4096)
    place = f"127.0.0.1:{site.port}"
    async with opened(proxied([speak], allow_private=[place]), workspace) as session:
        sizes: list[int] = []

        async def fetch() -> None:
            answers = await told(session, *[get(f"http://{place}/big")] * 2)
            sizes.extend(len(answer.partition("\r\n\r\n")[2]) for answer in answers)

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(fetch)
        assert sizes == [1024 * 1024] * 6


@pytest.mark.parametrize("status", [100, 103, 199])
async def test_the_answer_after_those_that_only_announce_it_is_written_anew_as_well(
    proxied: Proxied, workspace: Path, status: int
) -> None:
    said = (
        f"HTTP/1.1 {status} Soon\r\nX-Soon: 1\r\n\r\nHTTP/1.1 200 OK\r\nConnection: X-A\r\nX-A: 1\r\nX-B: 1\r\n\r\nhi"
    )
    server = Listener(said.encode(), hang_up=True)
    try:
        allowed = [f"127.0.0.1:{server.port}"]
        async with opened(proxied([speak], allow=allowed, allow_private=allowed), workspace) as session:
            (answer,) = await told(session, get(f"http://127.0.0.1:{server.port}/"))
    finally:
        server.close()
    soon, head, body = answer.split("\r\n\r\n")
    assert soon.startswith(f"HTTP/1.1 {status} ") and head.startswith("HTTP/1.1 200 ") and body == "hi"
    assert "X-B: 1" in head and "X-A" not in head and "Connection: close" in head
