"""The members of a cluster and the way to them, as the pool needs them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .demand import MachineDemand

__all__ = ["Member", "Members"]


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

    async def ask_for(self, demand: MachineDemand) -> None:
        """Tell the autoscaler which machines are needed, in place of what was asked for before."""
        ...

    def exchange(self, node_id: str, data: bytes, done: Callable[[bytes | Exception], None]) -> None:
        """As `peer.Exchanger`."""
        ...

    def files(self, node_id: str, data: bytes, payload: bytes, done: Callable[[bytes | Exception], None]) -> None:
        """As `peer.Exchanger`."""
        ...

    async def settled(self) -> None:
        """Wait until no exchange that was begun is unsent."""
        ...

    async def close(self) -> None:
        """Disconnect, if `connect` has connected."""
        ...
