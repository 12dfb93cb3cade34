"""`rollout`: run many attempts at many tasks at the same time, stream their trajectories, and resume after a kill."""

import shutil
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from toolcell.backends.threads import in_thread
from toolcell.errors import UsageError
from toolcell.rules import misuse
from toolcell.rules.limits import UsageLimits
from toolcell_sandbox.profile import is_below

from .attempt import Agent, Prepare, RolloutPlan, tried
from .record import KeptAttempt, RolloutRecord
from .trajectory import AttemptKey, RolloutOutcome, RolloutTask, Trajectory, tasks_of

if TYPE_CHECKING:
    from toolcell.supervisor import Supervisor

__all__ = ["Rollout", "RolloutProgress", "rollout"]

LINE_S: Final = 10.0
"""The seconds between two lines if stderr is no terminal."""
BAR_S: Final = 0.25
"""The seconds between two updates of the bar on a terminal."""
BAR_CELLS: Final = 16
_CLEAR_REST: Final = "\x1b[K"  # ECMA-48, EL: erase to the end of the line
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """The progress of a rollout, in attempts. `ended` counts them by outcome, with the attempts of earlier programs."""

    total: int
    running: int
    ended: dict[RolloutOutcome, int]

    @property
    def done(self) -> int:
        return sum(self.ended.values())

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in Counter(self.ended).most_common())
        return f"{self.done:,} of {self.total:,} attempts, {self.running:,} running{': ' if counts else ''}{counts}"


async def _show_progress(read: Callable[[], RolloutProgress]) -> None:
    """Show the progress on stderr until cancelled: a bar on a terminal, otherwise a line every 10 s. Show the last
    state at the end."""
    began, is_terminal = time.monotonic(), sys.stderr.isatty()

    def show(end: str = "") -> None:
        now, elapsed_s = read(), time.monotonic() - began
        if is_terminal:
            print(f"\r{_bar(now, elapsed_s)}{_CLEAR_REST}", end=end, file=sys.stderr, flush=True)
        else:
            print(f"rollout: {now} ({elapsed_s:.0f} s)", file=sys.stderr, flush=True)

    try:
        while True:
            show()
            await anyio.sleep(BAR_S if is_terminal else LINE_S)
    finally:
        show("\n")


def _bar(now: RolloutProgress, elapsed_s: float) -> str:
    """One line of the terminal: a bar, the attempts, the time elapsed and the time left."""
    filled = BAR_CELLS * now.done // max(1, now.total)
    left = timedelta(seconds=int(elapsed_s / now.done * (now.total - now.done))) if now.done else "-:--:--"
    bar = f"{'━' * filled}{'─' * (BAR_CELLS - filled)} {now.done}/{now.total}"
    text = f"{bar} {timedelta(seconds=int(elapsed_s))} {left} {now}"
    return text[: shutil.get_terminal_size().columns - 1]


class Rollout:
    """A running rollout: an async iterator of trajectories, in the order in which the attempts end. `rollout` makes it.

    With a record, the trajectories of an earlier program come first.
    """

    def __init__(
        self, plan: RolloutPlan, tasks: list[RolloutTask], attempts: int, record: RolloutRecord | None
    ) -> None:
        self._plan = plan
        self._tasks = {task.id: task for task in tasks}
        self._keys = [AttemptKey(task.id, number) for number in range(1, attempts + 1) for task in tasks]
        self._record = record
        self._one_at_a_time = anyio.CapacityLimiter(1)
        self._running = 0
        self._ended: Counter[RolloutOutcome] = Counter()
        self._failure: Exception | None = None
        self._send: MemoryObjectSendStream[Trajectory]
        self._receive: MemoryObjectReceiveStream[Trajectory]
        self._send, self._receive = anyio.create_memory_object_stream[Trajectory](1)

    def __repr__(self) -> str:
        return f"<Rollout {self._plan.name}: {self.progress}>"

    @property
    def progress(self) -> RolloutProgress:
        return RolloutProgress(len(self._keys), self._running, dict(self._ended))

    def __aiter__(self) -> "Rollout":
        return self

    async def __anext__(self) -> Trajectory:
        """The next trajectory. Raises UsageError if no more sessions can be opened."""
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            if self._failure is not None:
                raise self._failure from None
            raise StopAsyncIteration from None

    def close(self) -> None:
        """Close both ends of the stream of trajectories."""
        self._send.close()
        self._receive.close()

    async def run(self, max_concurrent: int) -> None:
        """Run all attempts that have not ended. The iterator ends after the last one."""
        async with self._send:
            try:
                known = await self._on_disk(lambda record: record.attempts()) or {}
                for key in self._keys:
                    if key in known and known[key].has_ended:
                        kept = await self._on_disk(partial(RolloutRecord.trajectory, key=key))
                        assert kept is not None
                        await self._deliver(kept)
            except Exception as error:  # the file is damaged
                self._failure = error
                return
            await self._run_rest(known, anyio.Semaphore(max_concurrent))

    async def _run_rest(self, known: Mapping[AttemptKey, KeptAttempt], turns: anyio.Semaphore) -> None:
        async with anyio.create_task_group() as tasks:
            for key in self._keys:
                before = known.get(key)
                if before is not None and before.has_ended:
                    continue
                await turns.acquire()
                if self._failure is not None:
                    break
                tasks.start_soon(self._one, key, before, turns)

    async def _one(self, key: AttemptKey, known: KeptAttempt | None, turns: anyio.Semaphore) -> None:
        self._running += 1
        try:
            trajectory = await self._ended_attempt(key, known)
            await self._on_disk(lambda record: record.end(trajectory))
            self._running -= 1
            await self._deliver(trajectory)
        except Exception as error:  # UsageError or a full disk: no other attempt could succeed
            self._failure = self._failure or error
        finally:
            turns.release()

    async def _ended_attempt(self, key: AttemptKey, known: KeptAttempt | None) -> Trajectory:
        plan = self._plan
        if known is None:
            known = KeptAttempt(tries=0, withdrawn=0, running=False, began=0.0, has_ended=False)
        if known.running and (plan.interrupted == "end" or known.lost > plan.retries):
            return _interrupted(plan, key, known)
        try:
            return await tried(plan, self._tasks[key.task_id], key, known.tries, known.lost, self._begin)
        except BaseException:  # the program leaves the rollout
            with anyio.CancelScope(shield=True):
                await self._on_disk(lambda record: record.withdraw(key))
            raise

    async def _deliver(self, trajectory: Trajectory) -> None:
        self._ended[trajectory.outcome] += 1
        await self._send.send(trajectory)

    async def _begin(self, key: AttemptKey, tries: int) -> None:
        await self._on_disk(lambda record: record.begin(key, tries))

    async def _on_disk(self, work: Callable[[RolloutRecord], T]) -> T | None:
        """Run `work(record)` in a thread, one at a time. Returns None without a record."""
        record = self._record
        if record is None:
            return None
        return await in_thread(lambda: work(record), limiter=self._one_at_a_time)


def _interrupted(plan: RolloutPlan, key: AttemptKey, known: KeptAttempt) -> Trajectory:
    return Trajectory(
        task_id=key.task_id,
        number=key.number,
        outcome=RolloutOutcome.INTERRUPTED,
        message=f"The program died during try {known.tries} of this attempt.",
        tries=known.tries,
        session_id=plan.session_id(key, known.tries),
        workspace=str(plan.directory(key, known.tries)),
        started_at=known.began,
        wall_s=0.0,
    )


@asynccontextmanager
async def rollout(
    tasks: Iterable[Any],
    agent: Agent,
    *,
    supervisor: "Supervisor",
    workspace: str | Path,
    attempts: int = 1,
    deadline_s: float = 600.0,
    budget: UsageLimits | None = None,
    max_concurrent: int = 100,
    retries: int = 2,
    record: str | Path | None = None,
    interrupted: Literal["again", "end"] = "again",
    prepare: Prepare | None = None,
    name: str = "rollout",
    kind: str = "main",
    session_options: Mapping[str, Any] | None = None,
    trajectory_bytes: int = 16 * 1024 * 1024,
    progress: bool = False,
) -> AsyncGenerator[Rollout]:
    """Let an agent attempt each task `attempts` times, and stream the trajectories:

        async with rollout(tasks, agent, supervisor=supervisor, workspace="runs") as trajectories:
            async for trajectory in trajectories: ...

    Leaving the block early ends the attempts that run.

    - `tasks` are RolloutTasks, or JSON data whose ids are "0", "1", …
    - `agent(attempt)` works on `attempt.task`, and makes calls with `attempt.call`.
    - `supervisor` runs the calls, here or on a cluster.
    - `workspace` is the directory for the workspaces. Each try has the new directory TASK/ATTEMPT-TRY in it, which
      `prepare(task, directory)` may fill, and which is not removed. On a cluster, the nodes must share it, unless the
      cluster sends workspaces.
    - `deadline_s`, in seconds, and `budget` hold for each try.
    - At most `max_concurrent` attempts run at the same time.
    - After an infrastructure error, at most `retries` further tries follow. No other outcome is tried again.
    - `record` is a directory that no session may see. A program that is started again with the same record gets the
      trajectories in it first, and runs the other attempts. Attempts that ran when the program died are tried again in
      a new session, which counts as a retry. With `interrupted="end"`, they end as INTERRUPTED instead.
    - `name` is the first part of the session ids, `NAME-TASK-ATTEMPT-TRY`. The journal has the calls under these ids.
    - `kind` and `session_options` are arguments for `Supervisor.open_session`.
    - An attempt whose steps need more than `trajectory_bytes` bytes ends as OUT_OF_BUDGET.
    - `progress` shows a bar on stderr, or lines if stderr is no terminal.

    Raises UsageError for wrong arguments, and for a task that has other data in the record.
    """
    misuse.check_callable("agent", agent)
    misuse.check_callable("prepare", prepare)
    misuse.count("attempts", attempts, "Pass how often each task is attempted.")
    most = misuse.count("max_concurrent", max_concurrent, "Pass how many attempts may run at the same time.")
    misuse.count("trajectory_bytes", trajectory_bytes, "Pass the size of the largest trajectory.")
    if not isinstance(retries, int) or retries < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"retries is no number from 0: {retries!r}. Pass 0 for none.")
    if interrupted not in ("again", "end"):
        raise UsageError(f"interrupted is {interrupted!r}. Pass 'again' or 'end'.")
    plan = RolloutPlan(
        supervisor=supervisor,
        agent=agent,
        workspace=Path(misuse.path("workspace", workspace)).resolve(),
        name=RolloutTask(name).id,
        kind=kind,
        deadline_s=misuse.seconds("deadline_s", deadline_s),
        budget=budget,
        retries=retries,
        interrupted=interrupted,
        prepare=prepare,
        session_options=dict(session_options or {}),
        trajectory_bytes=trajectory_bytes,
    )
    given = tasks_of(tasks)
    kept = await in_thread(lambda: _record(record, plan.workspace, given))
    try:
        async with _running(Rollout(plan, given, attempts, kept), most, progress) as running:
            yield running
    finally:
        if kept is not None:
            kept.close()


@asynccontextmanager
async def _running(run: Rollout, max_concurrent: int, progress: bool) -> AsyncGenerator[Rollout]:
    """Run the rollout while the block runs. An exception of the block is raised as it is, not in an ExceptionGroup."""
    raised: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.run, max_concurrent)
            if progress:
                tasks.start_soon(_show_progress, lambda: run.progress)
            try:
                yield run
            except Exception as error:
                raised = error
            finally:
                tasks.cancel_scope.cancel()
    finally:
        run.close()
    if raised is not None:
        raised.__context__ = None
        raise raised


def _record(directory: str | Path | None, workspace: Path, tasks: list[RolloutTask]) -> RolloutRecord | None:
    """Open the record. Raises UsageError if a session could see it."""
    if directory is None:
        return None
    place = Path(directory).resolve()
    if is_below(str(place), [str(workspace)]) or is_below(str(workspace), [str(place)]):
        raise UsageError(f"The record {str(place)!r} and the workspaces overlap. Keep the record elsewhere.")
    try:
        record = RolloutRecord(place)
        try:
            record.admit(tasks)
        except BaseException:
            record.close()
            raise
    except sqlite3.DatabaseError as error:
        raise UsageError(f"The record {str(place)!r} cannot be read: {error}. Use another record.") from None
    return record
