"""The membership and the transport of a cluster, as the pool uses them."""

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
