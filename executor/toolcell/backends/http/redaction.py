"""Add credentials to the headers of a request, and remove them from its answer."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus

from toolcell.backends.errors import NotConfigured
from toolcell.credentials import Credential, base64

__all__ = ["REDACTED", "Redaction", "headers_for"]

REDACTED = "[credential]"
_REDACTED = REDACTED.encode()
WINDOW_BYTES = 256 * 1024
LINE = 16
"""The fewest characters of a line of a secret that is a secret itself."""
_BREAK = re.compile(r"\n|\\n")  # environments also have line breaks as a backslash and an n
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def headers_for(credentials: Iterable[Credential], host: str) -> tuple[Mapping[str, str], "Redaction"]:
    """The headers for these credentials, and the redaction of the answer. Raises NotConfigured if a secret is
    missing.
    """
    headers: dict[str, str] = {}
    secrets: list[str] = []
    for credential in credentials:
        try:
            secret = credential.read()
        except ValueError:
            raise NotConfigured(
                f"The credential for {host} cannot be read. Whoever runs the agent can repair it: {credential.header}."
            ) from None
        headers[credential.header.lower()] = credential.line(secret)
        secrets += credential.parts(secret)
    return headers, Redaction(secrets)


class Redaction:
    """Removes secrets from an answer: in plain form, and as JSON, HTML, URLs and base64 encode them. Of a secret with
    several lines, such as a private key, also removes each line.

    This is for servers that repeat parts of the request. A malicious server can encode a secret in another way. The
    time is linear in the body's size. The body is processed in windows, so that other threads can run between them.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets for form in _forms(secret)}
        texts = sorted(forms, key=len, reverse=True)  # a secret may be part of a longer one
        self._text = re.compile("|".join(map(re.escape, texts))) if texts else None
        self._bytes = [text.encode() for text in texts]
        self._texts = texts
        self._shortest = len(texts[-1]) if texts else 0

    def text(self, text: str) -> str:
        """The text without the secrets. Few texts have one, and `in` finds that out ten times as fast as the
        expression.
        """
        if self._text is None or len(text) < self._shortest:
            return text
        for each in self._texts:
            if each in text:
                return self._text.sub(REDACTED, text)
        return text

    def body(self, body: bytes) -> bytes:
        if not self._bytes:
            return body
        redacted, copied, at, longest = bytearray(), 0, 0, len(self._bytes[0])
        while at < len(body):
            following = at + WINDOW_BYTES
            for start, end in _merged(self._found(body, at, following + longest - 1)):
                if start < following:  # otherwise the next window contains all of it
                    redacted += memoryview(body)[copied:start]
                    redacted += _REDACTED
                    copied = at = end
            at = max(at, following)
        return bytes(redacted + memoryview(body)[copied:]) if copied else body

    def _found(self, body: bytes, start: int, end: int) -> list[tuple[int, int]]:
        """The places of secrets in this part of the body."""
        found: list[tuple[int, int]] = []
        for text in self._bytes:  # `find` is linear (bpo-41972), and a regular expression is not
            at = body.find(text, start, end)
            while at >= 0:
                found.append((at, at + len(text)))
                at = body.find(text, at + len(text), end)
        return found


def _merged(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The places in order, with overlapping ones merged: a secret may be part of a longer one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _forms(secret: str) -> set[str]:
    quoted = json.dumps(secret)[1:-1]
    forms = {secret, quoted, quoted.replace("/", "\\/"), quote(secret, safe=""), quote_plus(secret)}
    forms |= {secret.translate(_HTML), secret.translate(_HTML).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")}
    encoded = {base64(secret), base64(secret).rstrip("="), *_inside_base64(secret)}
    forms |= encoded | {each.replace("+", "-").replace("/", "_") for each in encoded}
    return forms | {quote(secret), *_lines(secret)}


def _inside_base64(secret: str) -> Iterator[str]:
    """The secret in the base64 of a longer text, such as "user:secret": three forms, by where it begins. The characters
    at both ends, which also have bits of the text around it, are left out.
    """
    for before in range(3):
        encoded = base64("\0" * before + secret)
        whole = (before + len(secret.encode())) * 8 // 6
        yield encoded[-(-before * 8 // 6) : whole]


def _lines(secret: str) -> Iterator[str]:
    """The long lines without spaces of a secret with several lines: tools show files by lines."""
    lines = [line.strip() for line in _BREAK.split(secret)]
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= LINE and not any(map(str.isspace, line)))
