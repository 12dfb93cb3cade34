"""What a call on a Ray cluster costs its driver, and what the object store carries: inputs of the plan, measured.

The cluster has one node, on this machine. Processor times are those of the driver's process alone, so that they hold
beside other work. Latencies are the least of many, because other work only adds to them.
"""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import psutil

from toolcell import Session

from .crowd import Call, throughput
from .test_cluster import SESSIONS, bare_actor, here, node_actor, on_cluster, one_node
from .workload import caller

LATENCIES = 300
IDLE_S = 2.0
STORED_BYTES = 10 * 1024**2
STORED = 20


async def measured_on_ray(workspace: Path, seconds: float) -> dict[str, float]:
    """The fields of `CostInputs` that are about Ray. Needs the extra [ray], and starts a cluster."""
    with one_node() as ray:
        store_bytes_s = await _store_bytes_s(ray)
        async with on_cluster(SESSIONS, workspace) as there:
            one_s, loop_s = await _call_s(there[:1], 1, seconds)
            batched_s, loop_batched_s = await _call_s(there, 64, seconds)
            far_s = await _least_s(there[0])
    async with here(1, workspace) as local:
        near_s = await _least_s(local[0])
    return {
        "loop_call_s": loop_s,
        "loop_batched_s": loop_batched_s,
        "driver_call_s": one_s,
        "driver_batched_s": batched_s,
        "hop_s": (far_s - near_s) / 2,
        "store_bytes_s": store_bytes_s,
    }


def _both_s(actor: psutil.Process) -> tuple[float, float, float]:
    """The time of day, and the processor time of the driver and of the actor."""
    times = actor.cpu_times()
    return time.perf_counter(), time.process_time(), times.user + times.system


async def _call_s(sessions: list[Session], under_way: int, seconds: float) -> tuple[float, float]:
    """The processor time of the driver and of the node's actor for a call, with so many under way. What they take when
    idle is left out."""
    done = 0

    def counted(call: Call) -> Call:
        async def ask(text: str) -> str:
            nonlocal done
            done += 1
            return await call(text)

        return ask

    callers = [counted(caller(sessions[each % len(sessions)], "echo")) for each in range(under_way)]
    actor = node_actor()
    first = _both_s(actor)
    await anyio.sleep(IDLE_S)
    second = _both_s(actor)
    await throughput(callers, seconds)
    third = _both_s(actor)
    parts = (third[0] - second[0]) / (second[0] - first[0])
    used = [c - b - parts * (b - a) for a, b, c in zip(first[1:], second[1:], third[1:], strict=True)]
    return used[0] / done, used[1] / done


async def _least_s(session: Session) -> float:
    """The least time of a call of a kept process."""
    call = caller(session, "kept")

    async def ask() -> None:
        assert await call("text") == "text"

    return await _least_of(ask, LATENCIES)


async def _store_bytes_s(ray: Any) -> float:
    """Bytes in a second to an actor and back, by the object store."""
    actor, data = bare_actor(ray), bytes(STORED_BYTES)

    async def ask() -> None:
        assert len(await actor.echo.remote(data)) == STORED_BYTES

    await ask()
    return 2 * STORED_BYTES / await _least_of(ask, STORED)


async def _least_of(ask: Callable[[], Awaitable[None]], number: int) -> float:
    least = float("inf")
    for _ in range(number):
        start = time.perf_counter()
        await ask()
        least = min(least, time.perf_counter() - start)
    return least
