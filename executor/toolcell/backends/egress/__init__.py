"""The proxy of `ProxyNetwork`: HTTP and CONNECT, in the supervisor, for one call of one cell at a time.

`gateway` is made once, and makes an `Egress` for each call that connects. `connection` serves one connection, from its
first byte to its record. `decision` says what is allowed. `head` parses heads and bodies without a socket. `net` has
the sockets for both event loops.
"""

from toolcell.backends.egress.gateway import ConnectionOutcome, Egress, Gateway

__all__ = ["ConnectionOutcome", "Egress", "Gateway"]
