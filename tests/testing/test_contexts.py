"""`toolcell.testing.context`: a tool under test, without a process. Every handle does what it does in a call."""

import gc
import os
from typing import Any

import anyio
import pytest

import toolcell.testing
from toolcell import (
    Capability,
    HttpReply,
    MemoryRecord,
    MissingCapability,
    RequestDenied,
    SQLiteMemory,
    ToolContext,
    ToolFailure,
    UsageError,
    tool,
)
from toolcell.testing import DictHttp, DictWeb, ListChannel, ListMemory, context
from toolcell_tools import base_tools

HANDLES = ("writer", "shell", "channel", "memory", "memory_writer", "web", "http")


@tool(needs={Capability.WRITE})
def save(ctx: ToolContext, path: str, text: str) -> str:
    """Save text to a file in the workspace."""
    assert ctx.writer is not None
    ctx.writer.write_text(path, text)
    return f"saved {len(text)} characters"


@tool(needs={Capability.MEMORY_READ, Capability.WEB}, uses={Capability.CHANNEL})
async def research(ctx: ToolContext, topic: str) -> list[str]:
    """Look in memory and on the web at once."""
    assert ctx.memory is not None and ctx.web is not None
    memory, web = ctx.memory, ctx.web
    known = await memory.asearch(topic)
    page = await web.afetch("https://example.com/")
    if ctx.channel is not None:
        await ctx.channel.asend(f"looked for {topic}")
    return [*(one.text for one in known), page.body.decode()]


def test_the_test_of_a_tool_takes_three_lines() -> None:
    ctx = context()
    assert save(ctx, "a.txt", "hello") == "saved 5 characters"
    assert (ctx.workspace_root / "a.txt").read_text() == "hello"


def test_files_and_commands_are_real() -> None:
    ctx = context()
    assert ctx.writer is not None and ctx.shell is not None
    ctx.writer.write_text("a.txt", "hello")
    assert ctx.workspace.read_text("a.txt") == "hello"
    assert ctx.shell.run("cat a.txt").stdout == "hello"
    with pytest.raises(ToolFailure):
        ctx.workspace.read_text("/etc/passwd")


@pytest.mark.parametrize(
    ("kind", "there"), [("main", set(HANDLES)), ("branch", set(HANDLES)), ("worker", {"memory", "web"})]
)
def test_what_a_kind_does_not_hold_is_none(kind: str, there: set[str]) -> None:
    ctx = context(kind)
    assert {name for name in HANDLES if getattr(ctx, name) is not None} == there
    assert ctx.session_kind == kind and ctx.workspace.list() == []


def test_grants_narrow_and_never_widen() -> None:
    ctx = context(grants=["web"])
    assert [name for name in HANDLES if getattr(ctx, name) is not None] == ["web"]
    with pytest.raises(MissingCapability):
        ctx.workspace.list()
    with pytest.raises(UsageError, match="A worker session never holds exec, write"):
        context("worker", grants={Capability.WRITE, Capability.EXEC, Capability.READ})


def test_a_tool_gets_what_it_declares_and_no_more() -> None:
    ctx = context(tool=save)
    assert [name for name in HANDLES if getattr(ctx, name) is not None] == ["writer"]
    assert context("worker", tool=research).channel is None and context(tool=research).channel is not None
    with pytest.raises(UsageError, match="needs write, which this worker session does not hold"):
        context("worker", tool=save)


def test_backends_remember_what_reached_them() -> None:
    channel, memory, web = ListChannel(), ListMemory(), DictWeb({"https://example.com/": b"a page"})
    ctx = context(channel=channel, memory=memory, web=web)
    assert ctx.channel and ctx.memory and ctx.memory_writer and ctx.web
    ctx.channel.send("hello")
    id = ctx.memory_writer.store("the sky is blue", "fact", ["colour"])
    assert [one.id for one in ctx.memory.search("sky")] == [id]
    assert ctx.web.fetch("https://example.com/").body == b"a page"
    assert channel.sent == [("hello", "agent/session-1")]
    assert memory.records[0][1].tags == ("colour",) and web.asked == ["https://example.com/"]


def test_requests_go_by_the_rules_that_are_given() -> None:
    http = DictHttp({"GET https://api.example.com/users?n=1": b"[]", "GET https://api.example.com/v1": HttpReply(404)})
    ctx = context(http=http, http_rules=["GET api.example.com"])
    assert ctx.http
    assert ctx.http.request("get", "https://api.example.com/users?n=1", headers={"Accept": "a/b"}).body == b"[]"
    assert ctx.http.request("GET", "https://api.example.com/v1").status == 404
    assert http.asked[0].headers == {"accept": "a/b"} and http.asked[0].authorize
    for method, url in (("POST", "https://api.example.com/"), ("GET", "https://evil.example.org/")):
        with pytest.raises(RequestDenied, match="not among the requests"):
            ctx.http.request(method, url)
    with pytest.raises(ToolFailure, match="There is no answer"):
        ctx.http.request("GET", "https://api.example.com/none")
    assert context("worker").http is None and len(http.asked) == 3


def test_the_broker_refuses_as_in_a_call() -> None:
    ctx = context()
    assert ctx.web and ctx.channel
    with pytest.raises(ToolFailure, match="There is no page"):
        ctx.web.fetch("https://example.com/none")
    with pytest.raises(ToolFailure, match="too long"):
        ctx.channel.send("x" * 300_000)


@pytest.mark.anyio
async def test_async_tools_are_awaited_on_either_loop() -> None:
    channel, memory = ListChannel(), ListMemory()
    memory.records.append(("agent", MemoryRecord("1", "sky: blue")))
    ctx = context(tool=research, channel=channel, memory=memory, web=DictWeb({"https://example.com/": b"page"}))
    assert await research(ctx, "sky") == ["sky: blue", "page"]
    assert channel.sent == [("looked for sky", "agent/session-1")]
    assert ctx.memory and ctx.memory.search("sky")[0].id == "1"  # a sync operation under a running loop


def test_the_real_memory_fits_too() -> None:
    with SQLiteMemory() as memory:
        ctx = context(memory=memory)
        assert ctx.memory and ctx.memory_writer
        ctx.memory_writer.store("the sky is blue")
        assert ctx.memory.search("sky")[0].text == "the sky is blue"
    with pytest.raises(ToolFailure, match="closed"):
        ctx.memory.search("sky")


def test_reports_are_recorded_and_a_call_can_be_taken_back() -> None:
    ctx = context(deadline_s=5.0, config={"a": 1}, values={"b": 2}, attempt=2)
    ctx.progress("half", 0.5)
    ctx.log("seen", "warning", path="a")
    assert ctx.recorder.progressed == [("half", 0.5)]
    assert ctx.recorder.logged == [("seen", "warning", {"path": "a"})]
    assert 4.0 < ctx.remaining() <= 5.0 and not ctx.cancelled
    ctx.recorder.cancel()
    assert ctx.cancelled
    assert (ctx.config, ctx.values, ctx.attempt) == ({"a": 1}, {"b": 2}, 2)


def test_a_workspace_of_its_own_goes_with_the_context_and_a_given_one_stays(tmp_path: Any) -> None:
    own, given = context(), context(workspace=tmp_path)
    root = own.workspace_root
    assert os.listdir(root) == [] and given.workspace_root == tmp_path.resolve()
    del own, given
    gc.collect()
    assert not root.exists() and tmp_path.exists()


def test_a_workspace_that_is_not_there_is_refused(tmp_path: Any) -> None:
    with pytest.raises(FileNotFoundError):
        context(workspace=tmp_path / "none")


def test_base_tools_run_in_it() -> None:
    tools: dict[str, Any] = {one.name: one for one in base_tools()}
    ctx = context()
    tools["write"](ctx, "a.txt", "one\n")
    assert tools["read"](ctx, "a.txt").output == "1\tone"
    assert tools["shell"](ctx, "wc -l < a.txt").output["stdout"].strip() == "1"


@pytest.mark.parametrize("name", toolcell.testing.__all__)
def test_every_public_name_of_the_kit_is_there(name: str) -> None:
    assert getattr(toolcell.testing, name) is not None


def test_the_kit_says_what_it_does_not_have() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        toolcell.testing.nothing  # noqa: B018


def test_a_given_deadline_may_be_over() -> None:
    assert context(deadline_s=-1.0).remaining() == 0.0


def test_a_running_loop_does_no_harm() -> None:
    async def inside() -> str:
        return save(context(), "a", "b")

    assert anyio.run(inside) == "saved 1 characters"
