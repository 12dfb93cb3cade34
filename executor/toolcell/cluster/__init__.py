"""Run the calls of a supervisor on the machines of a Ray cluster. The extra `[ray]`.

- `ray_cluster.py` is the public `RayCluster`; `transport.py` alone imports ray; `actor.py` is the actor of a machine.
- The driver, which is the user's program: `pool.py` places and ends calls, `peer.py` talks to one node.
- A node: `node.py` owns a supervisor, `seat.py` has the calls of one driver, `node_run.py` is one of them.
- Between them: `link.py` is the ordered stream of batches, `messages.py` what it carries.
"""

from .ray_cluster import RayCluster

__all__ = ["RayCluster"]
