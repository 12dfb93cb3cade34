"""The proxy of `ProxyNetwork`: HTTP and CONNECT, in the supervisor, for one call of one cell at a time.

`gateway` is made once, and makes an `Egress` for each call that connects; `connection` is one connection from its first
byte to its record; `rules` decides; `head` and `body` read, without a socket; `net` is sockets on either event loop.
"""

from toolcell.backends.egress.gateway import ConnectionOutcome, Egress, Gateway

__all__ = ["ConnectionOutcome", "Egress", "Gateway"]
