"""`Rollout`: run attempts at the same time, and record and stream their trajectories."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from toolcell.backends.threads import in_thread

from .progress import RolloutProgress
from .record import KeptAttempt, RolloutRecord
from .tasks import AttemptKey, RolloutTask
from .trajectory import RolloutOutcome, Trajectory
from .tries import RolloutPlan, tried

__all__ = ["Rollout"]

T = TypeVar("T")


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
                        kept = await self._on_disk(partial(_kept_trajectory, key))
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


def _kept_trajectory(key: AttemptKey, record: RolloutRecord) -> Trajectory:
    return record.trajectory(key)


def _interrupted(plan: RolloutPlan, key: AttemptKey, known: KeptAttempt) -> Trajectory:
    return Trajectory(
        task_id=key.task_id,
        number=key.number,
        outcome=RolloutOutcome.INTERRUPTED,
        message=f"The program died during try {known.tries} of this attempt.",
        tries=known.tries,
        session_id=f"{plan.name}-{key.task_id}-{key.number}-{known.tries}",
        workspace=str(plan.workspace / key.task_id / f"{key.number}-{known.tries}"),
        started_at=known.began,
        wall_s=0.0,
    )
