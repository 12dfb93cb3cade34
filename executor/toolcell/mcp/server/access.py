"""Who may use a server over HTTP: clients with a bearer token, and pages of the accepted hosts and origins.

Only digests of tokens are kept, and no message contains a token. The Host and Origin headers are checked against DNS
rebinding; both are parsed as a whole.
"""

import hashlib
import hmac
import ipaddress
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from toolcell.errors import UsageError

__all__ = ["MIN_CHARS", "HostRules", "TokenList", "is_loopback"]

MIN_CHARS: Final = 16
MAX_TOKENS: Final = 10_000
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # b64token, RFC 6750 section 2.1
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_HOST: Final = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?)(?::([1-9][0-9]{0,4}))?")
_ORIGIN: Final = re.compile(r"([a-z][a-z0-9+.-]{0,30})://(.{1,300})")
MAX_PORT: Final = 65_535


class TokenList:
    """The principals of a server, and their tokens. A principal may have several tokens, for a change of tokens.

    A name matches `[a-z][a-z0-9_-]{0,62}`. A token has at least 16 characters of `A-Z a-z 0-9 - . _ ~ + / =`. Raises
    UsageError, which names the principal or the line.
    """

    def __init__(self, tokens: Mapping[str, str | list[str]]) -> None:
        self._known: list[tuple[bytes, str]] = []
        for name, given in tokens.items():
            for token in [given] if isinstance(given, str) else given:
                self._add(name, token, f"of {name!r}")
        if not self._known:
            raise UsageError("There is no token. Write one line for each client: its name and its token.")

    @classmethod
    def parse(cls, text: str, where: str) -> Self:
        """The tokens of a text with `name token` on each line. Blank lines and lines that begin with # are left out."""
        found: dict[str, list[str]] = {}
        for number, line in enumerate(text.splitlines(), 1):
            parts = line.split()
            if not parts or parts[0].startswith("#"):
                continue
            if len(parts) != 2:
                raise UsageError(f"Line {number} of {where} is not a name and a token, with a space between them.")
            found.setdefault(parts[0], []).append(parts[1])
        return cls(found)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The tokens of a file that only its owner can read. Raises UsageError or OSError."""
        with open(path, encoding="utf-8") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise UsageError(f"Others can read the tokens in {str(path)!r}: run `chmod 600` on the file.")
            return cls.parse(file.read(), repr(str(path)))

    def __repr__(self) -> str:
        return f"<TokenList of {len({name for _, name in self._known})} principals>"

    def _add(self, name: str, token: str, where: str) -> None:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name of a principal. Use lower-case letters, digits, - and _.")
        if len(token) < MIN_CHARS or not _TOKEN.fullmatch(token):
            raise UsageError(f"The token {where} is too short, or has other characters than A-Z a-z 0-9 - . _ ~ + / =.")
        if len(self._known) >= MAX_TOKENS:
            raise UsageError(f"There are more than {MAX_TOKENS:,} tokens.")
        self._known.append((_digest(token), name))

    def principal(self, header: str | None) -> str | None:
        """The principal of an Authorization header, or None. The time does not depend on the token."""
        scheme, _, token = (header or "").partition(" ")
        digest = _digest(token.strip())
        found: str | None = None
        for known, name in self._known:  # all of them, whichever fits
            if hmac.compare_digest(known, digest):
                found = name
        return found if scheme.lower() == "bearer" else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


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
