"""The state and the problems of a node, as the driver knows them, for `toolcell status` and for metrics."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from toolcell_tools.preview import counted

from .peer import Peer

__all__ = ["LOSS_SHOWN_S", "MOST_LOSSES", "NodeLoss", "data_of"]

LATE_S: Final = 10.0
"""A node that is silent for so many seconds has a problem. An actor needs a few seconds to start."""
LOSS_SHOWN_S: Final = 600.0
MOST_LOSSES: Final = 16


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """A loss that ended calls or moved sessions. `at` is in seconds of time.monotonic()."""

    node: str
    why: str
    calls: int
    sessions: int
    at: float

    def sentence(self, now: float) -> str:
        """The loss in a sentence."""
        what = f"{counted(self.calls, 'call')} and {counted(self.sessions, 'session')}"
        return f"Node {self.node} was lost {now - self.at:.0f} s ago with {what}: {self.why}."


def data_of(peer: Peer) -> dict[str, Any]:
    """The node as JSON data."""
    data: dict[str, Any] = {
        "id": peer.id,
        "state": _state_of(peer),
        "calls": len(peer.runs),
        "sessions": len(peer.sessions),
        "losses": peer.losses,
        "labels": dict(peer.labels),
        "problems": list(_problems_of(peer, time.monotonic())),
    }
    if (told := peer.told) is not None:
        data |= {
            "cells": told.counts,
            "max_cells": told.most_cells,
            "waiting": told.waiting,
            "zygotes": told.zygotes,
            "memory_bytes": told.memory_bytes,
        }
    return data


def _state_of(peer: Peer) -> str:
    if peer.is_up:
        return "up"
    return "unfit" if peer.unfit else "lost" if peer.is_gone else "connecting"


def _problems_of(peer: Peer, now: float) -> Iterator[str]:
    if peer.unfit:
        yield peer.unfit
        return
    if peer.told is not None and peer.told.problem:
        yield peer.told.problem
        return
    if (silent_s := now - peer.heard_at) > max(LATE_S, peer.lease_s):
        yield f"It has not answered for {silent_s:.0f} s."
    if peer.told is not None:
        yield from peer.told.problems
