"""Run the calls of a supervisor on the machines of a Ray cluster. Needs the extra `[ray]`.

- `ray_cluster.py` is the public `RayCluster`; `transport.py` alone imports ray; `actor.py` is the actor of a machine.
- The driver, which is the user's program: `pool.py` places and ends calls, `peer.py` talks to one node.
- A node: `node.py` owns a supervisor, `seat.py` holds the calls of one driver, and `node_run.py` is one call.
- Workspaces that are sent: `sent/`.
- Between driver and node: `link.py` is the ordered stream of batches, `messages.py` defines the messages in it.

Why it is so:

- The seam is the pool's protocol (`pool/calling.py`). A driver's pool runs the same `Run`s as the local pool, so the
  code before and after a run is the same. Only cells move to the nodes.
- A node's supervisor runs in the actor's own process. A child process would add a hop to each message. The zygotes,
  which fork, are started by exec, so the actor's threads do not matter to them.
- The stream is a long poll. Two Ray tasks (`exchange`) of each driver wait in the actor, and their replies carry the
  node's messages. A batch carries messages of many calls, so a call needs no Ray task of its own.
"""

from .ray_cluster import RayCluster
from .sent.options import SentWorkspaces, WorkspaceTooLarge

__all__ = ["RayCluster", "SentWorkspaces", "WorkspaceTooLarge"]
