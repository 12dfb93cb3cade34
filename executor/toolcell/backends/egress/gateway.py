"""The gateway of a supervisor. It gives each call that connects its own proxy, and bounds the connections of all
calls.
"""

import socket
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Any

from toolcell.backends.egress.connection import Connection, ConnectionOutcome, answer
from toolcell.backends.egress.decision import EgressRules
from toolcell.backends.egress.net import Lookups, Resolver
from toolcell.wire.budget import Account, Charge
from toolcell_sandbox.network import ProxyNetwork

__all__ = ["ConnectionOutcome", "Egress", "Gateway"]

DECISIONS = 10_000
"""The most connections of one call, refused ones included. Each makes a record. npm opens about a hundred."""
CONNECTION_COST = 192 * 1024
"""The most memory of a connection: a request's head, 64 KiB in each direction, and its tasks."""
Start = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
Write = Callable[[dict[str, Any]], None]


class Gateway:
    """Makes the proxies of calls. `start` runs a coroutine function in the background. `most` bounds the concurrent
    connections of all calls, because each takes two descriptors. `resolve(host, port)` may block, and returns
    addresses.
    """

    def __init__(self, start: Start, *, resolve: Resolver, most: int) -> None:
        self.lookups = Lookups(resolve)
        self.open = 0
        self._start = start
        self._most = most

    def egress(self, policy: ProxyNetwork, write: Write, account: Account, lookups: Lookups | None = None) -> "Egress":
        """Make the proxy of one call. `write` takes the record of each connection. `account` is charged for open
        connections. `lookups` replaces the gateway's.
        """
        return Egress(self, policy, write, account, lookups or self.lookups)

    def take(self, run: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Start the task of another connection, if there is room."""
        if self.open >= self._most:
            return False
        self.open += 1
        self._start(run)
        return True


class Egress:
    """The proxy of one call. `close` ends all its connections at once."""

    def __init__(
        self, gateway: Gateway, policy: ProxyNetwork, write: Write, account: Account, lookups: Lookups
    ) -> None:
        self.rules = EgressRules(policy)
        self.lookups = lookups
        self.idle_s = policy.idle_s
        self._gateway = gateway
        self._policy = policy
        self._write = write
        self._account = account
        self._connections: dict[Connection, Charge] = {}
        self._decisions = 0
        self._bytes = {"in": 0, "out": 0}
        self._closed = False

    def take(self, client: socket.socket) -> bool:
        """Serve or refuse this connection. Returns whether another one may follow."""
        if self._closed:
            client.close()
            return False
        self._decisions += 1
        client.setblocking(False)
        if self._decisions >= DECISIONS:
            self._refuse(client, f"This call has made {DECISIONS:,} connections, the most that it may make.")
            return False
        if len(self._connections) >= self._policy.max_connections:
            self._refuse(client, f"This call has {len(self._connections)} connections open, the most that it may have.")
            return True
        connection = Connection(self, client)
        if self._gateway.take(connection.run):
            self._connections[connection] = self._account.charge(CONNECTION_COST)
        else:
            self._refuse(client, "The supervisor has the most connections open that it may have. Try again later.")
        return True

    def close(self) -> None:
        """End all connections, because the call is over."""
        self._closed = True
        for connection in list(self._connections):
            connection.end("the call ended")

    def _refuse(self, client: socket.socket, text: str) -> None:
        try:
            client.send(answer(503, text))
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the client has disconnected
        client.close()
        self._write(asdict(ConnectionOutcome(reason=text)))

    # -- for its connections ------------------------------------------------------------------------------------------

    def room(self, direction: str) -> int:
        return self._policy.max_bytes - self._bytes[direction]

    def moved(self, direction: str, count: int) -> None:
        self._bytes[direction] += count

    def ended(self, connection: Connection, outcome: ConnectionOutcome) -> None:
        charge = self._connections.pop(connection, None)
        if charge is not None:
            charge.release()
        self._gateway.open -= 1
        self._write(asdict(outcome))
