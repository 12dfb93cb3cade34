"""The histogram: its error is bounded, what is exact is exact, and two add up without loss."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell.telemetry import Histogram
from toolcell.telemetry.histogram import RELATIVE_ERROR

LOW, HIGH = 1e-5, 1e5
VALUES = st.lists(st.floats(LOW, HIGH), min_size=1, max_size=200)
SHARES = st.floats(0.0, 1.0)


def histogram_of(values: list[float]) -> Histogram:
    histogram = Histogram(LOW, HIGH)
    for value in values:
        histogram.add([value])
    return histogram


def state(histogram: Histogram) -> list[object]:
    return [getattr(histogram, name) for name in Histogram.__slots__ if name != "total"]


@settings(deadline=None)
@given(values=VALUES, q=SHARES)
def test_a_quantile_is_within_the_stated_error_of_the_true_one(values: list[float], q: float) -> None:
    true = sorted(values)[max(1, math.ceil(q * len(values))) - 1]
    assert histogram_of(values).quantile(q) == pytest.approx(true, rel=RELATIVE_ERROR * 1.0001)


def test_the_stated_error_is_what_is_written() -> None:
    assert RELATIVE_ERROR < 0.025


@settings(deadline=None)
@given(values=VALUES)
def test_count_total_and_both_ends_are_exact(values: list[float]) -> None:
    histogram = histogram_of(values)
    assert (histogram.count, histogram.minimum, histogram.maximum) == (len(values), min(values), max(values))
    assert histogram.total == pytest.approx(sum(values))
    assert histogram.quantile(1.0) <= max(values) and histogram.quantile(0.0) >= min(values)


@settings(deadline=None)
@given(one=VALUES, other=VALUES)
def test_the_sum_of_two_is_the_histogram_of_all(one: list[float], other: list[float]) -> None:
    both = histogram_of(one).plus(histogram_of(other))
    assert state(both) == state(histogram_of(one + other))
    assert both.total == pytest.approx(sum(one) + sum(other))


@settings(deadline=None)
@given(value=st.sampled_from([0.0, 1e-9, LOW, HIGH, HIGH * 2, 1e300]))
def test_what_is_out_of_range_is_counted_at_the_nearer_end(value: float) -> None:
    histogram = histogram_of([value])
    assert (histogram.count, histogram.quantile(0.5)) == (1, value)  # one value is its own minimum and maximum


def test_below_the_range_the_error_is_the_lower_end_at_most() -> None:
    histogram = histogram_of([0.0, LOW / 3, LOW / 2, 1.0])
    assert abs(histogram.quantile(0.5) - LOW / 3) <= LOW


def test_an_empty_one_has_zeros() -> None:
    assert Histogram(1, 10).quantile(0.5) == 0.0


def test_histograms_of_different_ranges_do_not_add_up() -> None:
    with pytest.raises(ValueError, match="different ranges"):
        Histogram(1, 10).plus(Histogram(1, 100))
