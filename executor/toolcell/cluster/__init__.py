"""Run the calls of a supervisor on the machines of a Ray cluster. The extra `[ray]`.

- `ray_cluster.py` is the public `RayCluster`; `transport.py` alone imports ray; `actor.py` is the actor of a machine.
- The driver, which is the user's program: `pool.py` places and ends calls, `peer.py` talks to one node.
- A node: `node.py` owns a supervisor, `seat.py` has the calls of one driver, `node_run.py` is one of them.
- Workspaces that are sent: `sent/`.
- Between them: `link.py` is the ordered stream of batches, `messages.py` what it carries.
Why it is so:

- The pool is the seam (`pool/calling.py`): a driver's pool takes the same runs as the local one. So each step before
  and after a run is the same code, and everything but cells stays with the driver.
- A node's supervisor is in the actor itself. A child would add a hop to each message, and what forks (the zygotes) is
  started by exec in any case, so the actor's threads do no harm.
- A call is one Ray task: the request that carries it waits in the actor, and its result is the reply. Handle
  operations answer exchanges that wait already.
"""

from .ray_cluster import RayCluster
from .sent.options import SentWorkspaces, WorkspaceTooLarge

__all__ = ["RayCluster", "SentWorkspaces", "WorkspaceTooLarge"]
