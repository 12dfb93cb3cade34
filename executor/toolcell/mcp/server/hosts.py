"""Decide which Host and Origin headers a server accepts, against DNS rebinding. Both are parsed as a whole."""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from toolcell.errors import UsageError

__all__ = ["HostRules", "is_loopback"]

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_HOST: Final = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?)(?::([1-9][0-9]{0,4}))?")
_ORIGIN: Final = re.compile(r"([a-z][a-z0-9+.-]{0,30})://(.{1,300})")
MAX_PORT: Final = 65_535


def is_loopback(host: str) -> bool:
    """Whether `host` is an address of the loopback interface, or "localhost". False for all other names."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class _HostPort:
    """A host in lower case, and its port. Port 0: no port is given, and a rule covers every port."""

    name: str
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> "Self | None":
        """Parse an authority (RFC 3986, 3.2) without user information. None for any other text."""
        found = _HOST.fullmatch(text.lower()) if text.isascii() else None
        if found is None:
            return None
        port = int(found[2] or 0)
        return cls(found[1], port) if port <= MAX_PORT else None

    def covers(self, other: "_HostPort") -> bool:
        return self.name == other.name and self.port in (0, other.port)


class HostRules:
    """The host names of a server, and the origins whose pages may make requests to it.

    A name without a port covers every port. An origin must match exactly. A server that listens on loopback also
    accepts the http origins of loopback with every port. Raises UsageError for an invalid host or origin.
    """

    def __init__(self, listens_on: str, hosts: Sequence[str], origins: Sequence[str]) -> None:
        on_loopback = is_loopback(listens_on)
        self._hosts = [_named(each) for each in hosts]
        self._origins = {_origin(each) for each in origins}
        self._own = [_HostPort(each) for each in _LOOPBACK] if on_loopback else []
        listening = _HostPort.parse(f"[{listens_on}]" if ":" in listens_on else listens_on)
        if on_loopback or not _is_unspecified(listens_on):
            self._hosts += [*self._own, *([] if listening is None else [listening])]
        elif not self._hosts:
            raise UsageError(f"A server on {listens_on} needs a host name. Pass one: --allow-host mcp.example.org.")

    def accepts_host(self, header: str | None) -> bool:
        """Whether the Host header names this server. None (no such header, or two) does not."""
        said = None if header is None else _HostPort.parse(header)
        return said is not None and any(each.covers(said) for each in self._hosts)

    def accepts_origin(self, header: str) -> bool:
        """Whether pages of this origin may make requests."""
        said = _split(header)
        if said is None:
            return False
        scheme, place = said
        return said in self._origins or (scheme == "http" and any(each.covers(place) for each in self._own))


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _named(rule: str) -> _HostPort:
    place = _HostPort.parse(rule)
    if place is None:
        raise UsageError(f"{rule!r} is not a host. Pass a name, with or without a port: mcp.example.org:8443.")
    return place


def _origin(rule: str) -> tuple[str, _HostPort]:
    found = _split(rule)
    if found is None:
        raise UsageError(f"{rule!r} is not an origin. Pass a scheme and a host: https://app.example.org.")
    return found


def _split(origin: str) -> tuple[str, _HostPort] | None:
    """Parse an origin (RFC 6454, 6.2) into its scheme and its host, without the default port of the scheme."""
    found = _ORIGIN.fullmatch(origin.lower()) if origin.isascii() else None
    place = None if found is None else _HostPort.parse(found[2])
    if found is None or place is None:
        return None
    implied = {"http": 80, "https": 443}.get(found[1])
    return found[1], _HostPort(place.name) if place.port == implied else place
