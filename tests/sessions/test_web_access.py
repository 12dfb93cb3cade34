"""The pages that a session may fetch: rules at every hop, and links that only the supervisor can have found."""

from collections.abc import Callable

import pytest

from toolcell import UsageError
from toolcell.backends import FetchedPage, NotConfigured, OutsideRules, SearchHit
from toolcell.backends.addresses import parse_url
from toolcell.sessions.web_access import MOST_GIVEN, MOST_SEEN, RuledWeb, SeenLinks
from toolcell.testing import DictWeb

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
ROOT = "https://a.example.org/"


class Hops:
    """A web client whose pages are redirects (to a URL) or bodies."""

    can_search = True

    def __init__(self, pages: dict[str, str | bytes]) -> None:
        self.pages = pages
        self.sent: list[str] = []

    async def fetch(self, url: str, *, max_bytes: int) -> FetchedPage:
        raise AssertionError("a session with rules asks with a check")

    async def fetch_within(self, url: str, *, max_bytes: int, check: Callable[[str], None]) -> FetchedPage:
        while True:
            check(url)
            self.sent.append(url)
            answer = self.pages[url.partition("#")[0]]
            if isinstance(answer, bytes):
                return FetchedPage(url, 200, "text/html", answer[:max_bytes])
            url = answer

    async def search(self, query: str, *, limit: int) -> list[SearchHit]:
        return [SearchHit(url, url) for url in [*self.pages, "ftp://x"]][:limit]


async def fetch(web: RuledWeb, url: str) -> bytes:
    return (await web.fetch(url, max_bytes=10_000)).body


async def test_a_listed_host_is_fetched_and_another_is_not_sent_to() -> None:
    client = Hops({ROOT: b"page"})
    web = RuledWeb(client, ["a.example.org"], None)
    assert await fetch(web, ROOT) == b"page"
    with pytest.raises(OutsideRules, match=r"Profile\(web=\[…, 'b\.example\.org'\]\)"):
        await fetch(web, "https://b.example.org/?secret")
    assert client.sent == [ROOT]


async def test_a_listed_host_cannot_redirect_to_one_that_is_not_listed() -> None:
    client = Hops({ROOT + "go?to=evil": "https://evil.example.com/?secret", "https://evil.example.com/?secret": b""})
    for rules in (["a.example.org"], ["a.example.org", "seen"]):
        client.sent.clear()
        with pytest.raises(OutsideRules):
            await fetch(RuledWeb(client, rules, SeenLinks()), ROOT + "go?to=evil")
        assert client.sent == [ROOT + "go?to=evil"]


async def test_only_links_of_fetched_pages_and_of_hits_are_seen() -> None:
    client = Hops({ROOT: b'<a href="/next?x=1">', ROOT + "next?x=1": b"two", ROOT + "other": b""})
    seen = SeenLinks()
    web = RuledWeb(client, ["seen"], seen)
    with pytest.raises(OutsideRules, match="not a link that this session has seen"):
        await fetch(web, ROOT)
    seen.give([ROOT])
    assert await fetch(web, ROOT) == b'<a href="/next?x=1">'
    assert await fetch(web, ROOT + "next?x=1#here") == b"two"
    for changed in ("next?x=2", "next", "other"):
        with pytest.raises(OutsideRules):
            await fetch(web, ROOT + changed)
    await web.search("anything", limit=5)
    assert await fetch(web, ROOT + "other") == b""


async def test_a_redirect_from_a_seen_link_is_followed() -> None:
    client = Hops({ROOT: "https://b.example.org/moved", "https://b.example.org/moved": b"there"})
    seen = SeenLinks()
    seen.give([ROOT])
    assert await fetch(RuledWeb(client, ["seen"], seen), ROOT) == b"there"
    with pytest.raises(OutsideRules):
        await fetch(RuledWeb(client, ["seen a.example.org"], seen), ROOT)


async def test_a_session_sees_what_those_above_it_have_seen_and_not_the_other_way() -> None:
    above = SeenLinks()
    below = SeenLinks(above)
    above.give([ROOT])
    below.give([ROOT + "below"])
    assert below.has(parse_url(ROOT)) and below.has(parse_url(ROOT + "below"))
    assert above.has(parse_url(ROOT)) and not above.has(parse_url(ROOT + "below"))


def test_the_links_are_bounded_and_the_oldest_go_first() -> None:
    seen = SeenLinks()
    targets = [parse_url(f"{ROOT}{number}") for number in range(MOST_SEEN + 10)]
    seen.find(targets)
    assert not any(seen.has(target) for target in targets[:10])
    assert seen.has(targets[10]) and seen.has(targets[-1])
    with pytest.raises(UsageError, match="at most 10,000 URLs"):
        seen.give(f"{ROOT}given/{number}" for number in range(MOST_GIVEN + 1))
    assert not seen.has(parse_url(f"{ROOT}given/0"))
    with pytest.raises(UsageError, match="never fetched"):
        seen.give(["file:///etc/passwd"])


async def test_a_client_that_cannot_check_redirects_is_not_asked() -> None:
    class Plain:
        async def fetch(self, url: str, *, max_bytes: int) -> FetchedPage:
            raise AssertionError

        async def search(self, query: str, *, limit: int) -> list[SearchHit]:
            return []

    with pytest.raises(NotConfigured, match="fetch_within"):
        await fetch(RuledWeb(Plain(), ["a.example.org"], None), ROOT)


async def test_the_client_for_tests_heeds_rules_too() -> None:
    client = DictWeb({ROOT: b"page"})
    assert await fetch(RuledWeb(client, ["a.example.org"], None), ROOT) == b"page"
    with pytest.raises(OutsideRules):
        await fetch(RuledWeb(client, ["b.example.org"], None), ROOT)
    assert client.asked == [ROOT]
