"""One cell, seen from the supervisor.

`state` is a cell's life as a table, which `cell` executes. `calls` handles its calls, one after the other: their frames
and output (`intake`), their use of resources (`meter`, judged by `evidence`), their connections (`listener`).
`channels` are its descriptors, `control` is the socket of its init, `terms` are the messages to the cell, and
`interface` is the pool as the cell sees it.
"""

from .calls import CANCEL_GRACE_S
from .cell import Cell
from .interface import CellOwner, Snapshot
from .state import State

__all__ = ["CANCEL_GRACE_S", "Cell", "CellOwner", "Snapshot", "State"]
