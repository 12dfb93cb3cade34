"""Rules for the HTTP requests of a session's tools. Each rule is a line of text. No code here opens a socket.

The kernel does not enforce these rules. The supervisor makes the requests and holds the credentials. A cell needs no
network and gets no rules. `backends.http.checks` compares a request with the rules.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from toolcell_sandbox.network import Pattern, read_pattern

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""The methods that a rule may name. `*` stands for all of them. TRACE and CONNECT are left out: TRACE returns the
request, and CONNECT opens a tunnel.
"""
PORTS = {"http": 80, "https": 443}
_PLACE = re.compile(r"(?:([a-z][a-z0-9+.-]*)://)?([^/]*)(/.*)?", re.ASCII | re.DOTALL)
_PATH = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)*/?")  # RFC 3986, 3.3, without empty segments
_EXAMPLES = "Write it like 'GET api.example.com', 'GET,POST https://api.example.com/v1' or '* http://127.0.0.1:8080'."


@dataclass(frozen=True, slots=True)
class HttpRule:
    """One parsed rule. `host` includes its port. `path` is "" or "/" and whole segments, without a slash at the end.

    If `private` is true, the host's addresses need not be public.
    """

    methods: frozenset[str]
    scheme: str
    host: Pattern
    path: str
    private: bool

    @classmethod
    def parse(cls, text: object) -> "HttpRule":
        """Parse "METHODS PLACE" or "METHODS PLACE private". Raises ValueError with the remedy.

        METHODS are separated by commas. PLACE is a host, or `*.` and the end of host names, with an optional scheme
        (https if left out), port and path, which stands for itself and all that is below it.
        """
        words = text.split(" ") if isinstance(text, str) else []
        if len(words) not in (2, 3) or (len(words) == 3 and words[2] != "private"):
            raise _unreadable(text, "is not methods, a space and a place, with an optional 'private' after them")
        methods = frozenset(METHODS if words[0] == "*" else words[0].split(","))
        if not methods <= set(METHODS):
            raise _unreadable(text, f"names a method other than {', '.join(METHODS)}")
        place = _PLACE.fullmatch(words[1])
        scheme, authority, path = place.groups() if place is not None else (None, "", None)
        scheme, path = scheme or "https", path or ""
        if scheme not in PORTS:
            raise _unreadable(text, "has a scheme other than http and https")
        if not _PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
            raise _unreadable(
                text, "has a path with empty or dot segments, a query, or characters that are invalid in a path"
            )
        host = read_pattern(authority, "Profile.http", _EXAMPLES)
        if host.subdomains and len(words) == 3:
            raise _unreadable(text, "has 'private' for more than one host; write a rule for each host")
        host = host if host.port is not None else replace(host, port=PORTS[scheme])
        return cls(methods, scheme, host, path.rstrip("/"), len(words) == 3 or _is_address(host))

    def __str__(self) -> str:
        methods = (
            "*"
            if self.methods == frozenset[str](METHODS)
            else ",".join(each for each in METHODS if each in self.methods)
        )
        name = f"[{self.host.host}]" if ":" in self.host.host else self.host.host
        port = "" if self.host.port == PORTS[self.scheme] else f":{self.host.port}"
        private = " private" if self.private and not _is_address(self.host) else ""
        return f"{methods} {self.scheme}://{'*.' if self.host.subdomains else ''}{name}{port}{self.path}{private}"

    def covers(self, method: str, scheme: str, host: str, port: int, path: str) -> bool:
        """Whether this rule covers a request. `host` is normalised, and `path` has no query and no ambiguous
        segments.
        """
        below = path == self.path or path.startswith(self.path + "/")
        return method in self.methods and scheme == self.scheme and self.host.covers(host, port) and below

    def common(self, other: "HttpRule") -> "HttpRule | None":
        """A rule for the requests that both rules cover, or None."""
        methods = self.methods & other.methods
        host = self.host if self.host.is_within(other.host) else other.host
        path = max(self.path, other.path, key=len)
        below = all(path == each.path or path.startswith(each.path + "/") for each in (self, other))
        same = self.scheme == other.scheme and host.is_within(self.host) and host.is_within(other.host)
        if not (methods and same and below):
            return None
        return HttpRule(methods, self.scheme, host, path, self.private and other.private)

    def is_within(self, others: Iterable["HttpRule"]) -> bool:
        """Whether the others cover every request that this rule covers."""
        wider = list(others)
        return all(any(each.common(other) == each for other in wider) for each in self._by_method())

    def _by_method(self) -> Iterator["HttpRule"]:
        return (replace(self, methods=frozenset({method})) for method in self.methods)


def rules_of(texts: Iterable[str]) -> tuple[HttpRule, ...]:
    """The rules in these lines, without duplicates."""
    return tuple(dict.fromkeys(HttpRule.parse(text) for text in texts))


def is_narrower(texts: Iterable[str], others: Iterable[str]) -> bool:
    """Whether the first rules allow only requests that the others allow. True for equal rules."""
    wider = rules_of(others)
    return all(rule.is_within(wider) for rule in rules_of(texts))


def common(texts: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """Rules for the requests that both allow."""
    wider = rules_of(others)
    both = [rule.common(other) for rule in rules_of(texts) for other in wider]
    return tuple(dict.fromkeys(str(rule) for rule in both if rule is not None))


def _is_address(host: Pattern) -> bool:
    """Whether the host is an address. No name ends in a number (`network.normal_host`)."""
    return ":" in host.host or host.host.rpartition(".")[2].isdigit()


def _unreadable(text: object, why: str) -> ValueError:
    return ValueError(f"Profile.http has a rule that {why}: {text!r}. {_EXAMPLES}")
