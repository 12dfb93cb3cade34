"""A rollout: many agents, each in a session of its own, that take turns between a model and tools in cells.

    python rollouts.py                                         # 20 sessions, 6 turns each
    python rollouts.py --sessions 1000 --turns 50              # on this machine
    python rollouts.py --sessions 1000 --turns 50 --ray auto   # on the Ray cluster that this machine belongs to
    python rollouts.py … --record DIRECTORY                    # what is killed goes on from there

`model` plays a script here. In yours, it asks an inference server, and the agent notes its tokens for the trainer.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio

from toolcell import Supervisor, UsageLimits, base_tools, tool
from toolcell.rollouts import Attempt, InfrastructureFailure, RolloutTask, Scored, rollout


@tool
def add(numbers: list[int]) -> int:
    """Add numbers.

    Args:
        numbers: What to add.
    """
    return sum(numbers)


async def model(attempt: Attempt, turn: int, chance: random.Random, think_s: float) -> tuple[str, dict[str, Any]]:
    """The call of the next turn."""
    try:
        await anyio.sleep(think_s * chance.uniform(0.5, 1.5))  # your request to the inference server
    except OSError as error:
        raise InfrastructureFailure(f"The inference server: {error}") from error
    attempt.note({"turn": turn, "tokens": [chance.randrange(50_000) for _ in range(8)]})
    if turn == 0:
        return "write", {"path": "log.txt", "content": "turn 0\n"}
    choices: list[tuple[str, dict[str, Any]]] = [
        ("add", {"numbers": [turn, attempt.task.data["goal"]]}),
        ("read", {"path": "log.txt"}),
        ("edit", {"path": "log.txt", "old_text": "turn 0\n", "new_text": f"turn 0\nturn {turn}\n"}),
        ("read", {"path": "no such file"}),  # an error that the model sees, and goes on
    ]
    return chance.choices(choices, [5, 3, 2, 1])[0]


async def agent(attempt: Attempt) -> Scored:
    """One attempt: turns of the model, then a check of what it has done."""
    chance = random.Random(f"{attempt.task.id}-{attempt.number}")
    errors = 0
    for turn in range(attempt.task.data["turns"]):
        result = await attempt.call(*await model(attempt, turn, chance, attempt.task.data["think_s"]))
        errors += result.is_error
    log = (await attempt.call("read", {"path": "log.txt"})).for_model()
    return Scored({"errors": errors}, reward=float("turn 0" in log))


async def main(arguments: argparse.Namespace, workspace: str) -> None:
    sessions, turns = arguments.sessions, arguments.turns
    data = {"turns": turns, "think_s": arguments.think_s}
    tasks = [RolloutTask(f"task-{number}", {**data, "goal": number}) for number in range(sessions)]
    options: dict[str, Any] = {}
    if arguments.ray is not None:  # the extra [ray]; nothing else differs
        options["cluster"] = import_module("toolcell.cluster").RayCluster(arguments.ray, min_nodes=arguments.nodes)
    began, outcomes, calls, rewards = time.monotonic(), Counter[str](), 0, 0.0
    async with (
        Supervisor([*base_tools(), add], **options) as supervisor,
        rollout(
            tasks,
            agent,
            supervisor=supervisor,
            workspace=arguments.workspace or workspace,
            deadline_s=arguments.deadline_s,
            budget=UsageLimits(calls=2 * turns + 10),
            max_concurrent=arguments.max_concurrent,
            record=arguments.record,
            progress=sys.stderr.isatty() or sessions >= 100,
        ) as trajectories,
    ):
        async for one in trajectories:
            outcomes[one.outcome] += 1
            calls += sum(step.kind == "call" for step in one.steps)
            rewards += one.reward or 0.0
    taken_s = time.monotonic() - began
    print(f"{sum(outcomes.values()):,} trajectories: {', '.join(f'{n:,} {what}' for what, n in outcomes.items())}")
    print(f"{calls:,} calls in {taken_s:.1f} s, {calls / taken_s:,.0f} calls/s, mean reward {rewards / sessions:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A rollout of a scripted agent.")
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--think-s", type=float, default=0.02, help="the time of a turn of the model, in the mean")
    parser.add_argument("--deadline-s", type=float, default=3600.0, help="of one session")
    parser.add_argument("--max-concurrent", type=int, default=200)
    parser.add_argument("--workspace", type=Path, help="where workspaces are made; on a cluster, a shared path")
    parser.add_argument("--record", type=Path, help="a directory, to go on after a kill")
    parser.add_argument("--ray", metavar="ADDRESS", help="run the calls on this Ray cluster")
    parser.add_argument("--nodes", type=int, default=1, help="wait for so many machines of the cluster at the start")
    with tempfile.TemporaryDirectory() as temporary:
        anyio.run(main, parser.parse_args(), temporary)
