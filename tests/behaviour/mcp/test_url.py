"""An MCP server behind a URL: the supervisor makes the requests, by the session's rules and with its credentials."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from tests.backends.http.conftest import Api, reply, serving
from tests.behaviour.mcp import server as programs
from tests.behaviour.mcp.conftest import Opened
from tests.helpers import PATIENCE_S

from toolcell import (
    Credential,
    ExecutionError,
    PermissionDenied,
    Profile,
    RecentJournal,
    Session,
    Supervisor,
    UnknownTool,
    UsageError,
)
from toolcell.mcp import McpToolset, mcp_toolset

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_ahead")]
SECRET = "token-that-no-cell-sees"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop is enough, because nothing here waits in a special way."""
    return "asyncio"


class McpApi(Api):
    """The honest server of `server.py` as streamable HTTP. `kind` is the content type of its answers."""

    def __init__(self) -> None:
        super().__init__()
        self.kind = "application/json"
        self.sessions = 0
        self.may_delete = threading.Event()
        self.may_delete.set()
        self.routes["/mcp"] = self._answer

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        seen = self.seen[-1]
        if seen.method == "DELETE":
            assert self.may_delete.wait(PATIENCE_S)
            return reply(b"")(handler)
        message = json.loads(seen.body)
        if message.get("method") == "initialize":
            self.sessions += 1
        elif seen.headers.get("mcp-session-id") != f"session-{self.sessions}":
            return reply(b"no such session", 404)(handler)
        if "id" not in message:
            return reply(b"", 202)(handler)
        honest = programs.Server()
        sent: list[dict[str, Any]] = []
        result = honest.handler(message)(message["params"])
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        body = json.dumps(answer).encode()
        if self.kind == "text/event-stream":
            token = message["params"].get("_meta", {}).get("progressToken")
            report = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
            sent = [{"jsonrpc": "2.0", "method": "notifications/progress", "params": report}, answer]
            body = b"id: 1\r\ndata:\r\n\r\n: comment\r\n\r\n"
            body += b"".join(b"event: message\r\ndata: %s\r\n\r\n" % json.dumps(each).encode() for each in sent)
        return reply(body, 200, Content_Type=self.kind, Mcp_Session_Id=f"session-{self.sessions}")(handler)


@pytest.fixture
def api() -> Iterator[McpApi]:
    for served in serving(McpApi()):
        assert isinstance(served, McpApi)
        yield served


def allowing(api: Api) -> Profile:
    return Profile.for_kind("main").replace(http=(f"POST {api.url('/mcp')}",))


def remote(api: Api, **options: Any) -> McpToolset:
    return mcp_toolset(name="remote", url=api.url("/mcp"), **options)


async def names(session: Session) -> set[str]:
    return {each.name for each in await session.tools()}


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_a_server_behind_a_url_has_tools_like_any_other(opened: Opened, api: McpApi, kind: str) -> None:
    api.kind = kind
    session = await opened(remote(api, headers={"X-Region": "eu"}), profile=allowing(api))
    assert {"echo", "add"} <= await names(session)
    seen: list[tuple[str, float | None]] = []
    result = await session.call("add", {"a": 1, "b": 2}, on_progress=lambda *report: seen.append(report))
    assert result.output == {"sum": 3}
    assert seen == ([("half", 0.5)] if kind == "text/event-stream" else [])
    last = api.seen[-1]
    assert last.headers["mcp-protocol-version"] == "2025-11-25" and last.headers["x-region"] == "eu"


async def test_a_session_that_the_server_forgets_is_begun_again(opened: Opened, api: McpApi) -> None:
    session = await opened(remote(api), profile=allowing(api))
    await session.tools()
    api.sessions += 1
    assert (await session.call("echo", {"text": "again"})).for_model() == "again"


async def test_a_credential_goes_with_each_request_and_no_cell_sees_it(opened: Opened, api: McpApi) -> None:
    server = remote(api, credentials=Credential(value=SECRET, prefix="Bearer "))
    session = await opened(server, profile=allowing(api))
    assert (await session.call("echo", {"text": "x"})).error is None
    assert {each.headers.get("authorization") for each in api.seen} == {f"Bearer {SECRET}"}
    assert SECRET not in repr(list(opened.journal)) and SECRET not in repr(server.source)
    with pytest.raises(UsageError, match="not a tool's to set"):
        remote(api, headers={"Authorization": f"Bearer {SECRET}"})


async def test_a_session_whose_rules_do_not_allow_the_host_is_not_offered_it(opened: Opened, api: McpApi) -> None:
    session = await opened(remote(api), profile=Profile.for_kind("main").replace(http=("GET api.example.com",)))
    assert "echo" not in await names(session)
    worker = await session.open_child("worker")
    assert isinstance((await worker.call("echo", {"text": "x"})).error, (UnknownTool, PermissionDenied))
    assert api.seen == []


async def test_a_redirect_of_the_server_leads_nowhere_else(opened: Opened, api: McpApi) -> None:
    api.routes["/mcp"] = reply(b"", 307, Location=api.url("/admin"))
    session = await opened(remote(api), profile=Profile.for_kind("main").replace(http=(f"* {api.url('/')}",)))
    assert "echo" not in await names(session)
    assert {each.path for each in api.seen} == {"/mcp"} and len(opened.incidents) == 1


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"[" * 100_000, "application/json", 200),
        (b"{}", "application/json", 200),
        (b"<html>", "text/html", 200),
        (b"data: x\n\n" * 20_000, "text/event-stream", 200),
        (b"x" * (9 << 20), "application/json", 200),
        (b'{"error": {"message": "no licence"}}', "application/json", 403),
    ],
)
async def test_what_a_hostile_host_answers_is_an_incident(
    opened: Opened, api: McpApi, body: bytes, kind: str, status: int
) -> None:
    api.routes["/mcp"] = reply(body, status, Content_Type=kind)
    session = await opened(remote(api), profile=allowing(api))
    assert "read" in await names(session) and len(opened.incidents) == 1
    assert status == 200 or "status 403: no licence" in opened.incidents[0]


async def test_an_answer_to_another_question_is_not_taken(opened: Opened, api: McpApi) -> None:
    session = await opened(remote(api), profile=allowing(api))
    await session.tools()
    forged = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "forged"}]}}
    api.routes["/mcp"] = reply(json.dumps(forged).encode(), 200, Content_Type="application/json")
    assert isinstance((await session.call("echo", {"text": "x"})).error, ExecutionError)


@pytest.mark.parametrize("is_slow", [False, True])
async def test_the_session_of_the_server_ends_with_the_session(opened: Opened, api: McpApi, is_slow: bool) -> None:
    """Nobody waits for a server that does not answer the DELETE."""
    if is_slow:
        api.may_delete.clear()
    place = api.url("/mcp")
    profile = Profile.for_kind("main").replace(http=(f"POST {place}", f"DELETE {place}"))
    tools = remote(api, headers={"X-Region": "eu"})
    session, other = await opened(tools, profile=profile), await opened(remote(api), profile=allowing(api))
    assert (await session.call("add", {"a": 1, "b": 2})).output == {"sum": 3}
    mine = f"session-{api.sessions}"
    assert "echo" in await names(other)
    await session.close()
    await other.close()  # its rules allow no DELETE
    api.may_delete.set()
    [deleted] = [each for each in api.seen if each.method == "DELETE"]
    assert deleted.headers["mcp-session-id"] == mine and deleted.headers["x-region"] == "eu"
    assert deleted.headers["mcp-protocol-version"] == "2025-11-25" and deleted.body == b""


async def test_the_session_of_the_server_ends_with_the_supervisor(api: McpApi, workspace: Path) -> None:
    place = api.url("/mcp")
    profile = Profile.for_kind("main").replace(http=(f"POST {place}", f"DELETE {place}"))
    journal = RecentJournal()
    async with Supervisor(toolsets=[remote(api)], journal=journal) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, profile=profile)
        assert "echo" in await names(session)
    assert [each.method for each in api.seen][-1] == "DELETE"
    assert [each.data["method"] for each in journal.of(kind="http")][-1] == "DELETE"
