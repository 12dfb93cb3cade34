"""How many machines the pending calls of a driver need. Pure: facts in, a demand out."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["Demand", "demand_of"]

MOST_MACHINES: Final = 1_000
MOST_LABELS: Final = 16


@dataclass(frozen=True, slots=True)
class Demand:
    """Machines for an autoscaler. `machines` is how many there should be in all, 0 for no wish. Each of `labels` are
    the labels of one more machine, which sessions wait for."""

    machines: int = 0
    labels: frozenset[tuple[tuple[str, str], ...]] = frozenset()


def demand_of(machines: int, cells: int, calls: int, labels: Iterable[Mapping[str, str]]) -> Demand:
    """The demand of calls on machines that have so many cells together: another machine while there are more calls.
    `labels` are those that waiting sessions want and no machine has."""
    wanted = frozenset(tuple(sorted(each.items())) for each in labels)
    kept = frozenset(sorted(wanted)[:MOST_LABELS])
    if calls <= cells:
        return Demand(0, kept)
    if not cells:  # it is not known what a machine holds
        return Demand(1, kept)
    return Demand(min(MOST_MACHINES, math.ceil(calls * machines / cells)), kept)
