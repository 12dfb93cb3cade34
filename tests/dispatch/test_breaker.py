"""The circuit breaker, with a clock that the test drives: when calls are refused, tried again and let through."""

import pytest

from toolcell import CircuitBreaker, UsageError
from toolcell.dispatch.breaker import Breaker

SETTINGS = CircuitBreaker()
CRASHES, FIRST_S, LONGEST_S, WITHIN_S = SETTINGS.crashes, SETTINGS.first_s, SETTINGS.longest_s, SETTINGS.within_s


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


def test_crashes_of_calls_that_were_in_flight_open_the_circuit_once(breaker: Breaker, clock: Clock) -> None:
    assert crash(breaker, 100).count(True) == 1
    assert breaker.refusal_s("t", "s") == FIRST_S, "each of them would double the time"
    clock.now += FIRST_S
    assert breaker.refusal_s("t", "s", "try") == 0.0
    assert crash(breaker, 3) == [False] * 3 and breaker.refusal_s("t", "s", "another") == FIRST_S
    assert breaker.crashed("t", "s", "try") and breaker.refusal_s("t", "s") == 2 * FIRST_S


def test_only_the_try_closes_the_circuit_or_gives_up(breaker: Breaker, clock: Clock) -> None:
    crash(breaker)
    assert not breaker.worked("t", "s", "began before")
    clock.now += FIRST_S
    assert breaker.refusal_s("t", "s", "try") == 0.0
    breaker.gave_up("t", "s", "began before")
    assert not breaker.worked("t", "s", "began before")
    assert breaker.refusal_s("t", "s", "another") > 0.0
    assert breaker.worked("t", "s", "try") and not breaker.circuits


def test_the_numbers_can_be_set_and_no_crashes_refuse_no_tool(clock: Clock) -> None:
    soon = Breaker(clock, CircuitBreaker(crashes=2, first_s=7.0, longest_s=8.0))
    assert crash(soon, 2) == [False, True] and soon.refusal_s("t", "s") == 7.0
    clock.now += 7.0
    assert soon.refusal_s("t", "s", "try") == 0.0
    assert soon.crashed("t", "s", "try") and soon.refusal_s("t", "s") == 8.0
    off = Breaker(clock, CircuitBreaker(crashes=0))
    assert not any(crash(off, 50)) and not off.circuits


@pytest.mark.parametrize("wrong", [{"crashes": -1}, {"crashes": True}, {"first_s": 0}, {"within_s": float("nan")}])
def test_a_wrong_number_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        CircuitBreaker(**wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
