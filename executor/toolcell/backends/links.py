"""The links in a fetched page, found by the supervisor and not by the cell that asked for the page.

Only patterns of linear time are used, on pieces of the text, because the page is hostile and the interpreter's lock is
held while a piece is read. A link in a comment or a script counts too: the page's author wrote it either way.
"""

import html
import re
from collections.abc import Iterator
from itertools import islice
from typing import Final
from urllib.parse import urljoin

from toolcell.backends.errors import Refused
from toolcell.backends.guard import MAX_URL, Target, parse_url

__all__ = ["MOST_LINKS", "links_in"]

MOST_LINKS: Final = 2_000
"""The most links that are taken from a page, the first ones."""
_MOST_TRIED = 10 * MOST_LINKS  # to read one takes 15 µs
_MOST_READ = 1_000_000
"""The most characters that are resolved, in links and their base: long ones take up to 5 ms each."""
_PIECE = 256 * 1024
_LINK = re.compile(
    r"""\b(?:href|src)\s{0,8}=\s{0,8}(?:"([^"<>]{1,8192})"|'([^'<>]{1,8192})'|([^\s"'<>]{1,8192}))"""
    r"""|(https?://[^\s"'<>\\^`{|}]{1,8192})""",
    re.IGNORECASE,
)
_BASE = re.compile(r"""<base\b[^<>]{0,256}?\bhref\s{0,8}=\s{0,8}["']?([^\s"'<>]{1,8192})""", re.IGNORECASE)
_HEAD = 64 * 1024  # where a <base> is looked for
_ENDS = ".,;:!?'*_"  # punctuation after a URL in running text


def links_in(body: bytes, url: str) -> list[Target]:
    """The links of a page at `url`, normalised, without duplicates, at most `MOST_LINKS`. Blocking."""
    text = body.decode("utf-8", "replace")
    base = _BASE.search(text[:_HEAD])
    around = urljoin(url, html.unescape(base[1])) if base is not None else url
    found: dict[str, Target] = {}
    tried: set[str] = set()
    room = _MOST_READ
    for written in islice(_written(text), _MOST_TRIED):
        if written in tried:
            continue
        room -= len(around) + len(written)
        if room < 0:
            break
        tried.add(written)
        target = _target(around, written)
        if target is not None:
            found.setdefault(target.url, target)
            if len(found) >= MOST_LINKS:
                break
    return list(found.values())


def _written(text: str) -> Iterator[str]:
    """The links as the page has them. A URL in running text may end in punctuation, so it is given without it too."""
    for start in range(0, len(text), _PIECE):
        for match in _LINK.finditer(text, start, start + _PIECE + MAX_URL):
            if match.start() >= start + _PIECE:
                break
            plain = match[4]
            if plain is None:
                yield html.unescape(match[1] or match[2] or match[3])
                continue
            plain = html.unescape(plain)
            yield plain
            for end in (")", "]"):
                if end in plain:
                    yield plain.partition(end)[0].rstrip(_ENDS)
            yield plain.rstrip(_ENDS)


def _target(around: str, written: str) -> Target | None:
    try:
        return parse_url(urljoin(around, written.strip()), any_port=True)
    except (Refused, ValueError):
        return None
