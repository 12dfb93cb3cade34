"""Supervisors without anyio.run, which tells anyio the kind of loop in places without a task."""

import asyncio
from pathlib import Path

from toolcell import Capability, MemoryRecord, Supervisor, ToolContext, tool
from toolcell.testing.backends import ListMemory


@tool(needs={Capability.MEMORY_WRITE})
def remember(ctx: ToolContext, text: str) -> str:
    """Remember a text, and report the progress."""
    assert ctx.memory_writer is not None
    ctx.progress("half", 0.5)
    return str(ctx.memory_writer.store(text))


class OddMemory(ListMemory):
    """A memory whose answer cannot be sent."""

    async def store(self, record: MemoryRecord, *, namespace: str) -> str:
        await super().store(record, namespace=namespace)
        return 2**70  # type: ignore[return-value]


async def use(memory: ListMemory, workspace: Path) -> tuple[str, list[str]]:
    heard: list[str] = []

    async def on_progress(message: str, _fraction: float | None) -> None:
        await asyncio.sleep(0)
        heard.append(message)

    async with Supervisor([remember]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, memory=memory)
        result = await session.call("remember", {"text": "a"}, on_progress=on_progress)
        await asyncio.sleep(0.05)
        assert (await session.call("remember", {})).error is not None  # and the supervisor goes on
        return result.output or str(result.error), heard


def test_handles_and_progress_work_under_asyncio_run(tmp_path: Path) -> None:
    assert asyncio.run(use(ListMemory(), tmp_path)) == ("m1", ["half"])


def test_a_backends_answer_that_cannot_be_sent_fails_the_operation_and_nothing_else(tmp_path: Path) -> None:
    said, _heard = asyncio.run(use(OddMemory(), tmp_path))
    assert "The answer cannot be sent" in said
