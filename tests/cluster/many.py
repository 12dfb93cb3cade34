"""The rollout example on three nodes of this machine, one of which is killed in the middle.

    python -m tests.cluster.many                                # 1,000 sessions of 50 turns: some minutes
    python -m tests.cluster.many --sessions 60 --turns 10

Every trajectory must end typed, none may be lost and none doubled. The program prints figures, or what is wrong and the
exit code 1. It needs the extra [test-cluster].
"""

import argparse
import logging
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.nodes import RayNodes

from toolcell.rollouts import Trajectory
from toolcell.rollouts.record import RolloutRecord

__all__ = ["Ended", "RolloutRun"]

EXAMPLE = Path(__file__).parents[2] / "examples" / "rollouts.py"


@dataclass(frozen=True, slots=True)
class Ended:
    """A rollout that has ended. Times are in Unix seconds."""

    trajectories: list[Trajectory]
    killed_at: float
    said: str


@dataclass(frozen=True, slots=True)
class RolloutRun:
    """The example, of so many sessions and turns, with its workspaces and its record in a directory."""

    directory: Path
    sessions: int
    turns: int
    think_s: float

    def command(self, address: str) -> list[str]:
        """The program that an operator would start."""
        size = f"--sessions={self.sessions} --turns={self.turns} --think-s={self.think_s} --ray={address} --nodes=3"
        places = [f"--workspace={self.directory / 'runs'}", f"--record={self.directory / 'record'}"]
        return [sys.executable, str(EXAMPLE), *size.split(), *places]

    def begun(self) -> int:
        """The number of workspaces in which the first turn has been made."""
        return len(list((self.directory / "runs").glob("*/*/log.txt")))

    def ended(self, killed_at: float, said: str) -> Ended:
        """The trajectories of the record."""
        record = RolloutRecord(self.directory / "record")
        try:
            kept = [record.trajectory(key) for key, attempt in record.attempts().items() if attempt.has_ended]
        finally:
            record.close()
        return Ended(kept, killed_at, said)

    def wrong(self, ended: Ended) -> Iterator[str]:
        """The problems of the trajectories, in sentences. None if each attempt ended and none is lost or doubled."""
        keys = Counter((each.task_id, each.number) for each in ended.trajectories)
        expected = {(f"task-{number}", 1) for number in range(self.sessions)}
        if lost := expected - keys.keys():
            yield f"{len(lost)} trajectories are lost, {min(lost)} among them."
        if other := keys.keys() - expected:
            yield f"{len(other)} trajectories are of no task, {min(other)} among them."
        if doubled := [key for key, count in keys.items() if count > 1]:
            yield f"{len(doubled)} trajectories are doubled, {min(doubled)} among them."
        if f"\n{self.sessions:,} trajectories: " not in f"\n{ended.said}":  # Ray prints there too
            yield f"The program did not see {self.sessions:,} trajectories: {ended.said[-500:]!r}"
        for each in ended.trajectories:
            yield from self._wrong_in(each)

    def _wrong_in(self, one: Trajectory) -> Iterator[str]:
        notes = [step.data["turn"] for step in one.steps if step.kind == "note"]
        if not one.is_sample:
            if not one.message:
                yield f"{one.task_id} ended as {one.outcome} and does not say why."
            return
        if one.outcome != "finished":
            yield f"{one.task_id} ended as {one.outcome}: {one.message}"
        if notes != list(range(self.turns)):
            yield f"{one.task_id} has lost or doubled a turn: {notes}"
        if sum(step.kind == "call" for step in one.steps) != self.turns + 1:
            yield f"{one.task_id} has lost or doubled a call."
        if one.reward != 1.0:
            yield f"{one.task_id} has the reward {one.reward}."
        lines = (Path(one.workspace) / "log.txt").read_text().splitlines()
        if len(lines) != len(set(lines)):
            yield f"{one.task_id} has a doubled edit: {lines}"


def figures(run: RolloutRun, ended: Ended, began_at: float, ended_at: float) -> Iterator[str]:
    """The figures of the run, each in a line."""
    ends = ended.trajectories
    outcomes = Counter(each.outcome.value for each in ends)
    calls = sum(step.kind == "call" for each in ends for step in each.steps)
    hit = [each for each in ends if each.tries > 1]
    yield f"trajectories      {len(ends):,} of {run.sessions:,}: {', '.join(f'{n:,} {o}' for o, n in outcomes.items())}"
    yield f"calls             {calls:,} in {ended_at - began_at:.0f} s: {calls / (ended_at - began_at):,.0f}/s"
    before = sum(each.started_at + each.wall_s < ended.killed_at for each in ends)
    yield f"the kill          after {ended.killed_at - began_at:.0f} s; {before:,} trajectories had ended"
    tries = Counter(each.tries for each in ends)
    yield f"tried again       {len(hit):,} trajectories; by tries: {dict(sorted(tries.items()))}"


def run_with_a_kill(nodes: RayNodes, third: Any, run: RolloutRun, most_s: float) -> Ended:
    """Start the example on three nodes, kill this third one when half of the sessions have begun, and wait for the end.

    Raises TimeoutError after `most_s` seconds, and RuntimeError if the program fails.
    """
    deadline = time.monotonic() + most_s
    complaints = run.directory / "stderr"
    with (
        complaints.open("wb") as errors,
        subprocess.Popen(
            run.command(nodes.cluster.address), stdout=subprocess.PIPE, stderr=errors, text=True
        ) as program,
    ):
        try:
            while run.begun() <= run.sessions // 2 and program.poll() is None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"Half of the sessions had not begun after {most_s:g} s.")
                time.sleep(0.05)
            nodes.kill(third)
            killed_at = time.time()
            said, _none = program.communicate(timeout=max(1.0, deadline - time.monotonic()))
        finally:
            program.kill()
    if program.returncode != 0:
        raise RuntimeError(f"The example ended with {program.returncode}: {complaints.read_text()[-4_000:]}")
    return run.ended(killed_at, said)


def main() -> int:
    """Run it, and print figures or what is wrong."""
    parser = argparse.ArgumentParser(description="The rollout example on three nodes, with one killed.")
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--think-s", type=float, default=0.3, help="the time of a turn of the model, in the mean")
    parser.add_argument("--most-s", type=float, default=3_600.0, help="the program gives up after so many seconds")
    arguments = parser.parse_args()
    nodes = RayNodes()
    try:
        with tempfile.TemporaryDirectory() as directory:
            run = RolloutRun(Path(directory), arguments.sessions, arguments.turns, arguments.think_s)
            began_at = time.time()
            ended = run_with_a_kill(nodes, nodes.add(), run, arguments.most_s)
            ended_at = time.time()
            found = list(run.wrong(ended))
            print(*figures(run, ended, began_at, ended_at), sep="\n")
            print(f"began after kill  {sum(each.started_at > ended.killed_at for each in ended.trajectories):,}")
    finally:
        nodes.close()
    print(*[f"WRONG             {each}" for each in found[:20]] or ["wrong             nothing"], sep="\n")
    return bool(found)


if __name__ == "__main__":
    logging.getLogger("ray").setLevel(logging.ERROR)
    sys.exit(main())
