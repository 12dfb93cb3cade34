"""Calls on a Ray cluster, against calls on this machine and a bare call of an actor. Needs the extra [ray].

The cluster has one node, on this machine: its processes share the cores with the driver, so a ratio is a lower bound.
"""

import json
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from toolcell import Session, Supervisor

from .conftest import Publish
from .crowd import throughput
from .interleave import Block, Case, Measured, calls, interleave
from .replay import recorded_time
from .report import Figure
from .workload import caller, check_whole, echo, kept

pytestmark = pytest.mark.benchmark(timer=recorded_time)
SESSIONS = 16
OPENED = 10_000
ROOT = Path(__file__).parent.parent


@contextmanager
def one_node() -> Generator[Any]:
    """A Ray cluster of one node, with an object store of 100 MB."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray: Any = import_module("ray")
    ray.init(
        num_cpus=1,
        include_dashboard=False,
        object_store_memory=100_000_000,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    try:
        yield ray
    finally:
        ray.shutdown()


@asynccontextmanager
async def on_cluster(number: int, directory: Path) -> AsyncGenerator[list[Session]]:
    """So many sessions on the cluster, each with a workspace of its own, and warm."""
    from toolcell.cluster import RayCluster

    async with Supervisor([echo, kept], cluster=RayCluster()) as supervisor:
        yield await _opened(supervisor, number, directory)
    await RayCluster().remove()


@asynccontextmanager
async def here(number: int, directory: Path) -> AsyncGenerator[list[Session]]:
    """As `on_cluster`, on this machine."""
    async with Supervisor([echo, kept]) as supervisor:
        check_whole(supervisor)
        yield await _opened(supervisor, number, directory)


async def _opened(supervisor: Supervisor, number: int, directory: Path) -> list[Session]:
    opened: list[Session] = []
    for each in range(number):
        workspace = directory / f"session-{each}"
        workspace.mkdir(exist_ok=True)
        opened.append(await supervisor.open_session("main", workspace=workspace))
        for tool in (echo, kept):
            (await opened[-1].call(tool.name, {"text": "warm"})).unwrap()
    return opened


def bare_actor(ray: Any) -> Any:
    """An async actor that gives its argument back."""

    class Echo:
        async def echo(self, data: bytes) -> bytes:
            return data

    return ray.remote(Echo).options(num_cpus=0).remote()


def node_actor() -> psutil.Process:
    """The process of the node's actor: Ray names it after the class."""
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if "ray::NodeActor" in " ".join(each.cmdline()):
                return each
    raise AssertionError("the cluster has no node actor")


def test_what_the_cluster_adds_to_a_call(publish: Publish) -> None:
    publish(latency, 10)


def test_calls_in_a_second_at_1_8_and_64_under_way(publish: Publish) -> None:
    publish(rates, 5)


def test_placing_ten_thousand_sessions(publish: Publish) -> None:
    publish(placement, 1)


@pytest.mark.timeout(1800)
def test_ten_thousand_sessions_live_on_a_cluster(publish: Publish) -> None:
    publish(live, 1)


def test_time_to_recover_from_a_killed_actor(publish: Publish) -> None:
    publish(recovery, 3)


async def latency(rounds: int, workspace: Path) -> Figure:
    with one_node() as ray:
        actor = bare_actor(ray)

        async def raw(text: str) -> str:
            reply: bytes = await actor.echo.remote(text.encode())
            return reply.decode()

        async with on_cluster(1, workspace) as (there,), here(1, workspace) as (local,):
            cases = [
                Case("on the cluster", "ours", calls(caller(there, "kept"), 50)),
                Case("here", "ours", calls(caller(local, "kept"), 50)),
                Case("bare actor call", "floor", calls(raw, 50)),
            ]
            measured = await interleave(cases, rounds)
    there_, here_, _bare = measured
    added = [
        [statistics.median(far) - statistics.median(near)]
        for far, near in zip(there_.blocks, here_.blocks, strict=True)
    ]
    title = "A call of a kept process on a cluster of one node, and here"
    return Figure("cluster-latency", title, [*measured, Measured("added by the cluster", "ours", added)], unit="s")


async def rates(rounds: int, workspace: Path) -> Figure:
    window_s = 0.2 * rounds
    with one_node() as ray:
        actor = bare_actor(ray)

        async def raw(text: str) -> str:
            reply: bytes = await actor.echo.remote(text.encode())
            return reply.decode()

        async with on_cluster(SESSIONS, workspace) as there, here(SESSIONS, workspace) as local:
            cases: list[Case] = []
            for under_way in (1, 8, 64):
                cases.append(Case(f"on the cluster, {under_way}", "ours", _window(there, under_way, window_s)))
                cases.append(Case(f"here, {under_way}", "ours", _window(local, under_way, window_s)))

                async def bare(number: int = under_way) -> list[float]:
                    return [await throughput([raw] * number, window_s)]

                cases.append(Case(f"bare actor, {under_way}", "floor", bare))
            measured = await interleave(cases, rounds)
    title = f"Fresh calls in a second, with 1, 8 and 64 under way in {SESSIONS} sessions"
    return Figure("cluster-rates", title, measured, unit="/s")


def _window(sessions: list[Session], under_way: int, seconds: float) -> Block:
    async def block() -> list[float]:
        callers = [caller(sessions[each % len(sessions)], "echo") for each in range(under_way)]
        return [await throughput(callers, seconds)]

    return block


async def placement(rounds: int, workspace: Path) -> Figure:
    """Opens sessions, and places each by its first call. Each is closed at once, because cells are not the subject."""
    number = OPENED if rounds == 1 else 100
    from toolcell.cluster.placement import NodeFacts, choose

    nodes = [NodeFacts(f"node-{each}", 100, each % 7, each % 11, {"zone": str(each % 4)}) for each in range(100)]

    async def choices() -> list[float]:
        start = time.perf_counter()
        for each in range(number):
            assert choose(nodes, f"/workspace/{each}", {"zone": str(each % 4)}) is not None
        return [(time.perf_counter() - start) / number]

    with one_node():
        async with on_cluster(1, workspace) as (first,):

            async def opened() -> list[float]:
                start = time.perf_counter()
                made = [await first.open_child("worker") for _ in range(8)]
                for each in made:
                    await each.close()
                return [(time.perf_counter() - start) / len(made)]

            cases = [
                Case(f"choose a node of 100, {number:,} sessions", "ours", choices),
                Case("open and close a session", "ours", opened),
            ]
            measured = await interleave(cases, max(2, rounds))
    return Figure("cluster-placement", "Placing sessions on a cluster", measured, unit="s")


async def live(rounds: int, workspace: Path) -> Figure:
    """Ten thousand sessions, all open and placed, of a program of its own."""
    number = OPENED if rounds == 1 else 200
    command = [sys.executable, "-m", "benchmarks.cluster_many", str(number), "2", str(workspace)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    assert sum(found["sessions_of_nodes"]) == number + found["warm"]
    measured = [
        Measured(name, "ours", [[found[key]]])
        for name, key in (
            ("open a session", "open_s"),
            ("place it and make a cell, 64 under way", "first_call_s"),
            ("another call in a parked one, 64 under way", "later_call_s"),
            ("close a session", "close_s"),
        )
    ]
    first, second = found["sessions_of_nodes"]
    driver_kb, node_kb = found["driver_bytes"] / 1000, found["node_bytes"] / 1000
    notes = [
        f"A session holds {driver_kb:.1f} KB in the driver and {node_kb:.1f} KB in its node's actor.",
        f"The nodes have {first:,} and {second:,} sessions.",
    ]
    return Figure("cluster-sessions", f"{number:,} sessions live on two nodes", measured, unit="s", notes=notes)


async def recovery(rounds: int, workspace: Path) -> Figure:
    """From the kill of the actor to the next answer in a session."""
    with one_node():
        async with on_cluster(1, workspace) as (session,):

            async def block() -> list[float]:
                node_actor().kill()
                start = time.perf_counter()
                with anyio.fail_after(60.0):
                    while (await session.call("echo", {"text": "again"})).error is not None:
                        await anyio.sleep(0.02)
                return [time.perf_counter() - start]

            measured = await interleave([Case("actor killed → next answer", "ours", block)], rounds)
    return Figure("cluster-recovery", "A killed actor", measured, unit="s")
