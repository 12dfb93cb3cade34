"""The search engines, against services on loopback that speak their formats; the keys stay in the supervisor."""

import json
from typing import Any

import pytest
from tests.loopback import Asked, said, serving

from toolcell import BraveSearch, Credential, PublicWeb, SearchProvider, SearXNG, StaticSearch, TavilySearch, UsageError
from toolcell.backends import Refused, SearchHit, Unreachable
from toolcell.backends.search import hits_of

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
KEY = "key-of-the-engine-123"
HITS = [SearchHit("A", "https://a.example.org/", "first"), SearchHit("B", "http://b.example.org/", "")]


def rows(snippet: str) -> list[dict[str, Any]]:
    return [
        {"title": "A", "url": "https://a.example.org/", snippet: "first", "score": 0.9},
        {"title": "B", "url": "http://b.example.org/", snippet: None},
        {"title": "no page", "url": "ftp://c.example.org/"},
    ]


def key(**more: Any) -> Credential:
    return Credential(value=KEY, **more)


async def test_searxng_is_asked_for_json(anyio_backend: str) -> None:
    with serving(lambda asked: said({"query": "x", "results": rows("content")})) as service:
        engine: SearchProvider = SearXNG(service.url("/search"), private=True)
        assert await engine.search("a&b ü", limit=5) == HITS
        assert await engine.search("x", limit=1) == HITS[:1]
        assert service.asked[0].path == "/search?q=a%26b%20%C3%BC&format=json"
        assert "authorization" not in service.asked[0].headers


async def test_brave_gets_its_key_in_its_header() -> None:
    with serving(lambda asked: said({"type": "search", "web": {"results": rows("description")}})) as service:
        engine = BraveSearch(service.url("/res/v1/web/search"), key(header="X-Subscription-Token"), private=True)
        assert await engine.search("cats", limit=50) == HITS
        (asked,) = service.asked
    assert (asked.method, asked.path) == ("GET", "/res/v1/web/search?q=cats&count=20")
    assert asked.headers["x-subscription-token"] == KEY


@pytest.mark.parametrize(("answer", "is_one"), [({"type": "search", "query": {}}, True), ({"type": "error"}, False)])
async def test_an_answer_of_brave_without_pages_has_no_hits(answer: dict[str, Any], is_one: bool) -> None:
    with serving(lambda asked: said(answer)) as service:
        engine = BraveSearch(service.url("/s"), key(header="X-Subscription-Token"), private=True)
        if is_one:
            assert await engine.search("cats", limit=5) == []
        else:
            with pytest.raises(Unreachable, match="did not answer with a list"):
                await engine.search("cats", limit=5)


async def test_tavily_gets_its_key_as_a_bearer_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", KEY)
    with serving(lambda asked: said({"query": "cats", "results": rows("content")})) as service:
        engine = TavilySearch(service.url("/search"), "ENGINE_KEY", private=True)
        assert await engine.search("cats", limit=3) == HITS
        (asked,) = service.asked
    assert (asked.method, asked.json) == ("POST", {"query": "cats", "max_results": 3})
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(engine)


@pytest.mark.parametrize(
    "answer",
    [
        said({"error": "no"}, 401),
        said(b"<html>"),
        said([]),
        said({"results": {"a": 1}}),
        said(b"[" * 100_000),
        said(b"x" * 3_000_000),
        said({}, 302, Location="http://127.0.0.1:1/"),
    ],
    ids=range(7),
)
async def test_an_engine_that_does_not_answer_as_it_should_is_unreachable(answer: Any) -> None:
    with serving(lambda asked: answer) as service, pytest.raises(Unreachable) as caught:
        await SearXNG(service.url("/s"), credential=key(), private=True).search("x", limit=1)
    assert KEY not in str(caught.value)


async def test_an_engine_on_a_private_address_must_be_said_to_be_there() -> None:
    with serving(lambda asked: said({"results": []})) as service:
        with pytest.raises(Refused, match=r"not public.*SearXNG\(\.\.\., private=True\)"):
            await SearXNG(service.url("/s")).search("x", limit=1)
        assert service.asked == []


async def test_a_public_web_searches_with_the_engine_that_it_was_given() -> None:
    def answering(asked: Asked) -> tuple[int, dict[str, str], bytes]:
        return said({"results": rows("content")})

    with serving(answering) as service:
        web = PublicWeb(search=SearXNG(service.url("/s"), private=True))
        assert web.can_search and await web.search("cats", limit=1) == HITS[:1]
        with pytest.raises(Refused, match="query"):
            await web.search(" ", limit=1)
    assert not PublicWeb().can_search
    with pytest.raises(UsageError, match="search and search_url"):
        PublicWeb(search=StaticSearch([]), search_url="https://s.example.org/{query}")


async def test_a_static_search_ranks_by_shared_words() -> None:
    hits = [
        SearchHit("Cats and dogs", "https://a.example.org/"),
        SearchHit("Cats", "https://b.example.org/", "dogs sleep"),
    ]
    engine = StaticSearch(hits)
    assert await engine.search("dogs SLEEP", limit=5) == [hits[1], hits[0]]
    assert await engine.search("birds", limit=5) == []


def test_the_fields_of_a_hit_are_bounded() -> None:
    body = json.dumps({"results": [{"title": "t" * 5_000, "url": "https://a.example.org/", "content": 7}]}).encode()
    (hit,) = hits_of(body, 5, lambda answer: answer["results"], "content")
    assert (len(hit.title), hit.snippet) == (2_000, "")


@pytest.mark.parametrize("url", ["", "ftp://x.example.org", "https://user:pw@x.example.org/", "https://a b/"])
def test_an_endpoint_that_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="SearXNG was given a URL that is refused"):
        SearXNG(url)
