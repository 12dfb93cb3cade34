"""A histogram of fixed size with a known error, after DDSketch (Masson, Rim, Lee: VLDB 2019, section 2.1).

Each bucket is 5 % wider than the bucket below it. So a quantile has an error of at most 2.5 % for any values, and two
histograms can be added without loss. Unlike DDSketch, the histogram never collapses buckets, because its range is
fixed.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache

GROWTH = 1.05
RELATIVE_ERROR = (GROWTH - 1) / (GROWTH + 1)
"""The relative error of a quantile within the range. Below `low`, the error is at most `low`."""
_PER_LOG = 1 / math.log(GROWTH)


@cache
def _edges(low: float, high: float) -> tuple[float, ...]:
    """The lower edge of each bucket except the first."""
    return tuple(low * GROWTH**step for step in range(math.ceil(math.log(high / low) * _PER_LOG) + 1))


class Histogram:
    """Counts of values from `low` to `high`, in any unit. Values outside this range count in the nearest bucket."""

    __slots__ = ("_buckets", "_edges", "count", "high", "low", "maximum", "minimum", "total")

    def __init__(self, low: float, high: float) -> None:
        self.low = low
        self.high = high
        self._edges = _edges(low, high)
        self._buckets = array("Q", bytes(8 * (len(self._edges) + 1)))
        self.count = 0
        self.total = 0.0
        self.minimum = math.inf
        self.maximum = 0.0

    def add(self, values: Sequence[float]) -> None:
        """Count values, at least one, each 0 or above. Many values at once are faster, because they are counted by
        bucket.
        """
        buckets, edges, ordered = self._buckets, self._edges, sorted(values)
        counted, count = 0, len(ordered)
        while counted < count:
            index = bisect_right(edges, ordered[counted])
            until = bisect_left(ordered, edges[index], counted) if index < len(edges) else count
            buckets[index] += until - counted
            counted = until
        self.count += count
        self.total += sum(ordered)
        self.minimum = min(self.minimum, ordered[0])
        self.maximum = max(self.maximum, ordered[-1])

    def quantile(self, q: float) -> float:
        """The value below which a share `q` (0 to 1) of the values lies, by nearest rank. 0 if there are no values."""
        rank = max(1, math.ceil(q * self.count))
        seen = 0
        for index, count in enumerate(self._buckets):
            seen += count
            if seen >= rank and self.count:
                return min(max(self._middle(index), self.minimum), self.maximum)
        return 0.0

    def plus(self, other: "Histogram") -> "Histogram":
        """The histogram of the values of both histograms. Raises ValueError if the ranges differ."""
        if (self.low, self.high) != (other.low, other.high):
            raise ValueError("Histograms of different ranges cannot be added. Make both with the same low and high.")
        both = Histogram(self.low, self.high)
        both._buckets = array("Q", map(int.__add__, self._buckets, other._buckets))
        both.count = self.count + other.count
        both.total = self.total + other.total
        both.minimum = min(self.minimum, other.minimum)
        both.maximum = max(self.maximum, other.maximum)
        return both

    def _middle(self, index: int) -> float:
        """The value that has the same relative distance to both edges of a bucket."""
        if index == 0:
            return self.low
        return self.low * GROWTH**index * 2 / (1 + GROWTH)
