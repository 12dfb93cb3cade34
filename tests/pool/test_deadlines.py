"""Deadlines: the timer that is armed, and what is due."""

import math

import pytest

from toolcell.pool import deadlines as module
from toolcell.pool.deadlines import STEPS, Deadlines, Patience


def test_deadlines_ring_for_the_earliest_and_only_when_that_changes() -> None:
    rings: list[float] = []
    deadlines = Deadlines(rings.append)
    fired: list[str] = []
    deadlines.at(5.0, lambda: fired.append("five"))
    deadlines.at(9.0, lambda: fired.append("nine"))
    early = deadlines.at(1.0, lambda: fired.append("one"))
    assert rings == [5.0, 1.0]
    deadlines.cancel(early)
    assert list(deadlines.pop_due(1.0)) == []
    deadlines.at(4.0, lambda: fired.append("four"))
    assert rings == [5.0, 1.0]  # what is due is under way
    deadlines.ring_again()
    assert rings == [5.0, 1.0, 4.0]
    for action in deadlines.pop_due(9.0):
        action()
    deadlines.ring_again()
    assert rings == [5.0, 1.0, 4.0]  # nothing is left
    assert fired == ["four", "five", "nine"] and len(deadlines) == 0 and deadlines.next_due() == math.inf


def test_cancelled_deadlines_do_not_pile_up() -> None:
    deadlines = Deadlines(lambda when: None)
    for number in range(10_000):
        deadlines.cancel(deadlines.at(1000.0 + number, lambda: None))
    assert len(deadlines._heap) < 200 and len(deadlines) == 0  # pyright: ignore[reportPrivateUsage]


def test_cancelling_twice_or_after_the_fact_counts_once() -> None:
    deadlines = Deadlines(lambda when: None)
    fired, other = deadlines.at(1.0, lambda: None), deadlines.at(2.0, lambda: None)
    assert len(list(deadlines.pop_due(1.0))) == 1
    deadlines.cancel(fired)
    deadlines.cancel(other)
    deadlines.cancel(other)
    assert len(deadlines) == 0


def test_what_is_cancelled_by_what_is_due_before_it_is_not_done() -> None:
    deadlines = Deadlines(lambda when: None)
    done: list[str] = []

    def first() -> None:
        done.append("first")
        deadlines.cancel(second)
        deadlines.at(2.5, lambda: done.append("third"))

    deadlines.at(1.0, first)
    second = deadlines.at(2.0, lambda: done.append("second"))
    for action in deadlines.pop_due(3.0):
        action()
    assert done == ["first", "third"] and len(deadlines) == 0


def test_a_deadline_can_get_another_action_until_it_is_over() -> None:
    deadlines = Deadlines(lambda when: None)
    fired: list[str] = []
    deadline = deadlines.at(1.0, lambda: fired.append("first"))
    assert deadlines.redirect(deadline, lambda: fired.append("second"))
    for action in deadlines.pop_due(1.0):
        action()
    assert fired == ["second"] and not deadlines.redirect(deadline, lambda: fired.append("third"))
    cancelled = deadlines.at(2.0, lambda: fired.append("fourth"))
    deadlines.cancel(cancelled)
    assert not deadlines.redirect(cancelled, lambda: fired.append("fifth"))
    assert list(deadlines.pop_due(2.0)) == []


class Clock:
    """A clock that a test sets, and an event loop that rings when the test lets it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.deadlines = Deadlines(lambda when: None)

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        """Let time pass, and then ring once."""
        self.now += seconds
        for action in self.deadlines.pop_due(self.now):
            action()
        self.deadlines.ring_again()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_silence_is_judged_after_its_time_and_not_before(clock: Clock) -> None:
    judged: list[float] = []
    Patience(clock.deadlines, 8.0, lambda: judged.append(clock.now))
    for _ in range(STEPS - 1):
        clock.wait(8.0 / STEPS)
    assert not judged
    clock.wait(8.0 / STEPS)
    assert judged == [108.0] and len(clock.deadlines) == 0


def test_the_time_in_which_the_loop_was_held_is_no_silence(clock: Clock) -> None:
    judged: list[float] = []
    Patience(clock.deadlines, 8.0, lambda: judged.append(clock.now))
    clock.wait(3600.0)
    assert not judged
    for _ in range(STEPS - 1):
        clock.wait(2.0)
        clock.wait(3600.0)
    assert not judged
    clock.wait(2.0)
    assert len(judged) == 1


def test_silence_is_counted_again_from_a_message_on_and_not_after_a_cancellation(clock: Clock) -> None:
    judged: list[float] = []
    patience = Patience(clock.deadlines, 8.0, lambda: judged.append(clock.now))
    for _ in range(10):
        clock.wait(2.0)
        patience.renew()
    assert not judged
    patience.cancel()
    clock.wait(2.0)
    assert not judged and len(clock.deadlines) == 0
