"""One operation of a handle: from inside a call to the supervisor and back."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from toolcell import Session, Supervisor

from .conftest import Publish
from .floors import ping_pong
from .interleave import PAYLOAD_BYTES, Block, Case, interleave
from .peers import manager_proxy
from .replay import recorded_time
from .report import Figure
from .workload import OneRecord, check_whole, search

pytestmark = pytest.mark.benchmark(timer=recorded_time)

OPERATIONS = 30


def test_a_handle_operation(publish: Publish) -> None:
    publish(handle_operation, 20)


async def handle_operation(rounds: int, workspace: Path) -> Figure:
    texts = {f"{number:032d}": [2 * f"{number:032d}"] for number in range(OPERATIONS)}
    with (
        ping_pong(OPERATIONS, PAYLOAD_BYTES, "one core") as one_core,
        ping_pong(OPERATIONS, PAYLOAD_BYTES, "two cores") as two_cores,
        ping_pong(OPERATIONS, PAYLOAD_BYTES, "free") as free,
        manager_proxy(texts) as get,
    ):
        async with Supervisor(tools=[search]) as supervisor:
            check_whole(supervisor)
            memory = OneRecord()
            session = await supervisor.open_session("main", workspace=workspace, memory=memory)
            cases = [
                Case("memory.search", "ours", searches(session, memory)),
                Case("ping-pong, one core", "floor", one_core.block),
                Case("ping-pong, two cores", "floor", two_cores.block),
                Case("ping-pong, free", "floor", free.block),
                Case("mp.Manager().dict().get", "peer", lookups(get, texts)),
            ]
            return Figure("handle", "A handle operation", await interleave(cases, rounds))


def searches(session: Session, memory: OneRecord) -> Block:
    """One call that searches again and again; the tool times each search, in its cell, and checks what it finds."""

    async def block() -> list[float]:
        before = memory.asked
        result = await session.call("search", {"times": OPERATIONS})
        taken = cast("list[float]", result.unwrap())
        assert len(taken) == memory.asked - before == OPERATIONS
        return taken

    return block


def lookups(get: Callable[[str], list[str] | None], texts: dict[str, list[str]]) -> Block:
    async def block() -> list[float]:
        taken: list[float] = []
        for query, expected in texts.items():
            start = time.perf_counter()
            found = get(query)
            taken.append(time.perf_counter() - start)
            assert found == expected
        return taken

    return block
