"""`rollout`: run many attempts at many tasks at the same time, stream their trajectories, and resume after a kill."""

import sqlite3
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import anyio

from toolcell.backends.threads import in_thread
from toolcell.errors import UsageError
from toolcell.rules import misuse
from toolcell.rules.limits import UsageLimits
from toolcell_sandbox.profile import is_below

from .progress import shown_progress
from .record import RolloutRecord
from .stream import Rollout
from .tasks import RolloutTask, tasks_of
from .tries import Agent, Prepare, RolloutPlan

if TYPE_CHECKING:
    from toolcell.supervisor import Supervisor

__all__ = ["rollout"]


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
                tasks.start_soon(shown_progress, lambda: run.progress)
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
