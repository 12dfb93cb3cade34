"""Turnstiles: so many calls at a time, sessions take turns, and a call that gives up takes no place."""

import anyio
import pytest

from toolcell.dispatch.turnstile import Turnstile, enter_all

pytestmark = pytest.mark.anyio


async def test_sessions_take_turns() -> None:
    turnstile, order = Turnstile(1), list[str]()
    await turnstile.enter("first")

    async def go(session: str) -> None:
        await turnstile.enter(session)
        order.append(session)
        await anyio.sleep(0)
        turnstile.leave(session)

    async with anyio.create_task_group() as tasks:
        for session in ("a", "a", "a", "b"):
            tasks.start_soon(go, session)
            await anyio.wait_all_tasks_blocked()
        second = Turnstile(2)
        await second.enter("a")
        turnstile.leave("first")
    assert sorted(order) == ["a", "a", "a", "b"]
    assert repr(turnstile) == "<Turnstile 0 of 1 inside · 0 waiting>"


async def test_of_those_that_wait_the_session_with_the_fewest_inside_is_next() -> None:
    turnstile, order = Turnstile(2), list[str]()
    await turnstile.enter("a")
    await turnstile.enter("a")

    async def go(session: str) -> None:
        await turnstile.enter(session)
        order.append(session)

    async with anyio.create_task_group() as tasks:
        for session in ("a", "a", "b"):
            tasks.start_soon(go, session)
            await anyio.wait_all_tasks_blocked()
        turnstile.leave("a")
        await anyio.wait_all_tasks_blocked()
        assert order == ["b"]
        turnstile.leave("a")
        await anyio.wait_all_tasks_blocked()
        turnstile.leave("b")
    assert order == ["b", "a", "a"]


async def test_a_call_that_gives_up_takes_no_place() -> None:
    first, second = Turnstile(1), Turnstile(1)
    await second.enter("a")
    with anyio.move_on_after(0.05) as scope:
        await enter_all([first, second], "b")
    assert scope.cancelled_caught
    assert repr(first) == "<Turnstile 0 of 1 inside · 0 waiting>"
    assert repr(second) == "<Turnstile 1 of 1 inside · 0 waiting>"
    second.leave("a")
    assert await enter_all([first, second], "c") == [first, second]


async def test_a_place_that_is_given_in_the_moment_of_giving_up_goes_to_the_next() -> None:
    turnstile = Turnstile(1)
    await turnstile.enter("a")
    async with anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()

        async def give_up() -> None:
            with scope:
                await turnstile.enter("b")
                turnstile.leave("b")

        tasks.start_soon(give_up)
        await anyio.wait_all_tasks_blocked()
        turnstile.leave("a")  # gives it to b
        scope.cancel()
    with anyio.fail_after(1):
        await turnstile.enter("c")
