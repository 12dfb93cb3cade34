"""The extra [web]: articles that are read in a cell."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from toolcell import Supervisor, web_article
from toolcell.backends import FetchedPage
from toolcell.testing import DictWeb

pytestmark = pytest.mark.anyio
Answer = tuple[int, dict[str, str], bytes]


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
