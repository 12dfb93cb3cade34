"""The nodes of a driver: who is a member of the cluster, what each node last told, and which were lost."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import anyio

from toolcell.cluster.machines import Member, Members
from toolcell.errors import SandboxUnavailableError, UsageError
from toolcell_sandbox.report import SandboxReport

from .overview import LOSS_SHOWN_S, MOST_LOSSES, NodeLoss, data_of
from .peer import Peer

__all__ = ["DriverNodes"]


class DriverNodes:
    """The peers of a driver, by the ids of their machines. `new_peer` makes the peer of a machine."""

    def __init__(self, members: Members, new_peer: Callable[[Member], Peer]) -> None:
        self._members = members
        self._new_peer = new_peer
        self._peers: dict[str, Peer] = {}
        self._losses: deque[NodeLoss] = deque(maxlen=MOST_LOSSES)
        self._last_loss = ""
        self._changed = anyio.Event()

    def __iter__(self) -> Iterator[Peer]:
        return iter(list(self._peers.values()))

    def ups(self) -> list[Peer]:
        """The peers that are connected."""
        return [peer for peer in self._peers.values() if peer.is_up]

    def answering(self) -> list[Peer]:
        """The peers that are connected, without the silent ones."""
        return [peer for peer in self._peers.values() if peer.is_up and not peer.is_silent]

    def meet(self, members: Iterable[Member]) -> None:
        """Use new machines, and give up those that have left. A machine that the cluster only does not hear may still
        run cells: such a node is used until its lease is over."""
        alive = {member.id: member for member in members}
        for id, peer in list(self._peers.items()):
            if id not in alive and (not peer.is_up or self._members.has_ended(id)):
                if not peer.is_gone:
                    peer.give_up("its machine has left the cluster")
                self._peers.pop(id, None)
        for id, member in alive.items():
            if id not in self._peers:
                peer = self._peers[id] = self._new_peer(member)
                peer.connect()

    async def started(self, least: int, within_s: float) -> SandboxReport:
        """Wait until so many nodes are connected, and return the report of the first one. Raises UsageError if a node
        cannot meet the driver's terms, and SandboxUnavailableError if no node is connected in time."""
        with anyio.move_on_after(within_s):
            while len(self.ups()) < least and not self._problem() and not self._unfit():
                await self._changed.wait()
        ups = self.ups()
        if len(ups) < least and (why := self._unfit()):
            raise UsageError(why)
        if not ups or ups[0].told is None:
            raise self._none_started(within_s)
        return SandboxReport.from_wire(ups[0].told.report)

    def _problem(self) -> str:
        return next((peer.told.problem for peer in self if peer.told and peer.told.problem), "")

    def _unfit(self) -> str:
        return next((peer.unfit for peer in self if peer.unfit), "")

    def _none_started(self, within_s: float) -> SandboxUnavailableError:
        why = self._problem() or f"No node of the cluster has answered within {within_s:g} s"
        why = f"{why}: {self._last_loss}" if self._last_loss else why
        cure = "Look at the log of the actor toolcell-node on the cluster, or pass RayCluster(start_s=…)."
        return SandboxUnavailableError(f"{why.rstrip('.')}. {cure}", "", cure)

    def notify(self) -> None:
        """Wake `started`: the state of a node has changed."""
        self._changed.set()
        self._changed = anyio.Event()

    def note_loss(self, peer: Peer, why: str, calls: int, sessions: int) -> None:
        """Note that a node was lost with so many calls and sessions."""
        self._last_loss = why
        if calls or sessions:
            self._losses.append(NodeLoss(peer.id, why, calls, sessions, time.monotonic()))

    def drop(self, peer: Peer) -> None:
        """Forget a node that is gone."""
        self._peers.pop(peer.id, None)

    def leave(self) -> None:
        """End the driver's sessions on all nodes."""
        for peer in self:
            peer.leave()

    def abandon(self) -> None:
        """Send nothing any more. The nodes' leases end the sessions."""
        for peer in self:
            peer.is_gone = True

    # -- overview -----------------------------------------------------------------------------------------------------

    @property
    def most_cells(self) -> int:
        """The most cells that the nodes may have together."""
        return sum(peer.told.most_cells for peer in self.ups() if peer.told)

    @property
    def zygotes(self) -> int:
        """The number of zygotes of all nodes, as the nodes last told."""
        return sum(peer.told.zygotes for peer in self.ups() if peer.told)

    def counts(self) -> dict[str, int]:
        """The number of cells of all nodes by state, as the nodes last told."""
        total: Counter[str] = Counter()
        for peer in self.ups():
            total.update(peer.told.counts if peer.told else {})
        return dict(total)

    def data(self) -> list[dict[str, Any]]:
        """The nodes, as JSON data (`overview.data_of`)."""
        return [data_of(peer) for peer in self]

    def losses(self) -> list[str]:
        """The losses of the last minutes, in sentences."""
        now = time.monotonic()
        return [loss.sentence(now) for loss in self._losses if now - loss.at < LOSS_SHOWN_S]
