"""One cell, seen from the supervisor.

`state` is its life as a table, which `cell` drives. `calls` has its calls, one after the other: what they say
(`intake`), what they use (`meter`, judged by `evidence`), what they connect (`listener`). `channels` are its
descriptors, `control` is the socket of its init, `terms` what it is told, `keeper` the pool as the cell sees it.
"""

from .calls import CANCEL_GRACE_S
from .cell import Cell
from .keeper import Keeper, Snapshot
from .state import State

__all__ = ["CANCEL_GRACE_S", "Cell", "Keeper", "Snapshot", "State"]
