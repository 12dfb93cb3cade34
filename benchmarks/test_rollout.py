"""A simulated rollout: many agents that think, call a tool, and think again; some calls fail in the ways they do."""

import os
import random
import signal
import sys
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
from .machine import cores
from .replay import recorded_time
from .report import Figure, amount
from .workload import check_whole

pytestmark = pytest.mark.benchmark(timer=recorded_time)

THINK_S = 2.5  # how long a model takes for a turn, in the mean; real ones take 5 to 20 s
AROUND = (0.4, 1.6)  # evenly spread from so much of it to so much
CALLS_PER_CORE = 15  # at most asked for in a second; agents that are too many for that think longer
HANG_TIMEOUT_S = 1.0
PROGRESS_S = 10.0
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
INFRASTRUCTURE = {"overloaded", "timeout", "cancelled", "sandbox_unavailable"}  # where it was not asked for


def think_s(sessions: int) -> float:
    """How long each of so many agents thinks for a turn, in the mean, so that this machine can serve them all."""
    return max(THINK_S, sessions / (CALLS_PER_CORE * cores()))


@dataclass(slots=True)
class Tally:
    """What all agents together have seen."""

    latencies: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    queued: list[float] = field(default_factory=list[float])
    expected: Counter[str] = field(default_factory=Counter[str])  # errors that were asked for, by kind
    infrastructure: Counter[str] = field(default_factory=Counter[str])  # those that were not
    tool_s: float = 0.0
    think_s: float = 0.0

    @property
    def turns(self) -> int:
        return len(self.queued)

    def add(self, name: str, result: ToolResult, expected: str, taken: float) -> None:
        """Count a call; `expected` is the kind of error that it must be, empty for none."""
        kind = result.error.kind if result.error is not None else ""
        if kind != expected:
            assert kind in INFRASTRUCTURE, (name, expected, result)
            self.infrastructure[kind] += 1
        elif kind:
            self.expected[kind] += 1
        self.tool_s += taken
        self.latencies[f"{name}: {kind}" if kind else name].append(taken)
        self.queued.append(result.usage.queue_s)


@pytest.mark.timeout(0)  # with the options, as long as one likes
def test_a_simulated_rollout(publish: Publish, pytestconfig: pytest.Config, capfd: pytest.CaptureFixture[str]) -> None:
    sessions = int(pytestconfig.getoption("--rollout-sessions"))
    with capfd.disabled():  # to show how far it is
        publish(partial(rollout, sessions), int(pytestconfig.getoption("--rollout-turns")))


async def rollout(sessions: int, turns: int, workspace: Path) -> Figure:
    tally = Tally()
    async with Supervisor(tools=[*base_tools(), crunch, fault]) as supervisor:
        check_whole(supervisor)
        start = time.perf_counter()
        async with anyio.create_task_group() as progress:
            progress.start_soon(show_progress, tally, sessions * turns)
            async with anyio.create_task_group() as agents:
                for number in range(sessions):
                    chance = random.Random(number)
                    agents.start_soon(
                        agent, supervisor, workspace / str(number), turns, think_s(sessions), chance, tally
                    )
            progress.cancel_scope.cancel()
        taken = time.perf_counter() - start
    wall_s = tally.tool_s + tally.think_s
    least, most = (each * think_s(sessions) for each in AROUND)
    notes = [
        f"{sessions:,} sessions, {turns} turns each, in {taken:,.0f} s: {sessions * turns / taken:,.0f} calls/s.",
        f"The tool side is {100 * tally.tool_s / wall_s:.2f} % of the agents' wall time"
        f" (a turn of the model: {least:.3g} to {most:.3g} s).",
        f"Waiting for a process: {amount(percentile(tally.queued, 50), 's')} at the median,"
        f" {amount(percentile(tally.queued, 99), 's')} at p99.",
        f"Errors, each the one that was asked for: {counted(tally.expected)};"
        f" of the infrastructure: {counted(tally.infrastructure)}.",
    ]
    measured = [Measured(name, "ours", [samples]) for name, samples in sorted(tally.latencies.items())]
    title = f"A simulated rollout of {sessions:,} sessions: how long each call took its agent"
    return Figure(f"rollout-{sessions}", title, measured, notes=notes)


def counted(errors: Counter[str]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in errors.most_common()) or "none"


async def show_progress(tally: Tally, turns: int) -> None:
    """Say on stderr how far it is, every ten seconds."""
    before = 0
    while True:
        await anyio.sleep(PROGRESS_S)
        rate = (tally.turns - before) / PROGRESS_S
        before = tally.turns
        infrastructure = counted(tally.infrastructure)
        print(f"rollout: {before:,} of {turns:,} turns, {rate:.0f} calls/s, of the infrastructure: {infrastructure}",
              file=sys.stderr, flush=True)  # fmt: skip


async def agent(
    supervisor: Supervisor, directory: Path, turns: int, think_s: float, chance: random.Random, tally: Tally
) -> None:
    directory.mkdir()
    (directory / "note.txt").write_text("turn 0\n" + "a line of text\n" * 100)
    session = await supervisor.open_session("main", workspace=directory)
    least, most = (each * think_s for each in AROUND)
    for turn in range(turns):
        thought_s = chance.uniform(least, most)
        await anyio.sleep(thought_s)
        tally.think_s += thought_s
        (name,) = chance.choices(list(TURNS), list(TURNS.values()))
        await act(session, name, turn, chance, tally)
    await session.close()


async def act(session: Session, name: str, turn: int, chance: random.Random, tally: Tally) -> None:
    """Call this tool, and check and count what comes of it."""
    note = session.workspace / "note.txt"
    first, second = (f"turn {int(note.read_text().split()[1]) + more}\n" for more in (0, 1))
    how = chance.choice(list(FAULTS))
    wrong, error = FAULTS[how]
    arguments: dict[str, Any] = {
        "read": {"path": "note.txt"},
        "write": {"path": f"file-{turn}.txt", "content": f"turn {turn}\n"},
        "edit": {"path": "note.txt", "old_text": first, "new_text": second},
        "shell": {"command": "wc -l note.txt"},
        "memory_search": {"query": f"turn {turn}"},
        "crunch": {"rounds": chance.randint(10, 50)},
        "fault": wrong,
    }
    timeout = HANG_TIMEOUT_S if (name, how) == ("fault", "hang") else None
    start = time.perf_counter()
    result = await session.call(name, arguments[name], timeout=timeout)
    tally.add(name, result, error if name == "fault" else "", time.perf_counter() - start)
    if result.is_error:
        return
    if name == "read":
        assert first.strip() in result.for_model(), result
    elif name == "write":
        assert (session.workspace / f"file-{turn}.txt").read_text() == f"turn {turn}\n", result
    elif name == "edit":
        assert note.read_text().startswith(second), result
    elif name == "shell":
        assert "101 note.txt" in result.for_model(), result
