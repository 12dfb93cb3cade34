"""The estimate of the time between two calls that leave a queue."""

import pytest

from toolcell.pool.plan import PACED, Pace


def test_there_is_no_estimate_before_enough_calls_were_taken() -> None:
    pace = Pace()
    for number in range(PACED):  # the first begins an interval, and ends none
        pace.take(100.0 + number, is_last=False)
        assert not pace.is_known
    pace.take(100.0 + PACED, is_last=False)
    assert pace.is_known and pace.mean_s == pytest.approx(1.0)


def test_the_first_estimate_is_the_mean_of_all_intervals() -> None:
    pace, now = Pace(), 1.0
    pace.take(now, is_last=False)
    for gap in (1.0, 3.0, 8.0):
        now += gap
        pace.take(now, is_last=False)
    assert pace.mean_s == pytest.approx(4.0)


def test_the_time_in_which_nothing_waited_does_not_count() -> None:
    pace = Pace()
    pace.take(10.0, is_last=False)
    pace.take(12.0, is_last=True)
    pace.take(1_000.0, is_last=False)
    pace.take(1_002.0, is_last=False)
    assert pace.mean_s == pytest.approx(2.0)


def test_the_estimate_follows_another_pace() -> None:
    pace, now = Pace(), 1.0
    for gap in (1.0,) * 100 + (5.0,) * 100:
        pace.take(now, is_last=False)
        now += gap
    assert 4.9 < pace.mean_s < 5.0
