"""Check a request by the rules of a profile, and the headers that a tool may set. Pure: no socket, no clock.

A request that two servers could parse differently is refused: a header with an underscore, an encoded dot segment.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import unquote

from toolcell.backends.addresses import Target
from toolcell.backends.protocols import Refused
from toolcell.rules.hosts import METHODS, HttpRule

__all__ = ["answer_headers", "checked_headers", "checked_method", "rule_for"]

MAX_HEADERS = 64
HEADER_BYTES = 16 * 1024  # nginx and Apache accept lines of 8 KiB
DECODED = 4  # decodings; no honest path needs more
_ENDED = re.compile(r"[;?#]")  # after parameters, or after a decoded query or fragment
_UNSEEN = dict.fromkeys((*range(0x21), 0x7F, 0x85))  # control characters and spaces, which some parsers drop
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")  # RFC 9110, 5.6.2
_VALUE = re.compile(r"[\t\x20-\x7e]*")

# Headers of the connection and of the supervisor; credentials; overrides of the method or path, which make a proxy or a
# framework see another request; headers that claim another client.
_NOT_A_TOOLS = frozenset(
    [
        "host",
        "connection",
        "keep-alive",
        "content-length",
        "transfer-encoding",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "http2-settings",
        "accept-encoding",
        "authorization",
        "cookie",
        "cookie2",
        "forwarded",
        "via",
        "x-real-ip",
        "true-client-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "cf-connecting-ip",
        "cf-connecting-ipv6",
        "remote-user",
        "x-http-method",
        "x-http-method-override",
        "x-method-override",
        "x-original-url",
        "x-rewrite-url",
        "x-original-host",
        "x-host",
    ]
)
_NOT_A_TOOLS_PREFIXES = ("proxy-", "x-forwarded-")

# Headers of the connection, and headers that are credentials: a session in a cookie, a challenge's proof.
_NOT_FOR_A_TOOL = frozenset(
    [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-encoding",
        "set-cookie",
        "set-cookie2",
        "authentication-info",
    ]
)


def checked_method(method: str) -> str:
    """The method in upper case. Raises Refused if it is not allowed."""
    name = method.upper() if method.isascii() else method
    if name not in METHODS:
        raise Refused(f"The method {method[:20]!r} is not supported. Use one of {', '.join(METHODS)}.")
    return name


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a tool, with names in lower case. Raises Refused for a header that a tool may not set."""
    if len(headers) > MAX_HEADERS or sum(len(name) + len(value) for name, value in headers.items()) > HEADER_BYTES:
        raise Refused(f"The headers are too many or too long. Send at most {MAX_HEADERS}, of {HEADER_BYTES:,} bytes.")
    checked: dict[str, str] = {}
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name):
            raise Refused(f"{name[:40]!r} is not a header name. Use letters, digits and hyphens.")
        if not _VALUE.fullmatch(value):
            raise Refused(f"The header {name!r} has a line end, a control or a non-ASCII character. Leave it out.")
        low = name.lower()
        meant = low.replace("_", "-")  # CGI and WSGI cannot tell the two apart
        if meant in _NOT_A_TOOLS or meant.startswith(_NOT_A_TOOLS_PREFIXES):
            raise Refused(
                f"The header {name!r} is not a tool's to set: the supervisor sets what is needed. Leave it out."
            )
        if low in checked:
            raise Refused(f"The header {name!r} is there twice. Send it once.")
        checked[low] = value
    return checked


def rule_for(rules: Sequence[HttpRule], method: str, target: Target) -> HttpRule:
    """The rule that covers the request, preferably one without private addresses. Raises Refused, with the cure, if
    there is none.
    """
    path = target.path.partition("?")[0]
    covering = [rule for rule in rules if rule.covers(method, target.scheme, target.host, target.port, path)]
    if covering and any(rule.path for rule in covering) and not _has_one_reading(path):
        covering = [rule for rule in covering if not rule.path]
    if not covering:
        place = f"{target.scheme}://{target.authority}"
        raise Refused(
            f"{method} {place}{path[:200]} is not among the requests that this session's profile allows. "
            f"Whoever runs the agent can allow it: Profile(http=[..., '{method} {place}'])."
        )
    return min(covering, key=lambda rule: rule.private)


def _has_one_reading(path: str) -> bool:
    """Whether no parser could find a dot segment in the path, even one that decodes the path more than once."""
    for _ in range(DECODED):
        path = unicodedata.normalize("NFKC", path)  # a full-width dot becomes a dot; a full-width "%" becomes a "%"
        segments = (_ENDED.split(segment)[0] for segment in re.split(r"[/\\]", path))
        if any(segment.translate(_UNSEEN) in (".", "..") for segment in segments):
            return False
        try:
            decoded = unquote(path, errors="strict")
        except UnicodeDecodeError:  # possibly an overlong encoding of a dot
            return False
        if decoded == path:
            return "\0" not in path
        path = decoded
    return False


def answer_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers of the answer that a tool gets, with names in lower case. Several headers of one name are joined by
    ", ".
    """
    found: dict[str, str] = {}
    names = [name.lower() for name, _value in headers]
    encoded = "content-encoding" in names
    for name, (_name, value) in zip(names, headers, strict=True):
        if name in _NOT_FOR_A_TOOL or (name == "content-length" and encoded):  # the body is decoded
            continue
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found
