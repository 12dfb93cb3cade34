"""What the broker checks of a request, which of them act, and what it sets aside for an answer before there is one."""

from pathlib import Path
from typing import Any

import pytest

from toolcell import ChannelPolicy, Supervisor, ToolContext, tool
from toolcell.backends.http import Requester, Trail
from toolcell.sessions.broker import Principal, Refusal, answer_bytes, serve, table_for
from toolcell.sessions.channel_access import ChannelAccess
from toolcell.testing import DictHttp, DictWeb, ListChannel, ListMemory
from toolcell.wire.frames import Field
from toolcell_tools.capability import Capability
from toolcell_tools.handles import MAX_HITS, OPERATIONS, UPLOAD_BYTES, may_act

KIB = 1024


@pytest.mark.parametrize(
    ("operation", "arguments", "expected"),
    [
        ("memory.search", {"limit": 2}, 4 * KIB + 2 * 64 * KIB),
        ("memory.search", {"limit": 10**9}, 4 * KIB + MAX_HITS * 64 * KIB),
        ("memory.search", {"limit": -1}, 4 * KIB),
        ("memory.search", {"limit": "2"}, 4 * KIB),
        ("web.fetch", {"max_bytes": 1000}, 4 * KIB + 1000),
        ("web.search", {"query": "q"}, 2048 * KIB),
        ("memory.store", {"text": "t"}, 4 * KIB),
        ("channel.send", {"text": "t"}, 4 * KIB),
    ],
)
def test_an_answer_has_room_by_its_operation_and_what_was_asked_for(
    operation: str, arguments: dict[str, Field], expected: int
) -> None:
    assert answer_bytes(operation, arguments) == expected


def test_an_operation_may_act_unless_it_only_reads_or_belongs_to_a_request() -> None:
    assert {operation for operation in OPERATIONS if not may_act(operation, {"method": "PUT"})} == {
        *("channel.status", "channel.read", "memory.search", "web.search", "web.fetch", "http.events", "http.leave")
    }
    for safe in ("GET", "head", "OPTIONS", "TRACE"):
        assert not may_act("http.request", {"method": safe})
    methods: list[Field] = ["POST", "DELETE", "", "GETS", None, 7]
    for method in methods:
        assert may_act("http.request", {"method": method})
    assert may_act("http.request", {})


class Files(ListChannel):
    """A channel that takes files."""

    async def upload(self, name: str, data: bytes, *, media_type: str, sender: str) -> str | None:
        return "file-1"


async def served(operation: str, arguments: dict[str, Field]) -> Any:
    def unrecorded(_record: dict[str, Any]) -> None: ...

    channel = ChannelAccess(Files(), ChannelPolicy())
    requester = Requester((), DictHttp(), Trail(unrecorded))
    principal = Principal("s", ("ann",), channel, ListMemory(), DictWeb(), requester)
    return await serve(table_for(frozenset(Capability)), principal, operation, arguments)


UPLOAD: dict[str, Field] = {"name": "a.png", "media_type": "image/png", "data": b"x"}
TEXT: dict[str, Field] = {"text": "t", "kind": "fact", "tags": []}


@pytest.mark.anyio
@pytest.mark.few_on_trio
@pytest.mark.parametrize(
    ("operation", "arguments", "why"),
    [
        ("channel.upload", {**UPLOAD, "data": "x"}, "data must be bytes, at most 4,194,304"),
        ("channel.upload", {**UPLOAD, "data": bytes(UPLOAD_BYTES + 1)}, "data must be bytes, at most 4,194,304"),
        ("channel.upload", {**UPLOAD, "name": "../a"}, "without a directory"),
        ("channel.upload", {**UPLOAD, "name": "a\nb"}, "without line breaks"),
        ("channel.upload", {**UPLOAD, "media_type": "png"}, "must be a media type"),
        ("memory.store", {**TEXT, "text": 7}, "text must be a string"),
        ("memory.store", {**TEXT, "text": "ä" * 131_073}, "text is too long; at most 262,144 bytes"),
        ("memory.store", {**TEXT, "tags": "a"}, "tags must be at most 64 short strings"),
        ("memory.store", {**TEXT, "tags": ["a"] * 65}, "tags must be at most 64 short strings"),
        ("memory.store", {**TEXT, "tags": ["a" * 257]}, "tags must be at most 64 short strings"),
        ("memory.search", {"query": "q", "limit": 0}, "limit must be a whole number from 1 to 100"),
        ("memory.search", {"query": "q", "limit": 101}, "limit must be a whole number from 1 to 100"),
        ("memory.search", {"query": "q", "limit": True}, "limit must be a whole number from 1 to 100"),
        (
            "http.request",
            {"method": "GET", "url": "https://a.example.org", "headers": "x"},
            "headers must be a mapping",
        ),
        ("http.request", {"method": "GET", "url": "https://a.example.org", "headers": {"a": 1}}, "headers must be"),
        ("http.request", {"method": "GET", "url": "https://a.example.org", "body": "x"}, "body must be bytes"),
    ],
)
async def test_what_a_tool_asks_with_wrong_arguments_is_refused(
    operation: str, arguments: dict[str, Field], why: str
) -> None:
    with pytest.raises(Refusal, match=why) as refused:
        await served(operation, arguments)
    assert refused.value.kind == "execution"


@pytest.mark.anyio
@pytest.mark.few_on_trio
@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("channel.upload", UPLOAD),
        ("channel.upload", {**UPLOAD, "data": bytes(UPLOAD_BYTES)}),
        ("memory.store", {**TEXT, "text": "ä" * 131_072}),
        ("memory.store", {**TEXT, "tags": ["a" * 256] * 64}),
        ("memory.search", {"query": "q", "limit": 100}),
    ],
)
async def test_arguments_at_their_bounds_are_taken(operation: str, arguments: dict[str, Field]) -> None:
    await served(operation, arguments)


class Wrong(DictWeb):
    """A client of the program that answers mappings in place of records."""

    async def search(self, query: str, *, limit: int) -> Any:
        return [{"title": "t", "url": "u", "more": "m"}]

    async def fetch(self, url: str, *, max_bytes: int) -> Any:
        return {"url": url}


@pytest.mark.anyio
@pytest.mark.parametrize("operation", ["search", "fetch"])
async def test_a_backend_that_answers_no_record_is_no_failure_of_the_tool(operation: str, tmp_path: Path) -> None:
    @tool(needs={Capability.WEB})
    def read(ctx: ToolContext) -> str:
        return str(
            ctx.require.web.search("q") if operation == "search" else ctx.require.web.fetch("https://a.example/")
        )

    async with Supervisor([read], web=Wrong({})) as supervisor:
        session = await supervisor.open_session("worker", workspace=tmp_path)
        error = (await session.call("read")).error
    assert error is not None and error.message == f"The supervisor could not carry out 'web.{operation}'."
