"""Run the calls of a supervisor on the machines of a Ray cluster. Needs the extra `[ray]`.

- `ray_cluster.py` is the public `RayCluster`; `transport.py` alone imports ray; `actor.py` is the actor of a machine.
- The driver, which is the user's program: `pool.py` sends and ends calls, `placement.py` chooses the node of each
  session, `machines.py` has the machines and the demand for them, `nodes.py` has the nodes, `peer.py` talks to one of
  them, `call_messages.py` encodes calls.
- A node: `node.py` owns a supervisor and watches leases, `seat.py` holds the calls of one driver, `seat_outbox.py` its
  messages, `node_spec.py` a spec of cells. `node_run.py` is one call, and the inspections of its workspace.
  `kill_timer.py` ends a node that is stopped.
- Workspaces that are sent: `sent/`.
- Between driver and node: `link.py` is the ordered stream of batches, `messages.py` defines the messages in it.

Why it is so:

- The seam is the pool's protocol, `pool.interface.CallPool`. A driver's pool runs the same `Run`s as the local pool, so
  the code before and after a run is the same. Only cells move to the nodes.
- A node's supervisor runs in the actor's own process. A child process would add a hop to each message. The zygotes,
  which fork, are started by exec, so the actor's threads do not matter to them.
- A lease is renewed by what the driver has received, not by what it has sent: each reply carries the time of the node's
  clock, and the driver returns the newest one. So the node knows the earliest time at which the driver may give it up.
  Its sessions end before that time, and a timer of the kernel kills the actor if it is stopped or blocked until then.
- The stream is a long poll. Two Ray tasks (`exchange`) of each driver wait in the actor, and their replies carry the
  node's messages. A batch carries messages of many calls, so a call needs no Ray task of its own.
"""

from .ray_cluster import RayCluster
from .sent.options import SentWorkspaces, WorkspaceTooLarge

__all__ = ["RayCluster", "SentWorkspaces", "WorkspaceTooLarge"]
