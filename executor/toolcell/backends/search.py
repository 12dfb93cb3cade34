"""Search engines for `PublicWeb`, each with an endpoint that answers in JSON.

The endpoint and the key are the program's. Requests go through `BrokeredHttp`: the address is checked, the key goes to
this host only, and no redirect is followed.
"""

import json
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, cast
from urllib.parse import quote

from toolcell.backends.addresses import Target, parse_url
from toolcell.backends.http.client import BrokeredHttp
from toolcell.backends.outbound import Resolver, resolve_with_system
from toolcell.backends.protocols import HttpRequest, Refused, SearchHit, Unreachable
from toolcell.backends.threads import Threads
from toolcell.errors import ArgumentError
from toolcell.rules.credentials import Credential

__all__ = ["BraveSearch", "SearXNG", "StaticSearch", "TavilySearch", "hits_of"]

MAX_HITS: Final = 50
ANSWER_BYTES: Final = 2 * 1024 * 1024
_FIELD_CHARS = 2000
_Rows = Callable[[Any], object]


class _Engine:
    """One endpoint, asked through the guarded client."""

    def __init__(
        self,
        url: str,
        credential: Credential | None,
        *,
        private: bool,
        timeout_s: float,
        resolve: Resolver,
        tls: ssl.SSLContext | None,
    ) -> None:
        try:
            self._endpoint: Target = parse_url(url, any_port=True)
        except Refused as error:
            raise ArgumentError(f"{type(self).__name__} was given a URL that is refused: {error}") from None
        origin = f"{self._endpoint.scheme}://{self._endpoint.authority}"
        keys = {} if credential is None else {origin: credential}
        exception = f"{type(self).__name__}(..., private=True)"
        self._http = BrokeredHttp(credentials=keys, timeout_s=timeout_s, resolve=resolve, tls=tls, exception=exception)
        self._private = private
        self._threads = Threads(4)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._endpoint.host}>"

    @property
    def credentials(self) -> tuple[Credential, ...]:
        """The engine's key, if it has one."""
        return self._http.credentials

    async def _hits(
        self, query: Mapping[str, str], limit: int, rows: _Rows, snippet: str, body: Mapping[str, object] | None = None
    ) -> list[SearchHit]:
        """The hits of one request: GET with `query`, or POST with `body` as JSON."""
        reply = await self._http.send(
            HttpRequest(
                "GET" if body is None else "POST",
                _with_query(self._endpoint.url, query),
                {"accept": "application/json", **({} if body is None else {"content-type": "application/json"})},
                b"" if body is None else json.dumps(body).encode(),
                private=self._private,
                max_bytes=ANSWER_BYTES,
            )
        )
        if reply.status != 200:
            raise Unreachable(
                f"The search engine answered with status {reply.status}. Try again later; whoever runs the agent "
                "should check its address and its key."
            )
        return await self._threads.run(partial(hits_of, reply.body, min(limit, MAX_HITS), rows, snippet))


class SearXNG(_Engine):
    """A SearXNG instance: `url` is its search page, such as "https://search.example.org/search".

    The instance must allow the format JSON. `private` lets its host have a private address. `credential` is for an
    instance behind a proxy that asks for one.
    """

    def __init__(
        self,
        url: str,
        *,
        credential: Credential | None = None,
        private: bool = False,
        timeout_s: float = 15.0,
        resolve: Resolver = resolve_with_system,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(url, credential, private=private, timeout_s=timeout_s, resolve=resolve, tls=tls)

    async def search(self, query: str, *, limit: int) -> list[SearchHit]:
        return await self._hits({"q": query, "format": "json"}, limit, lambda answer: answer["results"], "content")


class _KeyedEngine(_Engine):
    """An engine that needs a key, which is sent in its own way."""

    _header: ClassVar[str] = "Authorization"
    _prefix: ClassVar[str] = ""

    def __init__(
        self,
        url: str,
        key: Credential | str,
        *,
        private: bool = False,
        timeout_s: float = 15.0,
        resolve: Resolver = resolve_with_system,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        given = Credential(header=self._header, prefix=self._prefix, value_env=key) if isinstance(key, str) else key
        super().__init__(url, given, private=private, timeout_s=timeout_s, resolve=resolve, tls=tls)


class BraveSearch(_KeyedEngine):
    """The web search of Brave's API. `url` is the endpoint that Brave names, which ends in "/web/search".

    `key` is sent in the header X-Subscription-Token: Credential(header=…, value_env="BRAVE_KEY"), or its environment
    variable's name.
    """

    _header = "X-Subscription-Token"

    async def search(self, query: str, *, limit: int) -> list[SearchHit]:
        count = str(max(1, min(limit, 20)))  # the API's own bound
        return await self._hits({"q": query, "count": count}, limit, _of_brave, "description")


def _of_brave(answer: Any) -> object:
    found = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    if found.get("type") == "search" and found.get("web") is None:
        return []  # the API leaves the section out if no page was found
    return found["web"]["results"]


class TavilySearch(_KeyedEngine):
    """The search of Tavily's API. `url` is the endpoint that Tavily names, which ends in "/search".

    `key` is sent as a bearer token: a Credential, or the name of its environment variable.
    """

    _prefix = "Bearer "

    async def search(self, query: str, *, limit: int) -> list[SearchHit]:
        asked = {"query": query, "max_results": max(1, min(limit, 20))}  # the API's own bound
        return await self._hits({}, limit, lambda answer: answer["results"], "content", asked)


class StaticSearch:
    """A fixed list of hits, for tests and for an agent that reads a known set of pages.

    A query finds the hits that share a word with it, those that share most words first.
    """

    def __init__(self, hits: Iterable[SearchHit]) -> None:
        self._hits: Sequence[SearchHit] = tuple(hits)

    async def search(self, query: str, *, limit: int) -> list[SearchHit]:
        asked = set(query.lower().split())
        scored = [(len(asked & _words(hit)), hit) for hit in self._hits]
        found = sorted((each for each in scored if each[0]), key=lambda each: -each[0])
        return [hit for _score, hit in found[:limit]]


def hits_of(body: bytes, limit: int, rows: _Rows, snippet: str) -> list[SearchHit]:
    """The hits in an engine's answer. `rows` finds their list in it, and `snippet` is the key of a hit's text. Raises
    Unreachable for an answer without such a list."""
    try:
        found = rows(json.loads(body))
    except (ValueError, TypeError, LookupError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise Unreachable(
            "The search engine did not answer with a list of results as JSON. Try again later; whoever runs the agent "
            "should check its address, and that it allows the format JSON."
        )
    given = [cast("dict[str, Any]", row) for row in cast("list[object]", found) if isinstance(row, dict)]
    hits = [SearchHit(_text(row.get("title")), _text(row.get("url")), _text(row.get(snippet))) for row in given]
    return [hit for hit in hits if hit.url.startswith(("http://", "https://"))][: max(0, limit)]


def _with_query(url: str, query: Mapping[str, str]) -> str:
    added = "&".join(f"{name}={quote(value, safe='', errors='replace')}" for name, value in query.items())
    return f"{url}{'&' if '?' in url else '?'}{added}" if added else url


def _text(value: object) -> str:
    return value[:_FIELD_CHARS] if isinstance(value, str) else ""


def _words(hit: SearchHit) -> set[str]:
    return set(f"{hit.title} {hit.snippet}".lower().split())
