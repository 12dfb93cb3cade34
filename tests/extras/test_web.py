"""The extra [web]: a cache that heeds the servers, robots.txt, and articles that are read in a cell."""

import re
import time
from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import pytest
from tests.loopback import Asked, JsonService, said, serving

from toolcell import Profile, PublicWeb, Supervisor, UsageError, base_tools, web_article
from toolcell.backends import FetchedPage, Refused
from toolcell.testing import DictWeb

pytestmark = pytest.mark.anyio
Answer = tuple[int, dict[str, str], bytes]


def a_web(service: JsonService, **options: object) -> PublicWeb:
    return PublicWeb(allow_private=[f"127.0.0.1:{service.server_address[1]}"], **options)  # type: ignore[arg-type]


async def bodies(web: PublicWeb, url: str, times: int = 2, max_bytes: int = 1_000) -> list[bytes]:
    return [(await web.fetch(url, max_bytes=max_bytes)).body for _ in range(times)]


def counting(make: Callable[[Asked, int], Answer]) -> Callable[[Asked], Answer]:
    served: list[Asked] = []

    def answering(asked: Asked) -> Answer:
        served.append(asked)
        return make(asked, len(served))

    return answering


# -- the cache --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "asked"),
    [
        ({"Cache_Control": "max-age=60"}, 1),
        ({"Expires": formatdate(time.time() + 600, usegmt=True)}, 1),
        ({"Cache_Control": "no-store"}, 2),
        ({"Cache_Control": "private, max-age=60"}, 2),
        ({"Cache_Control": "max-age=60", "Vary": "*"}, 2),
        ({"Cache_Control": "max-age=0"}, 2),
        ({}, 2),
    ],
    ids=range(7),
)
async def test_a_page_is_kept_as_its_server_allows(headers: dict[str, str], asked: int) -> None:
    dated = {"Date": formatdate(usegmt=True), **headers}
    with serving(counting(lambda request, number: said(b"page %d" % number, **dated))) as service:
        pages = await bodies(a_web(service, cache_bytes=1_000_000), service.url("/p"))
        assert len(service.asked) == asked and pages[1] == b"page %d" % asked


async def test_a_stale_page_is_confirmed_by_its_etag() -> None:
    def answering(asked: Asked, number: int) -> Answer:
        headers = {"ETag": '"v1"', "Cache_Control": "max-age=0", "Date": formatdate(usegmt=True)}
        if asked.headers.get("if-none-match") == '"v1"':
            return said(b"", 304, **headers)
        return said(b"the page", **headers)

    with serving(counting(answering)) as service:
        web = a_web(service, cache_bytes=1_000_000)
        assert await bodies(web, service.url("/p"), 3) == [b"the page"] * 3
        assert [asked.headers.get("if-none-match") for asked in service.asked] == [None, '"v1"', '"v1"']


async def test_a_kept_page_is_cut_exactly_and_a_cut_page_is_not_kept() -> None:
    headers = {"Cache_Control": "max-age=60", "Date": formatdate(usegmt=True)}
    with serving(counting(lambda asked, number: said(b"x" * 100, **headers))) as service:
        web = a_web(service, cache_bytes=1_000_000)
        cut = await web.fetch(service.url("/p"), max_bytes=40)
        assert (len(cut.body), cut.omitted_bytes) == (40, 60)
        assert len(await bodies(web, service.url("/p"), 1, 200)) == 1 and len(service.asked) == 2
        again = await web.fetch(service.url("/p"), max_bytes=30)
        assert (len(again.body), again.omitted_bytes, len(service.asked)) == (30, 70, 2)


async def test_the_cache_is_bounded() -> None:
    headers = {"Cache_Control": "max-age=60", "Date": formatdate(usegmt=True)}
    with serving(lambda asked: said(b"x" * 5_000, **headers)) as service:
        web = a_web(service, cache_bytes=64 * 1024)
        for number in range(20):
            await web.fetch(service.url(f"/{number}"), max_bytes=10_000)
        found = re.search(r"(\d+) pages, ([\d,]+) of 65,536", repr(web._cache))  # pyright: ignore[reportPrivateUsage]
        assert found is not None and int(found[1]) < 10 and int(found[2].replace(",", "")) <= 65_536
        with pytest.raises(UsageError, match="at least 65,536"):
            PublicWeb(cache_bytes=10)


# -- robots.txt -------------------------------------------------------------------------------------------------------


def robots(text: bytes, status: int = 200) -> Callable[[Asked], Answer]:
    return lambda asked: said(text, status) if asked.path == "/robots.txt" else said(b"page")


@pytest.mark.parametrize(
    ("text", "path", "allowed"),
    [
        (b"User-agent: *\nDisallow: /private", "/private/x", False),
        (b"User-agent: *\nDisallow: /private", "/public", True),
        (b"User-agent: toolcell\nDisallow: /\n\nUser-agent: *\nAllow: /", "/x", False),
        (b"User-agent: other\nDisallow: /", "/x", True),
        (b"User-agent: *\nDisallow: /*.pdf$\nAllow: /open.pdf", "/a/b.pdf", False),
        (b"User-agent: *\nDisallow: /*.pdf$\nAllow: /open.pdf", "/open.pdf", True),
        (b"<html>", "/x", True),
    ],
)
async def test_robots_txt_is_heeded(text: bytes, path: str, allowed: bool) -> None:
    with serving(robots(text)) as service:
        web = a_web(service, robots=True)
        for _ in range(2):
            if allowed:
                assert (await web.fetch(service.url(path), max_bytes=100)).body == b"page"
            else:
                with pytest.raises(Refused, match="asks not to fetch"):
                    await web.fetch(service.url(path), max_bytes=100)
        assert [asked.path for asked in service.asked].count("/robots.txt") == 1
        assert not allowed or len(service.asked) == 3


@pytest.mark.parametrize(("status", "allowed"), [(404, True), (403, True), (500, False), (503, False)])
async def test_a_missing_robots_txt_allows_and_a_failing_server_does_not(status: int, allowed: bool) -> None:
    with serving(robots(b"", status)) as service:
        web = a_web(service, robots=True)
        if allowed:
            assert (await web.fetch(service.url("/x"), max_bytes=100)).status == 200
        else:
            with pytest.raises(Refused, match="cannot be had"):
                await web.fetch(service.url("/x"), max_bytes=100)


async def test_a_hostile_robots_txt_takes_time_by_its_size_only() -> None:
    """A matcher that goes back to each star would not end."""
    text = b"User-agent: *\n" + b"Disallow: /" + b"*a" * 200 + b"b\n" + b"Disallow: /*x*y*z$\n" * 20_000
    with serving(robots(text)) as service:
        await a_web(service, robots=True).fetch(service.url("/" + "a" * 4_000), max_bytes=100)


async def test_robots_txt_does_not_lead_to_pages_outside_of_a_sessions_rules(tmp_path: Path) -> None:
    """The host of an allowed page chooses where its robots.txt redirects."""
    with serving(lambda _asked: said(b"inside")) as inside:

        def redirecting(asked: Asked) -> Answer:
            return said(b"", 302, Location=inside.url("/admin")) if asked.path == "/robots.txt" else said(b"page")

        with serving(redirecting) as outside:
            hosts = [f"127.0.0.1:{each.server_address[1]}" for each in (inside, outside)]
            async with Supervisor(base_tools(), web=PublicWeb(allow_private=hosts, robots=True)) as supervisor:
                profile = Profile.for_kind("main").replace(web=[hosts[1]])
                session = await supervisor.open_session("main", workspace=tmp_path, profile=profile)
                result = await session.call("web_fetch", {"url": outside.url("/")})
                assert result.error is None and "page" in str(result.output)
        assert inside.asked == []


# -- articles ---------------------------------------------------------------------------------------------------------

PARAGRAPH = (
    "<p>The {} cat is a small animal that people keep, and it sleeps most of the day, see <a href='/w'>w</a>.</p>"
)
PAGE = (
    "<html><head><title>Cats</title></head><body><nav><a href='/'>Home</a> Imprint</nav><div>Cookie notice</div>"
    f"<article><h1>On cats</h1>{''.join(PARAGRAPH.format(word) for word in ('first', 'second', 'third', 'last'))}"
    "</article><footer>About us</footer></body></html>"
).encode()


class HtmlWeb(DictWeb):
    async def fetch(self, url: str, *, max_bytes: int) -> FetchedPage:
        return replace(await super().fetch(url, max_bytes=max_bytes), content_type="text/html; charset=utf-8")


async def test_an_article_is_read_in_the_cell_as_markdown(tmp_path: Path) -> None:
    web = HtmlWeb({"https://docs.example.org/cats": PAGE, "https://docs.example.org/none": b"<p>short"})
    async with Supervisor([web_article], web=web) as supervisor:
        session = await supervisor.open_session("worker", workspace=tmp_path)
        result = await session.call("web_article", {"url": "https://docs.example.org/cats"})
        assert result.error is None and result.output["title"] == "Cats"
        text = result.output["text"]
        assert "# On cats" in text and "[w](https://docs.example.org/w)" in text and "The last cat" in text
        assert not {"Home", "Cookie", "About us"} & set(re.findall(r"Home|Cookie|About us", text))
        short = await session.call("web_article", {"url": "https://docs.example.org/none"})
        assert short.output["text"] == "short"
