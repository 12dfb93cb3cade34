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
    """The machines to ask an autoscaler for. `machines` is the wanted total number, 0 for no demand. Each element of
    `labels` is the label set of one more machine, for which sessions wait."""

    machines: int = 0
    labels: frozenset[tuple[tuple[str, str], ...]] = frozenset()


def demand_of(machines: int, cells: int, calls: int, labels: Iterable[Mapping[str, str]]) -> MachineDemand:
    """The demand of `calls` running and waiting calls. The `machines` machines have `cells` cells together. Without
    enough cells, the demand is enough machines of the same size for all calls. `labels` are the label sets that waiting
    sessions need and no machine has."""
    wanted = frozenset(tuple(sorted(each.items())) for each in labels)
    kept = frozenset(sorted(wanted)[:MOST_LABELS])
    if calls <= cells:
        return MachineDemand(0, kept)
    if not cells:  # the size of a machine is not known
        return MachineDemand(1, kept)
    return MachineDemand(min(MOST_MACHINES, math.ceil(calls * machines / cells)), kept)
