"""The network policies of a cell: none, the host's, or a proxy with an allow-list. This module opens no socket."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from .errors import refusing

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from typing import Any

PROXY_HOST, PROXY_PORT = "127.0.0.1", 3128
"""The address of the proxy in a cell's own network namespace. Port 3128 is Squid's."""
DEFAULT_PORTS = (80, 443)
MIB = 1024 * 1024
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")  # WHATWG URL, "ends in a number": such a host is parsed as IPv4
_DEVIATIONS = "\u00df\u03c2\u200c\u200d"  # IDNA 2003 and 2008 turn these into two different names (UTS 46)
_EXAMPLES = "Write it like 'example.org', '*.example.com:443', '192.0.2.1:8080' or '[2001:db8::1]:443'."


@refusing
@dataclass(frozen=True)
class NoNetwork:
    """The cell has no network: an empty network namespace, in which it cannot make a socket."""


@refusing
@dataclass(frozen=True)
class HostNetwork:
    """The cell shares the host's network, TCP and UDP, loopback and private networks included. Nothing is checked."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One normalised entry of an allow-list. `host` has no "*.". Without `port`, it means the ports 80 and 443."""

    host: str
    port: int | None
    subdomains: bool

    def covers(self, host: str, port: int) -> bool:
        """Whether this entry covers a normalised host (lower-case ASCII, no trailing dot) and a port."""
        named = host.endswith("." + self.host) if self.subdomains else host == self.host
        return named and (port in DEFAULT_PORTS if self.port is None else port == self.port)

    def is_within(self, other: "Pattern") -> bool:
        """Whether the other entry covers everything that this one covers."""
        if other.subdomains:
            named = self.host.endswith("." + other.host) or (self.subdomains and self.host == other.host)
        else:
            named = not self.subdomains and self.host == other.host
        return named and (self.port == other.port or (other.port is None and self.port in DEFAULT_PORTS))


@refusing
@dataclass(frozen=True, kw_only=True)
class ProxyNetwork:
    """The cell reaches the hosts of an allow-list, by HTTP and by CONNECT, through a proxy outside of the cell.

    `allow` has host names, or `*.` and a suffix ("*.example.com" covers each name below example.com, not example.com
    itself). An entry without a port means the ports 80 and 443. A name that resolves to a non-public address is
    refused, unless `allow_private` has exactly that "host:port"; such an entry need not be in `allow` too. `max_bytes`
    limits the bytes of one call in each direction, `max_connections` its simultaneous connections. A connection without
    traffic for `idle_s` seconds is closed. Raises ValueError, with the remedy, for an invalid entry.
    """

    allow: Sequence[str] = ()
    allow_private: Sequence[str] = ()
    max_bytes: int = 256 * MIB
    max_connections: int = 32  # npm opens 15, cargo and pip fewer
    idle_s: float = 60.0  # nginx proxy_read_timeout

    def __post_init__(self) -> None:
        for name in ("allow", "allow_private"):
            entries: Sequence[str] = getattr(self, name)
            if isinstance(entries, str) or not isinstance(entries, (list, tuple)):
                raise ValueError(f"ProxyNetwork.{name} is not a list of strings: {entries!r}. Pass a list.")
        self.patterns()
        for name in ("allow", "allow_private"):
            object.__setattr__(self, name, tuple(dict.fromkeys(getattr(self, name))))
        for name, kinds, wanted in (
            ("max_bytes", (int,), "a whole number"),
            ("max_connections", (int,), "a whole number"),
            ("idle_s", (int, float), "a number of seconds"),
        ):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < 1 << 62:
                raise ValueError(f"ProxyNetwork.{name} is not {wanted} above zero: {value!r}. Pass one.")

    def patterns(self) -> tuple[Pattern, ...]:
        """The parsed entries of both lists."""
        private = [read_pattern(entry, "ProxyNetwork.allow_private") for entry in self.allow_private]
        for entry, pattern in zip(self.allow_private, private, strict=True):
            if pattern.subdomains or pattern.port is None:
                raise ValueError(
                    f"ProxyNetwork.allow_private has an entry that is not one host and one port: {entry!r}. "
                    "Write each exception out, like '127.0.0.1:8080' or 'packages.internal:443'."
                )
        return (*(read_pattern(entry, "ProxyNetwork.allow") for entry in self.allow), *private)

    def private_pairs(self) -> frozenset[tuple[str, int]]:
        """The (host, port) pairs whose addresses need not be public."""
        read = (read_pattern(entry, "ProxyNetwork.allow_private") for entry in self.allow_private)
        return frozenset((pattern.host, pattern.port) for pattern in read if pattern.port is not None)


Network = NoNetwork | ProxyNetwork | HostNetwork


def is_narrower(network: Network, other: Network) -> bool:
    """Whether `network` reaches nothing that `other` does not (an equal one counts)."""
    if isinstance(network, NoNetwork) or isinstance(other, HostNetwork):
        return True
    if isinstance(network, HostNetwork) or isinstance(other, NoNetwork):
        return False
    wider = other.patterns()
    return (
        all(any(pattern.is_within(each) for each in wider) for pattern in network.patterns())
        and network.private_pairs() <= other.private_pairs()
        and network.max_bytes <= other.max_bytes
        and network.max_connections <= other.max_connections
        and network.idle_s <= other.idle_s
    )


def common(network: Network, other: Network) -> Network:
    """The narrower of the two policies if one is narrower; else the entries that both allow-lists cover."""
    if is_narrower(network, other):
        return network
    if is_narrower(other, network) or not (isinstance(network, ProxyNetwork) and isinstance(other, ProxyNetwork)):
        return other
    pairs = sorted(network.private_pairs() & other.private_pairs())
    return ProxyNetwork(
        allow=(*_entries_within(network, other), *_entries_within(other, network)),
        allow_private=tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in pairs),
        max_bytes=min(network.max_bytes, other.max_bytes),
        max_connections=min(network.max_connections, other.max_connections),
        idle_s=min(network.idle_s, other.idle_s),
    )


def _entries_within(network: ProxyNetwork, other: ProxyNetwork) -> list[str]:
    wider, entries = other.patterns(), (*network.allow, *network.allow_private)
    read = zip(entries, network.patterns(), strict=True)
    return [entry for entry, pattern in read if any(pattern.is_within(each) for each in wider)]


def proxy_environment() -> dict[str, str]:
    """The environment variables for the proxy. NO_PROXY is empty, because nothing can be reached without the proxy.
    Node reads the others only with NODE_USE_ENV_PROXY, from 22.21 and 24.0."""
    url = f"http://{PROXY_HOST}:{PROXY_PORT}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    proxied = {name: url for upper in names for name in (upper, upper.lower())}
    return {**proxied, "NO_PROXY": "", "no_proxy": "", "NODE_USE_ENV_PROXY": "1"}


def to_wire(network: Network) -> dict[str, object]:
    """`{"kind": "none" | "proxy" | "host", …}`, of plain values."""
    if isinstance(network, ProxyNetwork):
        values = {each.name: getattr(network, each.name) for each in fields(network)}
        lists = {"allow": list(network.allow), "allow_private": list(network.allow_private)}
        return {"kind": "proxy", **values, **lists}
    return {"kind": "host" if isinstance(network, HostNetwork) else "none"}


def from_wire(wire: object) -> Network:
    """The inverse of `to_wire`. Raises ValueError for anything else."""
    values: dict[str, Any] = dict(wire) if isinstance(wire, Mapping) else {}  # pyright: ignore[reportUnknownArgumentType]
    kind = values.pop("kind", None)
    known = {each.name for each in fields(ProxyNetwork)} if kind == "proxy" else set[str]()
    unknown = values.keys() - known
    if kind not in ("none", "proxy", "host") or unknown:
        what = f"no such field: {min(unknown)!r}" if kind and unknown else f"no such kind: {kind!r}"
        raise ValueError(f"Profile.network has {what}. The kinds are 'none', 'proxy' (with allow) and 'host'.")
    if kind == "proxy":
        return ProxyNetwork(**values)
    return HostNetwork() if kind == "host" else NoNetwork()


def read_pattern(entry: object, where: str, examples: str = _EXAMPLES) -> Pattern:
    """Parse one entry of a list. Raises ValueError, which names the list by `where`."""
    if not isinstance(entry, str):
        raise ValueError(f"{where} has an entry that is not a string: {entry!r}. {examples}")

    def refused(why: str) -> ValueError:
        return ValueError(f"{where} has an entry that {why}: {entry!r}. {examples}")

    if "://" in entry:
        raise refused("is a URL")
    if "@" in entry:
        raise refused("carries a user name")
    if any(character in "/?#%\\" or character.isspace() or not character.isprintable() for character in entry):
        raise refused("has characters which no host has")
    found = re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?", entry)
    if found is None:
        raise refused("is no host, or has a port that is no number")
    name, digits = found.groups()
    port = int(digits) if digits else None
    if port is not None and not 0 < port < 65536:
        raise refused("has a port which is not from 1 to 65535")
    subdomains = name.startswith("*.")
    try:
        host = normal_host(name[2:] if subdomains else name)
    except ValueError as error:
        raise refused(str(error)) from None
    if subdomains and ("." not in host or _NUMERIC.fullmatch(host.rsplit(".", 1)[-1])):
        raise refused("covers a whole top-level domain, or addresses")
    return Pattern(host, port, subdomains)


def normal_host(name: str) -> str:
    """A host name in lower-case ASCII without a trailing dot, or an address in its canonical form without brackets.

    Raises ValueError, with the reason in a few words, if it is neither.
    """
    if name.startswith("["):
        return _address(name[1:-1], 6)
    if any(character in _DEVIATIONS for character in name):
        raise ValueError("is spelled in a way that means two names (write its xn-- form)")
    if not name.isascii():
        try:
            name = name.encode("idna").decode("ascii")
        except UnicodeError:
            raise ValueError("is no host name") from None
    host = name.lower().removesuffix(".")
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("is no host name")
    return _address(host, 4) if _NUMERIC.fullmatch(labels[-1]) else host


def _address(text: str, version: int) -> str:
    from ipaddress import ip_address  # 3 ms, not needed for an allow-list of names

    try:
        address = ip_address(text)
    except ValueError:
        raise ValueError("is no host name and no full address") from None
    if address.version != version or getattr(address, "scope_id", None) is not None:
        raise ValueError("is no host name and no full address")
    return str(address)


def covered(patterns: Iterable[Pattern], host: str, port: int) -> bool:
    """Whether one of the patterns covers this normalised host and port."""
    return any(pattern.covers(host, port) for pattern in patterns)
