"""Turnstiles: so many calls at a time, sessions take turns, and a call that gives up takes no place."""

import anyio
import pytest
from anyio.abc import TaskGroup
from tests.helpers import PATIENCE_S

from toolcell.dispatch.turnstile import PATIENCE, Queue, Turnstile
from toolcell.pool.plan import PACED

pytestmark = pytest.mark.anyio


class Line:
    """A queue, and the names of the calls that have entered, in order."""

    def __init__(self, tasks: TaskGroup) -> None:
        self.queue, self.order, self._tasks = Queue(), list[str](), tasks

    async def come(self, name: str, *turnstiles: Turnstile) -> None:
        """Let a call of the session `name` come, and wait until it is inside or waits."""

        async def enter() -> None:
            await self.queue.enter(turnstiles, name)
            self.order.append(name)

        self._tasks.start_soon(enter)
        await anyio.wait_all_tasks_blocked()

    async def leave(self, name: str, *turnstiles: Turnstile) -> None:
        self.queue.leave(turnstiles, name)
        await anyio.wait_all_tasks_blocked()


async def test_of_those_that_wait_the_session_with_the_fewest_inside_is_next() -> None:
    two = Turnstile(2)
    async with anyio.create_task_group() as tasks:
        line = Line(tasks)
        for name in ("a", "a", "a", "a", "b"):
            await line.come(name, two)
        assert line.order == ["a", "a"] and repr(two) == "<Turnstile 2 of 2 inside>" and len(line.queue) == 3
        await line.leave("a", two)
        assert line.order == ["a", "a", "b"]
        await line.leave("a", two)
        await line.leave("b", two)
    assert line.order == ["a", "a", "b", "a", "a"]


async def test_a_call_that_waits_for_one_place_holds_no_other() -> None:
    tool, kind = Turnstile(1), Turnstile(1)
    async with anyio.create_task_group() as tasks:
        line = Line(tasks)
        await line.come("worker", kind)
        await line.come("second worker", tool, kind)
        assert line.order == ["worker"]
        await line.come("main", tool)
        assert line.order == ["worker", "main"], "the call that waits for its kind's place keeps the tool from nobody"
        await line.leave("worker", kind)
        assert line.order == ["worker", "main"]
        await line.leave("main", tool)
    assert line.order == ["worker", "main", "second worker"]


async def test_a_call_for_two_places_is_not_overtaken_for_ever() -> None:
    tool, kind = Turnstile(1), Turnstile(1)
    async with anyio.create_task_group() as tasks:
        line = Line(tasks)
        await line.come("tool", tool)
        await line.come("kind", kind)
        await line.come("both", tool, kind)
        for _ in range(PATIENCE):  # there is always another call for each of the two places
            await line.come("tool", tool)
            await line.come("kind", kind)
        for _ in range(PATIENCE):
            await line.leave("tool", tool)
            if "both" in line.order:
                break
            await line.leave("kind", kind)
            if "both" in line.order:
                break
        assert "both" in line.order and len(line.queue) > 0
        tasks.cancel_scope.cancel()


async def test_a_call_that_gives_up_takes_no_place() -> None:
    first, second, queue = Turnstile(1), Turnstile(1), Queue()
    await queue.enter([second], "a")
    with anyio.move_on_after(0.05) as scope:
        await queue.enter([first, second], "b")
    assert scope.cancelled_caught and len(queue) == 0
    assert (first.count, second.count) == (0, 1)
    queue.leave([second], "a")
    with anyio.fail_after(PATIENCE_S):
        await queue.enter([first, second], "c")


async def test_a_place_that_is_given_in_the_moment_of_giving_up_goes_to_the_next() -> None:
    turnstile, queue = Turnstile(1), Queue()
    await queue.enter([turnstile], "a")
    async with anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()

        async def give_up() -> None:
            with scope:
                await queue.enter([turnstile], "b")
                queue.leave([turnstile], "b")

        tasks.start_soon(give_up)
        await anyio.wait_all_tasks_blocked()
        queue.leave([turnstile], "a")  # gives it to b
        scope.cancel()
    with anyio.fail_after(PATIENCE_S):
        await queue.enter([turnstile], "c")


async def test_a_flood_leaves_places_in_the_queue_to_other_sessions() -> None:
    one, queue = Turnstile(1), Queue(max_waiting=10)
    await queue.enter([one], "flood")
    async with anyio.create_task_group() as tasks:
        while not queue.refusal_s([one], "flood", 60.0):
            tasks.start_soon(queue.enter, [one], "flood")
            await anyio.wait_all_tasks_blocked()
        assert len(queue) == 8 and queue.refusal_s([one], "quiet", 60.0) == 0.0
        tasks.cancel_scope.cancel()


async def test_a_call_whose_turn_comes_too_late_is_refused_at_once() -> None:
    now = 1000.0
    one, queue = Turnstile(1), Queue(now=lambda: now)
    await queue.enter([one], "s")
    async with anyio.create_task_group() as tasks:
        for _ in range(PACED + 22):
            tasks.start_soon(queue.enter, [one], "s")
        await anyio.wait_all_tasks_blocked()
        assert queue.refusal_s([one], "s", 1.0) == 0.0, "there is no estimate yet"
        for _ in range(PACED + 2):
            now += 1.0
            queue.leave([one], "s")
        assert len(queue) == 20 and queue.refusal_s([one], "s", 9.0) == pytest.approx(10.0)
        assert queue.refusal_s([one], "s", 11.0) == queue.refusal_s([one], "quiet", 0.1) == 0.0
        tasks.cancel_scope.cancel()
