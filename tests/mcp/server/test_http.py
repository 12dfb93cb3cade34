"""The server over HTTP on loopback, with the SDK's client and with hostile ones."""

import json
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError
from tests.helpers import PATIENCE_S, until

from toolcell import Supervisor, UsageError
from toolcell.mcp import ServerBounds, TokenList, ToolServer
from toolcell.mcp.server.http import HttpOptions
from toolcell.supervisor import runtime_of

from .conftest import Serve
from .examples import add
from .test_calls import MODES, Slow, approves, says_ann, text_of

ANN, BOB = "ann-0123456789abcdef", "bob-0123456789abcdef"
TOKENS = TokenList({"ann": ANN, "bob": BOB})


@asynccontextmanager
async def client_of(url: str, token: str = "", mode: str = "legacy", **options: Any) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"} if token else None
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, **options) as client,
    ):
        yield client


def rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


INITIALIZE = rpc(
    "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "test", "version": "1"}
)
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@pytest.mark.parametrize("mode", MODES)
async def test_each_principal_has_a_session_of_its_own(serve: Serve, tmp_path: Path, mode: str) -> None:
    async with serve(tokens=TOKENS, workspace=tmp_path / "{principal}", kind="branch") as url:
        told: dict[str, Any] = {}
        for token in (ANN, BOB, ANN):
            async with client_of(url, token, mode) as client:
                told.setdefault(token, []).append((await client.call_tool("whoami", {})).structured_content)
                await client.call_tool("save", {"path": "mine", "text": token})
        (first, third), (second,) = told[ANN], told[BOB]
        assert first == third == {"agent": "ann", "session": "mcp-ann", "kind": "branch"}
        assert second["agent"] == "bob" and second["session"] != first["session"]
    assert (tmp_path / "ann" / "mine").read_text() == ANN
    assert (tmp_path / "bob" / "mine").read_text() == BOB


async def test_two_servers_of_one_supervisor_have_principals_of_their_own(serve: Serve, supervisor: Supervisor) -> None:
    async with serve(tokens=TOKENS) as one, serve(tokens=TOKENS) as two, serve(tokens=TOKENS, namespace="lab") as lab:
        told: list[Any] = []
        for url in (one, two, lab):
            async with client_of(url, ANN) as client:
                told.append((await client.call_tool("whoami", {})).structured_content)
        assert [(each["session"], each["agent"]) for each in told] == [
            ("mcp-ann", "ann"),
            ("mcp.2-ann", "2.ann"),
            ("mcp.lab-ann", "lab.ann"),
        ]
        with pytest.raises(UsageError, match="has the namespace 'lab'"):
            async with ToolServer(supervisor, workspace="/tmp", namespace="lab"):
                pass
    with pytest.raises(UsageError, match="is no namespace"):
        ToolServer(supervisor, workspace="/tmp", namespace="a-b")


async def test_requests_without_a_valid_token_reach_nothing(serve: Serve) -> None:
    async with serve(tokens=TOKENS) as url, httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        for header in (None, "", "Bearer", f"Basic {ANN}", f"Bearer {ANN[:-1]}", f"Bearer {ANN}x", "Bearer \x80"):
            headers = HEADERS if header is None else {**HEADERS, "Authorization": header.encode("latin-1")}
            answer = await http.post(url, json=INITIALIZE, headers=headers)  # type: ignore[arg-type]
            assert answer.status_code == 401 and answer.headers["WWW-Authenticate"] == "Bearer"
            assert ANN not in answer.text
        two = [*HEADERS.items(), ("Authorization", f"Bearer {ANN}"), ("Authorization", f"Bearer {BOB}")]
        assert (await http.post(url, json=INITIALIZE, headers=two)).status_code == 401


async def test_an_mcp_session_is_not_anothers_even_with_its_id(serve: Serve) -> None:
    async with serve(tokens=TOKENS) as url, httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        anns = {**HEADERS, "Authorization": f"Bearer {ANN}"}
        opened = await http.post(url, json=INITIALIZE, headers=anns)
        id = {"Mcp-Session-Id": opened.headers["Mcp-Session-Id"]}
        bobs = {**HEADERS, "Authorization": f"Bearer {BOB}", **id}
        assert (await http.post(url, json=rpc("tools/list"), headers=bobs)).status_code == 404
        assert (await http.delete(url, headers=bobs)).status_code == 404
        assert (await http.post(url, json=rpc("tools/list"), headers={**anns, **id})).status_code == 200


async def test_other_hosts_and_origins_are_refused(serve: Serve) -> None:
    async with serve() as url, httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        for header in (
            {"Host": "localhost:80@evil.example.org"},
            {"Host": "evil.example.org"},
            {"Origin": "http://evil.example.org"},
            {"Origin": "null"},
        ):
            answer = await http.post(url, json=INITIALIZE, headers={**HEADERS, **header})
            assert answer.status_code in (403, 421)
        assert (await http.post(url, json=INITIALIZE, headers=HEADERS)).status_code == 200
        assert (await http.get(url.replace("/mcp", "/"))).status_code == 404


async def test_a_server_does_not_listen_elsewhere_without_tokens_or_a_name(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    async with ToolServer(supervisor, workspace=tmp_path) as server:
        with pytest.raises(UsageError, match="--tokens"):
            await server.serve_http(options=HttpOptions(host="0.0.0.0", port=0))
        with pytest.raises(UsageError, match="--tokens"):
            await server.serve_http(options=HttpOptions(host="example.org", port=0))
        with pytest.raises(UsageError, match="--allow-host"):
            await server.serve_http(tokens=TOKENS, options=HttpOptions(host="0.0.0.0", port=0))


async def test_long_deep_and_broken_bodies_are_refused_and_others_served(serve: Serve) -> None:
    bounds = ServerBounds(message_bytes=100_000)
    async with serve(bounds=bounds) as url, httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        long = json.dumps(rpc("ping", text="x" * 100_000))
        deep = '{"jsonrpc":"2.0","id":1,"method":"ping","params":' + '{"a":' * 5_000 + "1" + "}" * 5_001
        for body, status in ((long, 413), (deep, 400), ("[" * 90_000, 400), ("{", 400), ('"x"', 400), ("", 400)):
            for version in ("2025-11-25", "2026-07-28"):
                headers = {**HEADERS, "MCP-Protocol-Version": version}
                assert (await http.post(url, content=body, headers=headers)).status_code == status, body[:20]
        async with client_of(url) as client:
            assert text_of(await client.call_tool("add", {"a": 1, "b": 2})) == "3"


async def test_one_principal_cannot_take_the_places_of_another(serve: Serve, tmp_path: Path) -> None:
    bounds = ServerBounds(streams=3, sessions=2)
    async with serve(tokens=TOKENS, bounds=bounds) as url, httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        anns = {**HEADERS, "Authorization": f"Bearer {ANN}"}
        opened = [await http.post(url, json=INITIALIZE, headers=anns) for _ in range(4)]
        assert [each.status_code for each in opened] == [200, 200, 503, 503]
        ids = [each.headers["Mcp-Session-Id"] for each in opened[:2]]
        call = rpc("tools/call", name="sleep", arguments={"seconds": 50, "mark": "mark"})
        statuses: list[int] = []

        async def request(number: int) -> None:
            headers = {**anns, "Mcp-Session-Id": ids[number % 2]}
            answer = await http.post(url, json={**call, "id": number}, headers=headers, timeout=PATIENCE_S)
            statuses.append(answer.status_code)

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(request, number)
            await until(lambda: statuses.count(429) == 5)
            async with client_of(url, BOB) as bob:
                with anyio.fail_after(PATIENCE_S):
                    assert text_of(await bob.call_tool("add", {"a": 2, "b": 2})) == "4"
            (tmp_path / "wake").touch()
        assert statuses.count(429) == 5 and statuses.count(200) == 3


async def test_long_requests_in_flight_are_bounded_together_and_short_ones_served(serve: Serve) -> None:
    text = "x" * 900_000
    bounds = ServerBounds(message_bytes=1_000_000, requests_bytes=3_000_000)
    statuses: list[int] = []
    async with serve(tokens=TOKENS, bounds=bounds) as url, httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        anns = {**HEADERS, "Authorization": f"Bearer {ANN}"}
        anns["Mcp-Session-Id"] = (await http.post(url, json=INITIALIZE, headers=anns)).headers["Mcp-Session-Id"]

        async def request(number: int) -> None:
            sleep = {"seconds": 2, "mark": "mark"}
            long = rpc("tools/call", name="sleep", arguments=sleep, _meta={"padding": text}) | {"id": number}
            statuses.append((await http.post(url, json=long, headers=anns, timeout=PATIENCE_S)).status_code)

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(request, number)
            async with client_of(url, ANN) as ann, client_of(url, BOB) as bob:
                assert text_of(await ann.call_tool("add", {"a": 1, "b": 2})) == "3"
                assert not (await bob.call_tool("save", {"path": "a", "text": text})).is_error
        await request(10)
    assert sorted(statuses[:-1]) == [200] * statuses[:-1].count(200) + [429] * statuses[:-1].count(429)
    assert statuses.count(429) > 0 and statuses[-1] == 200


async def test_a_client_that_never_finishes_its_request_delays_nobody(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcell.mcp.server.http.BODY_S", 5.0)
    async with serve() as url:
        port = httpx2.URL(url).port
        with socket.create_connection(("127.0.0.1", port or 0)) as slow:
            slow.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
            async with client_of(url) as client:
                assert text_of(await client.call_tool("add", {"a": 1, "b": 2})) == "3"
            slow.settimeout(PATIENCE_S)
            with anyio.fail_after(PATIENCE_S):
                answer = await anyio.to_thread.run_sync(slow.recv, 100)
            assert b" 408 " in answer.splitlines()[0]


async def test_a_client_that_does_not_read_loses_messages_and_delays_nobody(serve: Serve) -> None:
    async with serve() as url, client_of(url, mode="2026-07-28") as client:
        host = httpx2.URL(url)
        meta = {
            types.PROTOCOL_VERSION_META_KEY: "2026-07-28",
            types.CLIENT_CAPABILITIES_META_KEY: {},
            "progressToken": "p",
        }
        body = json.dumps(rpc("tools/call", name="report", arguments={"steps": 20_000}, _meta=meta)).encode()
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\n"
            f"Content-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n"
            f"Mcp-Name: report\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", host.port or 0)) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.sendall(head.encode() + body)
            await anyio.sleep(1)
            with anyio.fail_after(PATIENCE_S):
                assert text_of(await client.call_tool("add", {"a": 1, "b": 2})) == "3"


@pytest.mark.parametrize("mode", MODES)
async def test_questions_and_approvals_work_over_http(serve: Serve, mode: str) -> None:
    async with serve(approve_by_elicitation=True) as url:
        async with client_of(url, mode=mode, elicitation_callback=says_ann) as client:
            assert text_of(await client.call_tool("hello", {})) == "hello Ann"
        async with client_of(url, mode=mode, elicitation_callback=approves) as client:
            assert text_of(await client.call_tool("pay", {"amount": 2})) == "paid 2"


@pytest.mark.parametrize("mode", MODES)
async def test_a_cancelled_request_ends_its_call_over_http(
    supervisor: Supervisor, serve: Serve, tmp_path: Path, mode: str
) -> None:
    async with serve() as url, client_of(url, mode=mode) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "sleep", {"seconds": 20, "mark": "mark"})
            await until((tmp_path / "mark").exists)
            tasks.cancel_scope.cancel()
        await until(lambda: not runtime_of(supervisor).calls.running())
        assert (tmp_path / "mark").read_text() != "slept"
        assert text_of(await client.call_tool("add", {"a": 1, "b": 2})) == "3"


async def test_a_client_hears_of_changes_on_a_stream_that_it_listens_to(supervisor: Supervisor, tmp_path: Path) -> None:
    async with ToolServer(supervisor, workspace=tmp_path) as server, anyio.create_task_group() as tasks:
        url = await tasks.start(partial(server.serve_http, options=HttpOptions(port=0)))
        async with (
            client_of(url, mode="2026-07-28") as client,
            client.listen(tools_list_changed=True) as events,
        ):
            await server.tools_changed()
            with anyio.fail_after(PATIENCE_S):
                async for event in events:
                    assert type(event).__name__ == "ToolsListChanged"
                    break
        tasks.cancel_scope.cancel()


async def test_a_token_is_in_no_message_and_in_no_repr(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with serve(tokens=TOKENS) as url:
        async with client_of(url, ANN) as client:
            with pytest.raises(MCPError):
                await client.call_tool("nobody", {})
        async with httpx2.AsyncClient(timeout=PATIENCE_S) as http:
            await http.post(url, json=INITIALIZE, headers={**HEADERS, "Authorization": f"Bearer {BOB}zz"})
    assert repr(TOKENS) == "<TokenList of 2 principals>"
    ours = [each.getMessage() for each in caplog.records if not each.name.startswith(("httpx", "httpcore"))]
    assert not any(token in line for line in ours for token in (ANN, BOB))


async def test_half_open_requests_without_a_token_keep_no_principal_out(serve: Serve) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    headers = {**HEADERS, "Authorization": f"Bearer {ANN}"}
    async with (
        serve(tokens=TOKENS) as url,
        httpx2.AsyncClient(timeout=PATIENCE_S) as known,
        httpx2.AsyncClient(timeout=PATIENCE_S) as new,
        AsyncExitStack() as stack,
    ):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4_096), hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        assert (await known.post(url, json=INITIALIZE, headers=headers)).status_code == 200
        idle = [
            await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", httpx2.URL(url).port or 0))
            for _ in range(1_100)
        ]
        for number, each in enumerate(idle):
            with suppress(anyio.BrokenResourceError):  # closed, for it has waited for longest
                if number % 2:  # one answer, and then the begin of another request
                    await each.send(b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                await each.send(b"GET")
        for http in (known, new):
            assert (await http.post(url, json=INITIALIZE, headers=headers)).status_code == 200


async def test_a_stranger_takes_the_place_of_the_oldest_one_of_the_fullest_address(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcell.mcp.server.connections.MAX_STRANGERS", 3)
    async with serve(tokens=TOKENS) as url, AsyncExitStack() as stack:
        port = httpx2.URL(url).port or 0
        idle = [
            await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port, local_host=host))
            for host in ("127.0.0.2", "127.0.0.1", "127.0.0.1", "127.0.0.3")
        ]
        with anyio.fail_after(PATIENCE_S), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await idle[1].receive()
        for each in (idle[0], idle[2], idle[3]):
            await each.send(b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert (await each.receive()).startswith(b"HTTP/1.1 401")


async def test_a_burst_of_strangers_does_not_close_a_connection_before_its_request_is_read(serve: Serve) -> None:
    async with serve(tokens=TOKENS) as url:
        port = httpx2.URL(url).port or 0
        with ExitStack() as stack:  # nothing here awaits, so the server finds all of them in one turn of the event loop
            asks = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            asks.sendall(f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {ANN}\r\n\r\n".encode())
            for _ in range(400):
                stranger = stack.enter_context(socket.socket())
                stranger.setblocking(False)
                stranger.connect_ex(("127.0.0.1", port))
            asks.setblocking(False)
            with anyio.fail_after(PATIENCE_S):
                await anyio.wait_readable(asks)
            assert asks.recv(100).startswith(b"HTTP/1.1 4")


async def test_a_connection_without_a_request_is_closed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcell.mcp.server.connections.HEAD_S", 0.2)
    async with serve(tokens=TOKENS) as url, await anyio.connect_tcp("127.0.0.1", httpx2.URL(url).port or 0) as idle:
        await idle.send(b"GET /mcp HTTP/1.1\r\n")
        with anyio.fail_after(PATIENCE_S), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await idle.receive()


async def test_the_head_of_a_request_is_bounded(serve: Serve) -> None:
    async with serve(tokens=TOKENS) as url, await anyio.connect_tcp("127.0.0.1", httpx2.URL(url).port or 0) as sending:
        with anyio.fail_after(PATIENCE_S), pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)):
            await sending.send(b"GET /mcp HTTP/1.1\r\n")
            for _ in range(1_000):
                await sending.send(b"X-Long: " + b"x" * 10_000 + b"\r\n")
            raise AssertionError("10 MB of headers were taken")


async def test_what_a_client_makes_the_server_keep_is_bounded(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve() as url, httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        large = rpc("initialize", **INITIALIZE["params"] | {"capabilities": {"experimental": {"x" * 100_000: {}}}})
        assert (await http.post(url, json=large, headers=HEADERS)).status_code == 413
        opened = await http.post(url, json=INITIALIZE, headers=HEADERS)
        known = {**HEADERS, "Mcp-Session-Id": opened.headers["Mcp-Session-Id"]}
        await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=known)
        for length, is_taken in ((2_000, True), (1_000_000, False)):
            told = await http.post(url, json=rpc("resources/subscribe", uri="x:/" + "a" * length), headers=known)
            assert ("URI has at most" not in told.text) is is_taken
        monkeypatch.setattr("toolcell.mcp.server.notifications.URIS_CHARS", 5_000)
        for letter, is_taken in (("a", True), ("b", True), ("c", False), ("b", True)):
            told = await http.post(url, json=rpc("resources/subscribe", uri="x:/" + letter * 2_000), headers=known)
            assert ("too long together" not in told.text) is is_taken


async def test_a_request_of_many_small_objects_is_refused(serve: Serve) -> None:
    many = rpc("tools/call", name="whoami", arguments={"x": {str(number): {} for number in range(200_000)}})
    body = json.dumps(many)
    async with serve() as url, httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        answer = await http.post(url, content=body, headers=HEADERS)
    assert answer.status_code == 413 and "too many members" in answer.text


@pytest.mark.anyio
async def test_over_http_a_principal_whose_tools_start_slowly_or_fail_holds_up_no_other(tmp_path: Path) -> None:
    toolset, statuses = Slow(), list[int]()
    async with (
        Supervisor([add], toolsets=[toolset], standby=0) as supervisor,
        ToolServer(supervisor, workspace=tmp_path) as server,
        anyio.create_task_group() as tasks,
        httpx2.AsyncClient(timeout=PATIENCE_S) as http,
    ):
        url = await tasks.start(partial(server.serve_http, tokens=TOKENS, options=HttpOptions(port=0)))

        async def ask(token: str) -> None:
            headers = {**HEADERS, "Authorization": f"Bearer {token}"}
            statuses.append((await http.post(url, json=INITIALIZE, headers=headers)).status_code)

        toolset.failures_left = 1
        async with anyio.create_task_group() as asking:
            asking.start_soon(ask, ANN)
            await until(lambda: toolset.asked == ["ann"])
            await ask(BOB)
            assert statuses == [200], "bob is served, and ann's request waits"
            toolset.may_go.set()
        await ask(ANN)
        assert statuses == [200, 503, 200], "the failure is told, and the next request opens the session"
        tasks.cancel_scope.cancel()
