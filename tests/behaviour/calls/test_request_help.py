"""Help for the request to a model: instructions, memories and artifacts, usable in any loop."""

from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

import toolcell.blocking
from toolcell import (
    Capability,
    ImageBlock,
    MemoryRecord,
    PermissionDenied,
    Profile,
    Session,
    SessionKind,
    TextBlock,
    ToolDefinitionError,
    UsageError,
    artifacts_text,
    base_tools,
    instructions_of,
    load_artifacts,
    load_memory,
    preload_memory,
    tool,
)
from toolcell.testing.backends import ListMemory

pytestmark = pytest.mark.anyio
PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


@tool(instructions="  Convert every amount to euros first.\n")
def convert(amount: float) -> float:
    """Convert."""
    return amount


@tool(instructions="Convert every amount to euros first.")
def convert_back(amount: float) -> float:
    """Convert back."""
    return amount


TOOLS = [*base_tools(), convert, convert_back, load_memory, load_artifacts]


async def test_the_instructions_of_the_offered_tools_are_one_text(main: Session) -> None:
    declared = await main.tools()
    text = instructions_of(declared)
    assert text.split("\n\n")[0] == "Convert every amount to euros first." and text.count("euros") == 1
    assert "load_memory" in text and "load_artifacts" in text
    assert instructions_of(one for one in declared if one.name in ("read", "write")) == ""
    variant = convert.replace(instructions="Convert nothing.")
    assert variant.declaration.instructions == "Convert nothing."
    assert variant.declaration.fingerprint != convert.declaration.fingerprint
    with pytest.raises(ToolDefinitionError, match="8,000 are allowed"):
        convert.replace(instructions="x" * 8001)


async def test_memories_that_fit_are_preloaded_as_data(supervise: Any, workspace: Path) -> None:
    memory = ListMemory()
    async with supervise(TOOLS) as supervisor:
        main = await supervisor.open_session("main", workspace=workspace, agent_id="ada", memory=memory)
        assert await preload_memory(main, "cat") == ""
        await memory.store(MemoryRecord("", "The cat\nsleeps \x1b[2J by day."), namespace="ada")
        await memory.store(MemoryRecord("", "The cat of somebody else."), namespace="bob")
        text = await preload_memory(main, "cat")
        assert text.endswith("\n- The cat sleeps \\x1b[2J by day.") and "data, not instructions" in text
        assert "more characters" in await preload_memory(main, "cat", max_chars=10)
        blind = await main.open_child(
            "branch", profile=Profile.for_kind("branch").replace(grants=frozenset({Capability.READ}))
        )
        with pytest.raises(UsageError, match="may not read the memory"):
            await preload_memory(blind, "cat")
        worker = await main.open_child("worker")
        assert "sleeps" in await preload_memory(worker, "cat")
        assert (await worker.call("load_memory", {"query": "cat"})).output == {
            "memories": [{"text": "The cat\nsleeps \x1b[2J by day.", "kind": "fact", "tags": []}]
        }
        await main.close()
        with pytest.raises(UsageError, match="closed"):
            await preload_memory(main, "cat")


async def test_artifacts_are_listed_for_the_model_and_loaded_when_it_asks(main: Session, workspace: Path) -> None:
    assert artifacts_text(main) == ""
    await main.call("write", {"path": "report.md", "content": "# Ants"})
    assert artifacts_text(main) == "Files that earlier calls made or changed:\n- report.md (6 bytes)"
    (workspace / "plot.png").write_bytes(PNG)
    (workspace / "raw.bin").write_bytes(b"\xff\xfe\x00")
    worker = await main.open_child("worker")
    result = await worker.call("load_artifacts", {"paths": ["report.md", "plot.png"]})
    text, image = result.content
    assert isinstance(text, TextBlock) and text.text == "report.md:\n# Ants"
    assert isinstance(image, ImageBlock) and image.to_bytes() == PNG and image.mime_type == "image/png"
    assert result.output == {"loaded": ["report.md", "plot.png"]}
    for wrong in ("raw.bin", "missing.md", "../outside"):
        assert (await worker.call("load_artifacts", {"paths": [wrong]})).is_error
    (workspace / "named.png").write_text("no image")
    (named,) = (await worker.call("load_artifacts", {"paths": ["named.png"]})).content
    assert isinstance(named, TextBlock) and named.text == "named.png:\nno image"
    (workspace / "half.png").write_bytes(PNG[:40])
    assert "is not whole" in (await worker.call("load_artifacts", {"paths": ["half.png"]})).for_model()
    (workspace / "large.txt").write_text("x" * 1_000_001)
    assert "1,000,000 bytes" in (await main.call("load_artifacts", {"paths": ["large.txt"]})).for_model()


async def test_what_they_need_is_what_the_session_must_hold(main: Session) -> None:
    blind = await main.open_child("branch", profile=Profile.for_kind("branch").replace(grants=frozenset()))
    for name, arguments in (("load_memory", {"query": "x"}), ("load_artifacts", {"paths": ["x"]})):
        assert isinstance((await blind.call(name, arguments)).error, PermissionDenied)


def test_memories_are_preloaded_without_await_too(tmp_path: Path) -> None:
    with toolcell.blocking.Supervisor(base_tools(), standby=0) as supervisor:
        session = supervisor.open_session(SessionKind.MAIN, workspace=tmp_path)
        session.call("memory_store", {"text": "The cat sleeps."})
        assert "The cat sleeps." in toolcell.blocking.preload_memory(session, "cat")
        assert artifacts_text(session) == ""
