"""The circuit breaker, with a clock that the test drives: when calls are refused, tried again and let through."""

import pytest

from toolcell.dispatch.breaker import CRASHES, FIRST_S, LONGEST_S, WITHIN_S, Breaker


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock)


def crash(breaker: Breaker, times: int = CRASHES, session: str = "s") -> list[bool]:
    return [breaker.crashed("t", session) for _ in range(times)]


def test_so_many_crashes_in_a_row_open_the_circuit(breaker: Breaker) -> None:
    assert crash(breaker) == [*[False] * (CRASHES - 1), True]
    assert breaker.refusal_s("t", "s") == FIRST_S
    assert breaker.refusal_s("other", "s") == breaker.refusal_s("t", "another session") == 0.0


def test_a_success_between_them_or_a_long_pause_starts_anew(breaker: Breaker, clock: Clock) -> None:
    crash(breaker, CRASHES - 1)
    assert not breaker.worked("t", "s") and not breaker.circuits
    crash(breaker, CRASHES - 1)
    clock.now += WITHIN_S + 1
    assert crash(breaker, 1) == [False]
    assert breaker.refusal_s("t", "s") == 0.0


def test_one_call_tries_and_closes_the_circuit_if_it_works(breaker: Breaker, clock: Clock) -> None:
    crash(breaker)
    clock.now += FIRST_S
    assert breaker.refusal_s("t", "s") == 0.0
    assert breaker.refusal_s("t", "s") > 0, "one call tries, the others wait"
    assert breaker.worked("t", "s") and not breaker.circuits


def test_a_try_that_crashes_doubles_the_time_up_to_a_bound(breaker: Breaker, clock: Clock) -> None:
    crash(breaker)
    times: list[float] = []
    for _ in range(9):
        times.append(breaker.refusal_s("t", "s"))
        clock.now += times[-1]
        assert breaker.refusal_s("t", "s") == 0.0
        assert crash(breaker, 1) == [True]
    assert times[:3] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S] and times[-1] == LONGEST_S


def test_a_try_without_an_answer_lets_another_try(breaker: Breaker, clock: Clock) -> None:
    crash(breaker)
    clock.now += FIRST_S
    assert breaker.refusal_s("t", "s") == 0.0
    breaker.gave_up("t", "s")
    assert breaker.refusal_s("t", "s") == 0.0
    clock.now += LONGEST_S  # nobody said how that try has ended
    assert breaker.refusal_s("t", "s") == 0.0


def test_the_arguments_of_other_sessions_deny_a_tool_to_none(breaker: Breaker) -> None:
    for number in range(20):
        crash(breaker, session=f"s{number}")
    assert breaker.refusal_s("t", "new") == 0.0
    assert [session for _name, session, _seconds in breaker.open_circuits()] == [f"s{number}" for number in range(20)]
    breaker.forget("s0")
    assert breaker.refusal_s("t", "s0") == 0.0 < breaker.refusal_s("t", "s1")
