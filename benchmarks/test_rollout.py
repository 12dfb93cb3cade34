"""A simulated rollout: many agents that think, call a tool, and think again; some calls fail in the ways they do."""

import os
import random
import signal
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcell import Session, Supervisor, ToolResult, base_tools, tool

from .conftest import Publish
from .interleave import Measured, percentile
from .replay import recorded_time
from .report import Figure, amount
from .workload import check_whole

pytestmark = pytest.mark.benchmark(timer=recorded_time)

THINK_S = (1.0, 4.0)  # how long a model takes for a turn, evenly spread; real ones take longer
HANG_TIMEOUT_S = 1.0
TURNS: dict[str, int] = {  # how often each, in a hundred turns
    "read": 38,
    "write": 10,
    "edit": 10,
    "shell": 14,
    "memory_search": 8,
    "crunch": 18,
    "fault": 2,
}


@tool
def crunch(rounds: int) -> int:
    """Compute for some milliseconds.

    Args:
        rounds: How many thousand steps.
    """
    total = 0
    for number in range(1000 * rounds):
        total = (total * 31 + number) % 1_000_003
    return total


@tool
def fault(how: str) -> None:
    """Fail.

    Args:
        how: "crash", or "hang".
    """
    if how == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(3600)


FAULTS: dict[str, tuple[dict[str, Any], str]] = {  # arguments, and the kind of error that must come of them
    "crash": ({"how": "crash"}, "crashed"),
    "hang": ({"how": "hang"}, "timeout"),
    "wrong arguments": ({"how": 1}, "validation"),
}


@dataclass(slots=True)
class Tally:
    """What all agents together have seen."""

    latencies: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    queued: list[float] = field(default_factory=list[float])
    errors: Counter[str] = field(default_factory=Counter[str])
    tool_s: float = 0.0
    think_s: float = 0.0


@pytest.mark.timeout(0)  # with the options, as long as one likes
def test_a_simulated_rollout(publish: Publish, pytestconfig: pytest.Config) -> None:
    sessions = int(pytestconfig.getoption("--rollout-sessions"))
    publish(partial(rollout, sessions), int(pytestconfig.getoption("--rollout-turns")))


async def rollout(sessions: int, turns: int, workspace: Path) -> Figure:
    tally = Tally()
    async with Supervisor(tools=[*base_tools(), crunch, fault]) as supervisor:
        check_whole(supervisor)
        start = time.perf_counter()
        async with anyio.create_task_group() as group:
            for number in range(sessions):
                group.start_soon(agent, supervisor, workspace / str(number), turns, random.Random(number), tally)
        taken = time.perf_counter() - start
    wall_s = tally.tool_s + tally.think_s
    notes = [
        f"{sessions} sessions, {turns} turns each, in {taken:.1f} s: {sessions * turns / taken:,.0f} calls/s.",
        f"The tool side is {100 * tally.tool_s / wall_s:.2f} % of the agents' wall time"
        f" (a turn of the model: {THINK_S[0]} to {THINK_S[1]} s).",
        f"Waiting for a process: {amount(percentile(tally.queued, 50), 's')} at the median,"
        f" {amount(percentile(tally.queued, 99), 's')} at p99.",
        f"Errors, each the one that was asked for: {dict(tally.errors)}; of the infrastructure: none.",
    ]
    measured = [Measured(name, "ours", [samples]) for name, samples in sorted(tally.latencies.items())]
    return Figure("rollout", "A simulated rollout: how long each call took its agent", measured, notes=notes)


async def agent(supervisor: Supervisor, directory: Path, turns: int, chance: random.Random, tally: Tally) -> None:
    directory.mkdir()
    (directory / "note.txt").write_text("turn 0\n" + "a line of text\n" * 100)
    session = await supervisor.open_session("main", workspace=directory)
    edits = 0
    for turn in range(turns):
        think_s = chance.uniform(*THINK_S)
        await anyio.sleep(think_s)
        tally.think_s += think_s
        (name,) = chance.choices(list(TURNS), list(TURNS.values()))
        start = time.perf_counter()
        result, expected = await act(session, name, turn, edits, chance)
        taken = time.perf_counter() - start
        edits += name == "edit"
        kind = result.error.kind if result.error is not None else ""
        assert kind == expected, (name, result)
        if kind:
            tally.errors[kind] += 1
        tally.tool_s += taken
        tally.latencies[f"{name}: {kind}" if kind else name].append(taken)
        tally.queued.append(result.usage.queue_s)
    await session.close()


async def act(session: Session, name: str, turn: int, edits: int, chance: random.Random) -> tuple[ToolResult, str]:
    """Call this tool; the result, and the kind of error that it must be."""
    if name == "fault":
        how = chance.choice(list(FAULTS))
        wrong, expected = FAULTS[how]
        timeout = HANG_TIMEOUT_S if how == "hang" else None
        return await session.call("fault", wrong, timeout=timeout), expected
    arguments: dict[str, Any] = {
        "read": {"path": "note.txt"},
        "write": {"path": f"file-{turn}.txt", "content": f"turn {turn}\n"},
        "edit": {"path": "note.txt", "old_text": f"turn {edits}\n", "new_text": f"turn {edits + 1}\n"},
        "shell": {"command": "wc -l note.txt"},
        "memory_search": {"query": f"turn {turn}"},
        "crunch": {"rounds": chance.randint(10, 50)},
    }
    result = await session.call(name, arguments[name])
    if name == "shell":
        assert "101 note.txt" in result.for_model(), result
    return result, ""
