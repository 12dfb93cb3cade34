"""How many machines the pending calls of a driver need. Pure: facts in, a demand out."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["MachineDemand", "demand_of"]

MOST_MACHINES: Final = 1_000
MOST_LABELS: Final = 16


@dataclass(frozen=True, slots=True)
class MachineDemand:
    """Machines for an autoscaler. `machines` is how many there should be in all, 0 for no wish. Each of `labels` are
    the labels of one more machine, which sessions wait for."""

    machines: int = 0
    labels: frozenset[tuple[tuple[str, str], ...]] = frozenset()


def demand_of(machines: int, cells: int, calls: int, labels: Iterable[Mapping[str, str]]) -> MachineDemand:
    """The demand of calls on machines that have so many cells together: another machine while there are more calls.
    `labels` are those that waiting sessions want and no machine has."""
    wanted = frozenset(tuple(sorted(each.items())) for each in labels)
    kept = frozenset(sorted(wanted)[:MOST_LABELS])
    if calls <= cells:
        return MachineDemand(0, kept)
    if not cells:  # it is not known what a machine holds
        return MachineDemand(1, kept)
    return MachineDemand(min(MOST_MACHINES, math.ceil(calls * machines / cells)), kept)
