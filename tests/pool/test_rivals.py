"""Which sessions make calls, for turns, places and CPU weights."""

from toolcell.pool.pool import RIVAL_S, Rivals, next_power_of_2


def test_a_session_alone_has_no_rival() -> None:
    rivals = Rivals()
    rivals.note("a", 1.0)
    rivals.note("a", 1.1)
    assert not rivals.has("a", 1.1)
    assert rivals.has("b", 1.1)


def test_two_sessions_that_take_turns_are_rivals_until_one_has_been_silent() -> None:
    rivals = Rivals()
    for session, at in (("a", 1.0), ("b", 1.1), ("a", 1.2)):
        rivals.note(session, at)
    assert rivals.has("a", 1.2)
    assert rivals.has("b", 1.2)
    assert not rivals.has("a", 1.1 + RIVAL_S + 0.01)
    assert rivals.has("b", 1.1 + RIVAL_S + 0.01)


def test_a_session_that_is_closed_is_forgotten_also_if_it_made_the_last_call() -> None:
    """Else another session would leave a place to it for a minute."""
    rivals = Rivals()
    rivals.note("a", 1.0)
    rivals.forget("a")
    rivals.note("b", 1.1)
    assert set(rivals.seen) == {"b"}
    rivals.forget("b")
    rivals.note("b", 1.2)  # it was parked
    assert set(rivals.seen) == {"b"}


def test_a_call_that_is_made_again_moves_no_time_backwards() -> None:
    rivals = Rivals()
    rivals.note("a", 5.0)
    rivals.note("b", 1.0)
    assert rivals.has("a", 5.5) and rivals.seen == {"a": 5.0, "b": 5.0}


def test_a_weight_is_changed_at_powers_of_two() -> None:
    assert [next_power_of_2(calls) for calls in (1, 2, 3, 4, 5, 8, 9)] == [1, 2, 4, 4, 8, 8, 16]


def test_sessions_that_were_silent_for_long_are_forgotten() -> None:
    rivals = Rivals()
    for session, at in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        rivals.note(session, at)
    assert list(rivals.seen) == ["a", "b", "c"]
    assert rivals.forget_before(1.5) and not rivals.forget_before(1.5)
    rivals.forget("b")
    assert list(rivals.seen) == ["c"] and not rivals.forget_before(10.0), "the last one"
