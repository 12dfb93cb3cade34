"""Which URLs and addresses the web client may reach: pure functions, no socket.

A URL is read once into a `Target`. It is refused if two parsers could read it differently. An address is public only if
every IPv4 address embedded in it is public too (RFC 4291, 6052, 5214).
"""

import re
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import quote, urljoin, urlsplit

from toolcell.backends.protocols import Refused
from toolcell.errors import ArgumentError

__all__ = ["Address", "Target", "checked_addresses", "is_public", "parse_pairs", "parse_redirect", "parse_url"]

Address = IPv4Address | IPv6Address

MAX_URL = 8192  # nginx and Apache refuse request lines over 8 KiB by default
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")  # WHATWG URL, "ends in a number": such a host is an IPv4 address
_DEVIATIONS = "\u00df\u03c2\u200c\u200d"  # IDNA 2003 and 2008 encode these as two different names (UTS 46)

# Public according to `ipaddress`, but not in fact: 6to4 relay anycast (RFC 7526), IETF protocol assignments, Azure's
# wire server.
_NOT_PUBLIC_V4 = [IPv4Network(n) for n in ("192.88.99.0/24", "192.0.0.0/24", "168.63.129.16/32")]
_GLOBAL_UNICAST = IPv6Network("2000::/3")  # the only IPv6 space that is routed on the public internet
# IETF protocol assignments (Teredo and ORCHID among them), 6to4 (a tunnel to any IPv4 address, retired by RFC 7526),
# documentation (RFC 9637): Python 3.11 to 3.13 disagree about them, and they have no web sites.
_NOT_PUBLIC_V6 = [IPv6Network(n) for n in ("2001::/23", "2002::/16", "3fff::/20")]
_NAT64 = IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Target:
    """One http(s) URL, normalised. `host` is a lower-case ASCII name or a canonical address without brackets."""

    scheme: str
    host: str
    port: int
    path: str
    literal: Address | None

    @property
    def authority(self) -> str:
        """The Host header: the requested name, never the address that it resolved to."""
        host = f"[{self.host}]" if isinstance(self.literal, IPv6Address) else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


def parse_url(url: str, *, allowed: Collection[tuple[str, int]] = (), any_port: bool = False) -> Target:
    """Read `url`, or raise `Refused`. Ports other than 80 and 443 need a (host, port) pair in `allowed`, or `any_port`
    if the caller judges the port.
    """
    _check_text(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Refused("The URL has no host or port that can be read. Pass one like https://example.com/page.") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise Refused(f"The URL scheme is {parts.scheme[:20]!r}. Only http and https are fetched.")
    if "@" in parts.netloc:
        raise Refused("The URL carries a user name or password. Leave out everything before the '@'.")
    bracketed = "[" in parts.netloc or "]" in parts.netloc
    if bracketed and not re.fullmatch(r"\[[^\[\]]*\](:[0-9]*)?", parts.netloc):
        raise Refused("The URL has brackets in the wrong place. Put them around an IPv6 address and nothing else.")
    host, literal = _host(parts.hostname or "", bracketed=bracketed)
    port = _DEFAULT_PORTS[parts.scheme] if port is None else port
    if port == 0:
        raise Refused("Port 0 is no port. Leave it out or name another.")
    if port not in _DEFAULT_PORTS.values() and (host, port) not in allowed and not any_port:
        raise Refused(f"Port {port} is not fetched, only 80 and 443. Whoever runs the agent can allow {host}:{port}.")
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._[]")
    query = "?" + quote(parts.query, safe="/%:@!$&'()*+,;=~-._[]?") if parts.query else ""
    return Target(parts.scheme, host, port, path + query, literal)


def parse_redirect(
    origin: Target, location: str, *, allowed: Collection[tuple[str, int]] = (), any_port: bool = False
) -> Target:
    """Read the Location in an answer of `origin`, by the same rules as any URL."""
    _check_text(location)  # before `urljoin`, which silently drops tabs and line ends
    try:
        return parse_url(urljoin(origin.url, location), allowed=allowed, any_port=any_port)
    except ValueError:
        raise Refused("The redirect cannot be read. Use another URL.") from None


def parse_pairs(pairs: Iterable[str]) -> frozenset[tuple[str, int]]:
    """Read "host:port" strings, IPv6 in brackets. Raise ArgumentError for anything else, URLs and ranges included."""
    found: set[tuple[str, int]] = set()
    for pair in pairs:
        host, _, port = str(pair).rpartition(":")
        if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536 or set(host) & set("/?#@"):
            raise ArgumentError(f"{pair!r} is not a host:port pair. Write it like '127.0.0.1:8080' or '[::1]:8080'.")
        try:
            found.add((parse_url(f"http://{host}/").host, int(port)))
        except Refused as error:
            raise ArgumentError(f"{pair!r} is not a host:port pair: {error}") from None
    return frozenset(found)


def _check_text(url: str) -> None:
    if len(url) > MAX_URL:
        raise Refused(f"The URL has {len(url)} characters, over the limit of {MAX_URL}. Use a shorter one.")
    if any(c.isspace() or c == "\\" or unicodedata.category(c) in {"Cc", "Cs"} for c in url):
        raise Refused("The URL contains white space, a control character or a backslash. Percent-encode it.")


def _host(name: str, *, bracketed: bool) -> tuple[str, Address | None]:
    if bracketed:
        try:
            literal = IPv6Address(name)
        except ValueError:
            literal = None
        if literal is None or literal.scope_id is not None:
            raise Refused(
                "The host in brackets is not an IPv6 address without a zone. Write it like [2606:4700::1111]."
            )
        return str(literal), literal
    if any(c in _DEVIATIONS for c in name):
        raise Refused("The host is spelled in a way that means two names. Write it in its xn-- form.")
    try:
        ascii_name = name.encode("idna").decode("ascii").lower().removesuffix(".") if len(name) < 254 else ""
    except UnicodeError:
        ascii_name = ""
    labels = ascii_name.split(".")
    if len(ascii_name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise Refused("The URL has no valid host name. Pass one like https://example.com/page.")
    if not _NUMERIC.fullmatch(labels[-1]):
        return ascii_name, None
    try:
        return ascii_name, IPv4Address(ascii_name)  # four decimal numbers, no leading zeros, nothing else
    except ValueError:
        raise Refused("The host is a number or a short or octal address. Write it as four decimal numbers.") from None


def checked_addresses(target: Target, answers: Iterable[str], allowed: Collection[tuple[str, int]]) -> list[Address]:
    """Return the addresses to connect to, in the order of `answers`. If one of them is not public, raise `Refused`."""
    try:
        addresses = list(dict.fromkeys(ip_address(answer) for answer in answers))
    except ValueError:
        addresses = []
    if not addresses:
        raise Refused(f"The host {target.host} has no usable address. Check its spelling.")
    if (target.host, target.port) not in allowed and not all(is_public(address) for address in addresses):
        raise Refused(f"The host {target.host} is not on the public web. Only public addresses are fetched.")
    return addresses


def is_public(address: Address) -> bool:
    """Whether `address`, and every IPv4 address embedded in it, is unicast on the public internet."""
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast and not any(address in n for n in _NOT_PUBLIC_V4)
    if address.scope_id is not None:
        return False
    if address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    low = IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _NAT64:
        return is_public(low)
    isatap = (int(address) >> 32) & 0xFDFFFFFF == 0x5EFE  # RFC 5214: 0000:5efe or 0200:5efe, then IPv4
    if isatap and not is_public(low):
        return False
    # Outside 2000::/3 are loopback, compat (::a.b.c.d), ULA, link- and site-local, multicast, local-use NAT64.
    unlisted = not any(address in n for n in _NOT_PUBLIC_V6)
    return unlisted and address in _GLOBAL_UNICAST and address.is_global
