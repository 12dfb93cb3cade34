"""Waiters and the alarm, on both event loops: who goes on when, in which context, and what a cancelled one leaves."""

import math
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar

import anyio
import pytest
from tests.helpers import until

from toolcell.pool.reactor import Reactor, current_reactor

pytestmark = pytest.mark.anyio
WHO: ContextVar[str] = ContextVar("who", default="nobody")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    yield ends
    for end in ends:
        os.close(end)


async def ring(
    reactor: Reactor, pipe: tuple[int, int], action: Callable[[], object], wait: Awaitable[object]
) -> object:
    """Have `action` done in a callback of the reactor, and wait for what it sets."""

    def on_ready() -> None:
        os.read(pipe[0], 1)
        action()

    reactor.watch(pipe[0], on_ready)
    try:
        os.write(pipe[1], b"x")
        return await wait
    finally:
        reactor.unwatch(pipe[0])
        reactor.close()


async def test_a_waiter_has_what_a_callback_sets_and_its_task_its_own_context(pipe: tuple[int, int]) -> None:
    reactor = current_reactor()
    waiter = reactor.waiter()
    WHO.set("me")

    def act() -> None:
        WHO.set("the callback")
        waiter.set(1)
        waiter.set(2)

    assert await ring(reactor, pipe, act, waiter) == 1
    assert WHO.get() == "me"


async def test_a_callback_ends_before_those_go_on_whom_it_has_answered(pipe: tuple[int, int]) -> None:
    reactor = current_reactor()
    waiters = [reactor.waiter() for _ in range(3)]
    seen: list[object] = []

    async def wait(number: int) -> None:
        seen.append(await waiters[number])

    def act() -> None:
        for number, waiter in enumerate(waiters):
            waiter.set(number)
        seen.append("the callback has ended")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, 0)
        tasks.start_soon(wait, 1)
        await anyio.wait_all_tasks_blocked()
        await ring(reactor, pipe, act, waiters[2])
    assert seen[0] == "the callback has ended"
    assert set(seen[1:]) == {0, 1}


async def test_a_waiter_that_is_set_before_anybody_waits_keeps_its_value(pipe: tuple[int, int]) -> None:
    reactor = current_reactor()
    early, late = reactor.waiter(), reactor.waiter()
    early.set("early")

    def act() -> None:
        late.set("late")

    assert await ring(reactor, pipe, act, early) == "early"
    late.set("late")
    assert await late == "late"


async def test_a_task_that_is_cancelled_while_it_waits_hears_nothing_of_a_later_value(pipe: tuple[int, int]) -> None:
    reactor = current_reactor()
    given_up, waiter = reactor.waiter(), reactor.waiter()
    with anyio.move_on_after(0.01):
        await given_up

    def act() -> None:
        given_up.set("too late")
        waiter.set("in time")

    assert await ring(reactor, pipe, act, waiter) == "in time"


async def test_an_alarm_rings_once_at_its_moment_and_the_last_one_set_counts() -> None:
    reactor = current_reactor()
    rung: list[float] = []
    ring_at = reactor.alarm(lambda: rung.append(time.monotonic()))

    start = time.monotonic()
    ring_at(start + 0.01)
    ring_at(start + 0.3)
    await until(lambda: rung)
    ring_at(start)  # in the past
    await until(lambda: len(rung) == 2)
    ring_at(time.monotonic() + 0.01)
    ring_at(sys.maxsize)
    ring_at(1e300)
    ring_at(math.inf)
    await anyio.sleep(0.05)
    reactor.close()
    assert len(rung) == 2
    assert rung[0] >= start + 0.3


class Owned:
    """Something that a callback belongs to."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def on_fault(self, error: Exception) -> None:
        self.faults.append(str(error))
        raise OSError("its end fails too")


async def test_an_exception_of_a_callback_ends_its_owner_and_reaches_nobody_else(pipe: tuple[int, int]) -> None:
    reactor, owner, other = current_reactor(), Owned(), Owned()
    waiter = reactor.waiter()

    def fail() -> None:
        raise ValueError("a callback")

    def fail_and_go_on() -> None:
        reactor.guarded(other, fail)
        waiter.set("went on")
        raise ValueError("another callback")

    reactor.soon(fail, owner)
    reactor.soon(fail)
    reactor.watch(pipe[0], fail_and_go_on, owner)
    os.write(pipe[1], b"x")
    assert await waiter == "went on"
    reactor.unwatch(pipe[0])
    while reactor.faults < 4:
        await anyio.sleep(0)
    reactor.close()
    assert {"a callback", "another callback"} <= set(owner.faults)
    assert other.faults[0] == "a callback"
