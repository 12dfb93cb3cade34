"""The default web client: GET on the public web, from the supervisor, for code that is not trusted. For each hop, the
URL is checked, its host is looked up once, the addresses are checked, and the client connects to one of these. So DNS
rebinding has no effect. There are no proxies, cookies or credentials.
"""

import ssl
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

import anyio

from toolcell.backends.addresses import Target, checked_addresses, parse_pairs, parse_redirect, parse_url
from toolcell.backends.outbound import Outbound, Resolver, check_sender, resolve_with_system
from toolcell.backends.protocols import FetchedPage, NotConfigured, Refused, SearchHit, SearchProvider, Unreachable
from toolcell.errors import ArgumentError
from toolcell.rules import misuse
from toolcell.rules.credentials import Credential, credentials_of

if TYPE_CHECKING:
    from toolcell.backends.exchange import ExchangeReply
import html
import re
from collections.abc import Iterator
from itertools import islice
from typing import Final
from urllib.parse import urljoin

from toolcell.backends.addresses import MAX_URL

__all__ = [
    "MAX_BODY",
    "MOST_LINKS",
    "PublicWeb",
    "links_in",
]

MAX_BODY = 32 * 1024 * 1024
_MAX_QUERY = 1000
_AT_ONCE = 16


class PublicWeb:
    """GET requests on the public web; implements `WebClient`. Tasks and sessions may share one.

    `search` is a search engine: `SearXNG`, `BraveSearch`, `TavilySearch`, `StaticSearch` or one of your own.
    `search_url` is a SearXNG-style JSON endpoint with `{query}` in it; the guard checks it like any page. An endpoint
    on a private network must be listed in `allow_private`, and the agent can then fetch it too. `allow_private` lists
    "host:port" pairs, as they are written in URLs, that may be on a private network or an unusual port. This is the
    only exception to the guard. `timeout_s` is for a whole fetch, from the first name lookup to the last byte.
    `resolve(host, port)` is blocking and returns addresses; `tls` is for a private authority.
    """

    def __init__(
        self,
        *,
        search: SearchProvider | None = None,
        search_url: str | None = None,
        allow_private: Collection[str] = (),
        timeout_s: float = 15.0,
        max_redirects: int = 5,
        user_agent: str = "toolcell/0.1",
        resolve: Resolver = resolve_with_system,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        misuse.check_texts(search_url=search_url)
        if search_url is not None and "{query}" not in search_url:
            raise ArgumentError(
                "search_url has no {query} in it. Write it like 'https://host/search?q={query}&format=json'."
            )
        if search is not None and search_url is not None:
            raise ArgumentError("PublicWeb was given search and search_url. Pass one of them.")
        misuse.check_parts(search=search)
        check_sender(user_agent, resolve, tls)
        self._allowed = parse_pairs(misuse.items("allow_private", allow_private, "('127.0.0.1:8080',)"))
        self._engine = search
        self._search_url = search_url
        self._timeout_s = misuse.seconds("timeout_s", timeout_s)
        self._max_redirects = misuse.whole("max_redirects", max_redirects)
        self._headers = {"User-Agent": user_agent, "Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
        self._outbound = Outbound(_AT_ONCE, resolve, tls)

    @property
    def credentials(self) -> tuple[Credential, ...]:
        """The credentials of the search engine."""
        return credentials_of(self._engine)

    @property
    def can_search(self) -> bool:
        """Whether there is a search engine. Without one, tools that need it say so in their description."""
        return self._search_url is not None or self._engine is not None

    async def fetch(self, url: str, *, max_bytes: int) -> FetchedPage:
        """Return the page at `url`, whatever its status, with at most `max_bytes` of its decoded body.

        `FetchedPage.url` is the URL after redirects; `omitted_bytes` is 0 only if the whole body is returned. Raise
        `Refused` for a URL, redirect or address that is not allowed, and `Unreachable` for every other failure.
        """
        return await self.fetch_within(url, max_bytes=max_bytes, check=_any)

    async def fetch_within(self, url: str, *, max_bytes: int, check: Callable[[str], None]) -> FetchedPage:
        """As `fetch`. `check(url)` is called before each request, and raises for a URL that may not be asked for."""
        if not 0 < max_bytes <= MAX_BODY:
            raise Refused(f"max_bytes is {max_bytes}. Use a number from 1 to {MAX_BODY}.")
        target = parse_url(url, allowed=self._allowed)
        try:
            with anyio.fail_after(self._timeout_s):
                for _ in range(self._max_redirects + 1):
                    check(target.url)
                    reply = await self._get(target, max_bytes)
                    if reply.location is None:
                        return _page(target, reply)
                    target = self._redirected(target, reply.location)
        except TimeoutError:
            why = f"{target.host} did not deliver the page within {self._timeout_s:g} s."
            raise Unreachable(f"{why} Try again later or use another source.") from None
        raise Unreachable(
            f"There were more than {self._max_redirects} redirects, the last to {target.host}. Use another URL."
        )

    async def search(self, query: str, *, limit: int) -> list[SearchHit]:
        """Return at most `limit` hits (never more than 50), best first. Raise as `fetch` does, or `NotConfigured`."""
        if not self.can_search:
            raise NotConfigured(
                "There is no search engine. Whoever runs the agent can set one: "
                "PublicWeb(search_url='https://search.example.com/search?q={query}&format=json')."
            )
        if not query.strip() or len(query) > _MAX_QUERY:
            raise Refused(f"The query has {len(query)} characters. Use words, {_MAX_QUERY} characters at most.")
        if self._engine is not None:
            return await self._engine.search(query, limit=limit)
        from toolcell.backends.search import ANSWER_BYTES, MAX_HITS, hits_of

        assert self._search_url is not None
        quoted = quote(query, safe="", errors="replace")
        page = await self.fetch(self._search_url.replace("{query}", quoted), max_bytes=ANSWER_BYTES)
        if page.status != 200:
            raise Unreachable(
                f"The search engine answered with status {page.status}. Try again later; "
                "whoever runs the agent should check search_url and that the engine allows its JSON format."
            )
        return await self._outbound.in_thread(
            partial(hits_of, page.body, min(limit, MAX_HITS), lambda answer: answer["results"], "content")
        )

    async def _get(self, target: Target, max_bytes: int) -> "ExchangeReply":
        addresses = checked_addresses(target, await self._outbound.addresses(target), self._allowed)
        return await self._outbound.ask(target, addresses, headers=self._headers, max_bytes=max_bytes)

    def _redirected(self, origin: Target, location: str) -> Target:
        try:
            return parse_redirect(origin, location, allowed=self._allowed)
        except Refused as error:
            raise Refused(f"{origin.host} redirects to a URL that is refused. {error}") from None


def _any(url: str) -> None:
    """Check nothing: every page of the public web may be fetched."""


def _page(target: Target, reply: "ExchangeReply") -> FetchedPage:
    omitted = 0 if not reply.truncated else None if reply.total_bytes is None else reply.total_bytes - len(reply.body)
    return FetchedPage(target.url, reply.status, reply.header("content-type")[:256], reply.body, omitted)


# The supervisor finds the links in a fetched page, not the cell that asked for the page. Only patterns of linear time
# are used, on pieces of the text: the page is hostile, and the interpreter's lock is held while a piece is read. A link
# in a comment or a script counts too: the page's author wrote it either way.
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
