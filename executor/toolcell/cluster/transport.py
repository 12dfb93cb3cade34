"""Ray as the transport and the membership of a cluster. The only module that imports ray."""

import importlib
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import anyio

from toolcell.backends.threads import in_thread
from toolcell.cluster.machines import MachineDemand, Member
from toolcell.errors import UsageError

from .actor import NodeActor
from .peer import NodeGone

__all__ = ["RayMembers"]

_log = logging.getLogger("toolcell.cluster")
R = TypeVar("R")
EXCHANGES: Final = 10_000
"""The most exchanges that may wait in an actor. Each driver has a few."""
CLOSE_S: Final = 10.0
A_MACHINE: Final = {"CPU": 0.001}
"""The bundle that demands one machine. Calls use no resources of Ray."""
STORED_BYTES: Final = 100_000
"""Contents of more bytes go through Ray's object store. Ray keeps results of this size there, too."""
UNEXPECTED: Final = frozenset({0, 2})
"""The reasons of NodeDeathInfo in Ray's gcs.proto with which a machine may still run: unspecified, and not heard."""


def import_ray() -> Any:
    """The module ray. Raises UsageError if it is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UsageError("Ray is not installed. Install it on each machine: pip install 'toolcell[ray]'.") from error


class RayMembers:
    """The machines of a Ray cluster. Each has one actor, which the first driver makes."""

    def __init__(self, *, address: str, namespace: str) -> None:
        self._address = address
        self._namespace = namespace
        self._ray: Any = None
        self._has_connected = False
        self._actors: dict[str, Any] = {}
        self._shut_down = frozenset[str]()
        self._lock = threading.Lock()
        self._under_way = 0
        self._asked = MachineDemand()
        self._groups: list[Any] = []

    async def connect(self) -> None:
        """Connect this process to the cluster, unless the program has done so."""
        await in_thread(self._connect)

    def _connect(self) -> None:
        ray = self._ray = import_ray()
        if ray.is_initialized():
            return
        try:
            ray.init(address=self._address, namespace=self._namespace, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ray.exceptions.AuthenticationError) as error:
            cure = (
                "Start one with ray start --head, or pass RayCluster(address=…). If it has a token, set "
                "RAY_AUTH_MODE=token, and the token by RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH."
            )
            raise UsageError(f"Cannot connect to a Ray cluster at {self._address!r}: {error} {cure}") from error
        self._has_connected = True

    async def list(self) -> Sequence[Member]:
        """List the machines that are alive. Make the actors that they lack."""
        return await in_thread(self._list)

    def _list(self) -> Sequence[Member]:
        members: list[Member] = []
        nodes: list[dict[str, Any]] = self._ray.nodes()
        self._shut_down = frozenset(
            node["NodeID"] for node in nodes if not node["Alive"] and node["DeathReason"] not in UNEXPECTED
        )
        for node in nodes:
            if node["Alive"]:
                id: str = node["NodeID"]
                if id not in self._actors:
                    self._actors[id] = self._new_actor(id)
                members.append(Member(id, dict(node.get("Labels") or {})))
        alive = {member.id for member in members}
        for id in [id for id in self._actors if id not in alive]:
            self._actors.pop(id, None)
        return members

    def has_ended(self, node_id: str) -> bool:
        """Whether the machine has shut down, as of the last `list`."""
        return node_id in self._shut_down

    def _new_actor(self, node_id: str) -> Any:
        """The existing actor of a machine, or a new one."""
        strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        return (
            self._ray.remote(NodeActor)
            .options(
                name=f"toolcell-node-{node_id}",
                namespace=self._namespace,
                get_if_exists=True,
                lifetime="detached",
                num_cpus=0,
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=EXCHANGES,
                scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node_id, soft=False),
            )
            .remote()
        )

    async def ask_for(self, demand: MachineDemand) -> None:
        """Ask the autoscaler for machines, by pending placement groups. Each driver has groups of its own, which Ray
        removes if the driver dies."""
        if demand != self._asked:
            await in_thread(partial(self._ask_for, demand))
            self._asked = demand

    def _ask_for(self, demand: MachineDemand) -> None:
        groups: Any = importlib.import_module("ray.util.placement_group")
        self._withdraw()
        nodes: list[dict[str, Any]] = self._ray.nodes()
        without_cpu = sum(node["Alive"] and not node["Resources"].get("CPU") for node in nodes)
        if (machines := demand.machines - without_cpu) > 0:
            self._groups.append(groups.placement_group([A_MACHINE] * machines, strategy="STRICT_SPREAD"))
        for labels in sorted(demand.labels):
            self._groups.append(groups.placement_group([A_MACHINE], bundle_label_selector=[dict(labels)]))

    def _withdraw(self) -> None:
        """Remove the placement groups of the present demand."""
        groups: Any = importlib.import_module("ray.util.placement_group")
        while self._groups:
            groups.remove_placement_group(self._groups.pop())

    def exchange(self, node_id: str, data: bytes, done: Callable[[bytes | Exception], None]) -> None:
        """Call the machine's actor. `done` gets the reply on a thread of Ray's."""
        self._call(node_id, done, lambda actor: actor.exchange.remote(data))

    def files(self, node_id: str, data: bytes, payload: bytes, done: Callable[[bytes | Exception], None]) -> None:
        """Ask the machine's actor about files. `done` gets the reply on a thread of Ray's."""

        def begin(actor: Any) -> Any:
            return actor.files.remote(data, self._ray.put(payload) if len(payload) > STORED_BYTES else payload)

        self._call(node_id, done, begin)

    def _call(self, node_id: str, done: Callable[[bytes | Exception], None], begin: Callable[[Any], Any]) -> None:
        """Call the machine's actor by `begin`, which returns the reference of the reply."""
        actor = self._actors.get(node_id)
        if actor is None:
            done(ConnectionError("the cluster does not list its machine"))
            return
        with self._lock:
            self._under_way += 1
        try:
            future = begin(actor).future()
        except Exception as error:
            self._done(node_id, actor, done, error)
            return
        future.add_done_callback(partial(self._ended, node_id, actor, done))

    def _ended(self, node_id: str, actor: Any, done: Callable[[bytes | Exception], None], future: Any) -> None:
        error = future.exception()
        self._done(node_id, actor, done, future.result() if error is None else error)

    def _done(
        self, node_id: str, actor: Any, done: Callable[[bytes | Exception], None], reply: bytes | BaseException
    ) -> None:
        with self._lock:
            self._under_way -= 1
        if isinstance(reply, bytes):
            done(reply)
        elif isinstance(reply, self._ray.exceptions.ActorDiedError):
            if self._actors.get(node_id) is actor:
                self._actors.pop(node_id, None)  # the next `list` makes another one, if the machine is alive
            done(NodeGone("its actor has ended"))
        elif isinstance(reply, self._ray.exceptions.RayTaskError):
            done(NodeGone(f"its supervisor failed: {reply}"))
        else:
            done(reply if isinstance(reply, Exception) else RuntimeError(repr(reply)))

    async def settled(self) -> None:
        """Wait until every exchange has ended."""
        while self._under_way:
            await anyio.sleep(0.005)

    async def close(self) -> None:
        """Disconnect this process from the cluster, if `connect` has connected it. The actors stay."""
        if self._groups:
            await in_thread(self._withdraw)
        if self._has_connected:
            self._has_connected = False
            await in_thread(self._ray.shutdown)

    def remove(self) -> None:
        """End the actors of all machines, and with them every session. Blocks."""
        self._list()
        for actor in self._actors.values():
            try:
                self._ray.get(actor.close.remote(), timeout=CLOSE_S)
            except self._ray.exceptions.RayError as error:
                _log.warning("an actor could not end its sessions: %s", error)
            self._ray.kill(actor, no_restart=True)
        self._actors.clear()
