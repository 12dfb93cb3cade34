"""The machines of a cluster: the demand for them, and the protocol of whoever lists them and carries exchanges."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

__all__ = ["MachineDemand", "Member", "Members", "demand_of"]

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


@dataclass(frozen=True, slots=True)
class Member:
    """A machine of the cluster that can run calls."""

    id: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


class Members(Protocol):
    """Connects to a cluster, lists its machines and carries exchanges to them."""

    async def connect(self) -> None:
        """Connect. Raises UsageError if there is no cluster."""
        ...

    async def list(self) -> Sequence[Member]:
        """The machines that are alive."""
        ...

    def has_ended(self, node_id: str) -> bool:
        """Whether a machine that `list` does not list has shut down, so that nothing runs there. False if the cluster
        only does not hear it."""
        ...

    async def ask_for(self, demand: MachineDemand) -> None:
        """Ask the autoscaler for these machines. This replaces the previous demand."""
        ...

    def exchange(self, node_id: str, data: bytes, done: Callable[[bytes | Exception], None]) -> None:
        """As `peer.Exchanger`."""
        ...

    def files(self, node_id: str, data: bytes, payload: bytes, done: Callable[[bytes | Exception], None]) -> None:
        """As `peer.Exchanger`."""
        ...

    async def settled(self) -> None:
        """Wait until every exchange that was begun has ended."""
        ...

    async def close(self) -> None:
        """Disconnect, if `connect` has connected."""
        ...
