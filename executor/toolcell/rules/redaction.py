"""Remove secrets from texts: known secrets in their usual spellings, and unknown ones by their form or their name.

A server or a tool that repeats a secret seldom writes it as it is: JSON, HTML, URLs and source code escape characters,
each in several ways and sometimes twice. So a text is not searched for every spelling of a secret. Its escapes are
undone, and the plain text is searched for the plain secret. The escapes of the secret itself are undone too: then it
does not matter how often either was escaped. base64 cannot be undone in part, so that of a secret is searched for.
"""

import html
import re
import sys
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeVar, cast
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = [
    "CREDENTIAL",
    "LEAST_CHARS",
    "REDACTED",
    "SHORTEST",
    "Redaction",
    "is_secret",
    "is_suspect",
    "origin_of",
    "secrets_of_url",
    "without_secrets",
]

CREDENTIAL: Final = "[credential]"
"""In place of a secret that the supervisor knows."""
REDACTED: Final = "[redacted]"
"""In place of a secret argument of a call, and of what looks like a secret."""
WINDOW_BYTES: Final = 256 * 1024
LINE: Final = 16
"""The fewest characters of a line of a secret that is a secret itself."""
SHORTEST: Final = 8  # a shorter secret occurs in texts by chance, and a tool could guess it
LEAST_PLAIN: Final = 4
"""A secret is not searched for in unescaped texts if it has fewer bytes without its own escapes."""
MOST_SPELLED: Final = 500
LONGEST_SPELLED: Final = 64 * 1024
"""For further secrets, and for longer ones, base64 and single lines are not searched."""
PASSES: Final = 3
"""How often escapes are undone: one kind of escape may be within another."""
LONGEST_ESCAPE: Final = 12
"""The bytes that one byte of a secret may take in an escaped text: `&#x0000002B;`."""
_BREAK = re.compile(r"\n|\\n")  # environments also have line breaks as a backslash and an n
_ESCAPE = re.compile(
    rb"""
    %(?:25)*(?P<hex>[0-9A-Fa-f]{2})
    | (?:&|\\++u0026)(?:amp;|\#0*38;|\#[xX]0*26;)*
      (?P<entity>\#[0-9]{1,8}|\#[xX][0-9A-Fa-f]{1,8}|[A-Za-z][A-Za-z0-9]{1,31});
    | \\++(?:u(?P<pair>[dD][89abAB][0-9A-Fa-f]{2}\\++u[dD][c-fC-F][0-9A-Fa-f]{2})
        | u(?P<unit>[0-9A-Fa-f]{4}) | U(?P<wide>(?:000[0-9A-Fa-f]|0010)[0-9A-Fa-f]{4})
        | x(?P<byte>[0-9A-Fa-f]{2}) | (?P<char>.)?)
    """,
    re.VERBOSE | re.DOTALL,
)
"""One character in a URL, in HTML, or in a string of JSON or a programming language, escaped once or several times."""
_ESCAPING: Final = frozenset({b"%", b"\\", b"&"})
V = TypeVar("V")
_CONTROLS: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


class Redaction:
    """Removes known secrets from texts. Of a secret with several lines, such as a private key, also removes each line.

    A malicious program can encode a secret in another way. The time is linear in the text's size. Bytes are processed
    in windows, so that other threads can run between them.
    """

    def __init__(self, secrets: Iterable[str], mark: str = CREDENTIAL, first: "Redaction | None" = None) -> None:
        """`first` are other secrets, with a mark of their own, which are removed first."""
        as_text, encoded = set[str](), set[str]()
        for number, secret in enumerate(secrets):
            as_text |= {secret, secret.replace(" ", "+")}  # as the form of a web page sends it
            if at_end := secret[len(secret.rstrip("\\")) :]:  # otherwise a part of an escape would be left
                as_text.update(secret + at_end * (2**times - 1) for times in range(1, PASSES + 1))
            if number < MOST_SPELLED and len(secret) <= LONGEST_SPELLED:
                as_text.update(_lines(secret))
                encoded.update(_in_base64(secret))
        self._first = first
        self._mark = mark.encode()
        self._texts = sorted((as_text | encoded) - {""}, key=len, reverse=True)  # a secret may be part of a longer one
        self._bytes = [_utf8(text) for text in self._texts]
        escapable = [_utf8(text) for text in (*as_text, *(each for each in encoded if "+" in each or "/" in each))]
        plain = {each for text in escapable for each in _unescaped(text)}
        odd = (text for text in as_text if not text.isascii() and len(text) <= LONGEST_SPELLED)
        plain |= {each for text in odd for each in _unescaped(_in_bytes(text))}
        self._plain = [each for each in plain if len(each) >= LEAST_PLAIN]
        self.reach = LONGEST_ESCAPE * len(self._texts[0]) if self._texts else 0
        """The most bytes that a secret takes in a text."""
        self.reach = max(self.reach, 0 if first is None else first.reach)
        self._shortest = min(map(len, (*self._texts, *self._plain)), default=sys.maxsize)

    def text(self, text: str) -> str:
        """The text without the secrets. Few texts have one or an escape, and `in` finds that out fastest."""
        if self._first is not None:
            text = self._first.text(text)
        if len(text) < self._shortest:
            return text
        is_repeated = any(map(text.__contains__, self._texts))
        if is_repeated or "%" in text or "\\" in text or "&" in text:
            return self._redacted(_utf8(text), self._bytes if is_repeated else ()).decode("utf-8", "surrogatepass")
        return text

    def body(self, body: bytes) -> bytes:
        """The bytes without the secrets in UTF-8."""
        return self._redacted(body if self._first is None else self._first.body(body), self._bytes)

    def value(self, value: V) -> V:
        """JSON data, or a value on the wire, with clean texts. Its depth is bounded where it was received."""
        return cast("V", self._value(value))

    def _value(self, value: object) -> object:
        if type(value) is str:
            return self.text(value)
        if type(value) is bytes:
            return self.body(value)
        if type(value) is list:
            return [self._value(each) for each in cast("list[object]", value)]
        if type(value) is dict:
            return {self._value(name): self._value(each) for name, each in cast("dict[object, object]", value).items()}
        return value

    def _redacted(self, body: bytes, repeated: Sequence[bytes]) -> bytes:
        """The bytes without `repeated`, and without the secrets of which characters are escaped."""
        redacted, copied, at = bytearray(), 0, 0
        size = max(WINDOW_BYTES, self.reach)  # else the time would be quadratic for a long secret
        while at < len(body) and self._bytes:
            begin, following = at, at + size
            window = body[begin : following + self.reach]
            for start, end in _merged([*_found(window, repeated), *self._escaped(window)]):
                if begin + start < following:  # otherwise the next window contains all of it
                    redacted += memoryview(body)[copied : begin + start]
                    redacted += self._mark
                    copied = at = begin + end
            at = max(at, following)
        return bytes(redacted + memoryview(body)[copied:]) if copied else body

    def _escaped(self, text: bytes, passes: int = PASSES) -> Iterator[tuple[int, int]]:
        """The places of secrets of which characters are escaped."""
        if not (b"%" in text or b"\\" in text or b"&" in text):
            return
        plain, copied, is_nested = bytearray(), 0, False
        starts, ends, begins, afters = list[int](), list[int](), list[int](), list[int]()
        for escape in _ESCAPE.finditer(text):
            start, end = escape.span()
            plain += text[copied:start]
            begins.append(len(plain))
            meaning = _meaning(escape.lastgroup, escape[escape.lastgroup or 0])
            plain += meaning
            is_nested = is_nested or meaning in _ESCAPING
            starts.append(start)
            ends.append(end)
            afters.append(len(plain))
            copied = end
        if not copied:
            return
        undone = bytes(plain + text[copied:])

        def place(at: int) -> tuple[int, int]:
            """Where a byte of the plain text is in the text."""
            index = bisect_right(begins, at) - 1
            if index >= 0 and at < afters[index]:
                return starts[index], ends[index]
            moved = at if index < 0 else ends[index] + at - afters[index]
            return moved, moved + 1

        further = self._escaped(undone, passes - 1) if is_nested and passes > 1 else ()
        for start, end in (*_found(undone, self._plain), *further):
            yield place(start)[0], place(end - 1)[1]


def _found(body: bytes, secrets: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """The places of secrets in these bytes."""
    for secret in secrets:  # `find` is linear (bpo-41972), and a regular expression is not
        at = body.find(secret)
        while at >= 0:
            yield at, at + len(secret)
            at = body.find(secret, at + len(secret))


def _merged(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The places in order, with overlapping ones merged: a secret may be part of a longer one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _unescaped(text: bytes) -> Iterator[bytes]:
    """The text, and what it is after each pass."""
    yield text
    for _ in range(PASSES):
        text = _ESCAPE.sub(lambda escape: _meaning(escape.lastgroup, escape[escape.lastgroup or 0]), text)
        yield text


@lru_cache(4096)
def _meaning(kind: str | None, said: bytes) -> bytes:
    """The bytes that an escape stands for. None: backslashes at the end of a text, which are left out."""
    if kind is None:
        return b""
    if kind == "char":
        return _CONTROLS.get(said, said)
    text = said.decode("ascii")
    if kind == "entity":
        return _utf8(html.unescape(f"&{text};"))
    if kind in ("hex", "byte"):
        return bytes.fromhex(text)
    if kind in ("unit", "wide"):
        return _utf8(chr(int(text, 16)))
    return bytes.fromhex(text[:4] + text[-4:]).decode("utf-16-be").encode()


def _in_bytes(text: str) -> bytes:
    """The text as `ascii()` of Python escapes it: `\\xe9` is a byte of a URL in UTF-8, and here the letter é."""
    return b"".join(each.encode("latin-1" if each < "\u0100" else "utf-8", "surrogatepass") for each in text)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _in_base64(secret: str) -> Iterator[str]:
    """The secret in the base64 of a longer text, such as "user:secret": three forms, by where it begins, with both
    alphabets of RFC 4648. The characters at both ends, which also have bits of the text around it, are left out.
    """
    data = _utf8(secret)
    yield from _alphabets(b64encode(data).decode().rstrip("="))
    for before in range(3):
        whole = (before + len(data)) * 8 // 6
        yield from _alphabets(b64encode(b"\0" * before + data).decode()[-(-before * 8 // 6) : whole])


def _alphabets(encoded: str) -> tuple[str, str]:
    return encoded, encoded.replace("+", "-").replace("/", "_")


def _lines(secret: str) -> Iterator[str]:
    """The long lines without spaces of a secret with several lines: tools show files by lines."""
    lines = [line.strip() for line in _BREAK.split(secret)]
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= LINE and not any(map(str.isspace, line)))


def origin_of(url: str) -> str:
    """The scheme, host and port of a URL, for people. The rest may hold secrets: hosted servers have them in paths."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    except ValueError:
        return "(not a URL)"


def secrets_of_url(url: str) -> Iterator[str]:
    """The password and the values of the query in a URL, and the parts of its path that look like tokens: they are long
    and have a digit."""
    try:
        parts = urlsplit(url)
        found = {parts.password or "", *(value for _name, value in parse_qsl(parts.query))}
    except ValueError:
        return
    found |= {each for each in parts.path.split("/") if len(each) >= LINE and any(map(str.isdigit, each))}
    yield from (each for each in found | set(map(unquote, found)) if len(each) >= SHORTEST)


LEAST_CHARS: Final = 6
"""The characters of the shortest text with a known form of a secret, `://:p@`."""
_WORDS: Final = "passw(?:or)?d|passphrase|pwd|secret|token|(?:api|access|private|signing|encryption)[_-]?key|credential"
_SECRET: Final = re.compile(rf"(?i){_WORDS}|authorization|^auth$|bearer|cookie|^jwt$|^otp$")
"""The names whose values are secret."""
_IN_TEXT: Final = re.compile(
    r"""
    -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | (?<=://)[^/\s@]*:[^/\s@]+(?=@)                                                        # of a URL
    | (?i:\b(?:bearer|basic)\s+[\w.~+/=-]{8,})
    | \b(?:sk-[\w-]{16,} | gh[pousr]_\w{20,} | github_pat_\w{20,} | xox[abprs]-[\w-]{10,} | glpat-[\w-]{16,}
         | (?:AKIA|ASIA)[0-9A-Z]{16} | AIza[\w-]{30,} | eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)
    """,
    re.VERBOSE | re.DOTALL,
)
_ASSIGNED: Final = re.compile(
    rf"""(?ix)
    ( --[\w-]{{0,40}}(?:{_WORDS})s?[ =] | (?:{_WORDS})s?\\{{0,8}}["']?\s{{0,3}}[=:]\s{{0,3}} )
    (?: (?P<double>")(?:\\.|[^"\\\n]){{4,}} | (?P<single>')(?:\\.|[^'\\\n]){{4,}}
      | (?P<nested>\\{{1,8}}["'])[^"'\\\n]{{4,}} | (?P<open>["']?)(?:[^\s"'&;,\\]|\\(?!\\{{0,8}}["'])){{4,}} )
    | ( (?:authorization|cookie)\\{{0,8}}["']?\s{{0,3}}[=:]\s{{0,3}}\\{{0,8}}["']? )
      (?:[^"'\\\r\n]|\\(?!\\{{0,8}}["'])){{4,}}
    """
)
"""`password=…`, `"token": "…"` with or without backslashes, `--api-key …` or `Authorization: …` in a text. The groups
are the parts to keep."""


@lru_cache(4096)
def is_secret(name: str) -> bool:
    """Whether a variable, a header or an argument of this name has a secret value."""
    return _SECRET.search(name) is not None


def without_secrets(text: str, known: Redaction | None = None) -> str:
    """The text without known secrets and without what has the form of a secret: keys of known services, private keys,
    the password in a URL, and what is assigned to a name such as "password"."""
    if known is not None:
        text = known.text(text)
    if len(text) < LEAST_CHARS or not is_suspect(text):
        return text
    return _ASSIGNED.sub(_hidden, _IN_TEXT.sub(REDACTED, text))


def _hidden(assigned: re.Match[str]) -> str:
    return "".join(group for group in assigned.groups() if group) + REDACTED


def is_suspect(text: str) -> bool:
    """Whether one of the expressions can match: it has a part of one of them. Each call asks this twice. A search for a
    letter takes much less time than one for a word, so words are looked for only in texts with their rarest letter."""
    low = text.lower()
    return (
        "@" in low
        or ("k" in low and ("key" in low or "token" in low or "cookie" in low or "sk-" in low or "akia" in low))
        or ("p" in low and ("pass" in low or "pwd" in low or "glpat" in low))
        or ("c" in low and ("secret" in low or "credential" in low or "basic " in low))
        or ("b" in low and "bearer " in low)
        or ("g" in low and "gh" in low)
        or ("x" in low and "xox" in low)
        or ("j" in low and "eyj" in low)
        or ("z" in low and ("aiza" in low or "authorization" in low))
        or "asia" in low
    )
