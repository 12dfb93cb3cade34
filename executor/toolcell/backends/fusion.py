"""Reciprocal rank fusion: one order from several rankings whose scores cannot be compared."""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

__all__ = ["fused"]

K = TypeVar("K")
RANK: Final = 60  # Cormack, Clarke and Büttcher, SIGIR 2009


def fused(rankings: Iterable[Sequence[K]], limit: int) -> list[tuple[K, float]]:
    """The `limit` best keys of all rankings, each with its score: the sum of 1 / (60 + rank), ranks from 1. Keys with
    the same score keep the order in which they are met."""
    scores: dict[K, float] = {}
    for ranking in rankings:
        for rank, key in enumerate(ranking, 1):
            scores[key] = scores.get(key, 0.0) + 1.0 / (RANK + rank)
    best = sorted(scores, key=scores.__getitem__, reverse=True)[:limit]
    return [(key, scores[key]) for key in best]
