"""A server behind a URL whose events are read while they arrive: progress, questions, cancellation, and no end."""

import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import anyio
import pytest
from tests.backends.http.conftest import reply, serving
from tests.behaviour.mcp.conftest import Opened
from tests.behaviour.mcp.test_url import SECRET, McpApi, allowing, remote
from tests.helpers import PATIENCE_S

from toolcell import Credential, ExecutionError, Session, Timeout

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.usefixtures("nothing_ahead")]
Message = dict[str, Any]
Say = Callable[[Message], None]
WAIT_S = 10.0


class StreamingApi(McpApi):
    """Answers each call with events that `tell(message, say)` says, and keeps the stream open if `is_endless`.

    `said` has what the client posted beside its requests, `gone` is set when the client has closed a stream."""

    def __init__(self) -> None:
        super().__init__()
        self.tell: Callable[[Message, Say], None] = lambda message, say: None
        self.is_endless = False
        self.said: list[Message] = []
        self.heard = threading.Event()
        self.gone = threading.Event()
        self.routes["/mcp"] = self._route

    def _route(self, handler: BaseHTTPRequestHandler) -> None:
        message: Message = json.loads(self.seen[-1].body)
        if message.get("method") == "tools/call":
            return self._stream(handler, message)
        if message.get("method") not in ("initialize", "tools/list", "notifications/initialized"):
            self.said.append(message)
            self.heard.set()
            if message.get("method") == "ping":
                answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}).encode()
                return reply(answer, Content_Type="application/json")(handler)
            return reply(b"", 202)(handler)
        return self._answer(handler)

    def _stream(self, handler: BaseHTTPRequestHandler, message: Message) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()

        def say(told: Message) -> None:
            handler.wfile.write(b"data: %s\n\n" % json.dumps({"jsonrpc": "2.0", **told}).encode())
            handler.wfile.flush()

        try:
            self.tell(message, say)
            while self.is_endless and handler.connection.recv(1) != b"":
                pass
        except OSError:
            pass
        self.gone.set()
        handler.close_connection = True


@pytest.fixture
def api() -> Iterator[StreamingApi]:
    for served in serving(StreamingApi()):
        assert isinstance(served, StreamingApi)
        yield served


def progress(message: Message, text: str) -> Message:
    token = message["params"]["_meta"]["progressToken"]
    return {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1, "message": text}}


def answer(message: Message, text: str = "done") -> Message:
    return {"id": message["id"], "result": {"content": [{"type": "text", "text": text}]}}


async def noticed(event: threading.Event) -> bool:
    return await anyio.to_thread.run_sync(event.wait, WAIT_S)


async def opened_on(api: StreamingApi, opened: Opened, **options: Any) -> Session:
    session = await opened(remote(api, **options), profile=allowing(api))
    assert "echo" in {each.name for each in await session.tools()}
    return session


async def test_progress_arrives_before_the_answer(opened: Opened, api: StreamingApi) -> None:
    seen = threading.Event()

    def tell(message: Message, say: Say) -> None:
        say(progress(message, "half"))
        say(answer(message, "seen" if seen.wait(WAIT_S) else "not seen"))

    api.tell = tell
    session = await opened_on(api, opened)
    told: list[str] = []

    def note(text: str, _fraction: float | None) -> None:
        told.append(text)
        seen.set()

    result = await session.call("echo", {"text": "x"}, on_progress=note)
    assert (result.for_model(), told) == ("seen", ["half"])


async def test_a_question_of_the_server_is_answered_while_its_call_runs(opened: Opened, api: StreamingApi) -> None:
    def tell(message: Message, say: Say) -> None:
        say({"id": "mine", "method": "sampling/createMessage", "params": {}})
        say(answer(message, "answered" if api.heard.wait(WAIT_S) else "not answered"))

    api.tell = tell
    session = await opened_on(api, opened)
    assert (await session.call("echo", {"text": "x"})).for_model() == "answered"
    (said,) = api.said
    assert (said["id"], said["error"]["code"]) == ("mine", -32601)


async def test_an_answer_counts_although_the_server_never_ends_its_events(opened: Opened, api: StreamingApi) -> None:
    api.tell = lambda message, say: say(answer(message))
    api.is_endless = True
    session = await opened_on(api, opened)
    with anyio.fail_after(PATIENCE_S):
        for _ in range(3):
            assert (await session.call("echo", {"text": "x"})).for_model() == "done"
    assert await noticed(api.gone) and api.sessions == 1
    assert "the call stopped reading" in str([each.data["reason"] for each in opened.journal.of(kind="http")])


async def test_a_cancelled_call_is_announced_and_the_mcp_session_lives_on(opened: Opened, api: StreamingApi) -> None:
    api.is_endless = True
    session = await opened_on(api, opened)
    with anyio.move_on_after(0.5):
        await session.call("echo", {"text": "x"})
    assert await noticed(api.heard) and await noticed(api.gone)
    (said,) = api.said
    assert said["method"] == "notifications/cancelled"
    asked = [json.loads(each.body) for each in api.seen if b"tools/call" in each.body]
    assert said["params"]["requestId"] == asked[0]["id"]
    api.tell = lambda message, say: say(answer(message, "back"))
    assert (await session.call("echo", {"text": "x"})).for_model() == "back"
    assert api.sessions == 1


async def test_a_late_call_is_announced_and_a_server_that_answers_pings_is_kept(
    opened: Opened, api: StreamingApi
) -> None:
    api.is_endless = True
    session = await opened_on(api, opened)
    late = await session.call("echo", {"text": "x"}, timeout=10.0)
    assert isinstance(late.error, Timeout) and "runs on" in late.error.message
    assert {each["method"] for each in api.said} == {"notifications/cancelled", "ping"}
    api.tell = lambda message, say: say(answer(message, "back"))
    assert (await session.call("echo", {"text": "x"})).for_model() == "back"
    assert api.sessions == 1


async def test_a_credential_that_an_event_repeats_reaches_no_cell(opened: Opened, api: StreamingApi) -> None:
    def tell(message: Message, say: Say) -> None:
        say(progress(message, f"you sent {SECRET}"))
        api.heard.wait(0.3)  # the first event is read before the second is said
        say(answer(message, f"you sent {SECRET}"))

    api.tell = tell
    session = await opened_on(api, opened, credentials=Credential(value=SECRET, prefix="Bearer "))
    told: list[str] = []
    result = await session.call("echo", {"text": "x"}, on_progress=lambda text, _fraction: told.append(text))
    assert told == ["you sent [credential]"] and result.for_model() == "you sent [credential]"


async def test_the_session_values_of_a_server_are_its_own_when_calls_run_side_by_side(
    opened: Opened, api: StreamingApi
) -> None:
    api.tell = lambda message, say: say(answer(message, message["params"]["arguments"]["text"]))
    session = await opened_on(api, opened)
    found: dict[str, str] = {}

    async def call(text: str) -> None:
        found[text] = (await session.call("echo", {"text": text})).for_model()

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(call, str(number))
    assert found == {str(number): str(number) for number in range(5)}


Bytes = Callable[[Callable[[bytes], object]], object]


def raw(handler: BaseHTTPRequestHandler, head: dict[str, str], say: Bytes) -> None:
    """Answer with these headers, and what `say` writes, until the client has gone."""
    handler.send_response(200)
    for name, value in {"Connection": "close", **head}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.close_connection = True
    try:
        say(handler.wfile.write)
    except OSError:
        pass


def drip(write: Callable[[bytes], object]) -> None:
    for _ in range(3_000):
        write(b": still there\n\n")
        time.sleep(0.01)


def endless_line(write: Callable[[bytes], object]) -> None:
    for _ in range(2_000):
        write(b"data: " + b"x" * 65_536)


def many_events(write: Callable[[bytes], object]) -> None:
    for _ in range(200_000):
        write(b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n\n')


def questions(write: Callable[[bytes], object]) -> None:
    for number in range(100_000):
        write(b'data: {"jsonrpc":"2.0","id":"q%d","method":"sampling/createMessage","params":{}}\n\n' % number)


def bomb(write: Callable[[bytes], object]) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    for _ in range(2_000):
        write(packer.compress(b"data: x\n\n" * 60_000))
    write(packer.flush())


def broken_gzip(write: Callable[[bytes], object]) -> None:
    write(b"\x1f\x8b\x08\x00" + b"\xff" * 4_000)


EVENTS = {"Content-Type": "text/event-stream"}


STREAMS: dict[str, tuple[dict[str, str], Bytes]] = {
    "drip": (EVENTS, drip),
    "endless line": (EVENTS, endless_line),
    "many events": (EVENTS, many_events),
    "questions": (EVENTS, questions),
    "gzip bomb": ({**EVENTS, "Content-Encoding": "gzip"}, bomb),
    "broken gzip": ({**EVENTS, "Content-Encoding": "gzip"}, broken_gzip),
    "gzip bomb as JSON": ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, bomb),
    "brotli": ({**EVENTS, "Content-Encoding": "br"}, drip),
    "long header": ({**EVENTS, "X-Long": "h" * 70_000}, drip),
    "many headers": ({**EVENTS, **{f"X-{number}": "h" for number in range(300)}}, drip),
    "huge length": ({**EVENTS, "Content-Length": "9" * 30}, drip),
    "short body": ({**EVENTS, "Content-Length": "12"}, lambda write: write(b"data: half")),
    "huge chunk": ({**EVENTS, "Transfer-Encoding": "chunked"}, lambda write: write(b"fffffffff\r\nx")),
    "long session id": ({**EVENTS, "Mcp-Session-Id": "s" * 5_000}, lambda write: write(b"data: {}\n\n")),
}


async def test_what_a_hostile_host_streams_ends_with_the_call_at_most(opened: Opened, api: StreamingApi) -> None:
    session = await opened_on(api, opened, timeout=3.0)
    honest = api.routes["/mcp"]
    api.tell = lambda message, say: say(answer(message, "on"))
    for name, (head, say) in STREAMS.items():

        def hostile(handler: BaseHTTPRequestHandler, head: dict[str, str] = head, say: Bytes = say) -> None:
            if json.loads(api.seen[-1].body).get("method") == "tools/call":
                raw(handler, head, say)
            else:
                honest(handler)

        api.routes["/mcp"] = hostile
        with anyio.fail_after(PATIENCE_S):
            result = await session.call("echo", {"text": "x"})
        assert isinstance(result.error, (ExecutionError, Timeout)), (name, result.error)
        api.routes["/mcp"] = honest
        assert (await session.call("echo", {"text": "x"})).for_model().startswith("on"), name


async def test_progress_of_another_call_and_answers_to_another_are_not_taken(opened: Opened, api: StreamingApi) -> None:
    seen: list[Message] = []

    def tell(message: Message, say: Say) -> None:
        for old in seen:
            say(progress(old, "of another call"))
            say(answer(old, "of another call"))
        seen.append(message)
        say(answer(message, "mine"))
        say(answer(message, "again"))

    api.tell = tell
    session = await opened_on(api, opened)
    told: list[str] = []
    for _ in range(3):
        result = await session.call("echo", {"text": "x"}, on_progress=lambda text, _fraction: told.append(text))
        assert result.for_model() == "mine"
    assert told == []


async def test_a_worker_reaches_no_server_behind_a_url_by_any_name(opened: Opened, api: StreamingApi) -> None:
    session = await opened_on(api, opened)
    before = len(api.seen)
    worker = await session.open_child("worker")
    for name in ("echo", "mcp", "mcp_remote", "http.events"):
        assert (await worker.call(name, {"text": "x"})).error is not None
    assert len(api.seen) == before
