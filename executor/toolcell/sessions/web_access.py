"""The pages that a session may fetch: its profile's rules, and the links that the supervisor has found for it.

The rule "seen" narrows and does not close: whoever writes a page that the session reads decides which links it has.
"""

from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from hashlib import blake2b
from typing import Final, Protocol, cast

from toolcell.backends.addresses import Target, parse_url
from toolcell.backends.protocols import FetchedPage, NotConfigured, OutsideRules, Refused, SearchHit, WebClient
from toolcell.backends.threads import Threads
from toolcell.backends.web import links_in
from toolcell.errors import UsageError
from toolcell.rules.pages import WebRule, rules_of

__all__ = ["MOST_GIVEN", "MOST_SEEN", "RuledWeb", "SeenLinks"]

MOST_SEEN: Final = 10_000
"""The most links that are kept for a session. The oldest is forgotten first."""
MOST_GIVEN: Final = 10_000
"""The most URLs that a program may give a session."""
_THREADS = Threads(2)


class _Checking(Protocol):
    """A web client that asks before each request."""

    async def fetch_within(self, url: str, *, max_bytes: int, check: object) -> FetchedPage: ...


class SeenLinks:
    """The links that the supervisor has found for a session, those of the sessions above it, and the program's URLs.

    A link is kept as a digest of 16 bytes of its normalised URL.
    """

    def __init__(self, above: "SeenLinks | None" = None) -> None:
        self._above = above
        self._found: OrderedDict[bytes, None] = OrderedDict()
        self._given: set[bytes] = set()

    def __repr__(self) -> str:
        return f"<SeenLinks {len(self._found)} found, {len(self._given)} given>"

    def has(self, target: Target) -> bool:
        """Whether this link has been found or given here, or in a session above."""
        link = _digest(target)
        place: SeenLinks | None = self
        while place is not None:
            if link in place._given or link in place._found:
                return True
            place = place._above
        return False

    def find(self, targets: Iterable[Target]) -> None:
        """Add links that the supervisor has found."""
        for target in targets:
            link = _digest(target)
            self._found[link] = None
            self._found.move_to_end(link)
        while len(self._found) > MOST_SEEN:
            self._found.popitem(last=False)

    def give(self, urls: Iterable[str]) -> None:
        """Add URLs of the program. Raises UsageError for one that cannot be fetched, and for too many; then none is
        added."""
        given = {_digest(_given(url)) for url in urls}
        if len(self._given | given) > MOST_GIVEN:
            raise UsageError(f"A session takes at most {MOST_GIVEN:,} URLs. Allow their host in Profile.web instead.")
        self._given |= given


class RuledWeb:
    """A web client for the calls of one session, which fetches what the session's rules allow."""

    def __init__(self, client: WebClient, rules: Iterable[str], seen: SeenLinks | None) -> None:
        self._client, self._rules, self._seen = client, rules_of(rules), seen

    async def search(self, query: str, *, limit: int) -> list[SearchHit]:
        """Search. The URLs of the hits count as seen."""
        hits = await self._client.search(query, limit=limit)
        if self._seen is not None:
            self._seen.find(_targets(hit.url for hit in hits))
        return hits

    async def fetch(self, url: str, *, max_bytes: int) -> FetchedPage:
        """Fetch a page that the rules allow; its links count as seen. Raises OutsideRules for any other."""
        if not callable(getattr(self._client, "fetch_within", None)):
            raise NotConfigured(
                "This session has rules for pages, and its web client cannot check redirects against them. Whoever "
                "runs the agent should give it a web client with fetch_within."
            )
        checking = cast("_Checking", self._client)
        page = await checking.fetch_within(url, max_bytes=max_bytes, check=_Hops(self._rules, self._seen).check)
        if self._seen is not None:
            self._seen.find(await _THREADS.run(partial(links_in, page.body, page.url)))
        return page


class _Hops:
    """The requests of one fetch. A redirect from a seen link leads to a seen link; from a listed host, it does not: the
    agent chose that URL, and may have chosen where it leads.
    """

    def __init__(self, rules: tuple[WebRule, ...], seen: SeenLinks | None) -> None:
        self._rules, self._seen = rules, seen
        self._came_from_seen = False

    def check(self, url: str) -> None:
        """Raise OutsideRules unless a rule allows the URL."""
        target = parse_url(url, any_port=True)
        is_seen = self._seen is not None and (self._came_from_seen or self._seen.has(target))
        covering = [
            rule for rule in self._rules if rule.covers(target.host, target.port) and (is_seen or not rule.seen)
        ]
        if not covering:
            raise OutsideRules(self._why(target))
        self._came_from_seen = is_seen

    def _why(self, target: Target) -> str:
        place = f"{target.scheme}://{target.authority}{target.path}"[:300]
        if any(rule.seen and rule.covers(target.host, target.port) for rule in self._rules):
            return (
                f"{place} is not a link that this session has seen. Fetch a link of a page that it has fetched, or of "
                "a search, exactly as it stands there. Whoever runs the agent can allow it: session.allow_urls([…])."
            )
        return (
            f"{place} is not among the pages that this session's profile allows. Whoever runs the agent can allow its "
            f"host: Profile(web=[…, '{target.authority}'])."
        )


def _digest(target: Target) -> bytes:
    return blake2b(target.url.encode(), digest_size=16).digest()


def _targets(urls: Iterable[str]) -> Iterable[Target]:
    for url in urls:
        try:
            yield parse_url(url, any_port=True)
        except Refused:  # it cannot be fetched anyway
            continue


def _given(url: object) -> Target:
    if not isinstance(url, str):
        raise UsageError(f"allow_urls was given what is not text: {url!r}. Pass URLs.")
    try:
        return parse_url(url, any_port=True)
    except Refused as error:
        raise UsageError(f"allow_urls was given a URL that is never fetched: {error}") from None
