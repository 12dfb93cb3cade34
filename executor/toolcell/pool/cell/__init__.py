"""One cell, seen from the supervisor.

`state` is a cell's life as a table, which `cell` executes. `calls` has its calls, one after the other: what they send,
say and print, and how they end. `meter` measures what they use and which limit they exceed. `channels` are the cell's
descriptors.
"""

from .calls import CANCEL_GRACE_S, WATCH_S
from .cell import Cell, CellOwner, ForkingAhead, Snapshot
from .state import State

__all__ = ["CANCEL_GRACE_S", "WATCH_S", "Cell", "CellOwner", "ForkingAhead", "Snapshot", "State"]
