"""Reciprocal rank fusion: the order that several rankings agree on."""

import pytest

from toolcell.backends.records import fused


def test_a_key_that_more_rankings_have_comes_first() -> None:
    assert [key for key, _score in fused([["a", "b", "c"], ["c", "d"]], 10)] == ["c", "a", "b", "d"]


def test_a_score_is_the_sum_of_the_reciprocal_ranks() -> None:
    ((key, score),) = fused([["x"], ["y", "x"]], 1)
    assert key == "x" and score == pytest.approx(1 / 61 + 1 / 62)


def test_equal_scores_keep_their_order_and_the_limit_holds() -> None:
    assert [key for key, _score in fused([["a"], ["b"], ["c"]], 2)] == ["a", "b"]
    assert fused([], 5) == fused([[]], 5) == []
