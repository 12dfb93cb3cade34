"""`run_tool`: one tool in a real cell, on both loops and without any, and nothing of it left."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from toolcell import Capability, PermissionDenied, Profile, Timeout, ToolContext, ValidationError, tool
from toolcell.testing import DictWeb, ListChannel, ListMemory, run_tool, run_tool_blocking


@pytest.fixture(autouse=True)
def leftovers(supervise: object) -> None:
    """Its name has conftest look for leftovers after each test."""


@tool(needs={Capability.WRITE})
def save(ctx: ToolContext, path: str, text: str) -> str:
    """Save text to a file in the workspace."""
    assert ctx.writer is not None
    ctx.writer.write_text(path, text)
    return f"saved {len(text)} characters"


@tool(needs={Capability.CHANNEL, Capability.MEMORY_WRITE, Capability.WEB})
def tell(ctx: ToolContext, url: str) -> str:
    """Fetch, store and send."""
    assert ctx.channel and ctx.memory_writer and ctx.web
    body = ctx.web.fetch(url).body.decode()
    ctx.memory_writer.store(body)
    ctx.channel.send(body)
    return f"{body} {ctx.config['name']}"


def pid_and_passwd() -> list[int | bool]:
    """Which process this is, and whether it sees the host's files."""
    return [os.getpid(), os.path.exists("/etc/shadow")]


def steps(ctx: ToolContext) -> int:
    """Report twice, then wait."""
    ctx.progress("one", 0.5)
    ctx.progress("two", 1.0)
    time.sleep(3600)
    return 1


def test_a_tool_runs_in_a_real_cell_in_a_line(tmp_path: Path) -> None:
    result = run_tool_blocking(save, {"path": "a.txt", "text": "hello"}, workspace=tmp_path)
    assert result.unwrap() == "saved 5 characters"
    assert (tmp_path / "a.txt").read_text() == "hello"
    assert "pid_namespace" in result.sandbox.on or result.sandbox.allowed_missing


def test_it_is_another_process_that_sees_another_machine() -> None:
    pid, sees = run_tool_blocking(pid_and_passwd).unwrap()
    assert pid != os.getpid() and sees is False


@pytest.mark.anyio
async def test_on_asyncio_and_on_trio() -> None:
    assert (await run_tool(save, {"path": "a", "text": "b"})).display == "saved 1 characters"


@pytest.mark.anyio
async def test_backends_and_config_reach_the_tool() -> None:
    channel, memory = ListChannel(), ListMemory()
    web = DictWeb({"https://example.com/": b"page"})
    given: dict[str, Any] = {"channel": channel, "memory": memory, "web": web, "config": {"name": "x"}}
    assert (await run_tool(tell, {"url": "https://example.com/"}, **given)).unwrap() == "page x"
    assert channel.sent[0][0] == memory.records[0][1].text == "page"
    empty = await run_tool(tell, {"url": "https://example.com/"})
    assert empty.is_error  # without a web of its own there are no pages, and never the real ones


@pytest.mark.anyio
async def test_what_goes_wrong_is_in_the_result() -> None:
    assert isinstance((await run_tool(save, {"path": 7, "text": "b"})).error, ValidationError)
    assert isinstance((await run_tool(save, {"path": "a", "text": "b"}, kind="worker")).error, PermissionDenied)
    heard: list[str] = []
    late = await run_tool(steps, timeout=5.0, on_progress=lambda message, _: heard.append(message))
    assert isinstance(late.error, Timeout) and heard == ["one", "two"]
    narrow = Profile.for_kind("main").replace(grants=frozenset({"read"}))
    assert isinstance((await run_tool(save, {"path": "a", "text": "b"}, profile=narrow)).error, PermissionDenied)
