"""`web_article`: get the article of a page. A ready tool beside the nine; it reads with trafilatura where that is
installed (the extra `[web]`), in the cell.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext, require
from toolcell_tools.definition import tool
from toolcell_tools.options import Annotations
from toolcell_tools.returned import Answer
from toolcell_tools.signature import LazyField

from .html import page_markdown
from .web_fetch import FETCH_BYTES, answer_of, preview_web_fetch

__all__ = ["web_article"]


@tool(
    needs={Capability.WEB},
    preview=preview_web_fetch,
    annotations=Annotations(title="Read an article", open_world=True),
    metadata={"fetches": True},
)
def web_article(
    ctx: ToolContext,
    url: Annotated[str, LazyField("The page's address, http or https.", min_length=1)],
    max_bytes: Annotated[int, LazyField("How much of the page to load at most.", ge=1)] = FETCH_BYTES,
) -> Answer:
    """Fetch a page from the web with GET and give its main text as Markdown, without what stands around it."""
    return answer_of(require(ctx.web, Capability.WEB).fetch(url, max_bytes), article)


def article(html: str, url: str) -> tuple[str | None, str]:
    """The title and the main text of a page. Without trafilatura, or if it finds no article, all of the page's text."""
    title, text = page_markdown(html, url)
    if find_spec("trafilatura") is None:
        return title, text
    trafilatura: Any = import_module("trafilatura")  # takes some tenths of a second, for this call only
    found: object = trafilatura.extract(html, url=url, output_format="markdown", include_links=True)
    return title, found if isinstance(found, str) and found.strip() else text
