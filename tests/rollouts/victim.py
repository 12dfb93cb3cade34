"""A rollout that is to be killed: `python victim.py RECORD WORKSPACE TASKS [INTERRUPTED]`. Prints a line for each
trajectory: its task, attempt, outcome, tries and reward.
"""

import sys
from functools import partial
from typing import Any

import anyio

from toolcell import Supervisor, ToolContext, tool
from toolcell.rollouts import Attempt, Scored, rollout

STEPS = 3


@tool(needs={"write"})
def mark(ctx: ToolContext, step: int) -> int:
    """Write down that this step was made."""
    with open("steps", "a") as file:
        file.write(f"{step}\n")
    return step


async def agent(attempt: Attempt) -> Scored:
    for step in range(STEPS):
        (await attempt.call("mark", {"step": step})).unwrap()
        await anyio.sleep(0.01)
    return Scored(reward=float(attempt.task.data))


async def main(record: str, workspace: str, tasks: int, interrupted: str) -> None:
    async with Supervisor([mark], max_cells=4, standby=0) as supervisor:
        options: dict[str, Any] = {"interrupted": interrupted, "attempts": 2, "max_concurrent": 4, "retries": 20}
        async with rollout(
            range(tasks), agent, supervisor=supervisor, workspace=workspace, record=record, **options
        ) as trajectories:
            async for one in trajectories:
                print(one.task_id, one.number, one.outcome, one.tries, one.reward, flush=True)


if __name__ == "__main__":
    anyio.run(partial(main, sys.argv[1], sys.argv[2], int(sys.argv[3]), (*sys.argv[4:], "again")[0]))
