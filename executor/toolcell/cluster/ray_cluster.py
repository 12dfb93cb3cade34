"""RayCluster: run the calls of a supervisor on the machines of a Ray cluster."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from toolcell.backends.threads import in_thread
from toolcell.errors import UsageError
from toolcell.pool.interface import CallPool, PoolHost
from toolcell.rules import misuse
from toolcell_sandbox.errors import named

from .pool import ClusterPool
from .sent.options import SentWorkspaces
from .terms import NodeTerms
from .transport import RayMembers

__all__ = ["RayCluster"]

LEASE_S = 10.0
START_S = 60.0


class RayCluster:
    """`Supervisor(…, cluster=RayCluster())` runs its calls on the machines of a Ray cluster.

    - `address` is the address of the cluster, as for `ray.init`. By default, it is the cluster on this machine. If the
      program has called `ray.init`, that connection is used.
    - `namespace` is the Ray namespace of the actors. Drivers with the same namespace share each machine's cells.
    - `lease_s` is a time in seconds (default: 10). A machine ends the sessions of a driver that was silent for so long.
      A driver gives up a machine that was silent for twice that time.
    - The start waits for `min_nodes` machines (default: 1), at most `start_s` seconds (default: 60), and fails if none
      has answered by then.
    - `max_cells` bounds the cells of each machine. `allow_missing` names mechanisms of the sandbox that may be missing
      there, besides the supervisor's. `quarantine` is the directory for protected names on each machine, by default
      the supervisor's. The drivers of a namespace share each machine's supervisor, and the values of the first driver
      hold. The start of a driver with another `max_cells` or `quarantine` raises UsageError.
    - `labels` is a function from the facts of a session (`session_id`, `agent_id`, `ancestors`, `user_id`,
      `session_kind`, `workspace_root`) to the labels that its machine must have.
    - `workspaces` says which machines have the workspaces. "shared": each machine has the paths. "local": one machine
      has them, and a session whose machine is lost ends as failed. "sent": the driver has them, and each session gets a
      copy on its machine. `SentWorkspaces(…)` is "sent" with options.
    - `together`: sessions on the same workspace go to the same machine (default). Without it, they are spread, and the
      guard of protected names compares calls of one machine only. Sent workspaces are always spread.
    - `memory` and `web` place these handles on the machines: each is the import path, `module:name`, of a function
      without arguments that returns the machine's own MemoryStore or WebClient. `resolve` is the import path of a
      resolver for `ProxyNetwork`, as `Supervisor(resolve=…)` has it. Each machine must have the module. By default,
      the driver serves the memory and the web, and machines use the resolver of their system.

    Raises UsageError for wrong arguments.
    """

    @named
    def __init__(
        self,
        address: str = "auto",
        *,
        namespace: str = "toolcell",
        lease_s: float = LEASE_S,
        start_s: float = START_S,
        min_nodes: int = 1,
        max_cells: int | None = None,
        allow_missing: Iterable[str] = (),
        quarantine: str | None = None,
        labels: Callable[[Mapping[str, Any]], Mapping[str, str]] | None = None,
        workspaces: Literal["shared", "local", "sent"] | SentWorkspaces = "shared",
        together: bool = True,
        memory: str | None = None,
        web: str | None = None,
        resolve: str | None = None,
    ) -> None:
        misuse.check_texts(address=address, namespace=namespace)
        self._lease_s = misuse.seconds("lease_s", lease_s)
        self._start_s = misuse.seconds("start_s", start_s)
        self._min_nodes = misuse.count("min_nodes", min_nodes, "Pass how many machines the start waits for.")
        if max_cells is not None:
            misuse.count("max_cells", max_cells, "Leave it out for a default by the machine.")
        misuse.check_callable("labels", labels)
        self._address = address
        self._namespace = namespace
        self._max_cells = max_cells
        self._allow_missing = misuse.mechanisms(allow_missing)
        self._quarantine = quarantine
        self._labels = labels
        self._sent = SentWorkspaces.of(workspaces)
        self._reopens = workspaces != "local"
        self._together = together
        self._backends = {
            name: _import_path(name, path) for name, path in (("memory", memory), ("web", web), ("resolve", resolve))
        }

    def __repr__(self) -> str:
        return f"<RayCluster {self._address} · {self._namespace}>"

    def pool(self, host: PoolHost) -> CallPool:
        """A pool that runs calls on the machines. `Supervisor` calls this."""
        return ClusterPool(
            host,
            self._members(),
            lease_s=self._lease_s,
            start_s=self._start_s,
            min_nodes=self._min_nodes,
            labels=self._labels,
            by_workspace=self._together and self._sent is None,
            reopens=self._reopens,
            terms=NodeTerms(
                allow_missing=tuple(sorted(host.allow_missing | self._allow_missing)),
                max_cells=self._max_cells,
                quarantine=self._quarantine or host.quarantine,
                is_durable=host.is_durable,
                directory=None if self._sent is None else self._sent.directory,
                store_bytes=None if self._sent is None else self._sent.store_bytes,
                **self._backends,
            ),
            sent=self._sent,
        )

    async def remove(self) -> None:
        """End the node supervisors of this namespace on all machines, with every session of every driver there.

        Raises UsageError if Ray is not installed, or if there is no cluster at the address.
        """
        members = self._members()
        await members.connect()
        try:
            await in_thread(members.remove)
        finally:
            await members.close()

    def _members(self) -> RayMembers:
        return RayMembers(address=self._address, namespace=self._namespace)


def _import_path(name: str, path: str | None) -> str:
    """The import path, "" for None. Raises UsageError if it is not `module:name`."""
    misuse.check_texts(**{name: path})
    if path is None:
        return ""
    module, _, function = path.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *function.split("."))):
        raise UsageError(
            f"RayCluster({name}={path!r}) is no import path. Write module:name, such as 'my_nodes:memory'."
        )
    return path
