"""The spellings of a secret: where it is in a text, however its characters are escaped.

A server or a tool that repeats a secret seldom writes it as it is: JSON, HTML, URLs and source code escape characters,
each in several ways and sometimes twice. So a text is not searched for every spelling of a secret. Its escapes are
undone, and the plain text is searched for the plain secret. The escapes of the secret itself are undone too: then it
does not matter how often either was escaped. base64 cannot be undone in part, so that of a secret is searched for.

The time is linear in the text's size.
"""

import html
import re
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Final

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
_CONTROLS: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def spelled(secrets: Iterable[str]) -> tuple[set[str], set[bytes]]:
    """The texts to search for in a text as it is, and the bytes to search for in a text without its escapes. Of a
    secret with several lines, such as a private key, each line is searched for too."""
    as_text, encoded = set[str](), set[str]()
    for number, secret in enumerate(secrets):
        as_text |= {secret, secret.replace(" ", "+")}  # as the form of a web page sends it
        if at_end := secret[len(secret.rstrip("\\")) :]:  # otherwise a part of an escape would be left
            as_text.update(secret + at_end * (2**times - 1) for times in range(1, PASSES + 1))
        if number < MOST_SPELLED and len(secret) <= LONGEST_SPELLED:
            as_text.update(_lines(secret))
            encoded.update(_in_base64(secret))
    escapable = [utf8(text) for text in (*as_text, *(each for each in encoded if "+" in each or "/" in each))]
    plain = {each for text in escapable for each in _unescaped(text)}
    odd = (text for text in as_text if not text.isascii() and len(text) <= LONGEST_SPELLED)
    plain |= {each for text in odd for each in _unescaped(_in_bytes(text))}
    return (as_text | encoded) - {""}, {each for each in plain if len(each) >= LEAST_PLAIN}


def places(text: bytes, repeated: Iterable[bytes], plain: Collection[bytes]) -> list[tuple[int, int]]:
    """The places of secrets, in order: of `repeated` as they are, and of `plain` with escaped characters. Overlapping
    places are merged: a secret may be part of a longer one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted([*_found(text, repeated), *_escaped(text, plain)]):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _found(body: bytes, secrets: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """The places of secrets in these bytes."""
    for secret in secrets:  # `find` is linear (bpo-41972), and a regular expression is not
        at = body.find(secret)
        while at >= 0:
            yield at, at + len(secret)
            at = body.find(secret, at + len(secret))


def _escaped(text: bytes, secrets: Collection[bytes], passes: int = PASSES) -> Iterator[tuple[int, int]]:
    """The places of secrets of which characters are escaped. `secrets` are without escapes."""
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

    further = _escaped(undone, secrets, passes - 1) if is_nested and passes > 1 else ()
    for start, end in (*_found(undone, secrets), *further):
        yield place(start)[0], place(end - 1)[1]


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
        return utf8(html.unescape(f"&{text};"))
    if kind in ("hex", "byte"):
        return bytes.fromhex(text)
    if kind in ("unit", "wide"):
        return utf8(chr(int(text, 16)))
    return bytes.fromhex(text[:4] + text[-4:]).decode("utf-16-be").encode()


def _in_bytes(text: str) -> bytes:
    """The text as `ascii()` of Python escapes it: `\\xe9` is a byte of a URL in UTF-8, and here the letter é."""
    return b"".join(each.encode("latin-1" if each < "\u0100" else "utf-8", "surrogatepass") for each in text)


def utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _in_base64(secret: str) -> Iterator[str]:
    """The secret in the base64 of a longer text, such as "user:secret": three forms, by where it begins, with both
    alphabets of RFC 4648. The characters at both ends, which also have bits of the text around it, are left out.
    """
    data = utf8(secret)
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
